"""The report of a run that failed: where exit codes vanish, as in YARN's cluster mode, it is all that is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparkcrypt.cli.command import described
from sparkcrypt.cli.output import say
from sparkcrypt.cli.session import Workplace


@contextmanager
def failed_report(workplace: Workplace, report: str | None, target: str | None, **known: Any) -> Iterator[None]:
    """Write a report with outcome ``failed`` when the block raises, and let the error go on.

    Args:
        workplace: what writes it.
        report: where to; None writes nothing.
        target: the table or directory.
        **known: further fields.
    """
    try:
        yield
    except BaseException as error:
        if report is not None:
            _write(workplace, report, error, {"table": target, **known})
        raise


def _write(workplace: Workplace, report: str, error: BaseException, known: dict[str, Any]) -> None:
    kind, message, code = described(error)
    document = {
        **known,
        "outcome": "failed",
        "verified": False,
        "error": {"type": kind, "message": message, "exit_code": code},
    }
    try:
        workplace.write(report, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    except Exception as second:  # noqa: BLE001  # the first error is the one that matters; both are told
        say(f"error: the report {report} could not be written: {described(second)[1]}")
