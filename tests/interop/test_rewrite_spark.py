"""parquet-mr over rewrites: Spark reads what we encrypt, and we rewrite what Spark encrypts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from sparkcrypt.arrow import decryption_properties
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    KeyRequest,
    NewKeys,
    rewrap_file,
    rewrite_file,
    verify_file,
)
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.policy.model import Policy
from tests.interop.spark_rows import (
    KEYS,
    MODES,
    ROWS,
    SSN,
    VERIFYING,
    WRITING,
    collected,
    encryption,
    frame,
    is_ssn,
    opened,
    row_reader,
)
from tests.spark.support import (
    Lake,
    assert_encrypted,
    data_files,
    key_service,
    refusal,
    retriever,
)
from tests.unit.parquet.rewriting import metadata_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
FILES = Path(__file__).parent / "files"


@pytest.fixture(scope="module")
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The rows as Spark writes them, with V1 and V2 pages: one file of two row groups each."""
    made = {}
    for version in ("v1", "v2"):
        folder = tmp_path_factory.mktemp("plain") / version
        writer = frame(spark).write.option("parquet.writer.version", version)
        writer.options(**WRITING).parquet(str(folder))
        (made[version],) = data_files(folder)
    return made


@pytest.mark.parametrize(("mode", "algorithm", "bits"), MODES)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_spark_reads_rewrites(
    lake: Lake, sources: dict[str, Path], mode: str, algorithm: str, bits: int, version: str
) -> None:
    """Both readers, whole rows and projections, with checksums verified, return what the source holds."""
    expected = collected(lake.spark.read.parquet(str(sources[version])))
    policy = lake.policy(footer_mode=mode, algorithm=algorithm, bits=bits)
    target = lake.root / "out" / "part-0.parquet"
    target.parent.mkdir()
    rewrite_file(sources[version], target, encryption=encryption(policy))
    digest = verify_file(sources[version]).digest
    verify_file(target, retrieve_key=retriever(policy), equal_to=digest)
    wanted = {".".join(path): key for path, key in KEYS.items()}
    assert_encrypted(target.parent, policy, wanted, hidden=("000001234",), visible=())
    for rows in (False, True):
        with row_reader(lake.spark, rows):
            read = lake.spark.read.options(**VERIFYING).parquet(str(target))
            assert collected(read) == expected
            for columns in (["ssn"], ["person.age"], ["labels"], ["few", "score"], ["phones", "id"]):
                plain = lake.spark.read.parquet(str(sources[version])).select(*columns)
                assert collected(read.select(*columns)) == collected(plain)
            found = collected(read.where("ssn = '000003000'").select("id", "ssn", "labels"))
            assert found == [{"id": 1500, "ssn": "000003000", "labels": {"k": 1500}}]
            assert [row["id"] for row in collected(read.where("ssn > '000007990'"))] == [3996, 3997, 3998, 3999]
            assert read.where("person.age = 3").count() == ROWS / 10
            assert read.count() == ROWS
    with lake.stranger() as stranger:
        refusal(lambda: stranger.read.parquet(str(target)).select("ssn").collect())


@pytest.mark.parametrize(("mode", "algorithm", "bits"), [MODES[0], MODES[3]])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_parquet_mr_uses_indexes_and_bloom_filters(
    lake: Lake, sources: dict[str, Path], mode: str, algorithm: str, bits: int, version: str
) -> None:
    """parquet-mr prunes pages by column index, row groups by bounds and by Bloom filter, as it does in the source."""
    policy = lake.policy(footer_mode=mode, algorithm=algorithm, bits=bits)
    target = lake.root / "part-0.parquet"
    rewrite_file(sources[version], target, encryption=encryption(policy))
    only_bloom = {"parquet_filter_dictionary_enabled": "false", "parquet_filter_columnindex_enabled": "false"}
    for file in (sources[version], target):
        groups, rows = opened(lake, file, is_ssn(lake, "000003000"))
        assert groups == 1 and 0 < rows <= 100, file
        assert opened(lake, file, is_ssn(lake, "999")) == (0, 0)
        assert opened(lake, file, is_ssn(lake, "000003001"), **only_bloom)[0] == 0
        without = opened(lake, file, is_ssn(lake, "000003001"), parquet_filter_bloom_enabled="false", **only_bloom)
        assert without[0] == 1


def test_checksums_are_verified(lake: Lake, sources: dict[str, Path]) -> None:
    """A byte of a CTR page that was changed after the rewrite is found by its CRC, which shows that one is there."""
    policy = lake.policy(algorithm="AES_GCM_CTR_V1")
    target = lake.root / "part-0.parquet"
    rewrite_file(sources["v1"], target, encryption=encryption(policy, {("d",): "pii"}))
    content = bytearray(target.read_bytes())
    found = metadata_of(target, retriever(policy))[0, 9]
    end = (found.dictionary_page_offset or found.data_page_offset) + found.total_compressed_size
    content[end - 1] ^= 1
    target.write_bytes(content)
    for rows in (False, True):
        with row_reader(lake.spark, rows):
            said = refusal(lambda: lake.spark.read.options(**VERIFYING).parquet(str(target)).select("d").collect())
            assert "CRC checksum verification failed" in said


