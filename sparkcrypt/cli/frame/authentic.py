"""Authenticates records that commands show with the audit's MAC, or notes why they are not authenticated."""

from __future__ import annotations

from sparkcrypt.errors import ConfigError, KeyServiceError, KeyServiceUnavailableError, VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import authentic_entries
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.model import Policy


class Authenticity:
    """Opens the records of tables for display; without the key service they are opened unauthenticated.

    Attributes:
        reasons: reasons why records were not authenticated, each once.
    """

    def __init__(self, store: StateStore, policy: Policy) -> None:
        self._store, self._policy = store, policy
        self._macs: dict[str, TableMac | None] = {}
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

    def journal(self, table_id: str, run_id: str) -> Journal:
        """Open a run's journal, authenticated if possible; see its ``authenticated``.

        Raises:
            VerificationError: it is damaged, or the MAC could be checked and it is not authentic.
        """
        return Journal.open(self._store, table_id, run_id, self.mac(table_id))

    def entries(self, table_id: str) -> frozenset[int]:
        """Return the numbers of a table's audit entries that are authentic, up to the first that is not."""
        mac, found = self.mac(table_id), set()
        try:
            for entry, _ in authentic_entries(self._store, table_id, mac.check) if mac is not None else ():
                found.add(entry.number)
        except VerificationError as error:
            self.reasons[str(error)] = None
        return frozenset(found)

    def _open_mac(self, table_id: str) -> TableMac | None:
        """Open a table's MAC keys; return None if that fails, and stop trying once the key service is unavailable."""
        if not self._asks:
            return None
        if not self._store.list(f"audit/{table_id}/mac-key"):
            self.reasons[f"table {table_id} has no MAC key in the state directory"] = None
            return None
        try:
            service = open_key_service(self._policy.key_service)
            return open_mac(self._store, table_id, service, MasterKeys.of(self._policy))
        except (KeyServiceError, ConfigError, VerificationError) as error:
            self.reasons[str(error)] = None
            self._asks = not isinstance(error, KeyServiceUnavailableError | ConfigError)
            return None
