"""How many calls a reader makes to the key service on a table that runs encrypted: one for each master key."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.files.parquet import read_footer
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.opened import KEY_LOG
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.conftest import FreshJvm
from tests.spark.fresh_scripts import START, calls, run
from tests.spark.support import Lake, key_service, retriever

pytestmark = [pytest.mark.spark, pytest.mark.slow]
TAGS = {"email": ["pii"], "phone": ["pii"], "amount": ["fin"]}
MASTERS = ("footer", "pii", "fin")
READ = (
    START
    + """
sparkcrypt.configure(spark, sparkcrypt.load_policy(sys.argv[1]))
read = spark.read.parquet(*sys.argv[2:])
print("rows", read.where("email = phone AND amount = id").count(), read.count())
"""
)


def add_rows(lake: Lake, first: int) -> None:
    """Write four plaintext files into two partitions, as a writer does that was never configured."""
    with lake.stranger() as stranger:
        for begin in (first, first + 10):
            stranger.sql(
                "INSERT INTO t SELECT id, string(id) AS email, string(id) AS phone, double(id) AS amount, "
                f"int(id % 2) AS p FROM range({begin}, {begin + 10}, 1, 1)"
            )


def files_of(lake: Lake) -> list[Path]:
    """Return the table's files: runs put partitions into folders of their own, and leave what was there before."""
    lake.sql("REFRESH TABLE t")
    return [Path(name.removeprefix("file://")) for name in lake.spark.table("t").inputFiles()]


def wrapped_keks(files: list[Path], policy: Policy) -> dict[str, set[tuple[str | None, str | None]]]:
    """Return, by master key, the KEKs under which the data keys of files are wrapped."""
    found: dict[str, set[tuple[str | None, str | None]]] = defaultdict(set)
    for file in files:
        footer = read_footer(file, retrieve_key=retriever(policy))
        columns = [column.key_metadata for column in footer.columns or () if column.own_key]
        assert len(columns) == len(TAGS)
        for metadata in (footer.footer_key_metadata, *columns):
            material = parse_key_material(metadata or b"")
            found[material.master_key_id].add((material.kek_id, material.wrapped_kek))
    return found


def test_one_call_for_each_master_key(lake: Lake, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """After native runs with a task for each file a reader makes three calls; one more for a key that was rotated."""
    lake.sql(
        "CREATE TABLE t (id BIGINT, email STRING, phone STRING, amount DOUBLE, p INT) USING parquet PARTITIONED BY (p)"
    )
    policy = lake.policy()
    set_tags(lake.spark, "t", TAGS, policy)

    def read() -> tuple[str, dict[str, int]]:
        log = tmp_path / "reader.log"
        log.write_text("")
        environment = {"SPARKCRYPT_JAR": str(private_jar), KEY_LOG: str(log)}
        folders = sorted({file.parent for file in files_of(lake)})
        said = run(fresh_jvm, READ, tmp_path / "policy-0" / "policy.yaml", *folders, **environment)
        assert calls(log, "wrap") == {}
        return said, calls(log, "unwrap")

    rewritten = 0
    for number in (0, 1):
        add_rows(lake, 20 * number)
        report = encrypt_table(lake.spark, "t", policy, engine="native")
        assert (report.outcome, report.engine) == ("done", "native")
        rewritten += report.files_rewritten
    assert rewritten >= 8
    keks = wrapped_keks(files_of(lake), policy)
    assert {key: len(found) for key, found in keks.items()} == dict.fromkeys(MASTERS, 1)
    assert len(set.union(*keks.values())) == len(MASTERS)
    said, made = read()
    assert made == dict.fromkeys(MASTERS, 1)
    assert said.split() == ["rows", "40", "40"]
    key_service(policy).rotate("pii")
    add_rows(lake, 40)
    assert encrypt_table(lake.spark, "t", policy, engine="native").outcome == "done"
    assert {key: len(found) for key, found in wrapped_keks(files_of(lake), policy).items()} == {
        "footer": 1,
        "pii": 2,
        "fin": 1,
    }
    assert read()[1] == {"footer": 1, "pii": 2, "fin": 1}
