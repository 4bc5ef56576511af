"""One table's error never ends the others, and always has its name; what all would meet ends them."""

from __future__ import annotations

import pytest

from sparkcrypt.errors import BridgeError, ConfigError, KeyServiceUnavailableError
from sparkcrypt.runs.passes.report import TableFailures


def _fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "name", "part"),
    [
        (ConfigError("no state"), "ConfigError", "no state"),
        (KeyError("files"), "KeyError", "(test_table_failures.py, line"),
        (RuntimeError("ParquetCryptoRuntimeException: KeyNotFoundError: no key"), "KeyNotFoundError", "no key"),
    ],
)
def test_error_of_a_table_is_recorded(error: Exception, name: str, part: str) -> None:
    """Also one that nothing foresaw, with its place in the code, and one that Java carried."""
    failures = TableFailures()
    with failures.of("db.t"):
        _fail(error)
    with failures.of("db.u"):
        pass
    (found,) = failures.found
    assert (found.table, found.error) == ("db.t", name) and part in found.message


@pytest.mark.parametrize("kind", [KeyServiceUnavailableError, BridgeError])
def test_error_that_all_would_meet_is_recorded_and_raised(kind: type[Exception]) -> None:
    """The report then names the table at which the command ended."""
    failures = TableFailures()
    with pytest.raises(kind), failures.of("db.t"):
        raise kind("no answer")
    assert [found.table for found in failures.found] == ["db.t"]


def test_interruption_is_no_error_of_a_table() -> None:
    """Ctrl-C ends the command."""
    failures = TableFailures()
    with pytest.raises(KeyboardInterrupt), failures.of("db.t"):
        raise KeyboardInterrupt
    assert failures.found == []
