"""What runs find out of files and units before they touch any costs as much as there are, not their square."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.files.footers import FooterFacts, Found
from sparkcrypt.files.listing import Entry, find_beside
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Folder, Unit, by_place, refuse_overlaps
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.policy import Policy, policy_from_document
from sparkcrypt.runs.rewrite.file_orders import FileOrders
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.schedule import Result, order_units, work_through
from sparkcrypt.runs.rewrite.unit_rewriter import recheck
from sparkcrypt.runs.table import scan as scan_module
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.runs.table.difference import drift_in_short
from sparkcrypt.runs.table.scan import ScannedUnit, Scanner, scan_footers
from sparkcrypt.runs.table.target import Target
from sparkcrypt.runs.table.unit_survey import UnitSurvey, coverage_of, files_by_kind, survey_unit
from sparkcrypt.runs.table.untouchable import find_suspicious, refuse_unit
from sparkcrypt.schema import schema_from_spark
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.tags.model import tags_of_schema
from tests.growth import Metered, Work, assert_linear
from tests.unit.backfill.scanned_files import plain_file

METERED = (
    Metered(LocalStateStore, "list", "names", lambda _, names: len(names)),
    Metered(LocalStateStore, "read", "reads", lambda *_: 1),
    Metered(LocalStateStore, "create", "bytes", lambda args, _: len(args[2])),
)
"""What the state directory is asked for footers that are known."""


def policy() -> Policy:
    """Return a policy of one tag that encrypts."""
    document = {
        "version": 1,
        "key_service": {"type": "own"},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
        "run_state": "/state",
        "tags": {"pii": {"key": "pii-{p}"}},
        "tables": {"db.t": {"require_encryption": True}},
    }
    return policy_from_document(document, locate=lambda _: "policy")


def names(columns: int) -> list[str]:
    """Return the names of columns."""
    return [f"c{place:04}" for place in range(columns)]


def plan_of(columns: int) -> EncryptionPlan:
    """Return the plan of a table whose columns all have the tag."""
    tag = {"tags": ["pii"]}
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": tag} for name in names(columns)]
    schema = schema_from_spark({"type": "struct", "fields": fields})
    return build_plan(schema, tags_of_schema(schema), policy(), table="db.t", partition_columns=("p",))


def target_of(columns: int) -> Target:
    """Return a table, as far as a scan asks for it."""
    return cast("Target", SimpleNamespace(plan=plan_of(columns), format="parquet", uuid=None, name="db.t"))


def facts_of(path: str, columns: int) -> FooterFacts:
    """Return what the footer of a plaintext file says."""
    return FooterFacts(plain_file(*((name,) for name in names(columns)), path=path), {})


def unit_of(place: int, files: int, folders: int = 1) -> Unit:
    """Return a partition with files, in folders below its own."""
    name = f"p={place}"
    made = tuple(
        Folder(
            f"q={folder}" if folders > 1 else "",
            tuple(SourceFile(f"/t/{name}/{folder}/part-{file:05}.parquet", 100 + file, 5) for file in range(files)),
        )
        for folder in range(folders)
    )
    return Unit(name, f"/t/{name}", None, name, {"p": str(place)}, made)


def scan(unit: Unit, target: Target, columns: int) -> ScannedUnit:
    """Return a unit of plaintext files, compared with its plan."""
    return scan_footers(unit, {file.path: facts_of(file.path, columns) for file in unit.files}, target)


def _go_through(unit: Unit, columns: int) -> Work:
    """Return what goes through a unit from its footers to the orders of its files."""
    target, rules = target_of(columns), policy()
    found: Mapping[str, Found] = {file.path: facts_of(file.path, columns) for file in unit.files}

    def work() -> None:
        scanned = scan_footers(unit, found, target)
        survey = survey_unit(scanned, target.plan)
        assert survey.actions["encrypt"].files == len(unit.files) == files_by_kind([survey])["plaintext"]
        assert len(list(find_suspicious(scanned, target.plan, rules))) == len(scanned.drift)
        with pytest.raises(VerificationError, match="may be a forgery"):
            refuse_unit(scanned, target, rules, adopt=False, allow_decrypt=True)
        refuse_unit(scanned, target, rules, adopt=True, allow_decrypt=True)
        assert len(FileOrders(target, rules, None).list_orders(scanned, "/staged")) == len(unit.files)
        assert drift_in_short(scanned.drift) and len(by_place(unit.location, unit.folders)) == len(unit.files)
        recheck(unit, unit.location, unit.folders)

    return work


def _files(_folder: Path, number: int) -> Work:
    return _go_through(unit_of(0, number), 2)


def _folders(_folder: Path, number: int) -> Work:
    return _go_through(unit_of(0, 2, number), 2)


def _columns(_folder: Path, number: int) -> Work:
    return _go_through(unit_of(0, 1), number)


class Footers:
    """Footers that are read, and how many."""

    def __init__(self) -> None:
        self.read_files = 0

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return the footers of files."""
        self.read_files += len(sources)
        return {source.path: facts_of(source.path, 2) for source in sources}


