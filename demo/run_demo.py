"""The demo on this machine alone: local mode, an embedded metastore, keys in a directory."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from showcase import HERE, DemoError, Showcase, console, fresh

WORK = HERE / "work"


class Reader(Showcase):
    """A reader whose key directory lacks the key ``aircraft``: it is copied when the reader first runs a step."""

    def run(self, command: list[str], *, show_errors: bool = False) -> str:
        """Copy the keys but one, then run the step."""
        if not self.policy.exists():
            folder = self.work / "keys-of-reader"
            shutil.copytree(self.work / "keys", folder)
            for key in folder.glob("aircraft*"):
                key.unlink()
            self.policy.write_text(
                (HERE / "policy.yaml").read_text().replace("work/keys", folder.name).replace("work/", "")
            )
        return super().run(command, show_errors=show_errors)


def main() -> int:
    """Run the demo; return the exit code."""
    fresh(WORK)
    demo = Showcase(WORK, HERE / "policy.yaml", defaults(WORK))
    demo.prepare()
    try:
        demo.show(Reader(WORK, WORK / "reader.yaml", demo.defaults))
    except DemoError as error:
        console.print(f"The demo failed: {error}", style="red", markup=False)
        return 1
    return 0


def defaults(work: Path) -> dict[str, str]:
    """Return Spark's properties: everything below the demo's own folder."""
    return {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{work}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{work}/metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={work}/derby.log",
    }


if __name__ == "__main__":
    sys.exit(main())
