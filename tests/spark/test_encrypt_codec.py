"""What an engine leaves of codecs and pages, and when rows are rewritten in their place."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.errors import ConfigError, SparkcryptError, StorageError
from sparkcrypt.files.footers import FooterFacts, Found
from sparkcrypt.files.parquet import FileSummary, read_footer
from sparkcrypt.files.parquet.summary import codecs_of
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.rewrite.options import ENGINES, Engine
from sparkcrypt.runs.table import footers
from sparkcrypt.runs.table.footers import DriverFooters, TaskFooters
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, data_files, encrypted_columns, retriever
from tests.spark.support import footers as footers_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED
from tests.unit.parquet.handmade import data_page, index_page, make_file
from tests.unit.parquet.rewriting import drop_a_location

pytestmark = pytest.mark.spark


def fill(lake: Lake, create: str, *codecs: str) -> Policy:
    """Make a plaintext table of one file a codec, tag it, and return its policy."""
    with lake.stranger() as stranger:
        stranger.sql(create)
        for number, codec in enumerate(codecs):
            stranger.conf.set("spark.sql.parquet.compression.codec", codec)
            stranger.sql(f"INSERT INTO t VALUES ({number}, 'e', 'n'{f', {number}' if 'PARTITIONED' in create else ''})")
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy


def codecs(path: str | Path, policy: Policy) -> set[str]:
    """Return the codecs of all visible column chunks below a path."""
    found: Counter[str] = Counter()
    for file in data_files(path):
        found.update(codecs_of(read_footer(file, retrieve_key=retriever(policy))))
    return set(found)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("codec", ["gzip", "zstd", "uncompressed"])
def test_codec_survives(lake: Lake, codec: str, engine: Engine) -> None:
    """Whatever the session's own codec is, the table keeps its own."""
    policy = fill(lake, UNPARTITIONED["using"], codec)
    lake.spark.conf.set("spark.sql.parquet.compression.codec", "snappy")
    report = encrypt_table(lake.spark, "t", policy, engine=engine)
    assert codecs(lake.path("t"), policy) == {codec}
    assert report.units[0]["codec"] == codec
    assert not [warning for warning in report.warnings if "compression" in warning]


@pytest.mark.parametrize("engine", ENGINES)
def test_each_partition_keeps_its_own(lake: Lake, engine: Engine) -> None:
    """Units are told apart."""
    policy = fill(lake, PARTITIONED["using"], "gzip", "zstd")
    encrypt_table(lake.spark, "t", policy, engine=engine)
    staged = lake.root / "db" / ".sparkcrypt" / "t"
    found = {name: codecs(next(staged.rglob(name)), policy) for name in ("p=0", "p=1")}
    assert found == {"p=0": {"gzip"}, "p=1": {"zstd"}}


def test_of_mixed_codecs_the_most_common_is_kept_and_told(lake: Lake) -> None:
    """Two files of zstd and one of gzip become zstd, and the report says so."""
    policy = fill(lake, UNPARTITIONED["using"], "zstd", "gzip", "zstd")
    report = encrypt_table(lake.spark, "t", policy, engine="spark")
    assert codecs(lake.path("t"), policy) == {"zstd"}
    assert [warning for warning in report.warnings if "zstd (6), gzip (3); all new ones have zstd" in warning]


def test_mixed_codecs_stay_mixed_where_no_page_is_decoded(lake: Lake) -> None:
    """The native engine leaves each file's as it is, and has nothing to tell of it."""
    policy = fill(lake, UNPARTITIONED["using"], "zstd", "gzip")
    report = encrypt_table(lake.spark, "t", policy)
    assert codecs(lake.path("t"), policy) == {"zstd", "gzip"}
    assert (report.units[0]["codec"], report.units[0]["engine"]) == (None, "native")


@pytest.mark.parametrize("engine", ENGINES)
def test_codec_survives_a_change_of_key(lake: Lake, engine: Engine) -> None:
    """What the footer of an encrypted file shows is enough: columns without a key of their own."""
    policy = fill(lake, UNPARTITIONED["using"], "zstd")
    encrypt_table(lake.spark, "t", policy, engine=engine)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    assert encrypt_table(lake.spark, "t", policy, engine=engine).files_rewritten == 1
    assert codecs(lake.path("t"), policy) == {"zstd"}


def with_index_page(path: Path) -> None:
    """Write the numbers 0 to 2, with a page among theirs that no encrypted file can have."""
    first, *others = (data_page(number.to_bytes(8, "little")) for number in range(3))
    path.write_bytes(make_file([[[first, index_page(), *others]]]))


def with_many_pages(path: Path) -> None:
    """Write the numbers 0 to 32,768, each in a page of its own: one more than can be numbered."""
    path.write_bytes(make_file([[[data_page(number.to_bytes(8, "little")) for number in range(32_769)]]]))


def with_wrong_index(path: Path) -> None:
    """Write the numbers 0 to 2, with an offset index that has no page of them."""
    pq.write_table(pa.table({"c0": pa.array([0, 1, 2], pa.int64())}), path, write_page_index=True)
    drop_a_location(str(path))


