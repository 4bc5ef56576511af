"""Rewrites one file by its order and proves the result equal to its source, page by page."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path as FilePath

from sparkcrypt.errors import (
    ConfigError,
    FormatError,
    SparkcryptError,
    StorageError,
    UnsupportedFileError,
    VerificationError,
)
from sparkcrypt.files.access_rights import PRIVATE_FOLDER, make_folders
from sparkcrypt.files.open_places import Place, Settings, place, remove_file, size_of
from sparkcrypt.files.orders import EncryptionOrder, FileOrder, FileOutcome, KeySettings, OrcOrder, Order
from sparkcrypt.files.output import most_bytes, open_target, refusal_of_size
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    DataKey,
    FileEncryption,
    FileSummary,
    KeyRequest,
    Verification,
    inspect_file,
    read_footer,
    rewrite_file,
    verify_file,
)
from sparkcrypt.files.parquet.rewrite.encryption import ColumnKey
from sparkcrypt.files.rewrap import copy_order, refuse_material_beside, refuse_other_keys, rewrap_order
from sparkcrypt.files.rewrite_orc import rewrite_orc_order
from sparkcrypt.files.source import open_source
from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener, WrappedKek
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import LoggingKeyService
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.schema import Path, join_dotted

_LOG = logging.getLogger(__name__)
_REDACTED_PARTS = ("key_value_metadata", "sorting_columns")
"""Parts that a plaintext footer may have to leave out, because they reveal content of encrypted columns."""
PAUSES = (1.0, 5.0)
"""Seconds before each further attempt at a file whose storage failed after it could be opened."""
_GROWTH = 1.1
"""Assumed upper bound of target size / source size, used where the file system limits the size of a file."""


def rewrite(order: Order, keys: KeySettings, settings: Settings) -> FileOutcome:
    """Rewrite a file and prove the result; an error is reported in the outcome, and no target is left.

    Args:
        order: what to do.
        keys: where data keys come from.
        settings: how to reach the files.
    """
    try:
        if order.source == order.target:  # an attempt first removes a target left by an earlier one
            raise ConfigError(f"{order.source}: is both source and target; a file is never rewritten in its place")
        return _carry_out_with_retries(order, keys, settings)
    except UnsupportedFileError as error:
        return FileOutcome(order.source, order.target, refused=str(error))
    except ImportError:
        raise  # a fault of the machine: every file would fail
    except Exception as error:  # noqa: BLE001 - an error in one file must not end the work on others
        return failure(order, error)


def _carry_out_with_retries(order: Order, keys: KeySettings, settings: Settings) -> FileOutcome:
    try:
        source, target = place(order.source, settings), place(order.target, settings)
        _see_reachable(source, target, order)
    except (ConfigError, StorageError) as error:
        raise UnsupportedFileError(str(error)) from error
    for pause in PAUSES:
        try:
            return _rewrite_file(order, source, target, keys)
        except (StorageError, OSError):
            if isinstance(source, str) and isinstance(target, str):
                raise
        time.sleep(pause)
    return _rewrite_file(order, source, target, keys)


def failure(order: Order, error: BaseException) -> FileOutcome:
    """Return the outcome of an order that ended in an error, so that the work on other files continues."""
    if isinstance(error, SparkcryptError):
        error_text = type(error).__name__, str(error)
    elif isinstance(error, OSError):
        written = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
        error_text = StorageError.__name__, f"{order.target if written else order.source}: {error}"
    else:
        _LOG.error("%s: unforeseen error", order.source, exc_info=error)
        what = f"{type(error).__name__}: {error}"
        error_text = SparkcryptError.__name__, f"{order.source}: {what}; nothing foresaw this: report it with the log"
    return FileOutcome(order.source, order.target, error=error_text)


def _see_reachable(source: Place, target: Place, order: Order) -> None:
    """Open the source and prepare the target's folder, before anything else is done.

    Raises:
        StorageError: either cannot be reached from Python, even if Spark could reach it.
        UnsupportedFileError: the target may become larger than its file system allows.
    """
    size = size_of(source)
    try:
        _make_room(target, source, replace=order.replace)
    except OSError as error:
        if isinstance(target, str):
            raise
        raise StorageError(f"{order.target}: cannot be reached: {error}") from error
    most = None if isinstance(target, str) else most_bytes(target[0])
    if most is not None and size * _GROWTH > most:
        raise UnsupportedFileError(f"{order.source}: {refusal_of_size(most)}")


def _rewrite_file(order: Order, source: Place, target: Place, keys: KeySettings) -> FileOutcome:
    worker, digest_key = _worker(keys.to_json()), os.urandom(32)  # digests are only compared here, never stored
    if isinstance(order, OrcOrder):
        return rewrite_orc_order(order, source, target, worker.retrieve, worker.maker)
    verify_aad = None if order.source_prefix is None else _Expected(order.source_prefix)
    if order.action == "rewrap":
        wrap_key, keep_key = partial(worker.wrap, order.encryption), partial(worker.keep, order.encryption)
        return rewrap_order(order, source, target, worker.retrieve, wrap_key, verify_aad, keep_key)
    if order.action == "copy" and order.dark:
        return copy_order(order, source, target, worker.retrieve, verify_aad)
    if order.dark:
        refuse_other_keys(order, read_footer(source, retrieve_key=worker.retrieve, verify_aad=verify_aad))
    before = verify_file(
        source, retrieve_key=worker.retrieve, verify_aad=verify_aad, digest_key=digest_key, dark=order.dark
    )
    order.refuse_algorithm(before.algorithm)
    notes: tuple[str, ...] = ()
    if order.action == "copy":
        external = read_footer(source, retrieve_key=worker.retrieve).external_material
        refuse_material_beside(order.source, external=external)
        with open_source(source) as file, open_target(target, file.access) as output:
            output.copy(file, 0, file.size, "the file")
    else:
        encryption = None if order.encryption is None else partial(worker.encryption, order.encryption)
        result = rewrite_file(
            source,
            target,
            retrieve_key=worker.retrieve,
            verify_aad=verify_aad,
            encryption=encryption,
            purge=order.dark,
        )
        notes = result.notes
    try:
        after = _prove_equal(order, target, worker, before, digest_key)
    except BaseException:
        remove_file(target)
        raise
    return FileOutcome(
        source=order.source,
        target=order.target,
        rows=after.rows,
        bytes_before=size_of(source),
        bytes_after=size_of(target),
        unauthenticated=_list_unauthenticated(before, after),
        notes=notes,
    )


def _list_unauthenticated(before: Verification, after: Verification) -> tuple[str, ...]:
    """Return what is not authenticated in an encrypted target, and what was not in an encrypted source."""
    of_source = () if before.footer == "plaintext" else before.not_authenticated
    of_target = () if after.footer == "plaintext" else after.not_authenticated
    return (*of_target, *(f"source: {what}" for what in of_source if what not in of_target))


def _prove_equal(
    order: FileOrder, target: Place, worker: _Worker, before: Verification, digest_key: bytes
) -> Verification:
    """Check that the target's content equals the source's, and that it is encrypted as ordered.

    Raises:
        VerificationError: it differs.
    """
    redacts = order.encryption is not None and order.encryption.footer_mode == "plaintext"
    left_out = (*(_REDACTED_PARTS if redacts else ()), *(("sorting_columns",) if order.dark else ()))
    equal = {part: digest for part, digest in before.digests.items() if part not in left_out}
    try:
        after = verify_file(
            target, retrieve_key=worker.retrieve, equal_to=equal, digest_key=digest_key, nulls=order.dark
        )
        summary = inspect_file(target, retrieve_key=worker.retrieve)
    except FormatError as error:
        raise VerificationError(f"{order.target}: the rewritten file cannot be read back: {error}") from error
    if order.action == "decrypt" and summary.footer != "plaintext":
        raise VerificationError(f"{order.target}: its footer is {summary.footer}; it was ordered in plaintext")
    unmet = None if order.encryption is None else order.encryption.describe_difference(summary)
    if unmet:
        raise VerificationError(f"{order.target}: {unmet}; it was ordered otherwise")
    return after


class _Expected:
    """A check that refuses a source whose AAD prefix differs from the one that it was listed with."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix

    def __call__(self, prefix: bytes) -> None:
        if prefix != self._prefix:
            raise VerificationError("its AAD prefix is not the one that it was listed with; someone replaced the file")


