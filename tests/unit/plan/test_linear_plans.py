"""Policies, plans and judgements of writes cost as much as there are tags, rules and columns, not their square."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from sparkcrypt.decide.judge_write import judge_write
from sparkcrypt.errors import PlanError
from sparkcrypt.plan import EncryptionPlan, build_plan, compare_tags
from sparkcrypt.policy import Policy, policy_from_document
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import allowed_key_ids
from sparkcrypt.schema import schema_from_spark
from sparkcrypt.tags.model import Source, TaggedColumn, tags_of_schema
from tests.growth import Work, assert_linear
from tests.unit.decide.requests import PREFIX, schema

SETTINGS = {"version": 1, "key_service": {"type": "own"}, "footer": {"key": "footer"}, "untagged": "plaintext"}


def policy_of(tags: Any, **changes: Any) -> Policy:
    """Return a policy."""
    return policy_from_document({**SETTINGS, "run_state": "/state", "tags": tags, **changes}, locate=lambda _: "policy")


def _names(number: int) -> list[str]:
    return [f"c{place:04}" for place in range(number)]


def _load_tags(number: int) -> Work:
    tags = "".join(f"  t{place}: {{key: k{place}, history: [old{place}:1]}}\n" for place in range(number))
    text = "version: 1\nkey_service: {type: local, path: /keys}\nfooter: {key: footer}\nuntagged: plaintext\n"
    return lambda: policy_from_text(f"{text}tags:\n{tags}", where="policy.yaml", base="/").digest()


def _find_keys(number: int) -> Work:
    """Ask of each key of so many tags, half of which are dated, what the policy says of it."""
    places = [f"{place:05}" for place in range(number)]
    dated = {f"d{place}": {"key": f"d{place}-{{day:%Y-%m}}", "retention": "400d"} for place in places}
    fixed = {f"t{place}": {"key": f"k{place}", "history": ["old:1"]} for place in places}
    policy = policy_of({**dated, **fixed})
    re.purge()

    def find() -> None:
        for place in places:
            assert allowed_key_ids(policy, f"k{place}") and not allowed_key_ids(policy, f"x{place}")
            assert policy.retention_of(f"d{place}-2026-11") == 400 * 86_400
            assert policy.rotation_period(f"k{place}") is None

    return find


def _load_dated_tags(number: int) -> Work:
    rule = {"retention": "400d", "history": []}
    tags = {
        f"t{place}": {**rule, "key": f"t{place}-{{day:%Y-%m}}", "late_data": f"t{place}-late-{{written:%Y-%m}}"}
        for place in range(number)
    }
    fixed = {f"f{place}": {"key": f"f{place}"} for place in range(number)}
    re.purge()  # it keeps some hundred patterns of what was loaded before
    return lambda: policy_of({**tags, **fixed})


def _load_tables(number: int) -> Work:
    tables = {f"a.t{place}": {"tags": {"ssn": f"t{place}"}, "location": f"/w/t{place}"} for place in range(number)}
    tags = {f"t{place}": {"key": f"k{place}"} for place in range(number)}
    more = {"index": {"location": "/index"}, "aliases": {f"hdfs://a{place}": f"hdfs://b{place}" for place in range(9)}}

    def load() -> None:
        made = policy_of(tags, tables=tables, **more)
        assert all(made.table(name).tags and made.has_rule(name) for name in tables)
        assert all(made.tag(name) is not None for name in tags)

    return load


def _load_aliases(number: int) -> Work:
    aliases = {f"hdfs://a{place}/lake": f"hdfs://b{place}/lake" for place in range(number)}
    return lambda: policy_of({}, aliases=aliases)


def _plan(tags: int, columns: int, **options: Any) -> Callable[[], EncryptionPlan]:
    """Return what plans a table of columns, each of which has one of the tags, by its schema and its properties."""
    policy = policy_of({f"t{place}": {"key": f"k{place}"} for place in range(tags)})
    named = {name: [f"t{place % tags}"] for place, name in enumerate(_names(columns))}
    made = schema_from_spark(schema(**named))
    known = [*tags_of_schema(made)]
    for source in ("table property", "overlay"):
        known += [TaggedColumn((name,), tuple(own), _source(source)) for name, own in named.items()]
    history: dict[tuple[str, ...], tuple[str, ...]] = {(name,): (f"old-{name}",) for name in named}

    def plan() -> EncryptionPlan:
        found = build_plan(made, known, policy, table="a.b", history=history, **options)
        assert len(found.encrypted) == columns and len(found.key_ids({})) == columns
        assert compare_tags(made, known, policy) == () and len(found.table_text().splitlines()) == columns + 3
        return found

    return plan


def _source(name: str) -> Source:
    return name  # type: ignore[return-value]  # one of the literals


def _plan_columns(number: int) -> Work:
    return _plan(3, number)


def _plan_tags(number: int) -> Work:
    return _plan(number, number)


def _plan_partition_columns(number: int) -> Work:
    return _plan(3, number, partition_columns=[f"p{place}" for place in range(number)])


def _plan_absent(number: int) -> Work:
    """Plan tags of columns that the schema lacks, which are one problem each."""
    policy, made = policy_of({"pii": {"key": "pii"}}), schema_from_spark(schema(**dict.fromkeys(_names(number))))
    known = [TaggedColumn((f"x{place}",), ("pii",), "overlay") for place in range(number)]

    def plan() -> None:
        with pytest.raises(PlanError) as refused:
            build_plan(made, known, policy)
        assert len(str(refused.value).splitlines()) == number

    return plan


def _judge(number: int, tags: int, **aspects: Any) -> Work:
    """Judge the write of so many tagged columns to a table that lacks their tags."""
    rules = {f"t{place}": {"key": f"k{place}"} for place in range(tags)}
    written = schema(**{name: [f"t{place % tags}"] for place, name in enumerate(_names(number))})
    request = {
        "policy": policy_of(rules).canonical(),
        "path": "/",
        "properties": {PREFIX + "table": "a.b"},
        "schema": written,
        "table_schema": schema(**dict.fromkeys(_names(number))),
        "sources": ["x.y"],
        "aspects": aspects,
    }
    return lambda: judge_write(request)


def _judge_written(number: int) -> Work:
    return _judge(number, 3, written={"is_parquet": True})


def _judge_tags(number: int) -> Work:
    return _judge(number, number, written={"is_parquet": True}, sink={"sink": "csv", "requires_encryption": False})


def _judge_variants(number: int) -> Work:
    """Judge what a plaintext footer says of VARIANTs."""
    fields = [
        {"name": name, "type": "variant", "nullable": True, "metadata": {"tags": ["pii"]}} for name in _names(number)
    ]
    policy = policy_of({"pii": {"key": "pii"}}, footer={"key": "footer", "mode": "plaintext"})
    request = {
        "policy": policy.canonical(),
        "path": "/",
        "properties": {PREFIX + "table": "a.b"},
        "schema": json.dumps({"type": "struct", "fields": fields}),
        "aspects": {"written": {"is_parquet": True}},
    }
    return lambda: judge_write(request)


def _judge_inherited(number: int) -> Work:
    return _judge(number, 3, inherited={})


def _judge_buckets(number: int) -> Work:
    return _judge(number, 3, bucketing={"target": "a.b", "columns": _names(number), "is_new": False})


def _judge_partitions(number: int) -> Work:
    rules = {f"t{place}": "plaintext" for place in range(number)}
    columns = [
        {"name": name, "metadata": json.dumps({"tags": [f"t{place}"]})} for place, name in enumerate(_names(number))
    ]
    asked = {"policy": policy_of(rules).canonical(), "target": "a.b", "columns": columns}
    return lambda: judge_write({"aspects": {"partitioning": asked}})


def _judge_lost(number: int) -> Work:
    """Judge values that may have lost a tag which means no key."""
    lost = [{"column": name, "from": f"x.y.{name}", "tags": ["open"]} for name in _names(number)]
    request = {
        "policy": policy_of({"open": "plaintext", "pii": {"key": "pii"}}).canonical(),
        "path": "/",
        "properties": {PREFIX + "table": "a.b", PREFIX + "require_encryption": "true", PREFIX + "tags.ssn": "pii"},
        "schema": schema(ssn=None, **dict.fromkeys(_names(number))),
        "table_schema": None,
        "aspects": {"lost": {"lost": lost}},
    }
    return lambda: judge_write(request)


WORKS: dict[str, tuple[Callable[[int], Work], int]] = {
    "tags are loaded": (_load_tags, 60),
    "keys are found": (_find_keys, 60),
    "dated tags are loaded": (_load_dated_tags, 60),
    "rules of tables are loaded": (_load_tables, 60),
    "aliases are loaded": (_load_aliases, 80),
    "columns are planned": (_plan_columns, 100),
    "columns are planned by tags of their own": (_plan_tags, 100),
    "columns are planned beside partition columns": (_plan_partition_columns, 100),
    "tags of absent columns are refused": (_plan_absent, 100),
    "written columns are judged": (_judge_written, 100),
    "written columns are judged by tags of their own": (_judge_tags, 100),
    "written VARIANTs are judged": (_judge_variants, 100),
    "inherited tags are judged": (_judge_inherited, 100),
    "buckets are judged": (_judge_buckets, 100),
    "partition columns are judged": (_judge_partitions, 100),
    "lost tags are judged": (_judge_lost, 100),
}
"""What is done -> what returns it for so many tags, rules or columns, and how many."""


@pytest.mark.parametrize("work", WORKS)
def test_cost_is_linear(work: str) -> None:
    """Twice as many tags, rules or columns cost twice as much."""
    make, size = WORKS[work]
    make(1)()  # what is done once a process is done before it is counted
    assert_linear(make, size, most=2.1)