def encrypted_numbers(lake: Lake, write: Callable[[Path], None]) -> tuple[Policy, Mapping[str, Any]]:
    """Tag and encrypt a table of one such file; return the policy, and what the run reports of its unit."""
    with lake.stranger() as stranger:
        stranger.sql("CREATE TABLE t (c0 BIGINT) USING parquet")
    lake.path("t").mkdir(exist_ok=True)
    write(lake.path("t") / "part-0.parquet")
    policy = lake.policy()
    set_tags(lake.spark, "t", {"c0": ["pii"]}, policy)
    (unit,) = encrypt_table(lake.spark, "t", policy).units
    return policy, unit


@pytest.mark.parametrize(
    ("write", "rows", "said"),
    [
        (with_index_page, 3, "INDEX_PAGE"),
        (with_many_pages, 32_769, "32768 data pages"),
    ],
)
def test_what_cannot_be_rewritten_by_pages_is_by_rows(
    lake: Lake, write: Callable[[Path], None], rows: int, said: str
) -> None:
    """The unit's engine is Spark's, its notes say why, and it holds the same rows, encrypted."""
    policy, unit = encrypted_numbers(lake, write)
    assert (unit["engine"], unit["rows"], unit["verified"]) == ("spark", rows, True)
    assert any("cannot be rewritten page by page" in note and said in note for note in unit["notes"]), unit["notes"]
    lake.spark.catalog.refreshTable("t")
    assert sorted(row.c0 for row in lake.sql("SELECT * FROM t").collect()) == list(range(rows))
    found = [footer for footer in footers_of(lake.path("t"), policy) if footer.rows]
    assert found and all(encrypted_columns(footer) == {"c0": "pii"} for footer in found)


def test_an_index_that_is_not_of_its_pages_is_left_out(lake: Lake) -> None:
    """Readers that filter by such an index would lose rows: the new file has none, and the report says so."""
    _, unit = encrypted_numbers(lake, with_wrong_index)
    assert (unit["engine"], unit["rows"], unit["verified"]) == ("native", 3, True)
    assert any("index" in note for note in unit["notes"]), unit["notes"]
    lake.spark.catalog.refreshTable("t")
    assert sorted(row.c0 for row in lake.sql("SELECT * FROM t WHERE c0 >= 0").collect()) == [0, 1, 2]


def test_what_nothing_authenticated_in_old_files_is_in_the_report(lake: Lake) -> None:
    """A run from CTR to GCM says that the pages it made authentic had not been."""
    policy = lake.policy(algorithm="AES_GCM_CTR_V1")
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    now = lake.changed("algorithm: AES_GCM_CTR_V1", "algorithm: AES_GCM_V1\nalgorithm_history: [AES_GCM_CTR_V1]")
    (unit,) = encrypt_table(lake.spark, "t", now).units
    assert unit["engine"] == "native"
    assert unit["not_authenticated"] == ["source: pages of column email: AES_GCM_CTR_V1 does not authenticate them"], (
        unit
    )
    assert {footer.algorithm for footer in footers_of(lake.path("t"), now)} == {"AES_GCM_V1"}


class Failing:
    """Opens files as Hadoop does, but fails for the first few times."""

    def __init__(self, files: HadoopFiles, times: int, error: Exception) -> None:
        self._files, self.left, self._error = files, times, error

    def open(self, path: str) -> object:
        """Open a file, or fail."""
        if self.left:
            self.left -= 1
            raise self._error
        return self._files.open(path)


@pytest.mark.parametrize(
    "error", [OSError("reset"), StorageError("reset"), SparkcryptError("cannot open: IOException")]
)
def test_one_broken_connection_is_no_unreadable_file(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The scan asks once more; where the storage goes on failing, it says so, and not that the file is damaged."""
    monkeypatch.setattr(footers, "PAUSE_SECONDS", 0.0)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "f.parquet")
    source = SourceFile(str(tmp_path / "f.parquet"), (tmp_path / "f.parquet").stat().st_size, int(time.time()))
    for times, kind in ((1, FooterFacts), (2, SparkcryptError)):
        files = Failing(HadoopFiles(lake.spark), times, error)
        found = DriverFooters(files, lambda _: b"").read([source])[source.path]  # type: ignore[arg-type]
        assert isinstance(found, kind), found


def test_what_tasks_cannot_reach_the_driver_reads(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that only Hadoop knows are no reason to call files unreadable."""
    sources = [SourceFile(f"f{number}", 1, 1) for number in range(footers.FEW + 1)]
    facts = FooterFacts(FileSummary("f", "plaintext", None, None, None, False, None, 1, 1, {}), {})
    asked: list[str] = []

    class Driver:
        depth, shredded = "footer", frozenset[str]()

        def read(self, some: Sequence[SourceFile]) -> Mapping[str, Found]:
            asked.extend(source.path for source in some)
            return {source.path: facts for source in some}

    by_tasks: dict[str, Found] = {source.path: facts for source in sources}
    by_tasks |= {"f0": StorageError("no credentials"), "f1": ConfigError("no library"), "f2": SparkcryptError("?")}
    monkeypatch.setattr(footers, "read_footers_in_tasks", lambda *_, **__: by_tasks.items())
    service = KeyServiceConfig.from_dict({"type": "local", "path": "keys"})
    found = TaskFooters(lake.spark, service, Driver()).read(sources)  # type: ignore[arg-type]
    assert asked == ["f0", "f1", "f2"] and all(read == facts for read in found.values())
