"""The texts and numbers of the page's sections, from a pass's report; no markup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkcrypt.runs.passes.html.advice import REFUSED, next_step
from sparkcrypt.runs.passes.html.text import duration, make_visible, message, moment
from sparkcrypt.text import count_of, size_of

Values = Mapping[str, Any]
MOST_ROWS = 200
MOST_NAMES = 50
TONES = {
    "done": "good",
    "nothing to do": "good",
    "untagged": "wait",
    "dry run": "note",
    "stopped at budget": "wait",
    "incomplete": "bad",
    "failed": "bad",
}
ICONS = {"done": "check", "nothing to do": "check", "dry run": "eye", "stopped at budget": "pause", "failed": "cross"}


@dataclass(frozen=True, slots=True)
class Headline:
    """The outcome of the pass: in words, with a tone and an icon."""

    outcome: str
    tone: str
    icon: str
    sentence: str
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem for the operator: its kind, table and unit, its cause, and the next step."""

    kind: str
    table: str
    unit: str
    error: str
    message: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The first of many rows, and the number of the others."""

    rows: Sequence[Any]
    more: int


def cut(rows: Sequence[Any], most: int = MOST_ROWS) -> Cut:
    """Return the first rows, and the number of the others."""
    return Cut(rows[:most], max(0, len(rows) - most))


def read_list(report: Values, name: str) -> list[Values]:
    """Return a list in a report; empty if it is absent, as in the report of a pass that failed."""
    return [element for element in report.get(name) or [] if isinstance(element, Mapping)]


def read_number(values: Values, name: str) -> float:
    """Return a number in a report; 0 if it is absent, null or NaN."""
    value = values.get(name)
    return value if isinstance(value, (int, float)) and value == value else 0


def outcome_of(values: Values) -> str:
    """Return the outcome of a pass or a run."""
    return make_visible(values.get("outcome") or "unknown")


def tone_of(outcome: str) -> str:
    """Return the tone of an outcome: good, note, wait or bad."""
    return TONES.get(outcome, "note")


def icon_of(outcome: str) -> str:
    """Return the name of the icon for an outcome."""
    return ICONS.get(outcome, "warning")


def totals(report: Values) -> dict[str, float]:
    """Return the sums over all tables: the report's own totals, or computed from its tables."""
    tables, reported = read_list(report, "tables"), report.get("totals") or {}
    names = ("files_total", "files_rewritten", "files_left", "rows", "bytes_before", "bytes_after", "bytes_left")
    sums = {name: sum(read_number(table, name) for table in tables) for name in (*names, "units_left")}
    counts = {
        "tables": float(len(tables)),
        "units": float(sum(len(read_list(table, "units")) for table in tables)),
        "quarantined": float(sum(len(read_list(table, "quarantined")) for table in tables)),
    }
    return {
        name: read_number(reported, name) if name in reported else value for name, value in {**sums, **counts}.items()
    }


def headline(report: Values) -> Headline:
    """Return the headline of the page."""
    outcome = outcome_of(report)
    fields = [
        ("Pass", make_visible(report.get("pass_id") or "")),
        ("started", moment(report.get("started"))),
        ("took", duration(read_number(report, "seconds")) if report.get("seconds") is not None else ""),
    ]
    details = tuple(f"{name} {value}" for name, value in fields if value)
    tone, sentence = tone_of(outcome), _sentence(report, outcome) + _describe_untagged(report)
    overdue = any(waiting.get("beyond_grace") for waiting in _list_awaiting(report))
    if tone == "good" and (overdue or count_untagged(report)):
        return Headline(outcome, "wait", "warning", sentence + (_OVERDUE if overdue else ""), details)
    return Headline(outcome, tone, icon_of(outcome), sentence, details)


def _sentence(report: Values, outcome: str) -> str:
    sums = totals(report)
    what = f"{count_of(sums['files_rewritten'], 'file')} ({size_of(sums['bytes_before'])})"
    remainder = f"{count_of(sums['files_left'], 'file')} ({size_of(sums['bytes_left'])})"
    every = "Every file of the tagged tables" if count_untagged(report) else "Every file that was looked at"
    if outcome == "done" and not sums["files_left"]:
        return f"{what} rewritten. {every} now matches its plan."
    if outcome == "nothing to do":
        return f"{every} matched its plan already. Nothing was changed."
    if outcome == "untagged":
        return "Nothing was changed."
    if outcome == "dry run":
        found = f"{remainder} in {count_of(sums['units_left'], 'unit')} differ from their plan"
        found = found if sums["files_left"] else "No file that was looked at differs from its plan"
        return f"{found}. Nothing was changed.{_describe_problems(report)}"
    if outcome == "failed":
        return "The pass ended with an error. What it had swapped in by then stays, and nothing else was changed."
    if outcome == "incomplete":
        return f"{what} rewritten.{_describe_problems(report) or ' What is below must be looked at.'}"
    return f"{what} rewritten, {remainder} left. The same command goes on where this pass stopped."


