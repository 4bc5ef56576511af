from __future__ import annotations

import cProfile
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

import sparkcrypt.files.orc
from sparkcrypt.errors import ConfigError, FormatError, UnsupportedFileError, VerificationError
from sparkcrypt.files.orc import OrcEncryption, inspect_orc, read_tail, rewrap_orc, rewrite_orc, verify_orc
from sparkcrypt.files.orc.file.protobuf import decode
from sparkcrypt.files.orc.file.schema import leaves
from sparkcrypt.files.orc.file.stripe import BLOOM_FILTERS, ROW_INDEX, read_stream_whole, read_stripe_footer
from sparkcrypt.files.parquet import KeyRequest, KnownColumns
from sparkcrypt.files.source import open_source
from sparkcrypt.schema import join_dotted, split_dotted
from tests.unit.orc.corpus import CODECS, NAMES, file
from tests.unit.orc.reading import read_orc
from tests.unit.orc.rewriting import OrcKeys, clear_parts, patched, without_magic

PLAIN = [f"java_{codec}" for codec in CODECS] + ["java_types", "arrow_zstd"]
NESTED = ["id", "name", "st.y", "li._elem"]
READABLE = [name for name in NAMES if name not in ("java_sha256",)]


def all_roots(name: str) -> list[str]:
    """Return all top-level columns of a file."""
    columns = read_tail(file(name)).columns
    return [join_dotted(columns[number].path) for number in columns[0].children]


def deepest(name: str) -> list[str]:
    """Return all leaf columns of a file, and maps whole, since their keys alone are refused."""
    found = [join_dotted(column.path) for column in leaves(read_tail(file(name)).columns)]
    return list(dict.fromkeys("kv" if column.startswith("kv.") else column for column in found))


def test_file_of_hive_0_11_is_rewritten_and_read(tmp_path: Path) -> None:
    """Its postscript has no magic; ORC's readers take such a file for one of version 0.11."""
    keys, data = OrcKeys(), without_magic(file("java_zlib").read_bytes())
    assert inspect_orc(data).rows == 2500 and read_by_arrow(file("java_zlib")).equals(
        pyarrow.orc.ORCFile(pa.BufferReader(data)).read(columns=read_by_arrow(file("java_zlib")).column_names)
    )
    plain = verify_orc(data)
    rewrite_orc(data, tmp_path / "e", encryption=keys.encryption(all_roots("java_zlib")))
    assert verify_orc(tmp_path / "e", retrieve_key=keys, equal_to=plain.digests).decrypted
    assert read_orc(tmp_path / "e", ["id"], keys=keys).equals(read_orc(data, ["id"]))
    rewrite_orc(tmp_path / "e", tmp_path / "p", retrieve_key=keys)
    assert read_by_arrow(tmp_path / "p").equals(read_by_arrow(file("java_zlib")))


def test_file_without_statistics_is_told_what_to_do(tmp_path: Path) -> None:
    """Spark's engine rewrites no ORC, so no message may name it: the rows are written anew by a job of Spark."""
    data = file("java_zlib").read_bytes()
    tail = read_tail(data)
    bare = patched(tail, data, tail.footer.replace_field(7, []))
    with pytest.raises(UnsupportedFileError, match=r"no statistics of its columns.*to a new table or folder"):
        rewrite_orc(bare, tmp_path / "e", encryption=OrcKeys().encryption(["id"]))
    sources = [path.read_text() for path in Path(sparkcrypt.files.orc.__path__[0]).rglob("*.py")]
    assert not [text for text in sources if "Spark engine" in text or "use Spark" in text]


