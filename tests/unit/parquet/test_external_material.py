"""Files whose key material stands in a file beside them, as parquet-mr may be told to leave it."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from sparkcrypt.cli.files.inspect import summary_text
from sparkcrypt.errors import FormatError, SparkcryptError, StorageError
from sparkcrypt.files.parquet import (
    DataKey,
    FileEncryption,
    KeyRequest,
    KnownColumns,
    NewKeys,
    inspect_file,
    read_footer,
    rewrap_file,
    rewrite_file,
    verify_file,
)
from sparkcrypt.keys.external_material import is_material_file
from sparkcrypt.keys.material import KeyMaterial, parse_key_material
from tests.unit.parquet.material_beside import material_file, put_beside
from tests.unit.parquet.rewriting import NAME, SSN, write_plain

_WRAPPED = {"footer": bytes(range(32)), "pii": bytes(range(1, 33)), "fin": bytes(range(2, 34))}


def material(key_id: str) -> bytes:
    """Return key material that a key service of these tests opens."""
    instance = "DEFAULT" if key_id == "footer" else None
    wrapped = base64.b64encode(_WRAPPED[key_id]).decode()
    return KeyMaterial(key_id == "footer", instance, instance, key_id, wrapped).to_bytes()


def retrieve(request: KeyRequest) -> bytes:
    """Open a data key by its key material, which must be inside by now."""
    return base64.b64decode(parse_key_material(request.key_metadata or b"").wrapped_dek)


@pytest.fixture(params=["encrypted", "plaintext"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An encrypted file whose key material stands beside it."""
    plain = write_plain(tmp_path / "plain")
    keys = {key_id: DataKey(_WRAPPED[key_id], material(key_id)) for key_id in _WRAPPED}
    columns = {SSN: keys["pii"], NAME: keys["fin"]}
    made = tmp_path / "part 0=1.parquet"
    encryption = FileEncryption(footer=keys["footer"], footer_mode=request.param, columns=columns)
    rewrite_file(plain, made, encryption=encryption)
    put_beside(made, retrieve)
    return made


def test_keys_are_known_by_the_material_beside(file: Path) -> None:
    """The summary names the master keys, and says where the key material is; every module opens."""
    summary = inspect_file(file, retrieve_key=retrieve)
    columns = {path[0]: column.key_id for path, column in (summary.columns or {}).items() if column.encrypted}
    assert (summary.footer_key, columns, summary.external_material) == ("footer", {"ssn": "pii", "person": "fin"}, True)
    assert {wrapping.key_id for wrapping in summary.wrappings} == {"footer", "pii", "fin"}
    assert summary.to_dict()["external_material"] is True
    assert "key material in a file beside it" in summary_text(summary)
    assert b"pii" not in file.read_bytes()
    assert verify_file(file, retrieve_key=retrieve).authenticated == "all"


@pytest.mark.parametrize("source", ["path", "file system", "open file"])
def test_material_is_found_however_a_file_is_opened(file: Path, source: str) -> None:
    """By a path, on a file system of pyarrow, and as an open file."""
    if source == "open file":
        with file.open("rb") as stream:
            assert inspect_file(stream, retrieve_key=retrieve).external_material
        return
    opened = str(file) if source == "path" else (LocalFileSystem(), str(file))
    assert inspect_file(opened, retrieve_key=retrieve).external_material


def test_rewritten_files_hold_their_material_inside(file: Path, tmp_path: Path) -> None:
    """A rewrap takes the material into the file; the pair that it was made of is as it was."""
    before = file.read_bytes(), material_file(file).read_bytes()
    rewrap_file(
        file, tmp_path / "out", retrieve_key=retrieve, new_keys=NewKeys(lambda request, _: request.key_metadata or b"")
    )
    assert not inspect_file(tmp_path / "out", retrieve_key=retrieve).external_material
    digest = verify_file(file, retrieve_key=retrieve).digest
    material_file(file).unlink()
    assert verify_file(tmp_path / "out", retrieve_key=retrieve, equal_to=digest).authenticated == "all"
    assert file.read_bytes() == before[0]


def test_dark_columns_take_their_material_along(file: Path, tmp_path: Path) -> None:
    """A column that nothing opens any more keeps its key material, which is inside the new file."""

    def refuse_pii(request: KeyRequest) -> bytes:
        assert request.column != SSN
        return retrieve(request)

    def keep(request: KeyRequest, _: bytes) -> bytes:
        return request.key_metadata or b""

    rewrap_file(
        file, tmp_path / "out", retrieve_key=refuse_pii, new_keys=NewKeys(keep), known=KnownColumns(dark=(SSN,))
    )
    footer = read_footer(tmp_path / "out", retrieve_key=retrieve)
    (kept,) = [column.key_metadata for column in footer.columns or () if column.path == SSN]
    assert not footer.external_material
    assert parse_key_material(kept or b"") == parse_key_material(material("pii"))


