"""Tags that a table lost: found by the plan of its last run, and recorded until a pass finds them set again.

    cache/lost_tags/<digest of the table's name>.json    the table, and why passes refuse it

The record tells commands without Spark what only a pass can find.  A pass removes it once the tags are set again, or
no table has the name.  It has no MAC, since it does no more than raise an alarm: where it was deleted, the next pass
writes it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import normalized_table

VERSION = 1
_FOLDER = "cache/lost_tags/"


def lost_tags(store: StateStore, table_id: str, plan: EncryptionPlan) -> tuple[str, ...]:
    """Return the columns of a table that lost their tags since its last run.

    ``sparkcrypt tags unset`` leaves the old key in the column's history.  A column without tags and history lost them
    in another way: by ADD COLUMNS through Hive, or because the table was re-created.

    This check saves reading the files.  It is not needed for security: a run refuses each unit in which such a column
    is encrypted (`refuse_untagged`), whatever journals contain.  So journals are read unauthenticated here, and damaged
    ones are ignored.
    """
    columns = _newest_plan(store, table_id)
    before = {str(column["column"]) for column in columns if column["tags"] and column["action"] != "plaintext"}
    return tuple(
        column.leaf.dotted
        for column in plan.columns
        if column.leaf.dotted in before and not column.tags and not column.history
    )


def record_lost_tags(store: StateStore, table: str, reason: str | None) -> None:
    """Record that a table lost tags.

    Args:
        store: the state directory.
        table: ``db.table``.
        reason: what it lost, and the next step; None if it has all of its tags, or there is no such table.
    """
    name = f"{_FOLDER}{hashlib.sha256(normalized_table(table).encode()).hexdigest()[:32]}.json"
    content = None if reason is None else json.dumps({"version": VERSION, "table": table, "reason": reason}).encode()
    before = store.read(name)
    if before is not None and before != content:
        store.delete(name)
    if content is not None and before != content:
        store.create(name, content)


def recorded_lost_tags(store: StateStore) -> Iterator[tuple[str, str]]:
    """Yield each table that lost tags by the last pass that looked at it, with the reason."""
    for name in store.list(_FOLDER):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            record = json.loads(store.read(name) or b"")
            if record["version"] == VERSION:
                yield str(record["table"]), str(record["reason"])


def _newest_plan(store: StateStore, table_id: str) -> list[dict[str, Any]]:
    """Return the columns of the plan of the newest run whose journal can be read."""
    log = TableLog.open(store, table_id, None)
    for run_id in reversed(Journal.runs(log)):
        try:
            return list(Journal.open(log, run_id).run.plan["columns"])
        except VerificationError:
            continue
    return []
