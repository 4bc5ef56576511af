"""New files have the compression of the old ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.files.parquet import read_footer
from sparkcrypt.files.parquet.summary import codecs_of
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.rewrite.options import ENGINES, Engine
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, data_files, retriever
from tests.spark.tables import PARTITIONED, UNPARTITIONED

pytestmark = pytest.mark.spark


def fill(lake: Lake, create: str, *codecs: str) -> Policy:
    """Make a plaintext table of one file a codec, tag it, and return its policy."""
    with lake.stranger() as stranger:
        stranger.sql(create)
        for number, codec in enumerate(codecs):
            stranger.conf.set("spark.sql.parquet.compression.codec", codec)
            stranger.sql(f"INSERT INTO t VALUES ({number}, 'e', 'n'{f', {number}' if 'PARTITIONED' in create else ''})")
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy


def codecs(path: str | Path, policy: Policy) -> set[str]:
    """Return the codecs of all visible column chunks below a path."""
    found: Counter[str] = Counter()
    for file in data_files(path):
        found.update(codecs_of(read_footer(file, retrieve_key=retriever(policy))))
    return set(found)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("codec", ["gzip", "zstd", "uncompressed"])
def test_codec_survives(lake: Lake, codec: str, engine: Engine) -> None:
    """Whatever the session's own codec is, the table keeps its own."""
    policy = fill(lake, UNPARTITIONED["using"], codec)
    lake.spark.conf.set("spark.sql.parquet.compression.codec", "snappy")
    report = encrypt_table(lake.spark, "t", policy, engine=engine)
    assert codecs(lake.path("t"), policy) == {codec}
    assert report.units[0]["codec"] == codec
    assert not [warning for warning in report.warnings if "compression" in warning]


@pytest.mark.parametrize("engine", ENGINES)
def test_each_partition_keeps_its_own(lake: Lake, engine: Engine) -> None:
    """Units are told apart."""
    policy = fill(lake, PARTITIONED["using"], "gzip", "zstd")
    encrypt_table(lake.spark, "t", policy, engine=engine)
    staged = lake.root / "db" / ".sparkcrypt" / "t"
    found = {name: codecs(next(staged.rglob(name)), policy) for name in ("p=0", "p=1")}
    assert found == {"p=0": {"gzip"}, "p=1": {"zstd"}}


def test_of_mixed_codecs_the_most_common_is_kept_and_told(lake: Lake) -> None:
    """Two files of zstd and one of gzip become zstd, and the report says so."""
    policy = fill(lake, UNPARTITIONED["using"], "zstd", "gzip", "zstd")
    report = encrypt_table(lake.spark, "t", policy, engine="spark")
    assert codecs(lake.path("t"), policy) == {"zstd"}
    assert [warning for warning in report.warnings if "zstd (6), gzip (3); all new ones have zstd" in warning]


def test_mixed_codecs_stay_mixed_where_no_page_is_decoded(lake: Lake) -> None:
    """The native engine leaves each file's as it is, and has nothing to tell of it."""
    policy = fill(lake, UNPARTITIONED["using"], "zstd", "gzip")
    report = encrypt_table(lake.spark, "t", policy)
    assert codecs(lake.path("t"), policy) == {"zstd", "gzip"}
    assert (report.units[0]["codec"], report.units[0]["engine"]) == (None, "native")


@pytest.mark.parametrize("engine", ENGINES)
def test_codec_survives_a_change_of_key(lake: Lake, engine: Engine) -> None:
    """What the footer of an encrypted file shows is enough: columns without a key of their own."""
    policy = fill(lake, UNPARTITIONED["using"], "zstd")
    encrypt_table(lake.spark, "t", policy, engine=engine)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    assert encrypt_table(lake.spark, "t", policy, engine=engine).files_rewritten == 1
    assert codecs(lake.path("t"), policy) == {"zstd"}
