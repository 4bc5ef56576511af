"""What a file holds of dark columns, as bytes, to see that a rewrite has left it alone."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sparkcrypt.files.orc import Tail, read_tail
from sparkcrypt.files.orc.file.encryption import VARIANT_KEY, Variant
from sparkcrypt.files.orc.file.stripe import read_stripe_footer
from sparkcrypt.files.orc.file.tail import ENCRYPTION
from sparkcrypt.files.source import open_source
from sparkcrypt.schema import Path as ColumnPath


def parts_of(path: Path, columns: Collection[ColumnPath]) -> list[object]:
    """Return all that a file holds of the variants of some columns, and of their masks, as bytes."""
    tail = read_tail(path)
    assert tail.encryption is not None
    variants = [found for found in tail.encryption.variants if any(covers(found, column) for column in columns)]
    parts: list[object] = []
    for variant in sorted(variants, key=lambda found: found.root.number):
        message = tail.footer.message(ENCRYPTION, "e").messages(3, "v")[variant.number]  # type: ignore[union-attr]
        parts += [variant.key, message.replace_field(VARIANT_KEY, []).encode(), statistics_of(path, tail, variant)]
        parts += [(stripe.id, stripe.local_keys[variant.number]) for stripe in tail.stripes]
    numbers = {number for found in variants for number in range(found.root.number, found.root.last + 1)}
    with open_source(path) as opened:
        for stripe in tail.stripes:
            for stream in read_stripe_footer(opened, tail, stripe).streams:
                if stream.column in numbers:
                    content = opened.read(stream.offset, stream.length, "a stream")
                    parts.append((stripe.number, stream.column, stream.kind, stream.variant is None, content))
    return sorted(parts, key=repr)


def covers(variant: Variant, column: ColumnPath) -> bool:
    """Tell whether a column is in a variant."""
    return column[: len(variant.root.path)] == variant.root.path


def statistics_of(path: Path, tail: Tail, variant: Variant) -> bytes:
    """Return the encrypted stripe statistics of a variant."""
    before = tail.encryption.variants[: variant.number]  # type: ignore[union-attr]
    start = tail.statistics_offset + sum(size for found in before for _, size in found.stripe_statistics)
    return path.read_bytes()[start : start + sum(size for _, size in variant.stripe_statistics)]
