"""ORC tables under a policy that has them encrypted: passes, what ORC's own reader sees then, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkcrypt import verify_table
from sparkcrypt.errors import ConfigError, PlanError, UnsupportedFileError, VerificationError
from sparkcrypt.files.format import summarise_orc_footer
from sparkcrypt.files.orc import Tail, inspect_orc, is_orc, read_tail
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.rotate import rotate_key
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.run import encrypt_table
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags, tags_of_table, unset_tags
from tests.spark.killing import Clock
from tests.spark.restored_state import restore
from tests.spark.support import PLAIN, SECRET, Lake, retriever, rows_of
from tests.unit.orc.java_orc import JavaOrc, ReadColumn, key_lines

pytestmark = pytest.mark.spark

FORMATS = "formats: [parquet, orc]\n"
_COLUMNS = "id INT, email STRING, note STRING, addr STRUCT<street: STRING, zip: INT>, tels ARRAY<STRUCT<num: STRING>>"
TABLES = {
    "hive": f"CREATE TABLE t ({_COLUMNS}) PARTITIONED BY (p INT) STORED AS ORC",
    "using": f"CREATE TABLE t ({_COLUMNS}, p INT) USING orc PARTITIONED BY (p)",
    "whole": f"CREATE TABLE t ({_COLUMNS}) USING orc",
}
TAGGED = {"email": ["pii"], "addr.street": ["fin"], "tels.element.num": ["pii"]}
KEYS = {"email": "pii", "addr.street": "fin", "tels._elem.num": "pii"}


def make_orc_table(lake: Lake, create: str = TABLES["using"]) -> None:
    """Make a plaintext ORC table of two files a partition, or of two files, in which values are easily found."""
    partition = ", {p}" if "PARTITIONED" in create else ""
    with lake.stranger() as stranger:
        stranger.conf.set("spark.sql.orc.compression.codec", "uncompressed")
        stranger.sql(create)
        for n in range(2):
            rows = ", ".join(
                f"({p}, '{SECRET}-{n}{p}', '{PLAIN}-{n}', named_struct('street', '{SECRET}', 'zip', {p}), "
                f"array(named_struct('num', '{SECRET}-{p}')){partition.format(p=p)})"
                for p in range(2)
            )
            stranger.sql(f"INSERT INTO t VALUES {rows}")


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A policy that has ORC encrypted, under which the session is."""
    return lake.policy(more=FORMATS)


def orc_files(lake: Lake) -> dict[str, Path]:
    """Return partition and name of the table's files as they were first called -> where they are now."""
    catalog = Catalog(lake.spark)
    table = catalog.table(lake.name("t"))
    partitions = catalog.partitions(table) if table.partition_columns else ()
    folders = {partition.folder: partition.location for partition in partitions} or {"": table.location}
    return {
        f"{name}/{file.name.rpartition('part-')[2]}": file
        for name, folder in folders.items()
        for file in Path(folder.removeprefix("file:")).iterdir()
        if not file.name.startswith((".", "_"))
    }


def found_keys(file: Path) -> dict[str, str | None]:
    """Return the encrypted leaf columns of a file, with their keys."""
    columns = inspect_orc(file).columns.items()
    return {join_dotted(path): column.key_id for path, column in columns if column.encrypted}


@pytest.fixture(scope="module")
def orc_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOrc]:
    """The reader of ORC's Java code, compiled."""
    with JavaOrc(tmp_path_factory.mktemp("java")) as program:
        yield program


def read_with_keys(orc_reader: JavaOrc, policy: Policy, file: Path, folder: Path) -> dict[str, ReadColumn]:
    """Return what ORC's Java reader sees of a file to which it is given every local key."""
    tail, retrieve = read_tail(file), retriever(policy)
    variants = tail.encryption.variants if tail.encryption is not None else ()
    wrapped = [(variant.key.name, variant.encrypted_key) for variant in variants]
    keys = folder / "keys"
    keys.write_text(key_lines((name, key, retrieve(KeyRequest(str(file), None, key))) for name, key in wrapped))
    return orc_reader.read([file], keys)[0]


