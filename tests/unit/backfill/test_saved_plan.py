"""A saved plan is applied only to what it was made from: anything that has changed since is named, and refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkcrypt.errors import ConfigError, RunConflictError
from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.runs.passes.plan import KeyCalls, TargetPlan
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.saved_plan import VERSION, SavedPlan
from sparkcrypt.runs.table.difference import Drift
from sparkcrypt.runs.table.scan import scan_footers
from sparkcrypt.runs.table.unit_survey import UnitSurvey, survey_unit
from sparkcrypt.spark.files.listing import SourceFile
from tests.unit.backfill.plans import planned
from tests.unit.backfill.run_reports import report
from tests.unit.backfill.scanned_files import plain_file

PLAN = planned()


def survey(name: str = "p=0", *files: tuple[str, int]) -> UnitSurvey:
    """Return the survey of a unit with plaintext files, each with a length."""
    sources = tuple(SourceFile(f"/t/{name}/{file}", length, 0) for file, length in files or (("a", 10), ("b", 20)))
    unit = Unit(name, f"/t/{name}", None, "", {}, (Folder("", sources),))
    facts = {file.path: FooterFacts(plain_file(("id",), ("email",), path=file.path), {}) for file in sources}
    target = cast("Any", SimpleNamespace(plan=PLAN, format="parquet", uuid=None))
    return survey_unit(scan_footers(unit, facts, target), PLAN)


def saved(*surveys: UnitSurvey, **changes: Any) -> SavedPlan:
    """Return the saved plan of a table with some units."""
    values: dict[str, Any] = {
        "sparkcrypt_plan": VERSION,
        "table": "db.t",
        "path": None,
        "where": None,
        "avro_schema": None,
        "made": "2026-11-27T08:00:00Z",
        "uuid": "u1",
        "plan": PLAN.to_dict(),
        "units": tuple(sorted(survey.digest for survey in surveys)),
        "units_left": len(surveys),
        "files_left": 2 * len(surveys),
        "bytes_left": 30 * len(surveys),
    }
    return SavedPlan(**{**values, **changes})


def target_of(plan: EncryptionPlan = PLAN, uuid: str | None = "u1") -> Any:
    """Return a target with a plan and an identity."""
    return SimpleNamespace(plan=plan, uuid=uuid, name="db.t")


def refusal(check: Callable[[], None]) -> str:
    """Return the message of a refusal, which ends with 75."""
    with pytest.raises(RunConflictError) as caught:
        check()
    assert caught.value.exit_code == 75
    return str(caught.value)


def test_a_file_of_it_is_read_as_it_was_written() -> None:
    """Text and back is the same plan, with the same digest."""
    made = saved(survey())
    assert SavedPlan.parse(made.to_text(), "f") == made
    assert SavedPlan.parse(made.to_text(), "f").digest == made.digest != replace(made, where="p = 1").digest


@pytest.mark.parametrize("text", ["", "[]", "{}", '"text"', '{"sparkcrypt_plan": 1}', '{"sparkcrypt_plan": 2}'])
def test_what_is_no_saved_plan_is_refused_with_its_place(text: str) -> None:
    """The message says which command writes one."""
    with pytest.raises(ConfigError, match=r"here\.json: is .*sparkcrypt plan --out FILE"):
        SavedPlan.parse(text, "here.json")


def test_what_did_not_change_is_applied() -> None:
    """The same plan and units, in any order, are no reason to refuse."""
    first, second = survey("p=0"), survey("p=1")
    made = saved(first, second)
    made.refuse_other_plan(target_of())
    made.refuse_other_units([second, first])


def test_the_origin_of_tags_and_what_readers_accept_are_no_change() -> None:
    """A run puts tags of the policy's rule into the table's properties; its continuation must not be refused."""
    columns = tuple(replace(column, sources=("table property",), why="…", history=("old",)) for column in PLAN.columns)
    saved(survey()).refuse_other_plan(target_of(replace(PLAN, columns=columns)))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (replace(PLAN, policy_digest="other"), "the policy was changed"),
        (replace(PLAN, footer_key="fin"), "footer key was footer and is fin"),
        (replace(PLAN, require_encryption=True), "require encryption was False and is True"),
        (replace(PLAN, partition_columns=("p",)), "the partition columns differ"),
        (
            replace(PLAN, columns=(PLAN.columns[0], replace(PLAN.columns[1], tags=("fin", "pii")), *PLAN.columns[2:])),
            "the tags or keys of email differ",
        ),
        (replace(PLAN, columns=PLAN.columns[1:]), "the tags or keys of id differ"),
    ],
)
def test_a_changed_policy_tag_or_column_is_named(changed: EncryptionPlan, told: str) -> None:
    """What differs is in the message, and how to make the plan anew."""
    message = refusal(lambda: saved(survey()).refuse_other_plan(target_of(changed)))
    assert told in message and "sparkcrypt plan --table db.t --out FILE" in message


def test_a_plan_of_another_table_is_no_change() -> None:
    """It was never of this one."""
    with pytest.raises(ConfigError, match=r"is of db\.u, not of db\.t"):
        saved(survey(), table="db.u").refuse_other_plan(target_of())


def test_a_table_that_was_made_anew_is_refused() -> None:
    """Its UUID is another one; a plan of a table without one says nothing of that."""
    assert "made anew" in refusal(lambda: saved(survey()).refuse_other_plan(target_of(uuid="u2")))
    saved(survey(), uuid=None).refuse_other_plan(target_of(uuid="u2"))


@pytest.mark.parametrize(
    "now",
    [
        (("a", 10),),
        (("a", 10), ("b", 20), ("c", 30)),
        (("a", 10), ("b", 21)),
        (("a", 10), ("d", 20)),
    ],
)
def test_a_unit_whose_files_changed_is_named(now: tuple[tuple[str, int], ...]) -> None:
    """A file that came, went, was renamed or has another length changes the unit's digest."""
    message = refusal(lambda: saved(survey()).refuse_other_units([survey("p=0", *now)]))
    assert "new or differ: p=0;" in message


