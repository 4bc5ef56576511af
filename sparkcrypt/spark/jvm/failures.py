"""Extracts an error of this package, or Java's reason in one line, from Spark's exceptions."""

from __future__ import annotations

import re

from sparkcrypt.errors import SparkcryptError, causes_of, error_named

_REFUSED = re.compile(r"(?:ParquetCryptoRuntimeException|KeyAccessDeniedException|RefusedError): ([A-Z]\w*Error): (.+)")
_LONGEST = 400


def find_carried_error(error: BaseException) -> SparkcryptError | None:
    """Return the error of this package that is contained in a JVM's exceptions, or None.

    Each message of the jar begins with the name of the error's class.
    """
    for place in causes_of(error):
        found = _REFUSED.findall(str(place))
        if found:
            kind, message = found[-1]
            return error_named(kind)(message.strip())
    return None


def short_text(error: BaseException) -> str:
    """Return an exception's message in one line; that of the innermost Java exception if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.partition("Caused by: ")[2] for line in lines if line.startswith("Caused by: ")]
    thrown = [line[2:] for line in lines if line.startswith(": ")]  # py4j: the exception that was thrown
    text = (causes[-1:] or thrown[:1] or lines[:1] or ["it says nothing more"])[0]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
