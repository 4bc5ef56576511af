"""`sparkcrypt verify`: checks that files are encrypted by their plan, and authenticates all their modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.failed_report import failed_report
from sparkcrypt.cli.frame.options import (
    CommandOptions,
    any_key_option,
    option,
    options_from,
    path_option,
    report_option,
    require_either,
    table_option,
    use,
    where_option,
)
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.cli.tables.verify_files import verify_files
from sparkcrypt.errors import VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.text import count_of

if TYPE_CHECKING:
    from sparkcrypt.runs.table.verify import LackingFile, TableVerification


_AFTER_WRITERS = (
    "the next `sparkcrypt backfill` records units that writers have replaced; what stays is an open problem "
    "(`sparkcrypt backfill status`), or of a kind that only a run over the unit ends"
)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(CommandOptions):
    """The options of `sparkcrypt verify`."""

    paths: tuple[str, ...] = use(click.argument("paths", nargs=-1, metavar="[PATH…]"))
    table: str | None = use(table_option)
    path: str | None = use(path_option)
    where: str | None = use(where_option)
    manifest: bool = option("Also hold files against the audit's list: finds deleted, replayed, altered ones.")
    complete: bool = option("With --manifest: files that it does not list are differences too.")
    any_key: bool = use(any_key_option)
    report: str | None = use(report_option)


@click.command(cls=Command)
@options_from(VerifyOptions)
@click.pass_context
def verify(context: click.Context, options: VerifyOptions) -> None:
    """Verify a table or folder against its plan, or single files for themselves.

    With --table or --path every footer is compared with the plan, every key is opened by a helper of its own, and every
    encrypted module is authenticated. With PATH… (files or folders, no Spark) each file's algorithm is compared with
    the policy's, its name and partition with those that it was written for, and every module is authenticated. Exits
    with 74 when something is not as it must be. A table without any tag that encrypts has the outcome "untagged" and is
    not called verified; the exit code is 0. A PATH that is not encrypted is no error, since without its table nothing
    says that it should be: the exit code is 0, the outcome "not encrypted", and it is not called verified. A column
    under a shredded key is named, and everything else of its file is verified.
    ORC files authenticate nothing: with PATH… their keys are opened, every stream is decrypted and decompressed, and
    what stands in clear of encrypted columns must be null.

    With --manifest the files are also held against the list that the table's audit keeps of what runs have written.
    Whoever overwrites or drops a partition after a run makes its files differ from that list too; the next backfill
    records that, if none of the listed files is left and every other one authenticates. Deleted and replayed files stay
    differences until `sparkcrypt backfill resolve`.

    Examples:
      sparkcrypt verify --table sales.customers --policy policy.yaml
      sparkcrypt verify --table sales.customers --policy policy.yaml --manifest
      sparkcrypt verify --policy policy.yaml part-00000.snappy.parquet
    """
    paths, table, path, manifest = options.paths, options.table, options.path, options.manifest
    if (paths and (table or path or options.where or manifest)) or (options.any_key and not paths):
        raise click.UsageError(
            "give either files, or --table, or --path; --where and --manifest go with --table, --any-key with files"
        )
    if not paths:
        require_either(table, path)
    if options.complete and not manifest:
        raise click.UsageError("--complete goes with --manifest")
    check_writable(options.report)
    with (
        Workplace("sparkcrypt verify", options.launch) as workplace,
        failed_report(workplace, options.report, table or path),
    ):
        loaded = workplace.policy(options.policy)
        if paths:
            document, problems, text = verify_files(workplace, paths, loaded, any_key=options.any_key)
        else:
            document, problems, text = _verify_target(workplace, loaded, options)
        workplace.write_report(options.report, document)
    show(document, text, as_json=options.as_json)
    if problems:
        say(f"error: {count_of(problems, 'difference')} found")
        context.exit(VerificationError.exit_code)


def _verify_target(workplace: Workplace, policy: Policy, options: VerifyOptions) -> tuple[dict[str, Any], int, str]:
    spark = workplace.spark
    from sparkcrypt.runs.table.verify import verify_table
    from sparkcrypt.spark.setup.session import configure

    if options.path is not None:
        configure(spark, policy)  # the schema of a bare folder is in its files
    found = verify_table(
        spark, options.table, policy, path=options.path, where=options.where, manifest=options.manifest
    )
    listed = found.to_dict()["manifest"] or {}
    unlisted = listed.get("unlisted", [])
    by_list = [*listed.get("missing", []), *listed.get("changed", []), *(unlisted if options.complete else [])]
    problems = len(found.drift) + len(by_list) + len(found.suspicious)
    lines = [
        f"{found.table}: {count_of(found.files, 'file')}, {count_of(found.rows, 'row')}: "
        + (f"{count_of(problems, 'difference')} found" if problems else _describe_match(found)),
        *(
            f"  {entry.file}: {f'{entry.column}: ' if entry.column else ''}{entry.kind}: {entry.detail}"
            for entry in found.drift
        ),
        *(f"  {file}: missing: the manifest lists it" for file in listed.get("missing", [])),
        *(f"  {file}: changed: it is not the file that the manifest lists" for file in listed.get("changed", [])),
        *([f"  note: {_AFTER_WRITERS}"] if listed.get("missing") or listed.get("changed") else []),
        *(f"  {file}: unlisted: the manifest does not list it" for file in (unlisted if options.complete else [])),
        *(f"  {_describe_lacking(column, column in found.suspicious)}" for column in found.lacks_tagged_columns),
        *(f"  note: {note}" for note in found.notes),
        *(
            [f"  note: {count_of(len(unlisted), 'file')} not in the manifest"]
            if unlisted and not options.complete
            else []
        ),
        f"  authenticated: {found.authenticated}",
    ]
    outcome = "drift" if problems else "untagged" if found.untagged else "verified"
    document = {**found.to_dict(), "verified": outcome == "verified", "outcome": outcome}
    return document, problems, "\n".join(lines)


def _describe_match(found: TableVerification) -> str:
    if not found.untagged:
        return "as the plan says"
    return "not verified: untagged: no column has a tag that encrypts, so nothing of it is encrypted"


def _describe_lacking(file: LackingFile, suspicious: bool) -> str:
    what = f"{file.file}: lacks_tagged_columns: {', '.join(file.columns)}"
    if suspicious:
        known = "--manifest tells whether a run knows it" if file.listed is None else "the manifest does not list it"
        return f"{what}: nothing in it needs their keys, so it may be planted; {known}"
    return f"note: {what}; " + ("the manifest lists it" if file.listed else "files from before ADD COLUMNS do")