def test_material_of_a_killed_rotation_is_found(file: Path) -> None:
    """parquet-mr's rotation, killed between its delete and its rename, leaves the material under another name."""
    usual = material_file(file)
    usual.replace(usual.with_name(f"_TMP{usual.name}"))
    assert verify_file(file, retrieve_key=retrieve).authenticated == "all"


def test_usual_name_counts_first(file: Path) -> None:
    """What a rotation has only begun to write is not looked at."""
    usual = material_file(file)
    usual.with_name(f"_TMP{usual.name}").write_text("{")
    assert verify_file(file, retrieve_key=retrieve).authenticated == "all"


def _link(path: Path) -> None:
    moved = path.replace(path.with_name("elsewhere"))
    path.symlink_to(moved)


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _drop_entry(path: Path) -> None:
    entries = json.loads(path.read_text())
    path.write_text(json.dumps({"another": entries["footerKey"]}))


def _fill(path: Path) -> None:
    os.truncate(path, 80 << 20)


HOSTILE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "missing": ("is not beside it, so nothing opens it", Path.unlink),
    "link": ("is a symbolic link", _link),
    "folder": ("is a folder", _make_folder),
    "pipe": ("is a pipe", _make_pipe),
    "endless": ("has more than", _fill),
    "no entry": ("has no entry 'footerKey'", _drop_entry),
    "empty": ("is not key material", lambda path: path.write_text("")),
    "no JSON": ("is not key material", lambda path: path.write_bytes(b"\xff\xfe")),
    "deep": ("is not key material", lambda path: path.write_text("[" * 100_000)),
    "list": ("is a JSON list", lambda path: path.write_text("[]")),
    "objects": ("is a JSON dict", lambda path: path.write_text('{"footerKey": {}}')),
    "twice": ("is not key material", lambda path: path.write_text('{"footerKey": "", "footerKey": ""}')),
    "deep entry": ("is not key material", lambda path: path.write_text(json.dumps({"footerKey": "[" * 100_000}))),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_wrong_with_the_material_file_is_named(file: Path, case: str) -> None:
    """One error, of one class, with the data file, the other file and what is wrong; soon, and of no great length."""
    text, damage = HOSTILE[case]
    damage(material_file(file))
    began = time.process_time()
    with pytest.raises(FormatError, match=text) as caught:
        inspect_file(file, retrieve_key=retrieve)
    assert time.process_time() - began < 2
    assert str(file) in str(caught.value) and material_file(file).name in str(caught.value)
    assert len(str(caught.value)) < 500


def test_material_that_may_not_be_read_says_nothing_of_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage that refuses is a StorageError, so that a run takes the file for none that is damaged."""
    opened, material = os.open, material_file(file)

    def denied(path: str, *more: int) -> int:
        if os.fspath(path) == str(material):
            raise PermissionError(13, "Permission denied")
        return opened(path, *more)

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(StorageError, match="see that you may read it"):
        inspect_file(file, retrieve_key=retrieve)


def test_foreign_material_opens_nothing(file: Path) -> None:
    """Nothing authenticates key material: that of another key opens no module."""
    entries = {
        name: text.replace(base64.b64encode(_WRAPPED["pii"]).decode(), base64.b64encode(bytes(32)).decode())
        for name, text in json.loads(material_file(file).read_text()).items()
    }
    material_file(file).write_text(json.dumps(entries))
    with pytest.raises(SparkcryptError, match="ssn"):
        verify_file(file, retrieve_key=retrieve)


def test_bytes_alone_say_what_is_missing(file: Path) -> None:
    """The bytes of a file have nothing beside them."""
    with pytest.raises(FormatError, match="give the path at which both are"):
        inspect_file(file.read_bytes(), retrieve_key=retrieve)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("_KEY_MATERIAL_FOR_a.parquet.json", True),
        ("_TMP_KEY_MATERIAL_FOR_a.parquet.json", True),
        ("_KEY_MATERIAL_FOR_a.parquet", False),
        ("KEY_MATERIAL_FOR_a.parquet.json", False),
        ("_TMP_TMP_KEY_MATERIAL_FOR_a.json", False),
    ],
)
def test_names_of_material_files(name: str, is_one: bool) -> None:
    """Only what parquet-mr calls them."""
    assert is_material_file(name) is is_one