def test_a_unit_that_came_or_went_is_told() -> None:
    """A new partition is named; one that is gone is counted, since the plan has no names of partitions."""
    first, second = survey("p=0"), survey("p=1")
    assert "new or differ: p=1;" in refusal(lambda: saved(first).refuse_other_units([first, second]))
    assert "1 unit of it is gone" in refusal(lambda: saved(first, second).refuse_other_units([second]))
    many = [survey(f"p={number}") for number in range(5)]
    assert "p=1, p=2, p=3 and 1 more" in refusal(lambda: saved(first).refuse_other_units(many))


def test_drift_is_a_part_of_the_digest() -> None:
    """A file that somebody encrypted in its place, at the same length, is no longer what the plan was made from."""
    before = survey()
    other = cast("Any", SimpleNamespace(plan=replace(PLAN, columns=()), format="parquet", uuid=None))
    sources = (SourceFile("/t/p=0/a", 10, 0), SourceFile("/t/p=0/b", 20, 0))
    scanned = scan_footers(
        Unit("p=0", "/t/p=0", None, "", {}, (Folder("", sources),)),
        {f"/t/p=0/{name}": FooterFacts(plain_file(("id",), path=f"/t/p=0/{name}"), {}) for name in "ab"},
        other,
    )
    assert survey_unit(scanned, other.plan).digest != before.digest


def test_a_run_of_the_plan_goes_on_where_it_was_cut_off() -> None:
    """Units that it has swapped are other units now, and no change; one that it has not is."""
    first, second, third = survey("p=0"), survey("p=1"), survey("p=2")
    made, swapped = saved(first, second, third), survey("p=0", ("new", 11))
    made.refuse_other_units([swapped, second, third], {"p=0"})
    assert "differ: p=0;" in refusal(lambda: made.refuse_other_units([swapped, second, third]))
    assert "1 unit of it is gone" in refusal(lambda: made.refuse_other_units([swapped, second], {"p=0"}))


def test_an_unfinished_run_of_another_plan_is_not_continued() -> None:
    """Its journal has the digest of its plan, or none."""
    made = saved(survey())
    made.refuse_other_run(cast("Any", SimpleNamespace(run_id="r1", options=RunOptions(plan=made).to_dict())))
    for options in (RunOptions(), RunOptions(plan=replace(made, where="p = 1"))):
        run = cast("Any", SimpleNamespace(run_id="r1", options=options.to_dict()))
        assert "run r1 is unfinished" in refusal(partial(made.refuse_other_run, run))