@pytest.mark.parametrize("kind", TABLES)
def test_orc_table_is_brought_to_its_plan(
    lake: Lake, policy: Policy, orc_reader: JavaOrc, tmp_path: Path, kind: str
) -> None:
    """Every file is encrypted as the tags say; with keys ORC's reader sees the old values, without them nulls."""
    make_orc_table(lake, TABLES[kind])
    set_tags(lake.spark, "t", TAGGED, policy)
    before = rows_of(lake.spark.table("t"))
    old = {name: shutil.copy(file, tmp_path / str(n)) for n, (name, file) in enumerate(orc_files(lake).items())}
    dry = backfill(lake.spark, policy, tables=["t"], options=PassOptions(run=RunOptions(keep_going=True, dry_run=True)))
    assert {name for unit in dry.tables[0].planned for name in unit["actions"]} == {"encrypt"}
    assert not any(found_keys(file) for file in orc_files(lake).values())
    report = backfill(lake.spark, policy, tables=["t"]).tables[0]
    assert (report.outcome, report.files_rewritten) == ("done", len(old))
    new = orc_files(lake)
    assert new.keys() == old.keys()
    for name, file in new.items():
        assert found_keys(file) == KEYS
        assert SECRET.encode() not in file.read_bytes() and PLAIN.encode() in file.read_bytes()
        source = orc_reader.read([Path(old[name])], None)[0]
        assert read_with_keys(orc_reader, policy, file, tmp_path) == source
        assert orc_reader.read([file], None)[0]["email"].nulls > 0 == source["email"].nulls
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    with lake.stranger() as stranger:
        assert stranger.table("t").where("email IS NOT NULL OR tels IS NOT NULL").count() == 0
    found = verify_table(lake.spark, "t", policy, manifest=True)
    assert (found.ok, found.authenticated, found.files) == (True, "partial", len(old))
    assert any("ORC authenticates nothing" in note for note in found.notes)
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"


def test_tags_that_change_are_followed(lake: Lake, policy: Policy) -> None:
    """Another tag gives new local keys; without tags every value comes back, as it was."""
    make_orc_table(lake)
    before = rows_of(lake.spark.table("t"))
    set_tags(lake.spark, "t", TAGGED, policy)
    encrypt_table(lake.spark, "t", policy)
    first = {name: read_tail(file) for name, file in orc_files(lake).items()}
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    report = encrypt_table(lake.spark, "t", policy)
    assert (report.outcome, report.drift["before"]) == ("done", {"wrong_key": len(first)})
    for name, file in orc_files(lake).items():
        assert found_keys(file) == {**KEYS, "email": "fin"}
        wrapped = [
            {variant.encrypted_key for variant in tail.encryption.variants}
            for tail in (first[name], read_tail(file))
            if tail.encryption is not None
        ]
        assert len(wrapped) == 2 and wrapped[0].isdisjoint(wrapped[1])
    unset_tags(lake.spark, "t", list(TAGGED))
    report = encrypt_table(lake.spark, "t", policy, allow_decrypt=True)
    assert (report.outcome, report.drift["before"]) == ("done", {"extra": len(first)})
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert not any(found_keys(file) for file in orc_files(lake).values())


def test_manifest_notices_one_changed_bit(lake: Lake, policy: Policy) -> None:
    """ORC notices nothing, and nothing of the file's end is touched; the audit has a digest of every byte."""
    make_orc_table(lake)
    set_tags(lake.spark, "t", TAGGED, policy)
    encrypt_table(lake.spark, "t", policy)
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    file = next(iter(orc_files(lake).values()))
    flip(file)
    assert verify_table(lake.spark, "t", policy).ok
    found = verify_table(lake.spark, "t", policy, manifest=True)
    assert found.manifest is not None
    assert (found.ok, found.manifest.changed) == (False, (f"file:{file}",))


def test_rotation_wraps_local_keys_again(lake: Lake, policy: Policy) -> None:
    """A rotation writes new ends over the same bytes, in which the table's new KEK wraps what the key had wrapped."""
    make_orc_table(lake)
    set_tags(lake.spark, "t", TAGGED, policy)
    encrypt_table(lake.spark, "t", policy)
    before = {name: (read_tail(file), file.read_bytes()) for name, file in orc_files(lake).items()}
    report = rotate_key(lake.spark, policy, "pii", tables=["t"]).tables[0]
    assert (report.outcome, report.files_rewritten) == ("done", len(before))
    for name, file in orc_files(lake).items():
        (old, content), new = before[name], read_tail(file)
        assert file.read_bytes()[: new.footer_offset] == content[: old.footer_offset]
        assert {key for key, _ in versions_of(old)} == {key for key, _ in versions_of(new)} == {"pii", "fin"}
        assert ({("pii", 1), ("pii", 2)} & versions_of(old), {("pii", 1), ("pii", 2)} & versions_of(new)) == (
            {("pii", 1)}, {("pii", 2)},
        )  # fmt: skip
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_another_master_key_wraps_the_same_local_keys(lake: Lake, policy: Policy) -> None:
    """With --rewrap, where nothing but master keys differ: a new end over the same bytes; every value stays."""
    make_orc_table(lake)
    before = rows_of(lake.spark.table("t"))
    set_tags(lake.spark, "t", TAGGED, policy)
    encrypt_table(lake.spark, "t", policy)
    old = {name: (read_tail(file), file.read_bytes()) for name, file in orc_files(lake).items()}
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    report = encrypt_table(lake.spark, "t", policy, rewrap=True)
    assert (report.outcome, report.files_rewritten) == ("done", len(old))
    for name, file in orc_files(lake).items():
        tail, content = old[name]
        assert file.read_bytes()[: read_tail(file).footer_offset] == content[: tail.footer_offset]
        assert found_keys(file) == {**KEYS, "email": "fin"}
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def versions_of(tail: Tail) -> set[tuple[str, int]]:
    """Return the master keys that wrap local keys of a file, each with its version."""
    wrappings = summarise_orc_footer(tail.file, tail).wrappings
    return {(wrapping.key_id, wrapping.version) for wrapping in wrappings}


