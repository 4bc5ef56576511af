"""The state of all tables at a glance, from what passes, runs and `expire` recorded; `sparkcrypt.status` returns it.

Nothing is authenticated and nothing is changed: passes, and `sparkcrypt backfill status` of one table, check records.
The log of a table is read only where it has records since the last survey of the table, or no survey is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, SparkcryptError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.journal.journal import Journal, has_ended, is_paused
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.store import ListedStore, StateStore, open_state_store
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import Policy, normalized_table
from sparkcrypt.runs.old_folders.old_folder import Awaiting, count_awaiting_expiry
from sparkcrypt.runs.old_folders.problems import Problem, Problems
from sparkcrypt.runs.passes.key_status import find_overdue
from sparkcrypt.runs.passes.last_pass import FOLDER, Figures, LastPass, PassRecord, TagCoverage
from sparkcrypt.runs.passes.lost_tags import recorded_lost_tags
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.table.target import id_of_name
from sparkcrypt.text import Printable, age_of, align_table, count_of, cut_lines, parse_time, percent, size_of, utc_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND, VERSION = "sparkcrypt status", 1
_TAGS_HEAD = ("tag", "encrypted as planned", "bytes", "files")
_HEAD = ("table", "last pass", "ago", "figures", "left", "plaintext awaiting expiry", "problems")
_OF_KEYS = "keys"
"""What the audit of keys has in the place of a table's id."""
_NUMBER = re.compile(r"/(\d{8,12})(?:-\d+)?\.json$", re.ASCII)


@dataclass(frozen=True, slots=True)
class TableStatus(JsonObject):
    """What is recorded of one table or folder.

    Attributes:
        table: its name, or the folder.
        table_id: its id in the state directory; None if only a fresh scan found it.
        last: the last pass over it; None if none is recorded.
        problems: its open problems, as of now.
        tags_lost: which tags it lost by the last pass over it; None if none.
        awaiting: its old files that await expiry; None if that cannot be told.
        awaiting_at: as of when they were counted.
        records_since: how many records its log got after its figures were found.
        unfinished: the run that is at work or was interrupted; None if none is, or nothing happened since the figures.
    """

    table: str
    table_id: str | None
    last: LastPass | None = None
    problems: tuple[Problem, ...] = ()
    tags_lost: str | None = None
    awaiting: Awaiting | None = None
    awaiting_at: str | None = None
    records_since: int = 0
    unfinished: str | None = None

    @property
    def figures(self) -> Figures | None:
        """The figures of its last survey."""
        return None if self.last is None else self.last.figures

    @property
    def drifts(self) -> bool:
        """Whether units differed from the plan after the last pass that surveyed it."""
        return self.figures is not None and self.figures.units_left > 0

    @property
    def untagged(self) -> bool:
        """Whether nothing of it is encrypted, since no column has a tag that encrypts."""
        return self.figures is not None and self.figures.untagged


@dataclass(frozen=True, slots=True)
class EarlierTable(JsonObject):
    """A table that had the name of another before: it was dropped, or renamed since its last pass, and made again.

    Attributes:
        table: the name.
        table_id: its id in the state directory.
        tried: when a pass last worked on it; None if none is recorded.
        awaiting: its old files that await expiry; None if that cannot be told.
    """

    table: str
    table_id: str
    tried: str | None
    awaiting: Awaiting | None


@dataclass(frozen=True, slots=True)
class OverdueKey(JsonObject):
    """A master key whose rotation is overdue, and since when (ISO 8601, UTC)."""

    key_id: str
    since: str
    message: str


