"""What a state directory says of shredded keys, as it stands there: for messages, since nothing here is authenticated.

A reader's process may not open the audit of keys, whose MAC key readers may not use.  So it is told what the record
says, and by whom it is told, where the state directory is a folder that this process can read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal, TypeAlias

from sparkcrypt.errors import show
from sparkcrypt.keys.ids import key_digest

Absence: TypeAlias = Literal["shredded", "missing"]

TOMBSTONE_VERSION = 1
_MOST_BYTES = 65_536
_TIME = re.compile(r"[0-9T:.+Z-]{10,40}")
_LOCAL = re.compile(r"(?:file:(?://)?)?(/.*)", re.DOTALL)


def tombstone_name(digest: str) -> str:
    """Return the name of a tombstone's record in the state directory."""
    return f"tombstones/{digest}.json"


def reason_of_absence(run_state: str, key_id: str) -> Absence:
    """Return why a key is not there: ``shredded`` where a tombstone says so, else ``missing``.

    Args:
        run_state: the state directory, as the policy has it.
        key_id: the master key, of which the key service says that it is not there.
    """
    return "missing" if describe_tombstone(run_state, key_id) is None else "shredded"


def describe_tombstone(run_state: str, key_id: str) -> str | None:
    """Return what people are told of a shredded key; None where nothing is known of it here.

    Args:
        run_state: the state directory, as the policy has it.
        key_id: the master key.
    """
    place = _LOCAL.fullmatch(run_state)
    if place is None:
        return None
    try:
        with Path(place[1], tombstone_name(key_digest(key_id))).open("rb") as stream:
            told = json.loads(stream.read(_MOST_BYTES))
        time, reason = str(told["time"]), str(told["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if told.get("key_id") != key_id or not _TIME.fullmatch(time):
        return None
    return f"the state directory says that it was shredded on {time.partition('.')[0]}: {show(reason)}"
