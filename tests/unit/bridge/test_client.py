"""The Python client of the helper, over a real helper."""

from __future__ import annotations

import pytest

from sparkcrypt.bridge import protocol
from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import BridgeError


def test_a_request_that_is_not_sent_waits_for_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request over the limit is refused and forgotten, and the helper goes on answering others."""
    monkeypatch.setattr(protocol, "MAX_FRAME_BYTES", 1000)
    with HelperClient(helper_command()) as client:
        with pytest.raises(BridgeError, match="allowed: 1000"):
            client.call("nothing", text="x" * 1000)
        assert not client._waiting
        with pytest.raises(BridgeError, match="operation 'nothing' is not known"):
            client.call("nothing")
