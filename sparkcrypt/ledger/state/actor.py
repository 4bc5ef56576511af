"""The name of the acting user in locks and audits."""

from __future__ import annotations

import getpass
import socket


def acting_user() -> str:
    """Return ``user@host`` of this process."""
    return f"{getpass.getuser()}@{socket.gethostname()}"
