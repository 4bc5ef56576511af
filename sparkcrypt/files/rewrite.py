"""Rewrites one file by its order and proves the result equal to its source: page by page, or stream by stream."""

from __future__ import annotations

import errno
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path as FilePath
from typing import Any, cast

from sparkcrypt.errors import (
    ConfigError,
    FormatError,
    SparkcryptError,
    StorageError,
    UnsupportedFileError,
    VerificationError,
)
from sparkcrypt.files.access_rights import PRIVATE_FOLDER, make_folders
from sparkcrypt.files.format import FORMATS
from sparkcrypt.files.open_places import Place, Settings, place, remove_file, size_of
from sparkcrypt.files.orc import OrcEncryption, OrcKey, OrcVerification, rewrap_orc, rewrite_orc
from sparkcrypt.files.orc.file.tail import read_purged_note
from sparkcrypt.files.orders import EncryptionOrder, FileOrder, FileOutcome, KeySettings
from sparkcrypt.files.output import most_bytes, open_target, refusal_of_size
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    DataKey,
    FileEncryption,
    FileSummary,
    KeyRequest,
    KnownColumns,
    NewKeys,
    RetrieveKey,
    inspect_file,
    rewrap_file,
    rewrite_file,
)
from sparkcrypt.files.parquet.rewrite.encryption import ColumnKey
from sparkcrypt.files.proof import ContentProof, RewrapProof
from sparkcrypt.files.source import open_source
from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener, WrappedKek
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import LoggingKeyService
from sparkcrypt.names import FileFormat
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.schema import Path, join_dotted

_LOG = logging.getLogger(__name__)
PAUSES = (1.0, 5.0)
"""Seconds before each further attempt at a file whose storage failed after it could be opened."""
_GROWTH = 1.1
"""Assumed upper bound of target size / source size, used where the file system limits the size of a file."""


def rewrite(order: FileOrder, keys: KeySettings, settings: Settings) -> FileOutcome:
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


def _carry_out_with_retries(order: FileOrder, keys: KeySettings, settings: Settings) -> FileOutcome:
    try:
        source, target = place(order.source, settings), place(order.target, settings)
        bytes_before = _see_reachable(source, target, order)
    except (ConfigError, StorageError) as error:
        raise UnsupportedFileError(str(error)) from error
    for pause in PAUSES:
        try:
            return replace(_rewrite_file(order, source, target, keys), bytes_before=bytes_before)
        except (StorageError, OSError):
            if isinstance(source, str) and isinstance(target, str):
                raise
        time.sleep(pause)
    return replace(_rewrite_file(order, source, target, keys), bytes_before=bytes_before)


def failure(order: FileOrder, error: BaseException) -> FileOutcome:
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