def test_work_grows_with_the_number_of_columns(tmp_path: Path) -> None:
    """Not with its square, though every column is a variant of its own with streams, statistics and a mask."""

    def calls(columns: int, action: str) -> int:
        path, keys, profile = tmp_path / f"{columns}", OrcKeys(), cProfile.Profile()
        if action == "rewrite":
            pyarrow.orc.write_table(pa.table({f"c{number}": [1] for number in range(columns)}), path)
            how = keys.encryption([f"c{number}" for number in range(columns)])
            profile.runcall(lambda: rewrite_orc(path, tmp_path / f"{columns}.e", encryption=how))
            kept[columns] = keys
        else:
            profile.runcall(lambda: verify_orc(tmp_path / f"{columns}.e", retrieve_key=kept[columns]))
        return sum(entry.callcount for entry in profile.getstats())

    kept: dict[int, OrcKeys] = {}
    for action in ("rewrite", "verify"):
        assert calls(300, action) < 2.4 * calls(150, action), action


def read_by_arrow(path: Path) -> pa.Table:
    """Return what Arrow reads, but for maps of Java's files: they have null keys, of which Arrow dies."""
    opened = pyarrow.orc.ORCFile(path)
    names = [name for name in opened.schema.names if name != "kv" or "un" not in opened.schema.names]
    return opened.read(columns=names)


@pytest.mark.parametrize("choose", [all_roots, deepest], ids=["whole columns", "leaves"])
@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("name", PLAIN)
def test_a_file_goes_there_and_back(tmp_path: Path, name: str, size: int, choose: object) -> None:
    """Encrypted it says what it said; without the key all is null; decrypted it reads as at first, by Arrow too."""
    keys, plain = OrcKeys(), verify_orc(file(name))
    columns = choose(name)  # type: ignore[operator]
    done = rewrite_orc(file(name), tmp_path / "e", encryption=keys.encryption(columns, size=size))
    assert all(column.encrypted for column in inspect_orc(tmp_path / "e").columns.values()) and not done.notes
    found = verify_orc(tmp_path / "e", retrieve_key=keys, equal_to=plain.digests)
    assert not found.plaintext_columns and not found.notes and found.decrypted
    for column in inspect_orc(tmp_path / "e").columns.values():
        assert (column.key_id, column.algorithm, column.mask) == ("pii", f"AES_CTR_{size * 8}", "nullify")
    source, masked = read_by_arrow(file(name)), read_by_arrow(tmp_path / "e")
    assert (masked.schema, masked.num_rows) == (source.schema, source.num_rows)
    if choose is all_roots:
        values = [column for column in masked.columns if not pa.types.is_union(column.type)]  # those have no validity
        assert values and {column.null_count for column in values} == {masked.num_rows}
    rewrite_orc(tmp_path / "e", tmp_path / "p", retrieve_key=keys)
    verify_orc(tmp_path / "p", equal_to=plain.digests)
    assert read_by_arrow(tmp_path / "p").equals(source)
    assert not inspect_orc(tmp_path / "p").encrypted


@pytest.mark.parametrize("codec", CODECS)
def test_masks_are_those_that_java_makes(tmp_path: Path, codec: str) -> None:
    """Streams, positions, encodings and statistics in clear are what ORC's Java writer leaves of the same rows."""
    keys = OrcKeys()
    rewrite_orc(
        file(f"java_{codec}"), tmp_path / "e", encryption=keys.encryption(["name", "st.y", "ts", "dec", "li._elem.n"])
    )
    ours, theirs = tmp_path / "e", file(f"java_{codec}_encrypted")
    assert clear_parts(ours) == clear_parts(theirs)


@pytest.mark.parametrize("other", ["java_types"])
def test_masks_of_all_types_are_those_that_java_makes(tmp_path: Path, other: str) -> None:
    """Whole columns of every type, with structs, lists, maps and unions."""
    columns = [name for name in all_roots(other) if name not in ("id", "l")]
    rewrite_orc(file(other), tmp_path / "e", encryption=OrcKeys().encryption(columns))
    assert clear_parts(tmp_path / "e") == clear_parts(file(f"{other}_encrypted"))


