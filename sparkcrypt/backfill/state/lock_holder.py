"""Which process holds a lock, and whether it is seen to be dead: then nobody needs to wait until the lock expires.

Only a process of this machine can be seen, so a lock records the machine's boot, the namespace in which process numbers
count, and when the process began, since numbers are used again.  Whatever cannot be told counts as alive.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_START_TIME = 19
"""Place of ``starttime`` among the fields after the program's name in /proc/PID/stat (proc(5), field 22)."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its host and number, and what makes both unique; None where the system does not tell."""

    host: str
    pid: int
    boot: str | None
    namespace: str | None
    began: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def this_process() -> Process:
    """Return the process that asks."""
    pid = os.getpid()
    return Process(socket.gethostname(), pid, _boot(), _namespace(), _began(pid))


def is_dead(record: Mapping[str, Any]) -> bool:
    """Tell whether the process of a record ran on this machine and is there no more.

    Args:
        record: what `Process.to_dict` gave, among other things.
    """
    here = this_process()
    known = (record.get("host"), record.get("boot"), record.get("namespace"))
    pid, began = record.get("pid"), record.get("began")
    if None in known or known != (here.host, here.boot, here.namespace) or not isinstance(pid, int) or began is None:
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
    """Return when a process began, in clock ticks since boot; None when it is not there, or is a zombie."""
    text = _text(Path(f"/proc/{pid}/stat"))
    fields = text.rpartition(")")[2].split() if text else []
    return fields[_START_TIME] if len(fields) > _START_TIME and fields[0] not in ("Z", "X") else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
