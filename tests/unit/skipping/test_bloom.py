from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.skipping.format.bloom import OWNERS, BloomFilter, pack_filter, unpack_filter
from sparkcrypt.skipping.format.description import BLOOM
from tests.services.installed import java_home, spark_home
from tests.unit.skipping.footers import entry_of, file_of, index_of

JAVA = Path(__file__).parent / "java" / "Filters.java"
BASES = ("0x603f5d1b7b764446L", "0xf7b012bf742b86a4L")
CLASSES = """package {package};
public final class BloomFilterMetaData extends MetadataType {{
  private static final long serialVersionUID = 1L;
  public final org.apache.spark.util.sketch.BloomFilter bloomFilter;
  public BloomFilterMetaData(org.apache.spark.util.sketch.BloomFilter filter) {{ this.bloomFilter = filter; }}
}}
abstract class MetadataType implements java.io.Serializable {{
  private static final long serialVersionUID = {uid};
}}
"""
CHANCE = random.Random(15)
TEXTS = ["", "a", "häß", "日本語", "\U0001f600", "x" * 37, "\x00\xff", *(f"user-{number}" for number in range(60))]
LONGS = [0, -1, 1, 2**63 - 1, -(2**63), *(CHANCE.randrange(-(2**40), 2**40) for _ in range(60))]
PUT: list[int | str] = [*TEXTS, *LONGS]
PROBES: list[int | str] = [
    *PUT,
    *(CHANCE.randrange(-(2**63), 2**63) for _ in range(500)),
    *(f"nobody-{number}-ü" for number in range(500)),
]


def line(value: int | str) -> str:
    """Return a value as the Java program reads it."""
    return f"L{value}" if isinstance(value, int) else "S" + base64.b64encode(value.encode()).decode()


def answers(filter_: BloomFilter) -> str:
    """Return what a filter says of each probe."""
    return "".join("1" if filter_.may_hold(value) else "0" for value in PROBES)


def made(values: int, share: float) -> BloomFilter:
    """Return a filter of our own with all values."""
    filter_ = BloomFilter.for_values(values, share)
    for value in PUT:
        filter_.add(value)
    return filter_


def of_pages(values: list[Any]) -> bytes:
    """Return the filter of a data file with these values in several row groups, some of them twice."""
    column = pa.array([*values, None, *values[:9]])
    kind = "string" if isinstance(values[0], str) else "long"
    entry = entry_of(file_of(column, row_group_size=7), index_of(BLOOM, kind))
    assert isinstance(entry, bytes)
    return entry


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark's own classes made, and what they said of our filters."""
    folder = tmp_path_factory.mktemp("filters")
    (folder / "put.txt").write_text("\n".join(map(line, PUT)))
    (folder / "probes.txt").write_text("\n".join(map(line, PROBES)))
    for values, share in ((1, 0.5), (130, 0.01), (5000, 0.0001)):
        (folder / f"{values}.ours").write_bytes(made(values, share).to_bytes())
    for name, column in (("texts", TEXTS), ("longs", LONGS)):
        (folder / f"{name}.ours").write_bytes(of_pages([*column]))
    sources = [JAVA]
    for owner, uid in zip(OWNERS, BASES, strict=True):
        package = owner.rpartition(".")[0]
        source = folder / "java" / package.replace(".", "/") / "BloomFilterMetaData.java"
        source.parent.mkdir(parents=True)
        source.write_text(CLASSES.format(package=package, uid=uid))
        sources.append(source)
    classpath = f"{folder / 'classes'}:{spark_home() / 'jars'}/*"
    binaries = java_home() / "bin"
    subprocess.run([binaries / "javac", "-cp", classpath, "-d", folder / "classes", *sources], check=True)
    subprocess.run([binaries / "java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Filters", folder], check=True)
    return folder


@pytest.mark.slow
def test_sparks_filters_say_the_same_here(folder: Path) -> None:
    """Filters of both versions and both owners are read, and say of 1,000 values what they say in the JVM."""
    files = sorted(folder.glob("*.spark"))
    assert len(files) == 16
    for file in files:
        filter_ = BloomFilter.of_bytes(file.read_bytes())
        assert filter_ is not None
        assert answers(filter_) == (folder / f"{file.name}.answers").read_text(), file.name


@pytest.mark.slow
def test_the_jvm_reads_what_is_written_here(folder: Path) -> None:
    """Java's own deserialisation takes our bytes, and the filter says there what it says here."""
    files = sorted(folder.glob("*.ours"))
    assert len(files) == 5
    for file in files:
        filter_ = BloomFilter.of_bytes(file.read_bytes())
        assert filter_ is not None
        assert answers(filter_) == (folder / f"{file.name}.answers").read_text(), file.name
        assert filter_.to_bytes() == file.read_bytes()


