"""A key service with faults, found by the helper through its entry point; it notes every call in a file.

A key id's first word, up to ``:``, names the fault.  Keys are masked with a constant: this tests the bridge, not
cryptography.
"""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkcrypt.errors import KeyAccessDeniedError, KeyServiceUnavailableError

_MASK = 0x5A


class FaultyKeyService:
    """Wraps by masking, unless the key id asks for a fault on unwrap."""

    def __init__(self, config: Any) -> None:
        options: Mapping[str, Any] = getattr(config, "options", config)
        self._folder = Path(options["folder"])
        self._note("open")

    def wrap(self, key_id: str, key: bytes) -> str:
        """Mask a key."""
        self._note(f"wrap {key_id}")
        return base64.b64encode(bytes(byte ^ _MASK for byte in key)).decode()

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Unmask a key, or fail as its id says."""
        self._note(f"unwrap {key_id}")
        fault = getattr(self, "_" + key_id.split(":")[0].replace("-", "_"), None)
        if fault is not None:
            fault()
        if (self._folder / "deny").exists() and key_id in (self._folder / "deny").read_text().split():
            raise KeyAccessDeniedError(f"key {key_id!r} may not be used here; ask its owner")
        return bytes(byte ^ _MASK for byte in base64.b64decode(wrapped))

    def _note(self, event: str) -> None:
        with (self._folder / "events").open("a") as stream:
            stream.write(f"{os.getpid()} {event}\n")

    def _dies_once(self) -> None:
        marker = self._folder / "died"
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def _dies(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _stops(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        # The kernel stops the process's threads one after another: this one could answer before it is stopped.
        time.sleep(600)

    def _sleeps(self) -> None:
        time.sleep(20)

    def _slow(self) -> None:
        time.sleep(3)

    def _down(self) -> None:
        raise KeyServiceUnavailableError("the key service at 127.0.0.1:1 cannot be reached; start it")

    def _denied(self) -> None:
        raise KeyAccessDeniedError("this key may not be used with these credentials; ask its owner")

    def _prints(self) -> None:
        print("a stray line on stdout", flush=True)
        os.system("echo a child on stdout")
        os.write(1, b"raw bytes on descriptor 1\n")

    def _leaks(self) -> None:
        # Spelt in hexadecimal: a traceback shows this line, and must show nothing else.
        raise RuntimeError(bytes.fromhex("43414e415259").decode())
