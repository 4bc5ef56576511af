from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.setup import doctor as checks
from sparkcrypt.cli.setup.doctor import Check, Examination
from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    PlanError,
    VerificationError,
)
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.key_service import PRINCIPAL
from sparkcrypt.policy.load import load_policy
from sparkcrypt.policy.model import named_keys

from .conftest import run


def test_a_policy_that_cannot_be_read_is_the_only_check(tmp_path: Path) -> None:
    """Nothing else can be checked without a policy."""
    done = run("doctor", "--policy", tmp_path / "nosuch.yaml", "--json")
    assert done.code == 78
    assert [(check["check"], check["ok"]) for check in done.document] == [("policy", False)]


def test_a_failed_check_is_one_line_with_its_fix() -> None:
    """Long messages are joined into the line, and the fix stands at its end."""
    line = Check("jar", False, "it is\n not there", "run `make jar`", 70).line()
    assert line == "✗ FAIL  jar: it is not there; fix: run `make jar`"
    assert Check("jar", True, "here", None).line() == "✓ ok    jar: here"


def test_the_first_failure_decides_the_exit_code() -> None:
    """Later failures and successes do not change it; an unforeseen error is a failure too."""

    def failing(error: Exception) -> str:
        raise error

    made = Examination(lambda _: None)
    assert made.exit_code == 0
    assert made.check("a", lambda: "well", "fix")
    assert not made.check("b", lambda: failing(PlanError("no")), "fix")
    assert not made.check("c", lambda: failing(ZeroDivisionError("no")), "fix")
    assert (made.exit_code, [check.ok for check in made.checks]) == (65, [True, False, False])
    assert made.checks[0].fix is None


def test_each_key_is_checked_once_and_templates_are_named(policy: Path) -> None:
    """The footer key is first, plaintext tags have none, a template is told to be one."""
    assert list(named_keys(load_policy(policy)).items()) == [
        ("footer", False),
        ("pii", False),
        ("contact-{day:%Y-%m}", True),
    ]


def test_a_key_service_that_unwraps_something_else_is_found(keys: KeyService) -> None:
    """What comes back must be what was wrapped."""

    class Forgetful:
        wrap = keys.wrap

        def unwrap(self, key_id: str, wrapped: str) -> bytes:
            return bytes(16)

    with pytest.raises(KeyServiceError, match="not what was wrapped"):
        checks.check_key(Forgetful(), "pii")  # type: ignore[arg-type]
    assert checks.check_key(keys, "pii") == "wraps and unwraps"


def test_a_refusal_to_describe_is_an_answer(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that denies describing is reachable all the same; one that is down is not."""

    class Denying:
        error: Exception = KeyAccessDeniedError("no")

        def describe(self, key_id: str) -> None:
            raise self.error

    monkeypatch.setattr(checks, "open_key_service", lambda _: Denying())
    assert "refuses these credentials" in checks.check_key_service(load_policy(policy))
    Denying.error = KeyServiceError("down")
    with pytest.raises(KeyServiceError, match="down"):
        checks.check_key_service(load_policy(policy))


def test_only_an_absent_key_is_to_be_made(policy: Path, keys: KeyService, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that these credentials may not use, as with an expired token, or that is damaged, is there."""

    def refuse(error: Exception) -> dict[str, str]:
        def check(*_: object, **__: object) -> str:
            raise error

        monkeypatch.setattr(checks, "check_key", check)
        made = Examination(lambda _: None)
        assert not checks._examine_keys(made, load_policy(policy))
        return {found.check: str(found.fix) for found in made.checks}

    assert refuse(KeyNotFoundError("absent"))["key pii"].startswith("sparkcrypt keys create pii")
    for error, fix in ((KeyAccessDeniedError("denied"), "credentials"), (KeyServiceError("damaged"), "message")):
        found = refuse(error)["key pii"]
        assert ("keys create" in found, fix in found) == (False, True)


@pytest.mark.parametrize(("name", "mode"), [("keys", 0o755), ("keys/pii.json", 0o640)])
def test_modes_that_are_too_wide_are_found(policy: Path, keys: KeyService, name: str, mode: int) -> None:
    """Both the directory and each file in it must be its owner's alone."""
    config = load_policy(policy).key_service
    assert "owner's alone" in checks.check_local_directory(config)
    (policy.parent / name).chmod(mode)
    with pytest.raises(ConfigError, match=f"{name} has mode {mode:04o}"):
        checks.check_local_directory(config)


def test_a_record_is_created_once_and_is_gone_afterwards(tmp_path: Path) -> None:
    """A local state directory is fit, and the check leaves no record."""
    with Workplace("test") as workplace:
        assert "created once" in checks.check_state(workplace, str(tmp_path / "state"))
    assert not [path for path in (tmp_path / "state").rglob("*") if path.is_file()]


def test_a_store_that_creates_twice_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a conditional create two runs could hold one table."""

    class Careless:
        def create(self, name: str, content: bytes) -> bool:
            return True

        def delete(self, name: str) -> None:
            pass

    monkeypatch.setattr(Workplace, "state_directory", lambda self, uri: Careless())
    with Workplace("test") as workplace, pytest.raises(VerificationError, match="created twice"):
        checks.check_state(workplace, str(tmp_path))


def test_a_java_that_is_not_there_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither by JAVA_HOME nor on PATH."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="does not run"):
        checks.java_on_path()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no java on PATH"):
        checks.java_on_path()


def test_the_key_of_audits_is_checked_and_its_lack_told(policy: Path) -> None:
    """A policy that names one has it wrapped and unwrapped with; one that does not is told what readers could do."""
    assert "every reader may use" in checks.check_audit(load_policy(policy))
    policy.write_text(policy.read_text() + "audit: {key: audit}\n")
    loaded = load_policy(policy)
    assert list(named_keys(loaded).items())[-1] == ("audit", False)
    assert checks.check_audit(loaded) == "authenticated under 'audit', a key of its own"


def test_a_credential_in_the_environment_of_a_server_is_found(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a key service that is another for each principal, here and among the settings of executors."""
    spark = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: settings))
    settings: dict[str, str] = {}
    service = "key_service: {type: vault, address: 'https://vault:8200', namespace: 'of/{principal}'}"
    text = policy.read_text()

    def check(principal: str) -> str:
        return checks.check_environment(load_policy(policy, principal=principal), spark)  # type: ignore[arg-type]

    monkeypatch.setenv("VAULT_TOKEN", "hvs.token")
    assert "same for all users" in check(PRINCIPAL)
    policy.write_text(re.sub(r"key_service: .*", service, text))
    with pytest.raises(ConfigError, match="could read VAULT_TOKEN"):
        check(PRINCIPAL)
    monkeypatch.delenv("VAULT_TOKEN")
    assert "no credential" in check(PRINCIPAL)
    settings["spark.executorEnv.VAULT_TOKEN"] = "hvs.token"
    with pytest.raises(ConfigError, match="could read VAULT_TOKEN"):
        check(PRINCIPAL)
    policy.write_text(re.sub(r"key_service: .*", service[:-1] + ", auth: {method: token, token_file: /t}}", text))
    assert "no credential" in check(PRINCIPAL)
