"""Conversion of a JVM's access events to records of the log that its policy names."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from sparkcrypt.access.records import Record, make_record
from sparkcrypt.decide.context import parse_policy
from sparkcrypt.decide.request import optional_text, require_text
from sparkcrypt.errors import BridgeError, ConfigError, show
from sparkcrypt.keys.tombstones import reason_of_absence
from sparkcrypt.policy.access_log import AccessLogRule


def access_log_rule(request: Mapping[str, Any]) -> AccessLogRule:
    """Return the rule on the access log of a request's policy.

    Raises:
        ConfigError: the policy names none.
    """
    rule = parse_policy(require_text(request, "policy")).access_log
    if rule is None:
        raise ConfigError("the policy has no access_log; the jar and this helper do not belong together")
    return rule


def records_of(request: Mapping[str, Any]) -> tuple[str, list[Record]]:
    """Return the owner in the names of a JVM's files, and the records of its events.

    Args:
        request: ``policy``, ``process`` (the JVM's name for itself), ``application`` and ``events``, each in the form
            that `make_record` takes.

    Raises:
        BridgeError: an event is not valid.
    """
    events = request.get("events")
    if not isinstance(events, list) or not all(isinstance(event, Mapping) for event in events):
        raise BridgeError(f"the request's 'events' are {show(events)}; allowed: a list of objects")
    process = f"{socket.gethostname()}-{require_text(request, 'process')}"
    owner = f"{optional_text(request, 'application') or 'none'}-{process}"
    run_state = parse_policy(require_text(request, "policy")).run_state
    return owner, [_tell_absence(make_record(event, process=process), run_state) for event in events]


def _tell_absence(record: Record, run_state: str) -> Record:
    """Return a record with the reason why a key does not exist, which the JVM always reports as shredded."""
    key_id = record.get("key")
    if record.get("outcome") != "refused" or record.get("why") != "shredded" or not key_id:
        return record
    return record | {"why": reason_of_absence(run_state, key_id)}
