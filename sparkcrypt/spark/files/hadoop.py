"""Files through Hadoop's FileSystem, with the session's own credentials: listed, looked at, moved, read and created."""

from __future__ import annotations

import contextlib
import errno
import grp
import io
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sparkcrypt.errors import ConfigError, SparkcryptError, StorageError
from sparkcrypt.files.source import Beside as SmallFiles
from sparkcrypt.paths import hadoop_local_path, is_hidden
from sparkcrypt.regular_files import open_regular
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, hadoop_conf, jvm, read_java_error


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One file or folder: its URI, length in bytes, modification time in milliseconds, owner, group, octal mode."""

    path: str
    length: int
    modified_ms: int
    is_folder: bool
    owner: str
    group: str
    mode: str

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Access:
    """Owner, group, octal mode and ACL of a file or folder; ``entries`` are Hadoop's own objects of the ACL."""

    owner: str
    group: str
    mode: str
    acl: str
    entries: Any = field(default=None, compare=False, repr=False)

    def differences(self, other: Access) -> Iterator[str]:
        """Yield a text for each attribute that differs from another's."""
        for what in ("owner", "group", "mode", "acl"):
            was, now = getattr(self, what), getattr(other, what)
            if was != now:
                yield f"{what} {was or 'none'} became {now or 'none'}"


def read_local_access(path: str) -> Access:
    """Return the access rights of a local file or folder, given its local path."""
    return _access_of(_stat_local(path))


def _stat_local(path: str) -> os.stat_result:
    try:
        return Path(path).stat()
    except OSError as error:
        raise StorageError(f"cannot look at {path}: {error.strerror}") from error


def _access_of(status: os.stat_result) -> Access:
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    return Access(owner, group, format(stat.S_IMODE(status.st_mode) & 0o1777, "04o"), "")


