"""`sparkcrypt rewrite`: encrypts, decrypts or rewraps files without Spark, on all cores, each by its own order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import click

import sparkcrypt.errors
from sparkcrypt import names
from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.named_files import policy_keys, refuse_foreign_key
from sparkcrypt.cli.frame.options import any_key_option, json_option, option, options_from, policy_option, use
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.cli.frame.progress import progress_on_stderr
from sparkcrypt.decide.identity import check_aad_prefix, check_claims, check_orc_identity, identity_of_write
from sparkcrypt.errors import ConfigError, PlanError, SparkcryptError
from sparkcrypt.files.format import AnySummary, format_of
from sparkcrypt.files.listing import data_files
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.files.orc import OrcSummary
from sparkcrypt.files.orders import EncryptionOrder, FileOrder, FileOutcome, KeySettings
from sparkcrypt.files.parquet import FileSummary, RetrieveKey, inspect_file
from sparkcrypt.files.source import naming, open_source
from sparkcrypt.files.workers import rewrite_all
from sparkcrypt.keys.datakeys import DataKeyMaker, WrappedKek
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.paths import full_path, partition_values, trailing_partition
from sparkcrypt.policy.model import Policy
from sparkcrypt.policy.template import KeyTemplate
from sparkcrypt.schema import Path, join_dotted, split_dotted
from sparkcrypt.text import count_of, size_of


def parse_column_keys(text: str) -> dict[Path, str]:
    """Parse Parquet's own syntax, ``key:column,column;key:column``; key ids may be percent-encoded.

    Raises:
        PlanError: the text does not have that form, or a column has two keys.
    """
    keys: dict[Path, str] = {}
    for part in filter(str.strip, text.split(";")):
        key, colon, columns = part.partition(":")
        named = [name.strip() for name in columns.split(",") if name.strip()]
        if not colon or not key.strip() or not named:
            raise PlanError(f"--column-keys has {part.strip()!r}; allowed: KEY:COLUMN,COLUMN;KEY:COLUMN")
        for name in named:
            path = split_dotted(name)
            if path in keys:
                raise PlanError(f"--column-keys names column {name} twice; give it one key")
            keys[path] = decode_key_id(key.strip())
    if not keys:
        raise PlanError("--column-keys names no column; allowed: KEY:COLUMN,COLUMN;KEY:COLUMN")
    return keys


@dataclass(frozen=True, slots=True)
class Orders:
    """A maker of the orders of files.

    Attributes:
        policy: defines the footer key, the algorithm and the key service.
        action: the action for all files.
        wanted: column -> key template, for columns to encrypt.
        settings: the Hadoop settings that are needed to access the files.
        retrieve_key: opens the keys of sources.
        any_key: whether sources may be under master keys that only they name.
    """

    policy: Policy
    action: Literal["encrypt", "decrypt", "rewrap"]
    wanted: Mapping[Path, str]
    settings: Settings
    retrieve_key: RetrieveKey
    any_key: bool = False

    @classmethod
    def of(cls, policy: Policy, column_keys: str | None, *, decrypt: bool, settings: Settings, any_key: bool) -> Orders:
        """Return the maker of orders for the options of a command line.

        Raises:
            PlanError: as `parse_column_keys`.
        """
        wanted = {} if column_keys is None else parse_column_keys(column_keys)
        action: Literal["encrypt", "decrypt", "rewrap"] = "encrypt" if wanted else "decrypt" if decrypt else "rewrap"
        return cls(policy, action, wanted, settings, policy_keys(policy, any_key=any_key), any_key)

    def order(self, source: str, target: str) -> FileOrder:
        """Return the order of one file, whose format is detected from its first bytes.

        Raises:
            VerificationError: an encrypted source has another algorithm than the policy's, or was moved.
            PlanError: it lacks a column to encrypt.
            ConfigError: it is encrypted, and columns would lose their keys.
        """
        where = place(source, self.settings)
        found = format_of(where).inspect(where)
        if isinstance(found, OrcSummary):
            return self._orc_order(source, target, found)
        order = FileOrder(source, target, self.action, None, found.aad_prefix, found.algorithm)
        if found.footer != "plaintext":
            check_claims(self.policy, source, found.aad_prefix, found.algorithm, place=full_path(source))
            if self.action == "rewrap":  # the file's identity stays
                check_aad_prefix(found.aad_prefix, full_path(target), table_uuid=None, strict=False)
            found = inspect_file(where, retrieve_key=self.retrieve_key)
            self._refuse_foreign(source, found)
        if self.action == "encrypt":
            return replace(order, encryption=self._encryption(found, full_path(target)))
        if self.action == "rewrap" and found.footer_key is not None:
            return replace(order, encryption=self._as_it_is(found, found.footer_key))
        return order

    def _orc_order(self, source: str, target: str, found: OrcSummary) -> FileOrder:
        """Return the order of an ORC file, whose columns are encrypted together with their children.

        Raises:
            VerificationError: it was moved.
        """
        self._refuse_foreign(source, found)
        before = found.identity
        order = FileOrder(source, target, self.action, source_prefix=before, format="orc")
        if before is not None:  # keys that are not bound to a file are refused when they are opened
            check_orc_identity(before, full_path(source), table_uuid=None, strict=False)
        if self.action == "decrypt":
            return replace(order, encryption=EncryptionOrder({}, b""))
        if self.action == "rewrap":  # the file's identity stays
            if before is not None:
                check_orc_identity(before, full_path(target), table_uuid=None, strict=False)
            keys = {column.root: column.key_id for column in found.columns.values()}
            roots = {path: key for path, key in keys.items() if path and key}
            return replace(order, encryption=EncryptionOrder(roots, before or b""))
        self._choose_keys(found, full_path(target))
        partition = partition_values(trailing_partition(full_path(target).split("/")[:-1]))
        columns = {path: KeyTemplate(key).render(partition) for path, key in self.wanted.items()}
        return replace(order, encryption=EncryptionOrder(columns, _identity_at(target)))

    def _refuse_foreign(self, source: str, found: AnySummary) -> None:
        """Refuse a source under a master key that only it names, before workers open its keys.

        Raises:
            VerificationError: it is, and that was not allowed.
        """
        with naming(source):
            for key_id in {
                getattr(found, "footer_key", None),
                *(column.key_id for column in (found.columns or {}).values()),
            } - {None}:
                if not self.any_key:
                    refuse_foreign_key(self.policy, str(key_id))

    def _choose_keys(self, found: AnySummary, target: str) -> dict[Path, str]:
        """Return leaf column -> its key, for all columns to encrypt.

        Raises:
            PlanError: a column does not exist.
            ConfigError: a column would lose its key.
        """
        leaves = found.columns or {}
        partition = partition_values(trailing_partition(target.split("/")[:-1]))
        columns: dict[Path, str] = {}
        for path, key in self.wanted.items():
            covered = [leaf for leaf in leaves if leaf[: len(path)] == path]
            if not covered:
                allowed = ", ".join(map(join_dotted, leaves))
                raise PlanError(f"{found.path}: has no column {join_dotted(path)}; allowed: {allowed}")
            columns.update(dict.fromkeys(covered, KeyTemplate(key).render(partition)))
        lost = sorted(join_dotted(path) for path, column in leaves.items() if column.encrypted and path not in columns)
        if lost:
            raise ConfigError(
                f"{found.path}: is encrypted, and these columns of it would lose their keys: {', '.join(lost)}; name "
                "them in --column-keys too, or write plaintext with --decrypt"
            )
        return columns

    def _encryption(self, found: FileSummary, target: str) -> EncryptionOrder:
        policy, columns = self.policy, self._choose_keys(found, target)
        return EncryptionOrder(
            columns, _identity_at(target), policy.footer_key, policy.footer_mode, policy.algorithm, self._key_values()
        )

    def _as_it_is(self, found: FileSummary, footer_key: str) -> EncryptionOrder:
        """Return the order that changes nothing of a file but the wrapping of its data keys."""
        encrypted = {path: column.key_id for path, column in (found.columns or {}).items() if column.encrypted}
        mode: Literal["encrypted", "plaintext"] = "encrypted" if found.footer == "encrypted" else "plaintext"
        algorithm = found.algorithm or self.policy.algorithm
        return EncryptionOrder(encrypted, found.aad_prefix or b"", footer_key, mode, algorithm, self._key_values())

    def _key_values(self) -> dict[str, str]:
        return {names.POLICY_DIGEST: self.policy.digest()}


def _identity_at(target: str) -> bytes:
    """Return the AAD prefix of a file that is written by path, without a known table."""
    return identity_of_write(full_path(target), target=None, table_uuid=None, partition=None).to_aad_prefix()


def shared_keks(orders: Iterable[FileOrder], policy: Policy) -> tuple[WrappedKek, ...]:
    """Return one new KEK for each master key, so that readers call the key service once for all files.

    Raises:
        KeyServiceError: a KEK could not be wrapped.
    """
    masters = {key for order in orders for key in order.master_keys()}
    maker = DataKeyMaker(open_key_service(policy.key_service), data_key_bits=policy.data_key_bits)
    for key in sorted(masters):
        maker.make(key, is_footer_key=False)
    return maker.wrapped_keks()


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
    workers: int | None = option(
        "Number of files at the same time; by default one for each core.", type=click.IntRange(1)
    )
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
    source: str, orders: Sequence[FileOrder], policy: Policy, settings: Settings, workers: int | None
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
