"""How files differ from their plan, in either format, and what follows of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import PlanError, UnsupportedFileError, VerificationError
from sparkcrypt.files.footers import FooterFacts, pack, unpack
from sparkcrypt.files.parquet import ColumnSummary, FileSummary
from sparkcrypt.files.parquet.file.footer import read_footer
from sparkcrypt.files.parquet.summary import NAMES, codecs_of
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.runs.rewrite.spark_engine import choose_codec
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.runs.table.columns import ColumnMatcher, FileColumns, find_inherited, match_columns, sum_up_inherited
from sparkcrypt.runs.table.difference import (
    Drift,
    drift_in_short,
    drift_of_file,
    drift_of_unknown,
    find_dark,
    find_dark_drift,
    refuse_dark,
    tell_none,
)
from sparkcrypt.runs.table.scan import scan_footers
from sparkcrypt.runs.table.target import Target
from sparkcrypt.runs.table.unit_survey import action_of, survey_unit
from sparkcrypt.runs.table.untouchable import refuse_unknown_columns, refuse_unreadable
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.tags.field_metadata import ColumnLineage
from tests.footers import keep_footers, unit_named
from tests.unit.backfill.plans import planned
from tests.unit.backfill.scanned_files import plain_file, scanned_file
from tests.unit.schema.message_types import fields_of, leaf


def test_each_kind_is_one_line_with_its_count_and_first_files() -> None:
    """A thousand files of one kind make one line, which names three; the kinds keep their order."""
    plain = [Drift("plaintext", f"/t/p={n}/f", None, "the file is not encrypted") for n in range(1000)]
    missing = [Drift("missing", "/t/a", column, f"plaintext, not {column!r}") for column in ("email", "ssn")]
    assert drift_in_short([*plain[:500], *missing, *plain[500:]]) == (
        "plaintext: 1,000 files: the file is not encrypted: /t/p=0/f, /t/p=1/f, /t/p=2/f and 997 more",
        "missing: 1 file in email, ssn: plaintext, not 'email': /t/a",
    )


def test_no_drift_is_no_line() -> None:
    """Nothing is said of nothing."""
    assert drift_in_short([]) == ()


def drift_in(file: FileSummary, table_uuid: str | None) -> tuple[Drift, ...]:
    """Return how a file differs from the plan."""
    return drift_of_file(scanned_file(file, match_columns(file, planned())), planned(), {}, table_uuid=table_uuid)


def test_columns_that_inherited_their_tags_are_no_drift_and_are_listed_once() -> None:
    """They need a note of their writer, and a table that never said anything of the column."""
    noted = ColumnLineage("ID", ("pii",), (("a.b", "ssn"),), inherited=("pii",))
    columns: dict[tuple[str, ...], ColumnSummary] = {(name,): ColumnSummary(True, "pii") for name in ("id", "email")}
    plan = planned()
    file = replace(dark_file(id="pii", email="pii"), columns=columns)
    matched = match_columns(file, plan)
    (inherited,) = find_inherited(file, matched, [noted])
    assert (inherited.path, inherited.key_id, inherited.origins) == (("id",), "pii", ("a.b.ssn",))
    assert [drift.column for drift in drift_of_file(scanned_file(file, matched), plan, {}, table_uuid=None)] == ["id"]
    assert drift_of_file(scanned_file(file, matched, inherited=(inherited,)), plan, {}, table_uuid=None) == ()
    (column,) = sum_up_inherited([inherited, replace(inherited, file="/t/g.parquet")])
    assert (column.column, column.files, column.tags, column.origins) == ("id", 2, ("pii",), ("a.b.ssn",))
    assert not list(find_inherited(file, matched, [replace(noted, inherited=())]))
    assert not list(find_inherited(file, matched, [replace(noted, column="email")]))


@pytest.mark.parametrize(
    "columns",
    [
        (("id",), ("EMAIL",)),
        (("id",), ("phones", "bag", "array_element")),
        (("id",), ("phones", "array")),
        (("ID",), ("Phones", "list", "item")),
    ],
)
def test_a_column_by_another_writers_name_is_drift(columns: tuple[tuple[str, ...], ...]) -> None:
    """A plaintext file whose tagged column differs by case, or in its list's groups, is not taken for done."""
    found = drift_in(plain_file(*columns), None)
    assert [difference.kind for difference in found] == ["plaintext"]


