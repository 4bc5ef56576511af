"""Attacks on the files of a table that requires encryption: a reader refuses each, or its limit is stated here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from sparkcrypt.files.parquet import inspect_file, read_footer
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct, encode_struct, field_key
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.wrapping import seal_key
from sparkcrypt.names import TABLE_UUID
from sparkcrypt.policy.model import Policy, TagRule
from sparkcrypt.policy.template import KeyTemplate
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.attacks import forge
from tests.spark.fixtures import new_lake
from tests.spark.support import Lake, data_files, key_service, make_policy, read_options, refusal, retriever, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TAGS = """
  pii: {key: pii}
  fin: {key: fin}
"""


@dataclass(frozen=True)
class Victim:
    """A partitioned table that requires encryption, with one file in each of two partitions."""

    lake: Lake
    policy: Policy
    uuid: str

    def file(self, partition: int) -> Path:
        """Return the one file of a partition."""
        (file,) = data_files(self.lake.path("t") / f"p={partition}")
        return file

    def read(self, query: str = "SELECT * FROM t") -> list[Any]:
        """Read it with nothing cached."""
        self.lake.spark.catalog.refreshTable("t")
        return rows_of(self.lake.sql(query))

    def refusal(self, query: str = "SELECT * FROM t") -> str:
        """Return how a reader refuses it."""
        return refusal(lambda: self.read(query))


def make_victim(lake: Lake, **policy: Any) -> Victim:
    """Make the table and write its two files."""
    tables = "".join(f"  {lake.name(name)}: {{require_encryption: true}}\n" for name in ("t", "other"))
    made = lake.policy(TAGS, tables, **policy)
    for name in ("t", "other"):
        columns = "id INT, email STRING, phone STRING, salary STRING, p INT"
        lake.sql(f"CREATE TABLE {name} ({columns}) USING parquet PARTITIONED BY (p)")
        set_tags(lake.spark, name, {"email": ["pii"], "phone": ["pii"], "salary": ["fin"]}, made)
        for number in range(2):
            lake.sql(f"INSERT INTO {name} VALUES ({number}, 'e{number}', 'p{number}', 's{number}', {number})")
    uuid = Catalog(lake.spark).table("t").uuid
    assert uuid is not None
    return Victim(lake, made, uuid)


@contextmanager
def shared_victim(spark: SparkSession, folder: Path, **policy: Any) -> Iterator[Victim]:
    """Yield a table that can be read, beside a copy of its files, from which each test has them anew."""
    with new_lake(spark, folder) as lake:
        made = make_victim(lake, **policy)
        assert [row[0] for row in made.read()] == [0, 1]
        shutil.copytree(lake.root / "db", lake.root / "saved")
        yield made


def restore(victim: Victim) -> Victim:
    """Put the files of the tables back, and take away what a test has left beside them."""
    root = victim.lake.root
    shutil.rmtree(root / "db")
    shutil.copytree(root / "saved", root / "db")
    shutil.rmtree(root / "forged", ignore_errors=True)
    return victim


@pytest.fixture(scope="module")
def encrypted(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """The table with encrypted footers."""
    with shared_victim(spark, tmp_path_factory.mktemp("encrypted")) as made:
        yield made


@pytest.fixture
def victim(encrypted: Victim) -> Victim:
    """The table, with encrypted footers, as it was before any attack."""
    return restore(encrypted)


@pytest.fixture(scope="module")
def signed(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """The table with signed footers in plaintext."""
    with shared_victim(spark, tmp_path_factory.mktemp("signed"), footer_mode="plaintext") as made:
        yield made


def test_file_moved_to_another_partition(victim: Victim) -> None:
    """A file of partition 0 in the folder of partition 1 is refused."""
    shutil.move(victim.file(0), victim.file(1).parent)
    assert "was written for partition 'p=0' and moved to another" in victim.refusal()


def test_file_copied_from_another_table(victim: Victim) -> None:
    """A file of a table with the same columns, tags and keys is refused by the table's UUID."""
    (foreign,) = data_files(victim.lake.path("other") / "p=0")
    shutil.copy(foreign, victim.file(0).parent)
    assert "belongs to table" in victim.refusal()


def test_file_renamed(victim: Victim) -> None:
    """A file under another name is refused; so a copy cannot double its rows."""
    shutil.copy(victim.file(0), victim.file(0).with_name("part-00009.c000.parquet"))
    assert "renamed or copied since" in victim.refusal()


