"""Tombstones in a state directory, read for messages only, since their content is not authenticated here.

A reader's process may not open the audit of keys, whose MAC key readers may not use.  So its messages quote the record
and name the state directory as the source, if that is a folder that this process can read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal, TypeAlias

from sparkcrypt.errors import FormatError, show
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.paths import hadoop_local_path
from sparkcrypt.regular_files import read_regular

Absence: TypeAlias = Literal["shredded", "missing"]

TOMBSTONE_VERSION = 1
_MOST_BYTES = 65_536
_TIME = re.compile(r"[0-9T:.+Z-]{10,40}")


def tombstone_name(digest: str) -> str:
    """Return the name of a tombstone's record in the state directory."""
    return f"keys/tombstones/{digest}.json"


def reason_of_absence(run_state: str, key_id: str) -> Absence:
    """Return why a key does not exist: ``shredded`` if there is a tombstone of it, else ``missing``.

    Args:
        run_state: the state directory, as the policy names it.
        key_id: the master key that the key service does not have.
    """
    return "missing" if describe_tombstone(run_state, key_id) is None else "shredded"


def describe_tombstone(run_state: str, key_id: str) -> str | None:
    """Return a sentence for messages about a shredded key, or None if no tombstone of it can be read.

    Args:
        run_state: the state directory, as the policy names it.
        key_id: the master key.
    """
    place = hadoop_local_path(run_state)
    if place is None:
        return None
    try:
        record = json.loads(read_regular(Path(place, tombstone_name(key_digest(key_id))), _MOST_BYTES))
        time, reason = str(record["time"]), str(record["reason"])
    except (OSError, FormatError, ValueError, KeyError, TypeError):
        return None
    if record.get("key_id") != key_id or not _TIME.fullmatch(time):
        return None
    return f"the state directory says that it was shredded on {time.partition('.')[0]}: {show(reason)}"
