"""Queries the metastore, and repeats a query once if the connection breaks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from sparkcrypt.spark.jvm.gateway import JVM_ERRORS

Answer = TypeVar("Answer")

PAUSE_SECONDS = 1.0
"""Time between a broken connection and the one repetition."""
_BROKEN = (
    *(
        "TTransportException",
        "java.net.SocketException",
        "java.net.ConnectException",
        "java.net.SocketTimeoutException",
    ),
    *("Broken pipe", "Connection reset", "Connection refused"),
)


def ask_metastore(question: Callable[[], Answer]) -> Answer:
    """Return the result of a read-only query; use it for no change, which may have been made before a failure.

    Raises:
        Exception: as the query; an error of a broken connection only if the second attempt fails too.
    """
    try:
        return question()
    except JVM_ERRORS as error:
        if not is_broken(error):
            raise
    time.sleep(PAUSE_SECONDS)
    return question()


def is_broken(error: BaseException) -> bool:
    """Tell whether the cause of a JVM error is a metastore connection that broke or could not be opened."""
    texts = [str(error)]
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        texts.append(str(java.toString()))
        java = java.getCause()
    return any(sign in text for text in texts for sign in _BROKEN)