@pytest.mark.parametrize("step", ["unit_staged", "unit_verified", "unit_swapping"])
def test_state_of_the_middle_of_a_run_loses_nothing(
    lake: Lake, policy: Policy, clock: Clock, copies: dict[str, Path], step: str
) -> None:
    """The state directory of an ended run is put back to its middle: what is in use is proven by the old files."""
    make_orc_table(lake)
    before = rows_of(lake.spark.table("t"))
    set_tags(lake.spark, "t", TAGGED, policy)
    encrypt_table(lake.spark, "t", policy)
    clock.now += 1_000
    restore(policy, copies[step])
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert all(found_keys(file) == KEYS for file in orc_files(lake).values())
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_file_that_says_something_else_is_not_adopted(
    lake: Lake, policy: Policy, clock: Clock, copies: dict[str, Path]
) -> None:
    """Where no record tells of what is in use, it is compared with the old files, stream by stream."""
    make_orc_table(lake)
    set_tags(lake.spark, "t", TAGGED, policy)
    encrypt_table(lake.spark, "t", policy)
    flip(next(iter(orc_files(lake).values())))
    clock.now += 1_000
    restore(policy, copies["unit_listed"])
    with pytest.raises(VerificationError, match="its content is another in streams"):
        encrypt_table(lake.spark, "t", policy)


def flip(file: Path) -> None:
    """Change one bit of a value that stands in clear."""
    content = bytearray(file.read_bytes())
    content[content.index(PLAIN.encode())] ^= 1
    file.write_bytes(content)
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def test_orc_is_left_alone_unless_the_policy_says_so(lake: Lake) -> None:
    """A pass over the database passes the table over and says how to opt in; named itself it is refused."""
    make_orc_table(lake)
    set_tags(lake.spark, "t", TAGGED, lake.policy(more=FORMATS))
    policy = lake.policy()
    before = {name: file.read_bytes() for name, file in orc_files(lake).items()}
    report = backfill(lake.spark, policy, databases=[lake.database])
    assert "formats: [parquet, orc]" in report.passed_over[lake.name("t")]
    assert "formats: [parquet, orc]" in backfill(lake.spark, policy, tables=["t"]).refused[lake.name("t")]
    with pytest.raises(PlanError, match=r"formats: \[parquet, orc\]"):
        encrypt_table(lake.spark, "t", policy)
    with pytest.raises(PlanError, match=r"formats: \[parquet, orc\]"):
        encrypt_table(lake.spark, None, policy, path=lake.path("t").as_uri())
    with pytest.raises(PlanError, match=r"formats: \[parquet, orc\]"):
        set_tags(lake.spark, "t", TAGGED, policy)
    assert {name: file.read_bytes() for name, file in orc_files(lake).items()} == before


def test_file_of_another_format_quarantines_its_unit(lake: Lake, policy: Policy) -> None:
    """A Parquet file in an ORC partition is named, its unit stays as it was, and the others are done."""
    make_orc_table(lake)
    set_tags(lake.spark, "t", TAGGED, policy)
    with lake.stranger() as stranger:
        stranger.range(1).write.mode("append").parquet(str(lake.root / "other"))
    foreign = next((lake.root / "other").glob("part-*"))
    shutil.copy(foreign, lake.path("t") / "p=1" / foreign.name)
    report = backfill(lake.spark, policy, tables=["t"])
    table = report.tables[0]
    assert (report.outcome, [unit["unit"] for unit in table.quarantined]) == ("incomplete", ["p=1"])
    assert "is a file of Parquet among files of ORC" in table.quarantined[0]["message"]
    assert [bool(found_keys(file)) for file in orc_files(lake).values() if is_orc(file)] == [True, True, False, False]
    with pytest.raises(VerificationError, match="is a file of Parquet among files of ORC"):
        encrypt_table(lake.spark, "t", policy)


