"""Tables of which a month was shredded: what readers are told, and what runs still do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sparkcrypt.arrow
from sparkcrypt import configure, encrypt_table, read_table, verify_table
from sparkcrypt.errors import ConfigError, KeyNotFoundError, VerificationError
from sparkcrypt.files import proof
from sparkcrypt.files.parquet import read_footer
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.material import parse_key_material, version_of
from sparkcrypt.keys.sealed_history import seal_history
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.apply_shredding import ShredOptions, shred_keys
from sparkcrypt.runs.keys.check_keys import check_keys
from sparkcrypt.runs.keys.find_shreddable import Selection
from sparkcrypt.runs.keys.retire import retire_versions
from sparkcrypt.runs.keys.rotate import RotationOptions, rotate_key
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import ENGINES, RunOptions
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.tags.model import history_property
from tests.spark.restored_state import restore
from tests.spark.shredding import NEW, NEXT, OLD, make_policy_of_months, make_table_of_months, state_of
from tests.spark.support import Lake, key_service, refusal, retriever, rows_of

pytestmark = pytest.mark.spark
DARK = [(1, None), (2, None), (3, None)]
READABLE = [(4, "e4"), (5, "e5")]


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A table ``t`` of three months, two of them shredded."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    options = ShredOptions("retention of contacts")
    report = shred_keys(lake.spark, policy, Selection(("t",)), options, confirm=lambda _: None)
    assert [key.key_id for key in report.shredded] == [OLD, NEXT]
    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    return policy


def test_readers_are_told_when_and_why(lake: Lake, policy: Policy) -> None:
    """By SQL and by pyarrow: the column, the key, the day and the reason; other columns and months are read."""
    for said in (
        refusal(lambda: lake.sql("SELECT email FROM t").collect()),
        refusal(lambda: sparkcrypt.arrow.open_table(str(lake.path("t")), policy, table=lake.name("t")).to_table()),
    ):
        assert "KeyNotFoundError" in said
        assert "cannot be read by anybody any more: its key 'contact-2025-0" in said
        assert "the state directory says that it was shredded on 20" in said
        assert "'retention of contacts'" in said
    assert rows_of(lake.sql("SELECT id, ssn FROM t"))[0] == (1, "s1")
    assert [tuple(row) for row in rows_of(lake.sql("SELECT id, email FROM t WHERE d = '2026-10-01'"))] == READABLE
    checked = verify_table(lake.spark, "t", policy)
    assert (checked.ok, checked.drift, checked.authenticated) == (True, (), "partial")
    told = [note for note in checked.notes if note.startswith("column email cannot be read in some files: key")]
    assert [OLD in told[0], NEXT in told[1], len(told)] == [True, True, 2]
    key_service(policy).delete_key(NEW)
    missing = verify_table(lake.spark, "t", policy)
    assert (missing.ok, [difference.kind for difference in missing.drift]) == (False, ["unreadable"])


def test_nulls_stand_where_they_are_asked_for(lake: Lake, policy: Policy) -> None:
    """A soft read gives null for the months that are dark, values for the other, and says why."""
    frame = read_table(lake.spark, "t", policy, on_denied="mask")
    assert [tuple(row) for row in rows_of(frame.select("id", "email"))] == DARK + READABLE
    table = sparkcrypt.arrow.open_table(str(lake.path("t")), policy, table=lake.name("t"), on_denied="mask")
    assert "is shredded in some partitions" in table.masked["email"]
    found = sorted(zip(*(table.to_table().column(name).to_pylist() for name in ("id", "email")), strict=True))
    assert found == DARK + READABLE
    configure(lake.spark, policy)


def bytes_of(lake: Lake) -> dict[str, bytes]:
    """Return the table's files in use, by partition and name."""
    lake.sql("REFRESH TABLE t")
    files = [Path(name.removeprefix("file://")) for name in lake.spark.table("t").inputFiles()]
    return {"/".join(file.parts[-2:]): file.read_bytes() for file in files}


