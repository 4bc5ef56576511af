"""The one seam between a driver and the world: whatever it changes passes here, is counted, and may be its last act.

A driver is a fork of this process that uses the JVM of this process.  Two things can change anything outside of it:
its system calls, which Python's audit events show, and its calls into the JVM, which go through one function of py4j.
Whatever code of the package asks for them, both are counted here.  A killed driver ends by SIGKILL: no handler of its
own runs, its locks are those of a dead process, and the JVM with its caches and the metastore live on.

A kill comes before a call.  The moment after a call is the one before the next, since nothing changes between them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from tests.spark.support import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RENAME, DELETE, MKDIR = "files rename", "files delete", "files mkdir"
PUT, FORGET, METASTORE = "state put", "state delete", "metastore"
POINTS = (RENAME, DELETE, MKDIR, PUT, FORGET, METASTORE)
"""Kinds of calls that change something, at each of which a driver may be killed."""

_OF_JVM = {
    **dict.fromkeys(("rename", "move", "renameTo"), RENAME),
    **dict.fromkeys(("delete", "deleteIfExists", "deleteOnExit"), DELETE),
    **dict.fromkeys(("mkdirs", "createDirectories"), MKDIR),
    **dict.fromkeys(("alterTable", "alterTableDataSchema", "alterTableStats", "alterPartitions"), METASTORE),
    **dict.fromkeys(("createTable", "dropTable", "renameTable", "createPartitions", "dropPartitions"), METASTORE),
}
"""Names of Java methods -> point."""
_STATEMENT = re.compile(r"s\s*(ALTER|CREATE|DROP|TRUNCATE|MSCK|ANALYZE|REPAIR)\b", re.IGNORECASE)
_OF_SYSTEM = {"os.rename": RENAME, "os.remove": DELETE, "os.rmdir": DELETE, "os.mkdir": MKDIR, "os.link": PUT}
_SECONDS = 150
"""After so long a driver hangs."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The end of a driver: before its so-manieth call of a kind."""

    point: str
    number: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended.

    Attributes:
        code: its exit code; None if it was killed.
        text: what it printed, and the error that nothing caught.
        calls: how often it changed what.
        killed_at: the call that it did not live to make.
    """

    code: int | None
    text: str
    calls: Counter[str] = field(default_factory=Counter)
    killed_at: str = ""


class Seam:
    """Counts the calls of this process, and ends it.

    Args:
        root: the estate; what happens outside of its folder is no concern of it.
        state: the state directory below it.
        kill: where the process ends.
        tell: hands on the last words.
    """

    def __init__(self, root: Path, state: Path, kill: Kill | None, tell: Callable[[dict[str, Any]], None]) -> None:
        self._root, self._state, self._kill, self._tell = f"{root}/", f"{state}/", kill, tell
        self.calls = Counter[str]()
        self._mutex = threading.Lock()

    def watch(self) -> None:
        """Let every call from now on pass here."""
        from py4j.clientserver import ClientServerConnection

        send = ClientServerConnection.send_command

        def sent(connection: Any, command: str) -> Any:
            kind, _, rest = command.partition("\n")
            if kind == "c":
                _, name, arguments = rest.split("\n", 2)
                point = _OF_JVM.get(name) or (METASTORE if name == "sql" and _STATEMENT.match(arguments) else None)
                if point:
                    self._pass(point, lambda: f"{name} {self._described(lambda text: send(connection, text), rest)}")
            return send(connection, command)

        ClientServerConnection.send_command = sent
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        point = _OF_SYSTEM.get(event)
        if point is None:
            return
        path = os.fspath(arguments[1] if event == "os.link" else arguments[0])
        if not isinstance(path, str) or not path.startswith(self._root):
            return
        if path.startswith(self._state):
            point = {DELETE: FORGET, RENAME: PUT}.get(point, point)
            if point == MKDIR or Path(path).name.startswith("."):  # what no reader of the state directory looks at
                return
        self._pass(point, lambda: f"{event} {path}")

    def _pass(self, point: str, describe: Callable[[], str]) -> None:
        with self._mutex:
            self.calls[point] += 1
            if self._kill is None or (point, self.calls[point]) != (self._kill.point, self._kill.number):
                return
            self._tell({"killed_at": describe(), "calls": self.calls})
            os.kill(os.getpid(), signal.SIGKILL)

    def _described(self, send: Callable[[str], str], call: str) -> str:
        """Return the arguments of a call as text; those that are Java objects by their toString."""
        _, _, *arguments = call.split("\n")
        texts = [send(f"c\n{text[1:]}\ntoString\ne\n") if text[:1] == "r" else text for text in arguments]
        return " ".join(text.removeprefix("ys").removeprefix("s") for text in texts if text not in ("e", ""))


def run_driver(
    spark: SparkSession, root: Path, state: Path, arguments: Sequence[str], database: str, kill: Kill | None
) -> Ending:
    """Run a command of sparkcrypt in a driver of its own; return how it ended.

    Args:
        spark: a session of the JVM.
        root: the folder of the estate.
        state: the state directory in it.
        arguments: of the command line.
        database: which the driver's session uses.
        kill: where to kill it.
    """
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        os.close(source)
        _drive(spark, Seam(root, state, kill, lambda last: _write(sink, last)), sink, arguments, database)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        text = stream.read()
    os.waitpid(child, 0)
    last = json.loads(text or b'{"code": 1, "text": "it hung, or died of something else"}')
    if last.get("killed_at"):
        spark.sparkContext.cancelAllJobs()  # an application's tasks end with its driver
        return Ending(None, "", Counter(last["calls"]), last["killed_at"])
    return Ending(last["code"], last["text"], Counter(last.get("calls", {})))


def _drive(spark: SparkSession, seam: Seam, sink: int, arguments: Sequence[str], database: str) -> None:
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        _connect_anew(spark)
        session = spark.newSession()
        session.sql(f"USE {database}")
        quiet(session)
        machine: Any = spark._jvm
        machine.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
        from sparkcrypt.cli.main import cli

        seam.watch()
        done = CliRunner().invoke(cli, list(arguments))
        text = done.output
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            text += "".join(traceback.format_exception(done.exception))
        _write(sink, {"code": done.exit_code, "text": text, "calls": seam.calls})
    except BaseException:  # noqa: BLE001  # the fork must not live on as a second test run
        _write(sink, {"code": 1, "text": traceback.format_exc()})
    finally:
        os._exit(0)


_NOT_OURS: list[Any] = []
"""Connections of the process that was forked: closing them here would close them there."""


def _connect_anew(spark: SparkSession) -> None:
    """Give a fork connections of its own, and let it release no Java object of the process that it came from."""
    from py4j.clientserver import FinalizerWorker
    from py4j.finalizer import clear_finalizers

    gateway: Any = spark.sparkContext._gateway
    client = gateway._gateway_client
    _NOT_OURS.extend([client.thread_connection, *client.deque])
    client.thread_connection = threading.local()
    client.deque.clear()
    client.finalizer_deque.clear()
    clear_finalizers(clear_all=True)
    worker = FinalizerWorker(client.finalizer_deque)
    worker.daemon = True
    worker.start()


def _write(sink: int, last: dict[str, Any]) -> None:
    rest = json.dumps(last).encode()
    while rest:
        rest = rest[os.write(sink, rest) :]
