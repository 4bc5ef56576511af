"""Lines of the log on stderr: each with its time and, as far as they are known, the run, the table and the unit.

``SPARKCRYPT_LOG=json`` makes each line a JSON object.  Processes that a driver starts get its `LogSettings`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Literal

from sparkcrypt.errors import ConfigError
from sparkcrypt.text import replace_controls, utc_text

LOG_VARIABLE = "SPARKCRYPT_LOG"
"""The environment variable that names the form of lines."""
LogForm = Literal["text", "json"]
_FORMS: tuple[LogForm, ...] = ("text", "json")
_PLACES = ("run", "table", "unit")
"""What a line may be about, in the order in which it is written."""
_ABOUT: ContextVar[Mapping[str, str] | None] = ContextVar("_ABOUT", default=None)


@contextmanager
def log_about(**about: str) -> Iterator[None]:
    """Say what the lines of this thread are about while the block runs.

    Args:
        **about: ``run``, ``table`` or ``unit``, in addition to what surrounds the block.
    """
    outside = _ABOUT.set({**log_place(), **about})
    try:
        yield
    finally:
        _ABOUT.reset(outside)


def log_place() -> dict[str, str]:
    """Return what the lines of this thread are about."""
    return dict(_ABOUT.get() or {})


def log_as_here() -> Callable[[], None]:
    """Return what makes the lines of another thread be about the same as those of this one."""
    return partial(_set_about, log_place())


def _set_about(about: Mapping[str, str]) -> None:
    _ABOUT.set(about)


def log_form() -> LogForm:
    """Return the form of lines that the environment names; text by default.

    Raises:
        ConfigError: it names none that there is.
    """
    named = os.environ.get(LOG_VARIABLE) or "text"
    for form in _FORMS:
        if named == form:
            return form
    raise ConfigError(f"{LOG_VARIABLE} is {named!r}; allowed: {', '.join(_FORMS)}; set one of them, or unset it")


def log_line(message: str, form: LogForm, *, level: str = "info", **more: str) -> str:
    """Return a line of the log, in which nothing controls a terminal.

    Args:
        message: what happened; values of columns and texts of queries have no place in it.
        form: the form of the line.
        level: its level, as Python's logging names them, in lower case.
        **more: further members of the JSON object.
    """
    now, about = utc_text(datetime.now(timezone.utc)), log_place()
    if form == "json":
        return json.dumps({"time": now, "level": level, **about, "message": message, **more})
    places = (about[name] for name in _PLACES if name in about)
    return replace_controls(f"{' '.join([now, level, *places])}: {message}")


class _Lines(logging.Formatter):
    """Formats the records of Python's logging as lines of the log."""

    def __init__(self, form: LogForm) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line; the stack of an error follows it, or is a member of the JSON object."""
        stack = self.formatException(record.exc_info) if record.exc_info else ""
        level, message = record.levelname.lower(), record.getMessage()
        if self._form == "text":
            line = log_line(message, "text", level=level)
            return f"{line}\n{replace_controls(stack)}" if stack else line
        more = {"stack": stack} if stack else {}
        return log_line(message, "json", level=level, logger=record.name, **more)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The form of a process's log, and what its lines are about; a driver gives its own to tasks and processes."""

    form: LogForm = field(default_factory=log_form)
    about: Mapping[str, str] = field(default_factory=log_place)

    def apply(self) -> None:
        """Use these settings in this process, unless it has configured its logging itself."""
        _set_about(self.about)
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(_Lines(self.form))
