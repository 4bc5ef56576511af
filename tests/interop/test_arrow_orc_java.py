"""Files of ORC's Java writer, read by row groups: times of other zones, and the statistics that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pytest

from sparkcrypt.files.orc.read.rows import GroupCount
from tests.unit.orc.java_orc import CODECS, JavaOrc, WriteOrder
from tests.unit.orc.reading import read_orc

pytestmark = pytest.mark.slow  # Java processes of their own
ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
TIMES = "struct<id:bigint,ts:timestamp,tz:timestamp with local time zone,li:array<timestamp>>"
FLAT = (
    "struct<id:bigint,b:boolean,t:tinyint,s:smallint,i:int,l:bigint,f:float,d:double,name:string,other:string,bin:binary,"
    "ts:timestamp,tz:timestamp with local time zone,dec:decimal(30,3),small:decimal(10,2),day:date,vc:varchar(20),"
    "ch:char(5),st:struct<x:int,y:string,deep:struct<z:string>>,li:array<struct<num:string,n:int>>>"
)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOrc]:
    """The writer, compiled."""
    with JavaOrc(tmp_path_factory.mktemp("java")) as program:
        yield program


def check_filters(path: Path) -> Iterator[int]:
    """Hold rows of filters by values of each flat column against pyarrow's; yields the number of groups left out."""
    plain = pa.orc.ORCFile(path).read()
    for name, kind in zip(plain.schema.names, plain.schema.types, strict=True):
        if pa.types.is_nested(kind) or pa.types.is_binary(kind):
            continue
        column, value, bounds = pc.field(name), plain[name].drop_null()[97], pc.min_max(plain[name])
        made = [column == value, column.is_null()]
        if not pa.types.is_boolean(kind):
            made += [column < value, ~(column < value), column >= bounds["max"], column <= bounds["min"]]
        for condition in made:
            count = GroupCount()
            found = read_orc(path, None, condition, count=count)
            assert found.equals(plain.filter(condition).select(found.column_names)), (name, condition)
            yield count.seen - count.read


@pytest.mark.parametrize("zone", ZONES)
def test_times_are_what_a_clock_showed_where_they_were_written(
    tmp_path: Path, java: JavaOrc, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summer and winter time, half hours, and no zone at all; filters by statistics lose none."""
    monkeypatch.setenv("TZ", zone)
    java.write([WriteOrder(tmp_path / "t", schema=TIMES, rows=6000, stride=1000)])
    assert read_orc(tmp_path / "t").equals(pa.orc.ORCFile(tmp_path / "t").read())
    assert sum(check_filters(tmp_path / "t")) > 0


def test_every_codec_and_type_is_read_by_row_groups(tmp_path: Path, java: JavaOrc) -> None:
    """All columns seek to the rows that are left, whichever the filter asks for."""
    order = WriteOrder(tmp_path / "x", schema=FLAT, rows=6000, stripe_rows=3500, stride=1000)
    orders = [replace(order, path=tmp_path / codec, codec=codec) for codec in CODECS]
    java.write(orders)
    for written in orders:
        assert sum(check_filters(written.path)) > 0


@pytest.mark.parametrize("version", ["V_0_11", "UNSTABLE_PRE_2_0"])
def test_files_of_other_versions_are_read(tmp_path: Path, java: JavaOrc, version: str) -> None:
    """Of Hive 0.11 with runs of its kind; and before ORC 2, with short decimals as integers of one scale."""
    schema = "struct<id:bigint,small:decimal(10,2),dec:decimal(30,3),longest:decimal(18,0),name:string>"
    java.write([WriteOrder(tmp_path / "v", schema=schema, rows=6000, stripe_rows=3500, version=version)])
    assert read_orc(tmp_path / "v").equals(pa.orc.ORCFile(tmp_path / "v").read())
    assert sum(check_filters(tmp_path / "v")) > 0