@dataclass(frozen=True, slots=True)
class EstateStatus(Printable):
    """The state of all tables that a state directory knows, or of those in some databases.

    Attributes:
        at: when it was read (ISO 8601, UTC).
        policy_digest: the digest of the policy.
        databases: the databases; empty for all, and bare folders.
        fresh: whether figures are of a scan just now, where that reached a table.
        tables: the tables, in the order of their names.
        earlier: tables that had these names before.
        overdue: the keys whose rotation is overdue; None if that is not known.
        keys_unknown: why that is not known.
    """

    at: str
    policy_digest: str
    databases: tuple[str, ...] = ()
    fresh: bool = False
    tables: tuple[TableStatus, ...] = ()
    earlier: tuple[EarlierTable, ...] = ()
    overdue: tuple[OverdueKey, ...] | None = ()
    keys_unknown: str | None = None

    @property
    def coverage(self) -> dict[str, TagCoverage]:
        """Tag -> its files in all tables, in the order of the tags' names."""
        found: dict[str, TagCoverage] = {}
        for table in self.tables:
            for tag, own in (table.figures.coverage if table.figures else {}).items():
                found[tag] = found.get(tag, TagCoverage()) + own
        return dict(sorted(found.items()))

    @property
    def needs_person(self) -> bool:
        """Whether a problem is open, or a table lost tags."""
        return any(table.problems or table.tags_lost for table in self.tables)

    @property
    def exit_code(self) -> int:
        """The exit code: that of `VerificationError` if a person must decide, else 0."""
        return VerificationError.exit_code if self.needs_person else 0

    def to_text(self) -> str:
        """Return a line of sums, the coverage of each tag, a line for each table, and what is wrong."""
        totals, now = self.totals(), parse_time(self.at)
        if not self.tables:
            return "no table is known in this state directory; passes of `sparkcrypt backfill` record theirs"
        matching = totals["surveyed"] - totals["untagged"] - totals["drifting"]
        parts = [
            f"{count_of(totals['tables'], 'table')}: {matching:,} as planned, {totals['drifting']:,} with drift, "
            f"{totals['untagged']:,} untagged, {totals['tables'] - totals['surveyed']:,} not surveyed",
            f"plaintext awaiting expiry: {count_of(totals['plaintext_files_awaiting_expiry'], 'file')}, "
            f"{size_of(totals['plaintext_bytes_awaiting_expiry'])}",
        ]
        tags = [
            (
                tag,
                percent(found.matching_bytes, found.total_bytes),
                f"{size_of(found.matching_bytes)} of {size_of(found.total_bytes)}",
                f"{found.matching_files:,} of {found.files:,}",
            )
            for tag, found in self.coverage.items()
        ]
        if tags:
            parts += ["", align_table(tags, head=_TAGS_HEAD)]
        rows = align_table([_row(table, now) for table in self.tables], head=_HEAD).splitlines()
        parts += ["", rows[0], *cut_lines(rows[1:])]
        wrong = list(_list_wrong(self))
        parts += ["", *cut_lines(wrong)] if wrong else []
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        from sparkcrypt.runs.passes.html.page import embed, status_html

        return embed(status_html(self, ""))

    def totals(self) -> dict[str, int]:
        """Return sums over all tables."""
        waiting = [table.awaiting for table in self.tables if table.awaiting is not None]
        return {
            "tables": len(self.tables),
            "surveyed": sum(table.figures is not None for table in self.tables),
            "untagged": sum(table.untagged for table in self.tables),
            "drifting": sum(table.drifts for table in self.tables),
            "problems": sum(len(table.problems) for table in self.tables),
            "tags_lost": sum(table.tags_lost is not None for table in self.tables),
            "plaintext_files_awaiting_expiry": sum(found.plaintext_files for found in waiting),
            "plaintext_bytes_awaiting_expiry": sum(found.plaintext_bytes for found in waiting),
            "beyond_grace": sum(found.beyond_grace for found in waiting),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "kind": KIND,
            "version": VERSION,
            "at": self.at,
            "policy_digest": self.policy_digest,
            "databases": list(self.databases),
            "fresh": self.fresh,
            "totals": self.totals(),
            "coverage": {tag: found.to_dict() for tag, found in self.coverage.items()},
            "tables": [table.to_dict() for table in self.tables],
            "earlier": [table.to_dict() for table in self.earlier],
            "rotations_overdue": None if self.overdue is None else [key.to_dict() for key in self.overdue],
            "keys_unknown": self.keys_unknown,
        }


def status(
    policy: PolicySource, *, databases: Iterable[str] = (), spark: SparkSession | None = None, fresh: bool = False
) -> EstateStatus:
    """Return the state of all tables that the policy's state directory knows, as passes and runs recorded it.

    Args:
        policy: what the tags mean, and where the state directory is; or the path of its file.
        databases: only tables of these databases; all tables and folders by default.
        spark: a classic session; needed only for a fresh scan, and for a state directory that is not on a local disk.
        fresh: scan the tables of the databases, by default of all databases, as a pass with ``dry_run`` does.

    Raises:
        ConfigError: the policy or the state directory cannot be used, or a session is needed and none is given.
        PlanError: a database does not exist, of those that are to be scanned.
        KeyServiceUnavailableError, BridgeError: an error that ended the scan.
    """
    policy, chosen = policy_of(policy), tuple(databases)
    if spark is None and fresh:
        raise ConfigError("a fresh scan needs a session: give spark, or leave fresh out for what is recorded")
    found = None if spark is None or not fresh else scan(spark, policy, chosen)
    if spark is None:
        return read_status(open_state_store(policy.run_state), policy, chosen, found)
    from sparkcrypt.ledger.state.directory import open_state_directory

    return read_status(open_state_directory(spark, policy.run_state), policy, chosen, found)


