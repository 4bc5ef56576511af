"""The key service that the launch has set, for either format."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.names import KEY_SERVICE, POLICY
from sparkcrypt.policy.key_service import FORMER, KEY_SERVICE_OPTIONS, KeyServiceConfig
from tests.services.installed import ROOT, java_home, spark_home
from tests.services.quick_java import QUICK

EVIL = "https://evil.example.com"
NETWORK: dict[str, dict[str, Any]] = {
    "vault": {"address": "https://vault:8200", "auth": {"method": "token", "token_file": "/run/token"}},
    "aws": {"region": "eu-west-1", "profile": "data", "role_arn": "arn:aws:iam::123456789012:role/etl"},
    "gcp": {"key_ring": "projects/p1/locations/l/keyRings/r", "auth": {"method": "file", "credentials_file": "/run/g"}},
    "azure": {"address": "https://acme.vault.azure.net", "auth": {"method": "managed", "client_id": "0-1"}},
    "hadoop": {"address": "https://kms:9600/kms", "auth": {"method": "token", "token_file": "/run/tokens"}},
}
"""A configuration of each key service over a network, as a launch would have it."""
Ask = Callable[[list[tuple[str, str, str, str]]], list[str]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Asks the door what it makes of a launch's property and its text, and a session's, for each question."""
    jars = f"{ROOT / 'sparkcrypt' / '_jar' / 'sparkcrypt.jar'}:{spark_home() / 'jars'}/*"
    source = Path(__file__).with_name("PinnedCheck.java")
    command = [str(java_home() / "bin" / "java"), *QUICK, "-cp", jars, str(source)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as java:
        assert java.stdin is not None
        assert java.stdout is not None
        questions_to, answers_of = java.stdin, java.stdout

        def ask_all(questions: list[tuple[str, str, str, str]]) -> list[str]:
            told = []
            for asked in questions:
                questions_to.write(" ".join(base64.b64encode(part.encode()).decode() for part in asked) + "\n")
                questions_to.flush()
                told.append(base64.b64decode(answers_of.readline()).decode())
            assert "" not in told, "it ended; what it said is above"
            return told

        yield ask_all
        questions_to.close()


def test_every_key_service_over_a_network_is_attacked() -> None:
    """A type that is new here comes into this test: it has a deadline, as all do that a network lies before."""
    assert {kind for kind, options in KEY_SERVICE_OPTIONS.items() if "deadline_seconds" in options} == set(NETWORK)


def changed(kind: str, option: str) -> dict[str, Any]:
    """Return the launch's configuration with another value of one option."""
    document: dict[str, Any] = {"type": kind, **NETWORK[kind]}
    if option == "type":
        return {**document, "type": next(other for other in NETWORK if other != kind)}
    now = document.get(option)
    if option == FORMER:
        return {**document, FORMER: [{"type": "vault", "address": EVIL, "keys": ["*"]}]}
    evil: Any = [EVIL] if option in {"addresses", "endpoints", "regions"} else EVIL
    if isinstance(now, dict):
        evil = {**now, next(name for name in now if name != "method"): "/run/victim/secret"}
    return {**document, option: evil}


def policy_of(document: dict[str, Any]) -> str:
    """Return a policy's canonical text with a key service."""
    return json.dumps({"version": 1, "key_service": document, "tags": []})


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(NETWORK))
def test_table_cannot_change_address_endpoint_or_credentials(ask: Ask, kind: str) -> None:
    """Every single option that differs from the launch's is refused, in a policy and beside it, with the next step."""
    document = {"type": kind, **NETWORK[kind]}
    launched = KeyServiceConfig.from_dict(document).canonical()
    questions, differing = [], []
    for option in (*KEY_SERVICE_OPTIONS[kind], FORMER):
        evil = changed(kind, option)
        assert evil != document
        differing += [f"{KEY_SERVICE}", f"{POLICY}"]
        questions.append((KEY_SERVICE, launched, KEY_SERVICE, KeyServiceConfig.from_dict(evil).canonical()))
        questions.append((POLICY, policy_of(document), POLICY, policy_of(evil)))
    for (*_, given), name, told in zip(questions, differing, ask(questions), strict=True):
        assert told.startswith("refused: "), given
        assert f"{name} differs from what this session is under" in told
        assert "OPTIONS or TBLPROPERTIES" in told
        assert "allowed: the same text, or none" in told
        assert "/run/victim/secret" not in told


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(NETWORK))
def test_table_that_says_the_same_or_nothing_is_under_the_launch(ask: Ask, kind: str) -> None:
    """The launch's text, its options in another order, and properties of other names leave the launch's in force."""
    document = {"type": kind, **NETWORK[kind]}
    launched = KeyServiceConfig.from_dict(document).canonical()
    harmless = [
        (KEY_SERVICE, launched),
        (KEY_SERVICE, json.dumps(dict(reversed(document.items())), indent=1)),
        (KEY_SERVICE, " "),
        ("parquet.encryption.kms.instance.url", EVIL),
        ("parquet.encryption.key.access.token", "theirs"),
        ("parquet.sparkcrypt.key_service.address", EVIL),
        ("spark.hadoop.parquet.sparkcrypt.key_service", EVIL),
    ]
    for told in ask([(KEY_SERVICE, launched, name, text) for name, text in harmless]):
        assert told.startswith("used: ")
        assert json.loads(told.removeprefix("used: ")) == document


def test_no_launch_is_not_made_up_by_a_table(ask: Ask) -> None:
    """An application that was launched with no key service takes none from a table."""
    evil = [KeyServiceConfig.from_dict({"type": kind, **NETWORK[kind]}).canonical() for kind in NETWORK]
    questions = [("parquet.other", "x", KEY_SERVICE, text) for text in evil]
    questions += [("parquet.other", "x", POLICY, policy_of({"type": kind, **NETWORK[kind]})) for kind in NETWORK]
    for told in ask(questions):
        assert told.startswith("refused: ConfigError: no key service was named when this application was launched")


@pytest.mark.slow
def test_every_failure_of_the_provider_of_orc_keys_is_an_error() -> None:
    """Refusals, answers of the helper and what nobody expected end as Errors that say what is wrong."""
    jars = f"{ROOT / 'sparkcrypt' / '_jar' / 'sparkcrypt.jar'}:{spark_home() / 'jars'}/*"
    source = Path(__file__).with_name("OrcProviderCheck.java")
    command = [str(java_home() / "bin" / "java"), *QUICK, "-cp", jars, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    outcomes = {line.split("\t")[0]: line.split("\t")[1:] for line in done.stdout.splitlines()}
    assert len(outcomes) == 6
    assert {name: kind for name, (kind, *_) in outcomes.items()} == dict.fromkeys(outcomes, "Error")
    assert all("Error: " in message for _, message in outcomes.values())
    assert "does not say which ORC file it reads" in outcomes["open without a file"][1]
