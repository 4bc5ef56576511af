from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import pytest

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, KeyServiceUnavailableError
from sparkcrypt.keys import steady
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import Decision, KeyDescription, KeyService, OptionalVerb
from sparkcrypt.keys.steady import FAILURES, Breaker, RetryBudget, SteadyKeyService
from sparkcrypt.policy.key_service import Endurance, KeyServiceConfig, endurance_of, replicas_of

KEY = b"k" * 16
T = TypeVar("T")


class _Scripted(KeyService):
    """A key service that fails as it is told; a real one does not do so on demand."""

    retries_itself = False

    def __init__(self, *failures: Exception | None, name: str = "scripted", seconds: float = 0.0) -> None:
        self.failures, self.name, self.seconds = list(failures), name, seconds
        self.calls = 0

    def __repr__(self) -> str:
        return self.name

    def _do(self, result: T) -> T:
        self.calls += 1
        time.sleep(self.seconds)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return result

    def wrap(self, key_id: str, key: bytes) -> str:
        return self._do("wrapped")

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        return self._do(KEY)

    def describe(self, key_id: str) -> KeyDescription:
        return self._do(KeyDescription(key_id, 1, None))

    def create(self, key_id: str) -> KeyDescription:
        return self._do(KeyDescription(key_id, 1, None))

    def list_keys(self) -> tuple[KeyDescription, ...]:
        return self._do(tuple[KeyDescription, ...]())


class _Able(_Scripted):
    """One with every optional verb."""

    def may(self, key_ids: Collection[str]) -> Mapping[str, Decision]:
        allowed: Decision = "allowed"
        return self._do(dict.fromkeys(key_ids, allowed))

    def credential_identity(self) -> bytes:
        return b"me"

    def rotate(self, key_id: str) -> KeyDescription:
        return self._do(KeyDescription(key_id, 2, None))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are short."""
    monkeypatch.setattr(steady, "BACKOFF_SECONDS", 0.001)


def down(times: int) -> list[Exception | None]:
    """Return so many failures that pass."""
    return [KeyServiceUnavailableError("down") for _ in range(times)]


def test_what_passes_is_tried_again_as_often_as_is_allowed() -> None:
    """Two failures and an answer are a success; one failure too many is the last one, with how often it was tried."""
    scripted = _Scripted(*down(2))
    assert SteadyKeyService([scripted], Endurance(max_retries=2)).unwrap("pii", "w") == KEY
    with pytest.raises(KeyServiceUnavailableError, match=r"^down; this is the answer after 2 retries"):
        SteadyKeyService([_Scripted(*down(3))], Endurance(max_retries=2)).unwrap("pii", "w")


@pytest.mark.parametrize("refusal", [KeyAccessDeniedError("no"), KeyNotFoundError("none"), ConfigError("wrong")])
def test_refusals_are_final(refusal: Exception) -> None:
    """A refusal is passed on as it is, asked for once, and says nothing against the service or its replica."""
    first, second = _Scripted(*[refusal] * 9), _Scripted()
    guarded = SteadyKeyService([first, second], Endurance())
    for _ in range(9):
        with pytest.raises(type(refusal), match=str(refusal)):
            guarded.unwrap("pii", "w")
    assert (first.calls, second.calls) == (9, 0)


def test_the_next_address_serves_what_reads_and_makes_no_key() -> None:
    """While the first place is down the next one serves; keys are made and rotated at the first alone."""
    first, second = _Able(*down(99), name="first"), _Able(name="second")
    guarded: Any = SteadyKeyService([first, second], Endurance(max_retries=0))
    assert guarded.wrap("pii", KEY) == "wrapped"
    assert guarded.may(["pii"]) == {"pii": "allowed"}
    for change in (guarded.create, guarded.rotate):
        calls = second.calls
        with pytest.raises(KeyServiceUnavailableError, match="down"):
            change("pii")
        assert second.calls == calls


def test_breaker_lets_a_service_alone_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten failures in a row none is asked for a while; then one probe is, and its success opens the way."""
    monkeypatch.setattr(steady, "PAUSE_SECONDS", 0.3)
    scripted = _Scripted(*down(FAILURES), name="vault at x")
    guarded = SteadyKeyService([scripted], Endurance(max_retries=0))
    for _ in range(FAILURES):
        with pytest.raises(KeyServiceUnavailableError, match=r"^down$"):
            guarded.unwrap("pii", "w")
    started = time.monotonic()
    with pytest.raises(KeyServiceUnavailableError, match=r"vault at x failed 10 times.*asked again in"):
        guarded.unwrap("pii", "w")
    assert (scripted.calls, time.monotonic() - started < 0.1) == (FAILURES, True)
    time.sleep(0.35)
    assert guarded.unwrap("pii", "w") == KEY


