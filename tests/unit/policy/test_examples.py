"""The examples in conf/ are policies, and say what their comments say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt.keys.provider import read_options
from sparkcrypt.keys.vault.session import AUTH_OPTIONS, VaultOptions
from sparkcrypt.policy import policy_from_canonical
from sparkcrypt.policy.load import load_policy

CONF = Path(__file__).parents[3] / "conf"
EXAMPLES = sorted(CONF.glob("*.yaml"))
DIGESTS = {
    "minimal": "25c488f97c70dda248323df0221aaf66cc61a26f3ddfa9c8ee212703caa12e16",
    "per_table": "a7cae29554bb88ab501070ecd41157529b42e113b65aff715088272741038187",
    "retention": "79b6e7553c8306cceb2e19b2676082eec17720fdd250a3612aa2f0f88a4f449d",
    "vault": "fc06c020d3ef3274fa8ee433bef43ed3f74a1149cd63539dcfc428e3f8bf18b9",
}
"""Digests of the examples, with their folder at /etc/sparkcrypt."""


def test_there_are_the_four_promised_examples() -> None:
    """The folder holds a minimal, a retention, a Vault and a per-table example."""
    assert {path.stem for path in EXAMPLES} >= {"minimal", "retention", "vault", "per_table"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_loads_and_travels(path: Path) -> None:
    """Every example loads, and its canonical JSON is the same policy with the same digest."""
    policy = load_policy(path)
    again = policy_from_canonical(policy.canonical())
    assert again == policy
    assert again.digest() == policy.digest()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_digest_stays(path: Path) -> None:
    """The digest of a policy does not change with the code: another would end every unfinished run."""
    canonical = load_policy(path).canonical().replace(str(CONF), "/etc/sparkcrypt")
    if path.stem in DIGESTS:
        assert policy_from_canonical(canonical).digest() == DIGESTS[path.stem]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_listed(path: Path) -> None:
    """The folder's README names every example."""
    assert f"({path.name})" in (CONF / "README.md").read_text(encoding="utf-8")


def test_retention_example_has_a_key_for_each_month() -> None:
    """Two days of a month share a key and two months do not."""
    rule = load_policy(CONF / "retention.yaml").tag("contact")
    assert rule is not None and rule.key is not None
    rendered = [rule.key.render({"ingest_date": day}) for day in ("2026-01-01", "2026-01-31", "2026-02-01")]
    assert rendered == ["contact-2026-01", "contact-2026-01", "contact-2026-02"]
    assert rule.retention_seconds == 400 * 86400


def test_vault_example_shows_every_way_to_log_in() -> None:
    """Each login method that the Vault key service has is shown, and the one in force is taken by it."""
    text = (CONF / "vault.yaml").read_text(encoding="utf-8")
    assert all(f"method: {method}" in text for method in AUTH_OPTIONS)
    options = read_options(VaultOptions, load_policy(CONF / "vault.yaml").key_service, {})
    assert options.auth.method == "kubernetes"


def test_per_table_example_has_each_option() -> None:
    """The per-table example sets required encryption, overlay, footer mode, observing only and a location."""
    policy = load_policy(CONF / "per_table.yaml")
    assert policy.table("Sales.Customers").require_encryption
    assert dict(policy.table("sales.customers").tags)["orders.element.card_number"] == ("pii", "finance")
    assert policy.table("sales.orders").footer_mode == "plaintext"
    assert not policy.table("spark_catalog.sales.returns").enforce
    assert policy.table("clickstream").location == "hdfs://namenode/data/clickstream"
