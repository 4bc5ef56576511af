"""A survey of what goes dark with keys, and their shredding, cost as much as there are keys, tables and columns."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkcrypt.decide.access_log import DeclassifiedUses
from sparkcrypt.files.footers import FooterFacts, Found
from sparkcrypt.files.parquet import ColumnSummary
from sparkcrypt.ledger.audit.key_audit import KeyFacts, Shredding, key_audit
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.policy import Policy, policy_from_document
from sparkcrypt.policy.key_retention import retention_of_key
from sparkcrypt.runs.keys import apply_shredding
from sparkcrypt.runs.keys.apply_shredding import ShredOptions, shred_keys
from sparkcrypt.runs.keys.find_shreddable import Selection
from sparkcrypt.runs.keys.scan_tables import DerivedLeaves, KeyPlace, TableScan, find_declassified, find_derived
from sparkcrypt.runs.keys.shredding_plan import ShreddableKey, ShreddedKey, ShredPlan
from sparkcrypt.runs.table import scan as table_scan
from sparkcrypt.runs.table.in_use import FRESH_SECONDS
from sparkcrypt.schema import join_dotted, schema_from_spark
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.tags.field_metadata import ColumnLineage, PartLineage
from sparkcrypt.tags.model import tags_of_schema
from tests.growth import Metered, Work, assert_linear
from tests.unit.backfill.believed import make_service, policy_of
from tests.unit.backfill.scanned_files import plain_file

Path_ = tuple[str, ...]
SETTINGS = {"version": 1, "key_service": {"type": "own"}, "footer": {"key": "footer"}, "untagged": "plaintext"}


def policy_with(tags: Mapping[str, Any]) -> Policy:
    """Return a policy of some tags."""
    return policy_from_document({**SETTINGS, "run_state": "/state", "tags": tags}, locate=lambda _: "policy")


def buckets(number: int) -> Policy:
    """Return a policy of so many tags, each with a key for each value of ``p``."""
    return policy_with({f"t{place:04}": {"key": f"k{place:04}-{{p}}", "history": []} for place in range(number)})


def plan_of(policy: Policy, columns: Sequence[str]) -> EncryptionPlan:
    """Return the plan of a table whose columns have the tags of a policy, one each as far as there are any."""
    tags = [rule.name for rule in policy.tags]
    fields = [
        {"name": name, "type": "long", "nullable": True, "metadata": {"tags": tags[place : place + 1]}}
        for place, name in enumerate(columns)
    ]
    schema = schema_from_spark({"type": "struct", "fields": fields})
    return build_plan(schema, tags_of_schema(schema), policy, table="db.t", partition_columns=("p",))


def facts_of(keys: Mapping[Path_, str | None], lineage: tuple[ColumnLineage, ...] = ()) -> FooterFacts:
    """Return what the footer of a file says whose columns are under keys."""
    columns = {path: ColumnSummary(key is not None, key) for path, key in keys.items()}
    return FooterFacts(replace(plain_file(*keys), footer="encrypted", footer_key=None, columns=columns), {}, lineage)


def scan_of(policy: Policy, plan: EncryptionPlan, units: Sequence[Unit], facts: Mapping[str, FooterFacts]) -> TableScan:
    """Return the scan of a table with these files."""
    target = SimpleNamespace(name="db.t", plan=plan, base="/t", units=lambda _: units)

    class Reader:
        def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
            return {source.path: facts[source.path] for source in sources}

    return TableScan(cast("Any", target), policy, cast("Any", None), Reader(), selected=True)


def unit_of(value: str, *files: str) -> Unit:
    """Return a partition with files."""
    return Unit(f"p={value}", f"/t/p={value}", None, f"p={value}", {"p": value}, (_folder(files),))


def _folder(files: Sequence[str]) -> Folder:
    return Folder("", tuple(SourceFile(file, 100, 5) for file in files))


def _partitions(_: Path, number: int) -> Work:
    """Scan partitions of one file each, under a key of its own."""
    policy = buckets(1)
    plan, names = plan_of(policy, ["c"]), [f"{place:04}" for place in range(number)]
    facts = {f"/t/{name}": facts_of({("c",): f"k0000-{name}"}) for name in names}
    scan = scan_of(policy, plan, [unit_of(name, f"/t/{name}") for name in names], facts)

    def look() -> None:
        scan.look()
        assert len(scan.places) == number and not any(place.out_of_bucket for place in scan.places.values())

    return look


def _columns(_: Path, number: int) -> Work:
    """Scan a file of columns under keys of their own, each of which came from another table's."""
    policy = buckets(number)
    names = [f"c{place:04}" for place in range(number)]
    lineage = tuple(ColumnLineage(name, origins=(("db.s", f"s{place}"),)) for place, name in enumerate(names))
    facts = facts_of({(name,): f"k{place:04}-1" for place, name in enumerate(names)}, lineage)
    scan = scan_of(policy, plan_of(policy, names), [unit_of("1", "/t/f")], {"/t/f": facts})

    def look() -> None:
        scan.look()
        assert len(scan.places) == len(scan.derived) == number
        assert not any(place.out_of_bucket or place.readable for place in scan.places.values())

    return look


