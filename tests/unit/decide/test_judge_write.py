"""One question about a write: each aspect that it names is judged, and none is skipped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkcrypt.decide.judge_write import judge_write
from sparkcrypt.errors import BridgeError, PlanError
from tests.unit.decide.requests import PREFIX, policy, schema

SINK = {"sink": "csv", "requires_encryption": False}
PARTITION = {"target": "a.b", "columns": [{"name": "ssn", "metadata": json.dumps({"tags": ["pii"]})}]}


def question(**aspects: Any) -> dict[str, Any]:
    """Return a question about a write of a tagged column into a table that lacks its tag."""
    return {
        "policy": policy(),
        "path": "/",
        "properties": {PREFIX + "table": "a.b"},
        "schema": schema(id=None, ssn="pii"),
        "table_schema": schema(id=None, ssn=None),
        "sources": ["x.y"],
        "aspects": aspects,
    }


def test_each_aspect_has_an_answer() -> None:
    """Every aspect that is named is answered under its name, in the order of the question."""
    buckets = {"target": "a.b", "columns": ["ssn"], "is_new": False}
    lost: dict[str, Any] = {"lost": []}
    asked = question(written={"is_parquet": True}, sink=SINK, bucketing=buckets, inherited={}, lost=lost)
    answer = judge_write(asked)
    assert list(answer) == ["written", "sink", "bucketing", "inherited", "lost"]
    assert "written to csv" in answer["sink"]["warnings"][0]
    assert "bucketed by column ssn" in answer["bucketing"]["warnings"][0]
    assert answer["inherited"]["columns"][0]["path"] == ["ssn"]


def test_first_refusal_ends_the_question() -> None:
    """The message is that of the first aspect that is refused, whatever comes after it."""
    denied = {"policy": policy(sinks="deny")}
    with pytest.raises(PlanError, match="written to csv"):
        judge_write({**question(sink=SINK, partitioning=PARTITION), **denied})
    with pytest.raises(PlanError, match="is a partition column"):
        judge_write({**question(partitioning=PARTITION, sink=SINK), **denied})


def test_aspect_has_fields_of_its_own() -> None:
    """A policy for one write counts for the aspect that has it, not for the others."""
    strict = {**SINK, "policy": policy(sinks="deny")}
    with pytest.raises(PlanError, match="written to csv"):
        judge_write(question(sink=strict))
    assert judge_write({**question(written={"policy": policy(), "is_parquet": False}, sink=SINK)})["sink"]["warnings"]


@pytest.mark.parametrize("aspects", [{}, {"sinks": {}}, {"sink": SINK, "more": {}}, {"sink": "csv"}, "sink", None])
def test_question_that_would_not_be_judged(aspects: Any) -> None:
    """No aspect, one that is not known, and one without fields are errors, since nothing would be refused by them."""
    with pytest.raises(BridgeError):
        judge_write({**question(), "aspects": aspects})
