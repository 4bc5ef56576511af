"""The command `sparkcrypt verify` as a job: `spark-submit jobs/verify_table.py --table db.t --policy F`."""

from sparkcrypt.cli.tables.verify import verify

if __name__ == "__main__":
    verify.main(prog_name="verify_table.py")
