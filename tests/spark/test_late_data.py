"""Rows that come for a month whose key was shredded: refused, or under the key that the policy has for them."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

import sparkcrypt.arrow
from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.files.parquet import inspect_file
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.apply_shredding import ShredOptions, shred_keys
from sparkcrypt.runs.keys.find_shreddable import Selection
from sparkcrypt.runs.passes.passes import backfill
from sparkcrypt.runs.rewrite.options import ENGINES, Engine
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.shredding import AUDIT, KEYS, OLD, by_key, make_table_of_months, plan_shredding
from tests.spark.support import Lake, data_files, encrypted_columns, key_service, refusal, retriever

pytestmark = pytest.mark.spark
LATE = f"late-contact-{datetime.now(timezone.utc):%Y-%m}"
ROUTE = ', late_data: "late-contact-{written:%Y-%m}"'
TAGS = f'\n  pii: {{key: pii}}\n  contact: {{key: "contact-{{d:%Y-%m}}", retention: 400d, create_keys: true{ROUTE}}}\n'
ROW = "SELECT id, nullif(email, '') AS email, ssn, d FROM VALUES (6, 'late', 's6', '{}') AS v(id, email, ssn, d)"
LATE_DAY, DAY = "2025-01-07", "2026-10-07"


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A table ``t`` of three months, two of them shredded, under a policy with keys for late data.

    The helper goes by what it was told of a key for a minute, so what comes afterwards is under another text.
    """
    policy = lake.policy(TAGS, keys=KEYS, more=AUDIT)
    make_table_of_months(lake, policy)
    shred_keys(lake.spark, policy, Selection(("t",)), ShredOptions("retention"), confirm=lambda _: None)
    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    return lake.changed(AUDIT, f"{AUDIT}\nask_for_access: write to keys@example.org")


def keys_of_email(lake: Lake, policy: Policy, day: str, table: str = "t") -> list[str | None]:
    """Return the key of column email in each file of a day that is in use; None where it is in clear."""
    lake.sql(f"REFRESH TABLE {table}")
    used = [name.removeprefix("file://") for name in lake.spark.table(table).inputFiles() if f"d={day}" in name]
    return [encrypted_columns(inspect_file(name, retrieve_key=retriever(policy))).get("email") for name in used]


def emails(lake: Lake, day: str) -> list[str]:
    """Return what a query reads of a day."""
    return [row.email for row in lake.sql(f"SELECT email FROM t WHERE d = '{day}'").collect()]


def test_late_rows_are_written_under_their_own_key(lake: Lake, policy: Policy) -> None:
    """The file of a shredded month has the late key, that of another month its own; both are read, nothing is drift."""
    for day in (LATE_DAY, DAY):
        lake.sql(f"INSERT INTO t {ROW.format(day)}")
    assert keys_of_email(lake, policy, LATE_DAY) == [LATE]
    assert keys_of_email(lake, policy, DAY) == ["contact-2026-10"]
    assert (emails(lake, LATE_DAY), emails(lake, DAY)) == (["late"], ["late"])
    checked = verify_table(lake.spark, "t", policy)
    assert (checked.ok, checked.drift) == (True, ())
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "nothing to do"
    opened = sparkcrypt.arrow.open_table(f"{lake.path('t')}/d={LATE_DAY}", policy, table=lake.name("t"))
    assert opened.to_table().column("email").to_pylist() == ["late"]


def test_late_rows_are_refused_where_the_policy_says_nothing(lake: Lake, policy: Policy) -> None:
    """Without the line, and for a month that is past nothing, a key that is not there is an error as ever."""
    key_service(policy).delete_key("contact-2026-10")
    policy = lake.changed("create_keys: true, ", "")
    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    assert "'contact-2026-10'" in refusal(lambda: lake.sql(f"INSERT INTO t {ROW.format(DAY)}"))
    lake.changed(ROUTE, "")
    assert "'contact-2025-01'" in refusal(lambda: lake.sql(f"INSERT INTO t {ROW.format(LATE_DAY)}"))
    assert data_files(lake.path("t") / f"d={LATE_DAY}") == []


def test_readers_believe_the_late_key_in_late_months_alone(lake: Lake, policy: Policy) -> None:
    """Of a table that requires encryption; a month that is not past its retention has its own key or none."""
    lake.changed(AUDIT, f"{AUDIT}\ntables: {{{lake.name('t')}: {{require_encryption: true}}}}")
    lake.sql(f"INSERT INTO t {ROW.format(LATE_DAY)}")
    assert emails(lake, LATE_DAY) == ["late"]
    for file in data_files(lake.path("t") / f"d={LATE_DAY}"):
        (lake.path("t") / "d=2026-10-01" / f"moved-{file.name}").write_bytes(file.read_bytes())
    lake.sql("REFRESH TABLE t")
    said = refusal(lambda: emails(lake, "2026-10-01"))
    assert "VerificationError" in said


