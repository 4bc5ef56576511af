"""Who may take which tags off."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt.decide.judge_write import check_declassified
from sparkcrypt.errors import BridgeError, ConfigError, PlanError
from tests.unit.decide.requests import policy

ALLOWED = {"principals": ["ann", "etl"], "tags": ["pii"]}
LOG = {"location": "/var/log/access"}


def request(rule: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a request to take the tag pii off a column."""
    said = policy(declassify=rule, access_log=LOG) if rule else policy()
    asked = {"principal": "ann", "reason": "ticket 17", "tags": ["pii"], "columns": {"a.b": ["ssn"]}}
    return {"policy": said, **asked, **changes}


def test_nobody_unless_the_policy_says_so() -> None:
    """Principal and every tag must be named; the message has column, reason and what is allowed."""
    check_declassified(request(ALLOWED))
    with pytest.raises(PlanError, match=r"declassify\(a\.b\.ssn, 'ticket 17'\): the policy allows nobody"):
        check_declassified(request())
    with pytest.raises(PlanError, match="bob may not take tags off; allowed: ann, etl"):
        check_declassified(request(ALLOWED, principal="bob"))
    with pytest.raises(PlanError, match="the tag 'finance' may not be taken off; allowed: pii"):
        check_declassified(request(ALLOWED, tags=["pii", "finance"]))
    with pytest.raises(BridgeError, match="'columns' are 7"):
        check_declassified(request(ALLOWED, columns=7))


@pytest.mark.parametrize(
    ("rule", "log", "message"),
    [
        (ALLOWED, None, "there is none; add access_log"),
        ({**ALLOWED, "tags": ["nosuch"]}, LOG, "tag 'nosuch' is not defined under 'tags'"),
        ({**ALLOWED, "tags": []}, LOG, "names nobody and nothing"),
        ({**ALLOWED, "who": ["ann"]}, LOG, "who: is not a known key"),
    ],
)
def test_policy_that_could_not_be_followed(rule: dict[str, Any], log: dict[str, str] | None, message: str) -> None:
    """Each use must be recorded, and each name must mean something."""
    with pytest.raises(ConfigError, match=message):
        policy(declassify=rule, **({"access_log": log} if log else {}))