def _see_reachable(source: Place, target: Place, order: FileOrder) -> int:
    """Open the source and prepare the target's folder, before anything else is done; return the source's size in bytes.

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
    return size


def _rewrite_file(order: FileOrder, source: Place, target: Place, keys: KeySettings) -> FileOutcome:
    work = _WORK[order.format](order, source, target, _worker(keys.to_json()))
    notes = work.write()
    try:
        proven: FileOutcome = work.prove()
    except FormatError as error:
        remove_file(target)
        raise VerificationError(f"{order.target}: the rewritten file cannot be read back: {error}") from error
    except BaseException:
        remove_file(target)
        raise
    return replace(proven, bytes_after=size_of(target), notes=notes)


class _ParquetWork:
    """The work on one Parquet file; the source is verified first, but where no page is decrypted."""

    def __init__(self, order: FileOrder, source: Place, target: Place, worker: _Worker) -> None:
        self._order, self._source, self._target, self._worker = order, source, target, worker
        self._aad = None if order.source_prefix is None else _Expected(order.source_prefix)
        self._proof = ContentProof("parquet", purged=order.purged)
        self._rewrap: RewrapProof | None = None
        self._weak: tuple[str, ...] = ()

    def write(self) -> tuple[str, ...]:
        """Write the target; return notes on what it lost."""
        order, worker = self._order, self._worker
        if order.action == "rewrap" or (order.action == "copy" and order.dark):
            return self._keep_data()
        before = self._proof.read_source(
            self._source, worker.retrieve, aad_prefix=self._aad, check=order.refuse_changed
        )
        self._weak = before.unauthenticated
        if order.action == "copy":
            refuse_material_beside(order.source, external=cast(FileSummary, before.summary).external_material)
            _copy(self._source, self._target)
            return ()
        encryption = None if order.encryption is None else partial(worker.encryption, order.encryption)
        return rewrite_file(
            self._source,
            self._target,
            retrieve_key=worker.retrieve,
            aad_prefix=self._aad,
            encryption=encryption,
            purge=order.purged,
        ).notes

    def _keep_data(self) -> tuple[str, ...]:
        """Rewrap the source's data keys, or copy it with its dark columns; both decrypt no page.

        The source's footer and a module of each of its keys are authenticated before anything is wrapped.  The target's
        data are compared as stored, byte by byte, so a damaged page remains one that every reader refuses.  Then the
        target's keys are opened, and its footer is compared with the source's.  A column whose KEK the key service
        rewrapped is not opened: its key metadata is the source's with the KEK's new wrapping.
        """
        order, worker = self._order, self._worker
        if order.action == "copy":
            self._rewrap = RewrapProof(self._source, worker.retrieve, order.dark, aad_prefix=self._aad)
            found = inspect_file(self._source, retrieve_key=worker.retrieve, aad_prefix=self._aad)
            order.refuse_changed(found)
            refuse_material_beside(order.source, external=found.external_material)
            _copy(self._source, self._target)
            self._weak = ("pages: copied, and only one module of each key was opened",)
            return ()
        keep = partial(worker.keep, order.encryption)
        self._rewrap = RewrapProof(self._source, worker.retrieve, order.dark, keep, self._aad)
        key_values = {} if order.encryption is None else order.encryption.key_values
        self._weak = rewrap_file(
            self._source,
            self._target,
            retrieve_key=worker.retrieve,
            new_keys=NewKeys(partial(worker.wrap, order.encryption), keep, key_values),
            aad_prefix=self._aad,
            known=KnownColumns(order.dark, check=order.refuse_changed),
        ).unauthenticated
        return ()

    def prove(self) -> FileOutcome:
        """Check that the target's content equals the source's, and that it is encrypted as ordered.

        Raises:
            VerificationError: it differs.
            FormatError: it cannot be read back.
        """
        order, retrieve = self._order, self._worker.retrieve
        if self._rewrap is not None:
            summary, kept = self._rewrap.compare(order.target, self._target, retrieve)
            if order.action == "rewrap":
                self._refuse_other_encryption(summary, order.dark)
            return FileOutcome(order.source, order.target, summary.rows or 0, unauthenticated=self._weak, unopened=kept)
        redacts = order.encryption is not None and order.encryption.footer_mode == "plaintext"
        left_out = FORMATS["parquet"].list_left_out(redacts=redacts, purges=bool(order.purged))
        after = self._proof.compare(self._target, retrieve, left_out)
        summary = cast(FileSummary, after.summary)
        if order.action == "decrypt" and summary.footer != "plaintext":
            raise VerificationError(f"{order.target}: its footer is {summary.footer}; it was ordered in plaintext")
        self._refuse_other_encryption(summary, {})
        of_source = (f"source: {what}" for what in self._weak if what not in after.unauthenticated)
        unauthenticated = (*after.unauthenticated, *of_source)
        return FileOutcome(order.source, order.target, after.rows, unauthenticated=unauthenticated)

    def _refuse_other_encryption(self, summary: FileSummary, dark: Mapping[Path, str]) -> None:
        order = self._order
        unmet = None if order.encryption is None else order.encryption.describe_difference(summary, dark)
        if unmet:
            raise VerificationError(f"{order.target}: {unmet}; it was ordered otherwise")


class _OrcWork:
    """The work on one ORC file, whose local keys are opened only if they are bound to the file that was listed."""

    def __init__(self, order: FileOrder, source: Place, target: Place, worker: _Worker) -> None:
        self._order, self._source, self._target, self._worker = order, source, target, worker
        self._proof = ContentProof("orc", order.carried, order.purged)
        self._masters = {} if order.encryption is None else order.encryption.masters
        self._identity = order.source_prefix if order.encryption is None else order.encryption.aad_prefix
        self._left_out = False

    def write(self) -> tuple[str, ...]:
        """Verify the source and write the target; return notes on what it lost."""
        order, maker = self._order, self._worker.maker
        retrieve = _refuse_others(order.source, order.source_prefix, self._worker.retrieve, "it was listed with")
        will_encrypt = tuple(self._masters) if order.action in ("encrypt", "decrypt") else None
        self._proof.read_source(self._source, retrieve, check=order.refuse_changed, will_encrypt=will_encrypt)
        if order.action == "copy":
            _copy(self._source, self._target)
            return ()
        if order.action == "rewrap":
            wrap = partial(self._wrap_local_key, maker)
            return rewrap_orc(
                self._source, self._target, retrieve_key=retrieve, wrap_key=wrap, dark=order.carried
            ).notes
        encryption = None
        if order.action == "encrypt":
            columns = {}
            for path, master in self._masters.items():
                key, wrapped = maker.make(master, is_footer_key=False, file_identity=self._identity)
                columns[path] = OrcKey(key, wrapped, master)
            encryption = OrcEncryption(columns)
        result = rewrite_orc(
            self._source,
            self._target,
            retrieve_key=retrieve,
            encryption=encryption,
            dark=order.carried,
            purge=order.purged,
        )
        self._left_out = bool(result.left_out)
        return result.notes

    def prove(self) -> FileOutcome:
        """Check that the target's content equals the source's, and that it is encrypted as ordered.

        Raises:
            VerificationError: it differs.
            FormatError: it cannot be read back.
        """
        order, before = self._order, cast(OrcVerification, self._proof.before)
        retrieve = _refuse_others(order.target, self._identity, self._worker.retrieve, "was ordered")
        left_out = FORMATS["orc"].list_left_out(redacts=self._left_out, purges=bool(order.purged))
        after = cast(OrcVerification, self._proof.compare(self._target, retrieve, left_out))
        if order.purged.items() - read_purged_note(after.opened.footer).items():
            raise VerificationError(
                f"{order.target}: does not note each column that nulls have replaced, as was ordered"
            )
        ordered = before.columns if order.action == "copy" else {**self._masters, **order.carried}
        for path, column in after.summary.columns.items():
            covering = [key for root, key in ordered.items() if path[: len(root)] == root]
            wanted = covering[0] if covering else None
            if column.key_id != wanted:
                raise VerificationError(
                    f"{order.target}: column {join_dotted(path)} is under {column.key_id!r}, not {wanted!r}; it was "
                    "ordered otherwise"
                )
        unauthenticated = (*after.unauthenticated, *(f"source: {what}" for what in before.unauthenticated))
        return FileOutcome(order.source, order.target, after.rows, unauthenticated=unauthenticated)

    def _wrap_local_key(self, maker: DataKeyMaker, request: KeyRequest, key: bytes) -> tuple[bytes, str]:
        """Return a newly wrapped local key, and the id of the master key that was ordered for the columns it encrypts.

        Raises:
            VerificationError: no master key was ordered for these columns, or more than one.
        """
        root = request.column or ()
        masters = {master for path, master in self._masters.items() if path[: len(root)] == root}
        if len(masters) != 1:
            raise VerificationError(
                f"{self._order.source}: column {join_dotted(root)} has one local key, and was ordered under "
                f"{', '.join(sorted(masters)) or 'none'}; someone replaced the file since it was listed"
            )
        (master,) = masters
        return maker.wrap(key, master, is_footer_key=False, file_identity=self._identity), master


_WORK: Mapping[FileFormat, Any] = {"parquet": _ParquetWork, "orc": _OrcWork}


def _copy(source: Place, target: Place) -> None:
    with open_source(source) as file, open_target(target, file.access) as output:
        output.copy(file, 0, file.size, "the file")


def _refuse_others(file: str, identity: bytes | None, retrieve_key: RetrieveKey, what: str) -> RetrieveKey:
    """Return a callback that opens local keys bound to one file identity, and refuses all others."""

    def retrieve(request: KeyRequest) -> bytes:
        found, column = parse_key_material(request.key_metadata or b"").file_identity, join_dotted(request.column or ())
        if found is None:
            raise VerificationError(
                f"{file}: nothing ties the local key of {column} to this file; restore the file, or write it again"
            )
        if found != identity:
            raise VerificationError(
                f"{file}: the local key of {column} is bound to another file than {what}; someone replaced the file"
            )
        return retrieve_key(request)

    return retrieve


def refuse_material_beside(source: str, *, external: bool) -> None:
    """Refuse to copy a file whose key material is in a file beside it: nothing would open the copy.

    Args:
        source: the file's path.
        external: whether its key material is in a file beside it.

    Raises:
        VerificationError: it is; the file was listed with its key material inside, and was replaced since.
    """
    if external:
        raise VerificationError(
            f"{source}: its key material stands in a file beside it now, so nothing would open a copy; someone "
            "replaced the file; run again, which looks at it anew"
        )


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
        make_folder(folder, partial(_find_narrowest_mode, source, folder))
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
