"""Decisions on keys: each asked for once, refusals kept for a moment, and nothing kept on a file's word."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError, KeyServiceUnavailableError
from sparkcrypt.keys.access_decisions import KeyDecisions, RefusalKeeper
from sparkcrypt.keys.service import KeyService
from tests.unit.keys.conftest import opened
from tests.unit.keys.counting import CountingKeyService


class Denying(CountingKeyService):
    """A key service that denies one key, cannot be reached for another, and has no verb for it."""

    may = KeyService.may

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Refuse, or unwrap."""
        key = super().unwrap(key_id, wrapped)
        if key_id == "denied":
            raise KeyAccessDeniedError("denied")
        if key_id == "down":
            raise KeyServiceUnavailableError("down")
        return key


@pytest.fixture
def local(tmp_path: Path) -> KeyService:
    """A key service with three keys."""
    service = opened(type="local", path=str(tmp_path / "keys"))
    for key_id in ("pii", "denied", "down"):
        service.create(key_id)
    return service


def test_a_verb_is_asked_once_for_a_key(local: KeyService) -> None:
    """A service that has the verb is asked for each key once, without anything to unwrap."""
    counted = CountingKeyService(local)
    decisions = KeyDecisions(counted)
    for _ in range(3):
        assert decisions.decide(["pii", "gone", "pii"], {}) == {"pii": "allowed", "gone": "shredded"}
    assert counted.count_by_key("may") == {"pii": 1, "gone": 1}
    assert counted.unwraps == 0


def test_without_a_verb_one_kek_is_unwrapped(local: KeyService) -> None:
    """Else a KEK of the table decides; without one nothing is decided, and no answer is no decision."""
    service = Denying(local)
    keks = {key_id: local.wrap(key_id, bytes(32)) for key_id in ("pii", "denied", "down")}
    decisions = KeyDecisions(service)
    assert decisions.decide(["pii", "denied"], {}) == {}
    for _ in range(3):
        assert decisions.decide(["pii", "denied"], keks) == {"pii": "allowed", "denied": "denied"}
    assert service.count_by_key("unwrap") == {"pii": 1, "denied": 1}
    with pytest.raises(KeyServiceUnavailableError):
        decisions.decide(["down"], keks)


def test_a_denied_key_is_one_call_for_many_files(local: KeyService) -> None:
    """Whatever it wrapped, a denied key is refused again without a call, for as long as refusals are kept."""
    service = Denying(local)
    keeper = RefusalKeeper(service)
    for number in range(50):
        with pytest.raises(KeyAccessDeniedError):
            keeper.unwrap("denied", local.wrap("denied", bytes([number] * 32)))
    assert service.unwraps == 1
    brief = RefusalKeeper(service, seconds=0)
    for _ in range(2):
        with pytest.raises(KeyAccessDeniedError):
            brief.unwrap("denied", local.wrap("denied", bytes(32)))
    assert service.unwraps == 3


def test_a_file_cannot_have_a_key_refused(local: KeyService) -> None:
    """A wrapped key that names a version that is not there is refused alone; the key opens what it wrapped."""
    keeper = RefusalKeeper(local)
    wrapped = local.wrap("pii", bytes(32))
    for _ in range(2):
        with pytest.raises(KeyNotFoundError):
            keeper.unwrap("pii", wrapped.replace(":v1:", ":v9:"))
    assert keeper.unwrap("pii", wrapped) == bytes(32)
    for _ in range(2):
        with pytest.raises(KeyServiceUnavailableError):
            RefusalKeeper(Denying(local)).unwrap("down", local.wrap("down", bytes(32)))