_RENAMES_AT_ONCE = frozenset({"file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "abfs", "abfss", "ofs", "o3fs"})
"""Schemes of file systems that rename a folder atomically."""
_HDFS_STREAM = "org.apache.hadoop.hdfs.client.HdfsDataInputStream"
_TELL_FREE_SPACE = frozenset({"hdfs", "viewfs"})
"""Schemes of file systems over a network that tell how much space is left; an object store has no limit."""


class HadoopFiles:
    """Files of any scheme that the session's Hadoop configuration supports; paths are strings, local or URI."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm(spark)
        self._gateway: Any = spark.sparkContext._gateway
        self._conf = hadoop_conf(spark)

    def path(self, path: str) -> Any:
        """Return Hadoop's Path of a string that is already escaped or needs no escapes."""
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def locate(self, path: str) -> tuple[Any, Any]:
        """Return Hadoop's FileSystem and Path of a path string."""
        where = self.path(path)
        try:
            return where.getFileSystem(self._conf), where
        except JVM_ERRORS as error:
            raise _translate_error(error, "open the file system of", path) from error

    def is_a(self, thing: Any, kind: str) -> bool:
        """Tell whether a Java object is an instance of a class or of a subclass."""
        return bool(self._jvm.py4j.reflection.TypeUtil.isInstanceOf(kind, thing))

    def default_file_system(self) -> str:
        """Return the URI of the default file system, such as ``file:///`` or ``hdfs://nn:8020``."""
        uri = str(self._jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(self._conf).toString())
        return "file://" if uri.startswith("file:") else uri

    def qualify(self, path: str) -> str:
        """Return the full URI of a path."""
        local = _find_local(path)
        if local is not None:
            return f"file:{local}"
        system, where = self.locate(path)
        return str(system.makeQualified(where).toString())

    def exists(self, path: str) -> bool:
        """Tell whether a file or folder exists."""
        # A path without a scheme is on the default system.
        local = hadoop_local_path(path) if path.startswith("file:") else None
        if local is not None:
            try:
                return Path(local).exists()
            except OSError as error:
                raise StorageError(f"cannot look for {path}: {error.strerror}") from error
        system, where = self.locate(path)
        return bool(self.call("look for", path, lambda: system.exists(where)))

    def is_file(self, path: str) -> bool:
        """Tell whether a path exists and is a file."""
        system, where = self.locate(path)
        try:
            return bool(system.getFileStatus(where).isFile())
        except JVM_ERRORS as error:
            if any(kind in read_java_error(error)[0] for kind in ("FileNotFound", "ParentNotDirectory")):
                return False
            raise _translate_error(error, "look at", path) from error

    def status(self, path: str) -> FileStatus:
        """Return the status of a file or folder."""
        local = _find_local(path)
        if local is not None:  # Hadoop starts a process to learn who owns it
            return _read_local_status(local)
        system, where = self.locate(path)
        return _status(self.call("look at", path, lambda: system.getFileStatus(where)))

    def children(self, path: str) -> tuple[FileStatus, ...]:
        """Return the direct children of a folder, sorted by path, without Hadoop's checksums of local files."""
        local = _find_local(path)
        if local is not None:
            return tuple(_read_children(path, local))
        system, where = self.locate(path)
        entries = self.call("list", path, lambda: system.listStatus(where))
        return tuple(sorted((_status(entry) for entry in entries), key=lambda entry: entry.path))

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names of the direct children of a folder, including hidden ones."""
        local = hadoop_local_path(path)
        if local is None:
            return tuple(child.name for child in self.children(path))
        return tuple(child.name for child in _list_local(path, local))

    def listed_in_jvm(self, path: str, lister: str) -> str | None:
        """Return the result of a static method ``contents`` of the jar for a folder; None without the jar."""
        system, where = self.locate(path)
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            found = loader.loadClass(lister)
        except JVM_ERRORS:
            return None
        kinds = self._gateway.new_array(self._jvm.java.lang.Class, 2)
        kinds[0] = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem")
        kinds[1] = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Path")
        arguments = self._gateway.new_array(self._jvm.java.lang.Object, 2)
        arguments[0], arguments[1] = system, where
        method = found.getMethod("contents", kinds)
        return str(self.call("list", path, lambda: method.invoke(None, arguments)))

    def walk(self, path: str) -> Iterator[FileStatus]:
        """Yield every file below a folder depth first, including hidden ones."""
        for entry in self.children(path):
            if entry.is_folder:
                yield from self.walk(entry.path)
            else:
                yield entry

    def walk_visible(self, path: str) -> Iterator[FileStatus]:
        """Yield the files below a folder that Spark reads, and the topmost hidden files and folders."""
        for entry in self.children(path):
            if entry.is_folder and not is_hidden(entry.name):
                yield from self.walk_visible(entry.path)
            else:
                yield entry

    def data_files(self, path: str) -> tuple[FileStatus, ...]:
        """Return the files below a folder that Spark reads: neither hidden ones (``is_hidden``) nor empty ones."""
        if not self.exists(path):
            return ()
        return tuple(entry for entry in self.walk_visible(path) if not is_hidden(entry.name) and entry.length)

    def make_folder(self, path: str, mode: str | None = None) -> None:
        """Make a folder and its parents; an octal mode applies to the folder itself if it is new."""
        local = _find_local(path)
        if local is not None:  # Hadoop starts a process to set a mode
            _make_local_folder(local, mode)
            return
        system, where = self.locate(path)
        permission = self._jvm.org.apache.hadoop.fs.permission.FsPermission
        arguments = (permission(mode),) if mode and not self.exists(path) else ()
        if not self.call("make", path, lambda: system.mkdirs(where, *arguments)):
            raise StorageError(
                f"cannot make {path}: the file system refused; is it read-only, or may this user not write there?"
            )

    def free_bytes(self, path: str) -> int | None:
        """Return how much this user can still write where a path is, or will be; None if its file system has no limit.

        On HDFS it is what the cluster has left, without regard to replication.
        """
        local = hadoop_local_path(path) if path.startswith("file:") else None
        if local is not None:
            there = next(folder for folder in (Path(local), *Path(local).parents) if folder.exists())
            try:
                return shutil.disk_usage(there).free
            except OSError as error:
                raise StorageError(f"cannot look at {there}: {error.strerror}") from error
        system, where = self.locate(path)
        if str(system.getScheme()) not in _TELL_FREE_SPACE:
            return None
        return int(self.call("look at", path, lambda: system.getStatus(where).getRemaining()))

    def renames_at_once(self, path: str) -> bool:
        """Tell whether this file system renames a folder atomically; object stores copy and delete each file."""
        system, _ = self.locate(path)
        return str(system.getScheme()) in _RENAMES_AT_ONCE

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; the target must not exist.

        A local one is renamed by the operating system, in one step or not at all: Hadoop copies what it may not rename,
        and deletes it at its former place.

        Raises:
            SparkcryptError: the target exists or the file system refuses.
        """
        if self.exists(target):
            raise SparkcryptError(
                f"cannot rename {source} to {target}: the target is already there; move it away first"
            )
        if source.startswith("file:") and target.startswith("file:"):
            _rename_local(source, target)
            return
        system, where = self.locate(source)
        if not self.call("rename", source, lambda: system.rename(where, self.path(target))):
            raise SparkcryptError(
                f"cannot rename {source} to {target}: the file system refused; check permissions on both folders"
            )

    def try_rename(self, source: str, target: str) -> bool:
        """Rename on a file system that itself refuses an existing target (HDFS); return False if the target exists.

        Uses FileContext, since FileSystem's rename would move the source into a target that is a folder.
        """
        _, where = self.locate(source)
        options = self._jvm.org.apache.hadoop.fs.Options.Rename
        none = self._gateway.new_array(options, 0)
        try:
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(where.toUri(), self._conf)
            context.rename(where, self.path(target), none)
        except JVM_ERRORS as error:
            if "FileAlreadyExists" in read_java_error(error)[0] or self.exists(target):  # another error for a folder
                return False
            raise _translate_error(error, "rename", source) from error
        return True

    def delete_tree(self, path: str) -> None:
        """Delete a file, or a folder with everything below it; do nothing if it does not exist."""
        system, where = self.locate(path)
        self.call("delete", path, lambda: system.delete(where, True))

    def delete_empty(self, path: str) -> None:
        """Delete a folder if it exists and is empty."""
        system, where = self.locate(path)
        if self.exists(path) and not self.children(path):
            with contextlib.suppress(*JVM_ERRORS):  # a file was created in it meanwhile
                system.delete(where, False)

    def delete_file(self, path: str) -> None:
        """Delete a file; do nothing if there is none of that name."""
        system, where = self.locate(path)
        if self.is_file(path):
            self.call("delete", path, lambda: system.delete(where, False))

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""
        with self.open(path) as stream:
            return stream.read()

    def write_new(self, path: str, content: bytes) -> bool:
        """Create a file with its content; return False if it exists already.

        The check and the creation are one atomic step only on some file systems (HDFS); see ``ledger.state.store``.
        """
        system, where = self.locate(path)
        try:
            stream = system.create(where, False)
        except JVM_ERRORS as error:
            if "FileAlreadyExists" in read_java_error(error)[0]:
                return False
            raise _translate_error(error, "create", path) from error
        try:
            self.call("write", path, lambda: stream.write(content))
            self.call("make safe", path, stream.hsync)
        finally:
            self.call("close", path, stream.close)
        return True

    def open(self, path: str) -> io.BufferedReader:
        """Open a file for reading, with seek."""
        local = hadoop_local_path(path)
        if local is not None:  # a hundred times faster without the JVM
            return open_regular(local, follow_link=True)
        system, where = self.locate(path)
        stream = self.call("open", path, lambda: system.open(where))
        try:
            length = self._length_of(stream, path)
        except BaseException:
            stream.close()
            raise
        folder, _, name = path.rpartition("/")
        return HadoopFile(self._jvm, stream, length, SmallFiles(name, partial(self._read_beside, folder)))

    def _length_of(self, stream: Any, path: str) -> int:
        """Return the length of an open file, in bytes: HDFS told it when it was opened."""
        if self.is_a(stream, _HDFS_STREAM):
            return int(self.call("look at", path, stream.getVisibleLength))
        return self.status(path).length

    def _read_beside(self, folder: str, name: str, most_bytes: int) -> bytes | None:
        path = f"{folder}/{name}"
        if not self.is_file(path):
            return None
        with self.open(path) as stream:
            return stream.read(most_bytes + 1)

    def access(self, path: str) -> Access:
        """Return the access rights of a file or folder."""
        local = hadoop_local_path(path)
        if local is not None:  # Hadoop does not read the ACLs of a local file system
            return read_local_access(local)
        system, where = self.locate(path)
        return self._access_by(system, self.call("look at", path, lambda: system.getFileStatus(where)))

    def access_of_data(self, folder: str) -> dict[str, Access]:
        """Return the access rights of the data files in a folder that is not local, by one listing: path -> access."""
        system, where = self.locate(folder)
        found: dict[str, Access] = {}
        for entry in self.call("list", folder, lambda: system.listStatus(where)):
            path = str(entry.getPath().toString())
            if not entry.isDirectory() and entry.getLen() and not is_hidden(path.rpartition("/")[2]):
                found[path] = self._access_by(system, entry)
        return found

    def _access_by(self, system: Any, status: Any) -> Access:
        facts = _status(status)
        if not status.hasAcl():
            return Access(facts.owner, facts.group, facts.mode, "")
        acl = self.call("read the ACL of", facts.path, lambda: system.getAclStatus(status.getPath()).getEntries())
        return Access(facts.owner, facts.group, facts.mode, str(acl.toString()), acl)

    def set_access(self, path: str, wanted: Access) -> None:
        """Set the owner, group, mode and ACL of a file or folder, as far as they differ.

        Raises:
            SparkcryptError: this user may not set them, or the file system cannot.
        """
        now = self.access(path)
        if now == wanted:  # true of nearly every file, and needs no call to Hadoop
            return
        local = _find_local(path)
        if local is not None and not wanted.acl:
            _set_local_access(local, now, wanted)
            return
        system, where = self.locate(path)
        if (wanted.owner, wanted.group) != (now.owner, now.group):
            owner = wanted.owner if wanted.owner != now.owner else None
            group = wanted.group if wanted.group != now.group else None
            self.call("set the owner of", path, lambda: system.setOwner(where, owner, group))
        if (wanted.mode, wanted.acl) == (now.mode, now.acl):
            return
        permission = self._jvm.org.apache.hadoop.fs.permission
        mode = permission.FsPermission(wanted.mode)
        if now.acl:
            self.call("remove the ACL of", path, lambda: system.removeAcl(where))
        if wanted.acl:
            # If there is an ACL, the group bits of the mode are the ACL's mask.
            whole = permission.AclUtil.getAclFromPermAndEntries(mode, wanted.entries)
            self.call("set the ACL of", path, lambda: system.setAcl(where, whole))
        self.call("set the mode of", path, lambda: system.setPermission(where, mode))

    def call(self, verb: str, path: str, action: Any) -> Any:
        """Call Hadoop, and translate its errors into ones that name the operation and the path."""
        try:
            return action()
        except JVM_ERRORS as error:
            raise _translate_error(error, verb, path) from error


def _find_local(path: str) -> str | None:
    """Return the local path that a ``file:`` URI names, as Hadoop writes it; None for others, also relative ones."""
    local = hadoop_local_path(path) if path.startswith("file:") else None
    parts = [part for part in (local or "").split("/") if part]
    return None if local is None or "." in parts or ".." in parts else f"/{'/'.join(parts)}"


def _read_local_status(local: str) -> FileStatus:
    status = _stat_local(local)
    access = _access_of(status)
    is_folder, modified_ms = stat.S_ISDIR(status.st_mode), status.st_mtime_ns // 1_000_000
    length = 0 if is_folder else status.st_size
    return FileStatus(f"file:{local}", length, modified_ms, is_folder, access.owner, access.group, access.mode)


def _list_local(path: str, local: str) -> list[Path]:
    try:
        return sorted(Path(local).iterdir())
    except OSError as error:
        raise StorageError(f"cannot list {path}: {error.strerror}") from error


def _read_children(path: str, local: str) -> Iterator[FileStatus]:
    for child in _list_local(path, local):
        if not (child.name.startswith(".") and child.name.endswith(".crc")):
            try:
                yield _read_local_status(str(child))
            except StorageError as error:
                if not isinstance(error.__cause__, FileNotFoundError):  # deleted meanwhile, or a link to nowhere
                    raise


def _make_local_folder(local: str, mode: str | None) -> None:
    folder = Path(local)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not folder.is_dir():
            folder.mkdir(mode=int(mode or "777", 8))
            if mode:
                _set_mode(folder, mode)
    except FileExistsError:
        if not folder.is_dir():
            raise StorageError(f"cannot make {local}: it, or a folder above it, is a file") from None
    except OSError as error:
        raise StorageError(
            f"cannot make {local}: {error.strerror}; is it read-only, or may this user not write there?"
        ) from error


def _set_local_access(local: str, now: Access, wanted: Access) -> None:
    try:
        if wanted.owner != now.owner:
            shutil.chown(local, user=_user_or_number(wanted.owner))
        if wanted.group != now.group:
            shutil.chown(local, group=_user_or_number(wanted.group))
        if (wanted.owner, wanted.group, wanted.mode) != (now.owner, now.group, now.mode):
            _set_mode(Path(local), wanted.mode)  # a new owner takes bits away
    except (OSError, LookupError) as error:
        raise StorageError(
            f"cannot give {local} to {wanted.owner}:{wanted.group} with mode {wanted.mode}: {error}"
        ) from error


def _set_mode(path: Path, mode: str) -> None:
    """Set the permissions; a folder whose files get its group goes on to be one, as by the ``chmod`` of Hadoop."""
    now = path.stat().st_mode
    path.chmod(int(mode, 8) | (now & stat.S_ISGID if stat.S_ISDIR(now) else 0))


def _user_or_number(name: str) -> str | int:
    return int(name) if name.isdecimal() else name  # one without a name, as `read_local_access` returns it


def _rename_local(source: str, target: str) -> None:
    """Rename a local file or folder by rename(2); the checksum that Hadoop keeps beside a file goes with it."""
    before, after = Path(hadoop_local_path(source) or source), Path(hadoop_local_path(target) or target)
    try:
        before.rename(after)
        checksum = before.with_name(f".{before.name}.crc")
        if checksum.is_file():
            checksum.rename(after.with_name(f".{after.name}.crc"))
    except OSError as error:
        other = "one of them is on another file system, or is where one is mounted"
        why = other if error.errno == errno.EXDEV else error.strerror
        raise SparkcryptError(
            f"cannot rename {source} to {target}: {why}; nothing was moved; check permissions on both folders above"
        ) from error


def _status(entry: Any) -> FileStatus:
    return FileStatus(
        path=str(entry.getPath().toString()),
        length=int(entry.getLen()),
        modified_ms=int(entry.getModificationTime()),
        is_folder=bool(entry.isDirectory()),
        owner=str(entry.getOwner()),
        group=str(entry.getGroup()),
        mode=format(int(entry.getPermission().toShort()), "04o"),
    )


def _translate_error(error: BaseException, verb: str, path: str) -> SparkcryptError:
    kind, message = read_java_error(error)
    made = ConfigError if "UnsupportedFileSystem" in kind else StorageError
    first_line = message.splitlines()[0]  # a remote file system may append its whole stack trace
    return made(f"cannot {verb} {path}: {kind.rpartition('.')[2]}: {first_line}")


class HadoopFile(io.BufferedReader):
    """A seekable buffered reader over an FSDataInputStream.

    Args:
        machine: py4j's view of the JVM.
        stream: the open FSDataInputStream.
        length: the file's length in bytes.
        beside: reads other files of the file's folder.
    """

    def __init__(self, machine: Any, stream: Any, length: int, beside: SmallFiles) -> None:
        super().__init__(_HadoopStream(machine, stream, length), buffer_size=1 << 16)
        self.beside = beside


class _HadoopStream(io.RawIOBase):
    """A raw Python stream over an FSDataInputStream."""

    def __init__(self, machine: Any, stream: Any, length: int) -> None:
        self._read, self._stream = machine.org.apache.commons.io.IOUtils.toByteArray, stream
        self._length, self._position = length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self._length - self._position))
        if count:
            self._stream.seek(self._position)
            buffer[:count] = self._read(self._stream, count)
            self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
