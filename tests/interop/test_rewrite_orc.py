"""ORC's own Java reader reads what the native rewrite made, with and without keys, whole and by row groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.orc
import pytest

from sparkcrypt.files.orc import inspect_orc, read_tail, rewrap_orc, rewrite_orc
from sparkcrypt.files.orc.file.encryption import Variant
from sparkcrypt.files.parquet import KeyRequest
from tests.unit.orc.corpus import CODECS, file
from tests.unit.orc.java_orc import JavaOrc, key_lines
from tests.unit.orc.rewriting import OrcKeys

pytestmark = pytest.mark.slow  # each reads with a Java process of its own
SOURCES = [*(f"java_{codec}" for codec in CODECS), "java_types", "arrow_zstd"]
WHOLE = {"java_types": ["name", "dec", "tz", "st", "li", "kv", "un", "b", "f", "bin", "ch", "day"]}
BELOW = ["name", "st.y", "li._elem"]
WANTED = {"arrow_zstd": 650}
"""A value of ``id`` in a later row group, by which the reader seeks in all other columns."""


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOrc]:
    """The reader, compiled."""
    with JavaOrc(tmp_path_factory.mktemp("java")) as program:
        yield program


def write_keys(path: Path, keys: OrcKeys) -> Path:
    """Write a file from which the reader takes keys."""
    path.write_text(key_lines(("pii", wrapped, key) for wrapped, key in keys.made.items()))
    return path


@pytest.mark.parametrize("below", [False, True], ids=["whole columns", "columns below others"])
@pytest.mark.parametrize("name", SOURCES)
def test_java_reads_what_was_encrypted(tmp_path: Path, java: JavaOrc, name: str, below: bool) -> None:
    """With keys values, nulls and statistics are the source's; without, encrypted columns are null and others equal."""
    columns = BELOW if below else WHOLE.get(name, ["name", "st", "li"])
    keys, target = OrcKeys(), tmp_path / "e"
    rewrite_orc(file(name), target, encryption=keys.encryption(columns))
    source, opened = java.read([file(name)], None)[0], java.read([target], write_keys(tmp_path / "k", keys))[0]
    assert opened == source
    masked, rows = java.read([target], None)[0], pyarrow.orc.ORCFile(file(name)).nrows
    for column, found in masked.items():
        if column in columns:
            assert found.nulls == rows
        elif column in {path.split(".")[0] for path in columns}:
            assert (found.nulls, found.digest != source[column].digest) == (source[column].nulls, True)
        else:
            assert found == source[column]


@pytest.mark.parametrize("name", SOURCES)
def test_java_seeks_in_what_was_encrypted(tmp_path: Path, java: JavaOrc, name: str) -> None:
    """A reader that skips row groups finds the same row with keys; without them it finds it, masked."""
    keys, target, wanted = OrcKeys(), tmp_path / "e", WANTED.get(name, 1234)
    rewrite_orc(file(name), target, encryption=keys.encryption(BELOW))
    held = write_keys(tmp_path / "k", keys)
    (source,), (opened,), (masked,) = (
        java.run([f"find\t{path}\t{known}\tid\t{wanted}"])
        for path, known in ((file(name), "-"), (target, held), (target, "-"))
    )
    assert opened == source
    _, seen, found = masked.split("\t")
    assert seen == source.split("\t")[1] and int(seen) < pyarrow.orc.ORCFile(file(name)).nrows
    assert found.startswith(f"{wanted} ") and "null" in found


@pytest.mark.parametrize("name", ["java_types", "java_zlib"])
def test_java_reads_files_with_dark_and_with_purged_columns(tmp_path: Path, java: JavaOrc, name: str) -> None:
    """Whoever kept the keys of columns that stay sees their values; nulls that replace them need no key."""
    source, keys = file(f"{name}_encrypted"), OrcKeys()
    dark = [path for path, column in inspect_orc(source).columns.items() if column.key_id == "fin"]
    rewrite_orc(source, tmp_path / "d", retrieve_key=keys, encryption=keys.encryption(["id"]), dark=dark)
    rewrite_orc(source, tmp_path / "p", retrieve_key=keys, purge=dark)
    for wrapped in {key for found in (source, tmp_path / "d") for key in read_tail(found).wrapped_keys()}:
        keys.made[wrapped] = keys(KeyRequest("f", None, wrapped))
    kept = tmp_path / "k"
    names = {key: found.key.name for path in (source, tmp_path / "d") for found, key in variants_of(path)}
    kept.write_text(key_lines((names[wrapped], wrapped, key) for wrapped, key in keys.made.items()))
    before, opened = java.read([source, tmp_path / "d"], kept)
    assert {column: found.digest for column, found in opened.items()} == {
        column: found.digest for column, found in before.items()
    }
    masked, purged = java.read_each([(source, None), (tmp_path / "p", None)])
    for column in {path[0] for path in dark}:
        assert purged[column] == masked[column]
    assert purged["dec"].nulls == purged["id"].nulls + pyarrow.orc.ORCFile(source).nrows


def variants_of(path: Path) -> list[tuple[Variant, bytes]]:
    """Return each variant of a file with each of its wrapped keys."""
    tail = read_tail(path)
    return [
        (found, key) for found in (tail.encryption.variants if tail.encryption else ()) for key in tail.keys_of(found)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_java_reads_what_was_decrypted_or_wrapped_again(tmp_path: Path, java: JavaOrc, codec: str) -> None:
    """Its own encrypted files, in plaintext and under other wrappings."""
    keys, source = OrcKeys(), file(f"java_{codec}")
    rewrite_orc(file(f"java_{codec}_encrypted"), tmp_path / "p", retrieve_key=keys)

    def wrap(_: KeyRequest, key: bytes) -> tuple[bytes, str]:
        wrapped = f"again {len(keys.made)}".encode()
        keys.made[wrapped] = key
        return wrapped, "pii"

    rewrap_orc(file(f"java_{codec}_encrypted"), tmp_path / "r", retrieve_key=keys, wrap_key=wrap)
    held = write_keys(tmp_path / "k", keys)
    plain, decrypted, opened = java.read([source, tmp_path / "p", tmp_path / "r"], held)
    for column, found in plain.items():
        assert (decrypted[column].digest, opened[column].digest) == (found.digest, found.digest), column
