"""Keys that move: to another key id, and from one key service to another; afterwards nothing needs where they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import configure, load_policy, verify_table
from sparkcrypt.arrow import open_table
from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyServiceError
from sparkcrypt.files.parquet import read_footer
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.check_keys import check_keys
from sparkcrypt.runs.keys.rotate import RotationOptions, rotate_key
from sparkcrypt.runs.passes.key_status import key_statuses
from sparkcrypt.spark.tables.tagging import set_tags
from tests.conftest import FreshJvm
from tests.services.meddled_s3 import MeddledS3
from tests.spark.fresh_scripts import START, run
from tests.spark.killing import STEPS, Clock, kill_during
from tests.spark.rotations import data_of, files_of, keks_of, make_tables, retrieve_by, rotate, write
from tests.spark.support import Lake, key_service, rows_of

pytestmark = pytest.mark.spark
KEYS = ("footer", "audit", "pii")
POLICY = """
version: 1
key_service: {service}
footer: {{key: footer, mode: encrypted}}
audit: {{key: audit}}
untagged: plaintext
run_state: state/
tags:
  pii: {{key: pii}}
"""


def write_policy(folder: Path, name: str, service: dict[str, Any]) -> Policy:
    """Write a policy with a key service, and make its keys there."""
    (folder / name).write_text(POLICY.format(service=json.dumps(service)))
    policy = load_policy(folder / name)
    opened = open_key_service(policy.key_service)
    for key in KEYS:
        opened.create(key)
    return policy


def kinds_of(files: list[Path], service: Any) -> dict[str, set[str]]:
    """Return, by master key, the types of key service whose form the wrapped KEKs of files have."""
    found: dict[str, set[str]] = {}
    for file in files:
        footer = read_footer(file, retrieve_key=retrieve_by(service))
        for metadata in (footer.footer_key_metadata, *(column.key_metadata for column in footer.columns or ())):
            if metadata:
                material = parse_key_material(metadata)
                kind = (material.wrapped_kek or "").partition(":")[0]
                found.setdefault(material.master_key_id, set()).add(kind)
    return found


@pytest.fixture
def vault_options(lake: Lake, vault: Any) -> dict[str, Any]:
    """A mount of a real Vault of the test's own, with the file of its token."""
    token, mount = lake.root / "token", f"move-{lake.database}"
    token.write_text(vault.root_token)
    token.chmod(0o600)
    vault.api("POST", f"sys/mounts/{mount}", {"type": "transit"})
    auth = {"method": "token", "token_file": str(token)}
    return {"type": "vault", "address": vault.address, "mount_point": mount, "auth": auth}


