from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.files.parquet import read_footer, verify_file
from sparkcrypt.files.parquet.thrift.compact import BINARY, I32, I64, STRUCT, List, Struct, encode_struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    OffsetIndex,
    PageHeader,
    PageLocation,
    RowGroup,
    SchemaElement,
    Statistics,
)
from sparkcrypt.files.parquet.verify.digest import DIGEST_PARTS, ContentDigest, combined_digest
from tests.unit.parquet.writers import ALGORITHMS, FOOTER_MODES, Keys, table, write_encrypted, write_uniform

KEY = b"0123456789abcdef"
WRITING: dict[str, Any] = {"row_group_size": 100, "write_page_index": True, "max_rows_per_page": 30}


def write_plain(path: Path, rows: pa.Table | None = None, **options: Any) -> Path:
    """Write the table, or another, as `write_encrypted` does but without encryption."""
    pq.write_table(table() if rows is None else rows, path, **{**WRITING, **options})
    return path


def with_footer(path: Path, change: Callable[[FileMetaData], object]) -> bytes:
    """Return a plaintext file whose footer was changed."""
    footer, data = read_footer(path), path.read_bytes()
    assert footer.metadata is not None
    change(footer.metadata)
    wire = encode_struct(footer.metadata.struct)
    return data[: footer.offset] + wire + len(wire).to_bytes(4, "little") + b"PAR1"


def differing(path: Path, changed: bytes) -> list[str]:
    """Return the parts in which a changed file differs."""
    before, after = verify_file(path), verify_file(changed)
    assert (before.digest == after.digest) == (before.digests == after.digests)
    return [part for part in DIGEST_PARTS if before.digests[part] != after.digests[part]]


@pytest.mark.parametrize("plaintext_footer", FOOTER_MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_encryption_does_not_change_the_digest(
    tmp_path: Path, plaintext_footer: bool, algorithm: str, version: str
) -> None:
    """A file has the same digest in clear and under every algorithm and footer mode, with V1 and V2 pages."""
    plain = verify_file(write_plain(tmp_path / "plain", data_page_version=version))
    path = write_encrypted(
        tmp_path / "encrypted",
        plaintext_footer=plaintext_footer,
        algorithm=algorithm,
        **{**WRITING, "data_page_version": version},
    )
    found = verify_file(path, retrieve_key=Keys(), equal_to=plain.digest)
    assert (found.digest, found.digests) == (plain.digest, plain.digests)
    verify_file(tmp_path / "plain", equal_to=found.digests)


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "lz4", "gzip", "brotli"])
@pytest.mark.parametrize("checksums", [False, True])
def test_checksums_and_one_key_for_all_do_not_change_the_digest(tmp_path: Path, codec: str, checksums: bool) -> None:
    """CRCs are left out, and a uniformly encrypted file has the digest of the plaintext one, whatever the codec."""
    plain = verify_file(write_plain(tmp_path / "plain", compression=codec, write_page_checksum=checksums))
    pq.write_table(
        table(),
        tmp_path / "encrypted",
        encryption_properties=write_uniform.__globals__["pe"].create_encryption_properties(KEY),
        **{**WRITING, "compression": codec},
    )
    verify_file(tmp_path / "encrypted", retrieve_key=lambda _: KEY, equal_to=plain.digest)


CHANGED_TABLES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "one value": (lambda t: t.set_column(0, "id", pa.array([7, *range(1, 300)])), "pages"),
    "two rows swapped": (lambda t: t.take([1, 0, *range(2, 300)]), "pages"),
    "row groups swapped": (lambda t: pa.concat_tables([t[100:200], t[:100], t[200:]]), "pages"),
    "a column's name": (lambda t: t.rename_columns(["ID", *t.column_names[1:]]), "schema"),
    "key-value metadata": (lambda t: t.replace_schema_metadata({"owner": "me"}), "key_value_metadata"),
    "one row fewer": (lambda t: t[:299], "row_groups"),
}


@pytest.mark.parametrize("case", CHANGED_TABLES)
def test_other_content_has_another_digest(tmp_path: Path, case: str) -> None:
    """Every change of values, their order, names, metadata or rows changes the part that it belongs to."""
    change, part = CHANGED_TABLES[case]
    write_plain(tmp_path / "plain")
    write_plain(tmp_path / "changed", change(table()))
    assert part in differing(tmp_path / "plain", (tmp_path / "changed").read_bytes())


def statistics(metadata: FileMetaData) -> Struct:
    """Return the statistics of the first chunk."""
    meta_data = metadata.row_groups[0].columns[0].meta_data
    assert meta_data is not None and meta_data.statistics is not None
    return meta_data.statistics.struct