def test_older_version_of_a_file_is_not_detected_by_reading(victim: Victim) -> None:
    """A deleted file that is put back under its own name and place is accepted: AAD binds the name, not the version.

    Nothing in a file tells its version; finding this takes an authenticated list of files.
    """
    file = victim.file(0)
    saved = file.read_bytes()
    victim.lake.sql("INSERT OVERWRITE t PARTITION (p = 0) SELECT 7, 'e7', 'p7', 's7'")
    forge.put(file, saved)
    assert [row[0] for row in victim.read()] == [0, 1, 7]


@pytest.mark.parametrize("place", ["footer", "footer's start", "page", "length", "magic"])
def test_flipped_bit(victim: Victim, place: str) -> None:
    """One bit changed in footer, page, length or magic ends in an error."""
    file = victim.file(0)
    offsets = {"footer": -20, "footer's start": forge.footer_start(file) + 3, "page": 60, "length": -8, "magic": -1}
    forge.flip(file, offsets[place])
    said = victim.refusal()
    assert place != "magic" or "does not end with PAR1 or PARE" in said
    assert place not in ("footer", "page") or "GCM tag check failed" in said


def test_every_byte_of_a_file_counts(victim: Victim) -> None:
    """Bits flipped all over a file of encrypted columns alone: an error, or rows that are what was written."""
    file, good, rows = victim.file(0), victim.file(0).read_bytes(), victim.read()
    for offset in range(4, len(good), max(1, len(good) // 12)):
        forge.flip(file, offset)
        try:
            assert [row[1:] for row in victim.read()] == [row[1:] for row in rows]
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001  # any refusal will do
            pass
        finally:
            forge.put(file, good)


def test_algorithm_byte_changed(victim: Victim) -> None:
    """GCM rewritten to CTR, whose pages nothing authenticates, is refused by the policy's algorithm."""

    def to_ctr(crypto: Struct) -> None:
        algorithm = crypto[forge.ALGORITHM]
        assert isinstance(algorithm, Struct)
        algorithm[forge.CTR] = algorithm.pop(forge.GCM)

    forge.change_crypto_metadata(victim.file(0), to_ctr)
    assert inspect_file(victim.file(0)).algorithm == "AES_GCM_CTR_V1"
    assert "algorithm is 'AES_GCM_CTR_V1'; allowed: AES_GCM_V1" in victim.refusal()


@pytest.mark.parametrize("move", ["prefix to unique", "unique to prefix", "terminator away"])
def test_border_between_prefix_and_file_unique_shifted(victim: Victim, move: str) -> None:
    """Bytes moved over the unframed border leave every AAD as it was, and are refused all the same."""

    def shift(crypto: Struct) -> None:
        found = forge.parameters(crypto)
        prefix, unique = found[forge.PREFIX], found[forge.UNIQUE]
        assert isinstance(prefix, bytes)
        assert isinstance(unique, bytes)
        if move == "unique to prefix":
            found[forge.PREFIX], found[forge.UNIQUE] = prefix + unique[:1], unique[1:]
        else:
            count = 1 if move == "terminator away" else 9
            found[forge.PREFIX], found[forge.UNIQUE] = prefix[:-count], prefix[-count:] + unique

    file = victim.file(0)
    before = read_footer(file).file_aad
    forge.change_crypto_metadata(file, shift)
    assert read_footer(file, retrieve_key=retriever(victim.policy)).file_aad == before  # it still authenticates
    assert "AAD file-unique has" in victim.refusal()


def test_plaintext_file_in_place_of_an_encrypted_one(victim: Victim) -> None:
    """A plaintext file of the same name and columns is refused."""
    plain = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [0], "email": ["forged"], "phone": ["f"], "salary": ["f"]}), plain)
    forge.put(victim.file(0), plain.getvalue().to_pybytes())
    assert "is plaintext, and" in victim.refusal()
    assert "requires encryption" in victim.refusal("SELECT id FROM t")


def attackers(victim: Victim, keys: dict[str, str | None]) -> Policy:
    """Return a policy on the victim's key service that gives its tags other keys, or none."""
    rules = tuple(
        TagRule(rule.name, KeyTemplate(key) if (key := keys.get(rule.name, rule.key.text)) else None)  # type: ignore[union-attr]
        for rule in victim.policy.tags
    )
    return replace(victim.policy, tags=rules, tables=())


