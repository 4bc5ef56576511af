"""The command `sparkcrypt rotate` as a job: `spark-submit jobs/rotate_keys.py --key K --policy F`."""

from sparkcrypt.cli.runs.rotate import rotate

if __name__ == "__main__":
    rotate.main(prog_name="rotate_keys.py")