def test_one_probe_at_a_time_goes_to_a_service_that_was_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many threads that want to know whether it is back, one asks; a failed probe lengthens the pause."""
    monkeypatch.setattr(steady, "PAUSE_SECONDS", 0.1)
    circuit = Breaker()
    for _ in range(FAILURES):
        circuit.note_failure()
    time.sleep(0.12)
    waits = [circuit.seconds_to_wait() for _ in range(8)]
    assert waits.count(0.0) == 1
    circuit.note_failure()
    assert 0.1 < circuit.seconds_to_wait() <= 0.2


def test_budget_bounds_the_retries_of_a_process() -> None:
    """However many calls fail, retries beyond the budget are not made; it refills with time."""
    budget = RetryBudget(at_once=2, per_second=20)
    assert [budget.take() for _ in range(4)] == [True, True, False, False]
    time.sleep(0.06)
    assert budget.take()


def test_call_that_hangs_ends_at_the_deadline() -> None:
    """A provider that never answers costs its caller the deadline and no more, and the error says what to do."""
    started = time.monotonic()
    with pytest.raises(KeyServiceUnavailableError, match=r"slow did not answer within the 0\.2 s.*deadline_seconds"):
        SteadyKeyService([_Scripted(name="slow", seconds=2)], Endurance(deadline_seconds=0.2)).unwrap("pii", "w")
    assert time.monotonic() - started < 1


def test_calls_of_many_threads_go_on_side_by_side() -> None:
    """A slow call holds up no other: nothing is locked while a service is asked."""
    guarded = SteadyKeyService([_Scripted(seconds=0.3)], Endurance())
    threads = [threading.Thread(target=guarded.unwrap, args=("pii", "w")) for _ in range(10)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 1.5


def test_optional_verbs_are_those_of_the_provider() -> None:
    """What asks whether a service has a verb gets the provider's answer, guarded or not."""
    plain, able = SteadyKeyService([_Scripted()], Endurance()), SteadyKeyService([_Able()], Endurance())
    verbs: tuple[OptionalVerb, ...] = ("may", "credential_identity", "rotate")
    assert [(plain.offers(verb), able.offers(verb)) for verb in verbs] == [(False, True)] * 3
    assert (plain.may(["pii"]), plain.credential_identity()) == ({}, b"")
    with pytest.raises(ConfigError, match=r"\(_Scripted\) has no 'rotate', which was asked of key 'pii'"):
        plain.rotate("pii")
    assert able.credential_identity() == b"me"
    assert able.rotate("pii").versions == 2


def test_provider_that_retries_itself_is_asked_once() -> None:
    """Vault's client tries again by itself: the guard adds no tries to those."""
    scripted = _Scripted(*down(1))
    scripted.retries_itself = True
    with pytest.raises(KeyServiceUnavailableError, match=r"^down$"):
        SteadyKeyService([scripted], Endurance()).unwrap("pii", "w")
    assert scripted.calls == 1


def test_built_in_services_over_a_network_are_guarded_and_local_ones_are_not(tmp_path: Any) -> None:
    """Opening says which: what needs no network has no deadline, and a third party's service is as it was."""
    remote = KeyServiceConfig.from_dict({"type": "vault", "address": "https://v", "deadline_seconds": 3})
    assert isinstance(open_key_service(remote), SteadyKeyService)
    local = KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path)})
    assert not isinstance(open_key_service(local), SteadyKeyService)


def config(**options: Any) -> KeyServiceConfig:
    """Return a configuration of Vault."""
    return KeyServiceConfig.from_dict({"type": "vault", **options})


def test_bounds_are_read_from_the_configuration() -> None:
    """Deadline, retries and grace have usual values, and a policy may say others."""
    assert endurance_of(config()) == Endurance(60.0, 5, 0)
    said = config(deadline_seconds=3, max_retries=0, serve_stale_for="15m")
    assert endurance_of(said) == Endurance(3.0, 0, 900)


@pytest.mark.parametrize(
    "make",
    [
        lambda: endurance_of(config(deadline_seconds=True)),
        lambda: endurance_of(config(max_retries=1.5)),
        lambda: endurance_of(config(serve_stale_for="1y")),
        lambda: replicas_of(config(addresses="https://a")),
        lambda: replicas_of(config(addresses=["https://a", "https://a"])),
        lambda: replicas_of(config(addresses=["https://a"], address="https://a")),
    ],
)
def test_bound_that_is_none_is_refused(make: Callable[[], object]) -> None:
    """Each wrong value is an error that names the option and what is allowed."""
    with pytest.raises(ConfigError, match=r"(deadline_seconds|max_retries|serve_stale_for|addresses).*allowed"):
        make()


def test_several_addresses_are_several_configurations() -> None:
    """Each place gets a configuration of its own, under the rules for one."""
    found = replicas_of(config(addresses=["https://a", "https://b"], mount_point="t"))
    assert found == tuple(config(address=place, mount_point="t") for place in ("https://a", "https://b"))
    with pytest.raises(ConfigError, match="plain http"):
        open_key_service(config(addresses=["https://a", "http://b.example.com"]))
