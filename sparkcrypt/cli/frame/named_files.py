"""Finds the data files that paths on a command line name: files or folders, local or on Spark's file systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sparkcrypt.cli.frame.command_context import Workplace, is_local, local_path
from sparkcrypt.errors import ConfigError, FormatError, SparkcryptError, VerificationError, show
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.native.listing import refused_link
from sparkcrypt.parquet import KeyRequest, RetrieveKey
from sparkcrypt.paths import is_hidden
from sparkcrypt.policy.model import Policy, allowed_key_ids
from sparkcrypt.regular_files import open_regular


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file: its path as it was given or found, and a function that opens it."""

    path: str
    open: Callable[[], AbstractContextManager[BinaryIO]]


def named_files(workplace: Workplace, paths: tuple[str, ...]) -> list[NamedFile]:
    """Return the data files of paths, in their order; of folders the files that Spark would read.

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


def full_path(path: str) -> str:
    """Return a local path as absolute, since the names of its folders contain the partition; URIs are unchanged."""
    return str(Path(path).absolute()) if is_local(path) and not path.startswith("file:") else path


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
    place = local_path(path)
    if not place.exists():
        raise ConfigError(f"{path}: is not there; name a data file, or a folder of them")
    for file in _list_below(place) if place.is_dir() else [place]:
        yield NamedFile(str(file), _opener(file))


def _opener(file: Path) -> Callable[[], Any]:
    def open_file() -> BinaryIO:
        try:
            return open_regular(file, follow_link=True)
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error

    return open_file


def _list_below(folder: Path) -> Iterator[Path]:
    """Yield the files that Spark reads below a folder, without names that begin with ``.``, or ``_`` without ``=``."""
    for entry in sorted(folder.iterdir()):
        if is_hidden(entry.name):
            continue
        if entry.is_symlink():
            raise VerificationError(refused_link(str(entry)))
        if entry.is_dir():
            yield from _list_below(entry)
        else:
            yield entry


def _list_remote(workplace: Workplace, path: str) -> Iterator[NamedFile]:
    from sparkcrypt.spark.files.hadoop import HadoopFiles

    files = HadoopFiles(workplace.spark)
    if not files.exists(path):
        raise ConfigError(f"{path}: is not there; name a data file, or a folder of them")
    statuses = files.data_files(path) if files.status(path).is_folder else (files.status(path),)
    for status in statuses:
        yield NamedFile(status.path, lambda status=status: files.open(status.path))  # type: ignore[misc]  # bound early
