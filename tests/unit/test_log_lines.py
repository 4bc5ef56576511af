"""Lines of the log: what each is about, in both forms, in the threads and processes of a run."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextvars import copy_context

import click
import pytest

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.output import say
from sparkcrypt.cli.frame.progress import BarProgress, LineProgress, progress_on_stderr
from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.files.footers import run_parts
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.log_lines import LOG_VARIABLE, LogSettings, log_about, log_form, log_line, log_place
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.schedule import work_through
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.unit_survey import UnitSurvey
from tests.unit.cli.conftest import run

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
RUN = "20261127T101112Z-3f9a2c"


@pytest.fixture(autouse=True)
def fresh_log() -> Iterator[None]:
    """The settings of a test are not those of the next one."""
    before = logging.lastResort.formatter if logging.lastResort else None
    yield
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(before)


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment asks for JSON objects."""
    monkeypatch.setenv(LOG_VARIABLE, "json")


def test_a_line_says_when_and_what_it_is_about() -> None:
    """Time, level, run, table and unit come first, and those that are not known are left out."""
    with log_about(run=RUN, table="db.t"), log_about(unit="p=1"):
        assert re.fullmatch(f"{TIME} info {RUN} db.t p=1: staging", log_line("staging", "text"))
        found = json.loads(log_line("staging", "json", level="warning"))
    assert re.fullmatch(TIME, found.pop("time"))
    assert found == {"level": "warning", "run": RUN, "table": "db.t", "unit": "p=1", "message": "staging"}
    assert re.fullmatch(f"{TIME} info: x", log_line("x", "text"))


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_is_one_line_and_controls_no_terminal(form: str) -> None:
    """Whatever the name of a table is; JSON keeps it as it is."""
    name = "a\x1b[31m\u202eb\x7f\x85\u2028"
    with log_about(table=name):
        line = log_line("x", form)  # type: ignore[arg-type]  # both are forms
    assert not set(line) & set("\x1b\u202e\x7f\x85\u2028\n")
    assert form == "text" or json.loads(line)["table"] == name


@pytest.mark.usefixtures("as_json")
def test_whatever_a_command_writes_to_stderr_is_an_object() -> None:
    """Notes, progress and errors; the result on stdout is as ever."""

    @click.command(cls=Command)
    def command() -> None:
        say("a note\nof two lines")
        progress = progress_on_stderr()
        progress.start("db.t", 1, 2, 3)
        progress.step("p=1", "staging")
        raise PlanError("db.t: no such table")

    done = run(command=command)
    found = [json.loads(line) for line in done.errors.splitlines()]
    assert [(line["level"], line.get("table"), line.get("unit"), line["message"]) for line in found] == [
        ("info", None, None, "a note\nof two lines"),
        ("info", "db.t", None, "2 files, 3 B in 1 unit to rewrite"),
        ("info", "db.t", "p=1", "staging"),
        ("error", None, None, "error: db.t: no such table"),
    ]
    assert done.code == PlanError.exit_code


@pytest.mark.usefixtures("as_json")
def test_objects_take_the_place_of_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal too, since a program reads them."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(progress_on_stderr(), LineProgress)
    monkeypatch.delenv(LOG_VARIABLE)
    assert isinstance(progress_on_stderr(), BarProgress)


def test_another_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command says what is allowed, and does nothing."""
    monkeypatch.setenv(LOG_VARIABLE, "xml")
    with pytest.raises(ConfigError):
        log_form()
    done = run("conf")
    assert (done.code, done.output) == (ConfigError.exit_code, "")
    assert done.errors == f"error: {LOG_VARIABLE} is 'xml'; allowed: text, json; set one of them, or unset it\n"


def test_progress_names_the_run_of_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of runs at once each has its own; what another thread counts for a run is about that run."""
    heard: list[dict[str, str]] = []
    progress = LineProgress(lambda _: heard.append(log_place()), lambda: 0.0)
    first, second = progress.of_run("db.a"), progress.of_run("db.b")
    with log_about(run="1", table="db.a"):
        first.step("p=0", "undoing")
        first.start("db.a", 1, 1, 1)
    with log_about(run="2", table="db.b"):
        second.start("db.b", 1, 1, 1)
        second.step("db.b", "staging")
    first.advance(1, 1, 1)
    assert heard == [
        {"run": "1", "table": "db.a", "unit": "p=0"},
        {"run": "1", "table": "db.a"},
        {"run": "2", "table": "db.b"},
        {"run": "2", "table": "db.b"},
        {"run": "1", "table": "db.a"},
    ]


def test_threads_of_units_are_about_their_run() -> None:
    """A batch of units is worked on in a thread of its own."""
    heard: list[dict[str, str]] = []
    units = [UnitSurvey(Unit(name, f"/t/{name}", None, "", {}), Amount(1, 1), ()) for name in "ab"]

    def process(batch: object) -> list[None]:
        heard.append(log_place())
        return [None] * len(units)

    with log_about(run=RUN, table="db.t"):
        work_through(units, process, lambda left: left, RunOptions(parallelism=2))
    assert heard == [{"run": RUN, "table": "db.t"}]


@pytest.mark.parametrize("form", ["text", "json"])
def test_tasks_name_the_run_of_their_driver(
    form: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a task logs has the run, the table and the form of the driver, and the stack of an unforeseen error."""
    import pyarrow as pa

    logger = logging.getLogger("sparkcrypt.files.rewrite")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a task of Spark

    def work(part: str) -> list[str]:
        try:
            raise RuntimeError("boom")
        except RuntimeError as error:
            logger.error("%s: unforeseen error", part, exc_info=error)
        return [part]

    monkeypatch.setenv(LOG_VARIABLE, form)
    with log_about(run=RUN, table="db.t"):
        settings = LogSettings()
    monkeypatch.delenv(LOG_VARIABLE)  # executors have an environment of their own
    batches = [pa.RecordBatch.from_pydict({"id": [0]})]
    assert copy_context().run(lambda: len(list(run_parts(["/t/a.parquet"], work, settings, batches)))) == 1
    written = capfd.readouterr().err
    if form == "json":
        (found,) = map(json.loads, written.splitlines())
        assert (found["run"], found["table"], found["level"]) == (RUN, "db.t", "error")
        assert found["message"] == "/t/a.parquet: unforeseen error"
        assert found["logger"] == logger.name and found["stack"].endswith("RuntimeError: boom")
    else:
        assert re.match(f"{TIME} error {RUN} db.t: /t/a.parquet: unforeseen error\n", written)
        assert written.endswith("RuntimeError: boom\n")
