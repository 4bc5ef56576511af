"""The cut between journals of version 1, which nobody authenticated, and those of version 2: checked once, and audited.

Each run of version 1 is held against the audit and the metastore.  One audit entry then names the last record of each
that agrees, on which all before it bear; every other record of version 1 is refused from then on, whenever it came.
What a run did that the audit tells of is believed by the audit.  What an interrupted run had only begun has no entry:
where the metastore shows that nothing of it is in use it may be forgotten or done again, else somebody must look.
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
from sparkcrypt.backfill.journal.run_steps import has_ended
from sparkcrypt.backfill.journal.unit_steps import UnitState, state_of_units
from sparkcrypt.backfill.state.mac import TableMac
from sparkcrypt.backfill.target.unit import staging_folder
from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.paths import comparable_path

_BEGUN = ("unit_listed", "unit_staged", "unit_verified", "unit_swapping")


@dataclass(frozen=True, slots=True)
class Migrated:
    """Which runs of version 1 may be acted upon from now on, and which may not: run id -> why."""

    runs: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def migrate_journals(trust: TableTrust, table: str, *, accept_begun: bool = False) -> Migrated:
    """Check the journals of version 1 of a table and audit the cut; nothing happens where that was done, or none are.

    Args:
        trust: of the table, under its lock.
        table: its name.
        accept_begun: somebody has looked at the table: go on with units too whose swap or rollback an interrupted run
            had begun.

    Raises:
        RunConflictError: there is such a unit, and nobody has looked.
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
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # anybody may have written it
            refused[run_id] = f"a record does not say what one of its kind does: {type(error).__name__}: {error}"
    AuditWriter(trust.store, trust.table_id, trust.mac(renew=True)).append(
        make_entry(MIGRATE, trust.policy.digest(), MIGRATE, table=table, runs=runs, refused=refused)
    )
    trust.forget_audit()
    return Migrated(runs, refused)


def authenticate_table(trust: TableTrust, table: str) -> TableMac:
    """Return the MAC under which new records are written; those of an earlier release are checked before the first.

    Args:
        trust: of the table, under its lock.
        table: its name.

    Raises:
        RunConflictError: as `migrate_journals`.
    """
    mac = trust.mac(renew=True)
    migrate_journals(trust, table)
    return mac


def may_continue(trust: TableTrust, table: str, run_id: str) -> bool:
    """Tell whether a run is the unfinished one and, once what an earlier release wrote was checked, is believed.

    Args:
        trust: of the table, under its lock.
        table: its name.
        run_id: of the run.

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
    """Refuse a run that names folders of others, or says what the audit does not.

    Raises:
        VerificationError: it is named.
    """
    refuse_outside(journal.records, trust.places(journal))
    folder = comparable_path(f"{staging_folder(trust.base)}/{journal.run.run_id}")
    own = re.compile(re.escape(folder) + r"-\d+(-\d+)?(-carried-\d+)?(/.*)?")
    for record in journal.records:
        if record.staged is not None and not own.fullmatch(comparable_path(record.staged)):
            raise VerificationError(f"{record.name}: names a staging folder that is not its run's; nothing is done")
        told = record.fields.get("audit")
        if told is not None and trust.audit().digests.get(int(told["number"])) != told["digest"]:
            raise VerificationError(f"{record.name}: tells of an audit entry that the audit does not have")
    if journal.run.output:
        return  # its source stays as it is, and nothing of it expires
    for name, state in state_of_units(journal.records).items():
        if state.swapped or state.step == "unit_rolled_back":
            trust.refuse_unaudited(journal, name, state)


def _refuse_begun(trust: TableTrust, table: str, journal: Journal) -> None:
    """Refuse to go on by itself where an interrupted run had begun what the audit does not tell of.

    Raises:
        RunConflictError: it names the unit and what to do.
    """
    in_use = {comparable_path(location) for location in trust.locations(None)}
    for name, last in state_of_units(journal.records).items():
        state = last.failed_at or last
        if _may_be_in_use(state, in_use) and not (has_ended(journal) and state.step in _BEGUN):
            raise RunConflictError(
                f"{table}: run {journal.run.run_id}, which an earlier release began, was interrupted in {name} "
                f"({state.step.replace('_', ' ')}), and nothing authenticates what it wrote of that; look whether "
                f"`sparkcrypt backfill show {journal.run.run_id}` names the folders of this table, then go on with "
                f"`sparkcrypt backfill migrate {'--path' if '/' in table else '--table'} {table}`"
            )


def _may_be_in_use(state: UnitState, in_use: Iterable[str]) -> bool:
    if state.is_carrying or state.step == "unit_rolling_back":
        return True
    if state.step not in _BEGUN or "location" not in state.fields:
        return False
    staged, location = comparable_path(state.staged), comparable_path(state.location)
    partitioned = state.fields.get("partition") is not None
    return state.step == "unit_swapping" and not (partitioned and location in in_use and staged not in in_use)