def test_a_column_that_the_table_lacks_is_refused_and_told() -> None:
    """What has no tag would stay in clear."""
    file, plan = plain_file(("email",), ("other",)), planned()
    matched = match_columns(file, plan)
    with pytest.raises(PlanError, match=rf"{file.path}: holds column other, which the table's schema"):
        refuse_unknown_columns([scanned_file(file, matched)])
    found = drift_of_unknown(scanned_file(file, matched), plan)
    assert [(drift.kind, drift.column) for drift in found] == [("unknown", "other")]
    assert action_of(found, rewrap=True) == action_of([*found, *drift_in(file, None)], rewrap=False) == "quarantine"
    assert not drift_of_unknown(scanned_file(dark_file(other="pii"), match_columns(dark_file(other="pii"), plan)), plan)
    nothing = replace(plan, columns=plan.columns[:1])  # without any tag
    assert not drift_of_unknown(scanned_file(file, match_columns(file, nothing)), nothing)


@pytest.mark.parametrize("nested", [("id", "element"), ("id", "key_value", "value"), ("email", "list", "element")])
def test_a_column_that_is_a_group_in_the_file_is_refused(nested: tuple[str, ...]) -> None:
    """Names of groups do not make a column the table's."""
    file = plain_file(nested)
    with pytest.raises(PlanError, match=rf"{file.path}: column {nested[0]} is read as a column of single values, but"):
        match_columns(file, planned())


def test_unit_is_surveyed_whatever_its_files_columns_are() -> None:
    """What cannot be read is named for itself, and a tag is not counted as done where a file's name for it differs."""
    half = replace(
        dark_file(id=None, email="pii", phones=None),
        path="/t/half",
        columns={("email",): ColumnSummary(True, "pii"), ("phones",): ColumnSummary(False, None)},
        fields=json.dumps([leaf("email"), leaf("phones", "repeated")]),
    )
    files = [half, replace(plain_file(("phones",)), path="/t/single")]
    plan = planned()
    target: Target = type("Planned", (), {"plan": plan, "format": "parquet", "uuid": None})()
    folder = Folder("", tuple(SourceFile(file.path, 100, 0) for file in files))
    unit = Unit("t", "/t", None, "", {}, (folder,))
    scanned = scan_footers(unit, {file.path: FooterFacts(file, {}) for file in files}, target)
    survey = survey_unit(scanned, plan)
    assert {(drift.kind, drift.file, drift.column) for drift in scanned.drift} == {
        ("missing", "/t/half", "phones"),
        ("unreadable", "/t/single", None),
    }
    assert {action: amount.files for action, amount in survey.actions.items()} == {"encrypt": 1, "quarantine": 1}
    assert survey.coverage["pii"].matching.files == 0
    with pytest.raises(VerificationError, match="/t/single: column phones is read as a list, but"):
        refuse_unreadable(scanned)


def test_a_column_that_is_the_tables_by_another_writers_name_is_not_lost() -> None:
    """Case and the names of a list's groups are the writer's."""
    file = plain_file(("ID",), ("phones", "bag", "array_element"))
    refuse_unknown_columns([scanned_file(file, match_columns(file, planned()))])


def test_files_of_equal_columns_are_matched_once_and_others_for_themselves() -> None:
    """What one file's columns are says nothing of a file with other columns, or of one that is refused."""
    matcher, plan = ColumnMatcher(planned()), planned()
    files = [plain_file(("id",), ("email",)), plain_file(("id",), ("EMAIL",)), plain_file(("id",), ("other",))]
    found = [matcher.match(file) for file in files]
    assert found == [match_columns(file, plan) for file in files]
    assert matcher.match(replace(files[0], path="/t/g.parquet")) is found[0]
    for name in ("/t/one.parquet", "/t/two.parquet"):
        with pytest.raises(PlanError, match=name):
            matcher.match(replace(plain_file(("phones", "a"), ("phones", "b")), path=name))


def test_untagged_columns_alone_are_no_drift() -> None:
    """A file that holds none of the tagged columns needs no encryption."""
    assert drift_in(plain_file(("id",), ("other",)), None) == ()


def test_a_column_nested_unlike_the_tables_is_refused() -> None:
    """A struct where the table has a list could hide a column from its tag, so it is no file of the table."""
    with pytest.raises(PlanError, match="phones"):
        drift_in(plain_file(("phones", "a"), ("phones", "b")), None)


KEYS = {"id": None, "email": "pii", "phones": "pii"}
PREFIX = FileIdentity("1" * 32, "p=1", "f.parquet").to_aad_prefix()


def encrypted_file(
    footer: str = "footer", prefix: bytes | None = PREFIX, algorithm: Any = "AES_GCM_V1", **keys: str | None
) -> FileSummary:
    """Return the summary of a file with these keys for its columns, None for plaintext."""
    columns: dict[tuple[str, ...], ColumnSummary] = {
        (name,) if name != "phones" else (name, "list", "element"): ColumnSummary(key is not None, key)
        for name, key in {**KEYS, **keys}.items()
    }
    plain = plain_file()
    return replace(
        plain,
        path="/t/p=1/f.parquet",
        footer="encrypted",
        algorithm=algorithm,
        footer_key=footer,
        aad_prefix=prefix,
        columns=columns,
        fields=json.dumps(fields_of(columns)),
    )


