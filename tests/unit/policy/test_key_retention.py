"""Buckets: the last day of a key's data, and when these are past their retention."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
import yaml

from sparkcrypt.policy.build import policy_from_document
from sparkcrypt.policy.key_retention import bucket_end, retention_of_key
from sparkcrypt.policy.template import KeyTemplate

POLICY = """
version: 1
key_service: {type: local, path: /keys}
footer: {key: footer, mode: encrypted, history: [old-footer]}
audit: {key: audit}
untagged: plaintext
run_state: /state
tags:
  pii: {key: pii, retention: 1d, history: ["contact-2020-01"]}
  contact: {key: "contact-{d:%Y-%m}", retention: 30d}
  tenant: {key: "tenant-{t}", retention: 52w}
  endless: {key: "endless-{d:%Y}"}
  weekly: {key: "w-{d:%G-%V}-{t}", retention: 7d}
  late: {key: "late-{d:%Y}", retention: 36500d}
"""


@pytest.mark.parametrize(
    ("template", "key_id", "end"),
    [
        ("contact-{d:%Y-%m}", "contact-2026-01", "2026-02-01"),
        ("contact-{d:%Y-%m}", "contact-2024-02", "2024-03-01"),
        ("{d:%Y-%m-%d}", "2026-12-31", "2027-01-01"),
        ("k{d:%Y}", "k2026", "2027-01-01"),
        ("{d:%Y%j}", "2024366", "2025-01-01"),
        ("{d:%G-%V}", "2026-53", "2027-01-04"),
        ("{d:%G-%V}", "2025-01", "2025-01-06"),
        ("{d:%Y-%V}", "2024-01", "2025-01-01"),  # the first days of January, and the last two of December
        ("{d:%Y-%U}", "2026-00", "2026-01-04"),
        ("{d:%y-%m}", "26-01", "2026-02-01"),
        ("{d:%y}", "69", "1970-01-01"),
        ("{d:%Y-%m-%d.%H}", "2026-01-31.23", "2026-02-01"),
        ("{d:%Y}/{d:%m}", "2026/02", "2026-03-01"),
        ("{t}-{d:%Y-%m}", "acme-2025-01-2026-01", "2026-02-01"),
        ("{d:%Y}{t}{d:%m}", "2026x01x02", "2026-03-01"),
        ("{{{d:%Y}}}", "{2026}", "2027-01-01"),
        ("{d:%Y}", "9998", "9999-01-01"),
    ],
)
def test_bucket_ends_with_its_last_day(template: str, key_id: str, end: str) -> None:
    """The end is midnight in UTC after the last day whose date gives the key."""
    assert bucket_end(KeyTemplate(template), key_id) == datetime.fromisoformat(end).replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("template", "key_id"),
    [
        ("tenant-{t}", "tenant-2026-01"),
        ("pii", "pii"),
        ("{d:%m-%d}", "01-31"),  # of every year
        ("{a:%Y}-{b:%m}", "2026-01"),  # dates of two columns
        ("contact-{d:%Y-%m}", "contact-2026-13"),
        ("contact-{d:%Y-%m}", "contact-26-01"),
        ("contact-{d:%Y-%m}", "contact-2026-01 "),
        ("contact-{d:%Y-%m}", "other-2026-01"),
        ("{d:%Y}{t}", "2026" + "1" * 600),
        ("{d:%Y}", "9999"),
        ("{d:%Y}", "0000"),
        ("{a}{b}{c}{d:%Y}", "xxx2026"),
    ],
)
def test_no_end_where_the_id_does_not_tell_one(template: str, key_id: str) -> None:
    """Without a date, a year or a single reading nothing is ever due."""
    assert bucket_end(KeyTemplate(template), key_id) is None


@pytest.mark.parametrize("key_id", ["k20262026", "k12026"])
def test_id_that_can_be_read_in_two_ways_tells_no_date(key_id: str) -> None:
    """A tenant beside a year without a sign between them: where two readings differ no date is believed."""
    end = bucket_end(KeyTemplate("k{t}{d:%Y}{u}"), f"{key_id}2027")
    assert end is None


def test_retention_is_over_after_the_last_day_and_the_longest_retention() -> None:
    """Thirty days after the end of January; one second earlier it is not over."""
    policy = policy_from_document(yaml.safe_load(POLICY), locate=str)
    kept = retention_of_key(policy, "contact-2026-01")
    over = datetime(2026, 3, 3, tzinfo=timezone.utc)
    assert (kept.over_at, kept.tags, kept.reason) == (over, ("contact",), None)
    assert (kept.is_over(over), kept.is_over(over - timedelta(seconds=1))) == (True, False)
    assert retention_of_key(policy, "w-2026-01-acme").over_at == datetime(2026, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("key_id", "reason", "by_name"),
    [
        ("footer", "a key of footers", False),
        ("old-footer", "a key of footers", False),
        ("audit", "a key of audits", False),
        ("pii", "for all dates", False),
        ("contact-2020-01", "in the history of tag 'pii'", False),
        ("tenant-acme", "no date stands in it", True),
        ("contact-2026-13", "no date stands in it", False),
        ("endless-2020", "tag 'endless' has no retention", False),
        ("unknown", "no tag of the policy gives it", False),
        ("late-9990", "after the year 9999", False),
    ],
)
def test_key_without_a_date_is_never_over(key_id: str, reason: str, by_name: bool) -> None:
    """Keys of footers and audits, of all dates, of history, without date or retention: each says why."""
    kept = retention_of_key(policy_from_document(yaml.safe_load(POLICY), locate=str), key_id)
    assert (kept.over_at, kept.by_name) == (None, by_name)
    assert kept.reason is not None
    assert reason in kept.reason
