"""Master keys rotated: data keys are rewrapped under one KEK and a new version, and nothing else of a file changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import configure, load_policy, verify_table
from sparkcrypt.errors import ConfigError, KeyRetiredError, VerificationError
from sparkcrypt.files.parquet import read_footer, verify_keys
from sparkcrypt.keys.material import KeyMaterial, parse_key_material, version_of
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import KEY_LOG
from sparkcrypt.keys.service import KeyDescription, KeyService
from sparkcrypt.runs.keys.check_keys import check_keys
from sparkcrypt.runs.keys.retire import retire_versions
from sparkcrypt.runs.keys.rotate import rotate_key
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.table import footers as footer_readers
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.tags.model import history_property
from tests.conftest import FreshJvm
from tests.spark.fresh_scripts import START, calls, run
from tests.spark.killing import STEPS, Clock, kill_during
from tests.spark.rotations import data_of, files_of, keks_by, keks_of, make_tables, retrieve_by, rotate, write
from tests.spark.support import Lake, key_service, rows_of, with_keys, without_keys

pytestmark = pytest.mark.spark
WRITERS = 20
MASTERS = ("footer", "pii", "fin")
VAULT = """
version: 1
key_service: {{type: vault, address: "{address}", auth: {{method: token, token_file: {token}}}}}
footer: {{key: rotate-footer, mode: encrypted}}
audit: {{key: rotate-audit}}
untagged: plaintext
run_state: state/
tags:
  pii: {{key: rotate-pii}}
"""
READ = (
    START
    + """