@pytest.mark.services
def test_local_keys_move_to_vault(lake: Lake, vault_options: dict[str, Any], clock: Clock) -> None:
    """Old and new files are read while keys move; killed, it goes on; then a policy without the folder reads all.

    A file that claims to be of the other service, or names it, is refused; one under a key that the policy does not
    name for the folder is refused though the folder has that key.
    """
    local = {"type": "local", "path": str(lake.root / "keys")}
    before = write_policy(lake.root, "before.yaml", local)
    lake.sql("CREATE TABLE t (id BIGINT, email STRING, amount DOUBLE, p INT) USING parquet PARTITIONED BY (p)")
    configure(lake.spark, before)
    set_tags(lake.spark, "t", {"email": ["pii"]}, before)
    for number in range(3):
        write(lake, "t", number)
    assert rotate_key(lake.spark, before, "pii", tables=["t"]).outcome == "done"  # leaves KEKs and an audit
    first = files_of(lake)
    data = {file.name: data_of(file, before) for file in first}

    moving = write_policy(lake.root, "moving.yaml", {**vault_options, "former": [{**local, "keys": list(KEYS)}]})
    after = write_policy(lake.root, "after.yaml", vault_options)
    configure(lake.spark, moving)
    write(lake, "t", 3)
    rows = rows_of(lake.spark.table("t"))
    assert len(rows) == 4
    service = open_key_service(moving.key_service)
    assert kinds_of(files_of(lake), service) == {"footer": {"local", "vault"}, "pii": {"local", "vault"}}
    assert read_by_arrow(lake, moving) == [0, 1, 2, 3]
    assert check_keys(lake.spark, moving, tables=["t"]).exit_code == 0
    alone = check_keys(lake.spark, moving, tables=["t"], without_former=True)
    assert {Path(entry.what).name for entry in alone.tables[0].unopened} == {
        "the audit's MAC key",
        *(file.name for file in first),
    }

    assert under_former(lake, moving) == {"audit": 0, "footer": 3, "pii": 3}
    kill_during(
        lambda: rotate_key(lake.spark, moving, "pii", tables=["t"], options=RotationOptions(keep_version=True)),
        clock,
        STEPS["the swap"],
    )
    assert rows_of(lake.spark.newSession().table(lake.name("t"))) == rows
    done = rotate_key(lake.spark, moving, "pii", tables=["t"], options=RotationOptions(keep_version=True))
    assert (done.outcome, done.tables[0].verified) == ("done", True)
    assert done.rotation is not None and (done.rotation.version, done.rotation.made) == (1, False)
    assert under_former(lake, moving) == {"audit": 0, "footer": 0, "pii": 0}
    # Every key of a rewrapped file goes along, so nothing is left to do for the footer's.
    assert kinds_of(files_of(lake), service) == {"footer": {"vault"}, "pii": {"vault"}}
    assert (
        rotate_key(lake.spark, moving, "footer", tables=["t"], options=RotationOptions(keep_version=True)).outcome
        == "nothing to do"
    )
    moved = files_of(lake)
    assert {file.name: data_of_any(file, service) for file in moved if file.name in data} == data
    assert verify_table(lake.spark, "t", moving, manifest=True).ok
    left = check_keys(lake.spark, moving, tables=["t"], without_former=True).tables[0].unopened
    assert [entry.what for entry in left] == ["the audit's MAC key"]

    (lake.root / "keys").rename(lake.root / "keys-away")
    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    with lake.stranger() as session:
        configure(session, after)
        assert rows_of(session.table(lake.name("t"))) == rows
    assert read_by_arrow(lake, after) == [0, 1, 2, 3]
    (lake.root / "keys-away").rename(lake.root / "keys")

    victim = next(file for file in moved if file.name in data)
    original = victim.read_bytes()
    victim.write_bytes(original.replace(b"vault:v1:", b"local:v1:"))
    with pytest.raises(KeyServiceError, match="former key service of type 'local'"):
        read_footer(victim, retrieve_key=retrieve_by(service))
    where = b'"kmsInstanceID":"DEFAULT"', b'"kmsInstanceID":"local  "'  # what a file calls its service leads nowhere
    victim.write_bytes(original.replace(*where))
    assert victim.read_bytes() != original
    assert kinds_of([victim], service) == {"footer": {"vault"}, "pii": {"vault"}}
    victim.write_bytes(original)
    LocalKeyService(KeyServiceConfig.from_dict(local)).create("fin")
    stray = LocalKeyService(KeyServiceConfig.from_dict(local)).wrap("fin", bytes(16))
    with pytest.raises(KeyNotFoundError, match=r"Vault at .* 'fin'"):
        service.unwrap("fin", stray)


def under_former(lake: Lake, policy: Policy) -> dict[str, int]:
    """Return how many files are under a former key service, by master key, as `keys status` tells."""
    state_store = open_state_directory(lake.spark, policy.run_state, outside=f"{policy.run_state.rstrip('/')}/.nothing")
    found = key_statuses(state_store, open_key_service(policy.key_service), policy)
    return {status.key_id: status.former.files for status in found if status.key_id in KEYS}


def read_by_arrow(lake: Lake, policy: Policy) -> list[int]:
    """Return the numbers of the encrypted addresses, as pyarrow reads them."""
    folders = sorted({str(file.parent) for file in files_of(lake)})
    rows = open_table(folders, policy, tags={"email": ["pii"]}).to_table(columns=["email"])
    return sorted(int(email.as_py().removeprefix("e")) for email in rows["email"])


def data_of_any(file: Path, service: Any) -> bytes:
    """Return a file's bytes before its footer, with keys of any key service."""
    return file.read_bytes()[: read_footer(file, retrieve_key=retrieve_by(service)).offset]


CHAIN = (
    START
    + """
from sparkcrypt.runs.keys.rotate import RotationOptions, rotate_key
from sparkcrypt.spark.tables.tagging import set_tags
policies = [sparkcrypt.load_policy(path) for path in sys.argv[1:]]
sparkcrypt.configure(spark, policies[0])
spark.sql("CREATE TABLE t (id BIGINT, email STRING, amount DOUBLE, p INT) USING parquet PARTITIONED BY (p)")
set_tags(spark, "t", {"email": ["pii"]}, policies[0])
for policy in policies:
    sparkcrypt.configure(spark, policy)
    if policy is not policies[0]:
        for key in ("pii", "footer"):
            done = rotate_key(spark, policy, key, tables=["t"], options=RotationOptions(keep_version=True))
            assert done.outcome == {"pii": "done", "footer": "nothing to do"}[key], done.to_dict()
    spark.sql("INSERT INTO t SELECT 1, 'e', 1.0D, 0")
    spark.sql("REFRESH TABLE t")
    assert spark.table("t").where("email = 'e'").count() == policies.index(policy) + 1
done = rotate_key(spark, policies[-1], "pii", tables=["t"], options=RotationOptions(keep_version=True))
assert done.outcome == "done", done.to_dict()
spark.sql("REFRESH TABLE t")
print(json.dumps(spark.table("t").inputFiles()))
"""
)
READ = (
    START
    + """
sparkcrypt.configure(spark, sparkcrypt.load_policy(sys.argv[1]))
print("rows", spark.read.parquet(*json.loads(sys.argv[2])).where("email = 'e'").count())
"""
)


