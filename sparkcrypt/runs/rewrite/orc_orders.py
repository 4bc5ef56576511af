"""Orders to rewrite ORC files: the columns to encrypt, and the dark columns to keep or to purge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.files.orders import OrcOrder
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.plan.orc import cover_columns
from sparkcrypt.runs.table.difference import Drift
from sparkcrypt.schema import Path

_NONE: Mapping[Path, str] = MappingProxyType({})


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
    carried: Mapping[Path, str] = _NONE,
    purged: Mapping[Path, str] = _NONE,
) -> OrcOrder:
    """Return the order to rewrite one ORC file.

    Its local keys are bound to its name, so they are rewrapped if the new file has another name.  If dark columns stay,
    all columns are bound to the identity to which these are bound.

    Args:
        summary: the file's footer.
        target: the path of the new file.
        keys: column path -> key id, for columns to be encrypted; None stands for the footer key.
        footer_key: the footer key of the table's plan.
        identity: the identity of the new file.
        drifts: whether the file differs from the plan.
        rewraps: whether only the wrapping of its local keys changes.
        renames: whether the new file has another name.
        carried: its dark columns that stay, with their keys; empty if the identity changes.
        purged: its dark columns that are replaced by nulls.
    """
    found = {
        path: column.key_id
        for path, column in (summary.columns or {}).items()
        if column.key_id is not None and path not in carried
    }
    bound = (summary.aad_prefix or b"") if carried else identity.to_aad_prefix()
    order = OrcOrder(summary.path, target, "copy", found, bound, summary.aad_prefix, True, carried, purged)
    if not drifts:
        return replace(order, action="rewrap") if renames and summary.encrypted else order
    wanted = {path: key or footer_key for path, key in keys.items() if path not in carried}
    if rewraps:
        return replace(order, action="rewrap", columns={path: wanted.get(path, key) for path, key in found.items()})
    roots = cover_columns(summary.columns or (), wanted)
    return replace(order, action="encrypt" if roots else "decrypt", columns=roots)


def find_move(drift: Iterable[Drift], *, renames: bool) -> str | None:
    """Return which change to an ORC file would break the binding of its dark columns, for messages; None if none.

    Args:
        drift: the differences of the file.
        renames: whether the new file has another name.
    """
    if renames:
        return "a new name, which is part of what its local keys are bound to,"
    moved = any(difference.kind == "aad_mismatch" for difference in drift)
    return "binding its local keys to this table, its partition and name" if moved else None
