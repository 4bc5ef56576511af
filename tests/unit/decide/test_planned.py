"""What is refused of writes that are only planned: partition columns that encrypt, and formats that lose tags."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkcrypt.decide.file import resolve_read, resolve_write
from sparkcrypt.decide.judge_write import check_format, check_partitioning, check_sink, table_tags
from sparkcrypt.errors import BridgeError, ConfigError, PlanError, VerificationError
from tests.unit.decide.requests import JOB, NAME, PREFIX, STRICT, leaf, policy, schema, write
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
