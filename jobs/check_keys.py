"""The command `sparkcrypt keys check` as a job: `spark-submit jobs/check_keys.py --table db.t --policy F`."""

from sparkcrypt.cli.setup.keys import check_keys

if __name__ == "__main__":
    check_keys.main(prog_name="check_keys.py")
