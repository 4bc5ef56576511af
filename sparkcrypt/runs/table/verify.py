"""Verification of a table: compares footers with the plan, authenticates files, finds what the metastore leaks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from sparkcrypt.decide.identity import check_aad_prefix
from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyServiceError, VerificationError
from sparkcrypt.files.footers import Authentication, FooterFacts, Found
from sparkcrypt.files.format import FORMATS
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.key_audit import ShreddedKeys
from sparkcrypt.ledger.audit.manifest import Digests, ManifestCheck, check_manifest, read_manifest
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.mac import has_mac_key
from sparkcrypt.ledger.unit import Folder, Unit, list_unit, partition_of
from sparkcrypt.paths import trailing_partition
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.difference import Drift, TellShredded, drift_of_summary, find_dark
from sparkcrypt.runs.table.disposal import find_summaries_above
from sparkcrypt.runs.table.footers import DriverFooters, TaskFooters, error_of, fresh_keys
from sparkcrypt.runs.table.open_table import open_target
from sparkcrypt.runs.table.scan import ScannedUnit, Scanner
from sparkcrypt.runs.table.target import Target, catalog_target, path_target
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.jvm.gateway import to_dict
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.text import Printable, count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ORC_NOTE = (
    "{}: ORC authenticates nothing, so a changed value is not noticed when files are read; --manifest compares every "
    "byte of the files with what runs have written"
)


_AFTER_WRITERS = (
    "the next `sparkcrypt backfill` records units that writers have replaced; what stays is an open problem "
    "(`sparkcrypt backfill status`), or of a kind that only a run over the unit ends"
)
_UNTAGGED = "not verified: untagged: no column has a tag that encrypts, so nothing of it is encrypted"


@dataclass(frozen=True, slots=True)
class LackingFile(JsonObject):
    """A file that lacks tagged columns: it is older than they are, or an attacker planted it.

    Attributes:
        file: its path.
        columns: the tagged columns that it lacks.
        every: whether it lacks all of them, so that nothing in it needs their keys.
        listed: whether the manifest lists the file in its present state; None if no manifest was checked.
    """

    file: str
    columns: tuple[str, ...]
    every: bool
    listed: bool | None = None

    def describe(self, *, suspicious: bool) -> str:
        """Return a line on it; a suspicious file may be planted."""
        what = f"{self.file}: lacks_tagged_columns: {', '.join(self.columns)}"
        if suspicious:
            told = "--manifest tells whether a run knows it" if self.listed is None else "the manifest does not list it"
            return f"{what}: nothing in it needs their keys, so it may be planted; {told}"
        return f"note: {what}; " + ("the manifest lists it" if self.listed else "files from before ADD COLUMNS do")


@dataclass(frozen=True, slots=True)
class TableVerification(Printable, JsonObject, json_names={"plan": None}):
    """The result of a verification: drift from the plan, notes on weaknesses, and how much was authenticated.

    ``untagged``: no column has a tag that encrypts and none is encrypted without one, so there was nothing to verify.
    """

    table: str
    files: int
    rows: int
    drift: tuple[Drift, ...]
    notes: tuple[str, ...]
    authenticated: str
    plan: EncryptionPlan
    manifest: ManifestCheck | None = None
    lacks_tagged_columns: tuple[LackingFile, ...] = ()
    untagged: bool = False

    @property
    def suspicious(self) -> tuple[LackingFile, ...]:
        """Files without any tagged column in a table that requires encryption, unless a manifest lists them."""
        if not self.plan.require_encryption:
            return ()
        return tuple(file for file in self.lacks_tagged_columns if file.every and not file.listed)

    @property
    def ok(self) -> bool:
        """Whether nothing differs from the plan or from a checked manifest, and no file is suspicious."""
        return not self.drift and not self.suspicious and (self.manifest is None or self.manifest.ok)

    def count_differences(self, *, complete: bool = False) -> int:
        """Return how much differs from the plan and the manifest; if it must be complete, files that it lacks too."""
        listed = self.manifest
        by_list = 0 if listed is None else len(listed.missing) + len(listed.changed)
        unlisted = len(listed.unlisted) if listed is not None and complete else 0
        return len(self.drift) + by_list + unlisted + len(self.suspicious)

    def to_text(self, *, complete: bool = False) -> str:
        """Return a line for the whole, a line for each difference and note, and what was authenticated.

        Args:
            complete: files that the manifest does not list are differences too.
        """
        differences, suspicious = self.count_differences(complete=complete), self.suspicious
        match = _UNTAGGED if self.untagged else "as the plan says"
        lines = [
            f"{self.table}: {count_of(self.files, 'file')}, {count_of(self.rows, 'row')}: "
            + (f"{count_of(differences, 'difference')} found" if differences else match),
            *(
                f"  {entry.file}: {f'{entry.column}: ' if entry.column else ''}{entry.kind}: {entry.detail}"
                for entry in self.drift
            ),
        ]
        listed = self.manifest
        if listed is not None:
            lines += [f"  {file}: missing: the manifest lists it" for file in listed.missing]
            lines += [f"  {file}: changed: it is not the file that the manifest lists" for file in listed.changed]
            lines += [f"  note: {_AFTER_WRITERS}"] if listed.missing or listed.changed else []
            lines += [f"  {file}: unlisted: the manifest does not list it" for file in listed.unlisted if complete]
        lines += [f"  {file.describe(suspicious=file in suspicious)}" for file in self.lacks_tagged_columns]
        lines += [f"  note: {note}" for note in self.notes]
        if listed is not None and listed.unlisted and not complete:
            lines.append(f"  note: {count_of(len(listed.unlisted), 'file')} not in the manifest")
        return "\n".join([*lines, f"  authenticated: {self.authenticated}"])

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**JsonObject.to_dict(self), "verified": self.ok and not self.untagged}


def verify_table(
    spark: SparkSession,
    table: str | None,
    policy: PolicySource,
    *,
    path: str | None = None,
    where: str | None = None,
    manifest: bool = False,
) -> TableVerification:
    """Verify every file of a table or folder against its plan, with keys that are opened for this alone.

    A helper process started for this opens them for the driver, which reads few small files itself; for many or large
    ones each of Spark's tasks asks the key service.  What tasks may not open or cannot reach, the driver tries.

    Args:
        spark: a classic session.
        table: ``db.table``, or None with ``path``.
        policy: what the tags mean, or the path of its file.
        path: a bare folder.
        where: a predicate over partition columns.
        manifest: also compare the files with the audit's list of what runs have written: files that were deleted,
            replayed or altered since are found, and files that are not listed are named.

    Returns:
        What was found; drift raises no error.

    Raises:
        PlanError: the table does not exist, or its tags make no plan.
        KeyServiceError: a key of an audit cannot be opened; files whose keys cannot be opened are drift instead.
        VerificationError: an audit was changed or cut, or a swap is not recorded.
        ConfigError: there is no manifest, or the policy cannot be read.
    """
    policy = policy_of(policy)
    if table is not None:
        target: Target = catalog_target(spark, Catalog(spark).table(table), policy, None)
    else:
        target = path_target(spark, path or "", policy, None)
    files, count = HadoopFiles(spark), 0
    drift: list[Drift] = []
    lacking: list[LackingFile] = []
    notes: list[str] = list(_metastore_notes(spark, target))
    rows, partial, untagged = 0, False, not target.plan.encrypted

    @cache
    def open_shredded() -> ShreddedKeys:
        return ShreddedKeys(open_state_directory(spark, policy.run_state, outside=target.base), policy)

    def tell_shredded(key_ids: Collection[str]) -> Collection[str]:
        return open_shredded().select(key_ids)

    with fresh_keys(policy.key_service) as keys:
        on_driver = DriverFooters(files, keys, depth="modules")
        reader = _WholeFiles(TaskFooters(spark, policy.key_service, on_driver), tell_shredded)
        for scanned in Scanner(target, files, reader, tell_shredded=tell_shredded).scan(target.units(where)):
            drift.extend(scanned.drift)
            untagged = untagged and not scanned.inherited
            count += len(scanned.unit.files)
            lacking.extend(_find_lacking_files(scanned, target.plan))
            notes.extend(f"{path}: has 0 bytes, so no reader finds a row in it" for path in scanned.unit.empty_files)
            rows += sum(file.summary.rows or 0 for file in scanned.files.values())
            for folder in scanned.unit.folders:
                for known in (scanned.files.get(file.path) for file in folder.files):
                    if known is not None and known.summary.encrypted:
                        proof = known.facts.proof or _UNPROVEN
                        drift.extend(_proof_drift(known.path, proof))
                        partial = partial or proof.partial
                        notes.extend(
                            f"column {join_dotted(path)} cannot be read in some files: "
                            f"{open_shredded().tombstone(key_id).to_text()}"
                            for path, key_id in proof.dark.items()
                        )
                        notes.extend(
                            f"{what} in a plaintext footer; `sparkcrypt rewrite` leaves them out"
                            for what in proof.in_clear
                        )
                        notes.extend(_identity_note(target, scanned.unit, folder, known.summary))
    drift += [drift_of_summary(path, above=True) for path in find_summaries_above(files, target)]
    held = _manifest(spark, target, policy, where) if manifest else None
    return TableVerification(
        table=target.name,
        files=count,
        rows=rows,
        drift=tuple(drift),
        notes=tuple(dict.fromkeys(notes)),
        authenticated="partial" if partial or drift else "nothing" if untagged else "all",
        plan=target.plan,
        manifest=held,
        lacks_tagged_columns=_mark_listed(held, lacking),
        untagged=untagged and not drift,
    )


def _find_lacking_files(scanned: ScannedUnit, plan: EncryptionPlan) -> Iterator[LackingFile]:
    for path, file in scanned.files.items():
        if file.summary.columns is not None:
            columns, every = file.columns.find_lacking_columns(plan)
            if columns:
                yield LackingFile(path, columns, every)


def _mark_listed(manifest: ManifestCheck | None, lacking: Iterable[LackingFile]) -> tuple[LackingFile, ...]:
    """Return the files with `listed` set: a file that a run put into use is merely older than the columns it lacks."""
    if manifest is None:
        return tuple(lacking)
    others = {*manifest.unlisted, *manifest.changed}
    return tuple(replace(lacking_file, listed=lacking_file.file not in others) for lacking_file in lacking)


def _manifest(spark: SparkSession, target: Target, policy: Policy, where: str | None) -> ManifestCheck:
    opened, service = open_target(spark, target, policy), open_key_service(policy.key_service)
    opened.trust.refuse_older_records()
    if not has_mac_key(opened.store, target.table_id):
        raise ConfigError("there is no audit of this table in the policy's state directory; a run makes it")
    files, manifest = opened.files, read_manifest(opened.trust.log())
    units = [list_unit(files, unit) for unit in target.units(where)]
    if where is None:  # add partitions that the manifest lists and that were dropped since
        known = {unit.partition_path for unit in units}
        units += [Unit(name, target.base, None, name, {}) for name in manifest.listed if name not in known]
    return check_manifest(Digests(files, service), manifest, units)


@dataclass(frozen=True, slots=True)
class _WholeFiles:
    """A reader that authenticates files; those with columns under shredded keys, once more without these columns."""

    reader: TaskFooters
    tell_shredded: TellShredded

    def read(self, sources: Sequence[SourceFile]) -> Mapping[str, Found]:
        """Return path -> facts with a proof, or error."""
        found = self.reader.read(sources)
        dark = {path: find_dark(facts.summary, self.tell_shredded) for path, facts in _list_absent(found)}
        again = [source for source in sources if dark.get(source.path)]
        if not again:
            return found
        shredded = frozenset(key_id for columns in dark.values() for key_id in columns.values())
        less = replace(self.reader, driver=replace(self.reader.driver, shredded=shredded))
        return {**found, **less.read(again)}


def _list_absent(found: Mapping[str, Found]) -> Iterator[tuple[str, FooterFacts]]:
    """Yield the files of which a key is absent, but not the footer's."""
    for path, facts in found.items():
        if isinstance(facts, FooterFacts) and isinstance(error_of(facts), KeyNotFoundError):
            yield path, facts


