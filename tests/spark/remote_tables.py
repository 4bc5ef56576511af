"""One ORC table with files on remote storage, from its plan to a rotation of its keys, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.files.orc import inspect_orc, read_tail
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.rotate import rotate_key
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = "formats: [parquet, orc]\n"
FILES = 4


def fill_orc(spark: SparkSession, folder: str) -> None:
    """Create the plaintext table ``t`` by a session without a policy: two partitions of two files."""
    spark.conf.set("spark.sql.orc.compression.codec", "uncompressed")
    spark.sql(f"CREATE TABLE t (id INT, email STRING, p INT) USING orc PARTITIONED BY (p) LOCATION '{folder}'")
    for n in range(2):
        spark.sql(f"INSERT INTO t VALUES {', '.join(f'({n}, {SECRET!r}, {p})' for p in range(2))}")


def live_through(spark: SparkSession, policy: Policy) -> dict[str, Any]:
    """Plan, encrypt, verify, roll back, encrypt again, rotate and expire; return each step's result as JSON values."""
    set_tags(spark, "t", {"email": ["pii"]}, policy)
    files, before = _Files(spark), rows_of(spark.table("t"))
    told: dict[str, Any] = {"at first": files.told()}
    dry = backfill(spark, policy, tables=["t"], options=PassOptions(run=RunOptions(keep_going=True, dry_run=True)))
    told["plan"] = sorted(name for unit in dry.tables[0].planned for name in unit["actions"])
    run = encrypt_table(spark, "t", policy)
    told["run"] = [run.outcome, run.files_rewritten, sorted({unit["engine"] for unit in run.units})]
    told["encrypted"] = files.told()
    told["verified"] = _verified(spark, policy)
    rollback_run(spark, "t", policy, run.run_id or "")
    told["rolled back"] = files.told()
    told["again"] = encrypt_table(spark, "t", policy).outcome
    ends = files.before_ends()
    told["rotated"] = rotate_key(spark, policy, "pii", tables=["t"]).tables[0].files_rewritten
    told["kept by the rotation"] = files.before_ends() == ends
    expire_run(spark, "t", policy)
    told["verified at last"] = _verified(spark, policy)
    told["at last"] = files.told()
    told["in clear after expiry"] = files.in_clear()
    spark.catalog.refreshTable("t")
    told["rows are the same"] = rows_of(spark.table("t")) == before
    return told


def assert_lived(told: dict[str, Any]) -> None:
    """Assert that each step worked, natively, and that no plaintext is left in the end."""
    in_clear: list[dict[str, str]] = [{}] * FILES
    encrypted = [{"email": "pii"}] * FILES
    assert (told["at first"], told["plan"]) == (in_clear, ["encrypt", "encrypt"])
    assert told["run"] == ["done", FILES, ["native"]]
    assert (told["encrypted"], told["verified"]) == (encrypted, [True, FILES, "partial"])
    assert (told["rolled back"], told["again"]) == (in_clear, "done")
    assert (told["rotated"], told["kept by the rotation"]) == (FILES, True)
    assert (told["at last"], told["verified at last"]) == (encrypted, [True, FILES, "partial"])
    assert (told["in clear after expiry"], told["rows are the same"]) == ([], True)


def _verified(spark: SparkSession, policy: Policy) -> list[Any]:
    found = verify_table(spark, "t", policy, manifest=True)
    return [found.ok, found.files, found.authenticated]


class _Files:
    """The files of the table, read by Hadoop from the metastore's locations."""

    def __init__(self, spark: SparkSession) -> None:
        self._files, self._catalog = HadoopFiles(spark), Catalog(spark)
        self._root = self._catalog.table("t").location.rpartition("/")[0]

    def _contents(self) -> list[bytes]:
        partitions = self._catalog.partitions(self._catalog.table("t"))
        found = [file.path for partition in partitions for file in self._files.data_files(partition.location)]
        return [self._files.read(path) for path in sorted(found, key=lambda path: path.rpartition("part-")[2])]

    def told(self) -> list[dict[str, str | None]]:
        """Return the encrypted columns of each file, with their keys."""
        columns = [inspect_orc(content).columns.items() for content in self._contents()]
        return [{join_dotted(path): column.key_id for path, column in found if column.encrypted} for found in columns]

    def before_ends(self) -> list[bytes]:
        """Return the bytes of each file before its footer."""
        return sorted(content[: read_tail(content).footer_offset] for content in self._contents())

    def in_clear(self) -> list[str]:
        """Return the data files that contain a secret, including all files beside the table."""
        found = [file.path for file in self._files.walk(self._root) if file.name.rpartition("/")[2].startswith("part-")]
        return [path for path in found if SECRET.encode() in self._files.read(path)]
