"""What rounds happen in: a metastore, Vault behind a door that can lead to a sealed one, a writer, and drivers."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from tests.chaos.workers import START_SECONDS, Pool, Worker
from tests.services.installed import ROOT, spark_environment
from tests.services.metastore import Metastore, start_metastore
from tests.services.processes import LOCAL
from tests.services.quick_java import quick_java
from tests.services.vault_server import VaultServer, start_vault

KEYS = ("footer", "audit", "pii", "fin")
POLICY = """\
version: 1
key_service: {type: vault, mount_point: transit}
footer: {key: footer, mode: encrypted}
audit: {key: audit}
untagged: plaintext
run_state: states/state/
tags:
  pii: {key: pii}
  fin: {key: fin}
"""
_RIGHTS = """
path "transit/*" {{ capabilities = ["create", "read", "update", "list"] }}
{more}
"""
_DENIED = 'path "transit/+/{key}" {{ capabilities = ["deny"] }}'
_CHUNK = 65536
T = TypeVar("T")


class Door:
    """A port of 127.0.0.1 whose connections lead to a server, or to another one while that is chosen."""

    def __init__(self, target: str) -> None:
        self._usual = self._target = (LOCAL, int(urlsplit(target).port or 0))
        self._listener = socket.create_server((LOCAL, 0))
        self.address = f"http://{LOCAL}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def lead_to(self, target: str | None) -> None:
        """Lead new connections elsewhere; None leads them to the usual place again."""
        self._target = self._usual if target is None else (LOCAL, int(urlsplit(target).port or 0))

    def close(self) -> None:
        """Take no further connection."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            for source, other in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(source, other), daemon=True).start()


class World:
    """Everything that outlives a round.

    Args:
        folder: in which all of it lies; removed with `close`.
        drivers: how many are kept ready.
    """

    def __init__(self, folder: Path, drivers: int = 3) -> None:
        self.folder, self._numbers = folder, itertools.count(1)
        self._tokens: dict[str, str] = {}
        # A process that is tied to its starter ends with the thread that started it, so one thread starts them all.
        self._starter = ThreadPoolExecutor(1)
        self.metastore: Metastore = self._started(lambda: start_metastore(folder / "services"))
        self.vault: VaultServer = self._started(start_vault)
        self.sealed: VaultServer | None = None
        self.door = Door(self.vault.address)
        for key in KEYS:
            self.vault.api("POST", f"transit/keys/{key}", {"type": "aes256-gcm96"})
        self._jar = Path(shutil.copy(ROOT / "sparkcrypt" / "_jar" / "sparkcrypt.jar", folder / "sparkcrypt.jar"))
        self.allow()
        self.writer = self.start_worker("writer")
        (folder / "warm").mkdir()
        (folder / "warm" / "policy.yaml").write_text(POLICY)
        self.drivers = Pool(self._start_driver, drivers)
        self.writer.ready.result(START_SECONDS)

    def start_worker(self, kind: str) -> Worker:
        """Start a process with a token of its own."""
        env = quick_java(spark_environment()) | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "SPARKCRYPT_JAR": str(self._jar),
            "VAULT_ADDR": self.door.address,
            "VAULT_TOKEN": self._token(),
        }
        name = f"{kind}-{next(self._numbers)}"
        self._tokens[name] = env["VAULT_TOKEN"]
        return self._started(lambda: Worker(name, self.folder / "workers", self._conf(), env))

    def _start_driver(self) -> Worker:
        """Start a driver that is ready once it has encrypted a table of its own."""
        worker = self.start_worker("driver")
        policy = str(self.folder / "warm" / "policy.yaml")
        worker.ready = worker.send("warm_up", policy=policy, table="default.warm_" + worker.name.replace("-", "_"))
        return worker

    def revoke(self, worker: Worker) -> None:
        """End the token of a worker, which is then of no use any more."""
        self.vault.api("POST", "auth/token/revoke", {"token": self._tokens[worker.name]})

    def deny(self, key: str) -> None:
        """Let nobody use one key."""
        self._rights(_DENIED.format(key=key))

    def allow(self) -> None:
        """Let everybody use every key."""
        self._rights("")

    def seal(self) -> None:
        """Let all who ask for keys meet a Vault that is sealed."""
        if self.sealed is None:
            self.sealed = self._started(start_vault)
            self.sealed.api("PUT", "sys/seal", {})
        self.door.lead_to(self.sealed.address)

    def unseal(self) -> None:
        """Lead them to the one that serves."""
        self.door.lead_to(None)

    def kill_metastore(self) -> None:
        """Kill the metastore's process."""
        self.metastore.process.process.kill()
        self.metastore.process.process.wait()

    def start_metastore_again(self) -> None:
        """Start it over the database that the last one left, on the same port."""
        port = int(self.metastore.uri.rpartition(":")[2])
        self.metastore = self._started(lambda: start_metastore(self.folder / "services", port))

    @property
    def metastore_database(self) -> Path:
        """The folder of the metastore's database."""
        return self.folder / "services" / "metastore_db"

    def renew_writer(self) -> None:
        """Replace a writer that died."""
        if not self.writer.alive():
            self.writer = self.start_worker("writer")
            self.writer.ready.result(START_SECONDS)

    def close(self) -> None:
        """Stop every process and remove the folder."""
        self.drivers.close()
        self.writer.kill()
        self.metastore.stop()
        self.door.close()
        for server in filter(None, (self.vault, self.sealed)):
            server.stop()
        self._starter.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _started(self, start: Callable[[], T]) -> T:
        return self._starter.submit(start).result()

    def _rights(self, more: str) -> None:
        self.vault.api("POST", "sys/policies/acl/chaos", {"policy": _RIGHTS.format(more=more)})

    def _token(self) -> str:
        made = self.vault.api("POST", "auth/token/create", {"policies": ["chaos"], "ttl": "12h"})
        return str(made["auth"]["client_token"])

    def _conf(self) -> dict[str, str]:
        return {
            **self.metastore.spark_conf(),
            "spark.ui.enabled": "false",
            "spark.driver.memory": "640m",
            "spark.sql.shuffle.partitions": "1",
            "hive.exec.dynamic.partition.mode": "nonstrict",
            "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        }


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while chunk := source.recv(_CHUNK):
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        sink.close()