def scan(spark: SparkSession, policy: Policy, databases: Collection[str] = ()) -> PassReport:
    """Return the report of a pass with ``dry_run`` over databases, by default over all; nothing is recorded of it.

    Raises:
        PlanError: a database does not exist.
        KeyServiceUnavailableError, BridgeError: an error that every table would meet.
    """
    from sparkcrypt.runs.passes.passes import PassOptions, backfill
    from sparkcrypt.runs.rewrite.options import RunOptions
    from sparkcrypt.spark.tables.catalog import Catalog

    options = PassOptions(RunOptions(dry_run=True, keep_going=True))
    return backfill(spark, policy, databases=databases or Catalog(spark).databases(), options=options)


def read_status(
    store: StateStore, policy: Policy, databases: Iterable[str] = (), found: PassReport | None = None
) -> EstateStatus:
    """Return the state of the tables in a state directory; see `status`.

    Args:
        store: the state directory.
        policy: what the tags mean.
        databases: only tables of these databases; all by default.
        found: the report of a scan, whose figures take the place of those recorded.
    """
    now, chosen = datetime.now(timezone.utc), tuple(databases)
    known = _EstateRecords(ListedStore(store), store, policy.grace_seconds, now)
    tables, earlier = known.read()
    if found is not None:
        tables = _with_scan(tables, found, now)
    wanted = {normalized_table(name) for name in chosen}
    tables = {name: table for name, table in tables.items() if not wanted or name.rpartition(".")[0] in wanted}
    overdue, unknown = _find_overdue(policy, tables.values())
    return EstateStatus(
        at=utc_text(now),
        policy_digest=policy.digest(),
        databases=chosen,
        fresh=found is not None,
        tables=tuple(tables[name] for name in sorted(tables)),
        earlier=tuple(table for table in earlier if normalized_table(table.table) in tables),
        overdue=overdue,
        keys_unknown=unknown,
    )


class _EstateRecords:
    """The records of all tables in a state directory, of which each kind is listed once."""

    def __init__(self, listed: ListedStore, store: StateStore, grace_seconds: float, now: datetime) -> None:
        self._listed, self._store, self._grace, self._now = listed, store, grace_seconds, now
        self._lost = {normalized_table(name): (name, reason) for name, reason in recorded_lost_tags(listed)}

    def read(self) -> tuple[dict[str, TableStatus], list[EarlierTable]]:
        """Return normalized name -> table, and the tables that had these names before."""
        by_name: dict[str, list[TableStatus]] = {}
        for table_id in self._list_ids():
            table = self._read_table(table_id)
            by_name.setdefault(normalized_table(table.table), []).append(table)
        tables, earlier = dict[str, TableStatus](), list[EarlierTable]()
        for name, same in by_name.items():
            *before, newest = sorted(same, key=_newness)
            tables[name] = newest
            earlier += [
                EarlierTable(one.table, str(one.table_id), one.last.tried if one.last else None, one.awaiting)
                for one in before
                if one.table_id != id_of_name(one.table)  # what it had before its first run gave it a UUID
            ]
        for name, (shown, reason) in self._lost.items():
            tables.setdefault(name, TableStatus(shown, None, tags_lost=reason))
        return tables, earlier

    def _list_ids(self) -> list[str]:
        ids = {name.split("/")[1] for kind in ("log/", "problems/") for name in self._listed.list(kind)}
        return sorted((ids | {name.split("/")[2] for name in self._listed.list(FOLDER)}) - {_OF_KEYS})

    def _read_table(self, table_id: str) -> TableStatus:
        last = PassRecord(self._listed, table_id).last
        table = TableStatus(table_id if last is None else last.table, table_id, last)
        counted = None if table.figures is None else table.figures.awaiting
        if table.figures is not None and counted is not None and self._newest_record(table_id) <= counted.as_of:
            waiting = counted.judge_age(self._grace)
            table = replace(table, awaiting=waiting, awaiting_at=table.figures.at)
        else:
            table = self._read_log(table, table_id, 0 if counted is None else counted.as_of)
        problems = tuple(Problems(self._listed, table_id, None).open())
        lost = self._lost.get(normalized_table(table.table), (None, None))[1]
        return replace(table, problems=problems, tags_lost=lost)

    def _newest_record(self, table_id: str) -> int:
        """Return the number with which the last object of a log begins, by their names; 0 if there is none."""
        found = (_NUMBER.search(name) for name in self._listed.list(f"log/{table_id}/"))
        return max((int(match[1]) for match in found if match is not None), default=0)

    def _read_log(self, table: TableStatus, table_id: str, as_of: int) -> TableStatus:
        """Return a table with what its log says; old folders are taken for present until they have expired."""
        try:
            log = TableLog.open(self._listed, table_id, None)
            if log.gaps:  # records may have been packed since all logs were listed
                log = TableLog.open(self._store, table_id, None)
        except VerificationError:
            return table
        journals = [journal for journal in _read_journals(log)]
        open_runs = [journal.run.run_id for journal in journals if not (has_ended(journal) or is_paused(journal))]
        return replace(
            table,
            table=table.table if table.last is not None or not journals else journals[-1].run.table,
            awaiting=count_awaiting_expiry(log, lambda _: True, self._grace),
            awaiting_at=utc_text(self._now),
            records_since=max(0, log.head[0] - as_of) if table.figures is not None else 0,
            unfinished=open_runs[-1] if open_runs else None,
        )


