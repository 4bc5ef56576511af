"""The audit of a table: who changed which files, when and why; a view of the table's log (`sparkcrypt.ledger.log`).

That of a swap (``encrypt``) is made of three records: ``unit_swapped`` has the outcome, ``unit_verified`` before it the
evidence, and ``unit_listed`` the folder of the old files.  Every other entry is a record.

Records are chained and authenticated, so an edited, forged, moved or dropped one is detected.  A cut at the end is as a
crash to the log; pins in the metastore find it (``pins``), and a head that was kept where others cannot write (a
report, a log service), and is passed to ``verify_audit``.  Anyone who can unwrap the MAC key can write entries that
verify, so it should be wrapped by a master key that readers may not use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.journal.journal import KINDS
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.record import LogRecord
from sparkcrypt.ledger.state.mac import FOUND, TableMac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import path_below

ENCRYPT = "encrypt"
"""``what`` of the entry that a unit was swapped."""
SWAP = "unit_swapped"
"""The kind of the record that such an entry is made of, with those before it."""
_BEFORE_SWAP = ("unit_listed", "unit_verified")
"""The kinds of records that say what was swapped, in their order."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry of the audit; ``entry`` contains the values that the run wrote, ``digest`` identifies its record."""

    name: str
    number: int
    time: str
    entry: dict[str, Any]
    digest: str

    @classmethod
    def of(cls, record: LogRecord, what: str, about: Mapping[str, Any]) -> AuditEntry:
        """Return the entry that a record of the log is.

        Args:
            record: the record.
            what: the action that was done.
            about: what the entry says of it.
        """
        fields = dict(about)
        why = {"policy_digest": fields.pop("policy_digest", None), "run_id": record.run_id}
        entry = {"who": record.who, "what": what, "why": why, **fields}
        return cls(record.name, record.number, record.time, entry, record.digest)


class AuditWriter:
    """Appends entries to a table's audit; the caller holds the table's lock.

    Args:
        log: the table's log.
        token: the fencing token of the lock.
    """

    def __init__(self, log: TableLog, token: int) -> None:
        self._log, self._token = log, token

    def append(self, entry: dict[str, Any]) -> AuditHead:
        """Append an entry.

        Args:
            entry: JSON values, as `make_entry` returns them: ``what``, ``why`` with ``policy_digest`` and ``run_id``,
                and further values of the entry; time and user are added.

        Returns:
            The new head, which can be kept elsewhere.

        Raises:
            RunConflictError: another driver wrote the entry of this number.
            SparkcryptError: the entry lacks what or why.
        """
        _refuse_vague(self._log.table_id, entry)
        fields = {name: value for name, value in entry.items() if name not in ("what", "why")}
        why = entry["why"]
        record = self._log.append(
            entry["what"], why["run_id"], self._token, {"policy_digest": why["policy_digest"], **fields}
        )
        return AuditHead(record.number, record.digest)


def open_audit(store: StateStore, table_id: str, mac: TableMac | None) -> TableLog:
    """Read a table's log, of which no entry may be missing or damaged but those that a person has given up.

    Raises:
        VerificationError: an entry is; the message names it.
    """
    log = TableLog.open(store, table_id, mac)
    refuse_gaps(log)
    return log


def refuse_gaps(log: TableLog) -> None:
    """Refuse a log of which a record is missing or damaged that nobody has given up.

    Raises:
        VerificationError: one is; the message names it.
    """
    if log.open_gaps:
        raise VerificationError(
            f"{log.describe_gap(log.open_gaps[0])}, though the log has had {log.head[0]} records; {FOUND}"
        )


def refuse_damage(log: TableLog) -> None:
    """Refuse a log with a gap, or with anything at its end that is no record.

    Raises:
        VerificationError: it has one; the message names it.
    """
    refuse_gaps(log)
    if log.end is not None:
        raise VerificationError(f"{log.end}; {FOUND}")


def verify_audit(
    store: StateStore, table_id: str, mac: TableMac | None, *, expected: Collection[AuditHead] = ()
) -> AuditHead | None:
    """Verify the whole audit of a table.

    Args:
        store: the state directory.
        table_id: the table's id.
        mac: the table's MAC keys; None if it has none, and so no audit.
        expected: heads that were kept elsewhere; the log must contain each.

    Returns:
        The head of the log, which can be kept elsewhere; None if the log is empty.

    Raises:
        VerificationError: a record was edited, dropped, moved or cut off; the message names it.
    """
    log = TableLog.open(store, table_id, mac)
    refuse_damage(log)
    return verify_heads(log, expected)


def verify_heads(log: TableLog, expected: Collection[AuditHead]) -> AuditHead | None:
    """Check that a log has each head that was kept elsewhere; return its own, None if it is empty.

    Raises:
        VerificationError: it lacks one.
    """
    digests = {record.number: record.digest for record in log.records}
    for head in expected:
        if digests.get(head.number) != head.digest:
            raise VerificationError(
                f"audit of {log.table_id}: has {len(digests)} records, of which none is the record {head.number} that "
                f"a head kept elsewhere tells of: its end was cut off, or it was replaced; {FOUND}"
            )
    return AuditHead(*log.head) if log.records else None


