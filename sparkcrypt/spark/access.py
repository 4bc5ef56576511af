"""Who may do what with a folder and the files in it: what new files in the place of old ones must be given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.spark.listing import data_files

if TYPE_CHECKING:
    from sparkcrypt.spark.files import HadoopFiles


@dataclass(frozen=True, slots=True)
class Access:
    """Owner, group, octal mode and ACL of a file or folder; ``entries`` are Hadoop's own objects of the ACL."""

    owner: str
    group: str
    mode: str
    acl: str
    entries: Any = field(default=None, compare=False, repr=False)

    def differences(self, other: Access) -> Iterator[str]:
        """Yield what another has otherwise."""
        for what in ("owner", "group", "mode", "acl"):
            was, now = getattr(self, what), getattr(other, what)
            if was != now:
                yield f"{what} {was or 'none'} became {now or 'none'}"


def access_to_give(files: HadoopFiles, source: str, target: str) -> dict[str, Access]:
    """Return what each folder and data file of a copy must have: path -> access.

    A folder gets what the folder of the same name has; a file what the files of that folder have, which therefore must
    agree, but for their owner: where that differs it is the folder's.

    Args:
        files: of both.
        source: the folder that is copied.
        target: the copy, which may have other files in the same folders.

    Raises:
        VerificationError: files of one folder differ in group, mode or ACL, so there is no telling what new files must
            have.
    """
    source, target = (files.qualified(path).rstrip("/") for path in (source, target))
    given = {target: files.access(source)}
    of_files: dict[str, Access] = {}
    for file in data_files(files, target):
        folder = file.path[len(target) :].rpartition("/")[0]
        if folder not in of_files:
            of_files[folder] = _of_files(files, source + folder)
            parts = folder.split("/")
            for depth in range(2, len(parts) + 1):
                below = "/".join(parts[:depth])
                given.setdefault(target + below, files.access(source + below))
        given[file.path] = of_files[folder]
    return given


def _of_files(files: HadoopFiles, folder: str) -> Access:
    found = [files.access(file.path) for file in data_files(files, folder) if file.path.rpartition("/")[0] == folder]
    of_folder = files.access(folder)
    if not found:
        return of_folder
    first = found[0]
    for other in found[1:]:
        if (first.group, first.mode, first.acl) != (other.group, other.mode, other.acl):
            raise VerificationError(
                f"{folder}: its files differ in who may read them ({first.group} {first.mode} {first.acl or 'no ACL'}; "
                f"{other.group} {other.mode} {other.acl or 'no ACL'}), so there is no telling what new ones must have; "
                "give them one group, mode and ACL first"
            )
    same_owner = len({one.owner for one in found}) == 1
    return first if same_owner else Access(of_folder.owner, first.group, first.mode, first.acl, first.entries)
