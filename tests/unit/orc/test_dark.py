"""Files with dark columns: what nobody can open stays as it is, or is replaced by nulls, and others are rewritten."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.orc
import pytest

from sparkcrypt.errors import ConfigError, KeyNotFoundError, UnsupportedFileError, VerificationError
from sparkcrypt.files.orc import inspect_orc, read_tail, rewrap_orc, rewrite_orc, verify_orc
from sparkcrypt.files.orc.file.encryption import LocalKey, LocalKeys
from sparkcrypt.files.orc.file.stripe import DATA, PRESENT, ROW_INDEX, Stream, read_stripe_footer
from sparkcrypt.files.orc.file.tail import (
    STRIPE_ID,
    STRIPES,
    USER_METADATA,
    encode_purged_note,
    is_purged_note,
    read_purged_note,
)
from sparkcrypt.files.orc.rewrite.source import OrcSource, check_supported
from sparkcrypt.files.orc.verify.mask_check import NullCheck
from sparkcrypt.files.parquet import KeyRequest, KnownColumns
from sparkcrypt.files.source import open_source
from sparkcrypt.schema import Path as ColumnPath
from sparkcrypt.schema import join_dotted
from tests.unit.orc.corpus import CODECS, file
from tests.unit.orc.dark_parts import parts_of
from tests.unit.orc.rewriting import OrcKeys, patched

FILES = [*(f"java_{codec}_encrypted" for codec in CODECS), "java_types_encrypted", "java_stride0"]
GONE, LEFT = "fin", "pii"
"""Master keys of these files: the first was shredded."""


@dataclass
class KeysLeft(OrcKeys):
    """Opens every key but those of columns that are dark."""

    dark: Collection[ColumnPath] = ()

    def __call__(self, request: KeyRequest) -> bytes:
        """Return a local key by its wrapped form."""
        if any(path[: len(request.column or ())] == request.column for path in self.dark):
            raise KeyNotFoundError(f"the key of {join_dotted(request.column or ())} is gone")
        return super().__call__(request)


def under(path: Path, master: str) -> list[ColumnPath]:
    """Return the leaf columns that are under a master key."""
    return [column for column, found in inspect_orc(path).columns.items() if found.key_id == master]


def keys_left(path: Path) -> KeysLeft:
    """Return what opens the keys of a file but those of the master key that is gone."""
    return KeysLeft(dark=under(path, GONE))


@pytest.mark.parametrize("name", FILES)
def test_dark_columns_stay_while_others_get_new_keys(tmp_path: Path, name: str) -> None:
    """Every byte of theirs stays, and whoever had their keys reads the old values; no key of theirs is asked for."""
    source, everything = file(name), verify_orc(file(name), retrieve_key=OrcKeys())
    keys, target = keys_left(source), tmp_path / "e"
    before = verify_orc(source, retrieve_key=keys, known=KnownColumns(dark=keys.dark))
    rewrite_orc(source, target, retrieve_key=keys, encryption=keys.encryption(["name", "id"], size=32), dark=keys.dark)
    after = verify_orc(target, retrieve_key=keys, equal_to=before.digests, known=KnownColumns(dark=keys.dark))
    assert parts_of(target, keys.dark) == parts_of(source, keys.dark)
    assert {column: key for column, key in after.columns.items() if column not in keys.dark} == {
        ("name",): LEFT,
        ("id",): LEFT,
    }
    keys.dark = ()
    verify_orc(target, retrieve_key=keys, equal_to=everything.digests)


@pytest.mark.parametrize("name", FILES)
def test_dark_columns_stay_while_all_others_are_decrypted(tmp_path: Path, name: str) -> None:
    """They are then all that is encrypted, and the next rewrite takes the file too."""
    source = file(name)
    keys, target, again = keys_left(source), tmp_path / "p", tmp_path / "e"
    before = verify_orc(source, retrieve_key=keys, known=KnownColumns(dark=keys.dark))
    rewrite_orc(source, target, retrieve_key=keys, dark=keys.dark)
    assert sorted(
        verify_orc(target, retrieve_key=keys, equal_to=before.digests, known=KnownColumns(dark=keys.dark)).columns
    ) == sorted(keys.dark)
    rewrite_orc(target, again, retrieve_key=keys, encryption=keys.encryption(["id"]), dark=keys.dark)
    verify_orc(again, retrieve_key=keys, equal_to=before.digests, known=KnownColumns(dark=keys.dark))
    assert parts_of(again, keys.dark) == parts_of(source, keys.dark)


@pytest.mark.parametrize("name", FILES)
def test_rewrapping_leaves_dark_keys_as_they_are(tmp_path: Path, name: str) -> None:
    """Other local keys are wrapped again, and the data are the same bytes."""
    source, everything = file(name), verify_orc(file(name), retrieve_key=OrcKeys())
    keys, target = keys_left(source), tmp_path / "r"

    def wrap(request: KeyRequest, key: bytes) -> tuple[bytes, str]:
        wrapped = f"again {request.column}".encode()
        keys.made[wrapped] = key
        return wrapped, "another"

    rewrap_orc(source, target, retrieve_key=keys, wrap_key=wrap, dark=keys.dark)
    end = read_tail(source).footer_offset
    assert target.read_bytes()[:end] == source.read_bytes()[:end]
    assert parts_of(target, keys.dark) == parts_of(source, keys.dark)
    assert {*under(target, GONE)} == {*keys.dark} and not under(target, LEFT)
    keys.dark = ()
    verify_orc(target, retrieve_key=keys, equal_to=everything.digests)


@pytest.mark.parametrize("encrypts", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_nulls_take_the_place_of_dark_columns(tmp_path: Path, name: str, encrypts: bool) -> None:
    """In clear, or encrypted under another key; others say what they said, and a note names what is gone."""
    source = file(name)
    keys, target = keys_left(source), tmp_path / "p"
    purged = keys.dark
    roots = {column.root or () for column in inspect_orc(source).columns.values() if column.key_id == GONE}
    before = verify_orc(
        source, retrieve_key=keys, known=KnownColumns(purged=purged, will_encrypt=roots if encrypts else ())
    )
    masked = pyarrow.orc.ORCFile(source)
    encryption = keys.encryption(map(join_dotted, roots)) if encrypts else None
    rewrite_orc(source, target, retrieve_key=keys, encryption=encryption, purge=purged)
    keys.dark = ()
    after = verify_orc(target, retrieve_key=keys, equal_to=before.digests, known=KnownColumns(nulls=purged))
    assert {*after.columns} == ({*purged} if encrypts else set())
    assert read_purged_note(read_tail(target).footer) == dict.fromkeys(purged, GONE)
    names = [column for column in masked.schema.names if column in {path[0] for path in purged}]
    assert pyarrow.orc.ORCFile(target).read(names).equals(masked.read(names))
    again = tmp_path / "again"
    rewrite_orc(target, again, retrieve_key=keys)
    verify_orc(again, equal_to=before.digests, known=KnownColumns(nulls=purged))
    assert read_purged_note(read_tail(again).footer) == dict.fromkeys(purged, GONE)


def test_what_is_more_than_nulls_is_found(tmp_path: Path) -> None:
    """A column with values, and one of which some values are null, is no column of nulls."""
    source, keys = file("java_zlib"), OrcKeys()
    rewrite_orc(source, tmp_path / "e", encryption=keys.encryption(["name"]))
    for place, column in ((source, "name"), (source, "dec"), (source, "st"), (tmp_path / "e", "name")):
        with pytest.raises(VerificationError, match=f"column {column}.* holds more than nulls"):
            verify_orc(place, retrieve_key=keys, known=KnownColumns(nulls=[(column,)]))


def test_each_part_of_a_column_is_looked_at_for_values() -> None:
    """Statistics that count, a value that is present, a stream with content, and a row of which nothing is said."""
    tail = read_tail(file("java_none"))
    name = next(column.number for column in tail.columns if column.path == ("name",))
    check, stripe = NullCheck(tail, [("name",)]), tail.stripes[0]
    zeros = bytes((127, 0)) * 3  # 390 bytes: a bit for each of 2500 rows, and more
    assert check.has(name) and not check.has(name + 1)
    check.check_statistics(name, b"")
    check.check_statistics(name + 1, b"\x08\x05")
    check.check_stream(Stream(PRESENT, name, 0, len(zeros), None), zeros)
    check.check_stream(Stream(ROW_INDEX, name, 0, 2, None), b"\x0a\x00")
    check.check_stream(Stream(DATA, name, 0, 0, None), b"")
    check.check_stream(Stream(DATA, name + 1, 0, 9, None), b"")
    check.finish_stripe(stripe)
    refused: tuple[tuple[Callable[[], None], str], ...] = (
        (lambda: check.finish_stripe(stripe), "stripe 0 does not say of every row"),
        (lambda: check.check_statistics(name, b"\x08\x05"), "its statistics tell of values"),
        (
            lambda: check.check_stream(Stream(ROW_INDEX, name, 0, 6, None), b"\x0a\x04\x12\x02\x08\x05"),
            "its statistics",
        ),
        (lambda: check.check_stream(Stream(PRESENT, name, 0, 2, None), b"\xff\x80"), "a value of it is present"),
        (lambda: check.check_stream(Stream(DATA, name, 0, 9, None), b""), "its stream DATA of column 2 is not empty"),
    )
    for refuse, said in refused:
        with pytest.raises(VerificationError, match=f"column name holds more than nulls .{said}"):
            refuse()


def test_columns_that_are_not_encrypted_are_not_dark(tmp_path: Path) -> None:
    """A file that somebody exchanged is refused by every way, and leaves no target."""
    dark, keys = [("name",)], OrcKeys()
    for refused in (
        lambda: rewrite_orc(file("java_zlib"), tmp_path / "e", dark=dark),
        lambda: rewrite_orc(file("java_zlib"), tmp_path / "e", purge=dark),
        lambda: verify_orc(file("java_zlib"), known=KnownColumns(dark=dark)),
        lambda: verify_orc(file("java_zlib"), known=KnownColumns(purged=dark)),
        lambda: rewrap_orc(
            file("java_zlib_encrypted"),
            tmp_path / "e",
            retrieve_key=keys,
            wrap_key=lambda request, key: (b"", ""),
            dark=[("id",)],
        ),
    ):
        with pytest.raises(VerificationError, match="is not encrypted in the file; someone replaced it"):
            refused()
    assert not list(tmp_path.iterdir())


def test_what_a_rewrite_changed_of_a_dark_column_is_found(tmp_path: Path) -> None:
    """Its ciphertext, the number of its stripe and its wrapped key are part of the proof."""
    source = file("java_none_encrypted")
    keys, target = keys_left(source), tmp_path / "e"
    before = verify_orc(source, retrieve_key=keys, known=KnownColumns(dark=keys.dark))
    rewrite_orc(source, target, retrieve_key=keys, dark=keys.dark)
    tail, content = read_tail(target), target.read_bytes()
    with open_source(target) as opened:
        footer = read_stripe_footer(opened, tail, tail.stripes[1])
    variant = next(found for found in tail.encryption.variants if found.key.name == GONE)  # type: ignore[union-attr]
    stream = next(found for found in footer.streams if found.variant == variant.number and found.length)
    changed = bytearray(content)
    changed[stream.offset] ^= 1
    entries = tail.footer.messages(STRIPES, "a stripe")
    numbered = [entries[0].replace_field(STRIPE_ID, [5]).encode(), entries[1].encode()]
    for forged in (bytes(changed), patched(tail, content, tail.footer.replace_field(STRIPES, numbered))):
        target.write_bytes(forged)
        with pytest.raises(VerificationError, match="its content is another in unopened"):
            verify_orc(target, retrieve_key=keys, equal_to=before.digests, known=KnownColumns(dark=keys.dark))


def test_stripes_keep_their_numbers_beside_dark_columns(tmp_path: Path) -> None:
    """They are in the IVs of what stays, and new local keys go by them too."""
    source, everything = tmp_path / "moved", verify_orc(file("java_zlib_encrypted"), retrieve_key=OrcKeys())
    renumber(file("java_zlib_encrypted"), source, first=7)
    verify_orc(source, retrieve_key=OrcKeys(), equal_to=everything.digests)
    keys, target = keys_left(source), tmp_path / "e"
    rewrite_orc(source, target, retrieve_key=keys, encryption=keys.encryption(["id"]), dark=keys.dark)
    assert [stripe.id for stripe in read_tail(target).stripes] == [7, 8]
    dark, keys.dark = keys.dark, ()
    verify_orc(target, retrieve_key=keys, equal_to=everything.digests)
    rewrite_orc(target, tmp_path / "p", retrieve_key=keys, encryption=keys.encryption(["id"]), purge=dark)
    assert [stripe.id for stripe in read_tail(tmp_path / "p").stripes] == [1, 2]


def renumber(source: Path, target: Path, *, first: int) -> None:
    """Write an encrypted file of two stripes with another number of the first, as those cut out of others have."""
    tail, content = read_tail(source), bytearray(source.read_bytes())
    with open_source(source) as opened:
        for stripe in tail.stripes:
            for stream in read_stripe_footer(opened, tail, stripe).streams:
                if stream.variant is None:
                    continue
                key = LocalKey(OrcKeys()(KeyRequest("f", None, stripe.local_keys[stream.variant])))
                place = slice(stream.offset, stream.offset + stream.length)
                for number in (stripe.id, stripe.id + first - 1):
                    cipher = key.stream(stream.column, stream.kind, number)
                    content[place] = cipher.update(bytes(content[place]))
    entries = tail.footer.messages(STRIPES, "a stripe")
    numbered = [entries[0].replace_field(STRIPE_ID, [first]), *entries[1:]]
    footer = tail.footer.replace_field(STRIPES, [entry.encode() for entry in numbered])
    target.write_bytes(patched(tail, bytes(content), footer))


def test_what_would_use_a_key_twice_or_leave_values_is_refused(tmp_path: Path) -> None:
    """Stripes of one number, other masks than nulls, keys of maps, and columns inside dark ones."""
    keys, target = OrcKeys(), tmp_path / "e"
    rewrite_orc(file("java_zlib"), tmp_path / "s", encryption=keys.encryption(["dec", "st"], master=GONE))
    tail, content = read_tail(tmp_path / "s"), (tmp_path / "s").read_bytes()
    same = [entry.replace_field(STRIPE_ID, [1]).encode() for entry in tail.footer.messages(STRIPES, "a stripe")]
    (tmp_path / "same").write_bytes(patched(tail, content, tail.footer.replace_field(STRIPES, same)))
    dark, st = [("dec",), ("st", "x"), ("st", "y")], [("st", "x"), ("st", "y")]
    with pytest.raises(UnsupportedFileError, match="two of its stripes have one number"):
        rewrite_orc(tmp_path / "same", target, retrieve_key=keys, encryption=keys.encryption(["id"]), dark=dark)
    with pytest.raises(UnsupportedFileError, match="name stands in clear masked by sha256, so leaving"):
        rewrite_orc(file("java_sha256"), target, retrieve_key=keys, purge=[("name",)])
    with pytest.raises(ConfigError, match=r"st\.x is inside st, and the key of one of them is gone"):
        rewrite_orc(tmp_path / "s", target, retrieve_key=keys, encryption=keys.encryption(["st.x"]), dark=st)
    assert not target.exists()


def test_keys_of_a_map_are_not_purged() -> None:
    """ORC's Java writer encrypts them alone where it is told to, and maps have no null keys."""
    tail = read_tail(file("java_types_encrypted"))
    assert tail.encryption is not None
    variant = next(found for found in tail.encryption.variants if found.root.path == ("kv",))
    root = tail.columns[variant.root.children[0]]
    alone, mask = replace(variant, number=0, root=root), tail.encryption.by_root[variant.root.number]
    encryption = replace(
        tail.encryption, variants=(alone,), by_column={root.number: alone}, by_root={root.number: mask}
    )
    with open_source(file("java_types_encrypted")) as opened:
        keys = LocalKeys("f", OrcKeys())
        source = OrcSource(opened, replace(tail, encryption=encryption), keys, purge=[("kv", "_key")])
        with pytest.raises(UnsupportedFileError, match=r"kv\._key is the key of a map, and maps have no null keys"):
            check_supported(source, encrypts=False)


