"""Writes a file's tail: statistics of variants and in clear, the footer with its encryption, and the postscript."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparkcrypt.errors import WRITE_ORC_ANEW, UnsupportedFileError
from sparkcrypt.files.orc.file.encryption import (
    ENCRYPTION_KEY,
    ENCRYPTION_MASK,
    ENCRYPTION_PROVIDER,
    ENCRYPTION_VARIANTS,
    FILE_STATISTICS_KIND,
    KEY_ALGORITHM,
    KEY_NAME,
    KEY_VERSION,
    MASK_COLUMNS,
    MASK_NAME,
    NULLIFY,
    STREAM_COLUMN,
    STREAM_KIND,
    STREAM_LENGTH,
    STRIPE_STATISTICS_KIND,
    VARIANT_ENCRYPTED_KEY,
    VARIANT_FILE_STATISTICS,
    VARIANT_KEY,
    VARIANT_ROOT,
    VARIANT_STRIPE_STATISTICS,
)
from sparkcrypt.files.orc.file.protobuf import Message, decode, encode_packed, message
from sparkcrypt.files.orc.file.schema import Column, leaves, without_encryption
from sparkcrypt.files.orc.file.tail import (
    CONTENT_LENGTH,
    ENCRYPTION,
    MAGIC,
    PS_FOOTER_LENGTH,
    PS_MAGIC,
    PS_METADATA_LENGTH,
    PS_STATISTICS_LENGTH,
    STATISTICS,
    STRIPES,
    TYPES,
    USER_METADATA,
    Statistics,
    Tail,
    encode_purged_note,
    is_purged_note,
    read_purged_note,
)
from sparkcrypt.files.orc.rewrite.encryption import ALGORITHM_NUMBERS, AnyVariant, DarkVariant, TargetVariant
from sparkcrypt.files.orc.rewrite.mask import empty_statistics
from sparkcrypt.files.orc.rewrite.source import OrcSource
from sparkcrypt.files.output import Output
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.schema import Path

KEY_VERSION_NUMBER = 1
"""A placeholder that readers require: the actual version is in the key material."""
MOST_POSTSCRIPT = 255
_LEAKING_WORDS = ("hoodie", "hudi")
"""Words in the names of user metadata in which other tools store bounds, Bloom filters or keys of rows."""


def write_end(
    source: OrcSource,
    variants: Sequence[AnyVariant],
    source_statistics: Statistics,
    stripes: Sequence[bytes],
    filled: Collection[tuple[int, int]],
    output: Output,
) -> list[str]:
    """Write everything after the stripes; return the names of user metadata that was left out.

    Args:
        source: the file that is rewritten.
        variants: of the target.
        source_statistics: the statistics of all columns as readers with the keys see them.
        stripes: the footer entries of the stripes that were written.
        filled: (stripe, root) of the masks that have a null.
        output: the target, of which only the stripes are written so far.
    """
    tail, content = source.tail, output.position
    described = [
        _keep_variant(source, variant, output)
        if isinstance(variant, DarkVariant)
        else _write_variant(tail, variant, source_statistics, output)
        for variant in variants
    ]
    statistics_length = output.position - content
    shown = _mask_statistics(tail.columns, variants, source_statistics, len(tail.stripes), filled)
    metadata = message(
        "the metadata",
        *((1, message("a stripe", *((1, statistics) for statistics in stripe)).encode()) for stripe in shown.stripes),
    )
    raw = tail.compression.deflate(metadata.encode()) if shown.stripes else b""
    output.write(raw)
    kept, left_out = _user_metadata(tail.footer, redacts=bool(variants))
    if source.purged:
        kept = [item for item in kept if not is_purged_note(item)]
        kept.append(encode_purged_note({**read_purged_note(tail.footer), **_list_purged(source)}))
    footer = tail.footer.replace_field(CONTENT_LENGTH, [content]).replace_field(STRIPES, stripes)
    types = [without_encryption(kind).encode() for kind in footer.messages(TYPES, "a type")]
    footer = footer.replace_field(TYPES, types).replace_field(STATISTICS, shown.file)
    footer = footer.replace_field(USER_METADATA, kept)
    footer = footer.replace_field(ENCRYPTION, [_encryption(variants, described)] if variants else [])
    write_footer(tail, footer, output, metadata_length=len(raw), statistics_length=statistics_length)
    return left_out


def write_footer(tail: Tail, footer: Message, output: Output, *, metadata_length: int, statistics_length: int) -> None:
    """Write a footer and its postscript.

    Raises:
        UnsupportedFileError: the postscript would be too long for its length field of one byte.
    """
    raw = tail.compression.deflate(footer.encode())
    output.write(raw)
    postscript = tail.postscript.replace_field(PS_FOOTER_LENGTH, [len(raw)]).replace_field(PS_MAGIC, [MAGIC])
    postscript = postscript.replace_field(PS_METADATA_LENGTH, [metadata_length])
    postscript = postscript.replace_field(PS_STATISTICS_LENGTH, [statistics_length] if statistics_length else [])
    # old readers expect the magic, whose field has the largest number, in the last bytes
    end = Message(postscript.name, sorted(postscript.fields, key=lambda item: item[0] >> 3)).encode()
    if len(end) > MOST_POSTSCRIPT:
        raise UnsupportedFileError(f"its postscript would take {len(end)} bytes; {WRITE_ORC_ANEW}")
    output.write(end + bytes((len(end),)))


def _write_variant(tail: Tail, variant: TargetVariant, source_statistics: Statistics, output: Output) -> Message:
    """Write a variant's stripe statistics; return its footer entry, without the number of its key."""
    root, last = variant.root.number, variant.root.last
    streams = []
    for column in range(root, last + 1):
        stripes_message = message(
            "statistics of a column", *((1, stripe[column]) for stripe in source_statistics.stripes)
        )
        cipher = variant.key.stream(column, STRIPE_STATISTICS_KIND, tail.footer_id)
        data = cipher.update(tail.compression.deflate(stripes_message.encode()))
        output.write(data)
        streams.append(
            message(
                "a stream", (STREAM_KIND, STRIPE_STATISTICS_KIND), (STREAM_COLUMN, column), (STREAM_LENGTH, len(data))
            )
        )
    of_file = message(
        "file statistics", *((1, stripes_message) for stripes_message in source_statistics.file[root : last + 1])
    )
    cipher = variant.key.stream(root, FILE_STATISTICS_KIND, tail.footer_id)
    return message(
        "a variant",
        (VARIANT_ROOT, root),
        (VARIANT_KEY, 0),
        (VARIANT_ENCRYPTED_KEY, variant.wrapped),
        *((VARIANT_STRIPE_STATISTICS, stream.encode()) for stream in streams),
        (VARIANT_FILE_STATISTICS, cipher.update(tail.compression.deflate(of_file.encode()))),
    )


