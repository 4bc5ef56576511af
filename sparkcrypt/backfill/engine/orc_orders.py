"""Orders for ORC files: which columns stand encrypted as a whole, and what such a file cannot be given."""

from __future__ import annotations

from collections.abc import Mapping

from sparkcrypt.backfill.drift.dark import describe_dark
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.native.orders import Action, OrcOrder
from sparkcrypt.parquet import FileSummary
from sparkcrypt.plan.orc import cover_columns
from sparkcrypt.schema import Path


def order_orc_file(
    summary: FileSummary,
    target: str,
    keys: Mapping[Path, str | None],
    footer_key: str,
    *,
    identity: FileIdentity,
    drifts: bool,
    rewraps: bool,
    renames: bool,
) -> OrcOrder:
    """Return the order of one ORC file.

    Its local keys are bound to its name, so a file that comes under another name has them wrapped again.

    Args:
        summary: what its end says.
        target: where the new file goes.
        keys: column path -> key id of what is to be encrypted; None stands for the footer key.
        footer_key: of the table's plan.
        identity: of the new file.
        drifts: it differs from the plan.
        rewraps: nothing but what wraps its local keys is to change.
        renames: the new file has another name.
    """
    found = {path: column.key_id for path, column in (summary.columns or {}).items() if column.key_id is not None}
    bound = identity.to_aad_prefix(), summary.aad_prefix
    if not drifts:
        action: Action = "rewrap" if renames and summary.encrypted else "copy"
        return OrcOrder(summary.path, target, action, found, *bound, replace=True)
    wanted = {path: key or footer_key for path, key in keys.items()}
    if rewraps:
        kept = {path: wanted.get(path, key) for path, key in found.items()}
        return OrcOrder(summary.path, target, "rewrap", kept, *bound, replace=True)
    roots = cover_columns(summary.columns or (), wanted)
    return OrcOrder(summary.path, target, "encrypt" if roots else "decrypt", roots, *bound, replace=True)


def refuse_dark_orc(file: str, dark: Mapping[Path, str]) -> None:
    """Refuse a unit's ORC file with columns under shredded keys.

    Raises:
        UnsupportedFileError: it names the columns and their keys.
    """
    if dark:
        raise UnsupportedFileError(
            f"{file}: columns of it are under shredded keys, and in ORC files they can neither be carried along nor "
            f"replaced by nulls: {describe_dark(dark)}; leave such partitions out by --where; nothing was changed"
        )
