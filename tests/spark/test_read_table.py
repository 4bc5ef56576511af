"""``read_table``: a denied column is an error by default, null where it is asked for, and nothing else changes."""

from __future__ import annotations

import pytest

from sparkcrypt import masked_columns, read_table
from sparkcrypt.errors import ConfigError, KeyNotFoundError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.read import ReadReport
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, refusal, rows_of, with_keys, without_keys

pytestmark = pytest.mark.spark


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """The policy of a partitioned table with two encrypted columns, one of them in a struct."""
    policy = lake.policy()
    lake.sql("CREATE TABLE t (id INT, email STRING, s STRUCT<a:INT,b:INT>, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "t", {"email": ["pii"], "s.a": ["fin"]}, policy)
    lake.sql("INSERT INTO t VALUES (1, 'a', struct(1, 2), 0), (2, 'b', struct(3, 4), 1)")
    return policy


def test_all_keys_there(lake: Lake, policy: Policy) -> None:
    """With every key both modes give what was written, and a report without a denied column."""
    expected = [(1, "a", (1, 2), 0), (2, "b", (3, 4), 1)]
    reports: list[ReadReport] = []
    for mode in ("error", "mask"):
        assert rows_of(read_table(lake.spark, "t", policy, on_denied=mode, report=reports.append)) == expected
    assert [(report.on_denied, report.denied) for report in reports] == [("error", ()), ("mask", ())]


def test_denied_column_is_an_error_by_default(lake: Lake, policy: Policy) -> None:
    """A query that touches a denied column fails and names its key; other columns stay readable."""
    poor = with_keys(policy, lake.root / "poor", without_keys("pii"))
    frame = read_table(lake.spark, "t", poor)
    assert rows_of(frame.select("id")) == [(1,), (2,)]
    said = refusal(frame.select("email").collect)
    assert "KeyNotFoundError: column email of table" in said
    assert "its key 'pii' is not there. To get access, ask whoever" in said
    assert rows_of(lake.sql("SELECT email FROM t")) == [("a",), ("b",)]  # the session is as it was


def test_denied_columns_are_null_where_asked_for(lake: Lake, policy: Policy) -> None:
    """``on_denied="mask"`` gives typed nulls for denied leaves alone, and reports them; ``drop`` leaves out columns."""
    poor = with_keys(policy, lake.root / "poor", without_keys("fin"))
    frame = read_table(lake.spark, "t", poor, on_denied="mask")
    assert rows_of(frame) == [(1, "a", (None, 2), 0), (2, "b", (None, 4), 1)]
    assert frame.schema["s"].dataType.simpleString() == "struct<a:int,b:int>"
    without, reports = with_keys(policy, lake.root / "without", without_keys("pii")), list[ReadReport]()
    nulls = read_table(lake.spark, "t", without, on_denied="mask", report=reports.append)
    assert rows_of(nulls) == [(1, None, (1, 2), 0), (2, None, (3, 4), 1)]
    assert (nulls.schema["email"].dataType.simpleString(), nulls.schema["email"].metadata["tags"]) == (
        "string",
        ["pii", "!masked"],
    )
    assert masked_columns(nulls) == {"email": "key pii of tag pii is missing"}
    assert [report.to_dict() for report in reports] == [{"table": "t", "on_denied": "mask", "denied": ["email"]}]
    assert rows_of(read_table(lake.spark, "t", without, on_denied="drop")) == [(1, (1, 2), 0), (2, (3, 4), 1)]
    assert rows_of(lake.sql("SELECT * FROM t")) == [(1, "a", (1, 2), 0), (2, "b", (3, 4), 1)]


def test_denied_footer_key_is_always_an_error(lake: Lake, policy: Policy) -> None:
    """Without the footer key nothing can be read, in either mode."""
    poor = with_keys(policy, lake.root / "poor", without_keys("footer"))
    with pytest.raises(KeyNotFoundError, match="'footer'"):
        read_table(lake.spark, "t", poor, on_denied="mask")
    assert "KeyNotFoundError" in refusal(lambda: read_table(lake.spark, "t", poor).collect())


def test_other_modes_are_refused(lake: Lake, policy: Policy) -> None:
    """Only ``error``, ``mask`` and ``drop`` are modes."""
    with pytest.raises(ConfigError, match="allowed: error, mask, drop"):
        read_table(lake.spark, "t", policy, on_denied="null")  # type: ignore[arg-type]