@pytest.mark.parametrize("named", [{"purge": True}, {"home": True}, {"rewrap": True}, {"where": "p = 1"}])
def test_options_that_change_what_is_done_do_not_go_with_it(named: dict[str, Any]) -> None:
    """They are refused before anything is looked at."""
    with pytest.raises(ConfigError, match="saved plan"):
        RunOptions(plan=saved(survey()), **named).check()
    RunOptions(plan=saved(survey())).check()


def test_the_file_has_no_names_of_partitions() -> None:
    """Their values may tell something; the plan has digests in their place."""
    assert "p=0" not in saved(survey()).to_text() and "/t/" not in saved(survey()).to_text()
    assert len(json.loads(saved(survey()).to_text())["units"][0]) == 64


def plan_of(*surveys: UnitSurvey, **changes: Any) -> TargetPlan:
    """Return the plan of a table with some units."""
    dry = report(table="db.t", units_left=len(surveys), files_left=4, bytes_left=60, files_total=4, warnings=())
    values: dict[str, Any] = {"key_calls": KeyCalls(6, 0), "free_bytes": 1000}
    return TargetPlan(PLAN, surveys, dry, saved(*surveys), **{**values, **changes})


def test_the_text_names_units_and_files_only_where_asked() -> None:
    """A line for each unit that differs; with --files one for each file."""
    made = plan_of(survey("p=0"), survey("p=1"))
    text = made.to_text()
    assert "  p=0: 2 files, 30 B: encrypt 2 (plaintext: 2)\n  p=1: " in text and "/t/p=0/a" not in text
    assert "  /t/p=0/a: the file is not encrypted" in made.to_text(files=True)


def test_why_files_stay_as_they_are_is_named_of_each_unit() -> None:
    """Once for each reason, however many files have it."""
    drift = [Drift("unreadable", f"/t/p=0/{name}", None, "is damaged") for name in "ab"]
    text = plan_of(replace(survey(), drift=(*drift, Drift("unknown", "/t/p=0/c", "mail", "was it renamed?")))).to_text()
    assert "(unknown: 1, unreadable: 2); is damaged; mail: was it renamed?\n" in text


def test_what_lies_above_partitions_is_named_in_any_case() -> None:
    """No unit has it."""
    above = Drift("summary_file", "/t/_metadata", None, "a summary of footers")
    assert "  /t/_metadata: a summary of footers" in plan_of(survey(), above=(above,)).to_text()


@pytest.mark.parametrize(
    ("free", "told"), [(1000, "\nfree space: 1.0 kB; new"), (59, "\nfree space: only 59 B, and new"), (None, None)]
)
def test_the_text_says_what_a_run_needs(free: int | None, told: str | None) -> None:
    """Calls of the key service, and room for the new files; a store without a limit has no line of it."""
    text = plan_of(survey(), free_bytes=free).to_text()
    assert "\nkey service: about 6 calls by each process" in text
    assert told in text if told else "free space" not in text


def test_calls_are_counted_for_what_differs() -> None:
    """Two for each master key of a run, those of footers and audit too; none where nothing is to do."""
    names = {"footer_key": "footer", "footer_key_history": (), "audit_key": "audit", "audit_key_history": ()}
    policy = cast("Any", SimpleNamespace(**names))
    matches = replace(survey(), drift=(), keys=frozenset(), wrappings=frozenset({cast("Any", "a wrapped key")}))
    assert KeyCalls.of([matches], policy) == KeyCalls(0, 1)
    assert KeyCalls.of([survey(), matches], policy).run == 6


def test_encrypted_columns_come_first() -> None:
    """In the text, not in the JSON, whose order stays that of the schema."""
    lines = [line.split()[0] for line in PLAN.table_text().splitlines()[3:]]
    assert lines == ["email", "phones.list.element", "id"]
    assert [column["column"] for column in PLAN.to_dict()["columns"]] == ["id", "email", "phones.list.element"]