def dark_chunks(policy: Policy, content: bytes) -> tuple[bytes, list[Any]]:
    """Return the data of a file, and what its footer says of chunks of ``email``: key metadata, sealed metadata."""
    footer = read_footer(content, retrieve_key=retriever(policy))
    assert footer.metadata is not None
    chunks = [group.columns[1].struct for group in footer.metadata.row_groups]
    fields = (ColumnChunk.crypto_metadata.key, ColumnChunk.encrypted_column_metadata.key)
    return content[: footer.offset], [chunk[field] for chunk in chunks for field in fields]


def dark_days(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return those of the months that are shredded, by their partitions."""
    return {name.partition("/")[0]: content for name, content in files.items() if name.startswith("d=2025-")}


def audited(policy: Policy, table_id: str) -> list[dict[str, Any]]:
    """Return what the audit of a table says of its swaps."""
    store, service = state_of(policy), key_service(policy)
    mac = open_mac(store, table_id, service, MasterKeys.of(policy))
    return [entry.entry for entry in list_entries(store, table_id, mac)]


def test_rotation_carries_dark_columns(lake: Lake, policy: Policy) -> None:
    """Another key is rotated in every file; what is dark stays byte for byte, and report and audit say so."""
    before = bytes_of(lake)
    assert encrypt_table(lake.spark, "t", policy).files_rewritten == 0
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "nothing to do"
    assert bytes_of(lake) == before

    done = rotate_key(lake.spark, policy, "pii", tables=["t"])
    (table,) = done.tables
    assert (done.outcome, table.files_rewritten, table.quarantined) == ("done", 4, ())
    told = {unit["unit"]: unit["dark_columns"] for unit in table.units}
    assert told == {
        "d=2025-01-05": [{"column": "email", "key_id": OLD, "files": 1, "rows": 1}],
        "d=2025-01-31": [{"column": "email", "key_id": OLD, "files": 1, "rows": 1}],
        "d=2025-02-01": [{"column": "email", "key_id": NEXT, "files": 1, "rows": 1}],
        "d=2026-10-01": [],
    }
    assert any(f"column email stayed as it is, under the shredded key {OLD!r}" in line for line in table.warnings)
    old, new = dark_days(before), dark_days(bytes_of(lake))
    assert len(new) == 3
    for day, content in new.items():
        assert content != old[day]
        assert dark_chunks(policy, content) == dark_chunks(policy, old[day])
        (pii,) = {
            parse_key_material(column.key_metadata or b"").wrapped_kek
            for column in read_footer(content, retrieve_key=retriever(policy)).columns or ()
            if column.path == ("ssn",)
        }
        assert version_of(pii or "") == 2
    entries = audited(policy, str(Catalog(lake.spark).table("t").uuid))
    changes = {entry["unit"]["unit"]: entry["changes"] for entry in entries if entry["what"] == "encrypt"}
    assert [change["dark_columns"] for change in changes["d=2025-02-01"]] == [[{"column": "email", "key_id": NEXT}]]
    assert "dark_columns" not in changes["d=2026-10-01"][0]
    assert rows_of(lake.sql("SELECT id, ssn FROM t")) == [(number, f"s{number}") for number in range(1, 6)]
    again = rotate_key(lake.spark, policy, "pii", tables=["t"], options=RotationOptions(keep_version=True))
    assert (again.outcome, again.tables[0].units_left) == ("nothing to do", 0)
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "nothing to do"


def test_keys_of_dark_files_are_checked_and_retired(lake: Lake, policy: Policy) -> None:
    """What can be opened is, shredded keys are counted, and no old version is needed for what nobody can open."""
    checked = check_keys(lake.spark, policy, tables=["t"])
    assert (checked.exit_code, checked.tables[0].encrypted, checked.tables[0].unopened) == (0, 4, [])
    assert checked.tables[0].to_dict()["dark"] == {OLD: 2, NEXT: 1}
    assert not {OLD, NEXT} & checked.tables[0].key_ids
    assert rotate_key(lake.spark, policy, "pii", tables=["t"]).outcome == "done"
    with pytest.raises(VerificationError, match="old files may be under an older version until"):
        retire_versions(lake.spark, policy, "pii", 2)
    expire_run(lake.spark, "t", policy)
    assert retire_versions(lake.spark, policy, "pii", 2).described.versions == 2
    assert check_keys(lake.spark, policy, tables=["t"]).exit_code == 0
    for refused in (
        lambda: rotate_key(lake.spark, policy, OLD, tables=["t"]),
        lambda: retire_versions(lake.spark, policy, OLD, 2),
    ):
        with pytest.raises(
            KeyNotFoundError, match=f"'{OLD}' was shredded by .*: retention of contacts; a shredded key"
        ):
            refused()


def test_missing_key_is_not_taken_for_a_shredded_one(lake: Lake, policy: Policy) -> None:
    """Without a tombstone, or where the key is there again, a unit whose key cannot be opened stays quarantined."""
    before = bytes_of(lake)
    key_service(policy).delete_key(NEW)
    key_service(policy).create(NEXT)  # by hand, beside every rule
    done = rotate_key(lake.spark, policy, "pii", tables=["t"])
    (table,) = done.tables
    assert (done.outcome, table.files_rewritten) == ("incomplete", 2)
    assert [(unit["unit"], unit["error"]) for unit in table.quarantined] == [
        ("d=2025-02-01", "KeyServiceError"),
        ("d=2026-10-01", "KeyNotFoundError"),
    ]
    after = bytes_of(lake)
    assert {name for name in before if after.get(name) == before[name]} == {
        name for name in before if name.startswith(("d=2025-02-01", "d=2026-10-01"))
    }
    checked = check_keys(lake.spark, policy, tables=["t"])
    assert (checked.exit_code, len(checked.tables[0].unopened), dict(checked.tables[0].dark)) == (74, 2, {OLD: 2})


def test_tombstone_that_is_not_authentic_makes_nothing_dark(lake: Lake, policy: Policy) -> None:
    """The record for readers says nothing to a run; an audit of keys that was cut ends what would go by it."""
    key_service(policy).delete_key(NEW)
    store = state_of(policy)
    told = store.read(tombstone_name(key_digest(OLD))) or b""
    store.create(tombstone_name(key_digest(NEW)), told.replace(OLD.encode(), NEW.encode()))
    done = rotate_key(lake.spark, policy, "pii", tables=["t"])
    assert [(unit["unit"], unit["error"]) for unit in done.tables[0].quarantined] == [
        ("d=2026-10-01", "KeyNotFoundError")
    ]
    Path(policy.run_state, "log/keys/00000004.json").unlink()
    again = rotate_key(lake.spark, policy, "pii", tables=["t"])
    assert [error.error for error in again.failed] == ["VerificationError"]
    assert "none is the record 4" in again.failed[0].message


def test_new_data_keys_are_refused_by_name(lake: Lake, policy: Policy) -> None:
    """A dark column cannot follow a file to new data keys; the unit stays, and the message says what can be done."""
    before = bytes_of(lake)
    key_service(policy).create("fin")
    moved = lake.changed("pii: {key: pii}", "pii: {key: fin, history: [pii]}")
    done = backfill(lake.spark, moved, tables=["t"])
    (table,) = done.tables
    assert (done.outcome, len(table.quarantined), table.files_rewritten) == ("incomplete", 3, 1)
    for unit, key_id in zip(table.quarantined, (OLD, OLD, NEXT), strict=True):
        assert unit["error"] == "UnsupportedFileError"
        said = f"new data keys would need the keys of columns that were shredded: email (key {key_id!r})"
        assert said in unit["message"]
        assert "give --rewrap" in unit["message"]
    compromised = rotate_key(lake.spark, moved, "fin", tables=["t"], options=RotationOptions(compromised=True)).tables[
        0
    ]
    assert (compromised.files_rewritten, compromised.quarantined) == (1, ())
    compromised = rotate_key(
        lake.spark, moved, "footer", tables=["t"], options=RotationOptions(compromised=True)
    ).tables[0]
    assert (compromised.files_rewritten, len(compromised.quarantined)) == (1, 3)
    assert "run `sparkcrypt backfill --purge` first" in compromised.quarantined[0]["message"]
    assert dark_days(bytes_of(lake)) == dark_days(before)
    rewrapped = backfill(lake.spark, moved, tables=["t"], options=PassOptions(RunOptions(keep_going=True, rewrap=True)))
    assert (rewrapped.outcome, rewrapped.tables[0].files_rewritten) == ("done", 3)
    old, new = dark_days(before), dark_days(bytes_of(lake))
    assert {day: dark_chunks(moved, content) for day, content in new.items()} == {
        day: dark_chunks(moved, content) for day, content in old.items()
    }
    assert rows_of(lake.sql("SELECT id, ssn FROM t")) == [(number, f"s{number}") for number in range(1, 6)]


def test_tags_of_a_dark_column_ask_nothing_of_it(lake: Lake, policy: Policy) -> None:
    """Whatever its tag becomes, a file with nothing else to do is not planned; a purge gives the nulls its new key."""
    before = bytes_of(lake)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    done = backfill(lake.spark, policy, tables=["t"])
    assert (done.outcome, done.tables[0].files_rewritten, done.tables[0].quarantined) == ("done", 1, ())
    assert dark_days(bytes_of(lake)) == dark_days(before)
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "nothing to do"
    set_tags(lake.spark, "t", {"id": ["pii"]}, policy)
    for engine in ENGINES:
        options = PassOptions(RunOptions(keep_going=True, engine=engine))
        refused = backfill(lake.spark, policy, tables=["t"], options=options).tables[0].quarantined
        assert [unit["error"] for unit in refused] == ["UnsupportedFileError"] * 3
        assert all("email (key 'contact-2025-0" in unit["message"] for unit in refused)
    assert dark_days(bytes_of(lake)) == dark_days(before)
    assert backfill(lake.spark, policy, tables=["t"], options=purging()).outcome == "done"
    assert [tuple(row) for row in rows_of(lake.sql("SELECT id, email FROM t"))] == [*DARK, *READABLE]
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "nothing to do"


def test_rotation_that_no_journal_tells_of_is_proven_anew(
    lake: Lake, policy: Policy, copies: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state directory of the middle of a run: what is in use is compared with the old files, dark columns too."""
    assert rotate_key(lake.spark, policy, "pii", tables=["t"]).outcome == "done"
    now = bytes_of(lake)
    restore(policy, copies["unit_staged"], locks=False)
    with monkeypatch.context() as patch:
        patch.setattr(proof, "_is_equal", lambda *_: False)
        told = rotate_key(lake.spark, policy, "pii", tables=["t"], options=RotationOptions(keep_version=True))
        assert told.outcome == "incomplete"
        assert "its data are not the bytes of" in str(told.tables[0].quarantined)
    done = rotate_key(lake.spark, policy, "pii", tables=["t"], options=RotationOptions(keep_version=True))
    assert done.outcome == "done"
    adopted = [unit for unit in done.tables[0].units if any("proven anew" in note for note in unit["notes"])]
    assert {unit["unit"]: len(unit["dark_columns"]) for unit in adopted} == {
        "d=2025-01-05": 1,
        "d=2025-01-31": 1,
        "d=2025-02-01": 1,
        "d=2026-10-01": 0,
    }
    assert bytes_of(lake) == now


def test_history_of_dark_columns_is_kept(lake: Lake) -> None:
    """A table that requires encryption is read on after the tag of a dark column became another."""
    policy = make_policy_of_months(lake, tables=f"  {lake.name('t')}: {{require_encryption: true}}\n")
    make_table_of_months(lake, policy)
    shred_keys(lake.spark, policy, Selection(("t",)), ShredOptions("over"), confirm=lambda _: None)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    catalog = Catalog(lake.spark)
    service, uuid = key_service(policy), catalog.table("t").uuid or ""
    kept = ",".join(seal_history(service, "pii", uuid, ("email",), (OLD, NEXT, NEW)))
    catalog.set_options(catalog.table("t"), {history_property(("email",)): kept})
    for outcome in ("done", "nothing to do"):
        assert backfill(lake.spark, policy, tables=["t"]).outcome == outcome
        assert catalog.table("t").options[history_property(("email",))] == kept
    lake.sql("REFRESH TABLE t")
    assert rows_of(lake.sql("SELECT id, ssn FROM t")) == [(number, f"s{number}") for number in range(1, 6)]


def purging(**more: Any) -> PassOptions:
    """Ask a pass to put nulls in the place of dark columns."""
    return PassOptions(RunOptions(keep_going=True, purge=True, **more))


def test_purge_puts_nulls_in_the_place_of_dark_columns(lake: Lake, policy: Policy) -> None:
    """What was dark is null in files that are otherwise what they were; report and audit say how many rows."""
    before = bytes_of(lake)
    planned = backfill(lake.spark, policy, tables=["t"], options=purging(dry_run=True)).tables[0]
    assert [(unit["unit"], unit["drift"], list(unit["actions"])) for unit in planned.planned] == [
        (day, {"dark": 1}, ["purge"]) for day in ("d=2025-01-05", "d=2025-01-31", "d=2025-02-01")
    ]
    assert bytes_of(lake) == before
    done = backfill(lake.spark, policy, tables=["t"], options=purging())
    (table,) = done.tables
    assert (done.outcome, table.files_rewritten, table.quarantined) == ("done", 3, ())
    assert {unit["unit"]: unit["purged_columns"] for unit in table.units} == {
        day: [{"column": "email", "key_id": key_id, "files": 1, "rows": 1}]
        for day, key_id in (("d=2025-01-05", OLD), ("d=2025-01-31", OLD), ("d=2025-02-01", NEXT))
    }
    entries = audited(policy, str(Catalog(lake.spark).table("t").uuid))
    swaps = [entry for entry in entries if entry["what"] == "encrypt"]
    assert [change["purged_columns"] for entry in swaps for change in entry["changes"]] == [
        [{"column": "email", "key_id": key_id}] for key_id in (OLD, OLD, NEXT)
    ]
    fresh = lake.spark.newSession()
    fresh.sql(f"USE {lake.database}")
    assert [tuple(row) for row in rows_of(fresh.sql("SELECT id, email, ssn FROM t"))] == [
        (number, email, f"s{number}") for number, email in [*DARK, *READABLE]
    ]
    assert fresh.sql("SELECT id FROM t WHERE email IS NULL").count() == 3
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    assert check_keys(lake.spark, policy, tables=["t"]).tables[0].to_dict()["dark"] == {}
    for options in (None, purging()):
        assert backfill(lake.spark, policy, tables=["t"], options=options).outcome == "nothing to do"
    assert rotate_key(lake.spark, policy, "pii", tables=["t"]).outcome == "done"
    set_tags(lake.spark, "t", {"id": ["pii"]}, policy)
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    assert [tuple(row) for row in rows_of(fresh.sql("SELECT id, email FROM t"))] == [*DARK, *READABLE]


def test_purge_that_no_journal_tells_of_is_proven_anew(lake: Lake, policy: Policy, copies: dict[str, Path]) -> None:
    """A state directory of the middle of a run: the new files are compared with the old ones, but for what is null."""
    assert backfill(lake.spark, policy, tables=["t"], options=purging()).outcome == "done"
    now = bytes_of(lake)
    restore(policy, copies["unit_staged"], locks=False)
    done = backfill(lake.spark, policy, tables=["t"], options=purging())
    assert done.outcome == "done"
    assert [unit["purged_columns"][0]["key_id"] for unit in done.tables[0].units] == [OLD, OLD, NEXT]
    assert bytes_of(lake) == now


def test_purge_touches_nothing_without_a_tombstone(lake: Lake, policy: Policy) -> None:
    """A column whose key is only missing, or there again, is never replaced; nor a required or a nested one."""
    key_service(policy).delete_key(NEW)
    key_service(policy).create(NEXT)  # by hand, beside every rule
    before = bytes_of(lake)
    done = backfill(lake.spark, policy, tables=["t"], options=purging())
    assert (done.outcome, done.tables[0].files_rewritten) == ("done", 2)
    after = bytes_of(lake)
    kept = [name for name in before if name.startswith(("d=2025-02-01", "d=2026-10-01"))]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    set_tags(lake.spark, "t", {"id": ["pii"]}, policy)
    refused = backfill(lake.spark, policy, tables=["t"], options=purging()).tables[0].quarantined
    assert [(unit["unit"], unit["error"]) for unit in refused] == [
        ("d=2025-02-01", "KeyServiceError"),
        ("d=2026-10-01", "KeyNotFoundError"),
    ]
    after = bytes_of(lake)
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    with pytest.raises(ConfigError, match="--purge leaves out pages that nobody can open, and --engine spark"):
        backfill(lake.spark, policy, tables=["t"], options=purging(engine="spark"))


def test_purge_asks_for_history_where_readers_would_refuse(lake: Lake) -> None:
    """On a table that requires encryption the column's history must name the footer's key, since nulls are under it."""
    policy = make_policy_of_months(lake, tables=f"  {lake.name('t')}: {{require_encryption: true}}\n")
    make_table_of_months(lake, policy)
    shred_keys(lake.spark, policy, Selection(("t",)), ShredOptions("over"), confirm=lambda _: None)
    before = bytes_of(lake)
    refused = backfill(lake.spark, policy, tables=["t"], options=purging()).tables[0].quarantined
    assert [unit["error"] for unit in refused] == ["UnsupportedFileError"] * 3
    assert "name 'footer' under 'history' of the column's tag in the policy first" in refused[0]["message"]
    assert bytes_of(lake) == before
    told = lake.changed("retention: 400d}\n  tenant", "retention: 400d, history: [footer]}\n  tenant")
    assert backfill(lake.spark, told, tables=["t"], options=purging()).outcome == "done"
    lake.sql("REFRESH TABLE t")
    assert [tuple(row) for row in rows_of(lake.sql("SELECT id, email FROM t"))] == [*DARK, *READABLE]


@pytest.mark.parametrize(
    ("column", "kind", "value", "why"),
    [
        ("who.email", "who STRUCT<email: STRING>", "named_struct('email', nullif('e1', ''))", "is part of a nested"),
        ("email", "email STRING", "'e1'", "is required"),
    ],
)
def test_columns_that_cannot_be_null_are_refused_by_name(
    lake: Lake, column: str, kind: str, value: str, why: str
) -> None:
    """What is nested, or required as what literals give is, cannot be replaced by nulls; the unit stays as it was."""
    policy = make_policy_of_months(lake)
    lake.sql(f"CREATE TABLE t (id INT, {kind}, d STRING) USING parquet PARTITIONED BY (d)")
    set_tags(lake.spark, "t", {column: ["contact"]}, policy)
    lake.sql(f"INSERT INTO t SELECT 1, {value}, '2025-01-05'")
    shred_keys(lake.spark, policy, Selection(("t",)), ShredOptions("over"), confirm=lambda _: None)
    before = bytes_of(lake)
    (refused,) = backfill(lake.spark, policy, tables=["t"], options=purging()).tables[0].quarantined
    assert refused["error"] == "UnsupportedFileError"
    assert f"column {column} {why}" in refused["message"]
    assert bytes_of(lake) == before