def forge_file(victim: Victim, policy: Policy, **more: str) -> None:
    """Put a file into partition 0 that is written with the table's identity, under the attacker's policy."""
    tags = {"email": "pii", "phone": "pii", "salary": "fin"}
    columns = [F.lit(f"forged {name}").alias(name, metadata={"tags": [tag]}) for name, tag in tags.items()]
    frame = victim.lake.spark.range(1).select(F.col("id").cast("int"), *columns, F.lit(0).alias("p"))
    out = victim.lake.root / "forged"
    options = {**read_options(policy), TABLE_UUID: victim.uuid, "parquet.sparkcrypt.locations": "{}", **more}
    frame.write.options(**options).partitionBy("p").parquet(str(out))
    (file,) = data_files(out)
    shutil.copy(file, victim.lake.path("t") / "p=0")


def test_forged_file_with_every_right_key_is_accepted(victim: Victim) -> None:
    """Whoever holds all keys may write: this shows that the forgeries below fail for their reason alone."""
    forge_file(victim, attackers(victim, {}))
    assert ["forged email"] in [list(row)[1:2] for row in victim.read()]


def test_holder_of_the_footer_key_writes_a_column_in_clear(victim: Victim) -> None:
    """An encrypted column replaced by a plaintext one, under a footer that authenticates, is refused."""
    forge_file(victim, attackers(victim, {"pii": None}))
    said = victim.refusal()
    assert "column email is plaintext" in said or "column phone is plaintext" in said


def test_holder_of_the_footer_key_writes_a_column_under_it(victim: Victim) -> None:
    """A column under the footer key, which every reader holds, is refused."""
    forge_file(victim, attackers(victim, {"pii": "footer"}))
    assert "is encrypted with 'footer'; the policy wants 'pii'" in victim.refusal()


def test_holder_of_another_column_s_key(victim: Victim) -> None:
    """A column under a key that the policy knows, but for another tag, is refused."""
    forge_file(victim, attackers(victim, {"pii": "fin"}))
    assert "is encrypted with 'fin'; the policy wants 'pii'" in victim.refusal()


def test_file_under_another_footer_key(victim: Victim) -> None:
    """A footer under a key that the policy does not name is refused."""
    forge_file(victim, replace(attackers(victim, {}), footer_key="fin"))
    assert "its footer key is 'fin'; allowed: 'footer'" in victim.refusal()


def test_file_of_another_algorithm(victim: Victim) -> None:
    """A lawful file of the other algorithm is refused unless the policy's history allows it."""
    forge_file(victim, replace(attackers(victim, {}), algorithm="AES_GCM_CTR_V1"))
    assert "algorithm is 'AES_GCM_CTR_V1'" in victim.refusal()


def test_file_written_by_path_has_no_identity(victim: Victim) -> None:
    """A file whose writer knew no table is refused where encryption is required."""
    forge_file(victim, attackers(victim, {}), **{TABLE_UUID: ""})
    assert "was written by path, with no table's identity" in victim.refusal()


def test_key_metadata_of_another_column_copied(victim: Victim) -> None:
    """Key material of a column with the same master key, in the place of another's, opens nothing."""
    keys = retriever(victim.policy)

    def copy(footer: Struct) -> None:
        _, email, phone, _ = forge.chunks(footer)
        forge.own_key(email)[forge.KEY_METADATA] = forge.own_key(phone)[forge.KEY_METADATA]

    forge.change_footer(victim.file(0), keys, lambda footer: None)
    assert len(victim.read()) == 2, "a footer written again by its key's holder is read"
    forge.change_footer(victim.file(0), keys, copy)
    said = victim.refusal("SELECT email FROM t")
    assert "GCM tag check failed" in said or "AEADBadTag" in said
    assert victim.read("SELECT phone FROM t") == [("p0",), ("p1",)]


def test_key_metadata_of_another_tag_copied(victim: Victim) -> None:
    """Key material of another tag's column is refused by its key id."""

    def copy(footer: Struct) -> None:
        _, email, _, salary = forge.chunks(footer)
        forge.own_key(email)[forge.KEY_METADATA] = forge.own_key(salary)[forge.KEY_METADATA]

    forge.change_footer(victim.file(0), retriever(victim.policy), copy)
    assert "column email is encrypted with 'fin'; the policy wants 'pii'" in victim.refusal()


def test_crypto_metadata_of_a_column_taken_away(victim: Victim) -> None:
    """A column that the footer calls plaintext, over encrypted pages, is refused before a page is read."""

    def strip(footer: Struct) -> None:
        for chunk in forge.chunks(footer)[1:3]:
            del chunk[forge.CRYPTO]
            chunk.pop(forge.ENCRYPTED_META_DATA, None)

    forge.change_footer(victim.file(0), retriever(victim.policy), strip)
    assert victim.refusal()


