"""The texts, numbers and tables of the page of all tables, from their status, with links to reports; no markup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace as Shown
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sparkcrypt.paths import is_local, local_path
from sparkcrypt.runs.passes.html.content import (
    MOST_NAMES,
    MOST_TAGS,
    cut,
    icon_of,
    make_visible,
    message,
    moment,
    shell_word,
    tone_of,
)
from sparkcrypt.text import age_of, count_of, parse_time, percent, size_of

if TYPE_CHECKING:
    from datetime import datetime

    from sparkcrypt.runs.passes.estate import EstateStatus, TableStatus

_TONES = {"unchanged": "good", "refused": "bad"}
_ICONS = {"unchanged": "check", "refused": "warning"}


def status_sections(done: EstateStatus, place: str) -> dict[str, Any]:
    """Return what the template shows.

    Args:
        done: the status of all tables.
        place: where the page is written, from which links lead to reports beside it.
    """
    now = parse_time(done.at)
    tables = sorted(done.tables, key=_order)
    plain = sorted((table for table in tables if _plain_bytes(table)), key=lambda table: -_plain_bytes(table))
    most = max(map(_plain_bytes, plain), default=0)
    tags = list(done.coverage.items())
    return {
        "head": _headline(done),
        "sums": _sums(done),
        "findings": cut(list(_list_findings(done))),
        "coverage": cut(
            [
                Shown(
                    name=make_visible(tag),
                    share=_share(found.matching_bytes, found.total_bytes),
                    text=percent(found.matching_bytes, found.total_bytes),
                    data=f"{size_of(found.matching_bytes)} of {size_of(found.total_bytes)}",
                    files=f"{found.matching_files:,} of {count_of(found.files, 'file')}",
                )
                for tag, found in tags
            ],
            MOST_TAGS,
        ),
        "waiting": cut([_waiting_row(table, most, now) for table in plain], MOST_NAMES),
        "tables": cut([_row(table, place, now) for table in tables]),
        "policy_digest": done.policy_digest,
    }


def _order(table: TableStatus) -> tuple[Any, ...]:
    figures, failed = table.figures, table.last is not None and table.last.reason is not None
    left = 0 if figures is None else figures.bytes_left
    return not (table.problems or table.tags_lost), not failed, not table.drifts, -left, table.table


def _plain_bytes(table: TableStatus) -> int:
    return 0 if table.awaiting is None else table.awaiting.plaintext_bytes


def _headline(done: EstateStatus) -> Shown:
    totals = done.totals()
    rest = [
        (totals["drifting"], "with drift"),
        (totals["untagged"], "untagged"),
        (totals["tables"] - totals["surveyed"], "not surveyed"),
    ]
    named = [f"{number:,} {what}" for number, what in rest if number]
    named += ["old files beyond their grace"] if totals["beyond_grace"] else []
    named += ["rotations overdue"] if done.overdue or done.overdue is None else []
    outcome, tone, icon = ("Some work is left", "wait", "pause") if named else ("All as planned", "good", "check")
    if done.needs_person:
        outcome, tone, icon = "A person must decide", "bad", "warning"
    where = ", ".join(map(make_visible, done.databases)) or "all databases"
    sentence = f"{count_of(totals['tables'], 'table')}{': ' if named else ''}{', '.join(named)}."
    if not done.tables:
        outcome, tone, icon, sentence = "Nothing is known", "note", "eye", "No pass has recorded a table here."
    source = "by a scan just now" if done.fresh else "as passes and runs recorded it"
    return Shown(
        outcome=outcome, tone=tone, icon=icon, sentence=sentence, details=f"{where} · {moment(done.at)} · {source}"
    )


def _sums(done: EstateStatus) -> list[Shown]:
    totals = done.totals()
    matching = totals["surveyed"] - totals["untagged"] - totals["drifting"]
    plain = totals["plaintext_files_awaiting_expiry"]
    late = f", {count_of(totals['beyond_grace'], 'table')} beyond the grace" if totals["beyond_grace"] else ""
    overdue = None if done.overdue is None else len(done.overdue)
    found = [
        ("As planned", f"{matching:,}", f"of {count_of(totals['tables'], 'table')}", "good" if matching else ""),
        ("With drift", f"{totals['drifting']:,}", "after their last pass", "wait" if totals["drifting"] else "good"),
        ("Untagged", f"{totals['untagged']:,}", "in which nothing is encrypted", "wait" if totals["untagged"] else ""),
        (
            "Plaintext awaiting expiry",
            size_of(totals["plaintext_bytes_awaiting_expiry"]),
            f"{count_of(plain, 'file')}{late}",
            "bad" if late else "wait" if plain else "good",
        ),
        (
            "Open problems",
            f"{totals['problems']:,}",
            f"{count_of(totals['tags_lost'], 'table')} lost tags",
            "bad" if done.needs_person else "good",
        ),
        (
            "Rotations overdue",
            "?" if overdue is None else f"{overdue:,}",
            "the key service did not say" if overdue is None else "of keys of these files",
            "good" if overdue == 0 else "wait",
        ),
    ]
    return [Shown(name=name, value=value, note=note, tone=tone) for name, value, note, tone in found]


def _list_findings(done: EstateStatus) -> Iterator[Shown]:
    """Yield what a person must look at, what must be decided first."""
    for table in done.tables:
        yield from (_finding("Open problem", table.table, problem.message) for problem in table.problems)
    for table in done.tables:
        yield from _list_failures(table)
    for table in done.tables:
        yield from _list_old(table)
    for key in done.overdue or ():
        yield _finding("Rotation overdue", key.key_id, key.message, "", "wait")
    for earlier in done.earlier:
        text = f"The table with the id {earlier.table_id} had this name, and was dropped or renamed."
        step = "`sparkcrypt backfill orphans` finds what it left."
        yield _finding("Made again", earlier.table, text, step, "note")
    if done.keys_unknown:
        yield _finding("Not known", "rotations of keys", done.keys_unknown, "", "wait")


def _list_failures(table: TableStatus) -> Iterator[Shown]:
    if table.tags_lost:
        yield _finding("Tags lost", table.table, table.tags_lost)
    elif table.last is not None and table.last.reason:
        step = f"`sparkcrypt plan --table {shell_word(table.table)}` or the next pass tells more."
        yield _finding(table.last.outcome.capitalize(), table.table, table.last.reason, step)


def _list_old(table: TableStatus) -> Iterator[Shown]:
    if table.awaiting is not None and table.awaiting.beyond_grace:
        step = f"`sparkcrypt backfill expire --table {shell_word(table.table)}`"
        text = f"Old files await expiry since {moment(table.awaiting.since)}."
        yield _finding("Beyond grace", table.table, text, step, "wait")
    if table.unfinished:
        text = f"Run {table.unfinished} is at work, or was interrupted: then the command that began it continues it."
        yield _finding("Unfinished", table.table, text, "", "wait")


def _finding(kind: str, where: str, text: str, step: str = "", tone: str = "bad") -> Shown:
    return Shown(kind=kind, where=make_visible(where), message=message(text), next_step=step, tone=tone)


def _waiting_row(table: TableStatus, most: int, now: datetime) -> Shown:
    waiting = table.awaiting
    late = ", beyond the grace" if waiting is not None and waiting.beyond_grace else ""
    return Shown(
        name=make_visible(table.table),
        share=_share(_plain_bytes(table), most),
        data=size_of(_plain_bytes(table)),
        files=f"{0 if waiting is None else waiting.plaintext_files:,}",
        text=f"{age_of(None if waiting is None else waiting.plaintext_since, now)}{late}",
    )


def _row(table: TableStatus, place: str, now: datetime) -> Shown:
    last, figures = table.last, table.figures
    outcome = "none recorded" if last is None else last.outcome
    rate = 0.0 if last is None else last.bytes_a_second
    drift = {} if figures is None else figures.drift
    return Shown(
        name=make_visible(table.table),
        outcome=make_visible(outcome),
        tone=_TONES.get(outcome, tone_of(outcome)),
        icon=_ICONS.get(outcome, icon_of(outcome)),
        ago="" if last is None else f"{age_of(last.tried, now)} ago",
        href=None if last is None else _link(last.page, place),
        figures="–"
        if figures is None
        else f"{age_of(figures.at, now)} old{', changed since' * bool(table.records_since)}",
        files="–" if figures is None else f"{figures.files:,}",
        left=f"{count_of(figures.units_left, 'unit')}, {size_of(figures.bytes_left)}"
        if figures and table.drifts
        else "–",
        drift="untagged"
        if table.untagged
        else ", ".join(f"{make_visible(kind)}: {drift[kind]:,}" for kind in drift) or "–",
        rate=f"{size_of(rate)}/s" if rate else "–",
    )


def _link(page: str | None, place: str) -> str | None:
    """Return the link from a page to a report; None if one of them is not on a local disk, where no link leads."""
    if page is None or not (is_local(page) and is_local(place)):
        return None
    here = Path(local_path(place)).absolute().parent
    return quote(os.path.relpath(local_path(page), here))


def _share(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole else 100.0
