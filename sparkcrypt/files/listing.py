"""Lists the data files below a folder, as Spark would read them, and tells by names what lies beside them.

What lies beside the data files of a folder, by its names: files of Parquet's writers, other formats, and the rest.
Spark's readers pass over hidden names, and whoever keeps something beside data uses such a name: an archive, a backup,
the checkpoint of a stream.  A run renames folders and deletes old ones, so each entry that is not known is *foreign*,
and whatever would move or delete it must refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from sparkcrypt.errors import ConfigError, PlanError, VerificationError
from sparkcrypt.files.open_places import Place, Settings, place
from sparkcrypt.keys.external_material import find_data_file
from sparkcrypt.paths import is_hidden, is_partition_folder

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

STAGING_FOLDER = ".sparkcrypt"
"""Name of the folder beside a table's folder.  Hive's RENAME TABLE replaces the table's old path wherever it occurs in
the text of a partition's location, so the name begins with a dot, as no table's name can."""
Kind = Literal["written", "empty", "summary", "writer", "format", "staging", "foreign"]
SUMMARIES = ("_metadata", "_common_metadata")
"""Files into which Parquet's writers copy the footers of a folder's files, or their schema."""
_OF_WRITERS = re.compile(r"_SUCCESS|\..+\.crc|\..+\.[0-9a-f]{32}\.partial", re.DOTALL)
"""Marks of success, checksums, and what a killed rewrite had written under a name of its own (``Output``)."""
_WRITERS = (".spark-staging", ".hive-staging", "__magic")
ICEBERG = "metadata"
_OF_ICEBERG = re.compile(r"(?P<folder>(?:.*/)?metadata)/[^/]+\.metadata\.json(?:\.gz)?", re.DOTALL)
_ICEBERG_DATA = "data"
"""The folder of an Iceberg table's files, beside its ``metadata``."""
FORMATS = {
    "_spark_metadata": "a streaming sink keeps its own list of files there",
    "_delta_log": "a Delta table keeps its own list of files there",
    ".hoodie": "a Hudi table keeps its own list of files there",
    ".hoodie_partition_metadata": "it is a partition of a Hudi table, which keeps its own list of files",
    ICEBERG: "an Iceberg table keeps its own list of files there",
}
"""What another table format keeps in a table's folder -> what that is; of Iceberg only with ``*.metadata.json``."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a listing: its path below the listed folder, and its length in bytes if it is a file."""

    path: str
    is_folder: bool = False
    length: int = 0


@dataclass(frozen=True, slots=True)
class Beside:
    """A file or folder beside data files.

    Attributes:
        path: its path below the listed folder.
        kind: ``written`` with data files and of no use without them: ``_SUCCESS``, checksums, key material of a file
            that is there, and unfinished files of killed rewrites; ``empty``: a file of 0 bytes among the data, which
            Spark leaves out, so it holds no row;
            ``summary`` of footers, with statistics in plaintext; of a ``writer`` that is at work, or was killed; of
            another ``format``; the ``staging`` folder of tables below; or ``foreign``: not known.
        length: in bytes; 0 for a folder.
    """

    path: str
    kind: Kind
    length: int = 0


def find_beside(entries: Iterable[Entry]) -> tuple[Beside, ...]:
    """Return what lies beside the data files, sorted by path; a hidden folder is one entry, whatever is in it.

    Args:
        entries: the files below the folder, and of each hidden folder either itself, or what is in it, or both.
    """
    found: dict[str, Entry] = {}
    data: set[str] = set()
    for entry in entries:
        hidden = topmost_hidden(entry.path)
        if hidden is None:
            if not entry.is_folder:
                data.add(entry.path)
            if of_iceberg := _OF_ICEBERG.fullmatch(entry.path):
                found[of_iceberg["folder"]] = Entry(of_iceberg["folder"], is_folder=True)
        elif hidden != entry.path:
            found[hidden] = Entry(hidden, is_folder=True)
        else:
            found.setdefault(hidden, entry)
    return tuple(Beside(path, _kind_of(found[path], data), found[path].length) for path in sorted(found))


