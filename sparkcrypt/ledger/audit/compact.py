"""Packing of an audit's older entries, so that the state directory has few files."""

from __future__ import annotations

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.chain import RECORD_NAME, AuditChain, AuditRecords
from sparkcrypt.ledger.audit.packs import Packs, fills_pack, full_packs, write_pack
from sparkcrypt.ledger.state.mac import FOUND, TableMac
from sparkcrypt.ledger.state.store import StateStore


def pack_audit(store: StateStore, table_id: str, mac: TableMac) -> None:
    """Pack older entries of a table's audit, and delete their records; the caller holds the table's lock.

    Args:
        store: the state directory.
        table_id: the table's id.
        mac: the MAC of the table's audit.

    Raises:
        VerificationError: the audit was changed; nothing was packed.
    """
    _clear_packed(store, table_id, mac)
    records = AuditRecords.of(store, table_id, mac.check)
    if not fills_pack(len(records.loose) - 1):
        return
    chain, contents = AuditChain(table_id, mac.check), dict[int, bytes]()
    for number in records.numbers:
        content = records.entry(number)
        chain.entry(number, content)
        if number in records.loose[:-1]:
            contents[number] = content
    records.check_heads(chain)
    for pack in full_packs(sorted(contents.items())):
        write_pack(store, table_id, pack, mac)
    _clear_packed(store, table_id, mac)


def _clear_packed(store: StateStore, table_id: str, mac: TableMac) -> None:
    """Delete the records of packed entries, oldest first, and their heads.

    Raises:
        VerificationError: an entry differs from its copy in the pack; both stay.
    """
    names = store.list(f"audit/{table_id}/")
    packs = Packs(store, table_id, names, mac.check)
    for name in names:
        match = RECORD_NAME.fullmatch(name.rpartition("/")[2])
        packed = packs.entry(int(match["number"])) if match else None
        if match is None or packed is None:
            continue
        if not match["head"] and store.read(name) != packed:
            raise VerificationError(f"{name}: is not as its pack has it; {FOUND}")
        store.delete(name)