_UNPROVEN = Authentication(
    VerificationError("was not authenticated by the task that read it; see that all executors have this version")
)


def _proof_drift(path: str, proof: Authentication) -> Iterator[Drift]:
    if proof.error is not None:
        kind = f"{type(proof.error).__name__}: " if isinstance(proof.error, KeyServiceError) else ""
        yield Drift("unreadable", path, None, f"{kind}{proof.error}")


def _identity_note(target: Target, unit: Unit, folder: Folder, summary: FileSummary) -> list[str]:
    """Return notes on an ORC file, and on a file in a partition folder whose identity lacks its partition."""
    path, prefix = summary.path, summary.aad_prefix
    notes = [] if FORMATS[summary.format].authenticates else [_ORC_NOTE.format(target.name)]
    if notes and prefix is None:
        return notes  # plaintext, or reported as drift already
    try:
        weak = check_aad_prefix(prefix, path, table_uuid=target.uuid, strict=False)
    except VerificationError:
        return notes  # reported as drift already
    if weak is None or not (partition_of(unit, folder) or trailing_partition(path.split("/")[:-1])):
        return notes
    return [*notes, f"{path}: {weak}; its place within the table is not authenticated"]


def _metastore_notes(spark: SparkSession, target: Target) -> tuple[str, ...]:
    """Return notes on column statistics of encrypted columns, and on differences between the two sources of tags."""
    if target.table is None:
        return target.plan.differences
    statistics = Catalog(spark).statistics(target.table)
    names = set(to_dict(spark, statistics.colStats())) if statistics is not None else set()
    leaked = sorted(names & {column.leaf.logical[0] for column in target.plan.encrypted})
    notes = [
        f"{target.name}: the metastore holds column statistics of the encrypted column {name} in clear"
        for name in leaked
    ]
    return (*notes, *(f"{target.name}: tags differ: {difference}" for difference in target.plan.differences))