def test_kek_id_of_a_victim_beside_other_bytes(victim: Victim) -> None:
    """A file that carries another file's KEK id with a wrapped KEK of its own poisons no cache."""
    service, opener = key_service(victim.policy), DataKeyOpener(key_service(victim.policy))
    known = parse_key_material(read_footer(victim.file(1)).footer_key_metadata or b"")
    own = parse_key_material(read_footer(victim.file(0)).footer_key_metadata or b"")
    kek = os.urandom(32)
    assert known.kek_id is not None
    forged = replace(
        own,
        kek_id=known.kek_id,
        wrapped_kek=service.wrap("footer", kek),
        wrapped_dek=seal_key(kek, opener.open(own), _raw(known.kek_id)),
    )

    def poison(crypto: Struct) -> None:
        crypto[forge.KEY_METADATA] = forged.to_bytes()

    forge.change_crypto_metadata(victim.file(0), poison)
    for _ in range(2):
        assert victim.read("SELECT id, email FROM t WHERE p = 0") == [(0, "e0")]
        assert victim.read("SELECT id, email FROM t WHERE p = 1") == [(1, "e1")]


def _raw(kek_id: str) -> bytes:
    import base64

    return base64.b64decode(kek_id)


def test_key_service_address_in_a_file_is_not_followed(victim: Victim) -> None:
    """The key service that a footer names is not asked: the policy's is, whatever the file says."""
    own = parse_key_material(read_footer(victim.file(0)).footer_key_metadata or b"")
    forged = replace(own, kms_instance_id="evil", kms_instance_url="http://127.0.0.1:9/evil")

    def point(crypto: Struct) -> None:
        crypto[forge.KEY_METADATA] = forged.to_bytes()

    forge.change_crypto_metadata(victim.file(0), point)
    assert [row[1] for row in victim.read()] == ["e0", "e1"]


def test_key_id_that_leaves_the_key_directory(victim: Victim) -> None:
    """A key id such as ``../../etc/passwd`` in a file is refused and reads nothing outside the key service."""
    own = parse_key_material(read_footer(victim.file(0)).footer_key_metadata or b"")
    forged = replace(own, master_key_id="../../policy.yaml")
    assert encode_key_id(forged.master_key_id).encode() in forged.to_bytes()

    def point(crypto: Struct) -> None:
        crypto[forge.KEY_METADATA] = forged.to_bytes()

    forge.change_crypto_metadata(victim.file(0), point)
    assert "Error" in victim.refusal()


def _change_plain_footer(file: Path, change: Callable[[Struct], None], *, keep_signature: bool) -> None:
    content = file.read_bytes()
    struct, end = decode_struct(content[forge.footer_start(file) : -8])
    signature = content[forge.footer_start(file) : -8][end:]
    change(struct)
    forge.replace_footer(file, encode_struct(struct) + (signature if keep_signature else b""), b"PAR1")


@pytest.mark.parametrize("how", ["signature and algorithm", "every trace of encryption", "signature", "a row count"])
def test_plaintext_footer_stripped_or_changed(signed: Victim, how: str) -> None:
    """A plaintext footer without its signature, or with another content, is refused."""
    victim = restore(signed)
    assert [row[1] for row in victim.read()] == ["e0", "e1"]

    def change(footer: Struct) -> None:
        if how in ("signature and algorithm", "every trace of encryption"):
            footer.pop(field_key(8, 12))
            footer.pop(field_key(9, 8))
        if how == "every trace of encryption":
            for chunk in forge.chunks(footer):
                chunk.pop(forge.CRYPTO, None)
                chunk.pop(forge.ENCRYPTED_META_DATA, None)
        if how == "a row count":
            footer[field_key(3, 6)] = 2

    _change_plain_footer(victim.file(0), change, keep_signature=how == "a row count")
    said = victim.refusal("SELECT id FROM t")
    words = {
        "signature and algorithm": "algorithm and signature were taken away",
        "every trace of encryption": "is plaintext, and",
        "signature": "signature",
        "a row count": "signature",
    }
    assert words[how].lower() in said.lower()


def test_ordinary_use_is_not_refused(lake: Lake) -> None:
    """A policy of another folder with copies of the keys reads the table: nothing above depends on paths of keys."""
    victim = make_victim(lake)
    copied = make_policy(lake.root / "elsewhere", TAGS)
    shutil.copytree(victim.policy.key_service.options["path"], copied.key_service.options["path"], dirs_exist_ok=True)
    read = lake.spark.read.options(**read_options(replace(victim.policy, key_service=copied.key_service)))
    assert [row[0] for row in rows_of(read.parquet(str(lake.path("t"))))] == [0, 1]
