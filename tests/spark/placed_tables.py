"""One table of a format, in a place, by a swap: from its plan to a rotation of its keys, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.files.orc import inspect_orc
from sparkcrypt.files.parquet import inspect_file
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.rotate import rotate_key
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import PLAIN, SECRET, retriever, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = "formats: [parquet, orc]\n"
FILES = 4
SWAPS = {
    "partition location": ("PARTITIONED BY (p)", "set location"),
    "table location": ("LOCATION '{folder}'", "set location"),
    "renamed folder": ("", "rename"),
}
"""What a table is made with, and what its report calls the swap."""


@dataclass(frozen=True)
class PlacedTable:
    """A table of a format below a folder, in a database of its own that lies there."""

    format: str
    swap: str
    root: str
    form: str = "using"

    @property
    def database(self) -> str:
        """The database, whose managed tables lie below the folder."""
        return "placed_" + "_".join((self.format, self.form, self.swap.replace(" ", "_")))

    @property
    def name(self) -> str:
        """The table's name."""
        return f"{self.database}.t"

    def fill(self, spark: SparkSession) -> None:
        """Make the table in clear by a session without a policy: four files, two a partition if it has some."""
        spark.conf.set(f"spark.sql.{self.format}.compression.codec", "uncompressed")
        spark.sql(f"CREATE DATABASE {self.database} LOCATION '{self.root}/{self.database}'")
        clause, _ = SWAPS[self.swap]
        clause = clause.format(folder=f"{self.root}/external")
        columns = "id INT, email STRING, note STRING, p INT"
        if self.form == "hive":
            columns, clause = (columns[:-7], clause.replace("(p)", "(p INT)")) if "(p)" in clause else (columns, clause)
            external = "EXTERNAL " if "LOCATION" in clause else ""
            first, _, last = clause.partition("LOCATION")
            last = f"LOCATION{last}" if last else ""
            spark.sql(f"CREATE {external}TABLE {self.name} ({columns}) {first} STORED AS {self.format} {last}")
        else:
            spark.sql(f"CREATE TABLE {self.name} ({columns}) USING {self.format} {clause}")
        for n in range(2):
            rows = ", ".join(f"({n}, '{SECRET}-{n}', '{PLAIN}', {p})" for p in range(2))
            spark.sql(f"INSERT INTO {self.name} VALUES {rows}")

    def live_through(self, spark: SparkSession, policy: Policy) -> dict[str, Any]:
        """Plan, encrypt, verify, roll back, encrypt again, rotate and expire; return what each step gave, as JSON."""
        set_tags(spark, self.name, {"email": ["pii"]}, policy)
        files, before = _Files(spark, self, policy), rows_of(spark.table(self.name))
        dry = PassOptions(run=RunOptions(keep_going=True, dry_run=True))
        planned = backfill(spark, policy, tables=[self.name], options=dry).tables[0].planned
        told: dict[str, Any] = {
            "at first": files.keys(),
            "planned": sorted({name for unit in planned for name in unit["actions"]}),
        }

        def rows_are_the_same() -> bool:
            spark.catalog.refreshTable(self.name)
            return rows_of(spark.table(self.name)) == before

        run = encrypt_table(spark, self.name, policy)
        told["run"] = [run.outcome, run.files_rewritten, run.rows, run.columns, run.swap, run.verified]
        told["engines"] = sorted({unit["engine"] for unit in run.units})
        told["encrypted"] = [files.keys(), rows_are_the_same(), files.texts_in_use(), len(files.in_clear())]
        second = encrypt_table(spark, self.name, policy)
        told["second run"] = [second.outcome, second.files_rewritten, second.files_skipped]
        told["verified"] = self._verify(spark, policy)
        rollback_run(spark, self.name, policy, run.run_id or "")
        told["rolled back"] = [files.keys(), rows_are_the_same()]
        told["again"] = encrypt_table(spark, self.name, policy).outcome
        told["rotated"] = rotate_key(spark, policy, "pii", tables=[self.name]).tables[0].files_rewritten
        dry_expire = expire_run(spark, self.name, policy, options=ExpiryOptions(dry_run=True)).files
        told["expired"] = [dry_expire > 0, expire_run(spark, self.name, policy).files == dry_expire]
        told["at last"] = [files.keys(), self._verify(spark, policy), rows_are_the_same(), files.in_clear()]
        return told

    def expect(self) -> dict[str, Any]:
        """Return what each step is to give: all by the native engine, and no plaintext in the end."""
        in_clear: list[dict[str, str]] = [{}] * FILES
        encrypted = [{"email": "pii"}] * FILES
        verified = [True, FILES, "partial" if self.format == "orc" else "all"]
        _, swap = SWAPS[self.swap]
        return {
            "at first": in_clear,
            "planned": ["encrypt"],
            "run": ["done", FILES, FILES, {"email": "pii"}, swap, True],
            "engines": ["native"],
            "encrypted": [encrypted, True, [False, True], FILES],
            "second run": ["nothing to do", 0, FILES],
            "verified": verified,
            "rolled back": [in_clear, True],
            "again": "done",
            "rotated": FILES,
            "expired": [True, True],
            "at last": [encrypted, verified, True, []],
        }

    def _verify(self, spark: SparkSession, policy: Policy) -> list[Any]:
        found = verify_table(spark, self.name, policy, manifest=True)
        return [found.ok, found.files, found.authenticated]


class _Files:
    """The files of a table, read by Hadoop from the metastore's locations."""

    def __init__(self, spark: SparkSession, placed: PlacedTable, policy: Policy) -> None:
        self._files, self._catalog, self._placed, self._policy = HadoopFiles(spark), Catalog(spark), placed, policy

    def _contents(self) -> list[bytes]:
        table = self._catalog.table(self._placed.name)
        partitions = self._catalog.partitions(table) if table.partition_columns else ()
        folders = [partition.location for partition in partitions] or [table.location]
        return [self._files.read(file.path) for folder in folders for file in self._files.data_files(folder)]

    def keys(self) -> list[dict[str, str | None]]:
        """Return the encrypted columns of each file, with their keys."""
        is_orc, retrieve = self._placed.format == "orc", retriever(self._policy)
        found: list[Any] = [
            inspect_orc(file) if is_orc else inspect_file(file, retrieve_key=retrieve) for file in self._contents()
        ]
        return [
            {join_dotted(path): column.key_id for path, column in (summary.columns or {}).items() if column.encrypted}
            for summary in found
        ]

    def texts_in_use(self) -> list[bool]:
        """Return whether a secret, and whether what no tag hides, stands in the files in use."""
        content = b"".join(self._contents())
        return [SECRET.encode() in content, PLAIN.encode() in content]

    def in_clear(self) -> list[str]:
        """Return the data files that contain a secret, including all files beside the table."""
        found = [file.path for file in self._files.walk(self._placed.root) if "part-" in file.name]
        return [path for path in found if not path.endswith(".crc") and SECRET.encode() in self._files.read(path)]
