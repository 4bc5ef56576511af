"""`sparkcrypt rewrite`: encrypts, decrypts or re-wraps files without Spark, on all cores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

import sparkcrypt.errors
from sparkcrypt.bridge.identity import check_identity, identity_of_write, partition_values, trailing_partition
from sparkcrypt.cli.command import Command
from sparkcrypt.cli.options import json_option, policy_option
from sparkcrypt.cli.output import counted, say, show, size
from sparkcrypt.cli.progress import progress_on_stderr
from sparkcrypt.cli.session import Workplace
from sparkcrypt.errors import ConfigError, PlanError, SparkcryptError, VerificationError
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.native.listing import data_files
from sparkcrypt.native.orders import EncryptionOrder, FileOrder, FileOutcome, KeySettings
from sparkcrypt.native.places import Settings, place
from sparkcrypt.native.pool import rewrite_all
from sparkcrypt.parquet import leaf_paths, read_footer
from sparkcrypt.parquet.source import open_source
from sparkcrypt.policy.model import Policy
from sparkcrypt.policy.template import KeyTemplate
from sparkcrypt.schema import Path, dotted, split_dotted


@click.command(cls=Command)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@policy_option
@click.option("--column-keys", metavar="KEY:COL,COL;…", help='Encrypt these columns: "pii:ssn,email;fin:salary".')
@click.option("--decrypt", is_flag=True, help="Write plaintext.")
@click.option("--rewrap", is_flag=True, help="Replace key material only; the data is copied.")
@click.option("--workers", type=click.IntRange(1), help="Files at once; all cores by default.")
@json_option
def rewrite(
    source: str,
    target: str,
    policy: str,
    column_keys: str | None,
    decrypt: bool,
    rewrap: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Rewrite Parquet files page by page, decoding nothing, and prove each equal to its source.

    SRC is a file or a folder, DST where nothing is yet.  The footer's key, algorithm and key service are the policy's;
    a key id in --column-keys may be percent-encoded, and a column is a dotted path of a leaf or of a group.

    Examples:
      sparkcrypt rewrite flights.parquet flights.enc.parquet --policy policy.yaml --column-keys "pii:name,email"
      sparkcrypt rewrite warehouse/t plain/t --policy policy.yaml --decrypt
      sparkcrypt rewrite warehouse/t rewrapped/t --policy policy.yaml --rewrap
    """
    if (column_keys is not None) + decrypt + rewrap != 1:
        raise click.UsageError("give one of --column-keys, --decrypt and --rewrap")
    settings: Settings = {}
    with Workplace("sparkcrypt rewrite") as workplace:
        loaded = workplace.policy(policy)
    files = data_files(source, settings)
    _refuse_taken(target, settings)
    wanted = None if column_keys is None else parse_column_keys(column_keys)
    orders = [
        _order(_below(source, file), _below(target, file), loaded, wanted, "decrypt" if decrypt else "rewrap", settings)
        for file in files
    ]
    outcomes = _run(source, orders, loaded, settings, workers)
    _report(outcomes, as_json=as_json)


def parse_column_keys(text: str) -> dict[Path, str]:
    """Parse Parquet's own syntax, ``key:column,column;key:column``; key ids may be percent-encoded.

    Raises:
        PlanError: it is not of that form, or a column has two keys.
    """
    keys: dict[Path, str] = {}
    for part in filter(str.strip, text.split(";")):
        key, colon, columns = part.partition(":")
        names = [name.strip() for name in columns.split(",") if name.strip()]
        if not colon or not key.strip() or not names:
            raise PlanError(f"--column-keys has {part.strip()!r}; allowed: KEY:COLUMN,COLUMN;KEY:COLUMN")
        for name in names:
            path = split_dotted(name)
            if path in keys:
                raise PlanError(f"--column-keys names column {name} twice; give it one key")
            keys[path] = decode_key_id(key.strip())
    if not keys:
        raise PlanError("--column-keys names no column; allowed: KEY:COLUMN,COLUMN;KEY:COLUMN")
    return keys