def _leaves(_: Path, number: int) -> Work:
    """Scan a file with a struct whose leaves came from columns of another table."""
    policy = buckets(1)
    leaves = [("s", f"l{place:04}") for place in range(number)]
    parts = tuple(PartLineage(name, (), (("db.s", name),)) for _, name in leaves)
    facts = facts_of(dict.fromkeys(leaves), (ColumnLineage("s", parts=parts),))
    scan = scan_of(policy, plan_of(policy, ["c"]), [unit_of("1", "/t/f")], {"/t/f": facts})

    def look() -> None:
        scan.look()
        assert scan.derived["db.s", "l0000"] == {("s.l0000", None): 1}
        assert len(scan.derived) == number and all(len(made) == 1 for made in scan.derived.values())

    return look


def table(name: str, derived: Mapping[tuple[str, str], Mapping[tuple[str, str | None], int]]) -> TableScan:
    """Return a table, as far as its lineage is asked for."""
    return cast("TableScan", SimpleNamespace(name=name, derived=derived, target=SimpleNamespace(base=f"/wh/{name}")))


def _chain(_: Path, number: int) -> Work:
    """Follow a column through tables of which each was made of the one before, by name or by folder."""
    names = [f"db.t{place:04}" for place in range(number)]
    sources = [name if place % 2 else f"/wh/{name}/part" for place, name in enumerate(names)]
    scans = [table(names[0], {})]
    scans += [table(name, {(sources[place], "email"): {("email", None): 1}}) for place, name in enumerate(names[1:])]
    place = KeyPlace(names[0], columns={"email"})
    return lambda: _assert_exports(list(find_derived(DerivedLeaves(scans), (), [(scans[0], place)])), number - 1)


def _keys_of_tables(_: Path, number: int) -> Work:
    """Look for what came from each of many tables, where each was copied once, with the same column."""
    scans = [table(f"db.t{place:04}", {}) for place in range(number)]
    made: dict[tuple[str, str | None], int] = {("email", None): 1}
    copies = [table(f"db.c{place:04}", {(scan.name, "email"): made}) for place, scan in enumerate(scans)]

    def find() -> None:
        derived = DerivedLeaves([*scans, *copies])
        for scan in scans:
            _assert_exports(list(find_derived(derived, (), [(scan, KeyPlace(scan.name, columns={"email"}))])), 1)

    return find


def _assert_exports(found: Sequence[object], number: int) -> None:
    assert len(found) == number


