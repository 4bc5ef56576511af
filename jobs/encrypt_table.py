"""The command `sparkcrypt encrypt` as a job: `spark-submit jobs/encrypt_table.py --table db.t --policy F`."""

from sparkcrypt.cli.tables.encrypt import encrypt

if __name__ == "__main__":
    encrypt.main(prog_name="encrypt_table.py")