def _units(folder: Path, number: int) -> Work:
    """Scan units with a cache of footers, twice; and put them into their order."""
    store, target, rules = LocalStateStore(folder / "state"), target_of(2), policy()
    units = [unit_of(place, 2) for place in range(number)]

    def work() -> None:
        reader = Footers()
        for _ in range(2):
            cache = FooterCache(store, "t", name="db.t")
            scanner = Scanner(target, cast("Any", None), reader, cache)
            surveys = [survey_unit(scanned, target.plan) for scanned in scanner.scan(units)]
            assert len(order_units(surveys, target.plan, rules)) == number
            assert coverage_of(surveys, [survey.name for survey in surveys])["pii"]["files"] == 2 * number
        assert reader.read_files == 2 * number == sum(len(lengths) for _, lengths, _ in cache.read_all())
        refuse_overlaps(tuple(units))

    return work


def _failures(_folder: Path, number: int) -> Work:
    """Work through units of which each fails."""
    target = target_of(2)
    surveys = [survey_unit(scan(unit_of(place, 1), target, 2), target.plan) for place in range(number)]

    def fail(batch: Sequence[UnitSurvey]) -> list[Result]:
        return [VerificationError("a file is damaged") for _ in batch]

    def work() -> None:
        options = RunOptions(parallelism=1, keep_going=True)
        assert len(work_through(surveys, fail, list, options).failed) == number

    return work


def _beside(_folder: Path, number: int) -> Work:
    """Find what lies beside data: material of keys, summaries, files of others, and what writers leave."""
    kinds = (
        "part-0.parquet",
        "_KEY_MATERIAL_FOR_part-0.parquet.json",
        "_metadata",
        "_notes/x",
        "_temporary/0",
        "_SUCCESS",
    )
    entries = [Entry(f"p={place:05}/{kind}", length=1) for place in range(number) for kind in kinds]
    return lambda: find_beside(entries)


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        ("file:/t/p=0", "file:///t/p=0/", True),
        ("hdfs://n:8020/t/p=0", "hdfs://n/t/p=0/q=1", True),
        ("s3://b/t", "s3a://b/t/p=0", True),
        ("file:/t/p=0", "file:/t/p=00", False),
        ("file:/t/p=0/x", "file:/t/p=0-old", False),
        ("hdfs://n/t", "hdfs://m/t", False),
    ],
)
def test_units_with_one_folder_are_refused(first: str, second: str, overlap: bool) -> None:
    """However it is written: swapping one would change the other."""
    units = [replace(unit_of(place, 0), location=location) for place, location in enumerate((first, second))]
    for ordered in (units, units[::-1]):
        with pytest.raises(PlanError, match="share the folder") if overlap else nullcontext():
            refuse_overlaps((unit_of(7, 0), *ordered))


WORKS: dict[str, tuple[Callable[[Path, int], Work], int, tuple[str, ...]]] = {
    "files of a unit": (_files, 100, ()),
    "folders of a unit": (_folders, 100, ()),
    "columns of a file": (_columns, 200, ()),
    "units of a table": (_units, 40, ("bytes",)),
    "units that fail": (_failures, 400, ()),
    "what lies beside data": (_beside, 50, ()),
}
"""What there is much of -> what returns the work on so much, how much, and what it counts besides."""


@pytest.mark.parametrize("many", WORKS)
def test_cost_is_linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: str) -> None:
    """Twice as many files, folders, columns or units cost twice as much."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power cut concerns a cache of thousands of footers
    monkeypatch.setattr(scan_module, "list_unit", lambda _, unit: unit)
    make, size, kinds = WORKS[many]

    def prepare(number: int) -> Work:
        folder = tmp_path / str(number)
        folder.mkdir()
        return make(folder, number)

    prepare(1)()  # what is done once a process is done before it is counted
    assert_linear(prepare, size, ("lines", "calls", *kinds), METERED, most=2.1)
