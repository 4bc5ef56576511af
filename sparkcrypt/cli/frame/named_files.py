"""Finds the data files that paths on a command line name: files or folders, local or on Spark's file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.output import say
from sparkcrypt.errors import ConfigError, FormatError, SparkcryptError, VerificationError, show
from sparkcrypt.files.listing import Beside, Entry, find_beside, find_empty, refused_link, tell_format, topmost_hidden
from sparkcrypt.files.parquet import KeyRequest, RetrieveKey
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.paths import is_hidden, is_local, local_path
from sparkcrypt.policy.model import Policy, allowed_key_ids
from sparkcrypt.regular_files import open_regular


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file: its path as it was given or found, and a function that opens it."""

    path: str
    open: Callable[[], AbstractContextManager[BinaryIO]]


def named_files(workplace: Workplace, paths: tuple[str, ...]) -> list[NamedFile]:
    """Return the data files of paths, in their order; of folders the files that Spark would read.

    A note on stderr names files of 0 bytes, which Spark leaves out, and another format's list of the table's files.

    Raises:
        ConfigError: a path does not exist, or a folder has no data files.
    """
    found: list[NamedFile] = []
    for path in paths:
        here = list(_list_local(path) if is_local(path) else _list_remote(workplace, path))
        if not here:
            raise ConfigError(f"{path}: holds no data files; name a data file, or a folder of them")
        found.extend(here)
    return found


def policy_keys(policy: Policy, *, any_key: bool = False) -> RetrieveKey:
    """Return a function that opens data keys of files through a policy's key service; its errors name the file.

    Args:
        policy: the key service, and the master keys that it is asked for.
        any_key: whether it is also asked for master keys that only files name.
    """
    open_key = open_data_keys(policy.key_service)

    def retrieve(request: KeyRequest) -> bytes:
        try:
            if not any_key:
                refuse_foreign_key(policy, parse_key_material(request.key_metadata or b"").master_key_id)
            return open_key(request)
        except FormatError as error:
            raise FormatError(f"{request.file}: {error}") from error
        except SparkcryptError as error:
            raise type(error)(f"{request.file}: {error}") from error

    return retrieve


def refuse_foreign_key(policy: Policy, key_id: str) -> None:
    """Refuse a master key that only a file names, since the key service may take its id for one of another account.

    Raises:
        VerificationError: neither the policy nor its history names it.
    """
    if not allowed_key_ids(policy, key_id):
        raise VerificationError(
            f"names the master key {show(key_id)}, which neither the policy nor its history has, so the key service is "
            "not asked for it; name it under 'history' in the policy; inspect, verify and rewrite ask with --any-key"
        )


def _list_local(path: str) -> Iterator[NamedFile]:
    place = Path(local_path(path))
    if not place.exists():
        raise ConfigError(f"{path}: is not there; name a data file, or a folder of them")
    if not place.is_dir():
        yield NamedFile(str(place), _opener(place))
        return
    entries = tuple(_list_below(place, ""))
    _note_beside(path, (*find_beside(entries), *find_empty(entries)))
    for entry in entries:
        if entry.length and topmost_hidden(entry.path) is None:
            file = place / entry.path
            yield NamedFile(str(file), _opener(file))


def _note_beside(folder: str, beside: Iterable[Beside]) -> None:
    """Say what of a folder is left out, or may be no part of its table any more."""
    for entry in beside:
        path = f"{folder.rstrip('/')}/{entry.path}"
        if entry.kind == "empty":
            say(f"note: {path}: has 0 bytes, so it holds no row; Spark leaves it out, and so does this command")
        elif entry.kind == "format":
            say(f"note: {path}: {tell_format(entry.path)}; some of the files here may be none of its table any more")


def _opener(file: Path) -> Callable[[], Any]:
    def open_file() -> BinaryIO:
        try:
            return open_regular(file, follow_link=True)
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error

    return open_file


def _list_below(folder: Path, above: str) -> Iterator[Entry]:
    """Yield the files below a folder, and the topmost of each hidden file or folder."""
    for entry in sorted(folder.iterdir()):
        name = f"{above}{entry.name}"
        if is_hidden(entry.name):
            yield Entry(name, entry.is_dir())
        elif entry.is_symlink():
            raise VerificationError(refused_link(str(entry)))
        elif entry.is_dir():
            yield from _list_below(entry, f"{name}/")
        else:
            yield Entry(name, length=entry.stat().st_size)


def _list_remote(workplace: Workplace, path: str) -> Iterator[NamedFile]:
    from sparkcrypt.spark.files.hadoop import HadoopFiles
    from sparkcrypt.spark.files.listing import list_contents

    files = HadoopFiles(workplace.spark)
    if not files.exists(path):
        raise ConfigError(f"{path}: is not there; name a data file, or a folder of them")
    status = files.status(path)
    found = [status.path]
    if status.is_folder:
        contents = list_contents(files, status.path)
        _note_beside(path, contents.beside)
        found = [file.path for file in contents.data]
    for file in found:
        yield NamedFile(file, lambda file=file: files.open(file))  # type: ignore[misc]  # bound early
