"""The master key rotation that a run's options request, with the KEK that the state directory stores for the table."""

from __future__ import annotations

from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.runs.rewrite.keks import TableKeks
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.difference import Rotation


def rotation_of(options: RunOptions, trust: TableTrust) -> Rotation | None:
    """Return the rotation that a run's options request, with the table's present KEK; None for any other run.

    The KEK is looked up again for each unit, since the run may have stopped wrapping with it.  This creates no KEK:
    staging the first unit does.

    Args:
        options: the run's options.
        trust: the table's trust; a KEK that the audit's MAC does not authenticate is ignored.

    Raises:
        KeyServiceError: the master key no longer exists, or these credentials may not describe it.
        VerificationError: the MAC key is damaged.
    """
    if options.rotate_key is None:
        return None
    version = 1 if options.rotate_to is None else options.rotate_to
    if not options.dry_run:
        version = max(version, open_key_service(trust.policy.key_service).describe(options.rotate_key).versions)
    has_audit = bool(trust.store.list(f"audit/{trust.table_id}/mac-key"))
    if not has_audit:
        return Rotation(options.rotate_key, version, None, options.rotate_from)
    policy = trust.policy
    keks = TableKeks(trust.store, trust.table_id, policy.key_service, policy.data_key_bits, trust.mac())
    kek = keks.find(options.rotate_key, version)
    rotation = Rotation(options.rotate_key, version, None, options.rotate_from)
    return rotation if kek is None else rotation.with_keks([kek])
