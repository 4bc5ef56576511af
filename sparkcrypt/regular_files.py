"""Opening of local files that others may have put there: only regular files, without waiting, and read up to a limit.

A pipe in the place of a file would wait for a writer for good, and a link would lead to anything, such as a device
without an end.
"""

from __future__ import annotations

import errno
import io
import os
import stat

from sparkcrypt.errors import FormatError

_WITHOUT_WAITING = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def open_regular(path: str | os.PathLike[str], *, follow_link: bool = False) -> io.BufferedReader:
    """Open a file for reading.

    Args:
        path: the file's path.
        follow_link: whether it may be a symbolic link, since whoever asks has named it; its folders always may be.

    Raises:
        FormatError: it is a link that may not be followed, or neither a regular file nor a folder.
        OSError: it cannot be opened, or is a folder.
    """
    named = os.fspath(path)  # the stream has it as its name, by which key material beside the file is found
    return open(named, "rb", opener=lambda name, flags: open_descriptor(name, flags, follow_link=follow_link))


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the content of a small file that is no link.

    Args:
        path: the file's path.
        most_bytes: more than any such file has that was written by this package.

    Raises:
        FormatError, OSError: as `open_regular`; FormatError also if the file is longer.
    """
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise FormatError(f"{os.fspath(path)}: has more than {most_bytes} bytes, so nothing here wrote it")
    return content


def open_descriptor(path: str | os.PathLike[str], flags: int, *, follow_link: bool = False) -> int:
    """Return the descriptor of a file, opened without waiting; a new one is its owner's alone.

    Raises:
        FormatError, OSError: as `open_regular`.
    """
    try:
        descriptor = os.open(path, flags | _WITHOUT_WAITING | (0 if follow_link else os.O_NOFOLLOW), 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_link:
            raise FormatError(f"{os.fspath(path)}: is a symbolic link; expected a file of the folder's own") from error
        if error.errno == errno.ENXIO:  # a socket, or a pipe that nobody reads
            raise FormatError(_say_special(path)) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise FormatError(_say_special(path))


def _say_special(path: str | os.PathLike[str]) -> str:
    return f"{os.fspath(path)}: is a pipe, a device or a socket; expected a regular file"
