from __future__ import annotations

from pathlib import Path

import pytest

from tests.everyday.__main__ import report
from tests.everyday.estate import KINDS
from tests.everyday.model import Bytes, Model, Table, canary, find_unforeseen, judge_folders
from tests.everyday.night import Plan, Result, lay_out
from tests.everyday.seam import DELETE, POINTS, RENAME
from tests.everyday.verbs import VERBS


@pytest.fixture
def model() -> Model:
    """An estate of one table, whose row 1 somebody who knew nothing of tags wrote, and row 2 somebody who did."""
    made = Model()
    table = made.tables["t0"] = Table("t0", partitioned=False)
    for row, plain in ((1, True), (2, False)):
        made.intend(table, [row], plain=plain)
        table.add([row], None)
    return made


def kinds(model: Model, root: Path) -> list[str]:
    """Return what is wrong with the bytes of a folder."""
    return [finding.kind for finding in Bytes(root).judge(model)]


def test_a_value_in_clear_is_found_in_any_file(model: Model, tmp_path: Path) -> None:
    """A value that was written under the policy may stand in no file, whatever it is and however it is called."""
    (tmp_path / ".hidden").write_bytes(b"\0\1" + canary(2, "e").encode() + b"\2")
    assert kinds(model, tmp_path) == ["in clear"]


def test_what_was_written_in_clear_is_secret_once_passes_are_done(model: Model, tmp_path: Path) -> None:
    """Until a pass and an expire are done a value may be in clear; untagged columns may be so for ever."""
    (tmp_path / "a").write_text(canary(1, "e") + canary(1, "n"))
    assert kinds(model, tmp_path) == []
    model.settle()
    assert kinds(model, tmp_path) == ["in clear"]


def test_a_file_that_changed_is_read_again(model: Model, tmp_path: Path) -> None:
    """What is known of a file's bytes ends with their next change."""
    judge, file = Bytes(tmp_path), tmp_path / "a"
    file.write_text("x" * len(canary(2, "e")))
    assert judge.judge(model) == []
    file.write_text(canary(2, "e"))
    assert [finding.kind for finding in judge.judge(model)] == ["in clear"]


def test_a_file_of_people_may_move_with_its_folder_but_not_vanish(model: Model, tmp_path: Path) -> None:
    """People's own files stay, by name and content."""
    file = tmp_path / "t0" / "_README"
    file.parent.mkdir()
    file.write_bytes(b"mine")
    model.kept[b"mine"] = file
    file.parent.rename(tmp_path / "elsewhere")
    assert kinds(model, tmp_path) == []
    (tmp_path / "elsewhere" / "_README").unlink()
    assert kinds(model, tmp_path) == ["file of people gone"]


def test_files_of_people_may_go_with_what_they_overwrite(model: Model, tmp_path: Path) -> None:
    """Spark deletes a folder with all that is in it; what is gone from elsewhere is gone wrongly."""
    for name in ("t0", "t1"):
        model.kept[name.encode()] = tmp_path / name / "_README"
    model.forget_cleared([tmp_path / "t0"])
    assert kinds(model, tmp_path) == ["file of people gone"]


def test_rows_that_were_copied_are_as_secret_as_where_they_have_the_fewest_tags(model: Model, tmp_path: Path) -> None:
    """A table that gets tags later says nothing of the copies that were made before."""
    copy = model.tables["t1"] = Table("t1", partitioned=False, tagged=set(), copied=True)
    model.intend(copy, [1], plain=True)
    (tmp_path / "copy").write_text(canary(1, "e"))
    model.settle()
    assert kinds(model, tmp_path) == []
    copy.tagged.add("e")
    model.settle()
    assert kinds(model, tmp_path) == ["in clear"]
    model.tables["t0"].reported = True
    model.settle()
    assert kinds(model, tmp_path) == []


def test_rows_that_are_lost_or_doubled_are_found(model: Model) -> None:
    """Each row must be there once, with its values."""
    rows = model.tables["t0"].expected()
    assert model.judge_rows(rows, ["t0"]) == []
    assert [finding.kind for finding in model.judge_rows(rows[:1], ["t0"])] == ["rows lost"]
    assert [finding.kind for finding in model.judge_rows([*rows, rows[0]], ["t0"])] == ["rows that should not be there"]


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"PARE...PARE", []), (b"PAR1...PAR1", ["plaintext in use"]), (b"PARE...PAR1", ["damaged"]), (b"", ["damaged"])],
)
def test_files_in_use_are_judged_by_their_first_and_last_bytes(tmp_path: Path, content: bytes, kind: list[str]) -> None:
    """A file in use is a whole encrypted Parquet file."""
    (tmp_path / "part-0").write_bytes(content)
    assert [finding.kind for finding in judge_folders(Table("t0", partitioned=False), [tmp_path])] == kind


def test_only_what_may_be_reported_excuses_a_command(model: Model) -> None:
    """An exit code other than 0 needs a table of which people did what may be reported, and a line that names it."""
    text = "table     outcome\nlake.t0   done        4\n"
    assert not model.report(text + "failed: lake.t0: no reason")
    model.tables["t0"].questionable = True
    assert not model.report(text)
    assert model.report(text + "failed: lake.t0: its tags are lost")
    assert model.tables["t0"].reported


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("failed: lake.t0: its tags are lost", False),
        ("failed: lake.t0: 'p=0': an error that nothing foresaw; report it", True),
        ("failed: lake.t0: KeyError: 'p=0'", True),
        ("Traceback (most recent call last):", True),
    ],
)
def test_errors_that_nobody_foresaw_are_found_in_what_a_command_prints(text: str, found: bool) -> None:
    """A command that meets one is wrong, whatever its exit code."""
    assert bool(find_unforeseen(f"table     outcome\n{text}\n")) == found


def test_twenty_nights_lead_each_verb_to_each_point() -> None:
    """No pair is left to chance, and a seed repeats its night."""
    tables = [Table(f"t{n}", "partitioned" in kind, Path() if "ext" in kind else None) for n, kind in enumerate(KINDS)]
    nights = [lay_out(Plan(seed), tables) for seed in range(21, 41)]
    met = {(verb, night.point) for nights in nights for night in nights for verbs in night.verbs for verb in verbs}
    assert met >= {(verb, point) for verb in VERBS for point in POINTS}
    assert lay_out(Plan(33), tables) == nights[12]
    assert not any(VERBS[verb].may_report for night in nights[4] for verbs in night.verbs for verb in verbs)
    assert all(VERBS[verb].fits(tables[2]) for occasion in nights[12] for verb in occasion.verbs[2])


def test_the_report_says_where_no_driver_was_killed() -> None:
    """A kind of call at which no driver was killed after a verb is named."""
    result = Result(1)
    result.reached["insert", RENAME] += 2
    said = report([result], ["insert"], [RENAME, DELETE])
    assert said["kills"] == {"insert": {RENAME: 2, DELETE: 0}}
    assert said["never"] == [f"insert x {DELETE}"]
