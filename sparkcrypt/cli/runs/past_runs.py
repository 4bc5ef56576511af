"""The commands of `sparkcrypt backfill` for past runs: their state, problems, roll-back, old files and orphans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable, failed_report
from sparkcrypt.cli.frame.known_runs import Authenticity, KnownRun, known_runs
from sparkcrypt.cli.frame.options import (
    AGE,
    DURATION,
    CommandOptions,
    FilterOptions,
    Launch,
    databases_option,
    json_option,
    option,
    options_from,
    path_option,
    policy_option,
    report_option,
    required_table_option,
    select_options,
    spark_options,
    table_option,
    use,
)
from sparkcrypt.cli.frame.output import show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.journal.journal import has_ended
from sparkcrypt.ledger.state.lock import is_held
from sparkcrypt.policy.model import normalized_table
from sparkcrypt.runs.passes.key_status import tell_overdue
from sparkcrypt.runs.passes.lost_tags import recorded_lost_tags
from sparkcrypt.text import align_table, count_of, size_of

if TYPE_CHECKING:
    from sparkcrypt.ledger.state.store import StateStore
    from sparkcrypt.runs.old_folders.orphans import Orphan
    from sparkcrypt.runs.old_folders.problems import Problem
    from sparkcrypt.runs.passes.passes import ManyExpired

_APP = "sparkcrypt backfill"
_ORPHANS_HEAD = ("folder", "kind", "files", "bytes", "what")
_HEAD = ("run", "table", "state", "units", "started")


@dataclass(frozen=True, kw_only=True)
class ResolveOptions(CommandOptions):
    """The options of `sparkcrypt backfill resolve`."""

    problem: str = use(click.argument("problem", metavar="PROBLEM"))
    table: str = use(required_table_option)
    keep: Literal["new", "old"] = option(
        "new: keep the table as it is; old: keep what is in the old folder now.",
        required=True,
        type=click.Choice(("new", "old")),
    )
    reason: str = option("The reason, for the audit.", required=True, metavar="TEXT")
    adopt: bool = option(
        "With --keep old: also take in files that readers of a table which requires encryption refuse."
    )
    report: str | None = use(report_option)


@click.command(cls=Command)
@options_from(ResolveOptions)
def resolve(options: ResolveOptions) -> None:
    """Decide an open problem of a table: what happened to a unit's old folder after its swap.

    --keep old puts what is in the old folder now into use, and encrypts it; it is refused where rows were written
    since that would be lost.  --keep new leaves the table as it is, and lets `expire` dispose of the old folder.

    Examples:
      sparkcrypt backfill resolve 3f9a2c1d04b7 --table sales.customers --policy policy.yaml --keep new --reason "ours"
    """
    problem, table, keep = options.problem, options.table, options.keep
    check_writable(options.report)
    head: dict[str, Any] = {"kind": "sparkcrypt resolve", "version": 1, "table": table}
    with (
        Workplace(_APP, options.launch) as workplace,
        failed_report(workplace, options.report, table, **head),
    ):
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.old_folders.problems import Decision
        from sparkcrypt.runs.passes.resolve_problem import resolve_problem

        decision = select_options(Decision, options)
        done = resolve_problem(spark, table, loaded, problem, decision, progress_on_stderr())
        ended = done.run.outcome if done.run else "done"
        workplace.write_report(options.report, {**head, "outcome": ended, **done.to_dict()})
    outcome = f"; run {done.run.run_id}: {done.run.outcome}" if done.run else ""
    text = f"{table}: problem {problem} is resolved: {keep} files are kept{outcome}"
    show(done.to_dict(), text, as_json=options.as_json)


def open_problems(store: StateStore, table_id: str, authenticity: Authenticity) -> tuple[list[Problem], bool]:
    """Return the open problems of a table, and whether they were authenticated, which needs the key service."""
    from sparkcrypt.runs.old_folders.problems import Problems

    mac = authenticity.mac(table_id)
    found = Problems(store, table_id, None if mac is None else lambda: mac).open()
    return found, mac is not None or not found


@dataclass(frozen=True, kw_only=True)
class OrphansOptions(CommandOptions):
    """The options of `sparkcrypt backfill orphans`."""

    databases: tuple[str, ...] = option("Look only beside the tables of this database.", "--database", metavar="NAME")
    path: str | None = use(path_option)
    delete: bool = option("Delete folders of old files; those of new files, staged or once in use, are never deleted.")
    older_than: float = option(
        "Only folders in which nothing has changed for so long; 24h or more.",
        type=DURATION,
        default="7d",
        show_default=True,
        metavar="TIME",
    )


@click.command(cls=Command)
@options_from(OrphansOptions)
def orphans(options: OrphansOptions) -> None:
    """Find folders of runs that nobody knows: of dropped tables, or where a state directory was lost.

    All databases are looked through, unless one is named.  Old files of a run of which the state directory has nothing
    are listed at once, and kept until nothing has changed for --older-than.  Without --database and --path, indexes for
    data skipping whose table is gone are listed too, with the command that drops them; they are never deleted here.

    Examples:
      sparkcrypt backfill orphans --policy policy.yaml
      sparkcrypt backfill orphans --database sales --policy policy.yaml --older-than 30d --delete
    """
    if options.databases and options.path is not None:
        raise click.UsageError("give --database or --path, not both")
    with Workplace(_APP, options.launch) as workplace:
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.old_folders.orphans import find_orphans

        found = find_orphans(
            spark,
            loaded,
            databases=options.databases,
            path=options.path,
            older_than_seconds=options.older_than,
            delete=options.delete,
        )
    show({"orphans": [orphan.to_dict() for orphan in found]}, _describe_orphans(found), as_json=options.as_json)


def _describe_orphans(found: list[Orphan]) -> str:
    if not found:
        return "no folder of a run, and no store, that nobody knows"
    whole = f"{count_of(len(found), 'folder')}, {size_of(sum(orphan.total_bytes for orphan in found))}"
    rows = [
        (entry.folder, entry.kind, f"{entry.files:,}", size_of(entry.total_bytes), orphan_fate(entry))
        for entry in found
    ]
    return f"{whole}\n\n{align_table(rows, head=_ORPHANS_HEAD)}"


def orphan_fate(orphan: Orphan) -> str:
    """Return whether a folder was deleted, is kept and why, or may be deleted."""
    return "deleted" if orphan.deleted else f"kept: {orphan.why_kept}" if orphan.why_kept else "may be deleted"


@dataclass(frozen=True, kw_only=True)
class ExpireOptions(FilterOptions, CommandOptions):
    """The options of `sparkcrypt backfill expire`."""

    tables: tuple[str, ...] = option("A table, a pattern, or the UUID of a dropped table.", "--table", metavar="TABLE")
    databases: tuple[str, ...] = use(databases_option)
    path: str | None = use(path_option)
    run_id: str | None = option("One run of a table, whatever its age; all by default.", "--run", metavar="RUN")
    older_than: float | None = option(
        "Only runs whose new files are in use for so long; the policy's grace by default, 0s for all.",
        type=AGE,
        metavar="TIME",
    )
    dry_run: bool = option("Tell what would be deleted, and delete nothing.")
    report: str | None = use(report_option)


@click.command(cls=Command)
@options_from(ExpireOptions)
@click.pass_context
def expire(context: click.Context, options: ExpireOptions) -> None:
    """Delete the old files of runs, when no reader needs them any more.

    They are listed again first.  What late commits left among them is reconciled with the table; where that cannot
    be told from an overwrite, nothing is deleted.  Without --table, --database and --path, those of all databases.  A
    folder with anything beside its data that is no run's, such as a
    stream's checkpoint or an archive, stays and is named.

    Examples:
      sparkcrypt backfill expire --table sales.customers --policy policy.yaml --dry-run
      sparkcrypt backfill expire --database sales --policy policy.yaml --older-than 7d
    """
    if options.path is not None and (options.select or options.exclude):
        raise click.UsageError("--select and --exclude go with --table and --database, not with --path", context)
    table = _only_table(options)
    if options.run_id is not None and table is None:
        raise click.UsageError("--run goes with one --table, by its name", context)
    check_writable(options.report)
    target = options.path or ", ".join((*options.tables, *(f"{name}.*" for name in options.databases)))
    head: dict[str, Any] = {"kind": "sparkcrypt expire", "version": 1}
    with (
        Workplace(_APP, options.launch) as workplace,
        failed_report(workplace, options.report, target, **head),
    ):
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
        from sparkcrypt.runs.passes.choose_tables import Choice, Filters
        from sparkcrypt.runs.passes.passes import ManyExpired, expire_many

        grace = 0.0 if options.run_id is not None else float(loaded.grace_seconds)
        age = options.older_than if options.older_than is not None else grace
        expiry = ExpiryOptions(age, options.dry_run, progress_on_stderr())
        if table is not None:
            found = ManyExpired((expire_run(spark, table, loaded, run_id=options.run_id, options=expiry),))
        else:
            choice = Choice(options.tables, options.databases, Filters(options.select, options.exclude))
            found = expire_many(spark, loaded, choice, path=options.path, options=expiry)
        stays = bool(found.failed) or any(expired.unread or expired.refused for expired in found.tables)
        outcome = "dry run" if options.dry_run else "incomplete" if stays else "done"
        workplace.write_report(options.report, {**head, "outcome": outcome, **found.to_dict()})
    document = found.to_dict() if table is None else found.tables[0].to_dict()
    show(document, _describe_all_expired(found), as_json=options.as_json)
    context.exit(VerificationError.exit_code if stays else 0)


def _only_table(options: ExpireOptions) -> str | None:
    """Return the one table that is named; None for any other choice, a pattern and a UUID among them."""
    if len(options.tables) != 1 or options.databases or options.path or options.select or options.exclude:
        return None
    name = options.tables[0]
    is_uuid = name.count("-") == 4 and "." not in name
    return None if is_uuid or any(sign in name for sign in "*?[") else name


def _describe_all_expired(found: ManyExpired) -> str:
    lines = [table.to_text() for table in found.tables]
    for name, left in found.left.items():
        lines += [f"{name}: {entry.folder}: {count_of(entry.files, 'file')}: {orphan_fate(entry)}" for entry in left]
    lines += [f"failed: {entry.table}: {entry.error}: {entry.message}" for entry in found.failed]
    return "\n".join(lines) or "no run is known of any of them"


@click.command("list", cls=Command)
@policy_option
@table_option
@json_option
def list_(policy: str, table: str | None, as_json: bool) -> None:
    """List the runs that the policy's state directory knows.

    Examples:
      sparkcrypt backfill list --policy policy.yaml
    """
    with Workplace(_APP, short=True) as workplace:
        found, authenticity = _find_runs(workplace, policy, table)
    text = align_table([_row(run) for run in found], head=_HEAD) if found else "no run is known"
    show([run.to_dict() for run in found], "\n".join([text, *authenticity.lines()]), as_json=as_json)


@click.command("show", cls=Command)
@click.argument("run_id", metavar="RUN")
@policy_option
@json_option
def show_run(run_id: str, policy: str, as_json: bool) -> None:
    """Show one run: its options and the last step of each unit.

    Examples:
      sparkcrypt backfill show 20260131T120000000Z-1a2b3c --policy policy.yaml
    """
    with Workplace(_APP, short=True) as workplace:
        found, authenticity = _find_runs(workplace, policy)
    chosen = [entry for entry in found if entry.run_id == run_id]
    if not chosen:
        latest = ", ".join(run.run_id for run in found[-5:]) or "none"
        raise ConfigError(f"run {run_id} is not known in this state directory; the latest: {latest}")
    show(chosen[0].details(), _describe_run(chosen[0], authenticity.lines()), as_json=as_json)


@click.command(cls=Command)
@policy_option
@click.option("--table", required=True, metavar="DB.TABLE", help="A table, or the folder of a run with --path.")
@json_option
@click.pass_context
def status(context: click.Context, policy: str, table: str, as_json: bool) -> None:
    """Show how far the latest run of a table is, which of its problems are open, and which of its keys are overdue.

    It ends with 74 while a problem is open, a swap may be half done and no run holds the table, the last pass found
    that the table lost tags, or the folder of a table without partitions is missing (which is seen on local disks
    alone).

    Examples:
      sparkcrypt backfill status --table sales.customers --policy policy.yaml
    """
    with Workplace(_APP, short=True) as workplace:
        loaded = workplace.policy(policy)
        state_store = workplace.state_directory(loaded.run_state)
        lost = {normalized_table(name): f"{name}: {reason}" for name, reason in recorded_lost_tags(state_store)}
        try:
            runs, authenticity = _find_runs(workplace, policy, table)
        except ConfigError as error:  # no run of it is known
            if normalized_table(table) in lost:
                raise VerificationError(lost[normalized_table(table)]) from error
            raise
        latest = runs[-1]
        tags_lost = [lost[name] for name in {*map(normalized_table, (table, latest.table or table))} if name in lost]
        problems, authenticated = open_problems(state_store, latest.table_id, authenticity)
        overdue = tell_overdue(loaded, [(state_store, latest.table_id)])
        unsettled = [] if is_held(state_store, latest.table_id) else _find_unsettled(runs)
    note = "" if authenticated else " (not authenticated: the key service did not answer)"
    lines = [f"open problem{note}: {problem.message}" for problem in problems]
    text = "\n".join([_describe_run(latest, authenticity.lines()), *lines])
    if latest.state == "unfinished":
        text += "\nit is running, or was interrupted: then the command that began it continues it"
    if latest.state == "paused":
        text += "\nits budget was spent; the command that began it goes on"
    text += "".join(f"\n{line}" for line in (*tags_lost, *unsettled))
    text += "".join(f"\nrotation overdue: {line}" for line in overdue)
    found: dict[str, Any] = {
        "problems": [problem.to_dict() for problem in problems],
        "problems_authenticated": authenticated,
        "tags_lost": tags_lost,
        "unsettled": unsettled,
    }
    show({**latest.details(), **found, "rotations_overdue": list(overdue)}, text, as_json=as_json)
    context.exit(VerificationError.exit_code if problems or unsettled or tags_lost else 0)


@click.command(cls=Command)
@click.argument("run_id", metavar="RUN")
@policy_option
@click.option("--table", required=True, metavar="DB.TABLE", help="A table of the session catalog.")
@click.option("--dry-run", is_flag=True, help="Tell what would be put back, and change nothing.")
@json_option
@spark_options
def rollback(run_id: str, policy: str, table: str, dry_run: bool, as_json: bool, launch: Launch) -> None:
    """Put the old files of a run back into use, while they are there and nobody has written since.

    The table then differs from its plan again; what the run wrote stays until `expire`.

    Examples:
      sparkcrypt backfill rollback 20260131T120000Z-1a2b3c --table sales.customers --policy policy.yaml --dry-run
    """
    with Workplace(_APP, launch) as workplace:
        loaded, spark = workplace.policy(policy), workplace.spark
        from sparkcrypt.runs.old_folders.rollback import rollback_run

        done = rollback_run(spark, table, loaded, run_id, dry_run=dry_run, progress=progress_on_stderr())
    show(done.to_dict(), done.to_text(), as_json=as_json)


def _find_runs(workplace: Workplace, policy: str, table: str | None = None) -> tuple[list[KnownRun], Authenticity]:
    """Return the runs in the state directory, and the object with the reasons why some are not authenticated."""
    loaded = workplace.policy(policy)
    store = workplace.state_directory(loaded.run_state)
    authenticity = Authenticity(store, loaded)
    return known_runs(store, table, authenticity), authenticity


def _find_unsettled(runs: Sequence[KnownRun]) -> list[str]:
    """Return a line for each unit of a table whose swap may be half done, and one if the table's folder is missing."""
    lines, folders = list[str](), dict[str, str]()
    for run in runs:
        journal = run.journal
        for name, unit in (journal.statuses() if journal else {}).items():
            begun = unit.step == "unit_swapping" and unit.resolved is None and journal and not has_ended(journal)
            if begun or unit.step == "unit_rolling_back":
                lines.append(f"{name}: a swap by run {run.run_id} may be half done; run `sparkcrypt backfill` again")
            if unit.swapped and not unit.partition_path:
                folders[name] = str(unit.fields["outcome"].get("new_location", ""))  # a record may lack it
    local = {name: Path(place.removeprefix("file:")) for name, place in folders.items() if place.startswith("file:/")}
    missing = [f"{name}: {place}, its folder, is missing" for name, place in local.items() if not place.exists()]
    return [*lines, *missing]


def _row(run: KnownRun) -> tuple[object, ...]:
    short = run.to_dict()
    return run.run_id, run.table or run.table_id, run.state, short["units"], short["started"]


def _describe_run(run: KnownRun, doubts: list[str]) -> str:
    lines = [f"{run.table or run.table_id}: run {run.run_id}: {run.state}"]
    if not run.authenticated:
        lines += [f"  {line}" for line in doubts or ["not authenticated"]]
    if run.damage:
        lines.append(f"  {run.damage}")
    rows = [
        (detail["unit"], detail["step"].removeprefix("unit_"), detail["error"]) for detail in run.details()["units"]
    ]
    return "\n".join([*lines, *([align_table(rows, head=("unit", "last step", "error"), indent="  ")] if rows else [])])