@pytest.mark.parametrize("name", ["java_types", "java_none", "java_zlib", "arrow_zstd"])
def test_some_columns_leave_others_alone(tmp_path: Path, name: str) -> None:
    """Columns that are not named read as before, without any key."""
    columns = [column for column in ("name", "st.y", "li._elem") if split_dotted(column)[0] in all_roots(name)]
    rewrite_orc(file(name), tmp_path / "e", encryption=OrcKeys().encryption(columns))
    source, masked = read_by_arrow(file(name)), read_by_arrow(tmp_path / "e")
    others = [other for other in source.column_names if other not in ("name", "st", "li")]
    assert masked.select(others).equals(source.select(others))
    made = inspect_orc(tmp_path / "e").columns
    assert {path[0] for path, column in made.items() if column.encrypted} == {"name", "st", "li"}
    lists, kept = masked.column("li").combine_chunks(), source.column("li").combine_chunks()
    assert lists.value_lengths().equals(kept.value_lengths()) and lists.flatten().null_count == len(kept.flatten())
    structs = masked.column("st").combine_chunks()
    assert structs.is_null().equals(source.column("st").combine_chunks().is_null())
    assert structs.field("y").null_count == len(structs)
    assert structs.field("x").equals(source.column("st").combine_chunks().field("x"))


@pytest.mark.parametrize("name", [*(f"java_{codec}_encrypted" for codec in CODECS), "java_stride0"])
def test_files_of_java_are_decrypted_and_get_new_keys(tmp_path: Path, name: str) -> None:
    """Its own encrypted files, whose master keys and roots are others, decrypt to what its plain file says."""
    keys, before = OrcKeys(), verify_orc(file(name), retrieve_key=OrcKeys())
    rewrite_orc(file(name), tmp_path / "p", retrieve_key=keys)
    verify_orc(tmp_path / "p", equal_to=before.digests)
    plain = name.removesuffix("_encrypted")
    if plain in PLAIN:
        assert read_by_arrow(tmp_path / "p").equals(read_by_arrow(file(plain)))
    rewrite_orc(file(name), tmp_path / "e", retrieve_key=keys, encryption=keys.encryption(["name", "st", "li"]))
    found = verify_orc(tmp_path / "e", retrieve_key=keys, equal_to=before.digests)
    assert {path[0] for path in found.columns} == {"name", "st", "li"}


def test_a_file_without_row_indexes_goes_there_and_back(tmp_path: Path) -> None:
    """Counts of values come from PRESENT, or the stripes' statistics; masks have no index either."""
    keys, before = OrcKeys(), verify_orc(file("java_stride0"), retrieve_key=OrcKeys())
    rewrite_orc(file("java_stride0"), tmp_path / "p", retrieve_key=keys)
    rewrite_orc(tmp_path / "p", tmp_path / "e", encryption=keys.encryption(deepest("java_stride0")))
    found = verify_orc(tmp_path / "e", retrieve_key=keys, equal_to=before.digests)
    assert not found.plaintext_columns
    masked, source = read_by_arrow(tmp_path / "e"), read_by_arrow(tmp_path / "p")
    assert masked.column("li").combine_chunks().flatten().field("n").null_count == len(
        source.column("li").combine_chunks().flatten()
    )


@pytest.mark.parametrize("name", PLAIN)
def test_no_encryption_of_a_plain_file_changes_nothing_that_is_told(tmp_path: Path, name: str) -> None:
    """A rewrite into plaintext of plaintext."""
    rewrite_orc(file(name), tmp_path / "p")
    verify_orc(tmp_path / "p", equal_to=verify_orc(file(name)).digests)


def struct_of(number: int) -> dict[str, object] | None:
    """Return a struct, or a null that many others follow."""
    return None if 500 < number < 30_000 else {"x": None if number % 5 else number, "y": str(number)}


def list_of(number: int) -> list[dict[str, object]] | None:
    """Return a list of up to four structs, with nulls in and above them."""
    return None if number % 11 == 0 else [{"n": k if number % 4 else None} for k in range(number % 5)]