@pytest.mark.slow
@pytest.mark.services
def test_local_to_vault_to_aws(
    lake: Lake,
    vault_options: dict[str, Any],
    s3_server: MeddledS3,
    fresh_jvm: FreshJvm,
    private_jar: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each service is the former one of the next; a new JVM then reads all by the last alone, and none by the first."""
    environment = {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    local = {"type": "local", "path": str(lake.root / "keys")}
    amazon = {"type": "aws", "region": "eu-west-1", "endpoint": s3_server.endpoint}  # moto serves KMS as well
    steps = [
        local,
        {**vault_options, "former": [{**local, "keys": ["*"]}]},
        {**amazon, "former": [{**vault_options, "keys": list(KEYS)}, {**local, "keys": ["audit"]}]},
    ]
    for number, service in enumerate([*steps, amazon]):
        write_policy(lake.root, f"{number}.yaml", service)
    files = [lake.root / f"{number}.yaml" for number in range(3)]
    printed = run(fresh_jvm, CHAIN, *files, SPARKCRYPT_JAR=str(private_jar), **environment)
    paths = printed.splitlines()[-1]
    (lake.root / "keys").rename(lake.root / "keys-away")
    said = run(fresh_jvm, READ, lake.root / "3.yaml", paths, SPARKCRYPT_JAR=str(private_jar), **environment)
    assert said.split() == ["rows", "3"]
    (lake.root / "keys-away").rename(lake.root / "keys")
    refused = fresh_jvm(READ, lake.root / "0.yaml", paths, env={"SPARKCRYPT_JAR": str(private_jar), **environment})
    assert refused.returncode != 0
    assert "the wrapped key is not one of a local key service" in refused.stderr


def test_key_moves_to_another_id(lake: Lake) -> None:
    """`rotate --to` puts everything under the successor, footers too, once the policy says so, and no page is another.

    A policy that does not name it in the key's place is refused, with what to change.
    """
    before = make_tables(lake, "t")
    for number in range(3):
        write(lake, "t", number)
    key_service(before).create("contact")
    first, rows = files_of(lake), rows_of(lake.spark.table("t"))
    with pytest.raises(ConfigError, match="gives tag 'pii' the key 'pii'; name 'contact' there"):
        rotate(lake, before, "pii", successor="contact", tables=["t"])
    text = Path(before.run_state.removeprefix("file:")).parent / "policy.yaml"
    document = text.read_text()
    text.write_text(document.replace("pii: {key: pii}", "pii: {key: contact}"))
    with pytest.raises(ConfigError, match="no tag, and no footer, whose key is 'contact' with 'pii' under its history"):
        rotate(lake, load_policy(text), "pii", successor="contact", tables=["t"])
    text.write_text(document.replace("pii: {key: pii}", "pii: {key: contact, history: [pii]}"))
    after = load_policy(text)
    configure(lake.spark, after)
    with pytest.raises(ConfigError, match="--compromised gives new data keys"):
        rotate(lake, after, "pii", successor="contact", tables=["t"], compromised=True)
    planned = rotate(lake, after, "pii", successor="contact", tables=["t"], run={"dry_run": True})
    assert planned.exit_code == 2
    assert {action for unit in planned.tables[0].planned for action in unit["actions"]} == {"re-wrap"}
    assert rotate(lake, after, "pii", successor="contact", tables=["t"], max_bytes=1).outcome == "stopped at budget"
    done = rotate(lake, after, "pii", successor="contact", tables=["t"])
    assert (done.outcome, done.tables[0].verified) == ("done", True)
    assert done.rotation is not None
    assert done.rotation.to_dict() == {
        "key_id": "contact",
        "version": 1,
        "made": False,
        "rekeys": False,
        "predecessor": "pii",
    }
    moved = files_of(lake)
    assert {key: len(found) for key, found in keks_of(moved, after).items()} == dict.fromkeys(
        ("footer", "contact", "fin"), 1
    )
    assert {file.name: data_of(file, after) for file in moved} == {file.name: data_of(file, before) for file in first}
    assert rows_of(lake.spark.table("t")) == rows
    assert rotate(lake, after, "pii", successor="contact", tables=["t"]).outcome == "nothing to do"