@pytest.mark.parametrize("engine", ENGINES)
def test_run_gives_late_files_the_late_key(lake: Lake, policy: Policy, engine: Engine) -> None:
    """A plaintext file that came for a shredded month; what has a late key keeps it when its file is written anew."""
    with lake.stranger() as stranger:
        stranger.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        stranger.sql(f"INSERT INTO {lake.name('t')} {ROW.format(LATE_DAY)}")
    assert keys_of_email(lake, policy, LATE_DAY) == [None]
    assert encrypt_table(lake.spark, "t", policy, where=f"d = '{LATE_DAY}'", engine=engine).files_rewritten == 1
    assert keys_of_email(lake, policy, LATE_DAY) == [LATE]
    assert emails(lake, LATE_DAY) == ["late"]
    assert verify_table(lake.spark, "t", policy).drift == ()


def test_file_that_is_written_anew_keeps_its_late_key(lake: Lake, policy: Policy) -> None:
    """Another tag of another column; a late key of this month would lengthen the retention of the values."""
    earlier = "late-contact-2025-11"
    key_service(policy).create(earlier)
    lake.changed(ROUTE, f', late_data: "{earlier}"')
    lake.sql(f"INSERT INTO t {ROW.format(LATE_DAY)}")
    policy = lake.changed(f', late_data: "{earlier}"', ROUTE)
    assert keys_of_email(lake, policy, LATE_DAY) == [earlier]
    set_tags(lake.spark, "t", {"id": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy, where=f"d = '{LATE_DAY}'").files_rewritten == 1
    assert keys_of_email(lake, policy, LATE_DAY) == [earlier]
    assert emails(lake, LATE_DAY) == ["late"]


def test_plan_lists_late_data_and_shreds_them_by_their_own_retention(lake: Lake, policy: Policy) -> None:
    """Not with the month that they are of; as of the end of the late key's retention they go dark too."""
    lake.sql(f"INSERT INTO t {ROW.format(LATE_DAY)}")
    plan = plan_shredding(lake, policy, "t")
    assert by_key(plan) == {}
    (late,) = plan.to_dict()["late_data"]
    assert (late["key_id"], late["tags"], late["tables"][0]["partitions"]) == (LATE, ["contact"], [f"d={LATE_DAY}"])
    assert f"late data under key '{LATE}' (its retention is over on 20" in plan.to_text()
    later = by_key(plan_shredding(lake, policy, "t", as_of=datetime(2031, 1, 1, tzinfo=timezone.utc)))
    assert (later[LATE].refused, later[LATE].defeated_by) == ((), ())
    assert later[LATE].dark[0].rows == 1
    key_service(policy).create(OLD)
    (told,) = by_key(plan_shredding(lake, policy, "t"))[OLD].defeated_by
    assert f"late data in 1 file are under key '{LATE}', whose own retention counts" in told


def test_late_rows_of_an_orc_table(lake: Lake) -> None:
    """By SQL and by a run: the column is under the late key, whose names ORC's options must be able to hold."""
    rule = 'contact: {key: "contact_{d:%Y_%m}", retention: 400d, late_data: late_contact}'
    policy = lake.policy(f"\n  {rule}\n", keys=("audit", "late_contact"), more=f"{AUDIT}\nformats: [parquet, orc]")
    lake.sql("CREATE TABLE o (id INT, email STRING, ssn STRING, d STRING) USING orc PARTITIONED BY (d)")
    set_tags(lake.spark, "o", {"email": ["contact"]}, policy)
    lake.sql(f"INSERT INTO o {ROW.format(LATE_DAY)}")
    assert verify_table(lake.spark, "o", policy).drift == ()
    with lake.stranger() as stranger:
        stranger.sql(f"INSERT INTO {lake.name('o')} {ROW.format(LATE_DAY)}")
    assert encrypt_table(lake.spark, "o", policy).files_total == 2
    assert verify_table(lake.spark, "o", policy).drift == ()
    lake.sql("REFRESH TABLE o")
    assert [row.email for row in lake.sql("SELECT email FROM o").collect()] == ["late", "late"]
    plan = plan_shredding(lake, policy, "o").to_dict()["late_data"]
    assert [(late["key_id"], late["retention_over"], late["tables"][0]["files"]) for late in plan] == [
        ("late_contact", None, 2)
    ]