def write_arrow(path: Path, *, rows: int = 40_000, **options: object) -> Path:
    """Write rows by ORC's C++ writer: nulls above leaves, empty lists, long runs of nulls."""
    table = pa.table(
        {
            "id": pa.array(range(rows)),
            "many": pa.array([None if n % 3 else f"v{n}" for n in range(rows)]),
            "none": pa.array([None] * rows, pa.string()),
            "all": pa.array([n % 7 for n in range(rows)], pa.int32()),
            "st": pa.array([struct_of(n) for n in range(rows)]),
            "li": pa.array([list_of(n) for n in range(rows)]),
            "kv": pa.array([[(str(n), n)] * (n % 3) for n in range(rows)], pa.map_(pa.string(), pa.int64())),
            "dec": pa.array([None if n % 2 else n for n in range(rows)]).cast(pa.decimal128(30, 2)),
            "ts": pa.array([n * 1_000_003 for n in range(rows)], pa.timestamp("ns")),
            "bin": pa.array([bytes([n % 256]) * (n % 9) for n in range(rows)], pa.binary()),
            "flag": pa.array([n % 3 == 0 for n in range(rows)]),
            "f": pa.array([n / 7 for n in range(rows)], pa.float32()),
            "day": pa.array([n % 20_000 for n in range(rows)], pa.date32()),
        }
    )
    pyarrow.orc.write_table(table, path, **options)
    return path


ARROW = ["id", "many", "none", "all", "st.x", "st.y", "li._elem.n", "kv._value", "dec", "ts", "bin", "flag", "f"]


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "zstd", "lz4"])
@pytest.mark.parametrize("stride", [1000, 10_000, 100_000])
def test_files_of_the_other_writer_go_there_and_back(tmp_path: Path, codec: str, stride: int) -> None:
    """Many stripes or one, row groups small and larger than the file, nulls above leaves, every codec."""
    path = write_arrow(
        tmp_path / "s", compression=codec, row_index_stride=stride, stripe_size=65536 if stride == 1000 else 1 << 26
    )
    keys, plain = OrcKeys(), verify_orc(path)
    rewrite_orc(path, tmp_path / "e", encryption=keys.encryption(ARROW))
    verify_orc(tmp_path / "e", retrieve_key=keys, equal_to=plain.digests)
    source, masked = pyarrow.orc.read_table(path), pyarrow.orc.read_table(tmp_path / "e")
    assert masked.column("day").equals(source.column("day")) and masked.column("dec").null_count == len(masked)
    inner = masked.column("li").combine_chunks().flatten().field("n")
    assert inner.null_count == len(inner) == len(source.column("li").combine_chunks().flatten())
    rewrite_orc(tmp_path / "e", tmp_path / "p", retrieve_key=keys)
    assert pyarrow.orc.read_table(tmp_path / "p").equals(source)


def test_a_key_is_used_for_one_file_and_one_column(tmp_path: Path) -> None:
    """An encryption is taken once, and two columns never have one key; neither leaves a target."""
    keys = OrcKeys()
    encryption = keys.encryption(["name"])
    rewrite_orc(file("java_zlib"), tmp_path / "e", encryption=encryption)
    with pytest.raises(ConfigError, match="was used for a file before"):
        rewrite_orc(file("java_zlib"), tmp_path / "again", encryption=encryption)
    same = keys.key()
    with pytest.raises(ConfigError, match="two columns have one local key"):
        rewrite_orc(file("java_zlib"), tmp_path / "again", encryption=OrcEncryption({("name",): same, ("id",): same}))
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ([], "names no column"),
        (["nam"], r"names nam; allowed: columns of the file: id, name"),
        (["st", "st.x"], r"st\.x is inside st"),
        (["li._elem.n", "li"], r"li\._elem\.n is inside li"),
        (["kv._key"], r"kv\._key is the key of a map, .* name kv, with"),
    ],
)
def test_columns_that_cannot_be_are_refused_by_name(tmp_path: Path, columns: list[str], told: str) -> None:
    """Nothing, a name that is not there, and one column inside another."""
    with pytest.raises(ConfigError, match=told):
        source = file("java_types" if columns == ["kv._key"] else "java_zlib")
        rewrite_orc(source, tmp_path / "e", encryption=OrcKeys().encryption(columns))
    with pytest.raises(ConfigError, match="192 bits"):
        rewrite_orc(file("java_zlib"), tmp_path / "e", encryption=OrcKeys().encryption(["name"], size=24))
    assert not list(tmp_path.iterdir())


