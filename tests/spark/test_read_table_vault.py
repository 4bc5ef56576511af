"""``read_table`` with a token that Vault lets use some keys and not others: denied is not missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import load_policy, masked_columns, read_table
from sparkcrypt.errors import KeyAccessDeniedError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.read import ReadReport
from sparkcrypt.spark.setup.session import configure
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, refusal, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.services]

POLICY = """
version: 1
key_service: {{type: vault, address: "{address}", auth: {{method: token, token_file: {token}}}}}
footer: {{key: read-footer, mode: encrypted}}
untagged: plaintext
run_state: state/
tags:
  pii: {{key: read-pii}}
  fin: {{key: read-fin}}
"""
MAY = """
path "transit/keys/*" {{ capabilities = ["read"] }}
path "transit/decrypt/{}" {{ capabilities = ["update"] }}
path "transit/decrypt/{}" {{ capabilities = ["update"] }}
"""


def with_token(policy: Policy, file: Path, token: str) -> Policy:
    """Return a policy whose credentials are another token."""
    file.write_text(token)
    file.chmod(0o600)
    options: dict[str, Any] = dict(policy.key_service.options)
    options["auth"] = {"method": "token", "token_file": str(file)}
    return replace(policy, key_service=KeyServiceConfig.from_dict({"type": "vault", **options}))


@pytest.fixture
def policy(lake: Lake, vault: Any) -> Policy:
    """The policy of a table that was written with a token that may do everything."""
    (lake.root / "root-token").write_text(vault.root_token)
    (lake.root / "root-token").chmod(0o600)
    file = lake.root / "policy.yaml"
    file.write_text(POLICY.format(address=vault.address, token=lake.root / "root-token"))
    policy = load_policy(file)
    service = open_key_service(policy.key_service)
    for key in ("read-footer", "read-pii", "read-fin"):
        service.create(key)
    configure(lake.spark, policy)
    lake.sql("CREATE TABLE t (id INT, email STRING, salary DECIMAL(9,2)) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"], "salary": ["fin"]}, policy)
    lake.sql("INSERT INTO t VALUES (1, 'a', 10.50), (2, 'b', 20.25)")
    return policy


def test_a_denied_key_is_an_error_that_names_the_column(lake: Lake, vault: Any, policy: Policy) -> None:
    """The query that touches the column fails by its name and as denied; other columns stay readable."""
    token = vault.token(MAY.format("read-footer", "read-fin"))
    reader = with_token(policy, lake.root / "reader-token", token)
    frame = read_table(lake.spark, "t", reader, on_denied="error")
    assert rows_of(frame.select("id", "salary").selectExpr("id", "cast(salary AS STRING)")) == [
        (1, "10.50"),
        (2, "20.25"),
    ]
    said = refusal(frame.select("email").collect)
    assert "KeyAccessDeniedError: column email of table" in said
    assert "its key 'read-pii' is denied to " in said
    assert token not in said
    assert "KeyAccessDeniedError" in refusal(frame.collect)


def test_denied_columns_are_typed_nulls_and_reported(lake: Lake, vault: Any, policy: Policy) -> None:
    """Nulls have the column's type and tags, other columns their values, and the report names what was denied."""
    reader = with_token(policy, lake.root / "reader-token", vault.token(MAY.format("read-footer", "read-pii")))
    reports: list[ReadReport] = []
    frame = read_table(lake.spark, "t", reader, on_denied="mask", report=reports.append)
    assert rows_of(frame) == [(1, "a", None), (2, "b", None)]
    assert frame.schema["salary"].dataType.simpleString() == "decimal(9,2)"
    assert frame.schema["salary"].metadata["tags"] == ["fin", "!masked"]
    assert masked_columns(frame) == {"salary": "key read-fin of tag fin is denied"}
    assert [report.to_dict() for report in reports] == [{"table": "t", "on_denied": "mask", "denied": ["salary"]}]


def test_nothing_is_reported_as_denied_to_who_holds_every_key(lake: Lake, policy: Policy) -> None:
    """Both modes give the rows, and a report without a denied column."""
    reports: list[ReadReport] = []
    for mode in ("error", "mask"):
        frame = read_table(lake.spark, "t", policy, on_denied=mode, report=reports.append)
        assert [row["email"] for row in rows_of(frame)] == ["a", "b"]
    assert [(report.on_denied, report.denied) for report in reports] == [("error", ()), ("mask", ())]


def test_a_denied_footer_key_is_an_error_in_either_mode(lake: Lake, vault: Any, policy: Policy) -> None:
    """Without the footer key no column can be told from another, so there is nothing to put nulls into."""
    reader = with_token(policy, lake.root / "reader-token", vault.token(MAY.format("read-pii", "read-fin")))
    with pytest.raises(KeyAccessDeniedError, match="read-footer"):
        read_table(lake.spark, "t", reader, on_denied="mask")
    assert "KeyAccessDeniedError" in refusal(lambda: read_table(lake.spark, "t", reader).collect())
