from __future__ import annotations

import pytest

from sparkcrypt.skipping.format.description import field_name, object_name


def test_the_example_of_the_specification() -> None:
    """The specification's example comes out as it stands there."""
    assert field_name(["lat#_.$_new", "$_lng.#"], "someindex") == "lat##_$#$$_new_$_lng$#$##_someindex_14-10"


@pytest.mark.parametrize(
    ("columns", "kind", "version", "name"),
    [
        (["temp"], "minmax", 1, "temp_minmax"),
        (["a", "b.c"], "idx", 1, "a_b.c_idx"),
        (["temp"], "minmax", 2, "temp_minmax_4"),
        (["a.b"], "valuelist", 4, "a$#$b_valuelist_5"),
        (["naïve"], "bloomfilter", 4, "naïve_bloomfilter_5"),
        (["\U0001f600"], "bloomfilter", 4, "\U0001f600_bloomfilter_2"),
    ],
)
def test_each_version_names_fields_in_its_way(columns: list[str], kind: str, version: int, name: str) -> None:
    """Version 1 joins names; from version 2 on they are escaped, and their lengths follow, in Java's units."""
    assert field_name(columns, kind, version) == name


def test_no_two_indexes_have_one_field() -> None:
    """Columns whose names join to the same text have fields of their own."""
    names = [["a_b", "c"], ["a", "b_c"], ["a#b_c"], ["a.b_c"], ["a$#$b_c"], ["a", "b", "c"]]
    assert len({field_name(columns, "idx") for columns in names}) == len(names)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/t/a.parquet", "/t/a.parquet#5"),
        ("file:/t/a.parquet", "/t/a.parquet#5"),
        ("file:///t/a.parquet", "/t/a.parquet#5"),
        ("s3a://bucket/t/a.parquet", "/t/a.parquet#5"),
        ("hdfs://nn:8020/t/a.parquet", "/t/a.parquet#5"),
        ("/t/at=10:00/a#b.parquet", "/t/at=10:00/a#b.parquet#5"),
        ("hdfs://nn/t/at=10:00/a.parquet", "/t/at=10:00/a.parquet#5"),
    ],
)
def test_an_object_is_its_path_and_time(path: str, name: str) -> None:
    """Scheme and bucket are left out, as upstream does; a colon in a folder's name is none of a scheme."""
    assert object_name(path, 5) == name
