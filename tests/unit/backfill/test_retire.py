"""Retirement of versions in two steps: set aside for a grace, then destroyed; undone within it; after kills too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.decide.denied import refused_key
from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyRetiredError, KeyServiceError, VerificationError
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.ledger.audit.key_audit import KeyAudit, Retirement, read_key_facts
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.load import load_policy
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys import retire
from sparkcrypt.runs.keys.retire import Retired, bring_versions_back, retire_versions
from sparkcrypt.runs.passes.key_status import key_statuses
from sparkcrypt.runs.passes.keys_in_use import Coverage

POLICY = """
version: 1
key_service: {type: local, path: keys}
footer: {key: footer, mode: encrypted}
untagged: plaintext
run_state: state
tags:
  pii: {key: pii}
"""
SPARK: Any = None
"""What looks at tables is replaced, so no session is needed."""
KEY = b"k" * 16


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    """A policy whose key pii has two versions, over a catalog in which nothing needs the first."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    loaded = load_policy(tmp_path / "policy.yaml")
    for key_id in ("footer", "pii"):
        LocalKeyService(loaded.key_service).create(key_id)
    monkeypatch.setattr(retire, "_refuse_needed", lambda *_: Coverage(tables=1, files=2))
    return loaded


@pytest.fixture
def old(policy: Policy) -> str:
    """What the first of two versions wrapped."""
    service = LocalKeyService(policy.key_service)
    wrapped = service.wrap("pii", KEY)
    service.rotate("pii")
    return wrapped


def step(policy: Policy, below: int = 2, grace_seconds: float = 60) -> Retired:
    """Give the command."""
    return retire_versions(SPARK, policy, "pii", below, grace_seconds=grace_seconds)


def undo(policy: Policy) -> Retired:
    """Give the command with --undo."""
    return bring_versions_back(LocalStateStore(policy.run_state), policy, "pii")


def standing(policy: Policy) -> Retirement | None:
    """Return what the audit of keys says."""
    service = LocalKeyService(policy.key_service)
    facts = read_key_facts(LocalStateStore(policy.run_state), service, MasterKeys.of(policy))
    return facts.retired.get("pii")


def unwrap(policy: Policy, wrapped: str) -> bytes:
    """Unwrap in a new service."""
    return LocalKeyService(policy.key_service).unwrap("pii", wrapped)


def test_versions_are_set_aside_until_the_grace_is_over(policy: Policy, old: str) -> None:
    """Within the grace the command changes nothing, --undo undoes it, and nothing is destroyed by either."""
    assert undo(policy).state == "nothing retired"
    first = step(policy)
    assert (first.state, first.coverage) == ("set aside", Coverage(tables=1, files=2))
    again = step(policy)
    assert (again.state, again.retirement, again.coverage) == ("set aside", first.retirement, None)
    with pytest.raises(KeyRetiredError, match=r"version 1 of key 'pii' is retired.*keys retire pii --undo"):
        unwrap(policy, old)
    status = {entry.key_id: entry for entry in key_statuses(LocalStateStore(policy.run_state), *_opened(policy))}["pii"]
    assert status.retired is not None
    assert "`sparkcrypt keys retire pii --undo` brings them back" in status.retired.to_text()
    for state in ("brought back", "nothing retired"):
        assert undo(policy).state == state
        assert unwrap(policy, old) == KEY
    assert standing(policy) is None
    with pytest.raises(ConfigError, match="allowed: 2 to 2"):
        step(policy, 3)