@pytest.mark.parametrize(
    ("file", "kinds", "only_keys"),
    [
        (encrypted_file(), [], False),
        (encrypted_file(email="old"), ["wrong_key"], True),
        (encrypted_file(footer="old", email="old2", phones="old3"), ["wrong_key"] * 3, True),
        (encrypted_file(footer="old"), ["wrong_key"], True),
        (encrypted_file(email="footer"), ["wrong_key"], False),  # it may have no data key of its own
        (encrypted_file(footer="pii", email="pii"), ["wrong_key"], False),  # so may this one, which is as planned
        (encrypted_file(email="old", id="old"), ["extra", "wrong_key"], False),
        (encrypted_file(email="old", phones=None), ["wrong_key", "missing"], False),
        (encrypted_file(email="old", algorithm="AES_GCM_CTR_V1"), ["wrong_algorithm", "wrong_key"], False),
        (encrypted_file(email="old", prefix=None), ["aad_mismatch", "wrong_key"], False),
        (encrypted_file(email="old", prefix=PREFIX.replace(b"f.", b"g.")), ["aad_mismatch", "wrong_key"], False),
    ],
)
def test_only_keys_differ_where_data_keys_can_stay(file: FileSummary, kinds: list[str], only_keys: bool) -> None:
    """Not where a column, its data or the file's identity differ too, and not where a column may lack a key."""
    drift = drift_in(file, "1" * 32)
    assert [difference.kind for difference in drift] == kinds
    assert [difference.only_keys for difference in drift] == [only_keys] * len(kinds)
    assert all(action_of(drift, rewrap=False) != "re-wrap" for _ in drift)
    assert not drift or (action_of(drift, rewrap=True) == "re-wrap") == only_keys


def dark_file(**columns: str | None) -> FileSummary:
    """Return the summary of an encrypted file, with a key or plaintext for each column."""
    made: dict[tuple[str, ...], ColumnSummary] = {
        (name,) if name != "phones" else (name, "list", "element"): ColumnSummary(key is not None, key)
        for name, key in columns.items()
    }
    plain = plain_file(*made)
    return replace(plain, footer="encrypted", footer_key="footer", algorithm="AES_GCM_V1", columns=made)


def test_dark_columns_are_those_of_shredded_keys_alone() -> None:
    """A key that nobody says was shredded makes no column dark, and neither does the footer's, which was opened."""
    file = dark_file(id=None, email="old", phones="footer")
    assert find_dark(file, lambda key_ids: [key for key in key_ids if key == "old"]) == {("email",): "old"}
    assert find_dark(file, lambda _: ["other"]) == find_dark(file, tell_none) == {}
    assert find_dark(file, lambda key_ids: key_ids) == {("email",): "old"}
    with pytest.raises(UnsupportedFileError, match=r"f: new keys would need .*: email \(key 'old'\); do this; nothing"):
        refuse_dark("f", {("email",): "old"}, "new keys", "do this")
    refuse_dark("f", {}, "new keys", "do this")


def test_dark_column_asks_for_nothing() -> None:
    """Whatever is planned for it; other columns of the file, and the file itself, are judged as ever."""
    plan = planned()
    for email in ("old", None):
        file = dark_file(id=None, email=email)
        found = drift_of_file(scanned_file(file, match_columns(file, plan)), plan, {}, table_uuid=None)
        assert [(drift.kind, drift.column) for drift in found] == [("wrong_key" if email else "missing", "email")]
    file = dark_file(id="pii", email="old")
    matched, email_alone = match_columns(file, plan), {("email",): "old"}
    found = drift_of_file(scanned_file(file, matched, dark=email_alone), plan, {}, table_uuid=None)
    assert [(drift.kind, drift.column) for drift in found] == [("extra", "id")]
    other = replace(dark_file(email="old"), footer_key="former")
    found = drift_of_file(scanned_file(other, match_columns(other, plan), dark=email_alone), plan, {}, table_uuid=None)
    assert [(drift.kind, drift.column, drift.key_id) for drift in found] == [("wrong_key", None, "former")]


def test_purged_column_is_left_alone_while_its_key_is_planned() -> None:
    """Nulls under the footer's key stand for the key that the footer names; any other difference is told."""
    plan = planned()

    def kinds(file: FileSummary) -> list[tuple[str, str | None]]:
        found = drift_of_file(scanned_file(file, match_columns(file, plan)), plan, {}, table_uuid=None)
        return [(drift.kind, drift.column) for drift in found]

    file = dark_file(id=None, email="footer")
    assert kinds(file) == [("wrong_key", "email")]
    assert kinds(replace(file, purged={("email",): "pii"})) == []
    assert kinds(replace(file, purged={("email",): "former"})) == [("wrong_key", "email")]
    assert kinds(replace(dark_file(email="other"), purged={("email",): "pii"})) == [("wrong_key", "email")]
    assert kinds(replace(dark_file(email=None, phones="pii"), purged={("email",): "pii"}))[:1] == [("missing", "email")]


