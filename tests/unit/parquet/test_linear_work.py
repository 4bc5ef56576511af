"""The cost of a file grows as its columns, row groups, pages and keys do, not as their square: counted, not timed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.files.footers import pack, read_facts
from sparkcrypt.files.output import Output
from sparkcrypt.files.parquet import (
    FileEncryption,
    KnownColumns,
    NewKeys,
    rewrap_file,
    rewrite_file,
    verify_file,
)
from sparkcrypt.files.parquet.file.modules import ModuleCipher
from sparkcrypt.files.parquet.rewrite.encryption import ColumnKey
from sparkcrypt.files.proof import RewrapProof
from sparkcrypt.files.source import Input
from tests.growth import Metered, Work, assert_linear
from tests.unit.parquet.rewriting import new_key
from tests.unit.parquet.writers import Keys

Make: TypeAlias = Callable[[Path, int], FileEncryption]
KINDS = ("lines", "calls", "bytes")


def _moves(owner: type, name: str, of: int) -> Metered:
    """Return what counts the bytes that a method moves, of which an argument is the bytes or their number."""
    return Metered(owner, name, "bytes", lambda args, _: args[of] if isinstance(args[of], int) else len(args[of]))


MOVES = (
    _moves(Input, "read", 2),
    _moves(Input, "read_into", 2),
    _moves(Output, "write", 1),
    _moves(Output, "advance", 1),
    _moves(ModuleCipher, "decrypt", 1),
)


def _columns(file: Path, number: int) -> FileEncryption:
    return _wide(file, number, ["pii"] * number)


def _key_ids(file: Path, number: int) -> FileEncryption:
    return _wide(file, number, [f"key-{place}" for place in range(number)])


def _wide(file: Path, number: int, keys: list[str]) -> FileEncryption:
    pq.write_table(pa.table({f"c{place:05}": [place] for place in range(number)}), file, write_page_index=True)
    own: dict[tuple[str, ...], ColumnKey] = {(f"c{place:05}",): new_key(key) for place, key in enumerate(keys)}
    return FileEncryption(new_key("footer", footer=True), columns=own)


def _row_groups(file: Path, number: int) -> FileEncryption:
    pq.write_table(pa.table({"n": range(number)}), file, row_group_size=1, write_page_index=True)
    return FileEncryption(new_key("footer", footer=True), columns={("n",): new_key("pii")})


def _pages(file: Path, number: int) -> FileEncryption:
    small = {"data_page_size": 1, "write_batch_size": 1, "use_dictionary": False}
    pq.write_table(pa.table({"n": range(number)}), file, write_page_index=True, **small)
    return FileEncryption(new_key("footer", footer=True), columns={("n",): new_key("pii")})


SIZES: dict[str, tuple[Make, int]] = {
    "columns": (_columns, 400),
    "row groups": (_row_groups, 200),
    "pages": (_pages, 500),
    "key ids": (_key_ids, 400),
}
"""What there may be many of -> what makes a file of so many, and how many: so many that the rest costs little, and that
a loop of one line over all of them, for each of them, costs more than all that is done for each."""
OF_PAGES = ("encrypted", "decrypted", "verified", "compared")
OF_FOOTERS = ("scanned", "rewrapped")
OF_KEYS = ("encrypted", "verified", "scanned")


def _prepare(work: str, folder: Path, make: Make, number: int) -> Work:
    """Make a file, and return the work on it, which has not begun."""
    folder = folder / str(number)
    folder.mkdir()
    plain, sealed, target = (folder / name for name in ("plain", "sealed", "target"))
    encryption, keys = make(plain, number), Keys()
    if work == "encrypted":
        return lambda: rewrite_file(plain, target, encryption=encryption)
    rewrite_file(plain, sealed, encryption=encryption)
    if work == "decrypted":
        return lambda: rewrite_file(sealed, target, retrieve_key=keys)
    if work == "verified":
        return lambda: verify_file(sealed, retrieve_key=keys, digest_key=bytes(32))
    if work == "compared":
        before = verify_file(plain, digest_key=bytes(32)).digests
        return lambda: verify_file(sealed, retrieve_key=keys, digest_key=bytes(32), equal_to=before)
    if work == "scanned":
        return lambda: pack({"": read_facts("", sealed, keys, depth="keys")})
    new_keys = NewKeys(lambda request, _: request.key_metadata or b"")
    known = KnownColumns(check=lambda _: None)

    def rewrap() -> None:
        rewrap_file(sealed, target, retrieve_key=keys, new_keys=new_keys, known=known)
        RewrapProof(sealed, keys).compare("target", target, keys)

    return rewrap


def _cells() -> Collection[Any]:
    works = {"pages": OF_PAGES, "key ids": OF_KEYS}
    pairs = [(work, many) for many in SIZES for work in works.get(many, (*OF_PAGES, *OF_FOOTERS))]
    return [pytest.param(work, many, id=f"{work}-{many}") for work, many in pairs]


@pytest.mark.parametrize(("work", "many"), _cells())
def test_cost_is_linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, many: str) -> None:
    """Twice as many columns, row groups, pages or keys cost twice as much."""
    monkeypatch.setattr("sparkcrypt.files.parquet.file.footer.TAIL_BYTES", 64)  # else most of what is read of a file
    monkeypatch.setattr("sparkcrypt.files.output.COPY_BYTES", 1 << 30)  # the kernel copies nothing past the counter
    make, size = SIZES[many]
    assert_linear(lambda number: _prepare(work, tmp_path, make, number), size, KINDS, MOVES)


def _loops(number: int, calls: int) -> int:
    return sum(1 for _ in range(number) for _ in range(calls))


def _reads(path: Path, number: int, times: int) -> None:
    with path.open("rb") as opened:
        file = Input(opened, path.name, number)
        for _ in range(times):
            file.read(0, number, "all of it")


@pytest.mark.parametrize("kind", KINDS)
def test_counter_catches_a_planted_square(tmp_path: Path, kind: str) -> None:
    """Work that does for each of n something with all n fails, whatever it is that it does n times n times."""
    (tmp_path / "file").write_bytes(bytes(1000))

    def planted(number: int, *, square: bool) -> Work:
        times = number if square else 10
        if kind == "lines":
            return lambda: _loops(number, times)
        if kind == "calls":
            return lambda: [abs(place) for _ in range(number) for place in range(times)]
        return lambda: _reads(tmp_path / "file", number, times)

    assert_linear(lambda number: planted(number, square=False), 100, (kind,), MOVES)
    with pytest.raises(AssertionError, match=rf"{kind}: .*, so they grow by [34]"):
        assert_linear(lambda number: planted(number, square=True), 100, (kind,), MOVES)
