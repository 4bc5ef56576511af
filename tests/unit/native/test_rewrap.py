"""Data keys rewrapped by an order: no page is decrypted, and what is not the source but for its keys does not pass."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.files import proof
from sparkcrypt.files import rewrite as work
from sparkcrypt.files.orders import Action, FileOrder
from sparkcrypt.files.output import open_target
from sparkcrypt.files.parquet import Footer, KeyRequest, read_footer, rewrap_file, rewrite_file, verify_file
from sparkcrypt.files.parquet.file.footer import known_aad
from sparkcrypt.files.parquet.file.modules import ModuleCipher
from sparkcrypt.files.parquet.rewrite.footer_writer import FooterSeal, crypto_metadata, write_footer
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk
from tests.unit.native.orders import GCM, failed, rewrite
from tests.unit.parquet.material_beside import put_beside

from .conftest import TABLE, Bench


def encrypted(bench: Bench, name: str = "out.parquet", **columns: str | None) -> FileOrder:
    """Encrypt the source, and return the order to rewrap it under another master key."""
    made = bench.order(name, **columns)
    assert rewrite(bench, made).error is None
    assert made.encryption is not None
    asked = replace(made.encryption, columns=dict.fromkeys(made.encryption.columns, "other"))
    return FileOrder(made.target, f"{made.target}.new", "rewrap", asked, f"-/{name}".encode() + b"\0", GCM)


def retrieve(bench: Bench) -> Any:
    """Return what opens data keys."""
    return work._worker(bench.keys.to_json()).retrieve


def test_pages_stay_as_they_are_and_undecrypted(bench: Bench) -> None:
    """A damaged page does not keep keys from being rewrapped, and stays one that no reader takes."""
    order = encrypted(bench, id="pii", ssn="pii")
    content = bytearray(Path(order.source).read_bytes())
    end = read_footer(order.source, retrieve_key=retrieve(bench)).offset
    content[60] ^= 1
    Path(order.source).write_bytes(content)
    done = rewrite(bench, order)
    assert (done.error, done.refused, done.rows) == (None, None, 3)
    assert done.unauthenticated == ("pages: only the footer and one module of each key were opened",)
    assert Path(order.target).read_bytes()[:end] == bytes(content)[:end]
    with pytest.raises(VerificationError):
        verify_file(order.target, retrieve_key=retrieve(bench))


def test_rewrapped_file_is_under_the_other_key_alone(bench: Bench) -> None:
    """The master key that wrapped before is not needed any more, and the rows are those of the source."""
    order = encrypted(bench)
    assert rewrite(bench, order).error is None
    bench.service.delete_key("pii")
    work._worker.cache_clear()
    assert verify_file(order.target, retrieve_key=retrieve(bench)).authenticated == "all"
    plain = rewrite(bench, FileOrder(order.target, str(bench.folder / "plain"), "decrypt", None, None, GCM))
    assert pq.ParquetFile(plain.target).read().equals(TABLE)


@pytest.mark.parametrize("wrong", ["a byte of the data", "another file", "more metadata", "cut", "another key"])
def test_what_is_not_the_source_does_not_pass(bench: Bench, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Whatever the rewriter might do wrong, the proof by other code finds it, and leaves no target."""
    order = encrypted(bench)
    assert order.encryption is not None
    pq.write_table(TABLE.set_column(0, "id", pa.array([1, 2, 4])), bench.folder / "source.parquet")
    other = encrypted(bench, "other.parquet")

    def changed(source: Any, target: Any, **named: Any) -> Any:
        if wrong == "another file":
            return rewrap_file(other.source, target, **{**named, "aad_prefix": None})
        if wrong == "more metadata":
            more = replace(named["new_keys"], key_values={**named["new_keys"].key_values, "who": "else"})
            return rewrap_file(source, target, **{**named, "new_keys": more})
        if wrong == "another key":
            maker = work._worker(bench.keys.to_json()).maker
            wrap = lambda request, key: maker.wrap(key, "pii", is_footer_key=request.column is None)  # noqa: E731
            return rewrap_file(source, target, **{**named, "new_keys": replace(named["new_keys"], wrap=wrap)})
        result = rewrap_file(source, target, **named)
        content = bytearray(Path(target).read_bytes())
        if wrong == "cut":
            del content[8:12]
        else:
            content[60] ^= 1
        Path(target).write_bytes(content)
        return result

    monkeypatch.setattr(work, "rewrap_file", changed)
    kind, message = failed(rewrite(bench, order))
    assert kind == "VerificationError"
    assert order.target in message


