"""Tables with a key for each month, some of them past their retention, and helpers for tests of shredding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from sparkcrypt.cli.main import cli
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.find_shreddable import Selection, Survey
from sparkcrypt.runs.keys.shredding_plan import ShreddableKey, ShredPlan
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, key_service

OLD, NEXT, NEW = "contact-2025-01", "contact-2025-02", "contact-2026-10"
"""Keys of months: the first two are past a retention of 400 days, the third is not."""
TAGS = """
  pii: {key: pii}
  contact: {key: "contact-{d:%Y-%m}", retention: 400d}
  tenant: {key: "tenant-{r}"}
"""
KEYS = ("audit", OLD, NEXT, NEW, "tenant-acme")
AUDIT = "audit: {key: audit}"


def make_policy_of_months(lake: Lake, **more: Any) -> Policy:
    """Create a policy with the keys of three months, and put the session under it."""
    return lake.policy(TAGS, keys=KEYS, more=AUDIT, **more)


def make_table_of_months(lake: Lake, policy: Policy, name: str = "t") -> None:
    """Create a table of five rows in four days of three months; email is under the months' keys, ssn under one key.

    Literals would result in required columns in the files.
    """
    lake.sql(f"CREATE TABLE {name} (id INT, email STRING, ssn STRING, d STRING) USING parquet PARTITIONED BY (d)")
    set_tags(lake.spark, name, {"email": ["contact"], "ssn": ["pii"]}, policy)
    rows = [("2025-01-05", 1), ("2025-01-31", 2), ("2025-02-01", 3), ("2026-10-01", 4), ("2026-10-01", 5)]
    values = ", ".join(f"({number}, 'e{number}', 's{number}', '{day}')" for day, number in rows)
    columns = "id, nullif(email, '') AS email, ssn, d"
    lake.sql(f"INSERT INTO {name} SELECT {columns} FROM VALUES {values} AS v(id, email, ssn, d)")


def state_of(policy: Policy) -> LocalStateStore:
    """Open a policy's state directory."""
    return LocalStateStore(policy.run_state)


def plan_shredding(lake: Lake, policy: Policy, *tables: str, **more: Any) -> ShredPlan:
    """Plan shredding for some tables or for all known ones."""
    as_of = more.pop("as_of", None)
    selection = Selection(tables, **more)
    return Survey(lake.spark, policy, state_of(policy), key_service(policy), selection).plan(as_of=as_of)


def by_key(plan: ShredPlan) -> dict[str, ShreddableKey]:
    """Return the keys of a plan by their ids."""
    return {key.key_id: key for key in plan.keys}


def run_command(policy_file: Path, *arguments: str, answer: str | None = None) -> tuple[int, Any, str]:
    """Run `sparkcrypt … --json` in this JVM; return the exit code, the document and stderr."""
    done = CliRunner().invoke(cli, [*arguments, "--policy", str(policy_file), "--json"], input=answer)
    return done.exit_code, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr
