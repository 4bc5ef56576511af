"""Helpers of the tests on a real Spark: policies with keys, sessions, and checks of the bytes of files."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkcrypt import configure, load_policy, names
from sparkcrypt.files.parquet import FileSummary, KeyRequest, inspect_file, read_footer
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.local.keystore import KeyDirectory, MasterKey
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.jvm.gateway import copy_collection, java_session, jvm
from sparkcrypt.spark.setup.options import write_options
from sparkcrypt.spark.setup.session import policy_register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TAGS = """
  pii: {key: pii}
  fin: {key: fin}
  public: plaintext
"""
SECRET, PLAIN = "CANARY-secret-value", "CANARY-plain-value"
"""Values that tests write into tagged and untagged columns, and search for in the bytes of files."""
_PROTOCOLS = (names.COMMIT_PROTOCOL, names.STREAM_COMMIT_PROTOCOL)
_GLOBAL = (
    "parquet.crypto.",
    "parquet.encryption.",
    "parquet.sparkcrypt.",
    "parquet.summary.",
    "parquet.enable.summary",
    "orc.key.provider",
)


def make_policy(
    folder: Path,
    tags: str = TAGS,
    tables: str = "",
    *,
    keys: Sequence[str] = (),
    footer_mode: str = "encrypted",
    algorithm: str = "AES_GCM_V1",
    bits: int = 256,
    untagged: str = "plaintext",
    more: str = "",
) -> Policy:
    """Write a policy file, create the keys that its tags name and those of ``keys``, and load it.

    Args:
        folder: the folder for ``policy.yaml``, ``keys/`` and ``state/``.
        tags: the lines below ``tags:``, indented.
        tables: the lines below ``tables:``, indented.
        keys: further keys to create, such as those of templates.
        footer_mode: encrypted or plaintext.
        algorithm: the policy's algorithm.
        bits: the length of data keys.
        untagged: plaintext, footer_key or deny.
        more: further lines.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "policy.yaml"
    file.write_text(
        "version: 1\nkey_service: {type: local, path: keys/}\n"
        f"algorithm: {algorithm}\ndata_key_bits: {bits}\nfooter: {{key: footer, mode: {footer_mode}}}\n"
        f"untagged: {untagged}\nrun_state: state/\n{more}\ntags:{tags}" + (f"tables:\n{tables}" if tables else "")
    )
    policy = load_policy(file)
    service = key_service(policy)
    named = [rule.key.text for rule in policy.tags if rule.key is not None and not rule.key.columns]
    for key_id in dict.fromkeys((policy.footer_key, *named, *keys)):
        service.create(key_id)
    return policy


def key_service(policy: Policy) -> LocalKeyService:
    """Open a policy's local key service."""
    return LocalKeyService(policy.key_service)


def with_keys(policy: Policy, folder: Path, change: Callable[[KeyDirectory], None]) -> Policy:
    """Return a policy whose keys are a changed copy in another folder, so that no cache has them."""
    shutil.copytree(policy.key_service.options["path"], folder)
    directory = KeyDirectory(folder)
    change(directory)
    return replace(policy, key_service=KeyServiceConfig.from_dict({"type": "local", "path": str(folder)}))


def without_keys(*key_ids: str) -> Callable[[KeyDirectory], None]:
    """Return a change that removes keys."""

    def change(directory: KeyDirectory) -> None:
        for key_id in key_ids:
            directory.remove(key_id)

    return change


def swapped(first: str, second: str) -> Callable[[KeyDirectory], None]:
    """Return a change that puts each of two keys under the other's id."""

    def change(directory: KeyDirectory) -> None:
        first_key, other = directory.read(first), directory.read(second)
        directory.write(MasterKey(first, other.versions))
        directory.write(MasterKey(second, first_key.versions))

    return change


def retriever(policy: Policy) -> Callable[[KeyRequest], bytes]:
    """Return a function that opens data keys by a policy's key service, without a helper."""
    opener = DataKeyOpener(key_service(policy))
    return lambda request: opener.open(parse_key_material(request.key_metadata or b""))


