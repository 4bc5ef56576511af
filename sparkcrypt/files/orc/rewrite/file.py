"""Rewrites an ORC file under another encryption, or none, in one pass that decodes no value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from sparkcrypt.errors import WRITE_ORC_ANEW, UnsupportedFileError
from sparkcrypt.files.orc.file.cipher import LocalKeys
from sparkcrypt.files.orc.file.schema import leaves
from sparkcrypt.files.orc.file.tail import MAGIC, STRIPES, Tail, tail_of
from sparkcrypt.files.orc.rewrite.encryption import AnyVariant, OrcEncryption, choose_variants, order_variants
from sparkcrypt.files.orc.rewrite.end import write_end
from sparkcrypt.files.orc.rewrite.result import OrcRewriteResult
from sparkcrypt.files.orc.rewrite.source import OrcSource, check_supported
from sparkcrypt.files.orc.rewrite.stripe import StripeWriter
from sparkcrypt.files.orc.summary import OrcSummary, summarise_orc
from sparkcrypt.files.output import Output, Target, open_target
from sparkcrypt.files.parquet.file.keys import RetrieveKey
from sparkcrypt.files.source import Source, naming, open_source
from sparkcrypt.schema import Path, join_dotted

Encryption: TypeAlias = OrcEncryption | Callable[[OrcSummary], OrcEncryption | None] | None
"""The encryption of the target, None for plaintext; a callable is called with the summary of the source's tail."""


def rewrite_orc(
    source: Source,
    target: Target,
    *,
    retrieve_key: RetrieveKey | None = None,
    encryption: Encryption = None,
    dark: Collection[Path] = (),
    purge: Collection[Path] = (),
) -> OrcRewriteResult:
    """Write the source's streams to the target under another encryption, or none.

    Streams keep their encoding, compression and order in a column; statistics, row indexes and user metadata stay
    unchanged.  Streams, statistics and row indexes of an encrypted column are written to its variant, and readers
    without the key see nulls.  Only one piece of a stream, the positions of row groups, and the file's tail are held in
    memory.

    Args:
        source: as `read_tail`.
        target: a path or a (pyarrow filesystem, path) that does not exist yet; the file appears there whole or not at
            all.
        retrieve_key: called once for each local key of an encrypted source.
        encryption: of the target; None writes plaintext.
        dark: leaf columns whose keys can no longer be opened: all their data stay unchanged, under the same wrapped
            local keys.
        purge: leaf columns whose keys can no longer be opened: their variants are left out, and every reader sees the
            nulls that are in clear, which are encrypted if ``encryption`` names the columns.

    Raises:
        FormatError: the source violates the specification.
        UnsupportedFileError: it cannot be rewritten without decoding: see the message.
        ConfigError: the target already exists, a key is missing, or the encryption names an unknown column, or one that
            is inside a dark column or contains one.
        VerificationError: a column of ``dark`` or ``purge`` is not encrypted.
    """
    with ExitStack() as stack:
        file = stack.enter_context(open_source(source))
        with naming(file.name):
            tail = tail_of(file)
        chosen = encryption(summarise_orc(tail)) if callable(encryption) else encryption
        stack.enter_context(naming(file.name))
        keys = None if retrieve_key is None else LocalKeys(file.name, retrieve_key)
        opened = OrcSource(file, tail, keys, dark, purge)
        check_supported(opened, encrypts=chosen is not None or bool(dark))
        variants = order_variants(choose_variants(chosen, tail.columns), opened.dark)
        output = stack.enter_context(open_target(target, file.access))
        notes, left_out = _write(opened, variants, output)
        encrypted = {column.number: False for column in leaves(tail.columns)}
        for variant in variants:
            encrypted |= dict.fromkeys(encrypted.keys() & range(variant.root.number, variant.root.last + 1), True)
        columns = {tail.columns[number].path: state for number, state in encrypted.items()}
        return OrcRewriteResult.of(file, target, tail, output, columns, notes, left_out)


def _write(source: OrcSource, variants: Sequence[AnyVariant], output: Output) -> tuple[list[str], list[str]]:
    """Write the whole target; return notes on what it lost, and the names of user metadata that was left out."""
    tail, statistics = source.tail, source.statistics()
    if variants and (not statistics.file or len(statistics.stripes) != len(tail.stripes)):
        raise UnsupportedFileError(
            f"has no statistics of its columns, which encrypted columns must have; {WRITE_ORC_ANEW}"
        )
    output.write(MAGIC)
    writer = StripeWriter(source, variants, statistics.stripes, output)
    entries = _entries(tail, writer)
    left_out = write_end(source, variants, statistics, entries, writer.masked.filled, output)
    notes = [
        f"the Bloom filter of {join_dotted(path)} was left out: ORC writers leave it in clear, where values of an "
        "encrypted column can be probed"
        for path in writer.masked.dropped
    ]
    notes += [f"user metadata {name!r} may tell of encrypted columns, and was left out" for name in left_out]
    return notes, left_out


def _entries(tail: Tail, writer: StripeWriter) -> list[bytes]:
    described = tail.footer.messages(STRIPES, "a stripe's entry")
    return [writer.write(stripe, entry).encode() for stripe, entry in zip(tail.stripes, described, strict=True)]