def find_empty(entries: Iterable[Entry]) -> tuple[Beside, ...]:
    """Return the files of 0 bytes among the data files, in the given order."""
    visible = (entry for entry in entries if topmost_hidden(entry.path) is None)
    return tuple(Beside(entry.path, "empty") for entry in visible if not (entry.is_folder or entry.length))


def topmost_hidden(path: str) -> str | None:
    """Return the part of a relative path that ends with its first hidden name; None if there is none."""
    names = path.split("/")
    depth = next((depth for depth, name in enumerate(names, 1) if is_hidden(name)), None)
    return None if depth is None else "/".join(names[:depth])


def _kind_of(entry: Entry, data: set[str]) -> Kind:
    folder, _, name = entry.path.rpartition("/")
    if name in FORMATS:
        return "format"
    if is_writers_folder(name):
        return "writer"
    if name == STAGING_FOLDER:
        return "staging"
    if entry.is_folder:
        return "foreign"
    if name in SUMMARIES:
        return "summary"
    of = find_data_file(name)
    with_data = of is not None and (f"{folder}/{of}" if folder else of) in data
    return "written" if with_data or _OF_WRITERS.fullmatch(name) else "foreign"


def is_writers_folder(name: str) -> bool:
    """Return whether a folder's name is that of a temporary folder of a Spark or Hive job that is writing.

    ``__magic`` and ``__magic_job-…`` are those of Hadoop's magic committer for S3 (``MagicCommitPaths``).
    """
    return name == "_temporary" or name.startswith(_WRITERS)


def refuse_marks_above(path: str, exists: Callable[[str], bool], names: Callable[[str], Iterable[str]]) -> None:
    """Refuse a folder of a table in a format that keeps its list of files above it: of a partition, or Iceberg's data.

    Args:
        path: any path; above one that does not end with such folders nothing is looked for.
        exists: tells whether a path exists.
        names: returns the names in a folder that exists.

    Raises:
        PlanError: as `refuse_format`.
    """
    path = path.rstrip("/")
    while is_partition_folder(path.rpartition("/")[2]):
        path = path.rpartition("/")[0]
        refuse_marks_at(path, exists, names)
    above, _, name = path.rpartition("/")
    if name == _ICEBERG_DATA:
        refuse_marks_at(above, exists, names, formats=(ICEBERG,))


def refuse_marks_at(
    folder: str,
    exists: Callable[[str], bool],
    names: Callable[[str], Iterable[str]],
    formats: Iterable[str] = FORMATS,
) -> None:
    """Refuse a folder in which a table format keeps its own list of files.

    Args:
        folder: the folder.
        exists: tells whether a path exists.
        names: returns the names in a folder that exists.
        formats: the formats that are looked for.

    Raises:
        PlanError: as `refuse_format`.
    """
    for mark in formats:
        place = f"{folder}/{mark}"
        if exists(place) and (
            mark != ICEBERG or any(_OF_ICEBERG.fullmatch(f"{ICEBERG}/{name}") for name in names(place))
        ):
            refuse_format(folder, mark)


def tell_format(path: str) -> str:
    """Return what another table format keeps at a path of kind ``format``."""
    return FORMATS[path.rpartition("/")[2]]


def refuse_formats(folder: str, entries: Iterable[Beside]) -> None:
    """Refuse a folder whose files belong to a table format that keeps its own list of files.

    Args:
        folder: the folder.
        entries: what lies beside its data files.

    Raises:
        PlanError: the folder belongs to such a format; the message names the format's folder.
    """
    for entry in entries:
        if entry.kind == "format":
            refuse_format(folder, entry.path)


def refuse_format(folder: str, path: str) -> NoReturn:
    """Refuse a folder for what another table format keeps in it.

    Args:
        folder: the folder.
        path: the format's own file or folder, below it.

    Raises:
        PlanError: always.
    """
    raise PlanError(
        f"{folder}: has {path}: {tell_format(path)}, so which files are the table's cannot be told by their names, "
        "and none may be replaced under it; read and write it through that format with sparkcrypt.configure, which "
        "encrypts new files"
    )


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
