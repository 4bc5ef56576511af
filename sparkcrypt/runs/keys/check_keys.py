"""Check that every file of some tables can be opened with the available keys; only footers are read, no pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import PlanError, SparkcryptError, StorageError, VerificationError
from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.files.parquet.summary import columns_under
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.key_audit import ShreddedKeys
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.mac import MasterKeys, has_mac_key, open_mac
from sparkcrypt.policy.key_service import split_former
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.choose_tables import Choice, Filters, Gate, choose_tables
from sparkcrypt.runs.passes.report import TableFailures
from sparkcrypt.runs.table.footers import DriverFooters, FooterReader, TaskFooters, own_keys
from sparkcrypt.runs.table.scan import list_batches
from sparkcrypt.runs.table.target import CatalogTarget, catalog_target
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Unopened(JsonObject, json_names={"what": "file"}):
    """A file, a folder, a table or the MAC key of its audit, that could not be opened or listed, with the error."""

    what: str
    error: str
    message: str


@dataclass(slots=True)
class CheckedTable(JsonObject):
    """The result of the check of one table.

    Attributes:
        table: its name.
        files: the number of its files.
        encrypted: the number of encrypted files of which every key was opened, except shredded ones.
        plaintext: the number of files that are not encrypted, so that no key is needed.
        key_ids: the master keys that were needed.
        unopened: what could not be opened or read.
        dark: shredded master key -> number of files with columns under it, of which every other key was opened.
    """

    table: str
    files: int = 0
    encrypted: int = 0
    plaintext: int = 0
    key_ids: set[str] = field(default_factory=set)
    unopened: list[Unopened] = field(default_factory=list)
    dark: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**JsonObject.to_dict(self), "dark": dict(sorted(self.dark.items()))}


@dataclass(frozen=True, slots=True)
class CheckedKeys:
    """The result of the check; ``passed_over`` are views and tables of other formats, each with the reason."""

    tables: tuple[CheckedTable, ...]
    passed_over: dict[str, str]

    @property
    def exit_code(self) -> int:
        """The exit code: 74 if something could not be opened, else 0."""
        return VerificationError.exit_code if any(table.unopened for table in self.tables) else 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "tables": [table.to_dict() for table in self.tables],
            "passed_over": [{"table": table, "reason": reason} for table, reason in self.passed_over.items()],
            "opened": not self.exit_code,
        }


def check_keys(
    spark: SparkSession,
    policy: Policy,
    *,
    tables: Iterable[str] = (),
    databases: Iterable[str] = (),
    filters: Filters | None = None,
    without_former: bool = False,
) -> CheckedKeys:
    """Open every key of every file of some tables, in Spark tasks if there are many files.

    Each key is opened from the file's key metadata, and the parts of the footer that it protects must authenticate, so
    a reader with these keys can open the file.  Pages are not read.  The MAC keys of the tables' audits are opened as
    well.  Keys that the audit of keys records as shredded are counted and not requested.

    Args:
        spark: a classic session.
        policy: the policy with the key service.
        tables: names or patterns.
        databases: databases of which every table in a format of the policy is checked; without tables and databases,
            all of them.
        filters: what is kept of these tables.
        without_former: use the current key service only, so that keys still under a former one are not opened.

    Raises:
        PlanError: a table or database does not exist, or a named table is not a plain table in a format of the policy.
        VerificationError: the audit of keys was changed or cut.
    """
    gate = Gate()
    choice = Choice(tuple(tables), tuple(databases), filters or Filters())
    chosen = choose_tables(spark, choice.or_all(spark), policy)
    files = HadoopFiles(spark)
    state_store = open_state_directory(spark, policy.run_state)
    shredded = ShreddedKeys(state_store, policy).list_all()
    if without_former:
        policy = replace(policy, key_service=split_former(policy.key_service)[0])
    driver = DriverFooters(files, own_keys(policy.key_service), depth="keys", shredded=shredded)
    reader = TaskFooters(spark, policy.key_service, driver)
    checked, failures = list[CheckedTable](), TableFailures()
    for candidate in chosen:
        with failures.of(candidate.table.full_name):
            if gate.of_kind(spark, policy, candidate):
                target = catalog_target(spark, candidate.table, policy, None)
                checked.append(_check_table(spark, target, policy, driver, reader))
    for table, reason in gate.refused.items():
        raise PlanError(f"{table}: {reason}")
    failed = [
        CheckedTable(found.table, unopened=[Unopened("the table", found.error, found.message)])
        for found in failures.found
    ]
    every = tuple(sorted((*checked, *failed), key=lambda checked_table: checked_table.table))
    return CheckedKeys(every, gate.passed_over)


def _check_table(
    spark: SparkSession, target: CatalogTarget, policy: Policy, driver: DriverFooters, reader: FooterReader
) -> CheckedTable:
    checked, unopened = CheckedTable(target.name), list[Unopened]()
    unlisted: dict[str, StorageError] = {}
    for batch in list_batches(target.units(None), driver.files, unlisted):
        some = [file for unit in batch for file in unit.files]
        found = reader.read(some)
        for file in some:
            facts = found[file.path]
            checked.files += 1
            if isinstance(facts, FooterFacts):
                checked.plaintext += not facts.summary.encrypted
                checked.encrypted += facts.summary.encrypted
                dark = set(columns_under(facts.summary, driver.shredded).values())
                checked.dark.update(dark)
                checked.key_ids.update({wrapping.key_id for wrapping in facts.summary.wrappings} - dark)
            else:
                checked.unopened.append(Unopened(file.path, type(facts).__name__, str(facts)))
        failed = ((unit.location, unlisted[unit.name]) for unit in batch if unit.name in unlisted)
        unopened.extend(Unopened(where, type(error).__name__, str(error)) for where, error in failed)
    checked.unopened.extend(unopened)
    store = open_state_directory(spark, policy.run_state, outside=target.base)
    if has_mac_key(store, target.table_id):
        try:
            mac = open_mac(store, target.table_id, open_key_service(policy.key_service), MasterKeys.of(policy))
            checked.key_ids.update(mac.key_ids)
        except SparkcryptError as error:
            checked.unopened.append(Unopened("the audit's MAC key", type(error).__name__, str(error)))
    return checked
