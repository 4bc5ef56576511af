"""Orders as a worker carries them out."""

from __future__ import annotations

import json
from pathlib import Path

from sparkcrypt.files import rewrite as work
from sparkcrypt.files.orders import FileOrder, FileOutcome, KeySettings
from sparkcrypt.names import Algorithm
from tests.unit.native.conftest import Bench

GCM: Algorithm = "AES_GCM_V1"


def rewrite(bench: Bench, order: FileOrder) -> FileOutcome:
    """Carry out an order as a worker does, after both have travelled as JSON."""
    told = FileOrder.from_dict(json.loads(json.dumps(order.to_dict())))
    assert told == order
    outcome = work.rewrite(told, KeySettings.from_json(bench.keys.to_json()), {})
    assert FileOutcome.from_json(outcome.to_json()) == outcome
    return outcome


def failed(outcome: FileOutcome) -> tuple[str, str]:
    """Return class and message of a failure, which has left no target."""
    assert outcome.error is not None
    assert not Path(outcome.target).exists()
    return outcome.error
