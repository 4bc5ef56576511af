"""A marker that all runs of a table have ended, so that a pass need not open every journal.

    settled/<table id>/<digest of the names>.json     version, table_id, names (their SHA-256), mac

A run that has ended stays ended, and every new record changes the list of record names.  A marker is therefore valid as
long as these names are the same, and is stored under their digest.  It has the MAC of the table's audit.  If there is
no marker for the current names, or it is not authentic, every journal is read: a forged marker hides no unfinished run.
"""

from __future__ import annotations

import hashlib

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.state.mac import CheckMac, Mac
from sparkcrypt.ledger.state.sealed_record import open_sealed, seal_record
from sparkcrypt.ledger.state.store import StateStore

_VERSION = 1
_PURPOSE = b"sparkcrypt settled runs\n"


def is_settled(store: StateStore, table_id: str, names: tuple[str, ...], check_mac: CheckMac) -> bool:
    """Return whether an authentic marker shows that all runs of a table had ended with exactly these records.

    Args:
        store: the state directory.
        table_id: the table's id.
        names: the names of all records of its journals now.
        check_mac: returns the number of the MAC key of its audit that made a MAC.
    """
    digest = _digest(names)
    name = _name(table_id, digest)
    content = store.read(name)
    if content is None:
        return False
    try:
        open_sealed(_PURPOSE, name, content, check_mac, {"version": _VERSION, "table_id": table_id, "names": digest})
    except VerificationError:
        return False
    return True


def settle(store: StateStore, table_id: str, names: tuple[str, ...], mac: Mac) -> None:
    """Write the marker that all runs of a table have ended, unless a record was added since the names were listed.

    Args:
        store: the state directory.
        table_id: the table's id.
        names: the names of all records of its journals, listed before the first journal was read.
        mac: the MAC of the table's audit.
    """
    if store.list(f"runs/{table_id}/") != names:
        return
    name = _name(table_id, digest := _digest(names))
    earlier = [other for other in store.list(f"settled/{table_id}/") if other != name]
    members = {"version": _VERSION, "table_id": table_id, "names": digest}
    store.create(name, seal_record(_PURPOSE, members, mac))
    for earlier_name in earlier:
        store.delete(earlier_name)


def _digest(names: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def _name(table_id: str, digest: str) -> str:
    return f"settled/{table_id}/{digest[:32]}.json"
