"""Which keys a run gives the columns of a file: what is dark gets none, and nulls in its place a key that is there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.parquet import ColumnSummary, FileSummary
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.runs.rewrite.file_orders import ColumnKeys
from sparkcrypt.runs.table.columns import match_columns
from sparkcrypt.schema import Path
from tests.unit.backfill.plans import planned
from tests.unit.backfill.scanned_files import scanned_file

EMAIL, PHONES = ("email",), ("phones", "_elem")


def summary(email: str, purged: dict[Path, str] | None = None) -> FileSummary:
    """Return the summary of an ORC file whose column email is under a key."""
    keys = {("id",): None, EMAIL: email, PHONES: "pii"}
    columns = {path: ColumnSummary(key is not None, key) for path, key in keys.items()}
    found = FileSummary("/t/f.orc", "plaintext", None, None, b"", False, None, 1, 1, columns, format="orc")
    return replace(found, purged=purged or {})


def choose(file: FileSummary, plan: EncryptionPlan, dark: dict[Path, str], *, purges: bool) -> dict[Path, str | None]:
    """Return the keys that a run gives a file's columns."""
    target: Any = SimpleNamespace(plan=plan, name="db.t")
    policy: Any = None  # no tag of the plan has keys for late data
    return ColumnKeys(target, policy).choose(
        scanned_file(file, match_columns(file, plan), dark=dark), {}, purges=purges
    )


def test_dark_columns_get_no_key_and_nulls_one_that_is_there() -> None:
    """The one that is planned, or the footer's where the planned one is the shredded one; later runs keep that."""
    plan = planned()
    assert choose(summary("pii"), plan, {EMAIL: "pii"}, purges=False) == {PHONES: "pii"}
    assert choose(summary("pii"), plan, {EMAIL: "pii"}, purges=True) == {EMAIL: None, PHONES: "pii"}
    assert choose(summary("old"), plan, {EMAIL: "old"}, purges=True) == {EMAIL: "pii", PHONES: "pii"}
    noted = summary("footer", {EMAIL: "pii"})
    assert choose(noted, plan, {}, purges=False) == {EMAIL: None, PHONES: "pii"}
    forged = summary("fin", {EMAIL: "pii"})
    assert choose(forged, plan, {}, purges=False) == {EMAIL: "pii", PHONES: "pii"}


def test_footers_key_that_readers_would_not_believe_is_refused() -> None:
    """On a table that requires encryption the column's history must name it."""
    strict = replace(planned(), require_encryption=True)
    with pytest.raises(UnsupportedFileError, match=r"column email would be under the footer's key 'footer' once nulls"):
        choose(summary("pii"), strict, {EMAIL: "pii"}, purges=True)
    columns = tuple(replace(column, history=("footer",)) for column in strict.columns)
    told = replace(strict, columns=columns)
    assert choose(summary("pii"), told, {EMAIL: "pii"}, purges=True) == {EMAIL: None, PHONES: "pii"}