sparkcrypt.configure(spark, sparkcrypt.load_policy(sys.argv[1]))
print("rows", spark.read.parquet(*sys.argv[2:]).where("email IS NOT NULL AND amount = id").count())
"""
)


def test_many_writers_become_one_kek_a_master_key(
    lake: Lake, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path
) -> None:
    """Twenty writers cost a reader sixty calls, and three after a rotation, under which no page is another.

    A dry run says how much and changes nothing.  A rotation whose budget was spent goes on under the version that it
    made; the next one makes a version; with --keep-version nothing is to do then.  Older versions are retired once no
    file, no old file and no record of the state directory needs one.
    """
    policy = make_tables(lake, "t")
    service = key_service(policy)
    for number in range(WRITERS):
        write(lake, "t", number)
    before, rows = files_of(lake), rows_of(lake.spark.table("t"))
    assert {key: len(found) for key, found in keks_of(before, policy).items()} == dict.fromkeys(MASTERS, WRITERS)

    def read() -> dict[str, int]:
        log = tmp_path / "reader.log"
        log.write_text("")
        folders = sorted({file.parent for file in files_of(lake)})
        environment = {"SPARKCRYPT_JAR": str(private_jar), KEY_LOG: str(log)}
        said = run(fresh_jvm, READ, tmp_path / "policy-0" / "policy.yaml", *folders, **environment)
        assert said.split() == ["rows", str(WRITERS)]
        return dict(calls(log, "unwrap"))

    assert read() == dict.fromkeys(MASTERS, WRITERS)
    with pytest.raises(ConfigError, match="no table of the catalog holds 'other'"):
        rotate(lake, policy, "other")
    planned = rotate(lake, policy, run={"dry_run": True})  # no run has looked at the table yet
    assert planned.rotation is not None
    assert planned.rotation.to_dict() == {"key_id": "pii", "version": 2, "made": True, "rekeys": False}
    assert (planned.exit_code, planned.totals()["bytes_left"]) == (2, sum(file.stat().st_size for file in before))
    assert [unit["actions"]["re-wrap"]["files"] for unit in planned.tables[0].planned] == [WRITERS // 2] * 2
    assert (service.describe("pii").versions, files_of(lake)) == (1, before)

    first = rotate(lake, policy, tables=["t"], max_bytes=1)
    assert (first.outcome, first.totals()["units_left"]) == ("stopped at budget", 1)
    done = rotate(lake, policy, tables=["t"])
    (table,) = done.tables
    assert (done.outcome, table.files_rewritten, table.verified) == ("done", WRITERS, True)
    assert done.rotation is not None
    assert done.rotation.to_dict() == {"key_id": "pii", "version": 2, "made": False, "rekeys": False}
    assert (first.tables[0].key_calls["before"], table.key_calls["after"]) == (3 * WRITERS, 3)
    after = files_of(lake)
    keks = keks_of(after, policy)
    assert {key: [version for version, _ in found] for key, found in keks.items()} == {
        "footer": [1],
        "pii": [2],
        "fin": [1],
    }
    assert read() == dict.fromkeys(MASTERS, 1)
    assert [file.name for file in after] != []
    old = {file.name: data_of(file, policy) for file in before}
    assert {file.name: data_of(file, policy) for file in after} == old
    assert rows_of(lake.spark.table("t")) == rows
    assert verify_table(lake.spark, "t", policy, manifest=True).ok

    kept = rotate(lake, policy, keep_version=True)
    assert (kept.outcome, [report.table for report in kept.tables]) == ("nothing to do", [lake.name("t")])
    assert rotate(lake, policy).outcome == "done"
    assert {version for version, _ in keks_of(files_of(lake), policy)["pii"]} == {3}
    assert service.describe("pii").versions == 3

    def retire(below: int) -> KeyDescription:
        return retire_versions(lake.spark, policy, "pii", below).described

    with pytest.raises(VerificationError, match=rf"below 3 are needed: {lake.name('t')}: .*old files .*expire"):
        retire(3)
    expire_run(lake.spark, "t", policy)
    write(lake, "t", WRITERS)
    assert retire(3).versions == 3
    with pytest.raises(ConfigError, match="allowed: 2 to 3"):
        retire(4)
    assert service.rotate("pii").versions == 4
    with pytest.raises(VerificationError, match=r": 21 files under an older version"):
        retire(4)
    assert check_keys(lake.spark, policy, tables=["t"]).exit_code == 0
    with pytest.raises(VerificationError, match=r"keys/.*mac-key.json: holds a MAC key"):
        service.rotate("footer")
        retire_versions(lake.spark, policy, "footer", 2, leave_out=[lake.name("t")])


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_killed_rotation_goes_on(lake: Lake, clock: Clock, step: str) -> None:
    """Killed after a step, a rotation goes on under the version that it had made, and nothing but keys is another."""
    policy = make_tables(lake, "t")
    for number in range(4):
        write(lake, "t", number)
    before, rows = files_of(lake), rows_of(lake.spark.table("t"))
    kill_during(lambda: rotate(lake, policy, tables=["t"], run={"parallelism": 1}), clock, STEPS[step])
    assert rows_of(lake.spark.newSession().table(lake.name("t"))) == rows
    done = rotate(lake, policy, tables=["t"])
    assert (done.outcome, done.tables[0].verified) == ("done", True)
    assert done.rotation is not None
    assert done.rotation.to_dict() == {"key_id": "pii", "version": 2, "made": False, "rekeys": False}
    after = files_of(lake)
    assert {version for version, _ in keks_of(after, policy)["pii"]} == {2}
    assert {file.name: data_of(file, policy) for file in after} == {file.name: data_of(file, policy) for file in before}
    assert rows_of(lake.spark.table("t")) == rows
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    assert rotate(lake, policy, tables=["t"], keep_version=True).outcome == "nothing to do"


def test_what_a_rotation_does_not_touch(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forged and foreign files, and units with more to do, are named and stay as they are; the rest is rewrapped.

    In t a file of u takes the place of one (nothing refuses it, since t does not require encryption), one has a footer
    of which a byte was changed, and one partition got a plaintext file.  A check of the keys finds what cannot be
    opened, here and by tasks, also where only a column's key is missing.
    """
    policy = make_tables(lake, "t", "u")
    for number in range(2):
        write(lake, "t", number)
        write(lake, "u", number)
    assert backfill(lake.spark, policy, tables=["t", "u"]).outcome == "nothing to do"
    t, u = files_of(lake), files_of(lake, "u")
    shutil.copy(u[1], t[1])
    with lake.stranger() as stranger:
        stranger.sql("INSERT INTO t SELECT 9, 'plain', 9.0D, 2")
    write(lake, "t", 4)
    now = {file: file.read_bytes() for file in files_of(lake)}
    report = rotate(lake, policy, tables=["t"])
    left = {unit["unit"]: unit["message"] for unit in report.tables[0].quarantined}
    assert report.exit_code == 74
    assert set(left) == {"p=1"}
    assert "aad_mismatch" in left["p=1"]
    assert "sparkcrypt backfill" in left["p=1"]
    stayed = [file for file in files_of(lake) if file in now]
    assert all(file.read_bytes() == now[file] for file in stayed)
    assert {file.parent.name for file in stayed} == {"p=1", "p=2"}  # p=2 holds nothing under the key
    assert {version for version, _ in keks_of([file for file in files_of(lake) if file not in now], policy)["pii"]} == {
        2
    }
    rows = lake.sql("SELECT id FROM t WHERE p = 0 ORDER BY id").collect()
    assert [row.id for row in rows] == [0, 4]
    damaged = next(file for file in files_of(lake) if "p=0" in str(file))
    content = bytearray(damaged.read_bytes())
    content[-40] ^= 1
    damaged.write_bytes(content)
    again = rotate(lake, policy, tables=["t"])
    told = {unit["unit"]: unit["message"] for unit in again.tables[0].quarantined}
    assert set(told) == {"p=0", "p=1"}
    assert f"{damaged.name}: cannot be read" in told["p=0"]
    assert damaged.read_bytes() == bytes(content)
    files = files_of(lake)
    checked = {
        name: check_keys(lake.spark, found, tables=["t", "u"]).to_dict()["tables"]
        for name, found in (
            ("all", policy),
            ("none", with_keys(policy, lake.root / "fewer", without_keys("fin"))),
        )
    }
    assert [(table["files"], table["encrypted"], table["plaintext"]) for table in checked["all"]] == [
        (len(files), len(files) - 2, 1),
        (2, 2, 0),
    ]
    (unopened,) = checked["all"][0]["unopened"]
    assert unopened["file"].endswith(damaged.name)
    assert checked["all"][1]["unopened"] == []
    assert [entry["error"] for entry in checked["none"][1]["unopened"]] == ["KeyNotFoundError"] * 2
    assert "'fin'" in checked["none"][1]["unopened"][0]["message"]
    monkeypatch.setattr(footer_readers, "FEW", 0)  # every file by a task
    assert check_keys(lake.spark, policy, tables=["t", "u"]).to_dict()["tables"] == checked["all"]

    old = {file.name: data_of(file, policy) for file in files_of(lake, "u")}
    rows = rows_of(lake.spark.table("u"))
    outcomes = [rotate(lake, policy, tables=["u"], compromised=True, max_bytes=1) for _ in range(2)]
    assert [done.outcome for done in outcomes] == ["stopped at budget", "done"]
    assert {done.rotation.version for done in outcomes if done.rotation} == {3}  # t is rewrapped under version 2
    assert "old files until `sparkcrypt backfill expire`" in outcomes[0].warnings[0]
    new = files_of(lake, "u")
    assert {file.name: data_of(file, policy) for file in new}.keys() == old.keys()
    assert all(data_of(file, policy) != old[file.name] for file in new)
    assert {key: len(found) for key, found in keks_of(new, policy).items()} == dict.fromkeys(MASTERS, 1)
    assert {version for version, _ in keks_of(new, policy)["pii"]} == {3}
    assert rows_of(lake.spark.table("u")) == rows
    with pytest.raises(ConfigError, match="--compromised needs a version that nobody has used"):
        rotate(lake, policy, tables=["u"], compromised=True, keep_version=True)