def unknown(struct: Struct) -> None:
    """Add a field from the future."""
    struct[field_key(99, I32)] = 1


CHANGED_FOOTERS: dict[str, tuple[Callable[[FileMetaData], object], list[str]]] = {
    "a bound": (lambda m: statistics(m).update({Statistics.max_value.key: bytes(8)}), ["columns"]),
    "a null count": (lambda m: statistics(m).update({Statistics.null_count.key: 3}), ["columns"]),
    "an unknown field of the footer": (lambda m: unknown(m.struct), ["footer"]),
    "an unknown field of a row group": (lambda m: unknown(m.row_groups[1].struct), ["row_groups"]),
    "an unknown field of a chunk": (lambda m: unknown(m.row_groups[1].columns[2].struct), ["columns"]),
    "the version": (lambda m: m.struct.update({FileMetaData.version.key: 1}), ["footer"]),
    "a field id": (lambda m: m.schema[1].struct.update({SchemaElement.field_id.key: 77}), ["schema"]),
    "sorting columns": (
        lambda m: m.row_groups[0].struct.update(
            {RowGroup.sorting_columns.key: List(STRUCT, [Struct({field_key(1, I32): 0})])}
        ),
        ["sorting_columns"],
    ),
    "no column index": (
        lambda m: [
            m.row_groups[0].columns[0].struct.pop(key)
            for key in (ColumnChunk.column_index_offset.key, ColumnChunk.column_index_length.key)
        ],
        ["column_indexes"],
    ),
    "no offset index": (
        lambda m: [
            m.row_groups[0].columns[0].struct.pop(key)
            for key in (ColumnChunk.offset_index_offset.key, ColumnChunk.offset_index_length.key)
        ],
        ["offset_indexes"],
    ),
    "who wrote it": (lambda m: m.struct.update({FileMetaData.created_by.key: b"me"}), []),
    "ordinals": (lambda m: [g.struct.pop(RowGroup.ordinal.key, None) for g in m.row_groups], []),
    "our own keys": (
        lambda m: m.struct.update(
            {
                FileMetaData.key_value_metadata.key: List(
                    STRUCT,
                    [
                        *m.struct.get(FileMetaData.key_value_metadata.key, ()),  # type: ignore[misc]
                        *(
                            Struct({KeyValue.key.key: name, KeyValue.value.key: b"x"})
                            for name in (b"sparkcrypt.policy.digest", b"original.created.by")
                        ),
                    ],
                )
            }
        ),
        [],
    ),
    "encodings that the pages tell": (
        lambda m: [
            chunk.meta_data.struct.pop(ColumnMetaData.encoding_stats.key, None)
            for group in m.row_groups
            for chunk in group.columns
            if chunk.meta_data is not None
        ],
        [],
    ),
}


@pytest.mark.parametrize("case", CHANGED_FOOTERS)
def test_changed_footers_differ_in_their_part(tmp_path: Path, case: str) -> None:
    """Each field of the footer belongs to one part, or, as what a rewrite may change, to none."""
    change, parts = CHANGED_FOOTERS[case]
    path = write_plain(tmp_path / "plain")
    assert differing(path, with_footer(path, change)) == parts


def test_another_content_is_refused_by_part_and_without_digests(tmp_path: Path) -> None:
    """The error names the parts that differ, and no digest; parts that are not asked for may differ."""
    path = write_plain(tmp_path / "plain")
    found = verify_file(path)
    changed = with_footer(path, lambda m: statistics(m).update({Statistics.null_count.key: 3}))
    with pytest.raises(VerificationError, match=r"<bytes>: .* expected in: columns;") as raised:
        verify_file(changed, equal_to=found.digests)
    with pytest.raises(VerificationError, match="in: digest;") as whole:
        verify_file(changed, equal_to=found.digest)
    texts = str(raised.value) + str(whole.value)
    assert not any(digest in texts for digest in (*found.digests.values(), *verify_file(changed).digests.values()))
    verify_file(changed, equal_to={part: found.digests[part] for part in DIGEST_PARTS if part != "columns"})
    with pytest.raises(ConfigError, match=r"'pagse'.*allowed: schema, "):
        verify_file(path, equal_to={"pagse": ""})


def test_keyed_digests_need_the_key(tmp_path: Path) -> None:
    """Under a key the digests of the same file are others, in every part, and compare under that key only."""
    path = write_plain(tmp_path / "plain")
    bare, keyed, other = (verify_file(path, digest_key=key) for key in (None, b"k" * 32, b"K" * 32))
    for part in DIGEST_PARTS:
        assert len({found.digests[part] for found in (bare, keyed, other)}) == 3
    assert verify_file(path, digest_key=b"k" * 32, equal_to=keyed.digest).digest == keyed.digest
    with pytest.raises(VerificationError):
        verify_file(path, equal_to=keyed.digest)
    assert keyed.digest == combined_digest(keyed.digests, b"k" * 32) != combined_digest(keyed.digests)