def _read_journals(log: TableLog) -> Iterator[Journal]:
    """Yield the journals of a table that can be read; commands that act on the others report the error."""
    for run_id in Journal.runs(log):
        try:
            yield Journal.open(log, run_id)
        except VerificationError:
            continue


def _newness(table: TableStatus) -> tuple[bool, str, str]:
    """Return what orders tables of one name: the one that a pass last worked on has it now."""
    has_own_id = table.table_id != id_of_name(table.table)
    return has_own_id, table.last.tried if table.last else "", str(table.table_id)


def _with_scan(tables: Mapping[str, TableStatus], found: PassReport, now: datetime) -> dict[str, TableStatus]:
    """Return tables with the figures of a scan; what the last pass over a table did stays."""
    scanned = dict(tables)
    at = utc_text(now)
    for report in found.tables:
        figures = Figures.of(report, now)
        before = scanned.get(normalized_table(report.table), TableStatus(report.table, None))
        last = replace(before.last or LastPass(report.table, at, "dry run"), figures=figures)
        again = replace(before, last=last, awaiting=figures.awaiting, awaiting_at=at, records_since=0)
        scanned[normalized_table(report.table)] = again
    for table, outcome, reason in (
        *((table, "refused", reason) for table, reason in found.refused.items()),
        *((error.table, "failed", error.error) for error in found.failed),
    ):
        before = scanned.get(normalized_table(table), TableStatus(table, None))
        last = replace(before.last or LastPass(table, at, outcome), tried=at, outcome=outcome, reason=reason)
        scanned[normalized_table(table)] = replace(before, last=last)
    return scanned


def _find_overdue(policy: Policy, tables: Iterable[TableStatus]) -> tuple[tuple[OverdueKey, ...] | None, str | None]:
    """Return the keys of tables whose rotation is overdue; or None, and the error, if that cannot be determined."""
    key_ids = {key_id for table in tables if table.figures for key_id in table.figures.key_ids}
    key_ids = {key_id for key_id in key_ids if policy.rotation_period(key_id) is not None}
    if not key_ids:
        return (), None
    try:
        found = find_overdue(open_key_service(policy.key_service), policy, key_ids)
    except SparkcryptError as error:
        return None, str(error)
    return tuple(OverdueKey(due.key_id, utc_text(due.at), due.to_text()) for due in found if due.at), None


def _row(table: TableStatus, now: datetime) -> tuple[object, ...]:
    last, figures, waiting = table.last, table.figures, table.awaiting
    left = None
    if figures is not None:
        left = f"{count_of(figures.units_left, 'unit')}, {size_of(figures.bytes_left)}" if table.drifts else "nothing"
        left = "untagged" if table.untagged else left
    plain = None if waiting is None else "none"
    if waiting is not None and waiting.plaintext_files:
        plain = f"{size_of(waiting.plaintext_bytes)} for {age_of(waiting.plaintext_since, now)}"
    return (
        table.table,
        None if last is None else last.outcome,
        None if last is None else age_of(last.tried, now),
        None if figures is None else f"{age_of(figures.at, now)} old",
        left,
        plain,
        len(table.problems) or None,
    )


def _list_wrong(done: EstateStatus) -> Iterator[str]:
    for table in done.tables:
        yield from (f"open problem: {table.table}: {problem.message}" for problem in table.problems)
        if table.tags_lost:
            yield f"tags lost: {table.table}: {table.tags_lost}"
        if table.last is not None and table.last.reason and not table.tags_lost:
            yield f"{table.last.outcome}: {table.table}: {table.last.reason}"
        if table.awaiting is not None and table.awaiting.beyond_grace:
            yield (
                f"beyond its grace: {table.table}: old files since {table.awaiting.since}: "
                f"`sparkcrypt backfill expire --table {table.table}`"
            )
        if table.unfinished:
            yield f"unfinished: {table.table}: run {table.unfinished} is at work, or was interrupted"
        if table.records_since:
            yield (
                f"changed since: {table.table}: its figures lack what {count_of(table.records_since, 'record')} of "
                "its log did later; the next pass, or --fresh, has it"
            )
    for earlier in done.earlier:
        yield (
            f"made again: {earlier.table}: the table with the id {earlier.table_id} had this name, and was dropped or "
            "renamed; `sparkcrypt backfill orphans` finds what it left"
        )
    yield from (f"rotation overdue: {key.message}" for key in done.overdue or ())
    if done.keys_unknown:
        yield f"whether keys are overdue is not known: {done.keys_unknown}"