class _Worker:
    """The keys of one job in this process: each KEK is unwrapped once."""

    def __init__(self, keys: KeySettings) -> None:
        service = LoggingKeyService(open_key_service(KeyServiceConfig.from_dict(json.loads(keys.key_service))))
        self._opener = DataKeyOpener(service)
        self.maker = DataKeyMaker(service, data_key_bits=keys.data_key_bits, keks=keys.keks)
        self._rewrapped = {rewrapped.before: rewrapped.wrapped_kek for rewrapped in keys.rewrapped}

    def retrieve(self, request: KeyRequest) -> bytes:
        """Open a data key of a file by its key metadata."""
        return self._opener.open_metadata(request.key_metadata)

    def encryption(self, order: EncryptionOrder, source: FileSummary) -> FileEncryption:
        """Return an encryption under new data keys for one file, as ordered.

        Raises:
            VerificationError: the file lacks a column that it was listed with.
        """
        absent = sorted(map(join_dotted, order.columns.keys() - (source.columns or {}).keys()))
        if absent:
            raise VerificationError(f"{source.path}: has no column {', '.join(absent)} now; someone replaced the file")
        columns: dict[Path, ColumnKey] = {
            path: FOOTER_KEY if key is None else self._data_key(key) for path, key in order.columns.items()
        }
        return FileEncryption(
            footer=self._data_key(order.footer_key, footer=True),
            algorithm=order.algorithm,
            footer_mode=order.footer_mode,
            columns=columns,
            aad_prefix=order.aad_prefix,
            key_values=order.key_values,
        )

    def wrap(self, order: EncryptionOrder | None, request: KeyRequest, key: bytes) -> bytes:
        """Return new key metadata for a data key, under the ordered master key; without an order, its present one."""
        if order is None:
            master_key_id = parse_key_material(request.key_metadata or b"").master_key_id
        else:
            master_key_id = (order.columns[request.column] if request.column else None) or order.footer_key
        return self.maker.wrap(key, master_key_id, is_footer_key=request.column is None)

    def keep(self, order: EncryptionOrder | None, column: Path, key_metadata: bytes) -> bytes | None:
        """Return a column's key metadata with its KEK rewrapped; None if its data key must be rewrapped instead."""
        if order is None or not self._rewrapped:
            return None
        material = parse_key_material(key_metadata)
        if material.kek_id is None or material.wrapped_kek is None or order.columns.get(column) is None:
            return None
        kek = WrappedKek(material.master_key_id, material.kek_id, material.wrapped_kek)
        wrapped = self._rewrapped.get(kek)
        if wrapped is None or order.columns[column] != material.master_key_id:
            return None
        return replace(material, wrapped_kek=wrapped).to_bytes()

    def _data_key(self, master_key_id: str, *, footer: bool = False) -> DataKey:
        return DataKey(*self.maker.make(master_key_id, is_footer_key=footer))


