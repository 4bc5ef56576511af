"""Options of the Vault key service: each mistake is one error that names the option and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.provider import read_options
from sparkcrypt.keys.vault.session import AUTH_OPTIONS, VaultAuth, VaultOptions, read_credential
from sparkcrypt.policy.key_service import KeyServiceConfig

ADDRESS = "https://vault.example:8200"


def parsed(environ: dict[str, str] | None = None, **options: Any) -> Any:
    """Parse the options of a configuration."""
    return read_options(VaultOptions, KeyServiceConfig.from_dict({"type": "vault", **options}), environ or {})


def test_defaults() -> None:
    """An address alone is enough: transit, token, ten seconds, three retries."""
    options = parsed(address=ADDRESS + "/")
    assert (options.address, options.mount_point, options.auth.method) == (ADDRESS, "transit", "token")
    assert (options.timeout_seconds, options.max_retries, options.namespace, options.ca_bundle) == (10.0, 3, None, None)


def test_environment_gives_what_the_policy_leaves_out(tmp_path: Path) -> None:
    """VAULT_ADDR, VAULT_NAMESPACE and VAULT_CACERT count when the options are silent."""
    (tmp_path / "ca.pem").write_text("")
    options = parsed(
        {"VAULT_ADDR": ADDRESS, "VAULT_NAMESPACE": "team", "VAULT_CACERT": str(tmp_path / "ca.pem")},
    )
    assert (options.address, options.namespace, options.ca_bundle) == (ADDRESS, "team", str(tmp_path / "ca.pem"))
    assert parsed({"VAULT_NAMESPACE": "team"}, address=ADDRESS, namespace="mine").namespace == "mine"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "VAULT_ADDR"),
        ({"address": "vault:8200"}, "https://host:port"),
        ({"address": ADDRESS, "mount_point": "/"}, "mount_point is ''; allowed: the path of a transit mount"),
        ({"address": "ftp://vault"}, "https://host:port"),
        ({"address": "https://user:hvs.CANARY@vault"}, "more than host"),
        ({"address": ADDRESS + "?x=hvs.CANARY"}, "more than host"),
        ({"address": ADDRESS, "adress": "x"}, r"'adress'.*allowed: address, mount_point"),
        ({"address": ADDRESS, "token": "hvs.CANARY"}, r"'token' is not known"),
        ({"address": ADDRESS, "mount_point": 7}, "mount_point is a int"),
        ({"address": ADDRESS, "timeout_seconds": 0}, "timeout_seconds is 0; allowed: a number from 0.1"),
        ({"address": ADDRESS, "timeout_seconds": True}, "timeout_seconds"),
        ({"address": ADDRESS, "max_retries": -1}, "max_retries"),
        ({"address": ADDRESS, "max_retries": 99}, "allowed: a number from 0 to 10"),
        ({"address": ADDRESS, "ca_bundle": "/no/such.pem"}, "ca_bundle is '/no/such.pem'"),
        ({"address": ADDRESS, "auth": "token"}, "auth is not a mapping"),
        ({"address": ADDRESS, "auth": {"method": "ldap"}}, "allowed: token, approle, kubernetes"),
        ({"address": ADDRESS, "auth": {"method": "kubernetes"}}, "role is missing"),
        ({"address": ADDRESS, "auth": {"method": "token", "token": "hvs.CANARY"}}, "'token' is not known"),
        ({"address": ADDRESS, "auth": {"method": "approle", "secret_id": "hvs.CANARY"}}, "'secret_id' is not known"),
    ],
)
def test_mistake_is_named(options: dict[str, Any], named: str) -> None:
    """Each mistake is a ConfigError that says what is allowed and shows no value that may be a secret."""
    with pytest.raises(ConfigError, match=named) as raised:
        parsed(**options)
    assert "hvs.CANARY" not in str(raised.value)


@pytest.mark.parametrize("method", AUTH_OPTIONS)
def test_missing_credential_names_where_it_is_looked_for(
    method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without any credential the error names the variable, the option or the file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"VAULT_TOKEN|VAULT_ROLE_ID|jwt_path"):
        read_credential(VaultAuth(method, method, "role", (("jwt_path", str(tmp_path / "none")),)), {})


def test_empty_credential_file_is_refused(tmp_path: Path) -> None:
    """An empty token file is an error, never a request without a token."""
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        read_credential(VaultAuth("token", "token", None, (("token_file", str(tmp_path / "token")),)), {})


def test_file_goes_before_the_environment(tmp_path: Path) -> None:
    """A token file that the policy names counts, whatever VAULT_TOKEN says."""
    (tmp_path / "token").write_text("from-file\n")
    auth = VaultAuth("token", "token", None, (("token_file", str(tmp_path / "token")),))
    assert read_credential(auth, {"VAULT_TOKEN": "from-environment"}).secrets == ("from-file",)


@pytest.mark.parametrize(
    "address", ["http://vault:8200", "http://10.0.0.1", "http://localhost.evil.example", "http://[2001:db8::1]:80"]
)
def test_plain_http_beyond_this_machine_is_refused(address: str) -> None:
    """Plain http would show the token to the network: only the launch may allow it."""
    with pytest.raises(ConfigError, match=r"plain http .* spark\.sparkcrypt\.allow_http=true"):
        parsed(address=address)
    with pytest.raises(ConfigError, match="plain http"):
        parsed({"SPARKCRYPT_ALLOW_HTTP": "false"}, address=address)
    assert parsed({"SPARKCRYPT_ALLOW_HTTP": "true"}, address=address).address == address


@pytest.mark.parametrize("address", ["http://127.0.0.1:8200", "http://localhost", "http://[::1]:8200", "https://vault"])
def test_plain_http_to_this_machine(address: str) -> None:
    """Nobody listens between this machine and itself, and TLS is always allowed."""
    assert parsed(address=address).address == address