def test_bloom_filters_of_dark_columns_in_clear_go(tmp_path: Path) -> None:
    """Whoever kept the file could probe values by them, and the proof does not ask for them."""
    source, keys, name = file("java_bloom"), OrcKeys(), [("name",)]
    before = verify_orc(source, retrieve_key=keys, known=KnownColumns(will_encrypt=(), dark=name))
    done = rewrite_orc(source, tmp_path / "d", retrieve_key=keys, dark=name)
    assert any("the Bloom filter of name was left out" in note for note in done.notes)
    verify_orc(tmp_path / "d", retrieve_key=keys, equal_to=before.digests, known=KnownColumns(dark=name))
    before = verify_orc(source, retrieve_key=keys, known=KnownColumns(will_encrypt=(), purged=name))
    done = rewrite_orc(source, tmp_path / "p", retrieve_key=keys, purge=name)
    assert any("the Bloom filter of name was left out" in note for note in done.notes)
    verify_orc(tmp_path / "p", equal_to=before.digests, known=KnownColumns(nulls=name))


def test_note_of_purged_columns_grows_and_others_notes_say_nothing(tmp_path: Path) -> None:
    """A second purge adds to the note; what is no such note, or damaged, is left alone."""
    keys = OrcKeys()
    rewrite_orc(file("java_zlib"), tmp_path / "s", encryption=keys.encryption(["dec"], master=GONE))
    tail, content = read_tail(tmp_path / "s"), (tmp_path / "s").read_bytes()
    noted = [*tail.footer.read_repeated(USER_METADATA), encode_purged_note({("id",): "old"})]
    (tmp_path / "n").write_bytes(patched(tail, content, tail.footer.replace_field(USER_METADATA, noted)))
    before = verify_orc(tmp_path / "n", retrieve_key=keys, known=KnownColumns(purged=[("dec",)]))
    rewrite_orc(tmp_path / "n", tmp_path / "p", retrieve_key=keys, purge=[("dec",)])
    footer = read_tail(tmp_path / "p").footer
    assert read_purged_note(footer) == {("dec",): GONE, ("id",): "old"}
    assert len([item for item in footer.read_repeated(USER_METADATA) if is_purged_note(item)]) == 1
    verify_orc(tmp_path / "p", equal_to=before.digests, known=KnownColumns(nulls=[("dec",)]))
    for damaged in (b"\x0a", b"\x0a\x02\xff\xff", encode_purged_note({})[:-2] + b"[1"):
        assert read_purged_note(footer.replace_field(USER_METADATA, [damaged])) == {}
