"""parquet-mr over rewrites: Spark reads what we encrypt, and we rewrite what Spark encrypts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from sparkcrypt.arrow import decryption_properties
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.parquet import (
    FOOTER_KEY,
    DataKey,
    FileEncryption,
    KeyRequest,
    rewrap_file,
    rewrite_file,
    verify_file,
)
from sparkcrypt.policy.model import Policy
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
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
FILES = Path(__file__).parent / "files"
ROWS = 4_000
SSN, AGE, LABEL = ("ssn",), ("person", "age"), ("labels", "key_value", "value")
KEYS = {SSN: "pii", AGE: "fin", LABEL: "fin", ("phones", "list", "element"): "pii"}
MODES = [
    ("encrypted", "AES_GCM_V1", 256),
    ("plaintext", "AES_GCM_V1", 128),
    ("encrypted", "AES_GCM_CTR_V1", 192),
    ("plaintext", "AES_GCM_CTR_V1", 256),
]
WRITING = {
    "parquet.page.size": 1024,
    "parquet.page.size.row.check.min": 20,
    "parquet.page.row.count.limit": 100,
    "parquet.block.row.count.limit": 2000,
    "parquet.bloom.filter.enabled#ssn": "true",
    "parquet.bloom.filter.expected.ndv#ssn": 4000,
}
VERIFYING = {"parquet.page.verify-checksum.enabled": "true"}


def frame(spark: SparkSession) -> DataFrame:
    """Return rows with dictionaries used and fallen back from, nulls, nested columns and a column of nulls alone."""
    number = F.col("id")
    return spark.range(0, ROWS, 1, 1).select(
        number,
        F.format_string("%09d", number * 2).alias("ssn"),
        F.when(number % 3 != 0, number / 7).alias("score"),
        F.array_repeat(F.concat(F.lit("+"), number.cast("string")), (number % 3).cast("int")).alias("phones"),
        F.struct((number % 10).alias("age"), F.lit(None).cast("string").alias("nothing")).alias("person"),
        F.when(number % 2 == 0, F.create_map(F.lit("k"), number)).alias("labels"),
        (number % 5).cast("string").alias("few"),
        number.cast("decimal(30,2)").alias("d"),
        number.cast("timestamp").alias("t"),
    )


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


def encryption(policy: Policy, columns: dict[tuple[str, ...], Any] | None = None, **more: Any) -> FileEncryption:
    """Make the encryption of one file with key material of a policy's key service."""
    maker = DataKeyMaker(key_service(policy), data_key_bits=policy.data_key_bits)
    chosen = KEYS if columns is None else columns
    return FileEncryption(
        DataKey(*maker.make("footer", is_footer_key=True)),
        algorithm=policy.algorithm,
        footer_mode=policy.footer_mode,
        columns={
            path: DataKey(*maker.make(key, is_footer_key=False)) if isinstance(key, str) else key
            for path, key in chosen.items()
        },
        **more,
    )


@contextlib.contextmanager
def row_reader(session: SparkSession, on: bool) -> Iterator[None]:
    """Switch Spark's vectorised reader off."""
    session.conf.set("spark.sql.parquet.enableVectorizedReader", str(not on).lower())
    session.conf.set("spark.sql.parquet.enableNestedColumnVectorizedReader", str(not on).lower())
    yield


def collected(frame: DataFrame) -> list[Any]:
    """Return the rows in the order of the file."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def opened(lake: Lake, file: Path, filter_: Any, **conf: str) -> tuple[int, int]:
    """Open a file by parquet-mr's own reader under a filter: how many row groups, and rows of their pages, are left."""
    jvm = lake.spark._jvm
    assert jvm is not None
    hadoop = lake.spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[attr-defined]
    for name, value in conf.items():
        hadoop.set(name.replace("_", "."), value)
    path = jvm.org.apache.hadoop.fs.Path(file.as_uri())
    builder = jvm.org.apache.parquet.HadoopReadOptions.builder(hadoop, path)
    options = builder.withRecordFilter(jvm.org.apache.parquet.filter2.compat.FilterCompat.get(filter_)).build()
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(
        jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, hadoop), options
    )
    try:
        return reader.getRowGroups().size(), reader.getFilteredRecordCount()
    finally:
        reader.close()


def is_ssn(lake: Lake, value: str) -> Any:
    """Return parquet-mr's predicate ssn = value."""
    parquet = lake.spark._jvm.org.apache.parquet  # type: ignore[union-attr]
    api = parquet.filter2.predicate.FilterApi
    return api.eq(api.binaryColumn("ssn"), parquet.io.api.Binary.fromString(value))


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
    assert verify_file(target, retrieve_key=retriever(policy), equal_to=digest)
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
    assert verify_file(plain, equal_to=before.digest)
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
    assert verify_file(other, retrieve_key=retriever(second), equal_to=parts)
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

    rewrap_file(file, target, retrieve_key=retriever(old[0]), wrap_key=wrap)
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