def test_dark_column_is_planned_where_it_is_to_be_purged() -> None:
    """Each is one difference with its key, and its file is purged, whatever else is to be done with it."""
    file = replace(dark_file(email="old"), path="/t/f.parquet")
    dark = scanned_file(file, FileColumns({}, ()), dark={("email",): "old"})
    found = tuple(find_dark_drift([dark]))
    assert [(drift.kind, drift.column, drift.key_id) for drift in found] == [("dark", "email", "old")]
    more = Drift("missing", "/t/f.parquet", "id", "plaintext")
    assert action_of(found, rewrap=True) == action_of([*found, more], rewrap=False) == "purge"
    assert action_of([*found, Drift("unreadable", "/t/f.parquet", None, "torn")], rewrap=False) == "quarantine"


def test_footers_travel_with_what_was_purged() -> None:
    """Facts that are packed for tasks and for the cache say it, and so do footers, as far as it is well-formed."""
    file = replace(dark_file(email="footer"), purged={("email",): "old"}, wrappings=())
    facts = FooterFacts(file, {"SNAPPY": 1})
    assert unpack(pack({file.path: facts})) == {file.path: facts}


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_the_codec_of_a_file_is_read_from_its_footer(tmp_path: Path, codec: str) -> None:
    """Every codec that another writer has is known by its name; what pyarrow calls LZ4 is the raw one."""
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    pq.write_table(table, tmp_path / "f", compression=codec, row_group_size=2)
    name = {"none": "uncompressed", "lz4": "lz4_raw"}.get(codec, codec)
    assert codecs_of(read_footer(tmp_path / "f")) == {name: 4}


def test_the_numbers_are_those_of_the_specification() -> None:
    """CompressionCodec in parquet.thrift: LZO is 3, LZ4 5, LZ4_RAW 7."""
    assert (NAMES.index("lzo"), NAMES.index("lz4"), NAMES.index("lz4_raw")) == (3, 5, 7)


def test_one_codec_is_taken_without_a_word() -> None:
    """Where every column chunk has it, nothing is to be told."""
    assert choose_codec([{"gzip": 2}, {"gzip": 7}]) == ("gzip", None)


def test_of_several_the_most_common_is_taken_and_told() -> None:
    """Column chunks are counted over all files; the note says how many have which; a tie goes by name."""
    codec, note = choose_codec([{"zstd": 2}, {"snappy": 3}, {"gzip": 1, "zstd": 2}])
    assert codec == "zstd"
    assert "zstd (4), snappy (3), gzip (1); all new ones have zstd" in (note or "")
    assert choose_codec([{"zstd": 1, "gzip": 1}])[0] == "gzip"


@pytest.mark.parametrize(
    ("codecs", "word"),
    [([], "do not show theirs"), ([{}], "do not show theirs"), ([{"brotli": 1}], "cannot write brotli")],
)
def test_what_cannot_be_kept_is_told(codecs: list[dict[str, int]], word: str) -> None:
    """A hidden codec, and one that Spark does not write, is left to Spark, and the report says so."""
    codec, note = choose_codec(codecs)
    assert codec is None
    assert word in (note or "")


INSIDE = FileSummary(
    *("a", "encrypted", "AES_GCM_V1", "footer", None, False, None, 1, 1, {}), wrappings=(Wrapping("footer", 1, "f"),)
)
BESIDE = replace(INSIDE, path="b", external_material=True)


def test_material_beside_a_file_is_read_anew(tmp_path: Path) -> None:
    """A file's stamp tells nothing of the file of key material beside it, which others may rotate; both are counted."""
    cache = FooterCache(LocalStateStore(tmp_path), "id")
    sources = [SourceFile("a", 10, 1), SourceFile("b", 10, 1)]
    found = {"a": FooterFacts(INSIDE, {}), "b": FooterFacts(BESIDE, {})}
    keep_footers(cache, "unit", sources, found)
    assert cache.find_known([unit_named("unit", sources)]) == {"unit": {"a": found["a"]}}
    assert [dict(facts) for _, _, facts in cache.read_all()] == [found]


def test_packed_facts_say_where_the_material_is() -> None:
    """What tasks tell the driver holds it."""
    facts = {"a": FooterFacts(INSIDE, {}), "b": FooterFacts(BESIDE, {})}
    assert unpack(pack(facts)) == facts
