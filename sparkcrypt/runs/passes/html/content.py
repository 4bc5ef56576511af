"""The texts, numbers and tables of the page's sections, from a pass's report, with advice for its reader; no markup.

What a section shows are namespaces, which its template reads alone.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from types import SimpleNamespace as Shown
from typing import Any

from sparkcrypt.text import count_of, duration, percent, size_of

NAME_CHARACTERS = 300
MESSAGE_CHARACTERS = 2_000
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Characters that are invisible or change the direction of text: a name with one must not look like another name."""
AGAIN = "then run the same command again: it goes on where it stopped."
NEXT_STEPS = {
    "ConfigError": f"Correct the policy, option or setting that the message names; {AGAIN}",
    "PlanError": f"Correct the tags or the policy until `sparkcrypt plan` makes a plan of the table; {AGAIN}",
    "PredicateError": "Correct --where as the message says, and run again.",
    "KeyServiceError": f"Look at the key service; {AGAIN}",
    "KeyNotFoundError": f"Restore the key from a backup, or correct its name in the policy; {AGAIN}",
    "KeyRetiredError": f"Bring the versions back (`sparkcrypt keys retire KEY_ID --undo`), and rotate; {AGAIN}",
    "KeyServiceUnavailableError": f"Wait until the key service answers again; {AGAIN}",
    "KeyAccessDeniedError": f"Let the job's credentials use this key; {AGAIN}",
    "BridgeError": f"Let `sparkcrypt doctor` check the jar, its helper and its interpreter; {AGAIN}",
    "FormatError": f"Restore the file from another copy, or write its rows again; {AGAIN}",
    "UnsupportedFileError": "Run again with `--engine spark`, which decodes what cannot be rewritten page by page.",
    "StorageError": f"See that the storage answers and lets the job in; the file itself may be right; {AGAIN}",
    "VerificationError": f"Find out who wrote what the message names before anything else; {AGAIN}",
    "SourceChangedError": "Somebody wrote to it meanwhile, and what they wrote stays. Run the same command again.",
    "RunConflictError": "Wait for the other run, or finish it first (`sparkcrypt backfill status` shows it).",
}
OPEN_PROBLEM = "Decide which rows are right, then close it with `sparkcrypt backfill resolve`."
REFUSED = "Nothing was changed. Remove the reason and run again, or leave the table as it is."
UNKNOWN = f"Do what the message asks for; {AGAIN}"
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
_OVERDUE = " Old files in clear are still there beyond their grace: run `sparkcrypt backfill expire`."
FEW_TABLES = 6
MOST_TAGS = 30
MOST_DETAILS = 40


def change(before: float, after: float) -> str:
    """Return the relative change as text: ``+0.3 %``; empty if ``before`` is 0."""
    if not before:
        return ""
    share = 100 * (after - before) / before
    return "±0.0 %" if abs(share) < 0.05 else f"{share:+.1f} %".replace("-", "\N{MINUS SIGN}")


def moment(text: object) -> str:
    """Return an ISO time as ``2026-11-21 10:11:12 UTC``, without ``UTC`` if it has no zone; other text as `visible`."""
    if not isinstance(text, str) or not text:
        return ""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return make_visible(text)
    if when.tzinfo is None:
        return f"{when:%Y-%m-%d %H:%M:%S}"
    return f"{when.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def make_visible(text: object, limit: int = NAME_CHARACTERS) -> str:
    """Return a name with invisible characters escaped, cut if it is very long."""
    whole = _UNSEEN.sub(_escape, str(text))
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


def message(text: object) -> str:
    """Return a longer text with invisible characters escaped, cut if it is very long; its line breaks stay."""
    return "\n".join(make_visible(line, MESSAGE_CHARACTERS) for line in str(text)[:MESSAGE_CHARACTERS].splitlines())


def shell_word(text: str) -> str:
    """Return a text as one word of a bash command line, with invisible characters escaped."""
    if not _UNSEEN.search(text):
        return shlex.quote(text)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSEEN.sub(_escape, quoted)}'"


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def next_step(error: object) -> str:
    """Return the operator's next step after an error of a class."""
    return OPEN_PROBLEM if error == "OpenProblem" else NEXT_STEPS.get(str(error), UNKNOWN)


