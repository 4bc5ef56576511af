"""The examples in conf/ are policies, and say what their comments say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt.keys.vault_options import AUTH_OPTIONS, vault_options
from sparkcrypt.policy import policy_from_canonical
from sparkcrypt.policy.load import load_policy

CONF = Path(__file__).parents[3] / "conf"
EXAMPLES = sorted(CONF.glob("*.yaml"))


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
    options = vault_options(load_policy(CONF / "vault.yaml").key_service, {})
    assert options.auth.method == "kubernetes"


def test_per_table_example_has_each_option() -> None:
    """The per-table example sets required encryption, overlay, footer mode, observing only and a location."""
    policy = load_policy(CONF / "per_table.yaml")
    assert policy.table("Sales.Customers").require_encryption
    assert dict(policy.table("sales.customers").tags)["orders.element.card_number"] == ("pii", "finance")
    assert policy.table("sales.orders").footer_mode == "plaintext"
    assert not policy.table("spark_catalog.sales.returns").enforce
    assert policy.table("clickstream").location == "hdfs://namenode/data/clickstream"
