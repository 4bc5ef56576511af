"""The checks of `sparkcrypt doctor` for keys, the state directory, Java and a table.

Every check returns its result as one line, or raises an error.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    PlanError,
    VerificationError,
)
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.names import PREFIX
from sparkcrypt.policy.key_service import PRINCIPAL, KeyServiceConfig, credential_variables
from sparkcrypt.policy.model import Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
_JAVA_SECONDS = 30


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A key id of a policy; the key ids of a template depend on partitions."""

    key_id: str
    is_template: bool


def key_checks(policy: Policy) -> tuple[NamedKey, ...]:
    """Return the distinct keys in a policy: the footer key first, the audit's key last."""
    named = {policy.footer_key: False}
    for rule in policy.tags:
        if rule.key is not None:
            named.setdefault(rule.key.text if rule.key.columns else rule.key.render({}), bool(rule.key.columns))
        if rule.late_data is not None and not rule.late_data.columns:
            named.setdefault(rule.late_data.render({}), False)
    if policy.audit_key is not None:
        named.setdefault(policy.audit_key, False)
    return tuple(NamedKey(key_id, is_template) for key_id, is_template in named.items())


def check_key_service(policy: Policy) -> str:
    """Check that the key service answers; a missing or refused footer key counts as an answer, and the line says so.

    Raises:
        KeyServiceError: it cannot be reached.
        ConfigError: it cannot be opened.
    """
    service, kind = open_key_service(policy.key_service), policy.key_service.type
    try:
        service.describe(policy.footer_key)
    except KeyNotFoundError:
        return f"{kind}: answers, and has no key {policy.footer_key!r}"
    except KeyAccessDeniedError:
        return f"{kind}: answers, and refuses these credentials to look at the footer key"
    return f"{kind}: answers, and knows the footer key"


def check_key(service: KeyService, key: NamedKey) -> str:
    """Wrap and unwrap a random key with a master key.

    Raises:
        KeyServiceError: wrapping or unwrapping failed, or returned another key.
    """
    if key.is_template:
        return "a template, whose keys belong to partitions: not checked"
    secret = os.urandom(16)
    if service.unwrap(key.key_id, service.wrap(key.key_id, secret)) != secret:
        raise KeyServiceError(f"key {key.key_id!r}: what was unwrapped is not what was wrapped")
    return "wraps and unwraps"


def check_audit(policy: Policy) -> str:
    """Return the master key that authenticates the audits of runs, or why that key is weak."""
    masters = MasterKeys.of(policy)
    return masters.weakness(masters.current) or f"authenticated under {masters.current!r}, a key of its own"


def check_environment(policy: Policy, spark: SparkSession) -> str:
    """Check that users of a server with keys of their own cannot read the key service's credential in its environment.

    Args:
        policy: the policy with ``{principal}`` where the file has it.
        spark: a session that is launched as the server is.

    Raises:
        ConfigError: a variable is set here, or for executors; the message names it.
    """
    if PRINCIPAL not in policy.key_service.options_json:
        return "the key service is the same for all users"
    found = [
        name
        for name in credential_variables(policy.key_service)
        if os.environ.get(name) or spark.sparkContext.getConf().get(f"spark.executorEnv.{name}", None)
    ]
    if found:
        raise ConfigError(f"users of a server that is started like this could read {', '.join(found)}")
    return "no credential of the key service is in it"


def check_local_directory(config: KeyServiceConfig) -> str:
    """Check that only its owner can access a local key directory.

    Raises:
        ConfigError: it does not exist, or modes give access to others.
    """
    folder = Path(str(config.options.get("path", "")))
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not there")
    wide = [
        f"{path} has mode {mode:04o}"
        for path, allowed in [(folder, _PRIVATE_FOLDER), *((file, _PRIVATE_FILE) for file in sorted(folder.iterdir()))]
        if (mode := stat.S_IMODE(path.stat().st_mode)) & ~allowed
    ]
    if wide:
        raise ConfigError(f"{wide[0]}{f', and {len(wide) - 1} more' if wide[1:] else ''}; allowed: 0700 and 0600")
    return f"{folder} is its owner's alone"