def test_rotation_and_backfill_finish_each_other_and_stay_apart(lake: Lake) -> None:
    """What was begun first is finished first, then what was asked for is done; a rotation says nothing of plans.

    A history that readers need for files that a rotation does not look at stays in the table's properties.
    """
    policy = make_tables(lake, "t")
    for number in range(2):
        write(lake, "t", number)
    with lake.stranger() as stranger:
        for number in range(2):
            stranger.sql(f"INSERT INTO t SELECT {number + 5}, 'plain', 9.0D, {number}")
    paused = backfill(lake.spark, policy, tables=["t"], options=PassOptions(max_bytes=1))
    assert paused.outcome == "stopped at budget"
    done = rotate(lake, policy, tables=["t"])
    assert done.outcome == "done"
    assert any("brought files to their plan" in warning for warning in done.tables[0].warnings)
    files = files_of(lake)
    assert {key: len(found) for key, found in keks_of(files, policy).items()} == dict.fromkeys(MASTERS, 1)
    assert {version for version, _ in keks_of(files, policy)["pii"]} == {2}

    catalog, history = Catalog(lake.spark), history_property(("email",))
    catalog.set_options(catalog.table("t"), {history: "plaintext"})
    begun = rotate(lake, policy, "fin", tables=["t"], max_bytes=1)
    assert begun.outcome == "stopped at budget"
    with lake.stranger() as stranger:
        stranger.sql("INSERT INTO t SELECT 7, 'plain', 9.0D, 7")
    assert rotate(lake, policy, "fin", tables=["t"]).outcome == "done"
    assert catalog.table("t").options[history] == "plaintext"
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    assert not catalog.table("t").options.get(history)
    assert {version for version, _ in keks_of(files_of(lake), policy)["fin"]} == {2}


