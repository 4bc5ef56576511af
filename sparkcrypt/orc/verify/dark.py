"""Digests the part of a file's tail that belongs to a dark column: a variant whose keys can no longer be opened."""

from __future__ import annotations

from sparkcrypt.orc.file.encryption import Variant
from sparkcrypt.orc.file.tail import Tail
from sparkcrypt.orc.verify.content import ContentDigest
from sparkcrypt.parquet.file.source import Input


def digest_dark_variant(file: Input, tail: Tail, variant: Variant, start: int, digest: ContentDigest) -> None:
    """Digest a variant's wrapped keys, the numbers in the IVs of its streams, its mask and its encrypted statistics.

    If they and the streams are equal in two files, a reader with the key would see the same values in both.

    Args:
        file: the open file.
        tail: its tail.
        variant: one of its variants.
        start: the offset of its stripe statistics.
        digest: everything is added to its part ``unopened``.

    Raises:
        FormatError, StorageError: as `Input.read`.
    """
    key, root = variant.key, variant.root.number
    digest.add("unopened", root, key.name, key.version, key.algorithm, variant.encrypted_key, tail.footer_id)
    mask = None if tail.encryption is None else tail.encryption.mask_of(variant)
    digest.add("unopened", *(() if mask is None else (mask.name, *mask.parameters)))
    for stripe in tail.stripes:
        digest.add("unopened", stripe.id, stripe.local_keys[variant.number])
    digest.add("unopened", variant.file_statistics or b"")
    for column, length in variant.stripe_statistics:
        digest.add("unopened", column, file.read(start, length, f"stripe statistics of column {column}"))
        start += length
