"""`sparkcrypt rewrite`: encrypts, decrypts or rewraps files without Spark, on all cores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import click

import sparkcrypt.errors
from sparkcrypt.cli.files.rewrite_orders import Orders, shared_keks
from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import any_key_option, json_option, option, options_from, policy_option, use
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.errors import ConfigError, SparkcryptError
from sparkcrypt.files.listing import data_files
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.files.orders import FileOutcome, KeySettings, Order
from sparkcrypt.files.source import open_source
from sparkcrypt.files.workers import rewrite_all
from sparkcrypt.policy.model import Policy
from sparkcrypt.text import count_of, size_of


@dataclass(frozen=True, kw_only=True)
class RewriteFilesOptions:
    """The options of `sparkcrypt rewrite`."""

    source: str = use(click.argument("source", metavar="SRC"))
    target: str = use(click.argument("target", metavar="DST"))
    policy: str = use(policy_option)
    column_keys: str | None = option('Encrypt these columns: "pii:ssn,email;fin:salary".', metavar="KEY:COL,COL;…")
    decrypt: bool = option("Write plaintext.")
    rewrap: bool = option("Replace key material only; data keys stay, so it revokes nothing.")
    any_key: bool = use(any_key_option)
    workers: int | None = option("Files at once; all cores by default.", type=click.IntRange(1))
    as_json: bool = use(json_option)


@click.command(cls=Command)
@options_from(RewriteFilesOptions)
def rewrite(options: RewriteFilesOptions) -> None:
    """Rewrite Parquet and ORC files, decoding nothing, and prove each equal to its source.

    SRC is a file or a folder, DST where nothing is yet.  A folder in which another format keeps its own list of files
    (Delta, Hudi, Iceberg, a streaming sink) is refused.  The footer's key, algorithm and key service are the policy's;
    a key id in --column-keys may be percent-encoded, and a column is a dotted path of a leaf or of a group.  Where SRC
    is encrypted already, --column-keys gives it new data keys, and must name every column that has one.

    ORC files are told by how they begin.  Their columns are named as `inspect` names them (li._elem.num, kv._value) and
    are encrypted with all below them; readers without the key see nulls, and nothing authenticates what they see.

    --rewrap takes nothing from anybody: whoever kept an old footer or a data key still reads the data.  A key that was
    compromised takes new data keys, by --column-keys.

    Examples:
      sparkcrypt rewrite flights.parquet flights.enc.parquet --policy policy.yaml --column-keys "pii:name,email"
      sparkcrypt rewrite warehouse/t plain/t --policy policy.yaml --decrypt
      sparkcrypt rewrite warehouse/t rewrapped/t --policy policy.yaml --rewrap
    """
    source, target, column_keys = options.source, options.target, options.column_keys
    if (column_keys is not None) + options.decrypt + options.rewrap != 1:
        raise click.UsageError("give one of --column-keys, --decrypt and --rewrap")
    settings: Settings = {}
    with Workplace("sparkcrypt rewrite") as workplace:
        loaded = workplace.policy(options.policy)
    files = data_files(source, settings)
    _refuse_taken(target, settings)
    making = Orders.of(loaded, column_keys, decrypt=options.decrypt, settings=settings, any_key=options.any_key)
    orders = [making.order(_join_below(source, file), _join_below(target, file)) for file in files]
    outcomes = _run(source, orders, loaded, settings, options.workers)
    _report(outcomes, as_json=options.as_json)


def _run(
    source: str, orders: Sequence[Order], policy: Policy, settings: Settings, workers: int | None
) -> list[FileOutcome]:
    sizes = {order.source: _size(order.source, settings) for order in orders}
    progress = progress_on_stderr()
    progress.start(source, len(orders), len(orders), sum(sizes.values()))
    keys = KeySettings(policy.key_service.canonical(), policy.data_key_bits, shared_keks(orders, policy))
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
    """Print the outcomes, and then raise the error of the first failed file.

    Raises:
        SparkcryptError: an error of the class of the first failed file's error.
    """
    failed = [outcome for outcome in outcomes if outcome.error or outcome.refused]
    written = [outcome for outcome in outcomes if outcome not in failed]
    before, after = sum(item.bytes_before for item in written), sum(outcome.bytes_after for outcome in written)
    lines = [f"{count_of(len(written), 'file')} rewritten and proven: {size_of(before)} became {size_of(after)}"]
    lines += [f"note: {note}" for note in dict.fromkeys(note for outcome in written for note in outcome.notes)]
    weak = dict.fromkeys(f"not authenticated: {what}" for outcome in written for what in outcome.unauthenticated)
    lines += weak
    if not failed or not as_json:
        show([outcome.to_dict() for outcome in outcomes], "\n".join(lines), as_json=as_json)
    for entry in failed[1:]:
        say(f"error: {entry.refused or (entry.error or ('', ''))[1]}")
    for entry in failed:
        kind, message = entry.error or ("UnsupportedFileError", entry.refused or "")
        raised = getattr(sparkcrypt.errors, kind, SparkcryptError)
        raise raised(f"{message}; {count_of(len(failed), 'file')} of {len(outcomes)} failed, without a target")


def _refuse_taken(target: str, settings: Settings) -> None:
    try:
        taken = data_files(target, settings)
    except ConfigError:
        return
    raise ConfigError(f"{target}: is there already, with {count_of(len(taken), 'data file')}; name a new place")


def _join_below(root: str, file: str) -> str:
    return f"{root.rstrip('/')}/{file}" if file else root


def _size(path: str, settings: Settings) -> int:
    with open_source(place(path, settings)) as file:
        return file.size
