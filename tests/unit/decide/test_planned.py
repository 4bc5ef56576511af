"""Writes are judged by where their columns come from, and by what their table says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkcrypt.decide.file import resolve_read, resolve_write
from sparkcrypt.decide.judge_write import (
    check_format,
    check_inherited,
    check_lost,
    check_partitioning,
    check_sink,
    judge_write,
    table_tags,
)
from sparkcrypt.errors import BridgeError, ConfigError, PlanError, VerificationError
from tests.unit.decide.requests import JOB, NAME, PREFIX, STRICT, TABLE, leaf, policy, schema, write
from tests.unit.schema.message_types import fields_of

LOG = "file:/w/d/_delta_log"


def partitioning(tags: Any, **changes: Any) -> dict[str, Any]:
    """Return the request for a partition column with these tags."""
    column = {"name": "ssn", "metadata": json.dumps({"tags": tags, "comment": "c"})}
    return {"policy": policy(**changes), "target": "a.b", "columns": [column]}


def test_partition_column_with_a_tag_that_encrypts() -> None:
    """It is refused by its name; a plaintext tag is none that encrypts, and an observing rule refuses nothing."""
    with pytest.raises(PlanError, match=r"a\.b: column ssn is a partition column and carries the tag 'pii'"):
        check_partitioning(partitioning(["public", "pii"]))
    with pytest.raises(PlanError, match="'nosuch', which the policy does not define; allowed: pii"):
        check_partitioning(partitioning("nosuch"))
    assert check_partitioning(partitioning("public")) == {}
    assert check_partitioning(partitioning("pii", tables={"a.b": {"enforce": False}})) == {}


def test_tagged_column_in_another_format() -> None:
    """A tag that encrypts is refused by its column, in whichever schema it stands; by ``deny`` everything is."""
    request = {"policy": policy(), "format": "Delta", "schemas": [schema(id=None), schema(ssn="pii", open="public")]}
    with pytest.raises(PlanError, match=r"column ssn carries the tag 'pii', which encrypts, and is written to Delta"):
        check_format(request)
    assert check_format({**request, "schemas": [schema(id=None, open="public")]}) == {}
    with pytest.raises(PlanError, match=r"Iceberg: .*'untagged: deny'"):
        check_format({**request, "policy": policy(untagged="deny"), "format": "Iceberg", "schemas": []})


@pytest.mark.parametrize(
    ("of_all", "of_tag", "requires", "answer"),
    [
        (None, None, False, "warn"),
        (None, None, True, "deny"),
        ("allow", None, True, "allow"),
        ("deny", None, False, "deny"),
        ("deny", "allow", True, "allow"),
        ("allow", "deny", False, "deny"),
        (None, "warn", True, "warn"),
    ],
)
@pytest.mark.parametrize("by", ["name", "property"])
def test_tagged_column_to_a_sink_that_encrypts_nothing(
    of_all: str | None, of_tag: str | None, requires: bool, answer: str, by: str
) -> None:
    """The tag goes before the policy, and this before the default, which denies what requires encryption."""
    tags = {"pii": {"key": "pii", **({"sinks": of_tag} if of_tag else {})}, "public": "plaintext"}
    ruled = {"a.b": {"require_encryption": True}} if requires and by == "name" else {}
    request = {
        "policy": policy(tags=tags, tables=ruled, **({"sinks": of_all} if of_all else {})),
        "sink": "csv",
        "schema": schema(id=None, open="public", ssn="pii"),
        "sources": ["x.y", "A.B"],
        "requires_encryption": requires and by == "property",
    }
    if answer == "deny":
        why = "'sinks: deny'" if of_all or of_tag else "a table that requires encryption is read"
        with pytest.raises(PlanError, match=rf"column ssn carries the tag 'pii', .* written to csv.*{why}"):
            check_sink(request)
        return
    warnings = check_sink(request)["warnings"]
    assert len(warnings) == (answer == "warn")
    assert all("column ssn carries the tag 'pii'" in warning and "csv" in warning for warning in warnings)
    with pytest.raises(BridgeError, match="'sources' are 7"):
        check_sink({**request, "sources": 7})


def test_format_that_the_writer_of_a_file_shows() -> None:
    """Where only the writer of a file shows the format, a tagged column is refused there; others are as ever."""
    with pytest.raises(PlanError, match=r"column (ssn|pay) carries the tag .* written to Hudi"):
        resolve_write({**write(f"file:/w/t/{NAME}"), "format": "Hudi"})
    assert resolve_write({**write(f"file:/w/t/{NAME}", ("id",), properties={}), "format": "Hudi"})["encrypt"] is False


def test_streams_to_other_formats_are_refused() -> None:
    """By the tagged column where the stream has one; else by the format, since its table's tags are not known."""
    request = {**write(f"file:/w/t/{NAME}"), "format": "Delta", "untold_stream": True}
    with pytest.raises(PlanError, match=r"column .* carries the tag .* is written to Delta"):
        resolve_write(request)
    untagged = {**write(f"file:/w/t/{NAME}", ("id",), properties={}), "format": "Delta", "untold_stream": True}
    with pytest.raises(PlanError, match="written by a stream to Delta: the format loses tags"):
        resolve_write(untagged)