def commands(table: Mapping[str, Any]) -> tuple[Shown, ...]:
    """Return the commands for a table's run; those for old files are omitted for a bare folder."""
    name, run = str(table.get("table") or ""), str(table.get("run_id") or "")
    if not name or not run:
        return ()
    of_table = f"--table {shell_word(name)} --policy policy.yaml"
    audit = table.get("audit") or {}
    head = f"{audit['number']}:{audit['digest']}" if "digest" in audit and "number" in audit else ""
    found = {"Show each unit's last step": f"sparkcrypt backfill show {shell_word(run)} --policy policy.yaml"}
    if head:
        found["Prove the audit up to this run"] = f"sparkcrypt audit verify {of_table} --head {shell_word(head)}"
    if table.get("units") and not is_folder(name):
        found |= {
            "Put the old files back": f"sparkcrypt backfill rollback {shell_word(run)} {of_table}",
            "Delete the old files": f"sparkcrypt backfill expire {of_table} --run {shell_word(run)}",
        }
    return tuple(Shown(purpose=purpose, line=line) for purpose, line in found.items())


def is_folder(name: str) -> bool:
    """Return whether a run's target is a bare folder, by its name."""
    return "/" in name


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


def headline(report: Values) -> Shown:
    """Return the outcome of the pass in words, with a tone and an icon: the headline of the page."""
    outcome = outcome_of(report)
    fields = [
        ("Pass", make_visible(report.get("pass_id") or "")),
        ("started", moment(report.get("started"))),
        ("took", duration(read_number(report, "seconds")) if report.get("seconds") is not None else ""),
    ]
    details = tuple(f"{name} {value}" for name, value in fields if value)
    tone, icon = tone_of(outcome), icon_of(outcome)
    sentence = _sentence(report, outcome) + _describe_untagged(report)
    overdue = any(waiting.get("beyond_grace") for waiting in _list_awaiting(report))
    if tone == "good" and (overdue or count_untagged(report)):
        tone, icon, sentence = "wait", "warning", sentence + (_OVERDUE if overdue else "")
    return Shown(outcome=outcome, tone=tone, icon=icon, sentence=sentence, details=details)


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


def problems_of(report: Values) -> Iterator[Shown]:
    """Yield the problems for the operator, most serious first."""
    error = report.get("error")
    if isinstance(error, Mapping):
        code = f" (exit code {error['exit_code']})" if "exit_code" in error else ""
        name = str(error.get("type") or "error")
        text, whole = message(error.get("message", "")), make_visible(report.get("table") or "the whole pass")
        yield _problem("pass failed", whole, message=text, error=make_visible(name) + code, next_step=next_step(name))
    for failed_table in read_list(report, "failed"):
        yield _problem_of("table failed", failed_table.get("table"), "", failed_table)
    for table in read_list(report, "tables"):
        for unit in read_list(table, "quarantined"):
            yield _problem_of("unit quarantined", table.get("table"), unit.get("unit"), unit)
        if read_list(table, "units") and not table.get("verified"):
            text = "Files were swapped in that were not verified."
            step = "Run `sparkcrypt verify` on the table, and keep the old files until it passes."
            yield _problem("not verified", make_visible(table.get("table")), message=text, next_step=step)
    for table_name, reason in reasons_of(report, "refused"):
        yield _problem("table refused", table_name, message=reason, next_step=REFUSED)


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


def _problem(kind: str, table: str, *, unit: str = "", error: str = "", message: str, next_step: str) -> Shown:
    return Shown(kind=kind, table=table, unit=unit, error=error, message=message, next_step=next_step)


def _problem_of(kind: str, table: object, unit: object, found: Values) -> Shown:
    name = str(found.get("error") or "")
    return _problem(
        kind,
        make_visible(table),
        unit=make_visible(unit or ""),
        error=make_visible(name),
        message=message(found.get("message", "")),
        next_step=next_step(name),
    )