@pytest.mark.services
def test_vault_key_is_rotated_and_its_first_version_retired(lake: Lake, vault: Any) -> None:
    """The text of every KEK tells the new version; then Vault decrypts nothing under the first, and rows are read."""
    token = lake.root / "token"
    token.write_text(vault.root_token)
    token.chmod(0o600)
    file = lake.root / "policy.yaml"
    file.write_text(VAULT.format(address=vault.address, token=token))
    policy = load_policy(file)
    service = open_key_service(policy.key_service)
    for key in ("rotate-footer", "rotate-audit", "rotate-pii"):
        service.create(key)
    configure(lake.spark, policy)
    lake.sql("CREATE TABLE t (id BIGINT, email STRING, amount DOUBLE, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    for number in range(2):
        write(lake, "t", number)
    rows, (old, _) = rows_of(lake.spark.table("t")), files_of(lake)
    kept = Path(shutil.copy(old, lake.root / "kept.parquet"))
    for number, key in enumerate(("rotate-pii", "rotate-footer"), start=1):
        done = rotate_key(lake.spark, policy, key, tables=["t"])
        assert (done.outcome, done.rotation and done.rotation.version) == ("done", 2)
        keks = keks_by(files_of(lake), service)
        assert {found: len(wrapped) for found, wrapped in keks.items()} == {"rotate-pii": 1, "rotate-footer": 1}
        assert {version for version, _ in keks["rotate-pii"]} == {2}
        assert {version for version, _ in keks["rotate-footer"]} == {number}
    expire_run(lake.spark, "t", policy)
    retired = retire_versions(lake.spark, policy, "rotate-pii", 2, grace_seconds=0)
    assert (retired.state, retired.described.first_usable) == ("set aside", 2)
    with pytest.raises(KeyRetiredError, match="version 1 of key 'rotate-pii' is retired in Vault"):
        verify_keys(kept, retrieve_key=retrieve_by(service))
    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    assert check_keys(lake.spark, policy, tables=["t"]).exit_code == 0
    assert rows_of(lake.spark.table("t")) == rows
    assert retire_versions(lake.spark, policy, "rotate-pii", 2).state == "destroyed"
    assert check_keys(lake.spark, policy, tables=["t"]).exit_code == 0


BLIND = """
path "transit/keys/*" { capabilities = ["read", "update"] }
path "transit/rewrap/*" { capabilities = ["update"] }
path "transit/encrypt/*" { capabilities = ["update"] }
path "transit/decrypt/blind-footer" { capabilities = ["update"] }
path "transit/decrypt/blind-audit" { capabilities = ["update"] }
"""


@pytest.mark.services
def test_vault_rewraps_keks_that_nobody_sees(lake: Lake, vault: Any) -> None:
    """A token that may not decrypt with a column's key rotates it, where the table has one KEK under it.

    Pages and data keys stay, every file opens by the new version alone, and new data keys get a KEK of their own.  A
    file with another KEK is refused to that token, and stays as it was.
    """
    tokens = {"all": vault.root_token, "blind": vault.token(BLIND)}
    policies = {}
    for name, token in tokens.items():
        for file, content in (("token", token), ("policy.yaml", "")):
            path = lake.root / name / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
            path.chmod(0o600)
        text = VAULT.format(address=vault.address, token=lake.root / name / "token").replace("rotate-", "blind-")
        path.write_text(text.replace("run_state: state/", f"run_state: {lake.root}/state"))
        policies[name] = load_policy(path)
    policy, blind = policies["all"], policies["blind"]
    service = open_key_service(policy.key_service)
    for key in ("blind-footer", "blind-audit", "blind-pii"):
        service.create(key)
    configure(lake.spark, policy)
    lake.sql("CREATE TABLE t (id BIGINT, email STRING, amount DOUBLE, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    for number in range(4):
        write(lake, "t", number)
    rows = rows_of(lake.spark.table("t"))
    refused = rotate_key(lake.spark, blind, "blind-pii", tables=["t"])
    assert {unit["error"] for unit in refused.tables[0].quarantined} == {"KeyAccessDeniedError"}
    assert rotate_key(lake.spark, policy, "blind-pii", tables=["t"]).outcome == "done"
    first = files_of(lake)
    materials = {file.name: column_material(file, service) for file in first}

    done = rotate_key(lake.spark, blind, "blind-pii", tables=["t"])
    assert (done.outcome, done.tables[0].verified) == ("done", True)
    assert done.tables[0].key_calls == {"before": 2, "after": 2}
    moved = files_of(lake)
    assert {file.name for file in moved} == {file.name for file in first}
    for new_file in moved:
        old, new = materials[new_file.name], column_material(new_file, service)
        assert (new.wrapped_dek, new.kek_id) == (old.wrapped_dek, old.kek_id)
        assert version_of(new.wrapped_kek or "") == version_of(old.wrapped_kek or "") + 1
    assert "column email: its key was not opened" in json.dumps(done.to_dict())
    expire_run(lake.spark, "t", policy)
    newest = service.describe("blind-pii").versions
    assert retire_versions(lake.spark, policy, "blind-pii", newest).state == "set aside"
    configure(lake.spark, policy)
    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    assert check_keys(lake.spark, policy, tables=["t"]).exit_code == 0
    assert rows_of(lake.spark.table("t")) == rows

    kek = {column_material(file, service).kek_id for file in moved}
    with lake.stranger() as stranger:
        stranger.sql("INSERT INTO t SELECT 9, 'plain', 9.0D, 7")
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    new_keks = {column_material(file, service).kek_id for file in files_of(lake) if "p=7" in str(file)}
    assert len(new_keks) == len(kek) == 1 and new_keks != kek


def column_material(file: Path, service: KeyService) -> KeyMaterial:
    """Return the key material of a file's only column with a key of its own."""
    (column,) = (
        column for column in read_footer(file, retrieve_key=retrieve_by(service)).columns or () if column.own_key
    )
    return parse_key_material(column.key_metadata or b"")
