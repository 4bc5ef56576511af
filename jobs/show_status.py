"""The command `sparkcrypt status` as a job: `spark-submit jobs/show_status.py --policy F --report URI`."""

from sparkcrypt.cli.runs.status import status

if __name__ == "__main__":
    status.main(prog_name="show_status.py")