def coverage(tables: Sequence[Values]) -> tuple[Shown, ...]:
    """Return the coverage of each tag over all tables, and for each table if they are few."""
    having = [table for table in tables if table.get("coverage")]
    title = "All tables" if len(having) > 1 else ""
    if any(table.get("untagged") for table in tables):
        title = "Tagged tables alone"
    groups = [Shown(title=title, rows=_coverage_rows(having))] if having else []
    if 1 < len(having) <= FEW_TABLES:
        groups += [Shown(title=make_visible(table["table"]), rows=_coverage_rows([table])) for table in having]
    return tuple(groups)


def _coverage_rows(tables: Iterable[Values]) -> Cut:
    sums: dict[str, dict[str, float]] = {}
    for table in tables:
        for tag, found in table["coverage"].items():
            row = sums.setdefault(tag, defaultdict(float))
            for name in ("files", "bytes"):
                row[name] += read_number(found, name)
                row[f"{name}_0"] += read_number(found.get("before") or {}, name)
                row[f"{name}_1"] += read_number(found.get("after") or {}, name)
    shown = cut(list(sums.items()), MOST_TAGS)
    return Cut([_coverage_row(tag, row) for tag, row in shown.rows], shown.more)


def _coverage_row(tag: str, row: Mapping[str, float]) -> Shown:
    by = "bytes" if row["bytes"] else "files"
    return Shown(
        tag=make_visible(tag),
        before=_share(row[f"{by}_0"], row[by]),
        after=_share(row[f"{by}_1"], row[by]),
        before_text=percent(row[f"{by}_0"], row[by]),
        after_text=percent(row[f"{by}_1"], row[by]),
        files=f"{row['files_1']:,.0f} of {count_of(row['files'], 'file')}",
        data=f"{size_of(row['bytes_1'])} of {size_of(row['bytes'])}",
    )


def list_remainders(report: Values) -> Cut:
    """Return the remaining work, largest first: units that wait or are quarantined, then tables not worked on."""
    tables = [
        table for table in read_list(report, "tables") if read_number(table, "units_left") or table.get("quarantined")
    ]
    rows = [_remainder(table) for table in sorted(tables, key=lambda table: -read_number(table, "bytes_left"))]
    for kind, name in (("failed", "failed"), ("refused", "refused")):
        nothing = {"done": 0, "waiting": 0, "quarantined": 0, "units": "", "files": "", "data": ""}
        rows += [
            Shown(table=make_visible(table.get("table")), state=kind, **nothing) for table in read_list(report, name)
        ]
    return cut(rows, MOST_NAMES)


def _remainder(table: Values) -> Shown:
    finished, units_left = len(read_list(table, "units")), read_number(table, "units_left")
    held = len(read_list(table, "quarantined"))
    units_left = max(units_left, held)
    waiting, whole = units_left - held, finished + units_left
    parts = [f"{waiting:,.0f} waiting"] if waiting else []
    parts += [f"{held:,} quarantined"] if held else []
    return Shown(
        table=make_visible(table.get("table")),
        done=_share(finished, whole),
        waiting=_share(waiting, whole),
        quarantined=_share(held, whole),
        state=", ".join(parts),
        units=f"{units_left:,.0f} of {count_of(whole, 'unit')}",
        files=f"{read_number(table, 'files_left'):,.0f}",
        data=size_of(read_number(table, "bytes_left")),
    )


def sort_tables(report: Values) -> list[Values]:
    """Return the tables of a report, largest first."""
    return sorted(
        read_list(report, "tables"),
        key=lambda table: -read_number(table, "bytes_before") - read_number(table, "bytes_left"),
    )


def sort_units(report: Values, name: str, order: str) -> Cut:
    """Return (table, unit) for each unit in a list of its table, such as ``units`` or ``planned``, largest first."""
    units = [(table, unit) for table in read_list(report, "tables") for unit in read_list(table, name)]
    return cut(sorted(units, key=lambda pair: -read_number(pair[1], order)))


def _share(part: float, whole: float) -> float:
    """Return a share in percent, rounded to a hundredth, between 0 and 100; 100 if the whole is 0."""
    return round(min(100.0, max(0.0, 100 * part / whole)), 2) if whole else 100.0