def test_after_the_grace_the_command_destroys_them(policy: Policy, old: str) -> None:
    """The same command, given again, looks again and destroys; then nothing brings them back but a backup."""
    backup = LocalKeyService(policy.key_service).export_keys(["pii"])
    step(policy, grace_seconds=0)
    done = step(policy)
    assert (done.state, done.coverage) == ("destroyed", Coverage(tables=1, files=2))
    with pytest.raises(KeyNotFoundError, match=r"no version 1.*from a backup"):
        unwrap(policy, old)
    assert step(policy).state == "destroyed"
    with pytest.raises(KeyNotFoundError, match=r"were destroyed on .*keys import"):
        undo(policy)
    LocalKeyService(policy.key_service).import_keys(backup)
    assert unwrap(policy, old) == KEY
    assert step(policy).state == "set aside"  # what was brought in again gets a grace of its own
    assert undo(policy).state == "brought back"


def test_more_is_retired_with_a_grace_of_its_own(policy: Policy, old: str) -> None:
    """A higher number sets more aside from now on; a lower one would destroy what is still in its grace."""
    LocalKeyService(policy.key_service).rotate("pii")
    step(policy, grace_seconds=0)
    assert step(policy, 3).state == "set aside"
    with pytest.raises(ConfigError, match=r"--below 2: .*--below 3` destroys them"):
        step(policy)
    assert step(policy, 3).state == "set aside"


def test_what_is_needed_meanwhile_is_not_destroyed(policy: Policy, old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that came back within the grace keeps its version."""

    def refuse(*_: object) -> Coverage:
        raise VerificationError("needed")

    step(policy, grace_seconds=0)
    monkeypatch.setattr(retire, "_refuse_needed", refuse)
    with pytest.raises(VerificationError, match="needed"):
        step(policy)
    assert undo(policy).state == "brought back"
    with pytest.raises(VerificationError, match="needed"):
        step(policy)
    assert (unwrap(policy, old), standing(policy)) == (KEY, None)


@pytest.mark.parametrize("verb", ["set_aside", "bring_back", "destroy_versions"])
def test_killed_command_is_given_again(policy: Policy, old: str, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Killed before the key service did it, the command does it when it is given again; no grace is cut short."""

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    steps = {"set_aside": lambda: step(policy, grace_seconds=0), "bring_back": lambda: undo(policy)}
    if verb != "set_aside":
        step(policy, grace_seconds=0)
    with monkeypatch.context() as patch:
        patch.setattr(LocalKeyService, verb, fail)
        with pytest.raises(KeyboardInterrupt):
            steps.get(verb, lambda: step(policy))()
    ended = {"set_aside": "set aside", "bring_back": "brought back", "destroy_versions": "destroyed"}[verb]
    assert (undo if verb == "bring_back" else step)(policy).state == ended


def test_undo_that_is_killed_is_given_again(policy: Policy, old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The versions unwrap already when it is killed; given again, it says so in the audit too."""

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    step(policy)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(KeyAudit, "bring_back", fail)
        undo(policy)
    assert unwrap(policy, old) == KEY
    assert undo(policy).state == "brought back"
    assert standing(policy) is None


def test_service_that_cannot_undo_it_is_refused(policy: Policy) -> None:
    """It is named, with what is possible there."""
    config = KeyServiceConfig.from_dict({"type": "ephemeral", "secret": "00" * 32})
    object.__setattr__(policy, "key_service", config)
    for command in (step, undo):
        with pytest.raises(ConfigError, match=r"EphemeralKeyService.*cannot set versions of a key aside"):
            command(policy)


def test_reader_is_told_file_and_table(policy: Policy, old: str) -> None:
    """A read that needs a retired version names column, table, file, key, version and the command that undoes it."""
    step(policy)
    request = {"owner": "column email", "table": "mart.trips", "path": "/t/f.parquet", "principal": "ann"}
    with pytest.raises(KeyServiceError) as refused:
        unwrap(policy, old)
    told = refused_key(request, "pii", refused.value)
    assert isinstance(told, KeyRetiredError)
    for part in ("column email of table mart.trips", "version 1 of key 'pii'", "--undo", "(file /t/f.parquet)"):
        assert part in str(told)


def _opened(policy: Policy) -> tuple[LocalKeyService, Policy]:
    return LocalKeyService(policy.key_service), policy
