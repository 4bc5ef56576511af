"""Checks of a set-up that need a session: its jar, its helper on driver and executors, and a table's location.

Every check returns its result as one line, or raises an error.
"""

from __future__ import annotations

import hashlib
import os
import sys
import uuid
import zipfile
from importlib.resources import files as package_files
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkcrypt
from sparkcrypt import names
from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import BridgeError, ConfigError, SparkcryptError, VerificationError
from sparkcrypt.files.parquet import FileSummary, inspect_file
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.policy.model import Policy, TagRule
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.failures import find_carried_error, short_text
from sparkcrypt.spark.jvm.gateway import jvm
from sparkcrypt.spark.jvm.jar import bring_jar, jar_path
from sparkcrypt.spark.setup.options import write_options
from sparkcrypt.spark.setup.session import probe, probe_root, registered_policy
from sparkcrypt.spark.tables.catalog import Catalog

_OLDEST_JAVA = 17
_MOST_TASKS = 200
_MOST_NAMED = 20
_CATALOGS = "spark.sql.catalog"


def java_of_session(spark: SparkSession) -> str:
    """Return the driver's Java version and Spark's.

    Raises:
        BridgeError: Java is older than 17, for which the jar is compiled.
    """
    version = str(jvm(spark).java.lang.System.getProperty("java.version"))
    if int(version.split(".")[0].split("-")[0]) < _OLDEST_JAVA:
        raise BridgeError(f"Java {version}; allowed: {_OLDEST_JAVA} or later")
    return f"Java {version}, Spark {spark.version}, master {spark.sparkContext.master}"


def jar_of_session(spark: SparkSession) -> str:
    """Add the jar to the session and return its path and version.

    Raises:
        BridgeError: it does not exist, differs in version or code from this package, or cannot be loaded.
    """
    path = jar_path()
    version = _version_in(path)
    if version != sparkcrypt.__version__:
        raise BridgeError(f"{path} is of version {version or 'unknown'}, this package of {sparkcrypt.__version__}")
    stale = _find_stale_modules(path)
    if stale:
        raise BridgeError(f"{path} holds other code than this package, first in {stale[0]} ({len(stale)} in all)")
    bring_jar(spark)
    return f"{path}, version {version}"


