"""Predicates: as they are sent, and what each leaves out."""

from __future__ import annotations

import io
import json
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import BridgeError
from sparkcrypt.skipping.format.bloom import BloomFilter
from sparkcrypt.skipping.format.description import Index, PartitionColumn
from sparkcrypt.skipping.format.store import UNKNOWN, Bounds, Entry, IndexEntries, Store
from sparkcrypt.skipping.indexes.entries import FILTER_TYPES
from sparkcrypt.skipping.query.skipper import (
    And,
    Answer,
    Compare,
    In,
    IsNull,
    Listed,
    Not,
    Or,
    Predicate,
    Skipper,
    StartsWith,
    Unsupported,
    read_predicate,
)
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts
from tests.unit.skipping.footers import read_bounds
from tests.unit.skipping.random_rows import COLUMNS, Chooser, drawn, evaluated, plain
from tests.unit.skipping.stores import must_open

OBJECTS, ROWS, PREDICATES = 40, 6, 700


def values_of(table: pa.Table, name: str) -> frozenset[Any]:
    """Return the distinct values of an object's column, less null."""
    return frozenset(plain(name, value) for value in table[name].to_pylist() if value is not None)


def filter_of(table: pa.Table, name: str) -> bytes:
    """Return a Bloom filter of an object's column: small, so that it often takes one value for another."""
    made = BloomFilter.for_values(3, 0.2)
    for value in values_of(table, name):
        made.add(value)
    return made.to_bytes()


def file_of(table: pa.Table, chance: random.Random) -> bytes:
    """Return an object's file; Spark 4 is named, so that days before 1900 count."""
    out = io.BytesIO()
    spark = table.replace_schema_metadata({"org.apache.spark.version": "4.1.0"})
    pq.write_table(spark, out, row_group_size=chance.choice([1, 2, ROWS]), use_dictionary=chance.random() < 0.5)
    return out.getvalue()