def test_keys_of_another_file_are_not_wrapped(bench: Bench) -> None:
    """Under the identity that a file was listed with, no file of another identity is rewrapped, nor one relabelled."""
    order, other = encrypted(bench), encrypted(bench, "other.parquet")
    Path(order.source).write_bytes(Path(other.source).read_bytes())
    assert "someone replaced the file" in failed(rewrite(bench, order))[1]
    assert "its algorithm is AES_GCM_V1" in failed(rewrite(bench, replace(other, source_algorithm="AES_GCM_CTR_V1")))[1]


def test_material_of_another_column_is_not_wrapped(bench: Bench) -> None:
    """Who may write files could put key material there that he may not open; the module that it is for tells."""
    order = encrypted(bench)
    stolen = encrypted(bench, "other.parquet")

    def swapped(_source: Any) -> Any:
        encryption = work._worker(bench.keys.to_json()).encryption(bench.order().encryption, _source)  # type: ignore[arg-type]
        theirs = read_footer(stolen.source, retrieve_key=retrieve(bench)).columns or ()
        (material,) = [column.key_metadata for column in theirs if column.own_key]
        own = encryption.columns[("ssn",)]
        return replace(encryption, columns={("ssn",): replace(own, key_metadata=material)})  # type: ignore[type-var]

    forged = str(bench.folder / "forged.parquet")
    rewrite_file(bench.source, forged, encryption=swapped)
    kind, message = failed(rewrite(bench, replace(order, source=forged)))
    assert kind == "VerificationError"
    assert "ssn" in message


@pytest.fixture
def dark(bench: Bench) -> FileOrder:
    """The order to rewrap ``id`` of a file whose ``ssn`` is under a key that is gone."""
    bench.service.create("moved")
    encrypted(bench, "theirs.parquet", id="pii", ssn="other")
    order = encrypted(bench, id="pii", ssn="other")
    assert order.encryption is not None
    bench.service.delete_key("other")
    work._worker.cache_clear()
    asked = replace(order.encryption, columns={("id",): "moved"})
    return replace(order, encryption=asked, dark={("ssn",): "other"})


def materials(bench: Bench, path: str) -> dict[str, bytes]:
    """Return the key metadata of each column with a key of its own."""
    columns = read_footer(path, retrieve_key=retrieve(bench)).columns or ()
    return {column.path[0]: column.key_metadata or b"" for column in columns if column.own_key}


@pytest.mark.parametrize("action", ["rewrap", "copy"])
def test_dark_column_stays_byte_for_byte(bench: Bench, dark: FileOrder, action: Action) -> None:
    """Its key is not asked for, and its key metadata and all data are those of the source."""
    assert rewrite(bench, replace(dark, action=action)).error is None
    end = read_footer(dark.source, retrieve_key=retrieve(bench)).offset
    before, after = Path(dark.source).read_bytes(), Path(dark.target).read_bytes()
    assert before[:end] == after[:end]
    old, new = materials(bench, dark.source), materials(bench, dark.target)
    assert old["ssn"] == new["ssn"]
    assert json.loads(new["id"])["masterKeyID"] == ("moved" if action == "rewrap" else "pii")
    assert (before == after) == (action == "copy")


@pytest.mark.parametrize("action", ["rewrap", "copy", "encrypt", "decrypt"])
def test_key_that_is_missing_does_not_make_a_column_dark(bench: Bench, dark: FileOrder, action: Action) -> None:
    """A column whose key is gone, and which is not said to be dark, is not left unopened."""
    kind, message = failed(rewrite(bench, replace(dark, action=action, dark={})))
    assert (kind, "'other'" in message) == ("KeyNotFoundError", True)


