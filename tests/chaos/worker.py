"""A process with a JVM of its own that takes commands, one JSON document a line, until its input ends.

It is a writer, a reader or a driver, as it is told; each command runs in a thread, and its answer, again one line,
bears the command's number.  ``python -m tests.chaos.worker CONFIG`` with the configuration of its session as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from typing import Any


def main() -> None:
    """Start Spark, say so, and do what comes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    session = _session(json.loads(sys.argv[1]))
    from sparkcrypt.spark.jvm.failures import list_java_errors
    from tests.chaos.actions import Actions

    actions, mutex = Actions(session), threading.Lock()

    def answer(**fields: Any) -> None:
        with mutex:
            answers.write(json.dumps(fields, default=str) + "\n")
            answers.flush()

    def perform(command: dict[str, Any]) -> None:
        number, name = command.pop("number"), command.pop("do")
        try:
            answer(number=number, value=getattr(actions, name)(**command))
        except BaseException as error:  # noqa: BLE001  # whatever it is, the round must hear of it
            traceback.print_exc()
            causes = "; ".join(list_java_errors(error)[1:])
            answer(number=number, error=f"{type(error).__name__}: {causes[:2000]} {str(error)[:2000]}")

    answer(number=0, value=os.getpid())
    for line in sys.stdin:
        threading.Thread(target=perform, args=(json.loads(line),), daemon=True).start()


def _session(conf: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("chaos")
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.enableHiveSupport().getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.range(1).count()
    return session


if __name__ == "__main__":
    main()
