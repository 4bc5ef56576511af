"""ORC files that Spark reads: refused where they are not what policy, table and place say, masked, and told of."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkcrypt.files.orc import inspect_orc, read_tail, rewrap_orc
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import PLAIN, SECRET, Lake, refusal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.sparks]

COLUMNS = "id INT, email STRING, note STRING"
VALUES = ", ".join(f"({n}, '{SECRET} {n}', '{PLAIN} {n}')" for n in range(4))


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A database under a policy that encrypts ORC, in which one table requires encryption."""
    with new_lake(spark, tmp_path_factory.mktemp("orc")) as lake:
        rule = "".join(f"  {lake.name(name)}: {{require_encryption: true}}\n" for name in ("required", "hive_required"))
        policy = lake.policy(more="formats: [parquet, orc]", tables=rule)
        for name in ("t", "other", "required"):
            make_table(lake, name, policy)
        for name in ("hive_t", "hive_required"):
            make_table(lake, name, policy, "STORED AS ORC")
        yield lake


def make_table(lake: Lake, name: str, policy: Policy, how: str = "USING orc") -> None:
    """Make a table with a tagged column and a file of four rows."""
    lake.sql(f"CREATE TABLE {name} ({COLUMNS}) {how}")
    set_tags(lake.spark, name, {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES {VALUES} AS v(id, email, note)")


def file_of(lake: Lake, name: str) -> Path:
    """Return the one file of a table, whose checksum is gone: what is put in its place is read as it is."""
    (file,) = lake.path(name).rglob("*.orc")
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return file


@pytest.fixture
def place(site: Lake, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The file of table ``t``; what a test does to its folder is undone."""
    file = file_of(site, "t")
    shutil.copytree(file.parent, tmp_path / "kept")
    yield file
    shutil.rmtree(file.parent)
    shutil.copytree(tmp_path / "kept", file.parent)
    site.spark.catalog.refreshTable("t")


def read(lake: Lake, name: str, columns: str = "*") -> str:
    """Return what Spark refuses of a table, by each of its two readers."""
    said = []
    for vectorised in ("true", "false"):
        lake.spark.conf.set("spark.sql.orc.enableVectorizedReader", vectorised)
        try:
            lake.spark.catalog.refreshTable(name)
            said.append(refusal(lambda: lake.spark.sql(f"SELECT {columns} FROM {name}").collect()))
        finally:
            lake.spark.conf.unset("spark.sql.orc.enableVectorizedReader")
    assert said[0].splitlines()[0] == said[1].splitlines()[0] or "Error: " in said[1]
    return said[1]


def test_keys_are_bound_to_table_and_name(site: Lake) -> None:
    """Each file that Spark writes says which it is, by the table's UUID and its own name."""
    found = {}
    for name in ("t", "other"):
        file = file_of(site, name)
        identity = inspect_orc(file).identity or b""
        assert identity.endswith(f"/{file.name}\0".encode())
        found[name] = identity.split(b"/")[0]
    assert len(set(found.values())) == 2 and b"-" not in found.values()
    assert site.spark.table("t").where("email IS NOT NULL").count() == 4


def test_a_file_of_another_table_is_refused(site: Lake, place: Path) -> None:
    """Beside the table's own, and under the name of one of them."""
    other = file_of(site, "other")
    shutil.copy(other, place.parent / other.name)
    assert "belongs to table" in read(site, "t")
    (place.parent / other.name).rename(place)
    assert f"{place.name}: was written as '{other.name}' and renamed or copied since" in read(site, "t", "id")


def test_a_renamed_file_is_refused(site: Lake, place: Path) -> None:
    """By a query of columns in plaintext as well, and also where corrupt files are ignored."""
    place.rename(place.with_name("part-9.orc"))
    for columns in ("email", "id", "count(*)"):
        assert f"part-9.orc: was written as '{place.name}'" in read(site, "t", columns)
    ignoring = site.spark.read.option("ignoreCorruptFiles", "true").orc(place.parent.as_uri())
    assert "part-9.orc: was written as" in refusal(lambda: ignoring.select("id").collect())


@pytest.mark.parametrize("route", ["stream", "SQL path", "view", "cached"])
def test_no_route_passes_a_moved_file(site: Lake, place: Path, route: str) -> None:
    """Whatever way Spark comes to the file."""
    place.rename(place.with_name("part-9.orc"))
    folder = place.parent
    site.spark.catalog.refreshTable("t")

    def streamed() -> object:
        rows = site.spark.readStream.schema(COLUMNS).orc(folder.as_uri()).select("id")
        return (
            rows.writeStream.format("memory").queryName("moved").trigger(availableNow=True).start().awaitTermination()
        )

    def viewed() -> object:
        site.spark.read.orc(folder.as_uri()).createOrReplaceTempView("moved_view")
        return site.spark.sql("SELECT id FROM moved_view").collect()

    routes: dict[str, Callable[[], object]] = {
        "stream": streamed,
        "SQL path": lambda: site.spark.sql(f"SELECT id FROM orc.`{folder.as_uri()}`").collect(),
        "view": viewed,
        "cached": lambda: site.spark.table("t").select("id", "note").cache().count(),
    }
    said = refusal(routes[route])
    assert "part-9.orc" in said
    if route != "stream":  # of a stream Spark 4 tells its caller the file alone, and the rest in the log
        assert f"part-9.orc: was written as '{place.name}'" in said
    place.with_name("part-9.orc").rename(place)
    site.spark.catalog.refreshTable("t")
    routes[route]()


def test_local_keys_of_another_file_are_refused(site: Lake, place: Path, tmp_path: Path) -> None:
    """Put into a file that otherwise stays as it is."""
    foreign = read_tail(file_of(site, "other")).encryption
    assert foreign is not None

    def transplant(request: KeyRequest, key: bytes) -> tuple[bytes, str]:
        return foreign.variants[0].encrypted_key, "pii"

    rewrap_orc(place, tmp_path / "made.orc", retrieve_key=lambda _: bytes(32), wrap_key=transplant)
    shutil.copy(tmp_path / "made.orc", place)
    assert "was written as" in read(site, "t", "email")


@pytest.mark.parametrize("positional", [False, True])
def test_plaintext_is_refused_where_encryption_is_required(site: Lake, positional: bool) -> None:
    """Also under names by which Spark goes by the places of columns; the table's own files are read."""
    assert site.spark.table("required").where("email IS NOT NULL").count() == 4
    folder = file_of(site, "required").parent
    names = "id AS _col0, email AS _col1, note AS _col2" if positional else "*"
    with site.stranger() as stranger:
        stranger.sql(f"SELECT {names} FROM VALUES {VALUES} AS v(id, email, note)").coalesce(1).write.mode("append").orc(
            folder.as_uri()
        )
    planted = max(folder.glob("*.orc"), key=lambda file: file.stat().st_mtime)
    try:
        for columns in ("email", "id"):
            said = read(site, "required", columns)
            assert f"{planted.name}: is plaintext, and {site.name('required')} requires encryption" in said
            assert "`sparkcrypt verify` lists such files" in said
    finally:
        planted.unlink()
        site.spark.catalog.refreshTable("required")
    assert site.spark.table("t").where("email IS NOT NULL").count() == 4


@pytest.mark.parametrize("setting", ["spark.sql.hive.convertMetastoreOrc", "spark.sql.orc.impl"])
def test_hives_reader_is_refused_where_encryption_is_required(site: Lake, setting: str) -> None:
    """It shows nobody its files; of other tables it reads what is bound to the place where it lies."""
    is_format = setting == "spark.sql.orc.impl"
    names = ("required", "t") if is_format else ("hive_required", "hive_t")
    site.spark.conf.set(setting, "hive" if is_format else "false")
    for name in names:
        site.spark.catalog.refreshTable(name)  # Spark keeps how it reads a table
    try:
        said = refusal(lambda: site.spark.sql(f"SELECT id FROM {names[0]}").collect())
        assert f"{site.name(names[0])} requires encryption, and Hive's own reader of ORC" in said
        assert f"{setting}=" in said
        if not is_format:
            assert site.spark.table(names[1]).where("email IS NOT NULL").count() == 4
    finally:
        site.spark.conf.unset(setting)
        for name in names:
            site.spark.catalog.refreshTable(name)
