"""`sparkcrypt verify`: checks that files are encrypted by their plan, and authenticates all their modules.

Single files are verified without their table, by their own metadata and the policy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace, check_writable, failed_report
from sparkcrypt.cli.frame.named_files import NamedFile, named_files, policy_keys
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
from sparkcrypt.decide.identity import check_claims, check_orc_identity
from sparkcrypt.errors import FormatError, KeyNotFoundError, SparkcryptError, VerificationError
from sparkcrypt.files.footers import read_facts
from sparkcrypt.files.format import format_of
from sparkcrypt.files.orc import OrcSummary
from sparkcrypt.files.parquet import FileSummary, KnownColumns, RetrieveKey
from sparkcrypt.ledger.audit.key_audit import ShreddedKeys
from sparkcrypt.paths import full_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.difference import find_dark
from sparkcrypt.schema import Path, join_dotted
from sparkcrypt.text import count_of

_HEAD: dict[str, Any] = {"kind": "sparkcrypt verify", "version": 1}
_NONE: Mapping[Path, str] = MappingProxyType({})


def verify_files(
    workplace: Workplace, paths: tuple[str, ...], policy: Policy, *, any_key: bool = False
) -> tuple[dict[str, Any], int, str]:
    """Verify files and all data files below folders.

    Args:
        workplace: the command's workplace.
        paths: paths of files and folders.
        policy: defines the key service, the algorithm and the state directory.
        any_key: whether the key service is also asked for keys that only files name.

    Returns:
        The report, the number of files that failed, and the report as text.

    Raises:
        ConfigError: a path does not exist.
        KeyServiceError: a key is denied, or does not exist and is not known to be shredded.
    """
    verifier = _Verifier(workplace, policy, policy_keys(policy, any_key=any_key))
    results = [verifier.verify(file) for file in named_files(workplace, paths)]
    problems = [result for result in results if result["error"] is not None]
    lines = [
        f"{result['file']}: " + (f"FAIL: {result['error']}" if result["error"] else _describe_result(result))
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


@dataclass
class _Verifier:
    workplace: Workplace
    policy: Policy
    retrieve: RetrieveKey

    def verify(self, file: NamedFile) -> dict[str, Any]:
        """Verify a file, except columns under shredded keys, and return the result as JSON values."""
        try:
            try:
                return {**self._verify(file), "dark_columns": []}
            except KeyNotFoundError:
                dark = self._find_dark(file)
                if not dark:
                    raise
                dark_columns = [
                    {"column": join_dotted(path), "key_id": key, "why": self._shredded.tombstone(key).to_text()}
                    for path, key in sorted(dark.items())
                ]
                return {**self._verify(file, dark), "dark_columns": dark_columns}
        except (FormatError, VerificationError) as error:
            return {"file": file.path, "error": str(error)}

    @cached_property
    def _shredded(self) -> ShreddedKeys:
        return ShreddedKeys(self.workplace.state_directory(self.policy.run_state), self.policy)

    def _find_dark(self, file: NamedFile) -> Mapping[Path, str]:
        with file.open() as stream:
            found = read_facts(file.path, stream, self.retrieve)
        return _NONE if isinstance(found, SparkcryptError) else find_dark(found.summary, self._select)

    def _select(self, key_ids: Collection[str]) -> Collection[str]:
        return self._shredded.select(key_ids)

    def _verify(self, file: NamedFile, dark: Mapping[Path, str] = _NONE) -> dict[str, Any]:
        with file.open() as stream:
            file_format = format_of(stream)
            claimed, weak, place = file_format.inspect(stream), None, full_path(file.path)
            if claimed.encrypted and isinstance(claimed, OrcSummary):
                weak = check_orc_identity(claimed.identity, place, table_uuid=None, strict=False)
            elif isinstance(claimed, FileSummary) and claimed.footer != "plaintext":
                weak = check_claims(self.policy, file.path, claimed.aad_prefix, claimed.algorithm, place=place)
            found = file_format.verify(stream, retrieve_key=self.retrieve, known=KnownColumns(dark)).to_dict()
        return {**found, "file": file.path, "identity": weak, "error": None}


def _is_plaintext(result: dict[str, Any]) -> bool:
    if result.get("format") == "orc":
        return not result["columns"]
    return result.get("footer") == "plaintext"


def _describe_result(result: dict[str, Any]) -> str:
    dark = (f"column {column['column']} cannot be read: {column['why']}" for column in result["dark_columns"])
    return "; ".join((_describe_content(result), *dark))


def _describe_content(result: dict[str, Any]) -> str:
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
    for what in ("not authenticated", "in clear"):
        found = "; ".join(result[what.replace(" ", "_")])
        text += f"; {what}: {found}" if found else ""
    return text


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(CommandOptions):
    """The options of `sparkcrypt verify`."""

    paths: tuple[str, ...] = use(click.argument("paths", nargs=-1, metavar="[PATH…]"))
    table: str | None = use(table_option)
    path: str | None = use(path_option)
    where: str | None = use(where_option)
    manifest: bool = option("Also compare files with the audit's list: finds deleted, replayed and altered ones.")
    complete: bool = option("With --manifest: files that it does not list are differences too.")
    any_key: bool = use(any_key_option)
    report: str | None = use(report_option)


@click.command(cls=Command)
@options_from(VerifyOptions)
@click.pass_context
def verify(context: click.Context, options: VerifyOptions) -> None:
    """Verify a table or folder against its plan, or single files for themselves.

    With --table or --path every footer is compared with the plan, every key is opened anew, and every encrypted module
    is authenticated: by a helper of its own and the driver, or by tasks of Spark if there is much. With PATH… (files or
    folders, no Spark) each file's algorithm is compared with the policy's, its name and partition with those that it
    was written for, and every module is authenticated. Exits with 74 when something is not as it must be. A table
    without any tag that encrypts has the outcome "untagged" and is not called verified; the exit code is 0. A PATH that
    is not encrypted is no error, since without its table nothing says that it should be: the exit code is 0, the
    outcome "not encrypted", and it is not called verified. A column under a shredded key is named, and everything else
    of its file is verified.
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
        failed_report(workplace, options.report, table or path, **_HEAD),
    ):
        loaded = workplace.policy(options.policy)
        if paths:
            document, problems, text = verify_files(workplace, paths, loaded, any_key=options.any_key)
        else:
            document, problems, text = _verify_target(workplace, loaded, options)
        workplace.write_report(options.report, {**_HEAD, **document})
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
    problems = found.count_differences(complete=options.complete)
    outcome = "drift" if problems else "untagged" if found.untagged else "verified"
    document = {**found.to_dict(), "verified": outcome == "verified", "outcome": outcome}
    return document, problems, found.to_text(complete=options.complete)
