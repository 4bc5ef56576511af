"""Questions to the metastore: one broken connection is no answer, so they are asked once more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from sparkcrypt.spark.jvm.gateway import JVM_ERRORS

Answer = TypeVar("Answer")

PAUSE_SECONDS = 1.0
"""How long after a broken connection the question is repeated, once."""
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
    """Return the answer to a question that changes nothing; changes are not repeated, since one may have happened.

    Raises:
        Exception: as the question; of a broken connection only when the second attempt ends so too.
    """
    try:
        return question()
    except JVM_ERRORS as error:
        if not is_broken(error):
            raise
    time.sleep(PAUSE_SECONDS)
    return question()


def is_broken(error: BaseException) -> bool:
    """Tell whether an error of the JVM says that the connection to the metastore broke, or could not be made."""
    texts = [str(error)]
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        texts.append(str(java.toString()))
        java = java.getCause()
    return any(sign in text for text in texts for sign in _BROKEN)
