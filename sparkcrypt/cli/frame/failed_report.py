"""The report of a run that failed: where exit codes vanish, as in YARN's cluster mode, it is all that is left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.cli.frame.command import describe_error
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.output import say

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
    """Write a report with outcome ``failed`` when the block raises, and let the error go on.

    What is yielded takes what the block knows of what was done until then.

    Args:
        workplace: what writes it.
        report: where to; None writes nothing.
        target: the table or folder.
        page: where a page goes to that is made of the same document, and what makes it.
        **known: further fields.
    """
    known = {"table": target, "started": datetime.now(timezone.utc).isoformat(timespec="seconds"), **known}
    try:
        yield known
    except BaseException as error:
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


def _write(workplace: Workplace, report: str, text: Callable[[], str]) -> None:
    try:
        workplace.write(report, text())
    except Exception as second:  # noqa: BLE001  # the first error is the one that matters; both are told
        say(f"error: the report {report} could not be written: {describe_error(second)[1]}")
