"""Lists the data files below a folder, as Spark would read them, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.native.places import Settings, place


def data_files(path: str, settings: Settings) -> tuple[str, ...]:
    """Return the paths of a file, or of the files below a folder, relative to it; a single file's is empty.

    Raises:
        ConfigError: nothing is there, or the folder holds no data file.
        VerificationError: a file or folder below it is a symbolic link.
    """
    where = place(path, settings)
    if isinstance(where, str):
        root = Path(where)
        if root.is_file():
            return ("",)
        below = sorted(root.rglob("*"))
        links = [file for file in below if file.is_symlink()]
        if seen := list(_visible([str(link.relative_to(root)) for link in links])):
            raise VerificationError(refused_link(f"{root}/{seen[0]}"))
        found = [str(file.relative_to(root)) for file in below if file.is_file()]
    else:
        from pyarrow.fs import FileSelector, FileType

        filesystem, name = where
        if filesystem.get_file_info(name).type == FileType.File:
            return ("",)
        selector = FileSelector(name, recursive=True, allow_not_found=True)
        infos = filesystem.get_file_info(selector)
        found = sorted(info.path[len(name.rstrip("/")) + 1 :] for info in infos if info.type == FileType.File)
    files = tuple(_visible(found))
    if not files:
        raise ConfigError(f"{path}: holds no data files; name a Parquet file, or a folder of them")
    return files


def refused_link(path: str) -> str:
    """Return why a symbolic link among data files is refused, wherever it leads."""
    return (
        f"{path}: is a symbolic link; expected files and folders of the table's own: what it leads to may lie outside "
        "of the table, or be another of its files, which would be taken for two; put the file itself there, or "
        "name the folder that it leads to by SET LOCATION"
    )


def _visible(files: list[str]) -> Iterator[str]:
    for file in files:
        parts = file.split("/")
        if not any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts):
            yield file