@pytest.mark.parametrize("action", ["rewrap", "copy", "encrypt", "decrypt"])
@pytest.mark.parametrize(("column", "key"), [("ssn", "pii"), ("id", "other"), ("tel", "other"), ("none", "other")])
def test_only_what_was_shredded_is_left_unopened(
    bench: Bench, dark: FileOrder, action: Action, column: str, key: str
) -> None:
    """A column under another key than it was listed with, in plaintext or not there at all is refused by name."""
    purges = action in ("encrypt", "decrypt")
    kind, message = failed(rewrite(bench, replace(dark, action=action, dark={(column,): key}, purges=purges)))
    assert kind == "VerificationError"
    assert f"column {column} is under" in message
    assert f"was under the shredded {key!r}" in message


@pytest.mark.parametrize("action", ["encrypt", "decrypt"])
def test_dark_column_is_replaced_by_nulls(bench: Bench, dark: FileOrder, action: Action) -> None:
    """Where a file is encrypted anew, or decrypted, nulls stand for what nobody can open; all else is as it was."""
    asked = dark.encryption if action == "encrypt" else None
    done = rewrite(bench, replace(dark, action=action, encryption=asked, purges=True))
    assert (done.error, done.refused, done.rows) == (None, None, 3)
    assert done.unauthenticated == ("source: column ssn: its key is gone",)
    plain = f"{bench.folder}/plain"
    if action == "decrypt":
        plain = done.target
    else:
        order = FileOrder(done.target, plain, "decrypt", None, dark.source_prefix, GCM)
        assert rewrite(bench, order).error is None
    assert pq.ParquetFile(plain).read().equals(TABLE.set_column(1, "ssn", pa.nulls(3, pa.string())))