@lru_cache(maxsize=4)
def _worker(keys: str) -> _Worker:
    return _Worker(KeySettings.from_json(keys))


def _make_room(target: Place, source: Place, *, replace: bool) -> None:
    """Make the target's folder, with no more access than the source's; remove an earlier target if that is allowed.

    Missing folders of the target get the access rights of the source's folder.
    """
    if isinstance(target, str):
        path = FilePath(target)
        make_folders(str(path.parent), str(FilePath(source).parent) if isinstance(source, str) else None)
        if replace:
            path.unlink(missing_ok=True)
        return
    from pyarrow.fs import FileType

    filesystem, name = target
    folder = name.rpartition("/")[0]
    make_folder = getattr(getattr(filesystem, "handler", None), "make_folder", None)
    if make_folder is None:
        filesystem.create_dir(folder, recursive=True)
    else:
        make_folder(folder, _find_narrowest_mode(source, folder))
    if replace and filesystem.get_file_info(name).type != FileType.NotFound:
        filesystem.delete_file(name)


def _find_narrowest_mode(source: Place, folder: str) -> int:
    """Return the mode for a target's new folders: what the source's folders of the same names all allow."""
    mode_of = None if isinstance(source, str) else getattr(getattr(source[0], "handler", None), "mode_of", None)
    if mode_of is None or isinstance(source, str):
        return PRIVATE_FOLDER
    like, mode = source[1].rpartition("/")[0], 0o777
    while True:
        mode &= mode_of(like or "/")
        (like, _, was), (folder, _, name) = like.rpartition("/"), folder.rpartition("/")
        if was != name or not like:
            return int(mode)
