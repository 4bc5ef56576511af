"""The master keys that runs would need and the key service does not have, with what to do about each."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError, SparkcryptError
from sparkcrypt.keys.bucket_keys import is_made_by_write, route_late_keys
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.ledger.audit.key_audit import read_key_facts
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.former_services import split_former
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.keys_in_use import find_uses_of_keys
from sparkcrypt.runs.rewrite.run_report import KEY_NOT_KNOWN, Report

_RESTORE = "so it is lost, and not new: restore it (docs/runbooks.md, 'A key is lost')"


class KeySearch:
    """Looks in the key service for the keys that units need; each key is looked for once, and none is used or made.

    Args:
        policy: names the key service.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy, self._service = policy, open_key_service(policy.key_service)
        self._found: dict[str, str | None] = {}

    def add_missing(self, report: Report, store: StateStore) -> Report:
        """Return the report of a dry run with the keys that the service does not have, or a warning if it cannot say.

        Args:
            report: the report, whose planned units name their keys.
            store: the state directory, whose records tell a key that is lost from one that was never made.
        """
        units: dict[str, int] = {}
        for unit in report.planned:
            own = (self._policy.footer_key, MasterKeys.of(self._policy).current) if unit["keys"] else ()
            for key_id in {*unit["keys"], *own}:
                units[key_id] = units.get(key_id, 0) + 1
        absent, unknown = dict[str, str](), list[str]()
        for key_id in sorted(units):
            try:
                why = self._look_for(key_id)
            except SparkcryptError as error:
                unknown.append(f"{KEY_NOT_KNOWN} {key_id!r} is there is not known: {error}")
                if not isinstance(error, KeyAccessDeniedError):
                    break  # each further call would wait as long for a service that does not answer
                continue
            if why is not None:
                absent[key_id] = why
        advice = self._advise(store, absent, {key_id for unit in report.planned for key_id in unit["under"]})
        missing = tuple({"key_id": key_id, "units": units[key_id], "why": advice[key_id]} for key_id in absent)
        return replace(report, missing_keys=missing, warnings=(*report.warnings, *unknown[:1]))

    def _look_for(self, key_id: str) -> str | None:
        """Return why a key is missing; None if it is there, or a run would make it, or take another for late data."""
        if key_id not in self._found:
            self._found[key_id] = self._ask_for(key_id)
        return self._found[key_id]

    def _ask_for(self, key_id: str) -> str | None:
        try:
            self._service.describe(key_id)
        except KeyNotFoundError as absent:
            late = route_late_keys(self._policy, self._service, [key_id]).get(key_id)
            if late is not None:
                return self._look_for(late)
            try:
                return None if is_made_by_write(self._policy, self._service, key_id) else str(absent)
            except KeyNotFoundError as never_made:
                return str(never_made)
        return None

    def _advise(self, store: StateStore, absent: Mapping[str, str], in_files: Iterable[str]) -> dict[str, str]:
        """Return for each missing key what to do; only one that nothing knows is to be made."""
        if not absent:
            return {}
        marks, lost = frozenset(store.list("tombstones/")), dict.fromkeys(in_files, "files of the table are under it")
        try:
            lost |= find_uses_of_keys(store, [*absent])
            facts = read_key_facts(store, self._service, MasterKeys.of(self._policy))
            lost |= {key_id: state for key_id in absent if (state := facts.describe_state(key_id))}
        except SparkcryptError as error:  # without these records nobody can tell that it was never made
            return {
                key_id: f"{why}; its records cannot be read ({error}), so make none" for key_id, why in absent.items()
            }
        former = split_former(self._policy.key_service)[1]
        moving = {key_id for key_id in absent if any(entry.has(key_id) for entry in former)}
        return {
            key_id: (
                "it was shredded, and its id is never used again: give the tag another key id in the policy"
                if tombstone_name(key_digest(key_id)) in marks
                else f"{lost[key_id]}, {_RESTORE}"
                if key_id in lost and key_id not in moving
                else f"{why}; if it is new, or moves from a former key service: `sparkcrypt keys create "
                f"{shlex.quote(key_id)} --policy FILE`"
            )
            for key_id, why in absent.items()
        }
