"""What the extension's rules do with a plan grows as the plan does: its nodes, expressions and columns, and partitions.

Counted are the bytes that a rule allocates in its thread, since whatever it visits makes lists, sets or texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sparkcrypt.spark.jvm.gateway import java_session, jvm
from sparkcrypt.tags.model import tag_property
from tests.growth import Metered, Work, assert_linear
from tests.spark.support import Lake

pytestmark = pytest.mark.spark

PLAN = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"


class Rules:
    """The rules in a driver's JVM, whose classes are of their package alone.

    Args:
        lake: has the session.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake, self._jvm = lake, jvm(lake.spark)
        self._loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._bean = self._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        allocated = self._loader.loadClass("com.sun.management.ThreadMXBean").getMethods()
        self._allocated = next(one for one in allocated if one.getName() == "getCurrentThreadAllocatedBytes")

    def _array(self, values: Sequence[Any]) -> Any:
        gateway: Any = self._lake.spark.sparkContext._gateway
        made = gateway.new_array(self._jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    def make(self, name: str, *arguments: Any) -> Any:
        """Return a new object of a class of the jar."""
        (maker,) = self._loader.loadClass(f"io.sparkcrypt.{name}").getDeclaredConstructors()
        maker.setAccessible(True)
        return maker.newInstance(self._array(arguments))

    def find(self, name: str, signature: str) -> Any:
        """Return a method of a class of the jar."""
        methods = self._loader.loadClass(f"io.sparkcrypt.{name}").getDeclaredMethods()
        found = next(method for method in methods if f".{signature}" in str(method.toString()))
        found.setAccessible(True)
        return found

    def spend(self, what: Callable[[], object]) -> int:
        """Return how many bytes something allocates in this thread of the JVM."""
        none = self._array(())
        before = int(self._allocated.invoke(self._bean, none))
        what()
        return int(self._allocated.invoke(self._bean, none)) - before

    def apply(self, rule: Any, plan: Any) -> None:
        """Apply a rule to a plan."""
        self.find("TagRule", f"apply({PLAN})").invoke(rule, self._array((plan,)))


METERED = (Metered(Rules, "spend", "bytes", lambda _, spent: spent),)


@pytest.fixture
def rules(lake: Lake) -> Rules:
    """The rules in a session under a policy."""
    lake.policy()
    return Rules(lake)


def make_table(lake: Lake, name: str, columns: Sequence[str]) -> None:
    """Make a table whose columns are all tagged."""
    tags = ", ".join(f"'{tag_property((column,))}' = 'pii'" for column in columns)
    fields = ", ".join(f"{column} STRING" for column in columns)
    lake.sql(f"CREATE TABLE {name} ({fields}) USING parquet OPTIONS ({tags})")


def follow(lake: Lake, rules: Rules, query: str) -> Work:
    """Return what follows the tags through the plan of a query, as it is resolved."""
    return follow_plan(lake, rules, lake.spark.sql(query))


def follow_plan(lake: Lake, rules: Rules, frame: Any) -> Work:
    """Return what follows the tags through the plan of a frame."""
    plan = frame._jdf.queryExecution().analyzed()
    rule = rules.make("TagRule", java_session(lake.spark))

    def work() -> None:
        rules.spend(lambda: rules.apply(rule, plan))

    work()  # so that tables are known, and classes loaded
    return work


def _names(number: int) -> list[str]:
    return [f"c{place:04}" for place in range(number)]


def _columns(lake: Lake, rules: Rules, number: int) -> Work:
    make_table(lake, f"t{number}", _names(number))
    return follow(lake, rules, f"SELECT * FROM t{number}")


def _functions(lake: Lake, rules: Rules, number: int) -> Work:
    """Each of columns and the one before."""
    make_table(lake, f"t{number}", _names(4))
    value, beside = "c0000", ", ".join(["upper(c0001)", "lower(c0002)", "trim(c0003)", "reverse(c0000)"] * 6)
    for _ in range(number):
        value = f"concat({value}, {beside})"
    return follow(lake, rules, f"SELECT {value} AS c FROM t{number}")


def _branches(lake: Lake, rules: Rules, number: int) -> Work:
    """Of a union of unions."""
    if not lake.spark.catalog.tableExists("t"):
        make_table(lake, "t", ["c"])
    return follow(lake, rules, " UNION ALL ".join(["SELECT c FROM t"] * number))


def _projections(lake: Lake, rules: Rules, number: int) -> Work:
    """Above one another, with a filter each."""
    make_table(lake, f"t{number}", _names(8))
    frame = lake.spark.table(f"t{number}")
    for place in range(number):
        frame = frame.where(f"c0000 <> '{place}'").selectExpr(*(f"upper({name}) AS {name}" for name in _names(8)))
    return follow_plan(lake, rules, frame)


def _partitions(lake: Lake, rules: Rules, number: int) -> Work:
    """In which leaves are denied: half of them in each."""
    mapper = jvm(lake.spark).com.fasterxml.jackson.databind.ObjectMapper()
    leaves = [
        {"path": [f"c{leaf}"], "key": "k", "tag": "t", "why": "denied", "partitions": list(range(leaf, number, 2))}
        for leaf in range(2)
    ]
    denied, places = mapper.readTree(json.dumps(leaves)), jvm(lake.spark).java.util.ArrayList()
    for place in range(number):
        values = jvm(lake.spark).java.util.HashMap()
        values.put("p", str(place))
        places.add(values)

    def work() -> None:
        rules.spend(lambda: rules.make("DeniedPlaces", denied, places))

    work()
    return work


WORKS: dict[str, tuple[Callable[[Lake, Rules, int], Work], int]] = {
    "columns of a table": (_columns, 300),
    "functions in one another": (_functions, 40),
    "branches of a union": (_branches, 80),
    "projections above one another": (_projections, 40),
    "partitions with denied leaves": (_partitions, 3_000),
}
"""What there is much of -> what returns the work on so much, and how much."""


@pytest.mark.parametrize("many", WORKS)
def test_cost_is_linear(lake: Lake, rules: Rules, many: str) -> None:
    """Twice as many cost twice as much."""
    make, size = WORKS[many]
    assert_linear(lambda number: make(lake, rules, number), size, ("bytes",), METERED)


def test_counter_catches_a_planted_square(lake: Lake, rules: Rules) -> None:
    """A rule that is applied to the whole plan once for each of its columns."""

    def planted(number: int) -> Work:
        work = _columns(lake, rules, number)

        def repeat() -> None:
            for _ in range(number):
                work()

        return repeat

    with pytest.raises(AssertionError, match=r"bytes: .*, so they grow by [34]"):
        assert_linear(planted, 20, ("bytes",), METERED)