def list_entries(store: StateStore, table_id: str, mac: TableMac | None) -> Iterator[AuditEntry]:
    """Yield a table's entries, oldest first; a cut at the end is not detected.

    Args:
        store: the state directory.
        table_id: the table's id.
        mac: the table's MAC keys; without them the entries are not verified, and for display alone.

    Raises:
        VerificationError: an entry was edited, dropped or moved; the message names it.
    """
    yield from list_entries_of(open_audit(store, table_id, mac))


def list_entries_of(log: TableLog, after: int = 0) -> Iterator[AuditEntry]:
    """Yield the entries in a log, oldest first: its swaps, and its records but those of journals.

    An entry of a swap whose evidence is lost has no changes.

    Args:
        log: the log.
        after: the number of the last record that is left out.
    """
    for record, before in _pair_with_evidence(log):
        if record.number <= after:
            continue
        if record.kind == SWAP:
            yield AuditEntry.of(record, ENCRYPT, _describe_swap(record, before))
        else:
            yield AuditEntry.of(record, record.kind, record.fields)


def _pair_with_evidence(log: TableLog) -> Iterator[tuple[LogRecord, Mapping[str, LogRecord]]]:
    """Yield each record that is an entry; a swap with the listing and the verification of its last attempt."""
    steps: dict[tuple[str, str | None], dict[str, LogRecord]] = {}
    for record in log.records:
        attempt = (record.run_id, record.unit)
        if record.kind == _BEFORE_SWAP[0]:
            steps[attempt] = {record.kind: record}
        elif record.kind == _BEFORE_SWAP[1] and attempt in steps:
            steps[attempt][record.kind] = record
        elif record.kind == SWAP:
            yield record, steps.pop(attempt, {})
        elif record.kind not in KINDS:
            yield record, {}


def _describe_swap(swapped: LogRecord, before: Mapping[str, LogRecord]) -> dict[str, Any]:
    """Return what the entry of a swap says, by the unit's records.

    Raises:
        VerificationError: a record, which was not authenticated, lacks what a swap is described by.
    """
    about = swapped.fields
    try:
        outcome, evidence, changes = about["outcome"], {}, []
        if len(before) == len(_BEFORE_SWAP):
            listed, verified = (before[kind].fields for kind in _BEFORE_SWAP)
            evidence, places = verified["evidence"], (str(listed["location"]), str(verified["staged"]))
            changes = place_changes(evidence["changes"], *places, outcome["old_location"], outcome["new_location"])
        known = {name: about[name] for name in ("policy_digest", "table", "predecessor") if about.get(name) is not None}
        made = {"engine": outcome.get("engine"), "unit": outcome, "digests": evidence.get("digests")}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise VerificationError(f"{swapped.name}: does not say what was swapped; {FOUND}") from error
    return {**known, **made, "changes": changes}


def place_changes(
    changes: Iterable[Mapping[str, Any]], location: str, staged: str, old_location: str, new_location: str
) -> list[dict[str, Any]]:
    """Return a unit's changes with the paths of its files after a swap.

    Of a source, ``path`` is where it was listed and ``kept`` where it is now; of a target, ``staged`` is where it was
    made and ``path`` where it is now.

    Args:
        changes: from the unit's evidence.
        location: the folder where the old files were listed.
        staged: the folder where the new files were made.
        old_location: the folder of the old files now.
        new_location: the folder of the new files now.
    """

    def move_path(there: str, file: Mapping[str, Any], here: str) -> str:
        return f"{there.rstrip('/')}/{path_below(here, str(file['path']))}"

    return [
        {
            **change,
            "sources": [{**file, "kept": move_path(old_location, file, location)} for file in change["sources"]],
            "targets": [
                {**file, "staged": file["path"], "path": move_path(new_location, file, staged)}
                for file in change["targets"]
            ],
        }
        for change in changes
    ]


def make_entry(what: str, policy_digest: str, run_id: str, **about: Any) -> dict[str, Any]:
    """Return an audit entry.

    Args:
        what: the action that was done.
        policy_digest: the digest of the policy that was in force.
        run_id: the id of the run, or the command, that did it.
        about: further JSON values: the table, the unit, its files.
    """
    return {"what": what, "why": {"policy_digest": policy_digest, "run_id": run_id}, **about}


def _refuse_vague(table_id: str, entry: dict[str, Any]) -> None:
    why = entry.get("why")
    missing = [] if entry.get("what") else ["what"]
    missing += [f"why.{name}" for name in ("policy_digest", "run_id") if not isinstance(why, dict) or not why.get(name)]
    if missing:
        raise SparkcryptError(f"audit of {table_id}: an entry without {', '.join(missing)} says too little; add them")
