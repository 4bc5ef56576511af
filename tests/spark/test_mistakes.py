"""What the commands answer to mistakes of their users: the thing, the reason, what is allowed, and the next step."""

from __future__ import annotations

import pytest

from tests.spark.sessions import run_command
from tests.spark.support import Lake, make_policy
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark


def policy_of(lake: Lake) -> str:
    """Create a policy with its keys; return the path of its file."""
    make_policy(lake.root / "p")
    return str(lake.root / "p" / "policy.yaml")


def test_predicate_that_does_not_fit_the_table_is_a_usage_error(lake: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    """It ends with 64 in one line that names option, reason and the columns that are allowed, without Java's stack."""
    policy = policy_of(lake)
    make_table(lake, "t", partitions=1)
    make_table(lake, "u", partitions=0)
    table = lake.name("t")
    reasons = {
        "dya >= 1": "`dya` is no column of the table",
        "Email = 'a'": "`Email` is in the files, and no partition column",
        "p >>= 1": "Syntax error at or near '='",
        "p = 'x": "Syntax error at or near",
        "p = 'x'": "cannot be cast",
    }
    for where, reason in reasons.items():
        for command in ("plan", "encrypt", "backfill"):
            done = run_command(lake, command, "--table", table, "--where", where, "--policy", policy)
            assert done.exit_code == 64, done.output
            line = next(line for line in done.output.splitlines() if "--where" in line and "allowed:" in line)
            assert repr(where) in line and reason in line, line
            assert f"on the partition columns of {table}: p (int); such as --where \"p = '0'\"" in line
            assert "SQLSTATE" not in done.output and "`#`" not in done.output
    assert "SQLQueryContextLogger" not in capfd.readouterr().err
    for target in (["--table", lake.name("u")], ["--path", str(lake.path("u"))]):
        done = run_command(lake, "plan", *target, "--where", "p = 1", "--policy", policy)
        assert (done.exit_code, "leave it out" in done.output) == (64, True), done.output
    both = run_command(lake, "plan", "--database", lake.database, "--where", "p = 0", "--policy", policy)
    assert both.exit_code == 74, both.output  # one of the tables fits it
    none = run_command(lake, "plan", "--table", table, "--where", "p = 7", "--policy", policy)
    assert "'p = 7' chooses no partition" in none.output