@pytest.mark.parametrize("untagged", ["footer_key", "deny"])
def test_log_of_delta_is_never_encrypted(untagged: str) -> None:
    """A checkpoint is plaintext whatever the policy says of untagged columns; another file below that name is not."""
    for path in (f"{LOG}/00010.checkpoint.parquet", f"{LOG}/_sidecars/{NAME}", f"{LOG}/.c.parquet.1.tmp"):
        request = write(path, ("add", "metaData"), properties={}, policy=policy(untagged=untagged), format="Delta")
        assert resolve_write(request)["encrypt"] is False
    others: tuple[dict[str, Any], ...] = (
        {},
        {"format": "Hudi"},
        {"format": "Delta", "message_type": [leaf("add"), leaf("ssn")]},
    )
    for other in others:
        request = {**write(f"{LOG}/{NAME}", ("add",), properties={}, policy=policy(untagged=untagged)), **other}
        if untagged == "deny":
            with pytest.raises(PlanError, match="carries no tag"):
                resolve_write(request)
        else:
            assert resolve_write(request)["encrypt"] is True


@pytest.mark.parametrize("where", ["schema", "properties"])
def test_a_place_like_deltas_log_takes_no_tag_away(where: str) -> None:
    """Neither the folder's name nor the column's is a reason to write a tagged column in clear, whoever writes."""
    tagged: dict[str, Any] = {"properties": {}, "schema": schema(add="pii")}
    if where == "properties":
        tagged = {"properties": {PREFIX + "tags.add": "pii"}}
    request = write(f"{LOG}/{NAME}", ("add",), **tagged)
    assert resolve_write(request)["encrypt"] is True
    with pytest.raises(PlanError, match=r"column add carries the tag 'pii', .* written to Delta"):
        resolve_write({**request, "format": "Delta"})


def test_reads_in_a_place_like_deltas_log_are_checked() -> None:
    """A plaintext file of a table that requires encryption is refused, unless Delta's actions are read of it alone."""
    footer = {"mode": "plaintext", "columns": [{"path": ["add"], "encrypted": False}], "fields": [leaf("add")]}
    request: dict[str, Any] = {
        "policy": policy(),
        "path": f"{LOG}/1.checkpoint.parquet",
        "properties": {**STRICT, PREFIX + "tags.ssn": "pii"},
        "footer": footer,
        "requested_schema": schema(add=None),
    }
    resolve_read(request)
    forged = {**footer, "columns": [{"path": ["ssn"], "encrypted": False}], "fields": [leaf("ssn")]}
    for change in (
        {"requested_schema": schema(ssn=None)},
        {"requested_schema": schema(add="pii")},
        {"requested_schema": schema()},
        {"footer": forged},
        {"footer": forged, "requested_schema": None},
        {"path": f"file:/w/d/{NAME}"},
    ):
        with pytest.raises(VerificationError, match="requires encryption"):
            resolve_read({**request, **change})


def test_name_of_the_catalog() -> None:
    """The catalog's name brings the table's rule, and a rule by place holds where the name has none."""
    named = {PREFIX + "table.name": "spark_catalog.A.b"}
    by_name = policy(tables={"a.b": {"tags": {"ssn": "pii"}}})
    assert resolve_write(write(f"file:/x/{JOB}/{NAME}", properties=named, policy=by_name))["encrypt"] is True
    by_place = policy(tables={"c": {"location": "file:/x", "tags": {"ssn": "pii"}}})
    assert resolve_write(write(f"file:/x/{JOB}/{NAME}", properties=named, policy=by_place))["encrypt"] is True
    both = policy(tables={"a.b": {"require_encryption": True}, "c": {"location": "file:/x"}})
    with pytest.raises(ConfigError, match="has a rule for each"):
        resolve_write(write(f"file:/x/{JOB}/{NAME}", properties=named, policy=both))


def test_place_of_runs_belongs_to_the_table() -> None:
    """What lies in ``.sparkcrypt/`` beside a table's folder is the table's, and what lies beside it is not."""
    known = policy(tables={"c": {"location": "file:/w/t", "tags": {"ssn": "pii"}}})
    for path, encrypt in (("/w/.sparkcrypt/t/run-1/p=1", True), ("/w/.sparkcrypt/u", False), ("/w/t2", False)):
        request = write(f"file:{path}/{JOB}/{NAME}", properties={}, policy=known)
        assert resolve_write(request)["encrypt"] is encrypt


def test_schema_with_the_escapes_of_hive() -> None:
    """Tags in a query's schema count, also as Hive's SerDe hands it on: with Java's escapes."""
    text = schema(ssn="pii", id=None)
    for given in (text, text.replace('"', '\\"')):
        properties = {PREFIX + "query.schema": given}
        assert resolve_write(write(f"file:/w/t/{JOB}/{NAME}", properties=properties))["encrypt"] is True


def test_reader_of_the_log() -> None:
    """A checkpoint in clear is read in the place of a table that requires encryption; a data file is not."""
    rules = policy(tables={"c": {"location": "file:/w", "require_encryption": True}})
    columns = [{"path": ["add"], "encrypted": False}]
    plain = {"mode": "plaintext", "columns": columns, "fields": fields_of([("add",)])}
    request = {"policy": rules, "properties": {}, "footer": plain}
    assert resolve_read({**request, "path": f"{LOG}/1.checkpoint.parquet"})["aad_prefix"] is None
    with pytest.raises(VerificationError, match="requires encryption"):
        resolve_read({**request, "path": f"file:/w/d/{NAME}"})


def test_tags_of_a_table_that_is_read() -> None:
    """Those of its schema, its properties and the policy's rule are united; of columns that it lacks none are told."""
    request = {
        "policy": policy(tables={"a.b": {"tags": {"pay": "pii", "gone": "pii"}}}),
        "path": "/",
        "properties": {
            "parquet.sparkcrypt.table.name": "a.b",
            "parquet.sparkcrypt.tags.SSN": "public",
            "parquet.sparkcrypt.tags.lost": "pii",
        },
        "schema": schema(ssn="pii", pay=None, id=None),
    }
    told = {tuple(column["path"]): column["tags"] for column in table_tags(request)["columns"]}
    assert told == {("ssn",): ["pii", "public"], ("pay",): ["pii"]}
    request["properties"] = {"parquet.sparkcrypt.tags.ssn": "pii,,"}
    with pytest.raises(PlanError, match=r"parquet\.sparkcrypt\.tags\.ssn: 'pii,,' is not a list of tags"):
        table_tags(request)


def request(written: str, table: str, **changes: Any) -> dict[str, Any]:
    """Return a request about a write of some columns into the table a.b."""
    return {
        "policy": policy(),
        "path": "/",
        "properties": {PREFIX + "table": "a.b"},
        "schema": written,
        "table_schema": table,
        "sources": ["x.y"],
        **changes,
    }


def lacking(**changes: Any) -> dict[str, list[str]]:
    """Return the columns that lack tags when ``id``, ``ssn`` (pii) and ``pay`` (finance) are written."""
    written = schema(id=None, ssn="pii", pay="finance")
    answer = check_inherited(request(written, schema(id=None, ssn=None, pay=None), **changes))
    return {".".join(column["path"]): column["tags"] for column in answer["columns"]}


def test_each_column_that_would_have_another_key_by_its_own_tags() -> None:
    """Tags count wherever the table has them, in whatever case; columns that the write lacks do not matter."""
    assert lacking() == {"ssn": ["pii"], "pay": ["finance"]}
    assert lacking(properties=TABLE) == {}
    assert lacking(table_schema=schema(id=None, SSN="pii", pay=None, more="pii")) == {"pay": ["finance"]}
    assert lacking(policy=policy(tables={"a.b": {"tags": {"ssn": "pii"}}})) == {"pay": ["finance"]}
    assert lacking(policy=policy(tables={"a.b": {"enforce": False}})) == {}
    assert lacking(policy=policy(untagged="deny")) == {"ssn": ["pii"], "pay": ["finance"]}
    assert lacking(policy=policy(untagged="footer_key")) == {"ssn": ["pii"], "pay": ["finance"]}


def test_order_of_the_policy_decides_whether_the_own_tag_is_enough() -> None:
    """A tag that comes first keeps its key, whatever comes to it; one that comes later does not."""
    assert lacking(table_schema=schema(id=None, ssn=None, pay="pii")) == {"ssn": ["pii"]}
    assert lacking(table_schema=schema(id=None, ssn="finance", pay="public")) == {"ssn": ["pii"], "pay": ["finance"]}


