"""Readers of parquet-java without Spark: what they read, what they are refused, and what nobody can choose for them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.decide.access_log import read_accesses
from sparkcrypt.names import (
    CACHE_LIFETIME,
    CRYPTO_FACTORY,
    CRYPTO_FACTORY_CLASS,
    KEY_SERVICE,
    KMS_CLIENT,
    KMS_CLIENT_CLASS,
    LOCATIONS,
    POLICY,
    SESSION_TOKEN,
    STOCK_CRYPTO_FACTORY_CLASS,
    TABLE,
    TABLE_UUID,
)
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.options import site_settings
from tests.conftest import or_skip
from tests.interop.lake_files import UUID, TableWriter
from tests.interop.outside_reads import HADOOP, OutsideReads, Program, RefusedReadError, write_site
from tests.services.installed import java_home, spark_home
from tests.services.maven import Jar, fetched_folder
from tests.services.quick_java import QUICK
from tests.spark.support import make_policy

pytestmark = [pytest.mark.services, pytest.mark.slow]  # jars of Maven, and a JVM of its own
PARQUET_JAVA = {
    "parquet-hadoop": "efbf7b0374a14f075afbad53632fb6ed76d39239ce39d970f581f3512d00ee0b",
    "parquet-column": "2bfc18fbf3fe8e971780a080e46f6d6cb3e69695ad3a746bd11d46ea8fd90171",
    "parquet-common": "a8c710f2d0ddb4b1332e596cd91f74305b66ae1d7235c798a8b48ddbfb9d31d6",
    "parquet-encoding": "a9414b00d8a4658933476aab8a7a64c51ad669fd7b752cbe5809bcd0e29e2c00",
    "parquet-format-structures": "6613a8fd105c4f7f1578ff1f39476c30fdf485b0ac714c30444a9f70045892bb",
    "parquet-jackson": "1914fed4ed18999ce98ad844aa5d0b09f31027be329ffd82d861d6f7c6f097c7",
    "parquet-variant": "2b0554970e8a1cf922427fd4337e8256f5b01edf87ddc60f956834cfba5ff6e6",
    "parquet-avro": "61da30d5c0182858f02ac2a942f664e2267d01e32e838e77f440d0807da5cbf9",
}
"""Jars of parquet-java 1.18.1, the newest, and their digests."""
CLI_VERSION = "1.15.2"
CLI_JARS = {
    "parquet-avro": "ffb32d4245648338966d82c9aedd461efb8785fbea27d85b2f2d1ac2a14e6808",
    "parquet-cli": "33f84846542b9e49e553429c6341eb996bec441e859024eba7f55cf2697be810",
    "parquet-column": "856e759164450d1373e98f761968bd19a6a26899c2f93720770501a1b0e59e4c",
    "parquet-common": "a1e57537661f18f259d342a93123db10b5796e30a0585d0652af987ea7c33596",
    "parquet-encoding": "da2b2df9749cce2eee3205a6f4ec07612f985d51aebbd8f5861d8ec344824dc1",
    "parquet-format-structures": "417175f24f18e50f82873d604f36532c6b1c924611c4357dff5851c631d87a45",
    "parquet-hadoop": "a9015cbd8548a43bed459d1ee5cbc2748110f1cf484fdab785e5171e515d810f",
    "parquet-jackson": "0df26fcc7958e155da758676cdcc1028702d1876e62e4f87c406cee42cffcfe4",
}
"""Jars of parquet-java of that version, and their digests."""
JCOMMANDER = Jar("com.beust", "jcommander", "1.82", "deeac157c8de6822878d85d0c7bc8467a19cc8484d37788f7804f039dde280b1")
HIVE = Jar("org.apache.hive", "hive-exec", "4.1.0", "8b06fffba9dd2fdb330e577175790bef551d0fa9d1d31d9246cdc24268cd643d")
OF_SPARK = (*HADOOP, "guava-*.jar", "jcl-over-slf4j-*.jar", "log4j-*.jar")
CORE_SITE = f"""<configuration>
  <property><name>{CRYPTO_FACTORY}</name><value>{CRYPTO_FACTORY_CLASS}</value></property>
</configuration>
"""
CLI_LOG = """
rootLogger.level = info
rootLogger.appenderRef.all.ref = all
appender.all.type = Console
appender.all.name = all
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %m%n
"""
"""Rows are lines of the log."""
Cli: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]
KEYS = {"email": "pii", "salary": "fin"}
GROUPS, RECORDS, WRITER = (f"ParquetJava${name}" for name in ("Groups", "Records", "Writer"))
HIVE_ROWS, HIVE_BATCHES = "ParquetHive$Rows", "ParquetHive$Batches"
EMAIL, SALARY = "optional binary email (STRING);", "optional int32 salary;"
MAILS = "email: mail0, email: mail1, email: mail2"
OTHERS_KEYS = {"type": "vault", "address": "https://evil.example.com"}


DENYING = """
from sparkcrypt.errors import KeyAccessDeniedError
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.policy.key_service import KeyServiceConfig


