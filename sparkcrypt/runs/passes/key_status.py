"""Status of master keys: their versions, age and files, when their rotation is due, and which of them are missing."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError, SparkcryptError
from sparkcrypt.keys.bucket_keys import is_made_by_write, route_late_keys
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyDescription, KeyService
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.ledger.audit.key_audit import Hold, KeyFacts, Retirement, Tombstone, read_key_facts
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.key_service import split_former
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.keys_in_use import KeyUse, TableUse, find_uses_of_keys, list_key_uses, read_key_use
from sparkcrypt.runs.rewrite.run_report import KEY_NOT_KNOWN, Report
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.text import UTC_TIME, utc_text


@dataclass(frozen=True, slots=True)
class Due:
    """The next rotation of a master key: ``every`` seconds after its newest version was made.

    ``since`` is when that version was made and ``at`` when the rotation is due, both None if the key service does not
    report it.
    """

    key_id: str
    every: int
    since: datetime | None
    at: datetime | None

    @classmethod
    def of(cls, described: KeyDescription, policy: Policy) -> Due | None:
        """Return the next rotation of a key; None if the policy requires none."""
        every = policy.rotation_period(described.key_id)
        if every is None:
            return None
        since = newest_creation(described)
        return cls(described.key_id, every, since, None if since is None else since + timedelta(seconds=every))

    def is_overdue(self, now: datetime) -> bool:
        """Tell whether the rotation is due; False if its time is not known."""
        return self.at is not None and self.at <= now

    def to_text(self) -> str:
        """Return the message about an overdue key."""
        since, at = (None if moment is None else utc_text(moment) for moment in (self.since, self.at))
        return (
            f"key {self.key_id!r}: its newest version is of {since}, and rotate_every asks for another since {at}: "
            f"`sparkcrypt rotate --key {self.key_id}`, or `sparkcrypt keys rotate {self.key_id}` where no table holds "
            "it, such as the key of audits"
        )


@dataclass(slots=True)
class KeyStatus:
    """The status of one master key.

    Attributes:
        key_id: its id.
        described: the key service's description; None if it has no such key.
        amount: the files of all known tables with a key under it.
        old: those of them with a key known to be wrapped by a version older than the newest.
        untold: those of them with a key whose version is not known.
        former: those of them with a key known to be wrapped by a former key service.
        former_kinds: the types of the former key services that the policy names for the key, except for the current
            type, whose form does not distinguish them.
        tables: table -> how many calls a reader of it makes for this key.
        retention_seconds: how long the policy keeps data under it; None if for ever.
        due: its next rotation; None if the policy requires none.
        holds: the legal holds on it; None if the audit of keys cannot be opened.
        tombstone: the record that it was shredded; None if there is none.
        retired: the retirement of its older versions; None if there is none.
    """

    key_id: str
    described: KeyDescription | None
    amount: Amount = field(default_factory=Amount)
    old: Amount = field(default_factory=Amount)
    untold: Amount = field(default_factory=Amount)
    former: Amount = field(default_factory=Amount)
    former_kinds: frozenset[str] = frozenset()
    tables: dict[str, int] = field(default_factory=dict)
    retention_seconds: int | None = None
    due: Due | None = None
    holds: tuple[Hold, ...] | None = ()
    tombstone: Tombstone | None = None
    retired: Retirement | None = None

    def add(self, table: str, use: KeyUse) -> None:
        """Add the use of the key by one table."""
        self.amount += use.amount
        self.old += use.older_than(0 if self.described is None else self.described.versions)
        self.untold += use.of_version(0)
        self.former += use.of_kinds(self.former_kinds)
        self.tables[table] = self.tables.get(table, 0) + len(use.wrappings)

    def to_dict(self, now: datetime) -> dict[str, Any]:
        """Return it as JSON values: times in ISO 8601 and UTC, ages and periods in whole days."""
        described = self.described
        made_at = None if described is None else newest_creation(described)
        return {
            "key_id": self.key_id,
            "versions": None if described is None else described.versions,
            "created": None if described is None else described.created,
            "newest_created": None if made_at is None else utc_text(made_at),
            "age_days": None if made_at is None else (now - made_at).days,
            **self.amount.to_dict(),
            "files_on_old_versions": self.old.files,
            "bytes_on_old_versions": self.old.total_bytes,
            "files_of_untold_version": self.untold.files,
            "files_under_former_service": self.former.files,
            "tables": [{"table": table, "reader_calls": calls} for table, calls in sorted(self.tables.items())],
            "retention_days": None if self.retention_seconds is None else self.retention_seconds // 86_400,
            "rotate_every_days": None if self.due is None else self.due.every // 86_400,
            "rotation_due": None if self.due is None or self.due.at is None else utc_text(self.due.at),
            "overdue": self.due is not None and self.due.is_overdue(now),
            "holds": None if self.holds is None else [hold.to_dict() for hold in self.holds],
            "shredded": None if self.tombstone is None else self.tombstone.to_dict(),
            "retired": None if self.retired is None else self.retired.to_dict(),
        }


def key_statuses(
    store: StateStore, service: KeyService, policy: Policy, uses: Collection[TableUse] | None = None
) -> tuple[KeyStatus, ...]:
    """Return the status of all master keys: those of a key service, those that files use, and held or shredded ones.

    Args:
        store: the state directory.
        service: the key service.
        policy: the policy with retentions and rotation periods.
        uses: the tables that use keys; by default those of which the state directory has footers, as these were.

    Raises:
        KeyServiceError: the service does not answer, or refuses to describe a key.
        VerificationError: the audit of keys, which contains holds and tombstones, was changed or cut.
    """
    uses = list(list_key_uses(store)) if uses is None else uses
    try:
        facts: KeyFacts | None = read_key_facts(store, service, MasterKeys.of(policy))
    except KeyAccessDeniedError:  # these credentials may describe keys, but not open audits
        facts = None
    key_facts = KeyFacts() if facts is None else facts
    named = {*(key_id for use in uses for key_id in use.keys), *key_facts.holds, *key_facts.tombstones}
    found = _describe_keys(service, named)
    current, former = split_former(policy.key_service)
    by_digest = {key_digest(key_id): key_id for key_id in found}
    statuses = {
        key_id: KeyStatus(
            key_id,
            described,
            former_kinds=frozenset(entry.config.type for entry in former if entry.has(key_id)) - {current.type},
            retention_seconds=policy.retention_of(key_id),
            due=None if described is None else Due.of(described, policy),
            holds=None if facts is None else key_facts.holds.get(key_id, ()),
            tombstone=key_facts.tombstones.get(key_id),
            retired=key_facts.retired.get(key_id),
        )
        for key_id, described in sorted(found.items())
    }
    for use in uses:
        for key_id, held in use.keys.items():
            statuses[key_id].add(use.name, held)
        for digest in use.kept & by_digest.keys():
            statuses[by_digest[digest]].tables.setdefault(use.name, 0)
    return tuple(statuses.values())


def find_overdue(service: KeyService, policy: Policy, key_ids: Iterable[str]) -> tuple[Due, ...]:
    """Return those of some master keys whose rotation is overdue; keys that cannot be described are left out.

    Raises:
        KeyServiceError: the service does not answer.
    """
    now, overdue = datetime.now(timezone.utc), []
    for key_id in sorted(set(key_ids)):
        if policy.rotation_period(key_id) is None:
            continue
        try:
            due = Due.of(service.describe(key_id), policy)
        except (KeyNotFoundError, KeyAccessDeniedError):
            continue
        if due is not None and due.is_overdue(now):
            overdue.append(due)
    return tuple(overdue)


def tell_overdue(policy: Policy, tables: Iterable[tuple[StateStore, str]]) -> tuple[str, ...]:
    """Return messages about the overdue keys of some tables, or about the error if they cannot be determined.

    Args:
        policy: the policy with rotation periods; if it has none, nothing is read.
        tables: for each table the state directory, whose footer cache contains its keys, and the table's id there.
    """
    if policy.rotate_every_seconds is None and all(rule.rotate_every_seconds is None for rule in policy.tags):
        return ()
    try:
        key_ids = {key_id for store, table_id in tables for key_id in read_key_use(store, table_id).keys}
        return tuple(due.to_text() for due in find_overdue(open_key_service(policy.key_service), policy, key_ids))
    except SparkcryptError as error:
        return (f"whether keys are overdue is not known: {error}",)


def newest_creation(described: KeyDescription) -> datetime | None:
    """Return when the newest version of a key was made; None if its key service does not report it."""
    made_at = described.rotated or (described.created if described.versions == 1 else None)
    try:
        return None if made_at is None else datetime.strptime(made_at, UTC_TIME).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _describe_keys(service: KeyService, named: Iterable[str]) -> Mapping[str, KeyDescription | None]:
    """Return key id -> description of every key that the service lists or that is named; None if it does not exist."""
    found: dict[str, KeyDescription | None] = {}
    with contextlib.suppress(KeyAccessDeniedError):  # without the right to list keys, named ones may be described
        found = {described.key_id: described for described in service.list_keys()}
    for key_id in set(named) - found.keys():
        try:
            found[key_id] = service.describe(key_id)
        except KeyNotFoundError:
            found[key_id] = None
    return found


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
        marks, lost = (
            frozenset(store.list("keys/tombstones/")),
            dict.fromkeys(in_files, "files of the table are under it"),
        )
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
