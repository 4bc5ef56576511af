"""One table of the catalog under a policy as an object for Python, with what commands do to a table as methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, overload

from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import ReadMode, normalized_table
from sparkcrypt.runs.keys.apply_shredding import ShredOptions, shred_keys
from sparkcrypt.runs.keys.find_shreddable import Selection, Survey
from sparkcrypt.runs.keys.rotate import RotationOptions, rotate_key
from sparkcrypt.runs.keys.shredding_plan import ShredPlan, ShredReport
from sparkcrypt.runs.old_folders.expire import Expired, ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.rollback import RolledBack, rollback_run
from sparkcrypt.runs.passes.estate import EstateStatus, status
from sparkcrypt.runs.passes.lineage import Lineage, trace_lineage
from sparkcrypt.runs.passes.plan import TargetPlan, plan_target
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.passes.run import encrypt_table
from sparkcrypt.runs.rewrite.options import RunKeywords, RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.open_table import SessionUnderPolicy
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.runs.table.verify import TableVerification, verify_table
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.setup.read import ReadReport, read_table
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import AvroSource, avro_of, set_tags
from sparkcrypt.tags.model import ColumnTags, given_tags

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Unpack


class Table:
    """A table of the session catalog under a policy; its methods do what the commands of their names do.

    ``str()`` of what they return is the text that the commands print, and ``to_dict()`` their JSON.

    Example::

        table = sparkcrypt.Table(spark, "sales.customers", "policy.yaml")
        table.tag({"email": "pii"})
        print(table.plan())
        print(table.encrypt())
        assert table.verify().ok

    Args:
        spark: a classic session.
        name: ``table`` of the current database, or ``database.table``.
        policy: what the tags mean, or the path of its file.

    Attributes:
        name: ``database.table``.

    Raises:
        PlanError: there is no such table.
        ConfigError: the policy cannot be read.
    """

    def __init__(self, spark: SparkSession, name: str, policy: PolicySource) -> None:
        self._under = SessionUnderPolicy(spark, policy_of(policy))
        self.name = Catalog(spark).table(name).full_name

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def tag(self, tags: ColumnTags | None = None, *, avro: AvroSource | None = None) -> None:
        """Set the tags of columns, which replace those that a column has; no file is changed before `encrypt`.

        Args:
            tags: dotted column path -> a tag, or several.
            avro: an Avro schema whose ``confluent:tags`` are set too: the path or URI of its file.

        Raises:
            PlanError: no such column, a partition column, a tag that the policy does not define, or no tag is given.
        """
        given = given_tags(tags, None if avro is None else avro_of(self._under.spark, avro))
        named = {join_dotted(path): names for path, names in given.items()}
        set_tags(self._under.spark, self.name, named, self._under.policy)

    def plan(self, *, where: str | None = None, accept_path_readers: bool = False) -> TargetPlan:
        """Return the key of each column with the reason, how files differ from that, and what `encrypt` would do.

        Args:
            where: a predicate over partition columns: only these partitions.
            accept_path_readers: assume that a run may begin, though the table shares a folder with another.

        Raises:
            PlanError: the tags make no plan, or ``where`` uses other columns.
        """
        spark, policy = self._under.spark, self._under.policy
        return plan_target(
            spark,
            catalog_target(spark, Catalog(spark).table(self.name), policy, None),
            policy,
            where=where,
            parallelism=RunOptions().parallelism,
            accept_path_readers=accept_path_readers,
        )

    def encrypt(self, **options: Unpack[RunKeywords]) -> Report:
        """Encrypt the table's files by its tags; files that match the plan are left, and the session is configured.

        Args:
            **options: options of the run by their names in `sparkcrypt.runs.rewrite.options.RunOptions`, such as
                ``where``, ``engine``, ``dry_run``.

        Raises:
            SparkcryptError: as `sparkcrypt.encrypt_table`.
        """
        return encrypt_table(self._under.spark, self.name, self._under.policy, **options)

    def verify(self, *, where: str | None = None, manifest: bool = False) -> TableVerification:
        """Compare every file with the plan and authenticate it, with keys that are opened for this alone.

        Args:
            where: a predicate over partition columns: only these partitions.
            manifest: also compare the files with the audit's list of what runs have written.

        Raises:
            SparkcryptError: as `sparkcrypt.verify_table`; a difference raises nothing, and ``ok`` is false then.
        """
        return verify_table(self._under.spark, self.name, self._under.policy, where=where, manifest=manifest)

    def read(self, *, on_denied: ReadMode = "error", report: Callable[[ReadReport], None] | None = None) -> DataFrame:
        """Return the rows, with an error, nulls or no column in place of a column whose key is denied.

        Args:
            on_denied: ``error``, ``mask`` or ``drop``.
            report: called before anything is read, with the columns that are null.

        Raises:
            SparkcryptError: as `sparkcrypt.read_table`.
        """
        return read_table(self._under.spark, self.name, self._under.policy, on_denied=on_denied, report=report)

    def expire(
        self, *, run_id: str | None = None, older_than_seconds: float | None = None, dry_run: bool = False
    ) -> Expired:
        """Delete old files of runs, when no reader needs them any more.

        Args:
            run_id: one run, whatever its age; all by default.
            older_than_seconds: only runs whose new files are in use for so long; by default the policy's grace.
            dry_run: tell what would be deleted, and delete nothing.

        Raises:
            ConfigError: the run does not exist, or was killed and may have half-done units.
            VerificationError: something still uses the old files, or a problem is open.
            RunConflictError: a run holds the table.
        """
        grace = 0.0 if run_id is not None else float(self._under.policy.grace_seconds)
        options = ExpiryOptions(grace if older_than_seconds is None else older_than_seconds, dry_run)
        return expire_run(self._under.spark, self.name, self._under.policy, run_id=run_id, options=options)

    def rollback(self, run_id: str, *, dry_run: bool = False) -> RolledBack:
        """Put the old files of a run back into use, while they are there and nobody has written since.

        Args:
            run_id: the run, as ``encrypt`` reported it.
            dry_run: tell what would be put back, and change nothing.

        Raises:
            ConfigError: the run does not exist.
            VerificationError: old files are missing or changed, or rows were written since.
            RunConflictError: a run holds the table.
        """
        return rollback_run(self._under.spark, self.name, self._under.policy, run_id, dry_run=dry_run)

    def rotate(
        self,
        key_id: str,
        *,
        successor: str | None = None,
        keep_version: bool = False,
        compromised: bool = False,
        dry_run: bool = False,
    ) -> PassReport:
        """Add a version to a master key, and rewrap this table's data keys under it; other tables keep older ones.

        Args:
            key_id: the master key.
            successor: another key, which the policy names in its place: it gets no version.
            keep_version: make no version, and rewrap under the newest one.
            compromised: somebody else may have used the key: give every file under it new data keys.
            dry_run: tell how much would be rewrapped, and change nothing.

        Raises:
            ConfigError: the key service does not rotate keys, or the arguments contradict each other or the policy.
            KeyServiceError: the key does not exist, or may not be rotated.
        """
        run = RunOptions(dry_run=dry_run, keep_going=True)
        options = RotationOptions(run=run, successor=successor, keep_version=keep_version, compromised=compromised)
        return rotate_key(self._under.spark, self._under.policy, key_id, tables=[self.name], options=options)

    @overload
    def shred(self, key_id: str | None = None) -> ShredPlan: ...

    @overload
    def shred(
        self, key_id: str | None = None, *, confirm: Callable[[ShredPlan], None], reason: str | None = None
    ) -> ShredReport: ...

    def shred(
        self,
        key_id: str | None = None,
        *,
        confirm: Callable[[ShredPlan], None] | None = None,
        reason: str | None = None,
    ) -> ShredPlan | ShredReport:
        """Return which of this table's keys are past retention and what goes dark with each; with confirm, delete them.

        What is under a deleted key can never be read again, by anybody, in whatever table it is.

        Args:
            key_id: only this key.
            confirm: called once with the plan before any key is deleted, to show it to somebody: an error that it
                raises ends the call.  Where the plan's ``head`` is none, no hold is known.  None: nothing is deleted.
            reason: the reason, for the audit of keys; required for a key without a date.

        Raises:
            ConfigError: the key service cannot delete keys through sparkcrypt, or a reason is missing.
            VerificationError: the audit of keys was changed or cut, or the named key is held or needed.
            KeyServiceError: the key service failed or refused.
        """
        spark, policy, selection = self._under.spark, self._under.policy, Selection((self.name,), key_id=key_id)
        if confirm is not None:
            return shred_keys(spark, policy, selection, ShredOptions(reason), confirm=confirm)
        store, service = open_state_directory(spark, policy.run_state), open_key_service(policy.key_service)
        return Survey(spark, policy, store, service, selection).plan()

    def status(self) -> EstateStatus:
        """Return what passes and runs have recorded of the table; no file is read, and nothing is authenticated."""
        found = status(self._under.policy, databases=[self.name.rpartition(".")[0]], spark=self._under.spark)
        own = normalized_table(self.name)
        return replace(
            found,
            tables=tuple(table for table in found.tables if normalized_table(table.table) == own),
            earlier=tuple(table for table in found.earlier if normalized_table(table.table) == own),
        )

    def lineage(self) -> Lineage:
        """Return the tagged columns that the table's columns came from, and those of all tables between them.

        Raises:
            PlanError: the table has no files whose footers can be read.
        """
        return trace_lineage(self._under.spark, self._under.policy, tables=[self.name])
