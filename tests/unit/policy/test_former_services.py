"""Former key services in a policy: read strictly, part of the key service's configuration, and no place for secrets."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.key_service import FormerService, KeyServiceConfig, split_former
from sparkcrypt.policy.load import load_policy

POLICY = """
version: 1
key_service:
  type: vault
  address: https://vault:8200
  former: {former}
footer: {{key: footer, mode: encrypted}}
untagged: plaintext
run_state: state/
tags:
  pii: {{key: pii}}
"""


def load(folder: Path, former: str) -> KeyServiceConfig:
    """Return the key service of a policy with these former ones."""
    (folder / "policy.yaml").write_text(POLICY.format(former=former))
    return load_policy(folder / "policy.yaml").key_service


def test_paths_are_those_of_the_policy_and_principals_have_their_own(tmp_path: Path) -> None:
    """The canonical text holds former services too, so a launch that is pinned is pinned with them."""
    config = load(tmp_path, "[{type: local, path: 'keys-{principal}', keys: [pii, 'contact-*']}]")
    current, (former,) = split_former(config)
    assert current == KeyServiceConfig.from_dict({"type": "vault", "address": "https://vault:8200"})
    assert former.config.options == {"path": f"{tmp_path}/keys-{getpass.getuser()}"}
    told = config.canonical().replace(getpass.getuser(), "{principal}")
    named = KeyServiceConfig.from_dict(json.loads(told)).for_principal("ann")
    assert split_former(named)[1][0].config.options["path"].endswith("/keys-ann")
    assert [former.has(key) for key in ("pii", "piio", "contact-2026", "my-contact-1", "footer")] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert FormerService(current, ("a.c", "*")).has("any\nthing")
    assert not FormerService(current, ("a.c",)).has("abc")
    assert current.place() == config.place() != former.config.place()
    waiting = {**config.to_dict(), "timeout_seconds": 3, "auth": {"method": "token"}}
    assert KeyServiceConfig.from_dict(waiting).place() == config.place()


@pytest.mark.parametrize(
    ("former", "problem"),
    [
        ("[]", r"key_service.former: is \[\]; allowed: a list of former key services"),
        ("local", r"key_service.former: is 'local'; allowed"),
        ("[{type: local, path: a}]", r"key_service.former.0: 'keys' is missing"),
        ("[{type: local, path: a, keys: pii}]", r"key_service.former.0.keys: is 'pii'; allowed: a list of key ids"),
        ("[{type: local, path: a, keys: []}]", r"key_service.former.0.keys: is \[\]; allowed"),
        (
            "[{type: local, path: a, keys: [p], region: x}]",
            r"policy.yaml:6: key_service.former.0.region: is not a known",
        ),
        ("[{type: local, keys: [p]}]", r"key_service.former.0: 'path' is missing"),
        ("[{type: ephemeral, secret: aa, keys: [p]}]", r"key_service.former.0.type: is 'ephemeral'"),
        ("[{type: vault, token: s.x, keys: [p]}]", r"key_service.former.0.token: holds a secret"),
        (
            "[{type: other, keys: [p], former: [{type: local, path: a, keys: [p]}]}]",
            r"key_service.former.0.former: stands in a former key service",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, former: str, problem: str) -> None:
    """Each with the line, and with what is allowed."""
    with pytest.raises(ConfigError, match=problem):
        load(tmp_path, former)


@pytest.mark.parametrize("former", ["x", [], ["local"], [{"type": "local"}], [{"type": "local", "keys": [""]}]])
def test_configuration_that_no_policy_wrote_is_refused(former: object) -> None:
    """A launch may carry the configuration alone."""
    config = KeyServiceConfig.from_dict({"type": "vault", "former": former})
    with pytest.raises(ConfigError, match=r"key_service: former (is|holds) .*; allowed: a list of former key services"):
        split_former(config)
