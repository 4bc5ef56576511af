"""The migration of journals of version 1, which are not authenticated: they are checked once, and audited.

Each run of version 1 is compared with the audit and the metastore.  One audit entry then names the last record of each
run that agrees, and so pins all records before it; every other record of version 1 is refused from then on, whenever it
was written.  Work of a run that the audit has is trusted because of the audit.  Work that an interrupted run had only
begun has no entry: if the metastore shows that nothing of it is in use it may be dropped or repeated, else the operator
must check the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkcrypt.backfill.audit.audit import AuditWriter, make_entry
from sparkcrypt.backfill.audit.audit_index import MIGRATE
from sparkcrypt.backfill.audit.confined_paths import refuse_outside
from sparkcrypt.backfill.audit.trust import TableTrust
from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.record import is_torn
from sparkcrypt.backfill.journal.run_status import has_ended
from sparkcrypt.backfill.journal.unit_status import UnitStatus, status_of_units
from sparkcrypt.backfill.state.mac import TableMac
from sparkcrypt.backfill.target.unit import staging_folder
from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.paths import comparable_path

_BEGUN = ("unit_listed", "unit_staged", "unit_verified", "unit_swapping")


@dataclass(frozen=True, slots=True)
class Migrated:
    """The migrated runs of version 1: id -> digest of the last record; the refused ones: id -> reason."""

    runs: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def migrate_journals(trust: TableTrust, table: str, *, accept_begun: bool = False) -> Migrated:
    """Check a table's journals of version 1 and audit the result; does nothing if that was done or there are none.

    Args:
        trust: the trust of the table, whose lock the caller holds.
        table: the table's name.
        accept_begun: also accept units whose swap or rollback an interrupted run had begun; the operator has checked
            the table.

    Raises:
        RunConflictError: there is such a unit, and ``accept_begun`` is false.
        VerificationError: the audit is damaged.
    """
    earlier = [run_id for run_id in Journal.runs(trust.store, trust.table_id) if _is_earlier(trust, run_id)]
    if not earlier or trust.audit().has_version_2:
        return Migrated()
    runs: dict[str, str] = {}
    refused: dict[str, str] = {}
    for run_id in earlier:
        try:
            journal = Journal.open(trust.store, trust.table_id, run_id)
            _refuse_contradictions(trust, journal)
            if not accept_begun:
                _refuse_begun(trust, table, journal)
            runs[run_id] = journal.records[-1].digest
        except VerificationError as error:
            refused[run_id] = str(error)
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # the record may be forged
            refused[run_id] = f"a record does not say what one of its kind does: {type(error).__name__}: {error}"
    AuditWriter(trust.store, trust.table_id, trust.mac(renew=True)).append(
        make_entry(MIGRATE, trust.policy.digest(), MIGRATE, table=table, runs=runs, refused=refused)
    )
    trust.forget_audit()
    return Migrated(runs, refused)


def authenticate_table(trust: TableTrust, table: str) -> TableMac:
    """Migrate a table's journals of version 1, and return the MAC for new records.

    Args:
        trust: the trust of the table, whose lock the caller holds.
        table: the table's name.

    Raises:
        RunConflictError: as `migrate_journals`.
    """
    mac = trust.mac(renew=True)
    migrate_journals(trust, table)
    return mac


def may_continue(trust: TableTrust, table: str, run_id: str) -> bool:
    """Return whether a run is the unfinished one, before and after journals of version 1 were migrated.

    Args:
        trust: the trust of the table, whose lock the caller holds.
        table: the table's name.
        run_id: the run's id.

    Raises:
        RunConflictError: as `migrate_journals`.
    """
    if trust.find_unfinished() != run_id:
        return False
    authenticate_table(trust, table)
    return trust.find_unfinished() == run_id


def _is_earlier(trust: TableTrust, run_id: str) -> bool:
    content = trust.store.read(f"runs/{trust.table_id}/{run_id}/000001.json") or b""
    return not is_torn(content) and b'"version":1}' in content[-16:]


def _refuse_contradictions(trust: TableTrust, journal: Journal) -> None:
    """Refuse a run that names folders outside its own, or contradicts the audit.

    Raises:
        VerificationError: the message names the record or the unit.
    """
    refuse_outside(journal.records, trust.places(journal))
    folder = comparable_path(f"{staging_folder(trust.base)}/{journal.run.run_id}")
    own = re.compile(re.escape(folder) + r"-\d+(-\d+)?(-carried-\d+)?(/.*)?")
    for record in journal.records:
        if record.staged is not None and not own.fullmatch(comparable_path(record.staged)):
            raise VerificationError(f"{record.name}: names a staging folder that is not its run's; nothing is done")
        head = record.fields.get("audit")
        if head is not None and trust.audit().digests.get(int(head["number"])) != head["digest"]:
            raise VerificationError(f"{record.name}: tells of an audit entry that the audit does not have")
    if journal.run.output:
        return  # its source stays unchanged, and none of its files expire
    for name, status in status_of_units(journal.records).items():
        if status.swapped or status.step == "unit_rolled_back":
            trust.refuse_unaudited(journal, name, status)


def _refuse_begun(trust: TableTrust, table: str, journal: Journal) -> None:
    """Refuse a run that was interrupted in a unit whose files may be in use, since the audit has no entry of it.

    Raises:
        RunConflictError: there is such a unit; the message names it and the next step.
    """
    in_use = {comparable_path(location) for location in trust.locations(None)}
    for name, last in status_of_units(journal.records).items():
        status = last.failed_at or last
        if _may_be_in_use(status, in_use) and not (has_ended(journal) and status.step in _BEGUN):
            raise RunConflictError(
                f"{table}: run {journal.run.run_id}, which an earlier release began, was interrupted in {name} "
                f"({status.step.replace('_', ' ')}), and nothing authenticates what it wrote of that; look whether "
                f"`sparkcrypt backfill show {journal.run.run_id}` names the folders of this table, then go on with "
                f"`sparkcrypt backfill migrate {'--path' if '/' in table else '--table'} {table}`"
            )


def _may_be_in_use(status: UnitStatus, in_use: Iterable[str]) -> bool:
    if status.is_carrying or status.step == "unit_rolling_back":
        return True
    if status.step not in _BEGUN or "location" not in status.fields:
        return False
    staged, location = comparable_path(status.staged), comparable_path(status.location)
    partitioned = status.fields.get("partition") is not None
    return status.step == "unit_swapping" and not (partitioned and location in in_use and staged not in in_use)