@pytest.mark.parametrize("wrong", ["values instead of nulls", "another column"])
def test_nulls_and_all_else_are_proven(
    bench: Bench, dark: FileOrder, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """A rewrite that left values there, or changed another column, is found, and leaves no target."""
    pq.write_table(TABLE.set_column(0, "id", pa.array([1, 2, 4])), bench.source)
    bench.service.create("other")
    work._worker.cache_clear()
    theirs = encrypted(bench, "changed.parquet", id="pii", ssn="other").source

    def changed(_source: Any, target: Any, **named: Any) -> Any:
        if wrong == "another column":
            return rewrite_file(theirs, target, **{**named, "aad_prefix": None})
        return rewrite_file(bench.source, target, encryption=named["encryption"])

    monkeypatch.setattr(work, "rewrite_file", changed)
    kind, message = failed(rewrite(bench, replace(dark, action="encrypt", purges=True)))
    assert kind == "VerificationError"
    assert ("the content differs" if wrong == "another column" else "holds more than nulls") in message


@pytest.mark.parametrize("wrong", ["key metadata", "column metadata", "a byte of the data"])
def test_dark_column_that_is_another_does_not_pass(
    bench: Bench, dark: FileOrder, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """Whatever the rewriter might do to a column that nobody can open, the proof by other code finds it."""
    other = read_footer(f"{bench.folder}/theirs.parquet", retrieve_key=retrieve(bench))
    field = ColumnChunk.crypto_metadata if wrong == "key metadata" else ColumnChunk.encrypted_column_metadata

    def changed(source: Any, target: Any, **named: Any) -> Any:
        result = rewrap_file(source, target, **named)
        content = Path(target).read_bytes()
        footer = read_footer(content, retrieve_key=retrieve(bench))
        data = bytearray(content[: footer.offset])
        assert footer.metadata is not None and other.metadata is not None
        if wrong == "a byte of the data":
            data[-1] ^= 1
        else:
            ours, theirs = (found.row_groups[0].columns[1].struct for found in (footer.metadata, other.metadata))
            assert ours[field.key] != theirs[field.key]
            ours[field.key] = theirs[field.key]
        Path(target).unlink()
        seal_again(bench, target, bytes(data), footer)
        return result

    monkeypatch.setattr(work, "rewrap_file", changed)
    kind, message = failed(rewrite(bench, dark))
    assert kind == "VerificationError"
    assert dark.target in message


def seal_again(bench: Bench, path: str, data: bytes, footer: Footer) -> None:
    """Write a file with a footer that was changed, sealed as who has its key can."""
    assert footer.metadata is not None
    metadata = footer.footer_key_metadata or b""
    cipher = ModuleCipher(retrieve(bench)(KeyRequest(path, None, metadata)))
    unique, prefix = footer.aad_file_unique or b"", footer.aad_prefix
    seal = FooterSeal(cipher, metadata, "encrypted", GCM, prefix, False, unique, known_aad(footer))
    with open_target(path) as output:
        output.write(data)
        write_footer(output, footer.metadata.struct, seal, {})


def test_only_key_material_is_new(bench: Bench) -> None:
    """The footer names the other master key, and keeps what a session wrote of the schema."""
    order = encrypted(bench)
    assert rewrite(bench, order).error is None
    before, after = (read_footer(path, retrieve_key=retrieve(bench)) for path in (order.source, order.target))
    assert before.metadata is not None and after.metadata is not None
    assert proof._strip_keys(before, before.metadata, ()) == proof._strip_keys(after, after.metadata, ())
    materials = [
        json.loads(column.key_metadata or b"{}")["masterKeyID"]
        for footer in (before, after)
        for column in footer.columns or ()
        if column.own_key
    ]
    assert materials == ["pii", "other"]


@pytest.fixture
def beside(bench: Bench) -> FileOrder:
    """The order to rewrap ``id`` of a file with its key material beside it; the key of its ``ssn`` is gone."""
    bench.service.create("moved")
    order = encrypted(bench, id="pii", ssn="other")
    put_beside(Path(order.source), retrieve(bench))
    assert order.encryption is not None
    bench.service.delete_key("other")
    work._worker.cache_clear()
    asked = replace(order.encryption, columns={("id",): "moved"})
    return replace(order, encryption=asked, dark={("ssn",): "other"})


def test_dark_column_takes_its_material_from_beside_the_file(bench: Bench, beside: FileOrder) -> None:
    """The new file holds all key material, that of the column which nothing opens too, and needs no other file."""
    before = materials(bench, beside.source)
    done = rewrite(bench, beside)
    assert (done.error, done.refused) == (None, None)
    after = materials(bench, beside.target)
    assert after["ssn"] == before["ssn"]
    assert [json.loads(after[name])["masterKeyID"] for name in ("id", "ssn")] == ["moved", "other"]
    assert not read_footer(beside.target, retrieve_key=retrieve(bench)).external_material


def test_other_material_of_a_dark_column_does_not_pass(
    bench: Bench, beside: FileOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing opens that material any more, so the proof compares it with what stands beside the source."""

    def changed(source: Any, target: Any, **named: Any) -> Any:
        result = rewrap_file(source, target, **named)
        content = Path(target).read_bytes()
        footer = read_footer(content, retrieve_key=retrieve(bench))
        assert footer.metadata is not None
        ours = footer.metadata.row_groups[0].columns[1].struct
        key_metadata = json.loads(materials(bench, target)["ssn"]) | {"wrappedDEK": "AAAA"}
        ours[ColumnChunk.crypto_metadata.key] = crypto_metadata(("ssn",), json.dumps(key_metadata).encode())
        Path(target).unlink()
        seal_again(bench, target, content[: footer.offset], footer)
        return result

    monkeypatch.setattr(work, "rewrap_file", changed)
    kind, message = failed(rewrite(bench, beside))
    assert kind == "VerificationError"
    assert "its footer says something else" in message


@pytest.mark.parametrize("is_dark", [True, False])
def test_file_with_material_beside_it_is_never_copied(bench: Bench, beside: FileOrder, is_dark: bool) -> None:
    """Nothing would open a copy of it without the other file."""
    if not is_dark:
        bench.service.create("other")
        encrypted(bench, "out2.parquet", id="pii", ssn="pii")
        source = bench.folder / "out2.parquet"
        put_beside(source, retrieve(bench))
        beside = replace(beside, source=str(source), source_prefix=b"-/out2.parquet\0", dark={})
    kind, message = failed(rewrite(bench, replace(beside, action="copy", encryption=None)))
    assert kind == "VerificationError"
    assert "nothing would open a copy" in message