class DenyingKeyService(LocalKeyService):
    def __init__(self, config):
        super().__init__(KeyServiceConfig.from_dict({"type": "local", **config.options}))

    def unwrap(self, key_id, wrapped):
        if key_id == "fin":
            raise KeyAccessDeniedError("these credentials may not use it")
        return super().unwrap(key_id, wrapped)
"""
"""A key service that knows that its reader is an analyst."""


def install_denying(folder: Path) -> Path:
    """Install that key service for an interpreter of its own, and return the interpreter."""
    about = folder / "denying-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: denying\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[sparkcrypt.key_services]\ndenying = denying:DenyingKeyService\n")
    (folder / "denying.py").write_text(DENYING)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@dataclass(frozen=True)
class Lake:
    """A table of two files, a policy with all keys, and the settings of a reader who lacks the key of salaries."""

    folder: Path
    policy: Policy
    analyst: dict[str, str]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The table ``db.t``, whose rule requires encryption."""
    root = tmp_path_factory.mktemp("lake")
    rule = f"  db.t: {{location: {root / 't'}, require_encryption: true, tags: {{email: pii, salary: fin}}}}\n"
    policy = make_policy(root / "policy", tables=rule, more=f"access_log: {{location: {root / 'log'}}}\n")
    writer = TableWriter(root / "t", policy)
    for name, first in (("a.parquet", 0), ("b.parquet", 3)):
        ids = range(first, first + 3)
        rows = {"id": [*ids], "email": [f"mail{number}" for number in ids]}
        salaries = pa.array([number * 10 for number in ids], pa.int32())
        writer.write(name, pa.table({**rows, "salary": salaries}), KEYS)
    denying = KeyServiceConfig.from_dict({"type": "denying", **policy.key_service.options})
    analyst = site_settings(replace(policy, key_service=denying), str(install_denying(root / "denying")))
    return Lake(root / "t", policy, analyst)


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutsideReads]:
    """A program with the newest parquet-java."""
    jars = [Jar("org.apache.parquet", name, "1.18.1", digest) for name, digest in PARQUET_JAVA.items()]
    libraries = or_skip(fetched_folder, "parquet-1.18.1", jars).iterdir()
    with OutsideReads(tmp_path_factory.mktemp("java"), "ParquetJava", libraries) as running:
        yield running


@pytest.fixture
def owner(reads: OutsideReads, jar: Path, lake: Lake, tmp_path: Path) -> Program:
    """A program whose site file names a policy with all keys."""
    return reads.program(jar, write_site(tmp_path / "site", site_settings(lake.policy, sys.executable)))


@pytest.fixture
def analyst(reads: OutsideReads, jar: Path, lake: Lake, tmp_path: Path) -> Program:
    """A program that lacks the key of salaries."""
    return reads.program(jar, write_site(tmp_path / "analyst", lake.analyst))


@pytest.fixture
def moved(lake: Lake, tmp_path: Path) -> Path:
    """A file of the table under another's name."""
    return Path(shutil.copy(lake.folder / "b.parquet", tmp_path / "a.parquet"))


def check_reader(program: Program, reader: str, lake: Lake, moved: Path, columns: tuple[str, str]) -> str:
    """Return what is read of the first column, after reads that are refused: of the second, and of a moved file."""
    allowed, denied = columns
    with pytest.raises(RefusedReadError, match="column salary cannot be read: its key 'fin'"):
        program.read(reader, lake.folder / "a.parquet", denied)
    with pytest.raises(RefusedReadError, match=r"VerificationError: .*a.parquet"):
        program.read(reader, moved, allowed)
    return program.read(reader, lake.folder / "a.parquet", allowed)


def test_parquet_reader(analyst: Program, lake: Lake, moved: Path) -> None:
    """Columns are read by their keys, and files by their names."""
    assert check_reader(analyst, GROUPS, lake, moved, (EMAIL, SALARY)) == MAILS


def test_avro_reader(analyst: Program, lake: Lake, moved: Path) -> None:
    """Records are read as rows are."""
    found = check_reader(analyst, RECORDS, lake, moved, ("email string", "salary int"))
    assert found == ", ".join(f'{{"email": "mail{number}"}}' for number in range(3))