def spark_encrypts(lake: Lake, version: str, **policy: Any) -> tuple[Policy, Path, list[Any]]:
    """Write the rows with Spark under a policy; return it, the file, and the rows."""
    made = lake.policy(**policy)
    rows = frame(lake.spark)
    tags = {"ssn": "pii", "phones": "pii", "person": "fin", "labels": "fin"}
    tagged = rows.select(*[F.col(n).alias(n, metadata={"tags": [tags[n]]}) if n in tags else n for n in rows.columns])
    folder = lake.root / "encrypted"
    tagged.write.option("parquet.writer.version", version).options(**WRITING).parquet(str(folder))
    (file,) = data_files(folder)
    return made, file, collected(rows)


@pytest.mark.parametrize(("mode", "algorithm", "bits"), [MODES[0], MODES[1], MODES[3]])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_files_that_spark_encrypted(lake: Lake, mode: str, algorithm: str, bits: int, version: str) -> None:
    """They are decrypted, and keyed anew in another mode, algorithm and length, and Spark reads both."""
    policy, file, rows = spark_encrypts(lake, version, footer_mode=mode, algorithm=algorithm, bits=bits)
    keys = retriever(policy)
    before = verify_file(file, retrieve_key=keys)
    plain, other = lake.root / "plain.parquet", lake.root / "other.parquet"
    rewrite_file(file, plain, retrieve_key=keys)
    verify_file(plain, equal_to=before.digest)
    assert (pq.read_metadata(plain).metadata or {}).keys() >= {b"org.apache.spark.version"}
    assert pq.ParquetFile(plain, page_checksum_verification=True).read(["ssn"]).num_rows == ROWS
    with lake.stranger() as stranger:
        assert collected(stranger.read.options(**VERIFYING).parquet(str(plain))) == rows
    swapped = ("plaintext", "AES_GCM_CTR_V1") if mode == "encrypted" else ("encrypted", "AES_GCM_V1")
    second = lake.policy(footer_mode=swapped[0], algorithm=swapped[1], bits=192)
    rewrite_file(file, other, retrieve_key=keys, encryption=encryption(second, {SSN: "fin", ("id",): FOOTER_KEY}))
    parts = {
        part: digest for part, digest in before.digests.items() if part not in ("key_value_metadata", "sorting_columns")
    }
    verify_file(other, retrieve_key=retriever(second), equal_to=parts)
    assert collected(lake.spark.read.options(**VERIFYING).parquet(str(other))) == rows


def test_rewrapped_files(lake: Lake) -> None:
    """After a move to another key service Spark and pyarrow read the file without the old one."""
    _, file, rows = old = spark_encrypts(lake, "v1")
    new = lake.policy()
    maker, target = DataKeyMaker(key_service(new), data_key_bits=256), lake.root / "moved" / file.name
    target.parent.mkdir()

    def wrap(request: KeyRequest, key: bytes) -> bytes:
        key_id = parse_key_material(request.key_metadata or b"").master_key_id
        return maker.wrap(key, key_id, is_footer_key=request.column is None)

    rewrap_file(file, target, retrieve_key=retriever(old[0]), new_keys=NewKeys(wrap))
    assert collected(lake.spark.read.parquet(str(target))) == rows
    refusal(lambda: lake.spark.read.parquet(str(file)).collect())
    read = pq.ParquetFile(target, decryption_properties=decryption_properties(new)).read()
    assert read.column("ssn").to_pylist() == [row["ssn"] for row in rows]


def test_arrow_reads_rewrites_of_spark_files(lake: Lake, sources: dict[str, Path]) -> None:
    """Pyarrow reads through the policy's key service what was Spark's, in every mode, checksums verified."""
    expected = pq.read_table(sources["v1"])
    for number, (mode, algorithm, bits) in enumerate(MODES):
        policy = lake.policy(footer_mode=mode, algorithm=algorithm, bits=bits)
        target = lake.root / f"{number}.parquet"
        rewrite_file(sources["v1"], target, encryption=encryption(policy, default=FOOTER_KEY))
        properties = decryption_properties(policy)
        read = pq.ParquetFile(target, decryption_properties=properties, page_checksum_verification=True).read()
        assert read == expected


WRITERS = ("polars_uncompressed", "polars_lz4", "duckdb_v1_zstd", "duckdb_v2_snappy", "fastparquet_gzip")
OTHERS = [
    *(FILES / f"{name}.parquet" for name in WRITERS),
    *(CORPUS / f"{name}.parquet" for name in ("polars", "duckdb", "fastparquet", "arrow_plain")),
]


@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
@pytest.mark.parametrize("file", OTHERS, ids=lambda file: file.stem)
def test_files_of_other_writers(lake: Lake, file: Path, mode: str) -> None:
    """What fastparquet, Polars, DuckDB and pyarrow wrote is read by Spark from the rewrite as from the source."""
    lake.spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    expected = collected(lake.spark.read.parquet(str(file)))
    policy = lake.policy(footer_mode=mode)
    target = lake.root / file.name
    rewrite_file(file, target, encryption=encryption(policy, {}, default=FOOTER_KEY))
    assert verify_file(target, retrieve_key=retriever(policy)).authenticated == "all"
    for rows in (False, True):
        with row_reader(lake.spark, rows):
            assert collected(lake.spark.read.parquet(str(target))) == expected