def test_the_filter_of_a_file_holds_its_values(folder: Path) -> None:
    """A filter made of pages holds each value of theirs, here and, by the test before, in the JVM, and few others."""
    for name, values in (("texts", TEXTS), ("longs", LONGS)):
        filter_ = BloomFilter.of_bytes((folder / f"{name}.ours").read_bytes())
        assert filter_ is not None
        assert all(filter_.may_hold(value) for value in values)
        assert sum(filter_.may_hold(value) for value in PROBES if value not in values) < 40
        assert (folder / f"{name}.ours.answers").read_text().count("1") < len(values) + 40


def test_a_filter_has_the_size_that_spark_gives_it() -> None:
    """The default of upstream, 100,000 values at 1 %, takes 14,977 words; the header is that of Spark 3.1."""
    data = BloomFilter.for_values(100_000, 0.01).to_bytes()
    assert len(data) == 120_725
    assert data[:54] == b"\xac\xed\x00\x05sr\x00.io.xskipper.index.metadata.BloomFilterMetaData"
    content = unpack_filter(data)
    assert content is not None and content[:12] == bytes.fromhex("000000010000000700003a81")


def test_few_other_values_pass() -> None:
    """A filter for 1 % takes about as many of other values, and never misses one that is in."""
    filter_ = made(len(PUT), 0.01)
    assert all(filter_.may_hold(value) for value in PUT)
    assert sum(filter_.may_hold(value) for value in PROBES[len(PUT) :]) < 30


def test_an_owner_without_a_filter_is_none() -> None:
    """A null where the filter should be says nothing of the object."""
    data = pack_filter(b"")
    assert BloomFilter.of_bytes(data[: data.index(b"sr\x00,org")] + b"p") is None


@pytest.mark.parametrize(
    "head",
    [
        "00000001 00000007 00000001",
        "00000001 00000007 00000003",
        "00000001 00000000 00000002",
        "00000001 00000401 00000002",
        "00000003 00000007 00000002",
        "00000001 00000007 ffffffff",
        "00000001 00000007",
    ],
)
def test_a_filter_that_says_other_than_it_has_is_refused(head: str) -> None:
    """Version, hashes and words must be those of a filter with the words that follow."""
    assert BloomFilter.of_bytes(pack_filter(bytes.fromhex("00000001 00000007 00000002") + b"\xff" * 16)) is not None
    with pytest.raises(FormatError, match="expected"):
        BloomFilter.of_bytes(pack_filter(bytes.fromhex(head) + b"\xff" * 16))


@pytest.mark.parametrize(("values", "share"), [(0, 0.01), (-1, 0.01), (10, 0.0), (10, 1.0), (10**9, 0.01)])
def test_impossible_filters_are_refused(values: int, share: float) -> None:
    """No values, no share, or more bytes than a store could hold are a configuration error."""
    with pytest.raises(ConfigError, match="allowed"):
        BloomFilter.for_values(values, share)


def test_version_2_is_only_read(folder: Path) -> None:
    """A filter of version 2 is not written: upstream's readers do not know it."""
    filter_ = BloomFilter.of_bytes((folder / "V2-1000-new.spark").read_bytes())
    assert filter_ is not None
    with pytest.raises(FormatError, match="version 1"):
        filter_.to_bytes()


def test_damaged_filters_are_refused_or_read(folder: Path) -> None:
    """Thousands of damaged filters, cut, changed and grown, give nothing but format errors."""
    chance = random.Random(6000)
    originals = [file.read_bytes() for file in sorted(folder.glob("*.spark")) if file.stat().st_size < 3000]
    assert len(originals) == 12
    read = 0
    for number in range(6000):
        data = bytearray(originals[number % len(originals)])
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(data)) if chance.random() < 0.3 else chance.randrange(min(len(data), 420))
            way = chance.randrange(4)
            if way == 0:
                data[at] = chance.randrange(256)
            elif way == 1:
                del data[at : at + chance.randrange(1, 40)]
            elif way == 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
            else:
                data[at : at + 4] = b"\x7f\xff\xff\xff"
        try:
            filter_ = BloomFilter.of_bytes(bytes(data))
            read += filter_ is not None and filter_.may_hold("a") in (True, False)
        except FormatError as error:
            assert "expected" in str(error)
    assert 0 < read < 5000
