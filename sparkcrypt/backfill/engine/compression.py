"""The choice of the compression of a unit's new files, from that of the old ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkcrypt.parquet.codecs import NAMES

SPARK_WRITES = frozenset(NAMES) - {"lzo", "brotli"}
"""All codecs but two, whose libraries Spark does not include."""


@dataclass(frozen=True, slots=True)
class CodecChoice:
    """The codec for a unit's new files (None: the engine chooses), and a note for the report."""

    codec: str | None
    note: str | None = None


def choose_codec(codecs: Iterable[Mapping[str, int]]) -> CodecChoice:
    """Choose the codec that most column chunks of a unit's files have.

    Args:
        codecs: codec -> number of column chunks, for each file.
    """
    counts: Counter[str] = Counter()
    for file_codecs in codecs:
        counts.update(file_codecs)
    if not counts:
        return CodecChoice(None, "compression: the old files do not show theirs, so Spark chose that of the new ones")
    codec = min(counts, key=lambda name: (-counts[name], name))
    if codec not in SPARK_WRITES:
        return CodecChoice(None, f"compression: Spark cannot write {codec}, so it chose that of the new files")
    if len(counts) == 1:
        return CodecChoice(codec)
    parts = ", ".join(f"{name} ({counts[name]})" for name in sorted(counts, key=lambda name: (-counts[name], name)))
    return CodecChoice(codec, f"compression: column chunks of the old files have {parts}; all new ones have {codec}")
