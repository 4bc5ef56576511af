"""Judges each file when it is opened, as Spark's readers do, and makes sure that pyarrow reads the judged footer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sparkcrypt.arrow.access_events import ReadEvents
from sparkcrypt.arrow.decrypted_file import DecryptedFile, Decryption, has_v2_pages, plan_decryption
from sparkcrypt.arrow.file_keys import FileKeys, Reader, encode, opened_key_service
from sparkcrypt.arrow.judged_file import End, JudgedFile
from sparkcrypt.arrow.old_calendar import find_old
from sparkcrypt.arrow.shape import check_names, columns_of, paths_in_file, refuse_shredded
from sparkcrypt.decide.file import resolve_read
from sparkcrypt.errors import FormatError, StorageError
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.files.parquet import Footer, KeyRequest, message_type, read_footer
from sparkcrypt.files.parquet.file.keys import FileCiphers
from sparkcrypt.files.parquet.rewrite.rewrap import inline_footer
from sparkcrypt.files.parquet.rewrite.source_chunk import column_chunks, source_chunks
from sparkcrypt.files.small_files import beside_on, beside_path
from sparkcrypt.files.source import naming, open_source
from sparkcrypt.regular_files import open_regular
from sparkcrypt.schema import Path


@dataclass(slots=True)
class Judge:
    """Opens the files of one read, and judges each on the same bytes that pyarrow then reads.

    Attributes:
        reader: the reader and its policy.
        events: the access events of this read.
        properties: the table's properties, as Spark's readers get them.
        settings: the Hadoop settings that are needed to access the files.
        requested: Spark schema JSON of the columns that are read; None if they are unknown.
        columns: logical paths of the table's leaves; a file may not have one of them in another case.
        needed: returns the logical paths of the leaves that are read from the file of a path.
    """

    reader: Reader
    events: ReadEvents
    properties: Mapping[str, str]
    settings: Settings
    requested: str | None = None
    columns: frozenset[Path] = frozenset()
    needed: Callable[[str], frozenset[Path]] = lambda path: frozenset()
    _keys: dict[str, FileKeys] = field(default_factory=dict)
    _judged: dict[str, End] = field(default_factory=dict)
    _inlined: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    _decrypted: dict[str, Decryption] = field(default_factory=dict)
    _old: dict[str, frozenset[Path]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keys(self, path: str) -> FileKeys:
        """Return the keys of a file, which are opened when the file is."""
        with self._lock:
            return self._keys.setdefault(path, FileKeys(self.reader, path, self.events))

    def old_columns(self, path: str) -> frozenset[Path]:
        """Return the logical paths of leaves that are read from a judged file and may be in the old calendar."""
        return self._old.get(path, frozenset())

    def open(self, path: str) -> JudgedFile | DecryptedFile:
        """Open a file if the policy, the table's history and the file's location allow its footer.

        Raises:
            VerificationError: they do not allow it.
            FormatError: the file is damaged, is no Parquet file, or no longer exists.
            KeyServiceError: the key of the footer, or of a column that is read, is denied or unavailable.
            StorageError: the file cannot be accessed.
        """
        file = open_file(path, self.settings)
        try:
            footer = self._judged.get(path)
            if footer is not None:
                if file.ends_with(footer):
                    return self._as_read(path, file)
                file.close()
                file = open_file(path, self.settings)  # it was rewritten since, so it is judged again
            self._judge(path, file)
            return self._as_read(path, file)
        except BaseException:
            file.close()
            raise

    def _as_read(self, path: str, file: JudgedFile) -> JudgedFile | DecryptedFile:
        """Return a judged file in the form that pyarrow can read."""
        if path in self._decrypted:
            return self._decrypted[path].of(file)
        if path in self._inlined:
            file.end_with(*self._inlined[path])
        return file

    def footer(self, path: str) -> Footer:
        """Return a file's footer, judged.

        Raises:
            SparkcryptError: as `open`.
        """
        file = open_file(path, self.settings)
        try:
            return self._judge(path, file)
        finally:
            file.close()

    def _judge(self, path: str, file: JudgedFile) -> Footer:
        keys, opened = self.keys(path), []

        def retrieve(request: KeyRequest) -> bytes:
            opened.append(keys.open_footer(request.key_metadata or b""))
            return opened[0]

        footer = read_footer(file, retrieve_key=retrieve)  # type: ignore[arg-type]  # it reads, seeks and has a name
        end = file.seal()
        resolve_read(
            {
                "policy": self.reader.policy.canonical(),
                "path": path,
                "properties": dict(self.properties),
                "requested_schema": self.requested,
                "footer": facts_of(footer),
            },
            lambda key_id, wrapped: opened_key_service(self.reader.policy.key_service).keeper.unwrap(key_id, wrapped),
        )
        columns, read = columns_of(footer), self.needed(path)
        in_file = paths_in_file(columns)
        check_names(path, in_file, self.columns)
        refuse_shredded(path, columns, read)
        needed = {in_file[leaf]: leaf for leaf in read if leaf in in_file}
        for column in footer.columns or ():
            if column.own_key and column.path in needed:
                keys.open_column(column.key_metadata or b"", column.path)
        self._look_into(path, file, footer, needed)
        self._inlined.pop(path, None)
        if footer.external_material:  # pyarrow reads key material only from inside a file
            self._inlined[path] = footer.offset, inline_footer(footer, opened[0])
        self._judged[path] = end
        return footer

    def _look_into(self, path: str, file: JudgedFile, footer: Footer, needed: Mapping[Path, Path]) -> None:
        """Record which of the columns that are read pyarrow cannot decrypt, and which may be in the old calendar.

        Args:
            path: the file's path.
            file: the file.
            footer: its footer.
            needed: Parquet path -> logical path of each leaf that is read.
        """
        keys = self.keys(path)
        ciphers = FileCiphers(path, lambda request: keys.data_key(request.key_metadata or b"", request.column))
        paths = [column.path for column in footer.columns or ()]
        self._decrypted.pop(path, None)
        self._old[path] = frozenset()
        if footer.metadata is None or not needed:
            return
        with naming(path), open_source(file) as source:  # type: ignore[arg-type]  # it reads, seeks and has a name
            leaves = {number: needed[column] for number, column in enumerate(paths) if column in needed}
            self._old[path] = find_old(footer.metadata, leaves, partial(column_chunks, source, footer, ciphers))
            chunks = partial(
                source_chunks, source, footer, ciphers, [column for column in paths if column not in needed]
            )
            if footer.mode != "plaintext" and has_v2_pages(chunks()):
                self._decrypted[path] = plan_decryption(footer, chunks())


def open_file(path: str, settings: Settings) -> JudgedFile:
    """Open a file without judging it.

    Raises:
        FormatError: it does not exist.
        StorageError: it cannot be opened.
        ConfigError: its file system cannot be opened.
    """
    from pyarrow.fs import LocalFileSystem

    where = place(path, settings)
    filesystem, name = (LocalFileSystem(), where) if isinstance(where, str) else where
    beside = beside_path(where) if isinstance(where, str) else beside_on(*where)
    try:
        if isinstance(where, str):
            open_regular(where, follow_link=True).close()  # pyarrow would wait for the writer of a pipe
        return JudgedFile(filesystem.open_input_file(name), path, beside)
    except FileNotFoundError as error:
        raise FormatError(f"{path}: is gone since the folder was listed; open the table again") from error
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be reached: {error}; that says nothing of the file: see that its storage answers and lets "
            "you read"
        ) from error


def facts_of(footer: Footer) -> dict[str, Any]:
    """Return a footer's facts about its file's encryption, as ``resolve_read`` takes them."""
    columns = [column for column in footer.columns or () if column.encrypted is not None]
    return {
        "mode": footer.mode,
        "algorithm": footer.algorithm,
        "aad_prefix": encode(footer.aad_prefix),
        "supply_aad_prefix": footer.supply_aad_prefix,
        "aad_file_unique": encode(footer.aad_file_unique),
        "footer_key_metadata": encode(footer.footer_key_metadata),
        "fields": [] if footer.metadata is None else message_type(footer.metadata),
        "columns": [
            {
                "path": list(column.path),
                "encrypted": bool(column.encrypted),
                "key_metadata": encode(column.key_metadata or b"") if column.own_key else None,
            }
            for column in columns
        ],
    }
