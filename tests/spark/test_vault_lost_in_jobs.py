"""Jobs that lose the key service while they write: one clear error that names the key, and no file of theirs."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pandas
import pytest

from sparkcrypt import load_policy
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.tagging import set_tags
from tests.services.vault_server import start_vault
from tests.spark.support import Lake, data_files, refusal

pytestmark = [pytest.mark.spark, pytest.mark.services]

POLICY = """
version: 1
key_service: {{type: vault, address: "{address}", max_retries: 1, auth: {{method: token, token_file: {token}}}}}
footer: {{key: lost-footer, mode: encrypted}}
untagged: plaintext
run_state: state/
tags:
  month: {{key: "lost-{{d:%Y-%m}}"}}
"""
KEYS = ("lost-footer", "lost-2026-01", "lost-2026-02")
MAY = 'path "transit/*" { capabilities = ["create", "read", "update"] }'
MAY_NOT = 'path "transit/keys/*" { capabilities = ["read"] }'


@pytest.fixture
def server() -> Iterator[Any]:
    """A Vault of the test's own, which it may seal."""
    own = start_vault()
    yield own
    own.stop()


LOSSES = {
    "a right that is taken": ("PUT", "sys/policies/acl/{policy}", {"policy": MAY_NOT}, "KeyAccessDeniedError"),
    "a token that is revoked": ("POST", "auth/token/revoke", {"token": "{token}"}, "KeyAccessDeniedError"),
    "a server that is sealed": ("POST", "sys/seal", {}, "KeyServiceUnavailableError"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_job_that_loses_its_keys_leaves_nothing(lake: Lake, server: Any, loss: str) -> None:
    """The first month's file is begun when it happens, between two rows of one task; the second month's key is not had.

    What was there before stays as it was.
    """
    method, path, body, error = LOSSES[loss]
    token, file = server.token(MAY), lake.root / "token"
    file.write_text(token)
    file.chmod(0o600)
    (lake.root / "policy.yaml").write_text(POLICY.format(address=server.address, token=file))
    policy = load_policy(lake.root / "policy.yaml")
    service = open_key_service(policy.key_service)
    for key_id in KEYS:
        service.create(key_id)
    configure(lake.spark, policy)
    lake.spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "4")  # rows are written as they come
    lake.sql("CREATE TABLE t (id INT, email STRING, d STRING) USING parquet PARTITIONED BY (d)")
    set_tags(lake.spark, "t", {"email": ["month"]}, policy)
    lake.sql("INSERT INTO t PARTITION (d = '2026-01-01') SELECT 1, 'before'")
    before = {file: file.read_bytes() for file in data_files(lake.path("t"))}
    assert len(before) == 1

    text = json.dumps(body).replace("{token}", token)
    url = f"{server.address}/v1/{path.format(policy=server.policy(MAY))}"
    root = server.root_token

    def rows(batches: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        for _ in batches:
            yield pandas.DataFrame({"id": [2], "email": ["a"], "d": ["2026-01-05"]})
            headers = {"X-Vault-Token": root, "X-Vault-Request": "true"}
            request = urllib.request.Request(url, method=method, data=text.encode(), headers=headers)
            urllib.request.urlopen(request, timeout=30).close()
            yield pandas.DataFrame({"id": [3], "email": ["b"], "d": ["2026-02-05"]})

    frame = lake.spark.range(1, numPartitions=1).mapInPandas(rows, "id INT, email STRING, d STRING")
    said = refusal(lambda: frame.write.insertInto("t"))
    assert error in said
    assert "lost-2026-02" in said
    assert token not in said
    assert {file: file.read_bytes() for file in data_files(lake.path("t"))} == before
