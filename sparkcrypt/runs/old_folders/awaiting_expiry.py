"""Statistics of a table's old files that await expiry: how many exist, since when, and how many are in clear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeAlias

from sparkcrypt.errors import VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.unit_status import UnitStatus, has_expired, status_of_units
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.changes import expired_folders
from sparkcrypt.spark.files.hadoop import HadoopFiles

_Source: TypeAlias = tuple[int, bool]
"""The length of an old file, and whether it has a column in clear that is encrypted in the new files."""


@dataclass(frozen=True, slots=True)
class Awaiting(JsonObject, json_names={"total_bytes": "bytes"}):
    """Old files of a table that await `expire`.

    Attributes:
        files: their number.
        total_bytes: their length in bytes.
        plaintext_files: the number of those with a column in clear that is encrypted now, judged by how many keys old
            and new files have.
        plaintext_bytes: the length of those in bytes.
        since: when the first of them was replaced (ISO 8601, UTC); None if there are none.
        beyond_grace: whether it was replaced longer ago than the policy's grace.
    """

    files: int = 0
    total_bytes: int = 0
    plaintext_files: int = 0
    plaintext_bytes: int = 0
    since: str | None = None
    beyond_grace: bool = False


def count_awaiting_expiry(store: StateStore, table_id: str, files: HadoopFiles, grace_seconds: float) -> Awaiting:
    """Return the old files of a table that await expiry, by its journals; unreadable journals are ignored.

    Args:
        store: the state directory.
        table_id: the id of the table.
        files: the file system.
        grace_seconds: the time after which old files should have expired.
    """
    runs = Journal.runs(store, table_id, archived=False)  # archived runs have expired
    found = [unit for run_id in runs for unit in _find_in_run(store, table_id, run_id, files)]
    since = min((when for _, when in found), default=None)
    sources = [source for unit, _ in found for source in unit]
    plain = [length for length, in_clear in sources if in_clear]
    age = (datetime.now(timezone.utc) - datetime.fromisoformat(since)).total_seconds() if since else 0.0
    return Awaiting(
        files=len(sources),
        total_bytes=sum(length for length, _ in sources),
        plaintext_files=len(plain),
        plaintext_bytes=sum(plain),
        since=since,
        beyond_grace=bool(sources) and age > grace_seconds,
    )


def swap_time(journal: Journal, status: UnitStatus) -> str:
    """Return when a unit was swapped, or when its run last wrote if its record does not say that."""
    return status.outcome.finished or journal.records[-1].time


def age_seconds(journal: Journal) -> float:
    """Return how long ago a run swapped its last unit; if it has swapped none, how long ago it last wrote."""
    swapped = [swap_time(journal, status) for status in status_of_units(journal.records).values() if status.swapped]
    then = datetime.fromisoformat(max(swapped, default=journal.records[-1].time))
    return (datetime.now(timezone.utc) - then).total_seconds()


def _find_in_run(store: StateStore, table_id: str, run_id: str, files: HadoopFiles) -> list[tuple[list[_Source], str]]:
    """Return the old files of each unit of a run that still exist, and when the unit was swapped.

    The records are not authenticated, since they are only reported: a plan then needs no key of the audit.
    """
    try:
        journal = Journal.open(store, table_id, run_id)
        return [] if has_expired(journal) else list(_find_waiting(journal, files))
    except VerificationError:
        return []  # the journal is damaged or malformed; the next run reports it


def _find_waiting(journal: Journal, files: HadoopFiles) -> Iterator[tuple[list[_Source], str]]:
    expired = expired_folders(journal.records)
    for status in status_of_units(journal.records).values():
        if status.swapped and not journal.run.output:
            old = status.outcome.old_location
            if comparable_path(old) not in expired and files.exists(old):
                yield _list_sources(status), swap_time(journal, status)


def _list_sources(status: UnitStatus) -> list[_Source]:
    """Return the old files of a unit.

    Raises:
        VerificationError: the record lists them in a form that no release writes.
    """
    try:
        changes = status.evidence.get("changes", ())
        summaries = [int(entry.length) for entry in status.unit.beside]
        if not changes:
            return [(length, True) for length in (*(int(file.length) for file in status.unit.files), *summaries)]
        encrypts = any(target.get("key_ids") for change in changes for target in change["targets"])
        return [
            *(source for change in changes for source in _list_of_change(change)),
            *((length, encrypts) for length in summaries),
        ]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise VerificationError(
            f"unit {status.fields.get('unit')}: its files are not listed as a release does; restore the state directory"
        ) from error


def _list_of_change(change: Mapping[str, Any]) -> Iterator[_Source]:
    keys = len({key for target in change["targets"] for key in target.get("key_ids", ())})
    for source in change["sources"]:
        yield int(source["bytes"]), len(source.get("key_ids", ())) < max(keys, 1)