class World:
    """A table of objects, some without a column, and a store of random indexes over it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.tables = []
        for number in range(OBJECTS):
            columns = {name: drawn(chance, name, ROWS) for name in COLUMNS}
            partition = pa.array([chance.choice(["p", "q", None])] * ROWS, pa.string())
            self.tables.append(pa.table({**columns, "part": partition, "object": [number] * ROWS}))
        self.rows = pa.concat_tables(self.tables)
        self.names = tuple(f"/t/{number}#{number}" for number in range(OBJECTS))
        self.skipper = Skipper(self.store(), {}, {name: kind for name, (kind, _, _) in COLUMNS.items()})

    def store(self) -> Store:
        """Return a store: of each column none, one or all kinds of indexes; here and there nothing is known."""
        chance, indexes = self.chance, []
        kinds = {name: kind for name, (kind, _, _) in COLUMNS.items()}
        bounds = [read_bounds(file_of(table.select([*COLUMNS]), chance), kinds).bounds for table in self.tables]
        for name, kind in kinds.items():
            entries: dict[str, Callable[[int, str], Entry | None]] = {
                "minmax": lambda number, name: bounds[number][name],
                "valuelist": lambda number, name: values_of(self.tables[number], name),
            }
            if kind in FILTER_TYPES:
                entries["bloomfilter"] = lambda number, name: filter_of(self.tables[number], name)
            for called in chance.sample(sorted(entries), k=chance.randint(0, len(entries))):
                entry = entries[called]
                found = tuple(None if chance.random() < 0.1 else entry(number, name) for number in range(OBJECTS))
                indexes.append(
                    IndexEntries(Index("", called, (name,), "binary" if called == "bloomfilter" else kind), found)
                )
        values = tuple(UNKNOWN if chance.random() < 0.1 else table["part"][0].as_py() for table in self.tables)
        return Store(4, "/t", None, self.names, ((PartitionColumn("", "part", "string"), values),), tuple(indexes))

    def literal(self, name: str) -> Any:
        """Return a literal."""
        return plain(name, self.chance.choice(["p", "q", "r"] if name == "part" else COLUMNS[name][2]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_object_with_a_row_is_skipped(seed: int) -> None:
    """Of thousands of random predicates none leaves out an object with a row for which it is true; nor does its NOT."""
    world, told = World(seed), Counter[str]()
    chooser = Chooser(world.chance, [*COLUMNS, "part"], world.literal)
    for _ in range(PREDICATES):
        predicate = chooser.predicate(3)
        found = evaluated(world.rows, predicate).to_pylist()
        for number in range(OBJECTS):
            rows = set(found[number * ROWS : (number + 1) * ROWS])
            answer = world.skipper.answer(number, predicate)
            assert answer.may_be_true or True not in rows, (predicate, world.tables[number].to_pylist())
            assert answer.may_be_false or False not in rows, (predicate, world.tables[number].to_pylist())
            told["skipped"] += not answer.may_be_true
            told["could be"] += True not in rows
    assert told["skipped"] > told["could be"] / 4


def skipper(*indexes: IndexEntries, kind: str = "long", **facts: ObjectFacts) -> Skipper:
    """Return what answers for one object."""
    return Skipper(Store(4, "/t", None, ("/t/a#5",), (), indexes), {"/t/a#5": ObjectFacts(10)}, {"c": kind})


def over(kind: str, entry: Entry | None, of: str = "long") -> Skipper:
    """Return what answers by one index."""
    return skipper(IndexEntries(Index("", kind, ("c",), of), (entry,)), kind="long" if kind == "bloomfilter" else of)


BOUNDS = over("minmax", Bounds(5, 9))


@pytest.mark.parametrize(
    ("predicate", "answer"),
    [
        (Compare("c", "=", 4), Answer(False, True)),
        (Compare("c", "<", 5), Answer(False, True)),
        (Compare("c", "<=", 5), Answer(True, True)),
        (Compare("c", ">=", 5), Answer(True, False)),
        (Compare("c", ">", 9), Answer(False, True)),
        (Compare("c", "=", None), Answer(False, False)),
        (In("c", (1, 2)), Answer(False, True)),
        (In("c", (1, None)), Answer(False, False)),
        (Not(Compare("c", ">=", 5)), Answer(False, True)),
        (Not(IsNull("c")), Answer(True, True)),
        (And((Compare("c", ">", 9), Unsupported())), Answer(False, True)),
        (Or((Compare("c", ">", 9), Unsupported())), Answer(True, True)),
        (Or(()), Answer(False, True)),
        (And(()), Answer(True, False)),
        (Compare("other", "=", 1), Answer(True, True)),
    ],
)
def test_what_bounds_say(predicate: Predicate, answer: Answer) -> None:
    """Each form of predicate says of bounds what it must, and no more."""
    assert BOUNDS.answer(0, predicate) == answer


@pytest.mark.parametrize("literal", [5.0, "5", True, b"5", Decimal(1)])
def test_a_literal_of_another_kind_skips_nothing(literal: Any) -> None:
    """Where a literal's type is not the column's, Spark casts one of them: nothing is known then."""
    assert BOUNDS.answer(0, Compare("c", "=", literal)) == (True, True)
    assert over("minmax", Bounds(5.0, 9.0), "double").answer(0, Compare("c", "=", 2**53 + 1)) == (True, True)


def test_what_filters_say() -> None:
    """A filter excludes values of `=` and IN, integers that the column cannot hold included, and says nothing else."""
    made = BloomFilter.for_values(10, 0.001)
    made.add(7)
    found = over("bloomfilter", made.to_bytes(), "binary")
    assert found.answer(0, Compare("c", "=", 7)) == (True, True)
    assert found.answer(0, Compare("c", "=", 8)) == (False, True)
    assert found.answer(0, Compare("c", "=", 7 + 2**64)) == (False, True)
    assert found.answer(0, In("c", (8, 9, None))) == (False, True)
    assert found.answer(0, Compare("c", "<", 0)) == (True, True)
    assert over("bloomfilter", b"damaged", "binary").answer(0, Compare("c", "=", 8)) == (True, True)


def test_two_indexes_say_more_than_one() -> None:
    """What one index of a column cannot exclude, the other may."""
    values = IndexEntries(Index("", "valuelist", ("c",), "long"), (frozenset({5, 9}),))
    both = skipper(IndexEntries(Index("", "minmax", ("c",), "long"), (Bounds(5, 9),)), values)
    assert both.answer(0, Compare("c", "=", 7)) == (False, True)
    other = replace(values, index=replace(values.index, type="string"))
    clash = skipper(IndexEntries(Index("", "minmax", ("c",), "long"), (Bounds(5, 9),)), other)
    assert clash.answer(0, Compare("c", "=", 70)) == (True, True)


def test_only_the_file_that_was_indexed_is_skipped() -> None:
    """Name, time of change and length must be those of the object; anything else is opened."""
    wanted = Compare("c", "=", 1)
    files = [
        Listed("/t/a", 5, 10),
        Listed("s3a://bucket/t/a", 5, 10),
        Listed("/t/a", 6, 10),
        Listed("/t/a", 5, 11),
        Listed("/t/b", 5, 10),
    ]
    assert must_open(BOUNDS, files, wanted) == [False, False, True, True, True]
    assert must_open(BOUNDS, files[:1], Compare("c", "=", 6)) == [True]


def test_an_object_in_two_rows_is_skipped_only_if_both_say_so() -> None:
    """A store with an object twice keeps it as long as either row may hold what is asked for."""
    index = IndexEntries(Index("", "minmax", ("c",), "long"), (Bounds(1, 1), Bounds(5, 5)))
    twice = Skipper(Store(4, "/t", None, ("/t/a#5", "/t/a#5"), (), (index,)), {"/t/a#5": ObjectFacts(10)})
    kept = [must_open(twice, [Listed("/t/a", 5, 10)], Compare("c", "=", value)) for value in (1, 5, 3)]
    assert kept == [[True], [True], [False]]


def test_a_file_that_is_left_out_has_the_indexes_that_say_so() -> None:
    """Of AND one part is named, of OR every part, and of a column with two indexes the one that excludes the value."""
    bounds = IndexEntries(Index("", "minmax", ("c",), "long"), (Bounds(5, 9),))
    values = IndexEntries(Index("", "valuelist", ("c",), "long"), (frozenset({5, 9}),))
    other = IndexEntries(Index("", "minmax", ("e",), "long"), (Bounds(0, 0),))
    both, file = skipper(bounds, values, other), Listed("/t/a", 5, 10)
    low, between, zero = Compare("c", "<", 5), Compare("c", "=", 7), Compare("e", "=", 0)
    for predicate, names in (
        (low, ("c minmax",)),
        (between, ("c valuelist",)),
        (And((zero, between, low)), ("c valuelist",)),
        (Or((low, between, Not(zero))), ("c minmax", "c valuelist", "e minmax")),
        (Not(Or((zero, Unsupported()))), ("e minmax",)),
        (Not(And((zero, Not(low)))), ("c minmax", "e minmax")),
    ):
        assert must_open(both, [file], predicate) == [False]
        assert list(both.name_indexes([file], predicate)) == [names]


def test_a_set_with_zero_may_be_left_by_the_other_zero() -> None:
    """Spark looks floats up in a set by their bits, so NOT IN (0.0) may hold of -0.0, which bounds have as 0.0."""
    zeros = over("minmax", Bounds(0.0, 0.0), of="double")
    assert zeros.answer(0, In("c", (0.0, 1.0))) == (True, True)
    assert zeros.answer(0, In("c", (1.0, 2.0))) == (False, True)
    ones = over("minmax", Bounds(1.0, 1.0), of="double")
    assert ones.answer(0, In("c", (1.0, 2.0))) == (True, False)


TYPES = {
    "i": "integer",
    "d": "double",
    "n": "decimal(12,2)",
    "s": "string",
    "x": "binary",
    "b": "boolean",
    "da": "date",
}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ('["=", "i", 5]', Compare("i", "=", 5)),
        ('["<=", "d", "-0.0"]', Compare("d", "<=", -0.0)),
        ('[">", "d", "1.0E300"]', Compare("d", ">", 1e300)),
        ('["=", "n", "12.50"]', Compare("n", "=", Decimal("12.50"))),
        ('["=", "x", "/wA="]', Compare("x", "=", b"\xff\x00")),
        ('["=", "b", true]', Compare("b", "=", True)),
        ('["<", "da", 19000]', Compare("da", "<", 19000)),
        ('["=", "s", null]', Compare("s", "=", None)),
        ('["in", "s", ["a", null]]', In("s", ("a", None))),
        ('["null", "other"]', IsNull("other")),
        ('["starts", "s", "a"]', StartsWith("s", "a")),
        (
            '["and", [["or", [["=", "i", 1], ["unknown"]]], ["not", ["null", "i"]]]]',
            And((Or((Compare("i", "=", 1), Unsupported())), Not(IsNull("i")))),
        ),
    ],
)
def test_forms_are_read(form: str, expected: Predicate) -> None:
    """Each form is the predicate that it stands for, its literals of their columns' types."""
    assert read_predicate(json.loads(form), TYPES) == expected


def test_nan_and_infinity_have_words() -> None:
    """What JSON has no numbers for comes as Java's words."""
    found = read_predicate(["in", "d", ["NaN", "-Infinity"]], TYPES)
    assert isinstance(found, In)
    assert math.isnan(float(str(found.literals[0])))
    assert found.literals[1] == -math.inf


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        ["="],
        ["=", "i"],
        ["!=", "i", 5],
        ["=", "unheard", 5],
        ["=", "i", "5-secret"],
        ["=", "i", True],
        ["=", "d", 5],
        ["=", "d", "secret"],
        ["=", "n", "secret"],
        ["=", "n", "NaN"],
        ["=", "x", "secret!"],
        ["=", "s", 5],
        ["in", "s", "secret"],
        ["in", "s", [5]],
        ["starts", "s", None],
        ["and", ["secret"]],
        ["not"],
    ],
)
def test_what_is_no_form_is_refused_without_its_literal(form: Any) -> None:
    """A form or literal that no jar sends is an error, which does not repeat what somebody asked for."""
    with pytest.raises(BridgeError) as caught:
        read_predicate(form, TYPES)
    assert "secret" not in str(caught.value)
