"""Orders for ORC files: which columns stand encrypted as a whole, and what becomes of dark ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sparkcrypt.backfill.drift.difference import Drift
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.native.orders import OrcOrder
from sparkcrypt.parquet import FileSummary
from sparkcrypt.plan.orc import cover_columns
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
    """Return the order of one ORC file.

    Its local keys are bound to its name, so a file that comes under another name has them wrapped again.  Beside dark
    columns that stay, new ones are bound to what those are bound to.

    Args:
        summary: what its end says.
        target: where the new file goes.
        keys: column path -> key id of what is to be encrypted; None stands for the footer key.
        footer_key: of the table's plan.
        identity: of the new file.
        drifts: it differs from the plan.
        rewraps: nothing but what wraps its local keys is to change.
        renames: the new file has another name.
        carried: its dark columns that stay, with their keys; none where it moves.
        purged: its dark columns that nulls replace.
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
    """Return what takes an ORC file's dark columns away from what their local keys are bound to; None for nothing.

    Args:
        drift: of the file.
        renames: the new file has another name.
    """
    if renames:
        return "a new name, which is part of what its local keys are bound to,"
    moved = any(difference.kind == "aad_mismatch" for difference in drift)
    return "binding its local keys to this table, its partition and name" if moved else None
