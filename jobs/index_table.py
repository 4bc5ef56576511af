"""The command `sparkcrypt index` as a job: `spark-submit jobs/index_table.py refresh --table T --policy F`."""

from sparkcrypt.cli.files.index import index

if __name__ == "__main__":
    index.main(prog_name="index_table.py")