def test_bloom_filters_of_encrypted_columns_are_left_out(tmp_path: Path) -> None:
    """One of a column that becomes encrypted, and one that Java's writer left in clear of one that was; others stay."""
    keys = OrcKeys()
    with pytest.raises(VerificationError, match="Bloom filter"):
        verify_orc(file("java_bloom"), retrieve_key=keys)
    before = verify_orc(file("java_bloom"), retrieve_key=keys, known=KnownColumns(will_encrypt=[]))
    assert "name has a Bloom filter in clear" in before.notes[0]
    done = rewrite_orc(file("java_bloom"), tmp_path / "p", retrieve_key=keys)
    assert len(done.notes) == 1 and "the Bloom filter of name was left out" in done.notes[0]
    verify_orc(tmp_path / "p", equal_to=before.digests)
    plain = verify_orc(tmp_path / "p", known=KnownColumns(will_encrypt=[("id",)]))
    assert blooms(tmp_path / "p") == {"id"}
    done = rewrite_orc(tmp_path / "p", tmp_path / "e", encryption=keys.encryption(["id"]))
    assert "the Bloom filter of id was left out" in done.notes[0] and not blooms(tmp_path / "e")
    verify_orc(tmp_path / "e", retrieve_key=keys, equal_to=plain.digests)
    with pytest.raises(VerificationError, match="another in bloom_filters"):
        verify_orc(tmp_path / "e", retrieve_key=keys, equal_to=before.digests)


def blooms(path: Path) -> set[str]:
    """Return the columns that have Bloom filters."""
    tail = read_tail(path)
    with open_source(path) as opened:
        footers = [read_stripe_footer(opened, tail, stripe) for stripe in tail.stripes]
    found = {stream.column for footer in footers for stream in footer.streams if stream.kind in BLOOM_FILTERS}
    return {join_dotted(tail.columns[number].path) for number in found}


def test_other_masks_are_refused_but_for_decryption(tmp_path: Path) -> None:
    """A sha256 mask cannot be made without decoding; plaintext needs none."""
    keys = OrcKeys()
    with pytest.raises(UnsupportedFileError, match=r"java_sha256\.orc: name stands in clear masked by sha256"):
        rewrite_orc(file("java_sha256"), tmp_path / "e", retrieve_key=keys, encryption=keys.encryption(["name"]))
    rewrite_orc(file("java_sha256"), tmp_path / "p", retrieve_key=keys)
    verify_orc(tmp_path / "p", equal_to=verify_orc(file("java_sha256"), retrieve_key=keys).digests)


def test_an_encrypted_file_needs_its_keys(tmp_path: Path) -> None:
    """Without any the error says what to pass."""
    with pytest.raises(ConfigError, match="no key is given"):
        rewrite_orc(file("java_zlib_encrypted"), tmp_path / "p")
    assert not list(tmp_path.iterdir())


def test_files_of_acid_tables_are_refused(tmp_path: Path) -> None:
    """By their columns."""
    names = ("operation", "originalTransaction", "bucket", "rowId", "currentTransaction")
    table = pa.table({**{name: [1, 2] for name in names}, "row": [{"a": 1}, {"a": 2}]})
    pyarrow.orc.write_table(table, tmp_path / "s")
    with pytest.raises(UnsupportedFileError, match="ACID"):
        rewrite_orc(tmp_path / "s", tmp_path / "e", encryption=OrcKeys().encryption(["row"]))