def test_plaintext_tag_is_nothing_that_a_column_can_lack() -> None:
    """Only keys matter: what encrypts nothing is not missed."""
    assert check_inherited(request(schema(ssn="public"), schema(ssn=None)))["columns"] == []


@pytest.mark.parametrize(
    ("of_all", "of_table", "required", "mode"),
    [
        (None, None, False, "observe"),
        (None, None, True, "refuse"),
        ("add", None, True, "add"),
        ("refuse", None, False, "refuse"),
        ("refuse", "observe", True, "observe"),
        ("observe", "refuse", False, "refuse"),
    ],
)
def test_table_goes_before_the_policy_and_this_before_the_default(
    of_all: str | None, of_table: str | None, required: bool, mode: str
) -> None:
    """A refusal names table, column, tag, source and the command that tags the column."""
    rule = {"inherit": of_table} if of_table else {}
    said = policy(tables={"a.b": rule}, **({"inherit": of_all} if of_all else {}))
    properties = {PREFIX + "table": "a.b", PREFIX + "tags.open": "pii"}
    if required:
        properties[PREFIX + "require_encryption"] = "true"
    asked = request(schema(ssn="pii"), schema(ssn=None, open=None), policy=said, properties=properties)
    if mode != "refuse":
        assert check_inherited(asked)["mode"] == mode
        return
    why = "'inherit: refuse'" if of_all or of_table else "the table requires encryption"
    with pytest.raises(
        PlanError, match=rf"a\.b: column ssn .* tag 'pii' \(read from x\.y\).*{why}.*`sparkcrypt tags set a\.b ssn pii`"
    ):
        check_inherited(asked)


def test_property_keeps_the_tags_that_it_has() -> None:
    """What would be added stands beside what is there."""
    properties = {PREFIX + "table": "a.b", PREFIX + "tags.ssn": "public"}
    (column,) = check_inherited(request(schema(ssn="pii"), schema(ssn=None), properties=properties))["columns"]
    assert (column["property"], column["value"]) == (PREFIX + "tags.ssn", "public,pii")


def lost(column: str = "ssn", *tags: str, **changes: Any) -> dict[str, Any]:
    """Return a request about a value that may have lost tags, in a table that requires encryption."""
    return {
        "policy": policy(tables={"a.b": {"require_encryption": True}}),
        "path": "/",
        "properties": {PREFIX + "table": "a.b"},
        "schema": schema(id=None, ssn=None, pay="finance"),
        "table_schema": None,
        "lost": [{"column": column, "from": "x.y.ssn", "tags": list(tags or ("pii",))}],
        **changes,
    }


def test_values_that_may_have_lost_a_tag_are_refused_where_encryption_is_required() -> None:
    """The message names table, column, where the name was seen, and what to do."""
    with pytest.raises(PlanError, match=r"a\.b: column ssn is written .* name of x\.y\.ssn, .* tag 'pii'"):
        check_lost(lost())
    by_property = {PREFIX + "table": "a.b", PREFIX + "require_encryption": "true"}
    with pytest.raises(PlanError, match="column ssn is written"):
        check_lost(lost(policy=policy(), properties=by_property))
    with pytest.raises(PlanError, match=r"sparkcrypt tags set a\.b ssn pii"):
        check_lost(lost(table_schema=schema(id=None, ssn=None)))


@pytest.mark.parametrize(
    "request_",
    [
        lost(policy=policy()),
        lost(policy=policy(tables={"a.b": {"require_encryption": True, "enforce": False}})),
        lost(schema=schema(ssn="pii")),
        lost(schema=schema(ssn="public")),
        lost(table_schema=schema(SSN="public")),
        lost(properties={PREFIX + "table": "a.b", PREFIX + "tags.ssn": "finance"}),
        lost("ssn", "public"),
        lost("ssn", "unknown"),
        lost("ssn", "!masked"),
        lost(lost=[]),
    ],
)
def test_values_that_may_have_lost_a_tag_pass(request_: dict[str, Any]) -> None:
    """Without such a rule, under any tag of their own, and where the tag encrypts nothing or is not known."""
    check_lost(request_)


def test_lost_values_that_are_no_list() -> None:
    """A jar of another version is told so."""
    with pytest.raises(BridgeError, match="'lost' is 'x'; allowed: a list of mappings"):
        check_lost(lost(lost="x"))


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
