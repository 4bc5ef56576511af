"""A table as an object, and tags on a frame before its first write."""

from __future__ import annotations

import pytest

import sparkcrypt
from sparkcrypt.errors import ConfigError, PlanError
from tests.spark.shredding import NEXT, OLD, make_policy_of_months, make_table_of_months
from tests.spark.support import SECRET, Lake, assert_encrypted, key_service, rows_of
from tests.spark.tables import UNPARTITIONED, fill

pytestmark = pytest.mark.spark


def test_a_frame_is_tagged_before_its_first_write(lake: Lake) -> None:
    """Tags on columns, parts of columns and by an Avro schema encrypt the first files, and are the new table's."""
    policy = lake.policy()
    avro = lake.root / "r.avsc"
    avro.write_text(
        '{"type": "record", "name": "r", "fields": [{"name": "card", "type": "string", "confluent:tags": ["fin"]}]}'
    )
    frame = lake.sql(f"SELECT 1 AS id, '{SECRET}' AS card, array(named_struct('mail', '{SECRET}', 'n', 1)) AS people")
    sparkcrypt.tag(frame, {"people.element.mail": "pii"}, avro=avro).write.saveAsTable("t")
    assert_encrypted(lake.path("t"), policy, {"card": "fin", "people.list.element.mail": "pii"}, visible=())
    table = sparkcrypt.Table(lake.spark, "t", policy)
    assert {column.path: column.tags for column in table.plan().plan.encrypted} == {
        ("card",): ("fin",),
        ("people", "list", "element", "mail"): ("pii",),
    }
    assert rows_of(table.read().select("id", "card")) == [(1, SECRET)]
    with pytest.raises(PlanError, match="'nosuch' is not a column"):
        sparkcrypt.tag(frame, {"nosuch": "pii"})


def test_a_table_is_one_object(lake: Lake) -> None:
    """It is found when it is made, by a policy's path too, and its methods do what the module's functions do."""
    fill(lake, UNPARTITIONED["using"])
    policy = lake.policy()
    path = next(lake.root.glob("policy-*")) / "policy.yaml"
    table = sparkcrypt.Table(lake.spark, "t", path)
    assert (table.name, repr(table)) == (lake.name("t"), f"Table({lake.name('t')!r})")
    table.tag({"email": "pii"})
    assert table.plan().exit_code == 2
    assert table.status().tables == ()
    report = table.encrypt(engine="native")
    assert (report.files_rewritten, table.verify(manifest=True).ok) == (4, True)
    (recorded,) = table.status().tables
    assert (recorded.table, recorded.drifts) == (lake.name("t"), False)
    assert_encrypted((report.new_location or "").removeprefix("file:"), policy, {"email": "pii"}, visible=())
    assert table.rollback(report.run_id or "", dry_run=True).files == 4
    assert table.expire(run_id=report.run_id, dry_run=True).files == 4
    assert table.expire(dry_run=True).younger == 1
    assert table.rotate("pii", dry_run=True).exit_code == 2
    assert table.rotate("pii").tables[0].files_rewritten == 4
    assert table.lineage().tables[0].table == lake.name("t")


def test_shredding_needs_a_confirmation(lake: Lake) -> None:
    """Without one the plan is told and nothing is deleted, an error that it raises ends the call."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    table = sparkcrypt.Table(lake.spark, "t", policy)
    assert [key.key_id for key in table.shred().keys] == [OLD, NEXT]
    asked: list[object] = []

    def refuse(plan: object) -> None:
        asked.append(plan)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.shred(OLD, confirm=refuse)
    held = {key.key_id for key in key_service(policy).list_keys()}
    assert (len(asked), {OLD, NEXT} <= held) == (1, True)
    done = table.shred(OLD, confirm=asked.append)
    assert ([key.key_id for key in done.shredded], done.exit_code) == ([OLD], 0)
    assert held - {key.key_id for key in key_service(policy).list_keys()} == {OLD}


def test_what_is_no_table_and_no_policy_is_refused_at_once(lake: Lake) -> None:
    """The object is not made, and the error names what is missing."""
    policy = lake.policy()
    with pytest.raises(PlanError, match=r"nosuch: not found"):
        sparkcrypt.Table(lake.spark, "nosuch", policy)
    fill(lake, UNPARTITIONED["using"])
    with pytest.raises(ConfigError, match=r"policy nosuch\.yaml: cannot be read"):
        sparkcrypt.Table(lake.spark, "t", "nosuch.yaml")
    with pytest.raises(ConfigError, match=r"7 is no policy"):
        sparkcrypt.Table(lake.spark, "t", 7)  # type: ignore[arg-type]  # what a caller without types may give