def _version_in(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read("sparkcrypt/__init__.py").decode()
    except (zipfile.BadZipFile, KeyError):
        return None
    lines = [line.partition("=")[2].strip(" \"'") for line in text.splitlines() if line.startswith("__version__ =")]
    return lines[0] if lines else None


def _find_stale_modules(path: Path) -> list[str]:
    """Return the names of modules in the jar that differ from the installed ones."""
    package = Path(str(package_files("sparkcrypt")))
    with zipfile.ZipFile(path) as archive:
        packed = {
            name: archive.read(name)
            for name in archive.namelist()
            if name.startswith("sparkcrypt/") and name.endswith(".py")
        }
    return sorted(
        name for name, body in packed.items() if _digest(package.parent / name) != hashlib.sha256(body).digest()
    )


def _digest(path: Path) -> bytes | None:
    return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else None


def interpreter_of_driver(spark: SparkSession) -> str:
    """Return the interpreter that the jar starts the driver's helper with, by the jar's order of settings."""
    conf = spark.sparkContext.getConf()
    own = sys.executable if (spark.sparkContext.master or "").startswith("local") else None  # as configure sets it
    named = (
        conf.get(names.PYTHON, None),
        conf.get("spark.hadoop.sparkcrypt.python", None),
        own,
        conf.get("spark.pyspark.python", None),
        os.environ.get("PYSPARK_PYTHON"),
    )
    return next((entry.strip() for entry in named if entry and entry.strip()), "python3")


def helper_of_driver(spark: SparkSession) -> str:
    """Start a helper as the driver's JVM does, and return the Python that it reports.

    Raises:
        SparkcryptError: it does not start, or has another version than this package.
    """
    python = interpreter_of_driver(spark)
    with HelperClient(helper_command(jar_path(), python)) as helper:
        answer = helper.call("hello")
        if answer["version"] != sparkcrypt.__version__:
            raise BridgeError(f"{python} runs version {answer['version']}, this package is {sparkcrypt.__version__}")
    return str(answer["python"])


def helpers_of_executors(spark: SparkSession) -> str:
    """Write and read a row with a throw-away key service, which needs no credentials."""
    probe(spark)
    return "a throw-away row was written encrypted and read back"


def write_under_policy(spark: SparkSession, policy: Policy) -> str:
    """Write and read rows in every task slot, encrypted with each fixed key of the policy, and delete them.

    Raises:
        SparkcryptError: a key of the policy is refused, or a row was not encrypted as planned.
    """
    rules = [rule for rule in policy.tags if rule.key is not None and not rule.key.columns]
    if not rules:
        return "no tag names a key that is the same in every partition: nothing to write"
    tasks = max(1, min(_MOST_TASKS, spark.sparkContext.defaultParallelism))
    path = f"{probe_root(spark)}/sparkcrypt-doctor-{uuid.uuid4()}"
    files = HadoopFiles(spark)
    try:
        with registered_policy(spark, policy) as pinned:
            options = {**write_options(policy), **pinned}
            _rows(spark, rules, tasks).write.options(**options).parquet(path)
            columns = [F.col(_column(rule)) for rule in rules]
            read = spark.read.options(**options).parquet(path).select(*columns).collect()
        summaries = [_summary(files, file.path, policy) for file in files.data_files(path)]
    except SparkcryptError:
        raise
    except Exception as error:  # Spark's errors have no base that every version shares
        raise find_carried_error(error) or BridgeError(
            f"rows under the policy could not be written and read: {short_text(error)}"
        ) from error
    finally:
        files.delete_tree(path)
    if len(read) != tasks or not all(_as_planned(summary, rules) for summary in summaries):
        raise VerificationError(
            "rows under the policy did not come out as written and encrypted; another crypto factory is in force"
        )
    keys = len({rule.key.text for rule in rules if rule.key})
    return f"{tasks} tasks wrote and read rows with {keys} column key{'' if keys == 1 else 's'} and the footer key"


def _rows(spark: SparkSession, rules: list[TagRule], tasks: int) -> DataFrame:
    columns = [F.lit("doctor").alias(_column(rule), metadata={"tags": [rule.name]}) for rule in rules]
    return spark.range(0, tasks, 1, tasks).select(*columns)


def _column(rule: TagRule) -> str:
    """Return a valid column name for a tag of any name."""
    return f"c_{rule.name.encode().hex()}"


def _summary(files: HadoopFiles, path: str, policy: Policy) -> FileSummary:
    with files.open(path) as stream:
        return inspect_file(stream, retrieve_key=open_data_keys(policy.key_service))


def _as_planned(summary: FileSummary, rules: list[TagRule]) -> bool:
    found = summary.columns or {}
    return summary.footer != "plaintext" and all(
        (_column(rule),) in found and found[(_column(rule),)].key_id == (rule.key.text if rule.key else None)
        for rule in rules
    )


def own_key_services(spark: SparkSession) -> str:
    """Check that no table of the catalog names its own key service or policy, as tables of earlier versions do.

    Raises:
        ConfigError: a table does; the message names it.
    """
    catalog = Catalog(spark)
    found = [
        f"{table.full_name} ({name})"
        for database in catalog.databases()
        for table in catalog.all_of(database)
        for name in (names.KEY_SERVICE, names.POLICY, names.SESSION_TOKEN)
        if {**table.properties, **table.options}.get(name)
    ]
    if found:
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise ConfigError(
            f"{', '.join(found[:_MOST_NAMED])}{more} name a key service or policy themselves, which is refused where "
            "it differs from the launch's"
        )
    return "no table names a key service or policy of its own"


def sibling_of(spark: SparkSession, location: str) -> str:
    """Create and delete a file in a folder beside a location, where staging folders will be.

    Raises:
        SparkcryptError: the folder or the file cannot be created or deleted.
    """
    files = HadoopFiles(spark)
    folder = f"{location.rstrip('/')}-doctor-{uuid.uuid4()}"
    try:
        files.make_folder(folder)
        files.write_new(f"{folder}/probe", b"probe")
    finally:
        files.delete_tree(folder)
    return f"folders beside {location} can be made"


def formats_of_session(spark: SparkSession) -> str:
    """Return a session's table formats that do not support tags; writes of tagged columns to them are refused."""
    launched = dict(spark.sparkContext.getConf().getAll())
    values = " ".join(value for name, value in launched.items() if name.startswith(("spark.sql.extensions", _CATALOGS)))
    found = [name for name in ("Delta", "Iceberg", "Hudi", "Hoodie") if name.lower() in values.lower()]
    return f"{', '.join(found)}: tagged columns are refused there" if found else "none but Spark's own"
