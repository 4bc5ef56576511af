"""Writes the report of a run that failed: the only result where exit codes are lost, as in YARN's cluster mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.cli.frame.command import describe_error
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.output import say
from sparkcrypt.text import count_of

Document = dict[str, Any]


@contextmanager
def failed_report(
    workplace: Workplace,
    report: str | None,
    target: str | None,
    *,
    page: tuple[str, Callable[[Document], str]] | None = None,
    **known: Any,
) -> Iterator[Document]:
    """Write a report with outcome ``failed`` if the block raises an error, and re-raise the error.

    Yields a dict, to which the block can add fields about what was done so far.

    Args:
        workplace: writes the report.
        report: path or URI of the report; None writes none.
        target: the table or folder.
        page: path or URI of a page, and the function that makes it from the report.
        **known: further fields.
    """
    known = {"table": target, "started": datetime.now(timezone.utc).isoformat(timespec="seconds"), **known}
    try:
        yield known
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            error.args = (_describe_interruption(known),)
        document = _describe_failure(error, known)
        if report is not None:
            _write(workplace, report, lambda: json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        if page is not None:
            make = page[1]
            _write(workplace, page[0], lambda: make(document))
        raise


def _describe_failure(error: BaseException, known: Document) -> Document:
    kind, message, code = describe_error(error)
    return {
        **known,
        "outcome": "failed",
        "verified": False,
        "error": {"type": kind, "message": message, "exit_code": code},
    }


def _describe_interruption(known: Document) -> str:
    """Return what the runs that were interrupted have done, by their partial reports, and how they go on."""
    tables = known.get("tables", [known])
    done, left = (sum(count(table) for table in tables) for count in (_count_done, _count_left))
    if not done + left:
        return "interrupted before any unit was begun; run the same command again"
    stay = "is done and stays so" if done == 1 else "are done and stay so"
    return f"interrupted: {done:,} of {count_of(done + left, 'unit')} {stay}; the same command continues"


def _count_done(table: Document) -> int:
    return len(table.get("units", ()))


def _count_left(table: Document) -> int:
    return int(table.get("units_left", 0))


def _write(workplace: Workplace, report: str, text: Callable[[], str]) -> None:
    try:
        workplace.write(report, text())
    except Exception as second:  # noqa: BLE001  # the caller re-raises the first error; this one is only printed
        say(f"error: the report {report} could not be written: {describe_error(second)[1]}")
