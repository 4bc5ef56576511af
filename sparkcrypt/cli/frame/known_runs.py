"""The runs in a state directory, with their tables and states, authenticated with the audit's MAC where that can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import ConfigError, KeyServiceError, KeyServiceUnavailableError, VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.journal.journal import Journal, has_expired, is_paused, list_table_ids
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac, has_mac_key, open_mac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.model import Policy, normalized_table
from sparkcrypt.spark.tables.table import describe_near_names, find_bare_name


class Authenticity:
    """Opens the records of tables for display; without the key service they are opened unauthenticated.

    Attributes:
        reasons: reasons why records were not authenticated, each once.
    """

    def __init__(self, store: StateStore, policy: Policy) -> None:
        self._store, self._policy = store, policy
        self._macs: dict[str, TableMac | None] = {}
        self._logs: dict[str, TableLog] = {}
        self._asks = True
        self.reasons: dict[str, None] = {}

    def lines(self) -> list[str]:
        """Return a note for the user for each reason."""
        return [f"not authenticated: {reason}" for reason in self.reasons]

    def mac(self, table_id: str) -> TableMac | None:
        """Return the MAC of a table's audit; None if it cannot be opened, with the reason added to `reasons`."""
        if table_id not in self._macs:
            self._macs[table_id] = self._open_mac(table_id)
        return self._macs[table_id]

    def log(self, table_id: str) -> TableLog:
        """Return a table's log, authenticated if possible."""
        if table_id not in self._logs:
            self._logs[table_id] = TableLog.open(self._store, table_id, self.mac(table_id))
        return self._logs[table_id]

    def journal(self, table_id: str, run_id: str) -> Journal:
        """Open a run's journal, authenticated if possible; see its ``authenticated``.

        Raises:
            VerificationError: it is damaged, or the MAC could be checked and it is not authentic.
        """
        return Journal.open(self.log(table_id), run_id)

    def entries(self, table_id: str) -> frozenset[int]:
        """Return the numbers of a table's audit entries that are authentic; what is not is added to `reasons`."""
        mac = self.mac(table_id)
        if mac is None:
            return frozenset()
        log = self.log(table_id)
        wrong = [*map(log.describe_gap, log.gaps), *([] if log.end is None else [log.end])]
        self.reasons |= dict.fromkeys(wrong)
        return frozenset(record.number for record in log.records)

    def _open_mac(self, table_id: str) -> TableMac | None:
        """Open a table's MAC keys; return None if that fails, and stop trying once the key service is unavailable."""
        if not self._asks:
            return None
        if not has_mac_key(self._store, table_id):
            self.reasons[f"table {table_id} has no MAC key in the state directory"] = None
            return None
        try:
            service = open_key_service(self._policy.key_service)
            return open_mac(self._store, table_id, service, MasterKeys.of(self._policy))
        except (KeyServiceError, ConfigError, VerificationError) as error:
            self.reasons[str(error)] = None
            self._asks = not isinstance(error, KeyServiceUnavailableError | ConfigError)
            return None


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run: its table, and its journal, or the reason why the journal cannot be read."""

    table_id: str
    run_id: str
    journal: Journal | None
    damage: str | None = None

    @property
    def table(self) -> str | None:
        """The table's name when the run was created; None if the journal cannot be read."""
        return self.journal.run.table if self.journal else None

    @property
    def authenticated(self) -> bool:
        """Whether every record was authenticated with the audit's MAC; if not, records may be forged."""
        return self.journal is not None and self.journal.authenticated

    @property
    def state(self) -> str:
        """The run's outcome, ``paused`` (its budget was spent), ``unfinished``, ``rolled back``, or ``damaged``."""
        if self.journal is None:
            return "damaged"
        kinds = [record.kind for record in self.journal.records]
        if "run_rolled_back" in kinds:
            return "rolled back"
        ends = [record for record in self.journal.records if record.kind == "run_finished"]
        if is_paused(self.journal):
            return "paused"
        return str(ends[-1].fields.get("outcome", "finished")) if ends else "unfinished"

    def to_dict(self) -> dict[str, Any]:
        """Return a summary of the run as JSON values."""
        records = self.journal.records if self.journal else ()
        return {
            "run_id": self.run_id,
            "table": self.table,
            "table_id": self.table_id,
            "state": self.state,
            "started": records[0].time if records else None,
            "last": records[-1].time if records else None,
            "units": len(self.journal.statuses()) if self.journal else 0,
            "expired": self.journal is not None and has_expired(self.journal),
            "damage": self.damage,
            "authenticated": self.authenticated,
        }

    def details(self) -> dict[str, Any]:
        """Return the run with the last step of each unit as JSON values."""
        statuses = self.journal.statuses() if self.journal else {}
        options = dict(self.journal.run.options) if self.journal else None
        digest = self.journal.run.policy_digest if self.journal else None
        units = [
            {
                "unit": name,
                "step": status.step,
                "error": status.error,
                "outcome": status.fields.get("outcome"),
            }
            for name, status in statuses.items()
        ]
        return {**self.to_dict(), "policy_digest": digest, "options": options, "units": units}


def known_runs(store: StateStore, table: str | None = None, authenticity: Authenticity | None = None) -> list[KnownRun]:
    """Return the runs in a state directory, or those of one table, sorted by their start.

    Args:
        store: the state directory.
        table: the table's name, or the folder, at the time of a run; or the table's UUID.
        authenticity: authenticates journals; without it they are not authenticated.

    Raises:
        ConfigError: there is no run of that table.
    """
    logs = [
        TableLog.open(store, table_id, None) if authenticity is None else authenticity.log(table_id)
        for table_id in list_table_ids(store)
    ]
    runs = [_open_run(log, run_id) for log in logs for run_id in Journal.runs(log)]
    runs.sort(key=lambda run: run.run_id)
    if table is None:
        return runs
    known = sorted({run.table for run in runs if run.table})
    wanted = normalized_table(table)
    if "." not in wanted and "/" not in wanted:
        named = find_bare_name(table, known)
        wanted = normalized_table(named[0]) if len(named) == 1 else f"default.{wanted}"  # as Spark reads it
    ids = {
        run.table_id for run in runs if run.table_id == table or (run.table and normalized_table(run.table) == wanted)
    }
    if not ids:
        raise ConfigError(
            f"no run of {table} is known in this state directory; {describe_near_names(table, known)}known tables: "
            f"{', '.join(known) or 'none'}; "
            f"if the state directory of its runs was lost, `sparkcrypt plan --table {table}` names what they left"
        )
    return [run for run in runs if run.table_id in ids]


def _open_run(log: TableLog, run_id: str) -> KnownRun:
    try:
        return KnownRun(log.table_id, run_id, Journal.open(log, run_id))
    except (ConfigError, VerificationError) as error:
        return KnownRun(log.table_id, run_id, None, str(error))
