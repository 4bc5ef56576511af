"""Extracts an error of this package, or Java's reason in one line, from Spark's exceptions."""

from __future__ import annotations

import re

from sparkcrypt.errors import ConfigError, SparkcryptError, StorageError, causes_of, error_named

_REFUSED = re.compile(r"(?:ParquetCryptoRuntimeException|KeyAccessDeniedException|RefusedError): ([A-Z]\w*Error): (.+)")
_OF_FILES = re.compile(
    r"(?:java\.io|java\.nio\.file|org\.apache\.hadoop\.(?:fs|hdfs|ipc|security))[\w.$]*(?:Exception|Error)\b"
)
_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|DSQuotaExceeded|could only be (?:replicated|written) to 0"
)
_OTHER_PYTHON = re.compile(
    r"Python in worker has different version:? ?\(?(?P<worker>[^()]*?)\)? than that in driver:? (?P<driver>[0-9.]+)"
)
_NO_PYTHON = re.compile(r'Cannot run program "(?P<program>[^"]+)"(?: \([^)]*\))?: (?:error=2|Exec failed)')
_BROKEN_PYTHON = re.compile(r"Error from python worker:\s*\n(?P<said>.*?)\n\s*PYTHONPATH was:", re.DOTALL)
_LONGEST = 400
_MOST_CAUSES = 20


def find_carried_error(error: BaseException) -> SparkcryptError | None:
    """Return the error of this package that is contained in a JVM's exceptions, or None.

    Each message of the jar begins with the name of the error's class.  An executor whose Python is missing, or is not
    the driver's, is one of the configuration.
    """
    for place in causes_of(error):
        text = str(place)
        found = _REFUSED.findall(text)
        if found:
            kind, message = found[-1]
            return error_named(kind)(message.strip())
        other = _explain_python(text)
        if other is not None:
            return other
    return None


def _explain_python(text: str) -> ConfigError | None:
    """Return what is wrong with the Python of executors, if an exception's text is about that."""
    other, missing, broken = _OTHER_PYTHON.search(text), _NO_PYTHON.search(text), _BROKEN_PYTHON.search(text)
    needed = "a Python of the driver's version"
    if other is not None:
        numbers = ".".join(re.findall(r"\d+", other["worker"])) or other["worker"]
        reason, needed = f"is {numbers}, and that of the driver {other['driver']}", f"a Python {other['driver']}"
    elif missing is not None and "python" in missing["program"].lower():
        reason = f"is {missing['program']}, which is not there"
    elif broken is not None:
        said = broken["said"].strip().splitlines()[-1:] or ["it says nothing"]
        reason = f"does not start: {said[0].strip()}"
    else:
        return None
    return ConfigError(
        f"the Python of an executor {reason}; allowed: the same minor version on the driver and on every executor; set "
        f"PYSPARK_PYTHON, or --conf spark.pyspark.python=PATH, to {needed} that every executor has"
    )


def find_storage_error(error: BaseException) -> StorageError | None:
    """Return an error of Python or Java about a file as one of this package, or None if it is about something else."""
    if isinstance(error, OSError):
        step = "see that its disk is there, writable and not full, and that this user may use it, or name another place"
        return StorageError(f"{error.filename}: {error.strerror}; {step}") if error.filename else None
    reason = short_text(error)
    return StorageError(reason) if _OF_FILES.match(reason) else None


def is_disk_full(error: BaseException) -> bool:
    """Tell whether an error of Python or Java is due to a disk, or a quota, that is full."""
    return any(_FULL.search(text) for cause in causes_of(error) for text in (str(cause), *list_java_errors(cause)))


def list_java_errors(error: BaseException) -> tuple[str, ...]:
    """Return the Java error behind an exception of py4j or pyspark and its causes, each with its message."""
    found: list[str] = []
    try:
        java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        while java is not None and len(found) < _MOST_CAUSES:
            found.append(str(java.toString()))
            java = java.getCause()
    except Exception:  # noqa: BLE001  # of py4j, which may not be installed: the JVM has ended
        return tuple(found)
    return tuple(found)


def short_text(error: BaseException) -> str:
    """Return an exception's message in one line; that of the innermost Java exception if there is one."""
    text = "\n".join((str(error), *(f"Caused by: {cause}" for cause in list_java_errors(error)[1:])))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.partition("Caused by: ")[2] for line in lines if line.startswith("Caused by: ")]
    thrown = [line[2:] for line in lines if line.startswith(": ")]  # py4j: the exception that was thrown
    text = (causes[-1:] or thrown[:1] or lines[:1] or ["it says nothing more"])[0]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
