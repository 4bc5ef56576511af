"""Which of the chosen tables a pass keeps: by the tags of their columns, and by names that are left out."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.runs.passes import choose_tables as choosing
from sparkcrypt.runs.passes.choose_tables import Choice, Chosen, Filters, choose_tables
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.tags.model import TaggedColumn

from .metastores import Metastore

POLICY = policy_from_text(
    """
version: 1
key_service: {type: local, path: /keys}
footer: {key: footer}
untagged: plaintext
tags: {pii: {key: pii}, Fin: {key: fin}, fin: {key: fin}}
tables: {hr.staff: {tags: {pay: [pii]}}}
""",
    where="policy.yaml",
    base="/",
)
TAGS = {"sales.customers": ("pii",), "sales.tmp_1": ("pii",), "sales.orders": (), "hr.staff": ()}


def chosen() -> list[Chosen]:
    """Return tables of two databases."""
    names = (name.partition(".") for name in TAGS)
    tables = (Table(base, name, "MANAGED", "parquet", "", "", "", (), {}, {}, owner="") for base, _, name in names)
    return [Chosen(table, named=False) for table in tables]


@pytest.fixture(autouse=True)
def tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags of the tables' own, without a session; those of a table that is gone cannot be read."""

    def read(_spark: object, table: Table) -> tuple[TaggedColumn, ...]:
        return (TaggedColumn(("c",), TAGS[table.full_name], "table property"),)

    monkeypatch.setattr(choosing, "tags_of_table", read)


def kept(*select: str, exclude: tuple[str, ...] = ()) -> list[str]:
    """Return the names of the tables that are kept."""
    return [entry.table.full_name for entry in Filters(select, exclude).keep(cast("Any", None), chosen(), POLICY)]


def test_no_filter_keeps_all() -> None:
    """In their order."""
    assert kept() == [*TAGS]


@pytest.mark.parametrize(
    ("excluded", "left"),
    [
        ("sales.*", ["hr.staff"]),
        ("tmp_*", ["sales.customers", "sales.orders", "hr.staff"]),
        ("SALES.Orders", ["sales.customers", "sales.tmp_1", "hr.staff"]),
        ("nothing_*", [*TAGS]),
    ],
)
def test_excluded_tables_are_left_out(excluded: str, left: list[str]) -> None:
    """By name or pattern, without case; a pattern without a database fits those of any, and need not fit one."""
    assert kept(exclude=(excluded,)) == left


def test_an_excluded_name_that_is_none_of_the_tables_is_refused() -> None:
    """A typing error would have the table rewritten that was to be left out."""
    with pytest.raises(PlanError, match=r"--exclude sales\.order: is none of the tables that are chosen: sales\.cust"):
        kept(exclude=("sales.order",))


def test_tables_are_selected_by_tags_of_their_own_and_of_the_policy() -> None:
    """The policy's overlay counts too; a tag may be written in another case where one alone fits."""
    assert kept("tag:pii") == kept("tag:PII") == ["sales.customers", "sales.tmp_1", "hr.staff"]
    assert kept("tag:pii", exclude=("tmp_*",)) == ["sales.customers", "hr.staff"]


def test_a_table_whose_tags_cannot_be_read_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever works on it reports what is wrong; left out, nobody would."""

    def fail(_spark: object, _table: Table) -> tuple[TaggedColumn, ...]:
        raise PlanError("its Avro schema is gone")

    monkeypatch.setattr(choosing, "tags_of_table", fail)
    assert kept("tag:pii") == [*TAGS]


@pytest.mark.parametrize(
    ("select", "error", "told"),
    [
        ("pii", ConfigError, "allowed: tag:NAME, such as tag:pii"),
        ("tag:", ConfigError, "allowed: tag:NAME"),
        ("tag:nosuch", PlanError, "does not define that tag; allowed: pii, Fin, fin"),
        ("tag:FIN", PlanError, "does not define that tag"),
        ("tag:fin", PlanError, "none of 4 tables has a column with it"),
    ],
)
def test_a_selection_that_selects_nothing_is_refused(select: str, error: type[Exception], told: str) -> None:
    """What is no selection, what the policy does not define or not clearly, and what no table has."""
    with pytest.raises(error, match=told):
        kept(select)


def test_nothing_named_is_every_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it is asked for: an empty choice has no table."""
    metastore = Metastore()
    metastore.add("t", "/t")
    monkeypatch.setattr(choosing, "Catalog", lambda _spark: metastore)
    spark = cast("Any", None)
    assert choose_tables(spark, Choice(), POLICY) == ()
    assert Choice().or_all(spark).databases == ("db",)
    assert [entry.table.full_name for entry in choose_tables(spark, Choice().or_all(spark), POLICY)] == ["db.t"]
    named = Choice(tables=("sales.t",))
    assert named.or_all(spark) is named