def _uses(_: Path, number: int) -> Work:
    """Look for uses of ``declassify`` on the column of each of many tables, and for those without a table."""
    records = [
        {"table": f"db.t{place}", "columns": ["email"], "principal": "ann", "why": "x", "count": 1, "tags": ["pii"]}
        for place in range(number)
    ]
    records += [{**record, "table": None, "tags": [f"tag{place}"]} for place, record in enumerate(records)]

    def find() -> None:
        uses = DeclassifiedUses()
        for record in records:
            uses.add(record)
        for place in range(number):
            scan = table(f"db.t{place}", {})
            found = list(find_declassified(uses, [f"tag{place}"], [(scan, KeyPlace(scan.name, columns={"email"}))]))
            assert [export.source for export in found] == [f"db.t{place}.email", f"tag{place}"]

    return find


def _retentions(_: Path, number: int) -> Work:
    """Ask for the retention of the key of each tag, and of one in its history."""
    keys = {f"t{place}": {"key": f"k{place:04}-{{d:%Y-%m}}", "history": [f"old{place}:1"]} for place in range(number)}
    policy = policy_with({name: {**rule, "retention": "400d"} for name, rule in keys.items()})

    def find() -> None:
        for place in range(number):
            assert retention_of_key(policy, f"k{place:04}-2026-11").over_at is not None
            assert "history" in (retention_of_key(policy, f"old{place}:1").reason or "")

    return find


def _audit(folder: Path, number: int) -> Work:
    """Hold keys, and shred them."""
    make_service(folder)
    store, policy = LocalStateStore(folder / "state"), policy_of(folder)

    def write() -> None:
        with key_audit(store, policy, "shred") as audit:
            audit._service = cast("Any", SimpleNamespace(describe=lambda _: None))
            for place in range(number):
                key_id = f"k{place}"
                audit.release(key_id, "over", audit.hold(key_id, "case").number)
                audit.begin(key_id, "over", None, ())
                audit.bury(key_id, "over", "2026-12-01T00:00:00Z", (), "it is gone")
                assert key_id in audit.facts.tombstones and not audit.facts.begun

    return write


WORKS: dict[str, tuple[Callable[[Path, int], Work], int, tuple[str, ...]]] = {
    "partitions under keys of their own": (_partitions, 120, ()),
    "columns under keys of their own": (_columns, 60, ()),
    "leaves of one column": (_leaves, 300, ()),
    "tables made of one another": (_chain, 60, ()),
    "tables with a column of one name": (_keys_of_tables, 60, ()),
    "uses of declassify": (_uses, 60, ()),
    "tags of a policy": (_retentions, 100, ()),
    "keys that are shredded": (_audit, 15, ("decoded",)),
}
"""What there is much of -> what returns the work on so much, how much, and what it counts besides."""
METERED = (Metered(TableLog, "_parse", "decoded", lambda *_: 1),)


