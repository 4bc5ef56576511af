"""The records of an access log: their kinds, their fields, and the maximum length of each field."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Literal, TypeAlias

from sparkcrypt.errors import BridgeError, show

Record: TypeAlias = dict[str, Any]
Outcome: TypeAlias = Literal["opened", "refused", "masked", "failed", "declassified"]

VERSION = 1
ACCESS, QUERY, LOST = "access", "query", "lost"
"""Keys of a table that a reader asked for; a query that the listener saw; events that were not recorded."""
OUTCOMES: tuple[Outcome, ...] = ("opened", "refused", "masked", "failed", "declassified")
MOST_COLUMNS = 256
MOST_CHARACTERS = 1_000
_WHO = ("principal", "session_user", "application", "execution", "route")
_TEXTS = {ACCESS: (*_WHO, "table", "key", "why"), QUERY: (*_WHO, "query_digest"), LOST: ("principal", "application")}


def make_record(event: Mapping[str, Any], *, process: str) -> Record:
    """Return an event in the form of the log: known fields alone, each bounded, times in UTC.

    Args:
        event: ``kind`` (``access``, ``query`` or ``lost``), ``number`` (its place among those of its process),
            ``first_ms`` and ``last_ms`` (since 1970), ``count``; the reader's ``principal``, ``session_user``,
            ``application``, ``execution``, ``route``; of an access ``outcome``, ``why``, ``table``, ``key``,
            ``columns`` (dotted), ``tags`` (that were removed) and ``footer`` (whether the footer's key was asked for);
            of a query ``query_digest``.
        process: the process that saw it, which uses no number twice.

    Raises:
        BridgeError: a field that it must have is missing or of another type.
    """
    kind = event.get("kind")
    if kind not in _TEXTS:
        raise BridgeError(f"an access event is of kind {show(kind)}; allowed: {', '.join(_TEXTS)}")
    first = _number(event, "first_ms")
    record: Record = {"v": VERSION, "kind": kind, "time": _utc(first), "last": _utc(_number(event, "last_ms"))}
    record |= {name: _text(event.get(name)) for name in _TEXTS[kind]}
    if kind == ACCESS:
        if event.get("outcome") not in OUTCOMES:
            raise BridgeError(f"an access event's outcome is {show(event.get('outcome'))}; allowed: {OUTCOMES}")
        columns = [_text(column) for column in event.get("columns") or ()]
        record |= {"outcome": event["outcome"], "columns": columns[:MOST_COLUMNS], "footer": bool(event.get("footer"))}
        if event["outcome"] == "declassified":
            record["tags"] = [_text(tag) for tag in event.get("tags") or ()]
    return record | {"count": _number(event, "count"), "process": process, "number": _number(event, "number")}


def _number(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise BridgeError(f"an access event's {name!r} is {show(value)}; allowed: a whole number")
    return value


def _text(value: object) -> str | None:
    """Return a text that UTF-8 can encode, cut if it is long: names of tables and keys must not set the log's size."""
    if value is None:
        return None
    text = str(value).encode("utf-8", "replace").decode()
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _utc(milliseconds: int) -> str:
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError) as error:
        raise BridgeError(f"an access event's time is {milliseconds} ms since 1970; allowed: a date") from error
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