def test_file_that_cannot_be_rewritten_is_not_given_to_spark(lake: Lake, policy: Policy) -> None:
    """Spark would write Parquet in its place, or plaintext; the unit stays as it was and says why."""
    make_orc_table(lake, TABLES["whole"])
    set_tags(lake.spark, "t", TAGGED, policy)
    with lake.stranger() as stranger:
        frame = stranger.table("t").coalesce(1)
        frame.write.option("orc.write.format", "UNSTABLE-PRE-2.0").orc(str(lake.root / "newer"))
    newer = next((lake.root / "newer").glob("part-*"))
    shutil.copy(newer, lake.path("t") / newer.name)
    before = {name: file.read_bytes() for name, file in orc_files(lake).items()}
    with pytest.raises(UnsupportedFileError, match=r"its version is 1\.9999.*Spark's engine rewrites no ORC"):
        encrypt_table(lake.spark, "t", policy)
    assert {name: file.read_bytes() for name, file in orc_files(lake).items()} == before


def test_late_commit_is_reconciled(lake: Lake, policy: Policy) -> None:
    """A file that comes to a folder which a run has left is encrypted, and put beside the new ones."""
    make_orc_table(lake)
    set_tags(lake.spark, "t", TAGGED, policy)
    encrypt_table(lake.spark, "t", policy)
    before = lake.spark.table("t").count()
    late = next((lake.path("t") / "p=0").glob("part-*"))
    shutil.copy(late, late.with_name("part-99999-late.c000.orc"))
    encrypt_table(lake.spark, "t", policy)
    lake.spark.catalog.refreshTable("t")
    assert lake.spark.table("t").count() == before + 1
    assert all(found_keys(file) == KEYS for file in orc_files(lake).values())
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_rule_of_the_policy_tags_an_orc_table(lake: Lake) -> None:
    """What the policy says of the table goes into its properties, and is done."""
    make_orc_table(lake, TABLES["whole"])
    policy = lake.policy(tables=f"  {lake.name('t')}: {{tags: {{email: pii}}}}\n", more=FORMATS)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert {tuple(found_keys(file).items()) for file in orc_files(lake).values()} == {(("email", "pii"),)}
    assert [tagged.path for tagged in tags_of_table(lake.spark, Catalog(lake.spark).table("t"))] == [("email",)] * 2


def test_bare_folder_of_orc_files(lake: Lake) -> None:
    """Its tags are the policy's; the folder is swapped as a whole."""
    make_orc_table(lake, TABLES["whole"])
    folder = lake.root / "bare"
    shutil.copytree(lake.path("t"), folder)
    tables = f"  bare: {{location: '{folder.as_uri()}', tags: {{email: pii}}}}\n"
    policy = lake.policy(tables=tables, more=FORMATS)
    report = encrypt_table(lake.spark, None, policy, path=folder.as_uri(), exclusive=True)
    files = [file for file in folder.iterdir() if file.suffix == ".orc"]
    assert (report.outcome, report.files_rewritten) == ("done", len(files))
    assert [found_keys(file) for file in files] == [{"email": "pii"}] * len(files) != []
    assert verify_table(lake.spark, None, policy, path=folder.as_uri()).ok


def test_what_orc_cannot_hold_is_refused_when_it_is_planned(lake: Lake, policy: Policy) -> None:
    """A map whose keys are encrypted otherwise than its values, keys of 192 bits, and the engine that knows no ORC."""
    lake.sql("CREATE TABLE t (id INT, kv MAP<STRING, INT>) USING orc")
    set_tags(lake.spark, "t", {"kv.key": ["pii"]}, policy)
    with pytest.raises(PlanError, match="the keys of the map kv would be encrypted otherwise than its values"):
        encrypt_table(lake.spark, "t", policy)
    set_tags(lake.spark, "t", {"kv": ["pii"], "kv.key": ["pii"]}, policy)
    with pytest.raises(ConfigError, match="Spark's engine rewrites Parquet alone"):
        encrypt_table(lake.spark, "t", policy, engine="spark")
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"
    with pytest.raises(PlanError, match="data_key_bits is 192; allowed for ORC: 128 and 256"):
        encrypt_table(lake.spark, "t", lake.policy(more=FORMATS, bits=192))