def java_on_path() -> str:
    """Return path and version of the Java that would be started.

    Raises:
        ConfigError: there is no Java, or it does not run.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise ConfigError("there is no java on PATH, and JAVA_HOME is not set")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{java} does not run: {error}") from error
    return f"{java}: {(answer.stderr or answer.stdout).strip().splitlines()[0]}"


def check_state(workplace: Workplace, uri: str) -> str:
    """Check that the state directory refuses to create a record a second time.

    Raises:
        ConfigError: its file system has no conditional create, or needs Spark, which does not start.
        VerificationError: a record was created twice.
    """
    store = workplace.state_directory(uri)
    name = f"doctor/{uuid.uuid4()}"
    try:
        first, second = store.create(name, b"{}"), store.create(name, b"{}")
    finally:
        store.delete(name)
    if not first or second:
        raise VerificationError(f"{uri}: a record could be created twice, so two runs could hold one table")
    return f"{uri}: a record is created once"


def check_plan(spark: SparkSession, table: str, policy: Policy) -> str:
    """Return a summary of a table's plan.

    Raises:
        PlanError: there is no plan for the table, or the plan encrypts nothing.
    """
    from sparkcrypt.runs.table.target import catalog_target
    from sparkcrypt.spark.tables.catalog import Catalog

    plan = catalog_target(spark, Catalog(spark).table(table), policy, None).plan
    if not plan.encrypted:
        raise PlanError(f"{plan.table}: no column carries a tag that encrypts")
    return f"{len(plan.encrypted)} of {len(plan.columns)} columns are encrypted"


def check_stores(spark: SparkSession, table: str, policy: Policy) -> str:
    """Check that a table's tags in the Spark schema and in the properties are the same.

    Raises:
        PlanError: they differ, so tags were lost in one of the places.
    """
    from sparkcrypt.spark.tables.planning import plan_table

    differences = plan_table(spark, table, policy).differences
    if differences:
        raise PlanError("; ".join(differences))
    return "both places agree"


def check_names(spark: SparkSession, table: str, policy: Policy) -> str:
    """Check that no name of a table's files is made of values of an encrypted column.

    Raises:
        PlanError: the table is bucketed by such a column.
    """
    from sparkcrypt.spark.tables.planning import plan_table

    found = plan_table(spark, table, policy).in_clear
    if found:
        raise PlanError("; ".join(found))
    return "no encrypted column names files"


def check_properties(spark: SparkSession, table: str) -> str:
    """Check that this version knows all of a table's sparkcrypt properties, since writers and readers refuse others.

    Raises:
        ConfigError: a property is unknown.
    """
    from sparkcrypt.decide.context import refuse_unknown
    from sparkcrypt.spark.tables.catalog import Catalog

    ours = {name: value for name, value in Catalog(spark).table(table).options.items() if name.startswith(PREFIX)}
    refuse_unknown(ours)
    return f"{len(ours)} of sparkcrypt's, all known"


def check_uuid(spark: SparkSession, table: str) -> str:
    """Check that no other table has a table's UUID.

    Raises:
        PlanError: another table has it, as after CREATE TABLE LIKE.
    """
    from sparkcrypt.spark.tables.catalog import Catalog
    from sparkcrypt.spark.tables.identity import find_sharing_tables, shared_text

    found = Catalog(spark).table(table)
    others = find_sharing_tables(spark, found)
    if others:
        raise PlanError(shared_text(found, others))
    return found.uuid or "none yet"


def check_rule(spark: SparkSession, table: str, policy: Policy) -> str:
    """Check that the table's properties contain the policy's rule for the table.

    Raises:
        PlanError: a part is missing, so that it applies only in sessions with the extension.
    """
    from sparkcrypt.spark.tables.catalog import Catalog
    from sparkcrypt.spark.tables.rules import rule_lines

    lines = rule_lines(spark, Catalog(spark).table(table), policy)
    if lines:
        raise PlanError(f"{table}: not in the table's properties: {'; '.join(lines)}")
    return "in place"
