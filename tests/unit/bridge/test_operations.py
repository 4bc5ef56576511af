"""Operations: what the helper answers before any key service is asked."""

from __future__ import annotations

import json

import pytest

from sparkcrypt.bridge.operations import Operations
from sparkcrypt.errors import BridgeError, ConfigError


def test_unknown_operation_names_the_known_ones() -> None:
    """An operation of another version's jar is refused with what is allowed."""
    with pytest.raises(BridgeError, match=r"'resolve'.*resolve_write"):
        Operations().answer({"op": "resolve"})


@pytest.mark.parametrize("op", ["wrap", "unwrap"])
def test_request_without_key_service_is_refused(op: str) -> None:
    """A request that names neither a key service nor a policy names the property to set."""
    with pytest.raises(BridgeError, match=r"parquet\.sparkcrypt\.key_service"):
        Operations().answer({"op": op, "key_id": "a", "key": "", "wrapped": ""})


def test_key_service_without_type_is_refused() -> None:
    """A key service's JSON that has no type is a ConfigError."""
    with pytest.raises(ConfigError, match="type"):
        Operations().answer({"op": "wrap", "key_service": "{}", "key_id": "a", "key": ""})


@pytest.mark.parametrize("field", ["key_service", "policy"])
@pytest.mark.parametrize("text", ["", "{", "[]", "1", '"local"', "null"])
def test_what_is_no_configuration_is_refused(field: str, text: str) -> None:
    """A key service or policy that is not what it must be is a ConfigError that names the property."""
    with pytest.raises(ConfigError, match=rf"parquet\.sparkcrypt\.{field}"):
        Operations().answer({"op": "wrap", field: text, "key_id": "a", "key": ""})


def test_key_service_comes_out_of_a_policy() -> None:
    """A request may carry the whole policy, as reads do; its key service is the one that is opened."""
    policy = json.dumps({"key_service": {"type": "no-such-service"}})
    with pytest.raises(ConfigError, match="no-such-service"):
        Operations().answer({"op": "wrap", "policy": policy, "key_id": "a", "key": ""})