def _order(
    source: str, target: str, policy: Policy, wanted: dict[Path, str] | None, otherwise: Any, settings: Settings
) -> FileOrder:
    where = place(source, settings)
    footer = read_footer(where)
    if wanted is None:
        if footer.mode != "plaintext":
            for where_it_is in (source, target)[: 1 + (otherwise == "rewrap")]:
                check_identity(footer.aad_prefix, where_it_is, table_uuid=None, strict=False)
            if footer.algorithm not in (policy.algorithm, *policy.algorithm_history):
                raise VerificationError(
                    f"{source}: its algorithm is {footer.algorithm}; allowed by the policy: {policy.algorithm}; name "
                    "it under algorithm_history if it was the policy's once"
                )
        return FileOrder(source, target, otherwise, source_prefix=footer.aad_prefix, source_algorithm=footer.algorithm)
    if footer.mode != "plaintext":
        raise ConfigError(f"{source}: is encrypted already; rewrite it with --decrypt first, or run a backfill")
    assert footer.metadata is not None  # noqa: S101 - a plaintext footer is readable
    identity = identity_of_write(target, target=None, table_uuid=None, partition=None)
    partition = partition_values(trailing_partition(target.split("/")[:-1]))
    columns: dict[Path, str | None] = {}
    for path, key in wanted.items():
        covered = [leaf for leaf in leaf_paths(footer.metadata) if leaf[: len(path)] == path]
        if not covered:
            names = ", ".join(map(dotted, leaf_paths(footer.metadata)))
            raise PlanError(f"{source}: has no column {dotted(path)}; allowed: {names}")
        columns.update(dict.fromkeys(covered, KeyTemplate(key).render(partition)))
    encryption = EncryptionOrder(
        policy.footer_key, policy.footer_mode, policy.algorithm, columns, identity.to_aad_prefix()
    )
    return FileOrder(source, target, "encrypt", encryption)


def _run(
    source: str, orders: Sequence[FileOrder], policy: Policy, settings: Settings, workers: int | None
) -> list[FileOutcome]:
    sizes = {order.source: _size(order.source, settings) for order in orders}
    progress = progress_on_stderr()
    progress.start(source, len(orders), len(orders), sum(sizes.values()))
    keys = KeySettings(policy.key_service.canonical(), policy.data_key_bits)
    outcomes = []
    try:
        largest_first = sorted(orders, key=lambda order: -sizes[order.source])
        for outcome in rewrite_all(largest_first, keys, settings, processes=workers or os.cpu_count() or 1):
            progress.advance(1, sizes[outcome.source], 1)
            outcomes.append(outcome)
    finally:
        progress.finish()
    return sorted(outcomes, key=lambda outcome: outcome.source)


def _report(outcomes: Sequence[FileOutcome], *, as_json: bool) -> None:
    """Show what was done; raise for the first file that failed, after all were shown.

    Raises:
        SparkcryptError: of the class that the file failed with.
    """
    failed = [outcome for outcome in outcomes if outcome.error or outcome.refused]
    written = [outcome for outcome in outcomes if outcome not in failed]
    before, after = sum(one.bytes_before for one in written), sum(one.bytes_after for one in written)
    lines = [f"{counted(len(written), 'file')} rewritten and proven: {size(before)} became {size(after)}"]
    lines += [f"note: {note}" for note in dict.fromkeys(note for one in written for note in one.notes)]
    if not failed or not as_json:
        show([one.to_dict() for one in outcomes], "\n".join(lines), as_json=as_json)
    for one in failed[1:]:
        say(f"error: {one.refused or (one.error or ('', ''))[1]}")
    for one in failed:
        kind, message = one.error or ("UnsupportedFileError", one.refused or "")
        raised = getattr(sparkcrypt.errors, kind, SparkcryptError)
        raise raised(f"{message}; {counted(len(failed), 'file')} of {len(outcomes)} failed, without a target")


def _refuse_taken(target: str, settings: Settings) -> None:
    try:
        taken = data_files(target, settings)
    except ConfigError:
        return
    raise ConfigError(f"{target}: is there already, with {counted(len(taken), 'data file')}; name a new place")


def _below(root: str, file: str) -> str:
    return f"{root.rstrip('/')}/{file}" if file else root


def _size(path: str, settings: Settings) -> int:
    with open_source(place(path, settings)) as file:
        return file.size
