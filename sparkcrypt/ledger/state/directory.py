"""Opening a state directory, where journals, locks and audits are kept, on any file system or object store."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError, SparkcryptError
from sparkcrypt.ledger.state.object_store import lies_inside, object_access, object_place, open_object_store
from sparkcrypt.ledger.state.store import StateStore, check_name, open_state_store
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.setup.command_session import allows_http
from sparkcrypt.spark.tasks.run import hadoop_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATOMIC_RENAME = ("hdfs", "viewfs")


def open_state_directory(spark: SparkSession, uri: str, *, outside: str | None = None) -> StateStore:
    """Open the state directory of a policy.

    Args:
        spark: a classic session, for state on HDFS or an object store.
        uri: ``run_state`` of the policy.
        outside: the table's folder; the state directory may not be inside it, since INSERT OVERWRITE would delete it.
            None if no table is concerned.

    Raises:
        ConfigError: it is inside the table, its file system has no conditional create, or it cannot be reached.
    """
    if outside is not None and lies_inside(uri, outside):
        raise ConfigError(
            f"run_state {uri} lies inside the table's folder {outside}, where an overwrite would delete it; move it out"
        )
    if uri.split(":", 1)[0] in _ATOMIC_RENAME:
        return HadoopStateStore(HadoopFiles(spark), uri)
    if object_place(uri) is not None:
        access = object_access(uri, hadoop_settings(spark), allow_http=allows_http(spark))
        return open_object_store(uri, access)
    return open_state_store(uri)


class HadoopStateStore:
    """State on HDFS: a record is written to a temporary file and renamed, which HDFS refuses if the name is taken."""

    def __init__(self, files: HadoopFiles, root: str) -> None:
        self._files, self._root = files, root.rstrip("/")

    def create(self, name: str, content: bytes) -> bool:
        """Create a record with its whole content; False if the name is taken."""
        target = self._path(name)
        folder = target.rpartition("/")[0]
        temporary = f"{folder}/.{uuid.uuid4()}.tmp"
        self._files.make_folder(self._root, mode="0700")  # private, and so is all below it
        self._files.make_folder(folder)
        self._files.write_new(temporary, content)
        if self._files.try_rename(temporary, target):
            return True
        self._files.delete_file(temporary)
        return False

    def read(self, name: str) -> bytes | None:
        """Return a record's content; None if there is no such record."""
        path = self._path(name)
        try:
            return self._files.read(path)
        except SparkcryptError:
            if self._files.is_file(path):
                raise
            return None

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names of records that begin with a prefix, sorted."""
        folder = f"{self._root}/{prefix}".rpartition("/")[0]
        if not self._files.exists(folder):
            return ()
        root = self._files.status(self._root).path + "/"
        names = (entry.path.removeprefix(root) for entry in self._files.walk(folder) if not entry.name.startswith("."))
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def delete(self, name: str) -> None:
        """Delete a record."""
        self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        check_name(name)
        return f"{self._root}/{name}"