def data_files(path: str | Path) -> list[Path]:
    """Return the Parquet files below a path; Hive's have no suffix."""
    found = (file for file in Path(path).rglob("*") if file.is_file() and not file.name.startswith((".", "_")))
    return sorted(file for file in found if file.read_bytes()[-4:] in (b"PARE", b"PAR1"))


def footers(path: str | Path, policy: Policy) -> list[FileSummary]:
    """Return the summaries of all files below a path, including the contents of encrypted footers."""
    return [inspect_file(file, retrieve_key=retriever(policy)) for file in data_files(path)]


def encrypted_columns(summary: FileSummary) -> dict[str, str | None]:
    """Return the encrypted columns of a file: dotted path -> key id."""
    columns = summary.columns or {}
    return {join_dotted(path): column.key_id for path, column in columns.items() if column.encrypted}


def assert_encrypted(
    path: str | Path,
    policy: Policy,
    columns: Mapping[str, str],
    *,
    hidden: Sequence[str] = (SECRET,),
    visible: Sequence[str] = (PLAIN,),
) -> list[Path]:
    """Assert of every file below a path: its magic, exactly these columns under these keys, and no secret in its bytes.

    Args:
        path: a folder.
        policy: its footer's mode and key, algorithm and keys.
        columns: dotted column path -> key id; in every row group, which `inspect_file` checks.
        hidden: texts that no file may contain.
        visible: texts that some file must contain, which proves that the search works.
    """
    files = data_files(path)
    assert files, f"no Parquet file below {path}"
    magic = b"PARE" if policy.footer_mode == "encrypted" else b"PAR1"
    mode = "encrypted" if policy.footer_mode == "encrypted" else "plaintext_signed"
    for file in files:
        content = file.read_bytes()
        assert (content[:4], content[-4:]) == (magic, magic), file
        summary = inspect_file(file, retrieve_key=retriever(policy))
        assert (summary.footer, summary.footer_key, summary.algorithm) == (mode, policy.footer_key, policy.algorithm)
        # Spark writes a file without rows for an empty first partition; it has no column to encrypt.
        assert encrypted_columns(summary) == (dict(columns) if summary.rows else {})
        assert not [text for text in hidden if text.encode() in content], f"a secret stands in {file}"
    assert not columns or any(inspect_file(file, retrieve_key=retriever(policy)).rows for file in files)
    everything = b"".join(file.read_bytes() for file in files)
    assert all(text.encode() in everything for text in visible)
    return files


def assert_plaintext(path: str | Path) -> None:
    """Assert that there are files and none is encrypted."""
    files = data_files(path)
    assert files
    assert {inspect_file(file).footer for file in files} == {"plaintext"}


