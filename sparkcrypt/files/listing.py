"""Lists the data files below a folder, as Spark would read them, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.files.beside_data import Entry, find_beside, refuse_formats, refuse_marks_above
from sparkcrypt.files.open_places import Place, Settings, place
from sparkcrypt.paths import is_hidden

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file of a listing.

    Attributes:
        name: its path relative to the listed path; empty if that is the file itself.
        length: in bytes.
        modified_ns: its modification time, in nanoseconds since 1970.
        inode: of a local file; 0 for others.
    """

    name: str
    length: int
    modified_ns: int
    inode: int = 0


def data_files(path: str, settings: Settings) -> tuple[str, ...]:
    """Return the paths of the data files below a folder, relative to it; for a single file, one empty path.

    Raises:
        ConfigError: the path does not exist, or the folder holds no data file.
        PlanError: the folder belongs to a table format that keeps its own list of files.
        VerificationError: a local file or folder below it is a symbolic link.
    """
    refuse_formats_above((path,), settings)
    files = tuple(file.name for file in list_files(path, settings))
    if not files:
        raise ConfigError(f"{path}: holds no data files; name a data file, or a folder of them")
    return files


def list_files(path: str, settings: Settings) -> tuple[ListedFile, ...]:
    """Return a file, or the data files below a folder, sorted by path; none if the path does not exist.

    Files of 0 bytes below a folder are no data files: Spark leaves them out.

    Raises:
        PlanError: the folder belongs to a table format that keeps its own list of files, of which some of these may be
            no part any more.
        VerificationError: a local file or folder below it is a symbolic link.
    """
    where = place(path, settings)
    found = tuple(_list_local(Path(where)) if isinstance(where, str) else _list_remote(*where))
    refuse_formats(path, find_beside(Entry(file.name) for file in found if file.name))
    return tuple(file for file in found if _is_visible(file.name) and (file.length or not file.name))


def refuse_formats_above(folders: Iterable[str], settings: Settings) -> None:
    """Refuse folders of a table in a format that keeps its own list of files above them.

    Raises:
        PlanError: there is such a list above one of them.
    """

    @cache
    def exists(path: str) -> bool:
        return _exists(place(path, settings))

    def names(path: str) -> Iterable[str]:
        return _names(place(path, settings))

    for folder in folders:
        refuse_marks_above(folder, exists, names)


def _exists(where: Place) -> bool:
    if isinstance(where, str):
        return Path(where).exists()
    from pyarrow.fs import FileType

    filesystem, name = where
    return bool(filesystem.get_file_info(name).type != FileType.NotFound)


def _names(where: Place) -> Iterable[str]:
    if isinstance(where, str):
        return (path.name for path in Path(where).glob("*"))
    from pyarrow.fs import FileSelector, FileType

    filesystem, name = where
    if filesystem.get_file_info(name).type != FileType.Directory:
        return ()
    return (str(entry.base_name) for entry in filesystem.get_file_info(FileSelector(name)))


def _list_remote(filesystem: FileSystem, name: str) -> Iterator[ListedFile]:
    from pyarrow.fs import FileSelector, FileType

    info = filesystem.get_file_info(name)
    if info.type == FileType.File:
        yield ListedFile("", info.size, info.mtime_ns or 0)
        return
    infos = filesystem.get_file_info(FileSelector(name, recursive=True, allow_not_found=True))
    start = len(name.rstrip("/")) + 1
    for entry in sorted(infos, key=lambda entry: str(entry.path)):
        if entry.type == FileType.File or not _is_visible(entry.path[start:]):
            yield ListedFile(entry.path[start:], entry.size or 0, entry.mtime_ns or 0)


def _list_local(root: Path) -> Iterator[ListedFile]:
    """Yield a file, or what is below a folder: its files, and the names of all that is hidden."""
    if root.is_file():
        yield _stamp(root, "")
        return
    for entry in sorted(root.rglob("*")):
        name = str(entry.relative_to(root))
        if not _is_visible(name):
            yield ListedFile(name, 0, 0)
        elif entry.is_symlink():
            raise VerificationError(refused_link(f"{root}/{name}"))
        elif entry.is_file():
            yield _stamp(entry, name)


def _stamp(path: Path, name: str) -> ListedFile:
    status = path.stat()
    return ListedFile(name, status.st_size, status.st_mtime_ns, status.st_ino)


def refused_link(path: str) -> str:
    """Return the message that refuses a symbolic link among data files, wherever it leads."""
    return (
        f"{path}: is a symbolic link; expected files and folders of the table's own: what it leads to may lie outside "
        "of the table, or be another of its files, which would be taken for two; put the file itself there, or "
        "name the folder that it leads to by SET LOCATION"
    )


def _is_visible(name: str) -> bool:
    return not any(map(is_hidden, name.split("/")))