def test_every_column_is_read_with_every_key(owner: Program, lake: Lake) -> None:
    """Numbers and texts of both keys come as they were written."""
    found = owner.read(GROUPS, lake.folder / "b.parquet", f"optional int64 id; {SALARY} {EMAIL}")
    assert found.startswith("id: 3 salary: 30 email: mail3, id: 4 ")


def test_a_file_of_another_table_or_in_clear_is_refused(owner: Program, lake: Lake, tmp_path: Path) -> None:
    """The table's UUID comes with the configuration; the rule of the table's folder requires encryption."""
    told = {TABLE_UUID: UUID}
    assert MAILS in owner.read(GROUPS, lake.folder / "a.parquet", EMAIL, told)
    with pytest.raises(RefusedReadError, match="VerificationError"):
        owner.read(GROUPS, lake.folder / "a.parquet", EMAIL, {TABLE_UUID: UUID.replace("1", "9")})
    plain = lake.folder / "plain.parquet"
    pq.write_table(pa.table({"email": ["forged"]}), plain)
    try:
        with pytest.raises(RefusedReadError, match=r"VerificationError: .*plain.parquet"):
            owner.read(GROUPS, plain, EMAIL)
    finally:
        plain.unlink()


def test_reads_are_in_the_access_log(reads: OutsideReads, jar: Path, lake: Lake, tmp_path: Path) -> None:
    """An opened key is an event of the route parquet, in the name that the site file gives."""
    log = lake.policy.access_log
    assert log is not None
    required = replace(lake.policy, access_log=replace(log, required=True))
    settings = {**site_settings(required, sys.executable), "sparkcrypt.principal": "eva"}
    program = reads.program(jar, write_site(tmp_path / "site", settings))
    program.read(GROUPS, lake.folder / "a.parquet", EMAIL)
    found = read_accesses(Path(log.location), "db.t.email", datetime.now(timezone.utc).date())
    assert [entry["route"] for entry in found.accesses if entry["principal"] == "eva"] == ["parquet"]


def test_tagged_columns_are_not_written(owner: Program, lake: Lake, tmp_path: Path) -> None:
    """A table with tags is refused, and Parquet's own factory gets no key; other tables are written as before."""
    new = lake.folder / "new.parquet"
    for properties in ({}, {**stock(), "parquet.encryption.uniform.key": "pii"}):
        with pytest.raises(RefusedReadError, match=r"PlanError: .* not written by Spark|factory that does not check"):
            owner.read(WRITER, new, "email,salary", properties)
        assert not new.exists()
    owner.read(WRITER, tmp_path / "other.parquet", "email")
    assert pq.read_table(tmp_path / "other.parquet").to_pylist() == [{"email": "x"}]


def stock() -> dict[str, str]:
    """Return properties that name Parquet's own factory."""
    return {CRYPTO_FACTORY: STOCK_CRYPTO_FACTORY_CLASS, KMS_CLIENT: KMS_CLIENT_CLASS}


def test_a_program_configures_itself_once(reads: OutsideReads, jar: Path, lake: Lake, tmp_path: Path) -> None:
    """Without a site file the program's call counts, even after a read that was refused, and no second one does."""
    program, settings = reads.program(jar), site_settings(lake.policy, sys.executable)
    file = lake.folder / "a.parquet"
    with pytest.raises(
        RefusedReadError, match=r"no policy: there is no sparkcrypt-site.xml .* conf --policy FILE --site"
    ):
        program.read(GROUPS, file, EMAIL)
    with pytest.raises(RefusedReadError, match=r"Sparkcrypt.configure has sparkcrypt.pyton; allowed: "):
        program.configure({**settings, "sparkcrypt.pyton": "x"})
    with pytest.raises(RefusedReadError, match=r"Sparkcrypt.configure has no parquet.sparkcrypt.policy"):
        program.configure({"sparkcrypt.python": sys.executable})
    program.configure(settings)
    assert MAILS in program.read(GROUPS, file, EMAIL)
    with pytest.raises(RefusedReadError, match="configured already"):
        program.configure(settings)


def others_policy(policy: Policy) -> str:
    """Return the same policy with the key service of somebody else."""
    return json.dumps({**json.loads(policy.canonical()), "key_service": OTHERS_KEYS})