def read_options(policy: Policy) -> dict[str, str]:
    """Return a policy's options for one read or write, which override the session's."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()  # any session, since the register belongs to the application
    token = policy_register(session).add(policy.canonical())
    return {**write_options(policy), names.SESSION_TOKEN: str(token)}


def rows_of(frame: DataFrame) -> list[Any]:
    """Return the rows of a frame, sorted."""
    return sorted(frame.collect(), key=repr)


def refusal(action: Callable[..., Any], *arguments: Any) -> str:
    """Return the whole text of the error that an action on these arguments raises; it must raise one."""
    with pytest.raises(Exception) as caught:  # the test checks its text
        action(*arguments)
    return said_of(caught.value)


def said_of(error: BaseException) -> str:
    """Return the whole text of an error, in Python and in Java, with its causes."""
    texts: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        java = getattr(seen, "java_exception", None)
        texts += [type(seen).__name__, str(seen), java_causes(java)]
        seen = seen.__cause__
    return "\n".join(texts)


def java_causes(java: Any) -> str:
    """Return the text of a Java exception, with its causes."""
    texts = []
    while java is not None:
        texts.append(str(java.toString()))
        java = java.getCause()
    return "\n".join(texts)


@dataclass(frozen=True)
class Lake:
    """A new session with its own database, in the JVM of the test run."""

    spark: SparkSession
    database: str
    root: Path

    def name(self, table: str) -> str:
        """Return ``database.table``."""
        return f"{self.database}.{table}"

    def path(self, table: str) -> Path:
        """Return the folder of a managed table of this name."""
        return self.root / "db" / table

    def sql(self, text: str) -> DataFrame:
        """Run SQL."""
        return self.spark.sql(text)

    @property
    def jvm(self) -> Any:
        """The classes of the JVM, by their dotted names."""
        return jvm(self.spark)

    def policy(self, tags: str = TAGS, tables: str = "", **more: Any) -> Policy:
        """Create a policy with keys, and put the session under it."""
        policy = make_policy(self.root / f"policy-{len(list(self.root.glob('policy-*')))}", tags, tables, **more)
        configure(self.spark, policy)
        return policy

    def changed(self, old: str, new: str) -> Policy:
        """Change the text of the last created policy, and put the session under it."""
        file = max(self.root.glob("policy-*")) / "policy.yaml"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        policy = load_policy(file)
        configure(self.spark, policy)
        return policy

    @contextlib.contextmanager
    def stranger(self) -> Iterator[SparkSession]:
        """Yield a session on the same metastore that was never configured."""
        conf = self.spark.sparkContext._jsc.hadoopConfiguration()
        with _cleared(conf):
            session = self.spark.newSession()
            for name in _PROTOCOLS:
                session.conf.unset(name)
            session.sql(f"USE {self.database}")
            quiet(session)
            yield session


def quiet(session: SparkSession) -> None:
    """Set the options of every session of these tests: two partitions, no compression, Hive's dynamic partitions."""
    session.conf.set("spark.sql.parquet.compression.codec", "uncompressed")
    session.conf.set("parquet.compression", "uncompressed")  # the Hive SerDe reads this one
    session.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
    session.conf.set("spark.sql.shuffle.partitions", "2")


@contextlib.contextmanager
def _cleared(conf: Any) -> Iterator[None]:
    """Remove the settings of ``configure`` for all sessions from the Hadoop configuration within the block."""
    mine = _of_sparkcrypt(conf)
    for name in mine:
        conf.unset(name)
    try:
        yield
    finally:
        for name, value in mine.items():
            conf.set(name, value)


def _of_sparkcrypt(conf: Any) -> dict[str, str]:
    """Return the settings of ``configure`` for all sessions that a Hadoop configuration has."""
    entries = [
        (f"{prefix}{entry.getKey()}", entry.getValue())
        for prefix in ("parquet.", "orc.")
        for entry in copy_collection(conf.getPropsWithPrefix(prefix).entrySet())
    ]
    return {name: value for name, value in entries if name.startswith(_GLOBAL)}


def clear_global(session: SparkSession) -> None:
    """Remove the settings of ``configure`` for all sessions permanently."""
    conf = session.sparkContext._jsc.hadoopConfiguration()
    for name in _of_sparkcrypt(conf):
        conf.unset(name)
    for conf in (java_session(session).sharedState().conf(), session.sparkContext._jsc.sc().conf()):
        for name in _PROTOCOLS:
            conf.remove(name)
    if conf_has_jar(session):
        policy_register(session).removeSessions()


def conf_has_jar(session: SparkSession) -> bool:
    """Return whether a test has loaded the jar into the JVM."""
    return session._jvm is not None and "JavaClass" in type(jvm(session).io.sparkcrypt.PolicyRegister).__name__


def notes_of(folder: Path, policy: Policy) -> dict[str, Any]:
    """Return what the files of a folder, which say the same, note of their columns."""
    file = data_files(folder)[0]
    footer = read_footer(file, retrieve_key=retriever(policy))
    assert footer.metadata is not None
    (text,) = (entry.value for entry in footer.metadata.key_value_metadata or () if entry.key == names.SPARK_SCHEMA)
    fields = json.loads(text or "")["fields"]
    return {field["name"]: field["metadata"]["lineage"] for field in fields if "lineage" in field["metadata"]}
