"""`sparkcrypt verify`: whether files are encrypted as the plan says, and every module of theirs authenticates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.failed_report import failed_report
from sparkcrypt.cli.frame.named_files import NamedFile, full_path, named_files, policy_keys
from sparkcrypt.cli.frame.options import (
    Launch,
    json_option,
    one_of,
    path_option,
    policy_option,
    report_option,
    spark_options,
    table_option,
    where_option,
)
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.decide.claims import check_claims
from sparkcrypt.decide.identity import check_orc_identity
from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.orc import inspect_orc, is_orc, verify_orc
from sparkcrypt.parquet import RetrieveKey, read_footer, verify_file
from sparkcrypt.policy.model import Policy
from sparkcrypt.text import count_of

if TYPE_CHECKING:
    from sparkcrypt.backfill.verify import LackingFile


@click.command(cls=Command)
@click.argument("paths", nargs=-1, metavar="[PATH…]")
@table_option
@path_option
@policy_option
@where_option
@click.option(
    "--manifest", is_flag=True, help="Also hold files against the audit's list: finds deleted, replayed, altered ones."
)
@click.option("--complete", is_flag=True, help="With --manifest: files that it does not list are differences too.")
@report_option
@json_option
@spark_options
@click.pass_context
def verify(
    context: click.Context,
    paths: tuple[str, ...],
    table: str | None,
    path: str | None,
    policy: str,
    where: str | None,
    manifest: bool,
    complete: bool,
    report: str | None,
    as_json: bool,
    launch: Launch,
) -> None:
    """Verify a table or folder against its plan, or single files for themselves.

    With --table or --path every footer is compared with the plan, every key is opened by a helper of its own, and every
    encrypted module is authenticated.  With PATH… (files or folders, no Spark) each file's algorithm is compared with
    the policy's, its name and partition with those that it was written for, and every module is authenticated.  Exits
    with 74 when something is not as it must be.  A PATH that is not encrypted is no error, since without its table
    nothing says that it should be: the exit code is 0, the outcome "not encrypted", and it is not called verified.
    ORC files authenticate nothing: with PATH… their keys are opened, every stream is decrypted and decompressed, and
    what stands in clear of encrypted columns must be null.

    With --manifest the files are also held against the list that the table's audit keeps of what runs have written.
    Whoever overwrites a partition after a run makes its files differ from that list too; run a backfill after him.

    Examples:
      sparkcrypt verify --table sales.customers --policy policy.yaml
      sparkcrypt verify --table sales.customers --policy policy.yaml --manifest
      sparkcrypt verify --policy policy.yaml part-00000.snappy.parquet
    """
    if paths and (table or path or where or manifest):
        raise click.UsageError("give either files, or --table, or --path; --where and --manifest go with --table")
    if not paths:
        one_of(table, path)
    if complete and not manifest:
        raise click.UsageError("--complete goes with --manifest")
    check_writable(report)
    with Workplace("sparkcrypt verify", launch) as workplace, failed_report(workplace, report, table or path):
        loaded = workplace.policy(policy)
        if paths:
            document, problems, text = _verify_files(workplace, paths, loaded)
        else:
            document, problems, text = _verify_target(
                workplace, table, path, loaded, where, manifest=manifest, complete=complete
            )
        if report is not None:
            workplace.write(report, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    show(document, text, as_json=as_json)
    if problems:
        say(f"error: {count_of(problems, 'difference')} found")
        context.exit(VerificationError.exit_code)


def _verify_target(
    workplace: Workplace,
    table: str | None,
    path: str | None,
    policy: Policy,
    where: str | None,
    *,
    manifest: bool,
    complete: bool,
) -> tuple[dict[str, Any], int, str]:
    spark = workplace.spark
    from sparkcrypt.backfill.verify import verify_table
    from sparkcrypt.spark.setup.session import configure

    if path is not None:
        configure(spark, policy)  # the schema of a bare folder is in its files
    found = verify_table(spark, table, policy, path=path, where=where, manifest=manifest)
    listed = found.to_dict()["manifest"] or {}
    unlisted = listed.get("unlisted", [])
    by_list = [*listed.get("missing", []), *listed.get("changed", []), *(unlisted if complete else [])]
    problems = len(found.drift) + len(by_list) + len(found.suspicious)
    lines = [
        f"{found.table}: {count_of(found.files, 'file')}, {count_of(found.rows, 'row')}: "
        + (f"{count_of(problems, 'difference')} found" if problems else "as the plan says"),
        *(
            f"  {entry.file}: {f'{entry.column}: ' if entry.column else ''}{entry.kind}: {entry.detail}"
            for entry in found.drift
        ),
        *(f"  {file}: missing: the manifest lists it" for file in listed.get("missing", [])),
        *(f"  {file}: changed: it is not the file that the manifest lists" for file in listed.get("changed", [])),
        *(f"  {file}: unlisted: the manifest does not list it" for file in (unlisted if complete else [])),
        *(f"  {_said_of_lacking(column, column in found.suspicious)}" for column in found.lacks_tagged_columns),
        *(f"  note: {note}" for note in found.notes),
        *([f"  note: {count_of(len(unlisted), 'file')} not in the manifest"] if unlisted and not complete else []),
        f"  authenticated: {found.authenticated}",
    ]
    document = {**found.to_dict(), "verified": not problems, "outcome": "drift" if problems else "verified"}
    return document, problems, "\n".join(lines)


def _said_of_lacking(file: LackingFile, suspicious: bool) -> str:
    what = f"{file.file}: lacks_tagged_columns: {', '.join(file.columns)}"
    if suspicious:
        known = "--manifest tells whether a run knows it" if file.listed is None else "the manifest does not list it"
        return f"{what}: nothing in it needs their keys, so it may be planted; {known}"
    return f"note: {what}; " + ("the manifest lists it" if file.listed else "files from before ADD COLUMNS do")


def _verify_files(workplace: Workplace, paths: tuple[str, ...], policy: Policy) -> tuple[dict[str, Any], int, str]:
    retrieve = policy_keys(policy)
    results = [_verify_file(file, policy, retrieve) for file in named_files(workplace, paths)]
    problems = [result for result in results if result["error"] is not None]
    lines = [
        f"{result['file']}: " + (f"FAIL: {result['error']}" if result["error"] else _result_text(result))
        for result in results
    ]
    plaintext = [result for result in results if _is_plaintext(result)]
    outcome = "failed" if problems else "not encrypted" if plaintext else "verified"
    if plaintext:
        lines.append(
            f"{count_of(len(plaintext), 'file')} of {len(results)} not encrypted: nothing vouches for such files"
        )
    document = {"files": results, "verified": outcome == "verified", "outcome": outcome}
    return document, len(problems), "\n".join(lines)


def _verify_file(file: NamedFile, policy: Policy, retrieve: RetrieveKey) -> dict[str, Any]:
    with file.open() as stream:
        try:
            if is_orc(stream):
                return _verify_orc(file, stream, retrieve)
            claimed, weak = read_footer(stream), None
            if claimed.mode != "plaintext":
                weak = check_claims(
                    policy, file.path, claimed.aad_prefix, claimed.algorithm, place=full_path(file.path)
                )
            found = verify_file(stream, retrieve_key=retrieve)
        except (FormatError, VerificationError) as error:
            return {"file": file.path, "error": str(error)}
    return {**found.to_dict(), "file": file.path, "identity": weak, "error": None}


def _verify_orc(file: NamedFile, stream: BinaryIO, retrieve: RetrieveKey) -> dict[str, Any]:
    claimed, weak = inspect_orc(stream), None
    if claimed.encrypted:
        weak = check_orc_identity(claimed.identity, full_path(file.path), table_uuid=None, strict=False)
    found = verify_orc(stream, retrieve_key=retrieve)
    return {**found.to_dict(), "file": file.path, "identity": weak, "error": None}


def _is_plaintext(result: dict[str, Any]) -> bool:
    if result.get("format") == "orc":
        return not result["columns"]
    return result.get("footer") == "plaintext"


def _result_text(result: dict[str, Any]) -> str:
    if _is_plaintext(result):
        return f"plaintext: not encrypted, so nothing is authenticated; {count_of(result['rows'], 'row')}"
    if result.get("format") == "orc":
        return "; ".join(
            [
                f"decrypts: {count_of(result['decrypted'], 'stream')} of {count_of(len(result['columns']), 'column')}",
                count_of(result["rows"], "row"),
                "ORC authenticates nothing",
                *([f"identity: {result['identity']}"] if result["identity"] else []),
                *result["notes"],
            ]
        )
    amount = f"{count_of(result['modules'], 'module')}, {count_of(result['rows'], 'row')}"
    text = f"authenticated: {result['authenticated']}; {amount}"
    if result["identity"]:
        text += f"; identity: {result['identity']}"
    weak = "; ".join(result["not_authenticated"])
    return f"{text}; not authenticated: {weak}" if weak else text