def test_no_table_and_no_session_chooses_policy_or_keys(owner: Program, lake: Lake) -> None:
    """Hive copies TBLPROPERTIES into the configuration, as SET changes it: what differs is refused, and named."""
    file = lake.folder / "a.parquet"
    refused = {
        POLICY: others_policy(lake.policy),
        KEY_SERVICE: json.dumps(OTHERS_KEYS),
        SESSION_TOKEN: "00" * 32,
        CACHE_LIFETIME: "86400",
        TABLE: "db.other",
        LOCATIONS: json.dumps({str(lake.folder / "p=1"): {"table": "db.other", "uuid": None}}),
    }
    for name, value in refused.items():
        with pytest.raises(RefusedReadError, match=f"ConfigError: {name}"):
            owner.read(GROUPS, file, EMAIL, {name: value})
    repeated = {POLICY: lake.policy.canonical(), KEY_SERVICE: " ", CACHE_LIFETIME: "1"}
    assert MAILS in owner.read(GROUPS, file, EMAIL, {**repeated, "sparkcrypt.python": "/bin/false"})


def test_no_other_factory_gets_keys(owner: Program, lake: Lake) -> None:
    """Parquet's own factory, which a table's properties may name, would read a file under another's name."""
    with pytest.raises(
        RefusedReadError, match=r"ConfigError: parquet.crypto.factory.class names a factory that does not"
    ):
        owner.read(GROUPS, lake.folder / "a.parquet", EMAIL, stock())


def test_a_policy_of_a_table_is_none(reads: OutsideReads, jar: Path, lake: Lake) -> None:
    """In a JVM that nobody configured neither a policy, a key service nor a token of a table counts."""
    program = reads.program(jar)
    for name, value in (
        (POLICY, lake.policy.canonical()),
        (KEY_SERVICE, json.dumps(OTHERS_KEYS)),
        (SESSION_TOKEN, "0"),
    ):
        with pytest.raises(RefusedReadError, match="ConfigError: "):
            program.read(GROUPS, lake.folder / "a.parquet", EMAIL, {name: value})


def test_system_properties_run_nothing(reads: OutsideReads, owner: Program, lake: Lake, tmp_path: Path) -> None:
    """SET system:… of Hive chooses neither the helper's interpreter nor anything in the site file's values."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'run'}\n")
    program.chmod(0o755)
    reads.run(
        "system", f"sparkcrypt.python={program}", f"spark.sparkcrypt.python={program}", "parquet.sparkcrypt.policy={}"
    )
    assert MAILS in owner.read(GROUPS, lake.folder / "a.parquet", EMAIL)
    assert not (tmp_path / "run").exists()


def test_values_of_the_site_file_have_no_variables(reads: OutsideReads, jar: Path, lake: Lake, tmp_path: Path) -> None:
    """Hadoop replaces ${name} by a system property, which SET would define: here the text stands as it is."""
    reads.run("system", f"interpreter={sys.executable}")
    settings = {**site_settings(lake.policy), "sparkcrypt.python": "${interpreter}"}
    program = reads.program(jar, write_site(tmp_path / "site", settings))
    with pytest.raises(RefusedReadError, match=r"cannot be started: .* set sparkcrypt.python in sparkcrypt-site.xml"):
        program.read(GROUPS, lake.folder / "a.parquet", EMAIL)


def test_what_a_session_adds_is_not_looked_at(
    owner: Program, reads: OutsideReads, jar: Path, lake: Lake, tmp_path: Path
) -> None:
    """ADD JAR brings neither a site file nor classes of ours; where the server has no site file, there is none."""
    settings = {**site_settings(lake.policy, sys.executable), POLICY: others_policy(lake.policy)}
    evil = write_site(tmp_path / "evil", settings)
    owner.add_jars(evil, jar)
    assert MAILS in owner.read(GROUPS, lake.folder / "a.parquet", EMAIL)
    bare = reads.program(jar)
    bare.add_jars(evil, jar)
    with pytest.raises(RefusedReadError, match=r"no policy: there is no sparkcrypt-site.xml"):
        bare.read(GROUPS, lake.folder / "a.parquet", EMAIL)


def test_two_site_files_are_none(reads: OutsideReads, jar: Path, lake: Lake, tmp_path: Path) -> None:
    """Whichever comes first; a folder that is on the class path twice has one."""
    settings = site_settings(lake.policy, sys.executable)
    own, other = write_site(tmp_path / "own", settings), write_site(tmp_path / "other", settings)
    for folders in ((own, other), (other, own)):
        with pytest.raises(RefusedReadError, match=r"several files sparkcrypt-site.xml .*/other/.*/own/.*allowed: one"):
            reads.program(jar, *folders).read(GROUPS, lake.folder / "a.parquet", EMAIL)
    program = reads.program(jar, own, own)
    assert MAILS in program.read(GROUPS, lake.folder / "a.parquet", EMAIL)
    with pytest.raises(RefusedReadError, match="configured already"):
        program.configure(settings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<configuration/>", "has no parquet.sparkcrypt.policy"),
        (
            "<configuration><property><name>sparkcrypt.pyton</name><value>x</value></property></configuration>",
            "allowed: ",
        ),
        ("no XML", "cannot be read: "),
        ("", "cannot be read: "),
    ],
)
def test_a_wrong_site_file_is_none(
    reads: OutsideReads, jar: Path, lake: Lake, tmp_path: Path, text: str, said: str
) -> None:
    """What is missing, misspelt or no XML is refused by the file's name."""
    (tmp_path / "sparkcrypt-site.xml").write_text(text)
    with pytest.raises(RefusedReadError, match=f"ConfigError: .*sparkcrypt-site.xml .*{said}"):
        reads.program(jar, tmp_path).read(GROUPS, lake.folder / "a.parquet", EMAIL)