@pytest.mark.parametrize("many", WORKS)
def test_cost_is_linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: str) -> None:
    """Twice as many cost twice as much."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(table_scan, "list_unit", lambda _, unit: unit)
    make, size, kinds = WORKS[many]

    def prepare(number: int) -> Work:
        folder = tmp_path / str(number)
        folder.mkdir()
        work = make(folder, number)
        re.purge()  # what was compiled for less would be done for nothing
        return work

    prepare(1)()
    assert_linear(prepare, size, ("lines", "calls", *kinds), METERED, most=2.1)


@pytest.mark.parametrize(
    ("noted", "leaf", "same"),
    [
        ("s.mail", "s.Mail", True),
        ("s.mail", "s.mailbox", False),
        ("s.mail", "s.name", False),
        ("s", "s.mail", True),  # as earlier releases noted it
        ("s.mail", "s", True),
        ("a.b", "a%2Eb.c", True),  # an earlier release's name of a column
        ("a.b", "a.c", False),
    ],
)
def test_columns_in_notes_stand_for_leaves(noted: str, leaf: str, same: bool) -> None:
    """A column stands for all that is in it."""
    source = table("db.s", {})
    for place in ("db.s", "spark_catalog.DB.S", "/wh/db.s", "file:/wh/db.s/p=1"):
        derived = DerivedLeaves([table("db.t", {(place, noted): {("x", None): 1}})])
        assert bool(list(derived.find(source, leaf))) is same
        assert not list(derived.find(table("db.s2", {}), leaf))
    assert join_dotted(["a.b"]) == "a%2Eb"


class Shreds:
    """Keys that are due, and what a command does with them, by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, keys: int, seconds: float = 0.0) -> None:
        self.now, self.locks, self.surveys = 0.0, 0, list[int]()
        self._seconds, self.done = seconds, list[str]()
        self.key_ids = [f"k{place:03}" for place in range(keys)]
        for name in ("open_state_directory", "open_key_service", "read_key_facts", "_mark_tombstones", "_refuse"):
            monkeypatch.setattr(apply_shredding, name, lambda *_, **__: SimpleNamespace())
        for name in ("_refuse_unknown_holds", "_cache_seconds"):
            monkeypatch.setattr(apply_shredding, name, lambda *_: 0.0)
        monkeypatch.setattr(apply_shredding, "MasterKeys", SimpleNamespace(of=lambda _: None))
        monkeypatch.setattr(apply_shredding, "Survey", lambda *_: SimpleNamespace(plan=self._plan))
        monkeypatch.setattr(apply_shredding, "key_audit", self._lock)
        monkeypatch.setattr(apply_shredding, "_shred_key", self._shred)
        monkeypatch.setattr(apply_shredding, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _plan(self, *, key_ids: set[str] | None = None, **_: object) -> ShredPlan:
        wanted = set(self.key_ids) if key_ids is None else key_ids
        self.surveys.append(len(wanted))
        self.now += 10
        begun = [ShreddableKey(retention_of_key(policy_with({}), key_id), True, True) for key_id in sorted(wanted)]
        return ShredPlan(cast("Any", None), tuple(key for key in begun if key.key_id not in self.done))

    @contextmanager
    def _lock(self, *_: object) -> Iterator[Any]:
        self.locks += 1
        yield SimpleNamespace(facts=KeyFacts(begun=cast("Mapping[str, Shredding]", {})))

    def _shred(self, _audit: object, _policy: object, _service: object, key: ShreddableKey, *_: object) -> ShreddedKey:
        self.now += self._seconds
        self.done.append(key.key_id)
        return ShreddedKey(key.key_id, "", "", (), ())

    def run(self) -> Any:
        """Shred all of them."""
        return shred_keys(cast("Any", None), policy_with({}), Selection(), ShredOptions(), confirm=lambda _: None)


def test_one_survey_serves_for_keys_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are; each survey is of those that are left, and the lock is free between them."""
    quick = Shreds(monkeypatch, 40)
    assert len(quick.run().shredded) == 40
    assert (quick.surveys, quick.locks) == ([40, 40], 1)
    slow = Shreds(monkeypatch, 7, FRESH_SECONDS / 3)
    assert [key.key_id for key in slow.run().shredded] == slow.key_ids
    assert (slow.surveys, slow.locks) == ([7, 7, 4, 1], 3)


def test_key_that_was_shredded_meanwhile_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another command, between the plan and its turn; the others go on."""
    shreds = Shreds(monkeypatch, 3)
    shreds.done.append("k001")

    def confirm(_: ShredPlan) -> None:
        shreds.done.append("k000")

    report = shred_keys(cast("Any", None), policy_with({}), Selection(), ShredOptions(), confirm=confirm)
    assert [key.key_id for key in report.shredded] == ["k002"]
    assert report.left == {"k000": "another command shredded it meanwhile"}


def test_counter_catches_a_planted_square(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit of keys is read anew for each key."""
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def prepare(number: int) -> Work:
        folder = tmp_path / str(number)
        folder.mkdir()
        make_service(folder)
        store, policy = LocalStateStore(folder / "state"), policy_of(folder)

        def write() -> None:
            for place in range(number):
                with key_audit(store, policy, "shred") as audit:
                    audit.begin(f"k{place}", "over", None, ())

        return write

    with pytest.raises(AssertionError, match=r"decoded: .*, so they grow by [34]"):
        assert_linear(prepare, 8, ("decoded",), METERED)
