"""Files of old parquet-mr, Impala, Thrift and Protocol Buffers, and of Spark 3.5: read, encrypted, read, decrypted."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.files.parquet import FOOTER_KEY, rewrite_file, verify_file
from tests.conftest import require_service
from tests.interop.jars import Jar, fetched
from tests.interop.spark_rows import collected, encryption, row_reader
from tests.services import ServiceUnavailableError
from tests.services.installed import java_home, spark_home
from tests.services.quick_java import QUICK
from tests.spark.support import Lake, retriever
from tests.unit.parquet.rewriting import REDACTED, arrow_read, new_encryption
from tests.unit.parquet.writers import ALGORITHMS, Keys

pytestmark = pytest.mark.services
PARQUET_MR_18 = Jar(
    "org.apache.parquet",
    "parquet-hadoop-bundle",
    "1.8.3",
    "c6b64797f950e3872bdc4dfb093ead24b42b14ce28ff6d229875ab656db9a411",
)
SPARK_TESTS = Jar(
    "org.apache.spark",
    "spark-sql_2.12",
    "3.5.9",
    "efda0266eecff9e3219844ee618afe42453f599a146d0139535217ba17be9c67",
    "tests",
)
"""What Spark tests its own reader on: files that other makers and old versions wrote."""
ROWS = 3_000
OF_1_8 = ("snappy-v1-true", "gzip-v1-false", "uncompressed-v2-true", "snappy-v2-false")
MODES = [("encrypted", ALGORITHMS[0]), ("plaintext", ALGORITHMS[1])]
SPARK_35 = sorted(file.name for file in (Path(__file__).parent / "spark35_files").glob("*.parquet"))
COLLECTED = {
    "impala_timestamp.parq": b"impala version 2.10.0-cdh5.13.x",
    "parquet-1217.parquet": b"impala version 2.12.0-SNAPSHOT",
    "dec-in-i32.parquet": b"parquet-mr version 1.6.0",
    "dec-in-fixed-len.parquet": b"parquet-mr (build 32c46643845ea8a705c35d4ec8fc654cc8ff816d)",
    "timemillis-in-i64.parquet": b"parquet-mr version 1.8.2-SNAPSHOT",
    "before_1582_timestamp_int96_dict_v2_4_5.snappy.parquet": b"parquet-mr version 1.10.1",
    "before_1582_date_v3_2_0.snappy.parquet": b"parquet-mr version 1.12.1",
    "parquet-thrift-compat.snappy.parquet": b"parquet-mr (build 32c46643845ea8a705c35d4ec8fc654cc8ff816d)",
    "nested-array-struct.parquet": b"parquet-mr",
    "old-repeated-message.parquet": b"parquet-mr",
    "proto-struct-with-array.parquet": b"parquet-mr",
    "packed-list-vectorized.parquet": b"github.com/parquet-go/parquet-go",
    "malformed-file-offset.parquet": b"parquet-cpp-arrow version 4.0.0",
    "tagged_long.parquet": None,
}
"""File and who it says wrote it."""


def jar(wanted: Jar) -> Path:
    """Return a jar, or skip."""
    try:
        return fetched(wanted)
    except ServiceUnavailableError as error:
        require_service(str(error))


@pytest.fixture(scope="module")
def files(java: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what Spark's test jar has collected, what Spark 3.5 wrote, and what parquet-mr 1.8 writes now."""
    folder = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(jar(SPARK_TESTS)) as archive:
        for name in [*COLLECTED, "delta_length_byte_array.parquet"]:
            (folder / name).write_bytes(archive.read(f"test-data/{name}"))
    for name in SPARK_35:
        (folder / name).write_bytes((Path(__file__).parent / "spark35_files" / name).read_bytes())
    hadoop = [file for file in (spark_home() / "jars").glob("*.jar") if not file.name.startswith("parquet-")]
    classpath = ":".join(map(str, [folder, jar(PARQUET_MR_18), *hadoop]))
    source = Path(__file__).parent / "java" / "OldWriter.java"
    bin_folder = java_home() / "bin"
    subprocess.run([bin_folder / "javac", "-nowarn", "-cp", classpath, "-d", folder, source], env=java, check=True)
    command: list[str | Path] = [bin_folder / "java", *QUICK, "-cp", classpath, "OldWriter", folder, str(ROWS), *OF_1_8]
    subprocess.run(command, env=java, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(("mode", "algorithm"), MODES)
@pytest.mark.parametrize("name", [*OF_1_8, *COLLECTED, *SPARK_35])
def test_rewritten_and_back(files: Path, tmp_path: Path, name: str, mode: str, algorithm: str) -> None:
    """It says the same encrypted and again once decrypted; pyarrow reads the one as it reads the other."""
    file, there, back = files / name, tmp_path / "there", tmp_path / "back"
    before = verify_file(file)
    parts = {part: digest for part, digest in before.digests.items() if mode == "encrypted" or part not in REDACTED}
    made = new_encryption(default=FOOTER_KEY, algorithm=algorithm, footer_mode=mode)
    result = rewrite_file(file, there, encryption=made)
    assert not [note for note in result.notes if "index" in note]
    assert verify_file(there, retrieve_key=Keys(), equal_to=parts).plaintext_columns == ()
    rewrite_file(there, back, retrieve_key=Keys())
    verify_file(back, equal_to=parts)
    expected = pq.read_table(file)
    assert arrow_read(back, decrypt=False).equals(expected)
    if not any("V2 pages" in note for note in result.notes):
        assert arrow_read(there).equals(expected)


@pytest.mark.spark
@pytest.mark.parametrize("name", [*OF_1_8, *COLLECTED, *SPARK_35])
def test_spark_reads_them_encrypted(lake: Lake, files: Path, name: str) -> None:
    """Spark's two readers get from the encrypted file the rows of the source."""
    lake.spark.conf.set("spark.sql.parquet.int96RebaseModeInRead", "CORRECTED")
    lake.spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
    with row_reader(lake.spark, True):  # the other garbles an uncompressed DELTA_BYTE_ARRAY in clear
        expected = collected(lake.spark.read.parquet(str(files / name)))
    policy, target = lake.policy(), lake.root / f"{name}.parquet"
    rewrite_file(files / name, target, encryption=encryption(policy, {}, default=FOOTER_KEY))
    verify_file(target, retrieve_key=retriever(policy))
    for rows in (False, True):
        with row_reader(lake.spark, rows):
            assert collected(lake.spark.read.parquet(str(target))) == expected


def test_writers_are_those_that_are_meant(files: Path) -> None:
    """Each file names the writer that it is here for, and parquet-mr 1.8 wrote several row groups and pages."""
    for name, writer in COLLECTED.items():
        found = pq.read_metadata(files / name).created_by
        assert (found or "").encode().startswith(writer or b""), name
    for name in OF_1_8:
        metadata = pq.read_metadata(files / name)
        assert metadata.created_by.startswith("parquet-mr version 1.8.3") and metadata.num_row_groups > 1
        assert metadata.num_rows == ROWS and metadata.row_group(0).column(0).has_offset_index is False
    for name in SPARK_35:
        assert pq.read_metadata(files / name).created_by.startswith("parquet-mr version 1.13.1")
    assert len(SPARK_35) == 6


def test_a_file_whose_checksum_is_wrong_is_refused(files: Path, tmp_path: Path) -> None:
    """One of the collected files has a CRC that is not its page's: that is said, and nothing is written."""
    file = files / "delta_length_byte_array.parquet"
    with pytest.raises(VerificationError, match="CRC"):
        verify_file(file)
    with pytest.raises(OSError, match="CRC checksum"):
        pq.ParquetFile(file, page_checksum_verification=True).read()