def test_rewrapped_keys_lie_over_the_same_data(tmp_path: Path) -> None:
    """Every byte before the footer stays; wrapped keys and names of master keys are new."""
    keys, asked = OrcKeys(), []

    def wrap(request: KeyRequest, key: bytes) -> tuple[bytes, str]:
        asked.append(request.column)
        wrapped = f"again {len(asked)}, and longer than it was".encode()
        keys.made[wrapped] = key
        return wrapped, "pii:new"

    source = file("java_zlib_encrypted")
    rewrap_orc(source, tmp_path / "r", retrieve_key=keys, wrap_key=wrap)
    assert sorted(join_dotted(column or ()) for column in asked) == ["dec", "li._elem.n", "name", "st.y", "ts"]
    end = read_tail(source).footer_offset
    assert (tmp_path / "r").read_bytes()[:end] == source.read_bytes()[:end]
    before = verify_orc(source, retrieve_key=keys)
    found = verify_orc(tmp_path / "r", retrieve_key=keys, equal_to=before.digests)
    assert set(found.columns.values()) == {"pii:new"} and ("name",) in found.columns and ("id",) not in found.columns
    wrapped = {variant.encrypted_key for variant in read_tail(tmp_path / "r").encryption.variants}  # type: ignore[union-attr]
    assert wrapped <= keys.made.keys() and len(wrapped) == 5
    with pytest.raises(ConfigError, match="not encrypted"):
        rewrap_orc(file("java_zlib"), tmp_path / "x", retrieve_key=keys, wrap_key=wrap)


def test_a_target_appears_whole_with_its_sources_mode(tmp_path: Path) -> None:
    """What is there is never replaced; a failure half-way leaves nothing."""
    source = tmp_path / "s"
    source.write_bytes(file("java_zlib").read_bytes())
    source.chmod(0o640)
    rewrite_orc(source, tmp_path / "e", encryption=OrcKeys().encryption(["name"]))
    assert stat.S_IMODE((tmp_path / "e").stat().st_mode) == 0o640
    with pytest.raises(ConfigError, match="is there already"):
        rewrite_orc(source, tmp_path / "e", encryption=OrcKeys().encryption(["name"]))
    data = bytearray(source.read_bytes())
    end = read_tail(source).stripes[1]
    data[end.footer_offset : end.end] = os.urandom(end.footer_length)
    with pytest.raises(FormatError):
        rewrite_orc(bytes(data), tmp_path / "damaged", encryption=OrcKeys().encryption(["name"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e", "s"]


@pytest.mark.parametrize("codec", ["uncompressed", "zlib"])
def test_masks_below_lists_say_where_row_groups_begin(tmp_path: Path, codec: str) -> None:
    """The positions of the mask lead to as many values as lists of the rows before have elements."""
    path = write_arrow(tmp_path / "s", compression=codec, row_index_stride=1000, stripe_size=1 << 26)
    rewrite_orc(path, tmp_path / "e", encryption=OrcKeys().encryption(["li._elem.n", "kv._value", "st.y"]))
    source = pyarrow.orc.read_table(path)
    lengths = {
        "li._elem.n": source.column("li").combine_chunks().value_lengths().fill_null(0).to_pylist(),
        "kv._value": [len(value) for value in source.column("kv").to_pylist()],
        "st.y": [int(value is not None) for value in source.column("st").to_pylist()],
    }
    tail = read_tail(tmp_path / "e")
    assert len(tail.stripes) == 1
    for column in tail.columns:
        if (name := join_dotted(column.path)) in lengths:
            counted = [sum(lengths[name][: group * 1000]) for group in range(40)]
            assert first_values(tmp_path / "e", column.number) == counted, name


def first_values(path: Path, column: int) -> list[int]:
    """Return to which value of a column in clear each entry of its row index leads, in PRESENT of full runs."""
    tail = read_tail(path)
    with open_source(path) as opened:
        footer = read_stripe_footer(opened, tail, tail.stripes[0])
        (stream,) = (
            candidate
            for candidate in footer.streams
            if (candidate.column, candidate.kind, candidate.variant) == (column, ROW_INDEX, None)
        )
        index = decode(read_stream_whole(opened, stream, None, tail.compression), "an index")
    positions = [decode(entry, "an entry").integers(1) for entry in index.read_repeated(1)]
    if tail.compression.codec != "none":
        positions = [position[1:] for position in positions]
    return [(offset // 2 * 130 + consumed) * 8 + bits for offset, consumed, bits, *_ in positions]
