"""Checks that columns reveal or hold no values: masked ones in clear, and those that nulls replaced."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.orc.file.encryption import NULLIFY, Encryption, Variant
from sparkcrypt.files.orc.file.protobuf import decode
from sparkcrypt.files.orc.file.stripe import BLOOM_FILTERS, PRESENT, ROW_INDEX, Stream, StripeFooter, read_stream_whole
from sparkcrypt.files.orc.file.tail import Statistics, Stripe, Tail, tells_nothing
from sparkcrypt.files.source import Input
from sparkcrypt.schema import Path, join_dotted

_LITERALS, _MIN_REPEAT = 128, 3


def check_masked(
    file: Input,
    tail: Tail,
    encryption: Encryption,
    footer: StripeFooter,
    clear: Statistics,
    *,
    will_be_rewritten: bool = False,
) -> Iterator[str]:
    """Check a stripe; yield notes on data that reveal something of masked columns.

    Args:
        file: the open file.
        tail: its tail.
        encryption: the file's encryption.
        footer: the stripe's footer.
        clear: the statistics in clear.
        will_be_rewritten: whether a Bloom filter in clear is a note, not an error, since the rewrite leaves it out.

    Raises:
        VerificationError: a Bloom filter of an encrypted column is in clear, as ORC's Java writer leaves it; or a
            column whose mask is ``nullify`` has values in clear.
        FormatError: a stream does not decompress.
    """
    for stream in footer.streams:
        variant = encryption.variant_of(stream.column)
        if stream.variant is None and variant is not None and stream.kind in BLOOM_FILTERS:
            name = join_dotted(tail.columns[stream.column].path)
            if not will_be_rewritten:
                raise VerificationError(
                    f"stripe {footer.stripe.number} has a Bloom filter of encrypted column {name} in clear, by which "
                    "its values can be probed; rewrite the file, and write without orc.bloom.filter.columns of "
                    "encrypted columns"
                )
            yield f"{name} has a Bloom filter in clear, by which its values can be probed"
    in_clear: dict[int, list[Stream]] = {}
    for stream in footer.streams:
        if stream.variant is None and stream.kind not in BLOOM_FILTERS:
            in_clear.setdefault(stream.column, []).append(stream)
    for variant in encryption.variants:
        mask = encryption.mask_of(variant)
        name = "an unknown mask" if mask is None else mask.name
        if name == NULLIFY:
            _check_null(file, tail, variant, footer.stripe.number, in_clear, clear)
        else:
            yield f"{join_dotted(variant.root.path)} stands in clear masked by {name}, which may tell of its values"


def _check_null(
    file: Input, tail: Tail, variant: Variant, stripe: int, in_clear: Mapping[int, list[Stream]], clear: Statistics
) -> None:
    first, end = variant.root.number, variant.root.last + 1
    statistics = [*clear.file[first:end], *clear.stripes[stripe][first:end]]
    streams = [stream for column in range(first, end) for stream in in_clear.get(column, ())]
    if all(map(tells_nothing, statistics)) and all(_is_null(file, tail, variant, stream) for stream in streams):
        return
    raise VerificationError(
        f"stripe {stripe}: {join_dotted(variant.root.path)} is said to be nullified, and values of it stand in clear; "
        "rewrite the file from its source"
    )


def _is_null(file: Input, tail: Tail, variant: Variant, stream: Stream) -> bool:
    """Return whether a stream reveals nothing of values but that they are null."""
    if stream.kind == ROW_INDEX:
        index = decode(read_stream_whole(file, stream, None, tail.compression), str(stream))
        statistics = [message.data(2) for message in index.messages(1, "an entry")]
        return all(statistic is None or tells_nothing(statistic) for statistic in statistics)
    if stream.kind == PRESENT and stream.column == variant.root.number:
        return all_zero(read_stream_whole(file, stream, None, tail.compression), str(stream))
    return not stream.length


def all_zero(runs: bytes, what: str) -> bool:
    """Return whether byte runs hold only zeros; raises as `count_zeros`."""
    return count_zeros(runs, what) is not None


def count_zeros(runs: bytes, what: str) -> int | None:
    """Return the number of zeros in byte runs; None if they hold any other byte.

    Source: ORC specification v1, "Byte Run Length Encoding".

    Raises:
        FormatError: a run ends early.
    """
    position = count = 0
    while position < len(runs):
        header = runs[position]
        size = 1 if header < _LITERALS else 256 - header
        values = runs[position + 1 : position + 1 + size]
        if len(values) != size:
            raise FormatError(f"{what}: a run of {size} bytes; expected at most the {len(values)} that are left")
        if any(values):
            return None
        count += header + _MIN_REPEAT if header < _LITERALS else size
        position += 1 + size
    return count


_BITS = 8


class NullCheck:
    """A check that columns, as readers with the keys see them, hold no values.

    Args:
        tail: the tail of their file.
        columns: the columns, each with all columns below it.
    """

    def __init__(self, tail: Tail, columns: Collection[Path]) -> None:
        roots = set(columns)
        self._tail = tail
        self._columns = {
            column.number
            for column in (tail.columns if roots else ())
            if any(column.path[:length] in roots for length in range(1, len(column.path) + 1))
        }
        self._nulls: dict[int, int] = {}

    def has(self, column: int) -> bool:
        """Return whether a column must hold only nulls."""
        return column in self._columns

    def check_statistics(self, column: int, statistics: bytes) -> None:
        """Check that statistics of a column, of the file, a stripe or a row group, are those of no values.

        Raises:
            VerificationError: they are not.
        """
        if column in self._columns and not tells_nothing(statistics):
            self._refuse(column, "its statistics tell of values")

    def check_stream(self, stream: Stream, content: bytes) -> None:
        """Check that a stream holds no value.

        Args:
            stream: of any column.
            content: its decrypted bytes; only needed for PRESENT and ROW_INDEX.

        Raises:
            VerificationError: it holds one.
            FormatError: it does not decompress.
        """
        if stream.column not in self._columns:
            return
        inflated = self._tail.compression.inflate(content, str(stream)) if content else b""
        if stream.kind == ROW_INDEX:
            for entry in decode(inflated, str(stream), max_fields=len(inflated) + 1).messages(1, "an entry"):
                self.check_statistics(stream.column, entry.data(2) or b"")
        elif stream.kind == PRESENT:
            zeros = count_zeros(inflated, str(stream))
            if zeros is None:
                self._refuse(stream.column, "a value of it is present")
            self._nulls[stream.column] = _BITS * (zeros or 0)
        elif stream.length:
            self._refuse(stream.column, f"its {stream} is not empty")

    def finish_stripe(self, stripe: Stripe) -> None:
        """Check that each top-level column was null in every row of a stripe.

        Raises:
            VerificationError: one was not.
        """
        nulls, self._nulls = self._nulls, {}
        for column in sorted(self._columns & set(self._tail.columns[0].children)):
            if nulls.get(column, 0) < stripe.rows:
                self._refuse(column, f"stripe {stripe.number} does not say of every row that it is null")

    def _refuse(self, column: int, why: str) -> None:
        name = join_dotted(self._tail.columns[column].path)
        raise VerificationError(
            f"column {name} holds more than nulls ({why}), and was to be replaced by nulls; keep the source"
        )
