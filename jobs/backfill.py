"""The command `sparkcrypt backfill` as a job: `spark-submit jobs/backfill.py --database sales --policy F`."""

from sparkcrypt.cli.runs.backfill import backfill

if __name__ == "__main__":
    backfill.main(prog_name="backfill.py")