_OVERDUE = " Old files in clear are still there beyond their grace: run `sparkcrypt backfill expire`."


def count_untagged(report: Values) -> int:
    """Return the number of tables in which nothing is encrypted, since no column has a tag that encrypts."""
    return sum(1 for table in read_list(report, "tables") if table.get("untagged"))


def outcome_of_table(table: Values) -> str:
    """Return the outcome of a table's run, or ``untagged`` if there was nothing to do for want of tags."""
    outcome = outcome_of(table)
    return "untagged" if table.get("untagged") and outcome in ("dry run", "nothing to do") else outcome


def _describe_untagged(report: Values) -> str:
    """Return a sentence with the number of untagged tables, with a space before it; empty if there are none."""
    count, tables = count_untagged(report), len(read_list(report, "tables"))
    if not count:
        return ""
    verb = "is" if count == 1 else "are"
    return f" {count:,} of {count_of(tables, 'table')} {verb} untagged: nothing in them is encrypted."


def count_untagged_columns(report: Values) -> float:
    """Return the number of columns of the untagged tables, which are in clear."""
    return sum(read_number(table, "data_columns") for table in read_list(report, "tables") if table.get("untagged"))


def _list_awaiting(report: Values) -> list[Values]:
    """Return each table's counts of old files that wait for expiry."""
    found = (table.get("awaiting_expiry") for table in read_list(report, "tables"))
    return [waiting for waiting in found if isinstance(waiting, Mapping)]


def sum_awaiting(report: Values) -> dict[str, Any] | None:
    """Return the plaintext that waits for expiry, whether it is beyond its grace, and since when; None if not known."""
    found = _list_awaiting(report)
    if not found:
        return None
    return {
        "files": sum(read_number(waiting, "plaintext_files") for waiting in found),
        "bytes": sum(read_number(waiting, "plaintext_bytes") for waiting in found),
        "overdue": any(waiting.get("beyond_grace") for waiting in found),
        "since": min((str(waiting["since"]) for waiting in found if waiting.get("since")), default=""),
    }


def _describe_problems(report: Values) -> str:
    """Return a sentence with the numbers of problems by kind, with a space before it; empty if there are none."""
    numbers = (
        (totals(report)["quarantined"], "quarantined unit"),
        (len(read_list(report, "failed")), "failed table"),
        (len(read_list(report, "refused")), "refused table"),
    )
    named = [count_of(number, noun) for number, noun in numbers if number]
    if not named:
        return ""
    return (
        f" {', '.join(named[:-1])} and {named[-1]} must be looked at."
        if named[1:]
        else f" {named[0]} must be looked at."
    )


def problems_of(report: Values) -> Iterator[Problem]:
    """Yield the problems for the operator, most serious first."""
    error = report.get("error")
    if isinstance(error, Mapping):
        code = f" (exit code {error['exit_code']})" if "exit_code" in error else ""
        name = str(error.get("type") or "error")
        text, whole = message(error.get("message", "")), make_visible(report.get("table") or "the whole pass")
        yield Problem("pass failed", whole, "", make_visible(name) + code, text, next_step(name))
    for failed_table in read_list(report, "failed"):
        yield _problem("table failed", failed_table.get("table"), "", failed_table)
    for table in read_list(report, "tables"):
        for unit in read_list(table, "quarantined"):
            yield _problem("unit quarantined", table.get("table"), unit.get("unit"), unit)
        if read_list(table, "units") and not table.get("verified"):
            text = "Files were swapped in that were not verified."
            step = "Run `sparkcrypt verify` on the table, and keep the old files until it passes."
            yield Problem("not verified", make_visible(table.get("table")), "", "", text, step)
    for table_name, reason in reasons_of(report, "refused"):
        yield Problem("table refused", table_name, "", "", reason, REFUSED)


def columns_of(table: Values) -> Cut:
    """Return (column, key id) for the encrypted columns of a table, sorted."""
    columns = (table.get("columns") or {}).items()
    return cut(sorted((make_visible(path), make_visible(key)) for path, key in columns), MOST_NAMES)


def reasons_of(report: Values, name: str) -> list[tuple[str, str]]:
    """Return (table, reason) for each table in a list of the report, such as ``refused``."""
    return [(make_visible(table.get("table")), message(table.get("reason", ""))) for table in read_list(report, name)]


def warnings_of(report: Values) -> list[tuple[str, str]]:
    """Return (table, text) for each warning; those of the whole pass have no table."""
    found = [("", message(text)) for text in report.get("warnings") or []]
    for table in read_list(report, "tables"):
        found += [(make_visible(table.get("table")), message(text)) for text in table.get("warnings") or []]
    return found


def _problem(kind: str, table: object, unit: object, found: Values) -> Problem:
    name = str(found.get("error") or "")
    text = message(found.get("message", ""))
    return Problem(kind, make_visible(table), make_visible(unit or ""), make_visible(name), text, next_step(name))