def header(**fields: int) -> Struct:
    """Return a page header of those fields."""
    keys = {"type": 1, "uncompressed": 2, "compressed": 3, "crc": 4}
    return Struct({field_key(keys[name], I32): value for name, value in fields.items()})


def _one_page(*args: Any, key: bytes | None = None) -> str:
    """Return the digest of one page."""
    found = ContentDigest(key)
    found.page(*args)
    return found.digest()


@pytest.mark.parametrize("key", [None, b"k" * 32])
def test_pages_are_told_apart_by_place_type_and_body(key: bytes | None) -> None:
    """Another place, type, length in memory or byte is another page; another stored size or CRC, or a cut, is not."""
    one_page = partial(_one_page, key=key)
    known = one_page(0, 0, header(type=0, uncompressed=6, compressed=6), b"values")
    same = [
        one_page(0, 0, header(type=0, uncompressed=6, compressed=38, crc=5), b"values"),
        one_page(0, 0, header(type=0, uncompressed=6, compressed=6), b"val", memoryview(b"ues")),
    ]
    others = [
        one_page(1, 0, header(type=0, uncompressed=6, compressed=6), b"values"),
        one_page(0, 1, header(type=0, uncompressed=6, compressed=6), b"values"),
        one_page(0, 0, header(type=3, uncompressed=6, compressed=6), b"values"),
        one_page(0, 0, header(type=0, uncompressed=7, compressed=6), b"values"),
        one_page(0, 0, header(type=0, uncompressed=6, compressed=6), b"valueS"),
        one_page(0, 0, header(type=0, uncompressed=6, compressed=6), b"values", b"\x00"),
    ]
    assert set(same) == {known}
    assert len({known, *others}) == 1 + len(others)
    assert PageHeader.crc.key == field_key(4, I32)


@pytest.mark.parametrize("key", [None, b"k" * 32])
def test_pages_keep_their_order(key: bytes | None) -> None:
    """Two pages of one chunk in each other's place are other content, and so is one of them twice."""
    digests = set()
    for bodies in ([b"a", b"b"], [b"b", b"a"], [b"a", b"a"], [b"b", b"b"], [b"a"], [b""], []):
        found = ContentDigest(key)
        for body in bodies:
            found.page(0, 0, header(type=0, uncompressed=1, compressed=1), body)
        digests.add(found.digest())
    assert len(digests) == 7


def test_encrypted_files_have_the_keyed_digest_of_the_plain_one(tmp_path: Path) -> None:
    """Under a key, too, encryption does not change the digest, parquet-mr's levels in clear included."""
    plain = verify_file(write_plain(tmp_path / "plain", data_page_version="2.0"), digest_key=b"k" * 32)
    path = write_encrypted(tmp_path / "encrypted", **{**WRITING, "data_page_version": "2.0"})
    verify_file(path, retrieve_key=Keys(), digest_key=b"k" * 32, equal_to=plain.digests)
    levels = [(b"lv", b"values"), (memoryview(b"lvvalues"),), (b"", b"lvvalues")]
    pages = {_one_page(0, 0, header(type=3, uncompressed=8, compressed=8), *body, key=KEY) for body in levels}
    assert len(pages) == 1


def test_indexes_and_filters_count_but_not_where_pages_lie() -> None:
    """Offsets and stored lengths of an offset index may change; rows, bounds, bits and places may not."""

    def location(offset: int, size: int, row: int) -> Struct:
        return Struct(
            {PageLocation.offset.key: offset, PageLocation.compressed_page_size.key: size}
            | {PageLocation.first_row_index.key: row}
        )

    def offset_index(*locations: Struct) -> str:
        found = ContentDigest()
        found.offset_index(0, 0, Struct({OffsetIndex.page_locations.key: List(STRUCT, locations)}))
        return found.digest()

    assert offset_index(location(4, 9, 0)) == offset_index(location(400, 41, 0))
    assert len({offset_index(location(4, 9, row)) for row in range(3)} | {offset_index()}) == 4
    found = []
    for place, bits in ((0, b"\x01"), (1, b"\x01"), (0, b"\x02")):
        digest = ContentDigest()
        digest.bloom_filter(0, place, Struct({field_key(1, I32): 1}), bits)
        found.append(digest.digest())
    for bound in (b"a", b"b"):
        digest = ContentDigest()
        digest.column_index(0, 0, Struct({field_key(2, 9): List(BINARY, [bound])}))
        found.append(digest.digest())
    assert len(set(found)) == 5
    assert PageLocation.offset.key == field_key(1, I64)
