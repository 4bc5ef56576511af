"""The commands `sparkcrypt shred plan|apply` as a job: `spark-submit jobs/shred_keys.py plan --policy F`."""

from sparkcrypt.cli.runs.shred import shred

if __name__ == "__main__":
    shred.main(prog_name="shred_keys.py")
