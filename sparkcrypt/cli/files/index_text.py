"""Formats the results of `sparkcrypt index` as text and as JSON values."""

from __future__ import annotations

from typing import Any

from sparkcrypt.skipping.format.naming import BLOOM, MINMAX, VALUES
from sparkcrypt.skipping.indexes.build import Built
from sparkcrypt.skipping.indexes.compare import Comparison, Freshness
from sparkcrypt.text import count_of

_SHOWN = 20

COMPARED = {
    "altered": "with another footer than was indexed",
    "changed": "of another length than was indexed",
    "new": "not indexed yet",
    "gone": "indexed, and gone since",
}


def describe_comparison(store: str, generation: int, found: Comparison) -> str:
    """Return the comparison of files with a store as text."""
    lines = [f"{store}: generation {generation}, {count_of(found.same, 'file')} as indexed"]
    for kind, what in COMPARED.items():
        names = getattr(found, kind)
        if names:
            lines.append(f"  {count_of(len(names), 'file')} {what}:")
            lines += [f"    {name}" for name in names[:_SHOWN]]
            if len(names) > _SHOWN:
                lines.append(f"    and {len(names) - _SHOWN:,} more; --json lists all")
    return "\n".join(lines)


def describe_freshness(found: Freshness | None) -> str:
    """Return the freshness of a store as text."""
    if found is None:
        return "freshness unknown: there is no sidecar, or its key is denied; queries do not use this store then"
    counts = f"{count_of(found.indexed, 'file')} as indexed"
    if not found.is_fresh:
        counts += f", {found.changed:,} changed, {found.new:,} new, {found.gone:,} gone; `index refresh` follows them"
    return f"generation {found.generation}, written {found.written_at}; {counts}"


_UNKNOWN = {
    MINMAX: ("unknown", "bounds"),
    VALUES: ("unknown_values", "values"),
    BLOOM: ("unknown_filters", "Bloom filter"),
}
"""Kind of index -> the JSON field with its unknown entries, and its name in text."""


def document_built(named: dict[str, Any], store: str, built: Built) -> dict[str, Any]:
    """Return the result of writing a store as JSON values; ``named`` has the table or path as it was given."""
    return {
        **named,
        "store": store,
        "generation": built.sidecar.generation,
        "table_uuid": built.sidecar.table_uuid,
        "objects": len(built.sidecar.objects),
        "read": built.read,
        "written": built.written,
        "left_out": list(built.left_out),
        **{
            key: {column: dict(reasons) for (column, of), reasons in built.unknown.items() if of == kind}
            for kind, (key, _) in _UNKNOWN.items()
        },
    }


def describe_built(store: str, built: Built) -> str:
    """Return the result of writing a store as text."""
    objects = len(built.sidecar.objects)
    state = f"{count_of(built.read, 'file')} read" if built.written else "nothing has changed"
    lines = [f"{store}: generation {built.sidecar.generation}, {count_of(objects, 'object')}, {state}"]
    if built.left_out:
        lines.append(f"  left out, since they were changed a moment ago: {count_of(len(built.left_out), 'file')}")
    for (column, kind), reasons in built.unknown.items():
        what = f"  {column}: {_UNKNOWN[kind][1]} unknown of"
        lines += [f"{what} {count_of(number, 'file')}: {why}" for why, number in reasons.items()]
    return "\n".join(lines)
