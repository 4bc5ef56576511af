"""A month's key of AWS KMS shredded on a real table, over moto's server.

Moto goes on decrypting with keys that wait for their deletion, which AWS does not; so the test answers such calls as
AWS documents it (``KMSInvalidStateException``).  Before that, the command must find out that the key still unwraps.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshJvm
from tests.services.meddled_s3 import MeddledS3
from tests.spark.fresh_scripts import START, run
from tests.spark.shredding import NEXT, OLD, TAGS

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]
REGION, ACCOUNT = "eu-west-1", "123456789012"
POLICY = """
version: 1
key_service: {{type: aws, region: {region}, endpoint: "{endpoint}", alias_prefix: shred/}}
footer: {{key: footer, mode: encrypted}}
audit: {{key: audit}}
untagged: plaintext
run_state: state/
tags:{tags}
"""
SCRIPT = (
    START
    + """
from pathlib import Path
from sparkcrypt.runs.keys.apply_shredding import ShredOptions, shred_keys
from sparkcrypt.runs.keys.find_shreddable import Selection
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.spark.tables.tagging import set_tags
root, keys = Path(sys.argv[1]), sys.argv[2].split()
policy = sparkcrypt.load_policy(root / "policy.yaml")
service = open_key_service(policy.key_service)
for key_id in keys:
    service.create(key_id)
sparkcrypt.configure(spark, policy)
spark.sql("CREATE TABLE t (id INT, email STRING, ssn STRING, d STRING) USING parquet PARTITIONED BY (d)")
set_tags(spark, "t", {"email": ["contact"], "ssn": ["pii"]}, policy)
rows = "('2025-01-05', 1), ('2025-02-01', 3), ('2026-10-01', 4)"
spark.sql(f"INSERT INTO t SELECT n, nullif(concat('e', n), ''), concat('s', n), d FROM VALUES {rows} AS v(d, n)")
def shred():
    return shred_keys(spark, policy, Selection(("t",)), ShredOptions(None, None, attended=True), confirm=lambda _: None)
try:
    early = shred().to_dict()
except VerificationError as error:
    early = str(error)
(root / "as_aws").touch()
report = shred()
reader = spark.newSession()
kept = sorted(tuple(row) for row in reader.table("t").select("id", "ssn").collect())
new = [row.email for row in reader.table("t").where("d = '2026-10-01'").select("email").collect()]
try:
    dark = str(reader.table("t").where("d = '2025-01-05'").select("email").collect())
except Exception as error:
    dark = str(error)
print("RESULT", json.dumps(dict(early=early, report=report.to_dict(), kept=kept, new=new, dark=dark)))
"""
)


def state_of(name: str) -> str:
    """Return the state of a key in moto, by its alias."""
    from moto.kms.models import kms_backends

    backend = kms_backends[ACCOUNT][REGION]
    return str(backend.keys[backend.get_key_id(backend.any_id_to_key_id(name))].key_state)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MeddledS3]:
    """Moto's server, which refuses keys that wait for their deletion once the script says so."""
    running = MeddledS3()

    def meddle(environ: dict[str, Any], serve: Callable[[], Any]) -> Any:
        verb = str(environ.get("HTTP_X_AMZ_TARGET", "")).rpartition(".")[2]
        if verb not in {"Encrypt", "Decrypt"} or not (tmp_path / "as_aws").exists():
            return serve()
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = io.BytesIO(body)
        name = json.loads(body)["KeyId"]
        if state_of(name) != "PendingDeletion":
            return serve()
        told = {"__type": "KMSInvalidStateException", "message": f"{name} is pending deletion."}
        return "400 Bad Request", [("Content-Type", "application/x-amz-json-1.1")], json.dumps(told).encode()

    running.meddle = meddle
    yield running
    running.stop()


def test_due_keys_of_aws_are_shredded(server: MeddledS3, tmp_path: Path, fresh_jvm: FreshJvm) -> None:
    """A key that still unwraps gets no tombstone; once AWS refuses it, it has one that counts its waiting period."""
    (tmp_path / "policy.yaml").write_text(POLICY.format(region=REGION, endpoint=server.endpoint, tags=TAGS))
    keys = f"footer audit pii {OLD} {NEXT} contact-2026-10"
    credentials = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
    output = run(fresh_jvm, SCRIPT, tmp_path, keys, **credentials, AWS_EC2_METADATA_DISABLED="true")
    told = json.loads(output.partition("RESULT ")[2])
    assert "still unwraps what it wrapped" in told["early"]
    report = told["report"]
    assert report["outcome"] == "done"
    assert [key["key_id"] for key in report["shredded"]] == [OLD, NEXT]
    for key in report["shredded"]:
        effective = datetime.strptime(key["effective_at"][:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
        assert timedelta(days=29) < effective - datetime.now(timezone.utc) <= timedelta(days=30, hours=1)
        assert "kms:CancelKeyDeletion" in key["promise"]
    assert told["kept"] == [[1, "s1"], [3, "s3"], [4, "s4"]]
    assert told["new"] == ["e4"]
    assert OLD in told["dark"]
