"""The process that holds a lock: if it is known to be dead, the lock can be taken before it expires.

Only processes of this machine can be checked, so a lock records the machine's boot id, the namespace of process
numbers, and when the process began, since numbers are reused.  A process that cannot be checked counts as alive.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_START_TIME = 19
"""Index of ``starttime`` among the fields after the program's name in /proc/PID/stat (proc(5), field 22)."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its host and number, and the values that make both unique; None if the system does not have them."""

    host: str
    pid: int
    boot: str | None
    namespace: str | None
    began: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the process as JSON values."""
        return asdict(self)


def this_process() -> Process:
    """Return the current process."""
    pid = os.getpid()
    return Process(socket.gethostname(), pid, _boot(), _namespace(), _began(pid))


def is_dead(record: Mapping[str, Any]) -> bool:
    """Return whether the process in a record ran on this machine and no longer exists.

    Args:
        record: contains the members that `Process.to_dict` returns.
    """
    here = this_process()
    place = (record.get("host"), record.get("boot"), record.get("namespace"))
    pid, began = record.get("pid"), record.get("began")
    if None in place or place != (here.host, here.boot, here.namespace) or not isinstance(pid, int) or began is None:
        return False
    if not Path("/proc/self/stat").exists():
        return False
    return bool(_began(pid) != began)


def _boot() -> str | None:
    return _text(Path("/proc/sys/kernel/random/boot_id"))


def _namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _began(pid: int) -> str | None:
    """Return when a process began, in clock ticks since boot; None if it does not exist, or is a zombie."""
    text = _text(Path(f"/proc/{pid}/stat"))
    fields = text.rpartition(")")[2].split() if text else []
    return fields[_START_TIME] if len(fields) > _START_TIME and fields[0] not in ("Z", "X") else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
