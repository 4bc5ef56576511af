"""Describes how a new ORC file is to be encrypted, and derives its variants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.orc.file.encryption import ALGORITHMS, LocalKey, Variant
from sparkcrypt.files.orc.file.schema import Column
from sparkcrypt.files.parquet.rewrite.encryption import SingleUse
from sparkcrypt.schema import Path, join_dotted

ALGORITHM_NUMBERS = {size: number for number, (_, size) in ALGORITHMS.items()}
"""Bytes of a local key -> the number of its algorithm in footers."""


@dataclass(frozen=True, slots=True)
class OrcKey:
    """A local key of one file and one column.

    Attributes:
        key: 16 or 32 random bytes, made for this file and column.
        wrapped: the wrapped key, from which readers get the key: PKMT1 key material.
        master_key_id: the id of the master key that wrapped it, decoded.
    """

    key: bytes = field(repr=False)
    wrapped: bytes = field(repr=False)
    master_key_id: str


@dataclass(frozen=True, slots=True)
class OrcEncryption:
    """The encryption of one new file, and of no other: its keys are never used twice.

    Attributes:
        columns: column path -> the key of the column and of all columns below it; no column may be below another.
    """

    columns: Mapping[Path, OrcKey]
    _use: SingleUse = field(default_factory=SingleUse, init=False, repr=False, compare=False)

    def take(self) -> None:
        """Claim the keys for the file that is about to be written.

        Raises:
            ConfigError: they were claimed before.
        """
        if not self._use.take():
            raise ConfigError(
                "this OrcEncryption was used for a file before; make a new one, with new local keys, for each file"
            )


@dataclass(frozen=True, slots=True)
class TargetVariant:
    """An encrypted column of the target, with all columns below it; ``algorithm`` is its number in the footer."""

    number: int
    root: Column
    key: LocalKey = field(repr=False)
    wrapped: bytes = field(repr=False)
    master_key_id: str
    algorithm: int


@dataclass(frozen=True, slots=True)
class DarkVariant:
    """A dark column of the target, copied from the source byte for byte, since its key can no longer be opened.

    ``number`` is its number among the target's variants, ``source`` the source's variant.
    """

    number: int
    root: Column
    source: Variant


AnyVariant: TypeAlias = TargetVariant | DarkVariant


def order_variants(live: Iterable[TargetVariant], dark: Iterable[Variant]) -> tuple[AnyVariant, ...]:
    """Return all variants of a target, numbered in the columns' order.

    Raises:
        ConfigError: a column to encrypt is inside a dark one, or contains one.
    """
    found: list[AnyVariant] = [*live, *(DarkVariant(0, variant.root, variant) for variant in dark)]
    found.sort(key=lambda variant: variant.root.number)
    for before, variant in pairwise(found):
        if variant.root.number <= before.root.last:
            raise ConfigError(
                f"{join_dotted(variant.root.path)} is inside {join_dotted(before.root.path)}, and the key of one of "
                "them is gone; ORC cannot nest encrypted columns: leave the other as it is, or purge the dark one"
            )
    return tuple(replace(variant, number=number) for number, variant in enumerate(found))


def choose_variants(encryption: OrcEncryption | None, columns: Sequence[Column]) -> tuple[TargetVariant, ...]:
    """Take the keys of an encryption for a file with these columns; return its variants in the columns' order.

    Raises:
        ConfigError: the keys were taken before; the encryption names no column, one that the file does not have, one
            inside another, or only the keys of a map; or a local key is used twice, or has not 128 or 256 bits.
    """
    if encryption is None:
        return ()
    roots = {column.path: column for column in columns[1:]}
    wanted = encryption.columns
    if not wanted or wanted.keys() - roots.keys():
        unknown = ", ".join(sorted(join_dotted(path) or "the root" for path in wanted.keys() - roots.keys()))
        allowed = ", ".join(map(join_dotted, roots))
        raise ConfigError(f"the encryption names {unknown or 'no column'}; allowed: columns of the file: {allowed}")
    encryption.take()
    variants: list[TargetVariant] = []
    for path in sorted(wanted, key=lambda path: roots[path].number):
        root, key = roots[path], wanted[path]
        if variants and root.number <= variants[-1].root.last:
            raise ConfigError(
                f"{join_dotted(path)} is inside {join_dotted(variants[-1].root.path)}, which is to be encrypted too; "
                "ORC cannot nest encrypted columns: name the one or the other"
            )
        if len(key.key) not in ALGORITHM_NUMBERS:
            raise ConfigError(
                f"{join_dotted(path)} has a local key of {len(key.key) * 8} bits; ORC allows 128 and 256: set "
                "data_key_bits so"
            )
        if columns[root.parent].kind == "map" and root.number == columns[root.parent].children[0]:
            whole = join_dotted(columns[root.parent].path)
            raise ConfigError(
                f"{join_dotted(path)} is the key of a map, which readers without the local key would see as null, and "
                f"maps have no null keys; name {whole}, with its keys and values"
            )
        algorithm = ALGORITHM_NUMBERS[len(key.key)]
        variants.append(
            TargetVariant(len(variants), root, LocalKey(key.key), key.wrapped, key.master_key_id, algorithm)
        )
    if len({variant.key for variant in variants}) != len(variants):
        raise ConfigError("two columns have one local key; each needs its own, since counter mode repeats its stream")
    return tuple(variants)
