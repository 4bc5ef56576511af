"""A pointer that spares a pass from opening every journal: at these records' names, all runs of a table had ended.

    settled/<table id>/<digest of the names>.json     version, table_id, names (their SHA-256), mac

A run that has ended stays so, and every record changes the names: a pointer holds for as long as the names are the
same, and is found by them.  It bears the MAC of the table's audit.  Without it, with one of other names, or with one
that someone else wrote, every journal is asked, so nothing that is unfinished hides behind it.
"""

from __future__ import annotations

import hashlib

from sparkcrypt.backfill.state.mac import CheckMac, Mac
from sparkcrypt.backfill.state.sealed_record import open_sealed, seal_record
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.errors import VerificationError

_VERSION = 1
_PURPOSE = b"sparkcrypt settled runs\n"


def is_settled(store: StateStore, table_id: str, names: tuple[str, ...], check_mac: CheckMac) -> bool:
    """Tell whether all runs of a table had ended when its journals had these records and no others.

    Args:
        store: the state directory.
        table_id: which table.
        names: of all records of its journals now.
        check_mac: tells which MAC key of its audit made a MAC.
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
    """Keep that all runs of a table have ended, unless a record came since they were looked at.

    Args:
        store: the state directory.
        table_id: which table.
        names: of all records of its journals, as they were listed before the first was looked at.
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