def _keep_variant(source: OrcSource, variant: DarkVariant, output: Output) -> Message:
    """Write a dark variant's encrypted statistics unchanged; return its entry in the source's footer."""
    output.write(source.dark_statistics(variant.source))
    encryption = source.tail.footer.message(ENCRYPTION, "the encryption") or Message("the encryption")
    return encryption.messages(ENCRYPTION_VARIANTS, "a variant")[variant.source.number]


def _list_purged(source: OrcSource) -> dict[Path, str]:
    """Return the leaf columns that nulls replace -> the ids of the master keys that they were under."""
    return {
        column.path: variant.key.key_id
        for variant in source.purged
        for column in leaves(source.tail.columns)
        if variant.covers(column.number)
    }


def _name_key(variant: AnyVariant) -> tuple[str, int, int]:
    """Return a variant's master key as named in the footer, its version, and the algorithm of local keys under it."""
    if isinstance(variant, DarkVariant):
        key = variant.source.key
        return key.name, key.version, ALGORITHM_NUMBERS[key.key_bytes]
    return encode_key_id(variant.master_key_id), KEY_VERSION_NUMBER, variant.algorithm


def _encryption(variants: Sequence[AnyVariant], described: Sequence[Message]) -> bytes:
    mask = message(
        "a mask", (MASK_NAME, NULLIFY.encode()), (MASK_COLUMNS, encode_packed(item.root.number for item in variants))
    )
    names = [_name_key(variant) for variant in variants]
    keys = sorted(set(names))
    return message(
        "the encryption",
        (ENCRYPTION_MASK, mask.encode()),
        *((ENCRYPTION_KEY, describe_key(*key)) for key in keys),
        *(
            (ENCRYPTION_VARIANTS, described_variant.replace_field(VARIANT_KEY, [keys.index(name)]).encode())
            for name, described_variant in zip(names, described, strict=True)
        ),
        (ENCRYPTION_PROVIDER, 0),
    ).encode()


def describe_key(name: str, version: int, algorithm: int) -> bytes:
    """Return a footer's entry of a master key.

    Args:
        name: as it is stored in files.
        version: of the key.
        algorithm: the number of the algorithm of local keys under it.
    """
    return message("a key", (KEY_NAME, name.encode()), (KEY_VERSION, version), (KEY_ALGORITHM, algorithm)).encode()


def _mask_statistics(
    columns: Sequence[Column],
    variants: Sequence[AnyVariant],
    source_statistics: Statistics,
    stripes: int,
    filled: Collection[tuple[int, int]],
) -> Statistics:
    """Return the statistics in clear: those of nulls for encrypted columns, the source's for dark ones."""
    of_file, of_stripes = list(source_statistics.file), [list(stripe) for stripe in source_statistics.stripes]
    for variant in variants:
        if isinstance(variant, DarkVariant):
            continue
        root = variant.root.number
        for column in columns[root : variant.root.last + 1]:
            nulls = [column is variant.root and (stripe, root) in filled for stripe in range(stripes)]
            of_file[column.number] = empty_statistics(column, has_null=any(nulls))
            for stripe, has_null in enumerate(nulls):
                of_stripes[stripe][column.number] = empty_statistics(column, has_null=has_null)
    return Statistics(tuple(of_file), tuple(map(tuple, of_stripes)))


def _user_metadata(footer: Message, *, redacts: bool) -> tuple[list[bytes], list[str]]:
    """Return the user metadata to keep, and the names of what is left out."""
    kept, left_out = [], []
    for item in footer.read_repeated(USER_METADATA):
        name = decode(item, "user metadata").text(1) or ""
        if redacts and any(word in name.lower() for word in _LEAKING_WORDS):
            left_out.append(name)
        else:
            kept.append(item)
    return kept, left_out