@pytest.fixture(scope="module")
def cli(jar: Path, lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """Run parquet-cli for an analyst who lacks the key of salaries."""
    jars = [Jar("org.apache.parquet", name, CLI_VERSION, digest) for name, digest in CLI_JARS.items()]
    libraries = or_skip(fetched_folder, f"parquet-cli-{CLI_VERSION}", [*jars, JCOMMANDER]).iterdir()
    shared = [found for name in OF_SPARK for found in sorted((spark_home() / "jars").glob(name))]
    site = write_site(tmp_path_factory.mktemp("site"), lake.analyst)
    (site / "core-site.xml").write_text(CORE_SITE)
    (site / "log4j2.properties").write_text(CLI_LOG)
    classpath = ":".join(map(str, [site, jar, *shared, *libraries]))

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [java_home() / "bin" / "java", *QUICK, "-cp", classpath, "org.apache.parquet.cli.Main", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return run


def test_columns_are_shown_by_their_keys(cli: Cli, lake: Lake) -> None:
    """What is allowed is printed; the others are refused with the name of the key."""
    file = lake.folder / "a.parquet"
    shown = cli("cat", file, "--columns", "email")
    assert (shown.returncode, [line for line in shown.stdout.splitlines() if "mail" in line]) == (
        0,
        ["mail0", "mail1", "mail2"],
    )
    shown = cli("head", file, "-n", "1", "--columns", "email")
    assert (shown.returncode, [line for line in shown.stdout.splitlines() if "mail" in line]) == (0, ["mail0"])
    refused = cli("cat", file)
    assert refused.returncode == 1
    assert "column salary cannot be read: its key 'fin'" in refused.stdout + refused.stderr


def test_a_file_under_another_name_is_refused(cli: Cli, moved: Path) -> None:
    """No row of it is printed."""
    refused = cli("cat", moved, "--columns", "email")
    assert refused.returncode == 1
    assert "VerificationError" in refused.stdout + refused.stderr and "mail" not in refused.stdout.partition("Error")[0]


@pytest.fixture(scope="module")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutsideReads]:
    """A task of Hive."""
    libraries = or_skip(fetched_folder, f"hive-{HIVE.revision}", [HIVE]).iterdir()
    with OutsideReads(tmp_path_factory.mktemp("hive"), "ParquetHive", libraries) as running:
        yield running


def test_hive_reads_rows(hive: OutsideReads, jar: Path, lake: Lake, moved: Path, tmp_path: Path) -> None:
    """Hive's reader of rows gives what the keys allow, refuses other columns and a file under another's name."""
    program = hive.program(jar, write_site(tmp_path / "site", lake.analyst))
    found = check_reader(program, HIVE_ROWS, lake, moved, ("email", "salary"))
    assert found == "null mail0 null, null mail1 null, null mail2 null"


def test_hive_reads_no_batches(hive: OutsideReads, jar: Path, lake: Lake, tmp_path: Path) -> None:
    """Hive's vectorised reader asks no factory: encrypted footers are errors, and what is in clear is not checked."""
    program = hive.program(jar, write_site(tmp_path / "site", site_settings(lake.policy, sys.executable)))
    with pytest.raises(RefusedReadError, match="encrypted footer"):
        program.read(HIVE_BATCHES, lake.folder / "a.parquet", "id")
    rows = {"id": [1, 2], "email": ["a", "b"], "salary": pa.array([1, 2], pa.int32())}
    writer = TableWriter(tmp_path / "t", replace(lake.policy, footer_mode="plaintext"))
    file = writer.write("a.parquet", pa.table(rows), KEYS)
    moved = shutil.copy(file, tmp_path / "b.parquet")
    assert program.read(HIVE_BATCHES, Path(moved), "id") == "2"
    with pytest.raises(RefusedReadError, match="email"):
        program.read(HIVE_BATCHES, file, "email")
