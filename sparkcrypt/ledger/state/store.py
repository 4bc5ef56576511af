"""Stores for records of runs: small JSON objects, each created exclusively and whole, and never changed after.

A name is a relative path (``runs/<table id>/<run id>/000001.json``).  Everything that must not happen twice (taking a
lock, writing record *n* of a journal) is one ``create`` of one name, so a store is suitable exactly if its ``create``
is exclusive and atomic.
"""

from __future__ import annotations

import contextlib
import json
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from sparkcrypt.durable import NO_LINKS, hidden_file, link_new, sync_folder
from sparkcrypt.errors import ConfigError, FormatError, VerificationError, show
from sparkcrypt.paths import hadoop_local_path
from sparkcrypt.policy.key_service import canonical_json
from sparkcrypt.regular_files import read_regular

MOST_BYTES = 256 * 1024 * 1024
"""The size of a record that names some hundred thousand files of one unit; larger ones are neither written nor read."""


class StateStore(Protocol):
    """A flat store of named records; every method may be called by many threads and processes."""

    def create(self, name: str, content: bytes) -> bool:
        """Create a record with its whole content, or not at all; False if the name is taken.

        Of any number of callers that create one name exactly one gets True.  If this raises, the record may exist.
        """
        ...

    def read(self, name: str) -> bytes | None:
        """Return a record's content; None if there is no such record."""
        ...

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names that begin with a prefix, sorted: at least those that exist before and after the call."""
        ...

    def delete(self, name: str) -> None:
        """Delete a record; does nothing if there is none."""
        ...


class LocalStateStore:
    """Records in a local folder, or in one on a shared file system that has hard links.

    A record is written to a hidden file, synced, and hard-linked to its name: the link fails if the name is taken, and
    readers never see a part of a record.  A writer that dies before the link leaves a hidden file, which is not listed.

    Args:
        root: the folder; it is created with the first record, private to its owner.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).absolute()
        self._durable: set[Path] = set()

    def __repr__(self) -> str:
        return f"LocalStateStore({str(self._root)!r})"

    def create(self, name: str, content: bytes) -> bool:
        """Create a record with its whole content; False if the name is taken.

        Raises:
            ConfigError: the name is not valid, or the file system refuses or has no hard links, or the content is
                larger than what is read again.
        """
        target = self._path(name)
        if len(content) > MOST_BYTES:
            raise ConfigError(
                f"state record {name}: would have {len(content)} bytes; allowed: {MOST_BYTES}; a unit has too many "
                "files, so merge small ones first"
            )
        with self._translate_errors(f"create {name}"):
            self._make_folder(target.parent)
            with hidden_file(target, content) as temporary:
                if not self._link(temporary, target):
                    return False
                sync_folder(target.parent)
                return True

    def read(self, name: str) -> bytes | None:
        """Return a record's content; None if there is no such record.

        Raises:
            ConfigError: the name is not valid, or this user may not read the record.
            VerificationError: it is no regular file, or larger than any record.
        """
        path = self._path(name)
        with self._translate_errors(f"read {name}"):
            try:
                return read_regular(path, MOST_BYTES)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
            except FormatError as error:
                raise VerificationError(f"{error}; restore the state directory's copy of it") from error

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names that begin with a prefix, sorted.

        Raises:
            ConfigError: a folder cannot be listed, so the names would be incomplete.
        """
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self._root
        names: list[str] = []
        with self._translate_errors(f"list {prefix or 'everything'}"):
            for base, folders, files in os.walk(start, onerror=_raise_unless_gone):
                folders[:] = [name for name in folders if not name.startswith(".")]
                within = os.path.relpath(base, self._root)  # once per folder: a Path for each name is slower
                below = "" if within == os.curdir else f"{within}/"
                names += [f"{below}{name}" for name in files if not name.startswith(".")]
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def delete(self, name: str) -> None:
        """Delete a record; does nothing if there is none.

        Raises:
            ConfigError: the name is not valid, or this user may not delete the record.
        """
        path = self._path(name)
        with self._translate_errors(f"delete {name}"), contextlib.suppress(NotADirectoryError):
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        check_name(name)
        return self._root.joinpath(*name.split("/"))

    def _make_folder(self, folder: Path) -> None:
        """Create a folder and sync its parents, so that records in it survive a power cut."""
        if folder in self._durable and folder.is_dir():
            return
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)  # private, and so is everything below it
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for above in (folder, *folder.parents):
            sync_folder(above)
            if above == self._root:
                break
        sync_folder(self._root.parent)
        self._durable.add(folder)

    def _link(self, temporary: Path, target: Path) -> bool:
        try:
            link_new(temporary, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            raise ConfigError(
                f"state directory {self._root}: its file system has no hard links ({error.strerror}), so two runs "
                "could not be kept apart; set run_state of the policy to a local disk, NFS, HDFS or an object store"
            ) from error
        return True

    @contextlib.contextmanager
    def _translate_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"state directory {self._root}: cannot {doing}: {error.strerror or error}; check its disk, and that "
                "this user may read and write it"
            ) from error


def check_name(name: str) -> None:
    """Refuse a name that is outside of the state directory, or hidden.

    Raises:
        ConfigError: the name is not valid.
    """
    if any(not part or part.startswith(".") or "\0" in part for part in name.split("/")):
        raise ConfigError(
            f"state record {show(name)} is not a name; allowed: a relative path of which no part is empty or "
            "begins with a dot"
        )


def open_state_store(uri: str) -> StateStore:
    """Open a state directory on a local or mounted file system, without Spark.

    Args:
        uri: a path, or ``file:/path``, ``file:///path``; nothing in it is unescaped, as in Hadoop's own paths.

    Raises:
        ConfigError: the scheme is another, or empty, and has no conditional create here.
    """
    local = hadoop_local_path(uri)
    scheme, colon, _ = uri.partition(":")
    if local is not None or (uri and not colon):
        return LocalStateStore(local or uri)
    raise ConfigError(
        f"run_state {uri!r}: {f'scheme {scheme!r} has' if scheme else 'it has'} no conditional create that this knows, "
        "so two runs could not be kept apart; allowed: an absolute path, file:/path, and with a Spark session hdfs:, "
        "viewfs:, s3:, s3a:, gs:, abfs: and az:; set run_state of the policy to one of them"
    )


def encode_record(body: Mapping[str, Any]) -> bytes:
    """Return the unique encoding of a record: canonical JSON in ASCII on one line, which ends with a line feed."""
    return encode_decoded(json.loads(json.dumps(body, allow_nan=False)))  # keys become strings before they are sorted


def encode_decoded(body: Mapping[str, Any]) -> bytes:
    """Return the same as ``encode_record``, for a body whose keys are strings, such as ``decode_record`` returns."""
    return canonical_json(body).encode("ascii") + b"\n"


def decode_record(name: str, content: bytes) -> dict[str, Any]:
    """Return the object that a record encodes.

    Raises:
        VerificationError: the bytes are not exactly those that ``encode_record`` returns for it.
    """
    try:
        body = json.loads(content)
        exact = isinstance(body, dict) and encode_decoded(body) == content
    except (ValueError, TypeError, RecursionError):
        exact = False
    if not exact:
        raise other_bytes(name)
    return dict(body)


def other_bytes(name: str) -> VerificationError:
    """Return the error that the bytes under a name are not those that ``encode_record`` returns for any record."""
    return VerificationError(
        f"{name}: is not a record as it was written: it was damaged or edited; restore the state directory's copy of it"
    )


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


class ListedStore:
    """A store of which each folder at the top is listed once: for a command that looks at the records of all tables.

    What comes or goes after that is not seen in listings; `create` and `delete` are those of the store.
    """

    def __init__(self, store: StateStore) -> None:
        self._store, self._names = store, dict[str, tuple[str, ...]]()
        self.create, self.read, self.delete = store.create, store.read, store.delete

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names that begin with a prefix of at least one whole folder, sorted, as they were listed first.

        Names below ``cache`` are listed by their second folder, since footers are there that few commands need.
        """
        folders = prefix.split("/")
        top = "/".join(folders[: 2 if folders[0] == "cache" else 1]).rstrip("/") + "/"
        if top not in self._names:
            self._names[top] = self._store.list(top)
        names = self._names[top]
        return names[bisect_left(names, prefix) : bisect_left(names, f"{prefix}\U0010ffff")]


class LatestRecord:
    """The latest record below a name, such as ``cache/passes/<table id>/``; records that are acted on have a MAC."""

    def __init__(self, store: StateStore, folder: str) -> None:
        self._store, self._folder = store, folder

    def read(self) -> Iterator[bytes]:
        """Yield the contents of the records, newest first; more than one is left by an interrupted writer."""
        for name in reversed(self._store.list(self._folder)):
            yield self._store.read(name) or b""

    def replace(self, content: bytes) -> None:
        """Write a record and delete those before it; if another writer wrote this number first, its record stays."""
        names = self._store.list(self._folder)
        number = int(names[-1].rpartition("/")[2].removesuffix(".json")) + 1 if names else 1
        if self._store.create(f"{self._folder}{number:08d}.json", content):
            for name in names:
                self._store.delete(name)
