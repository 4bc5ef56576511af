"""The audit of keys: holds, rotations, and versions that are retired."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    RunConflictError,
    VerificationError,
)
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.keys.datakeys import WrappedKek
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.keys.service import KeyDescription
from sparkcrypt.keys.tombstones import describe_tombstone, tombstone_name
from sparkcrypt.ledger.audit.audit import AuditWriter
from sparkcrypt.ledger.audit.key_audit import (
    KeyAudit,
    KeyFacts,
    ShreddedKeys,
    describe_refused,
    key_audit,
    read_key_facts,
)
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.state.store import LocalStateStore, encode_record
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.load import load_policy
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.rotate import RotationRecord, begin_version, finish_rotation, plan_version
from sparkcrypt.runs.passes.keys_by_catalog import find_records
from sparkcrypt.runs.rewrite.keks import rotation_of
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.difference import Drift, Rotation, refuse_other_drift, select_drift
from sparkcrypt.runs.table.unit_survey import action_of

POLICY = """
version: 1
key_service: {type: local, path: keys}
footer: {key: footer, mode: encrypted}
audit: {key: audit}
untagged: plaintext
run_state: state
tags:
  contact: {key: "contact-{day:%Y-%m}", retention: 400d}
"""
KEY = "contact-2025-01"


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    """A policy with its keys, two of them of buckets."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    loaded = load_policy(tmp_path / "policy.yaml")
    for key_id in ("footer", "audit", KEY, "contact-2025-02"):
        LocalKeyService(loaded.key_service).create(key_id)
    return loaded


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The state directory."""
    return tmp_path / "state"


def facts_of(policy: Policy, root: Path, expected: AuditHead | None = None) -> KeyFacts:
    """Read the audit of keys."""
    service = LocalKeyService(policy.key_service)
    return read_key_facts(LocalStateStore(root), service, MasterKeys.of(policy), expected=expected)


def hold(policy: Policy, root: Path, reason: str = "case 1", key_id: str = KEY) -> int:
    """Put a hold on a key; return its number."""
    with key_audit(LocalStateStore(root), policy, "keys hold") as audit:
        return audit.hold(key_id, reason).number


def bury(policy: Policy, root: Path) -> None:
    """Write down that a key was shredded."""
    with key_audit(LocalStateStore(root), policy, "shred") as audit:
        audit.begin(KEY, "its retention is over", "probe", [{"table": "db.t"}])
        audit.bury(KEY, "its retention is over", "2026-12-01T00:00:00Z", [{"table": "db.t"}], "the file was removed")


def test_holds_stand_until_each_is_released(policy: Policy, root: Path) -> None:
    """Two cases may hold one key; a release ends one of them, and must say which where there are two."""
    assert facts_of(policy, root) == KeyFacts()
    first, second = hold(policy, root), hold(policy, root, "case 2")
    hold(policy, root, key_id="contact-2025-02")
    assert [found.reason for found in facts_of(policy, root).holds[KEY]] == ["case 1", "case 2"]
    with key_audit(LocalStateStore(root), policy, "keys release") as audit:
        with pytest.raises(ConfigError, match=r"has 2 holds: hold 1 of .*: case 1; hold 2 of .*give the number"):
            audit.release(KEY, "closed")
        with pytest.raises(ConfigError, match=r"has no hold 3; its holds: hold 1"):
            audit.release(KEY, "closed", 3)
        with pytest.raises(ConfigError, match="the reason is empty"):
            audit.release(KEY, " ", first)
        assert audit.release(KEY, "closed", first).reason == "case 1"
        assert audit.release(KEY, "closed too").number == second
        with pytest.raises(ConfigError, match="has no hold; its holds: none"):
            audit.release(KEY, "again")
    facts = facts_of(policy, root)
    assert (list(facts.holds), facts.head and facts.head.number) == (["contact-2025-02"], 5)


def test_hold_on_a_key_that_is_not_there_is_refused(policy: Policy, root: Path) -> None:
    """A misspelt key id would look held and protect nothing; so would one that is shredded by now."""
    with pytest.raises(KeyNotFoundError, match="'contact-2025-1' is not in"):
        hold(policy, root, key_id="contact-2025-1")
    bury(policy, root)
    LocalKeyService(policy.key_service).delete_key(KEY)
    with pytest.raises(KeyNotFoundError, match=r"was shredded by .*; there is nothing left to hold"):
        hold(policy, root)
    assert facts_of(policy, root).holds == {}


def test_tombstone_ends_a_shredding_and_tells_readers(policy: Policy, root: Path) -> None:
    """A shredding that began stands until its tombstone; after it the id is refused, and readers are told why."""
    with key_audit(LocalStateStore(root), policy, "shred") as audit:
        audit.begin(KEY, "over", "probe", [])
    assert facts_of(policy, root).begun[KEY].probe == "probe"
    assert describe_tombstone(policy.run_state, KEY) is None
    bury(policy, root)
    facts = facts_of(policy, root)
    assert (dict(facts.begun), facts.tombstones[KEY].dark) == ({}, ({"table": "db.t"},))
    with pytest.raises(KeyNotFoundError, match=r"shredded by .* on 20.*: its retention is over; .* not made again"):
        facts.refuse_shredded(KEY, "made")
    facts.refuse_shredded("contact-2025-02", "made")
    told = describe_tombstone(policy.run_state, KEY)
    assert told is not None
    assert told.startswith("the state directory says that it was shredded on 20")
    assert told.endswith("'its retention is over'")
    for start in ("file:", "file://", "file://localhost", "FILE:"):  # every form that opens the state directory
        assert describe_tombstone(f"{start}{policy.run_state}", KEY) == told
    assert describe_tombstone("s3://bucket/state", KEY) is None


def delete_last_entry(root: Path) -> None:
    """Delete the last entry of the audit."""
    (root / "log" / "keys" / "00000002.json").unlink()


def delete_first_entry(root: Path) -> None:
    """Delete the first entry."""
    (root / "log" / "keys" / "00000001.json").unlink()


def delete_audit(root: Path) -> None:
    """Delete the audit and its MAC key, and leave what lies beside it."""
    shutil.rmtree(root / "log" / "keys")
    shutil.rmtree(root / "keys" / "macs" / "keys")


def delete_entries(root: Path) -> None:
    """Delete all but the MAC key."""
    shutil.rmtree(root / "log" / "keys")


def delete_end_and_length(root: Path) -> None:
    """Delete the last entry, and the record that tells how long the audit is."""
    delete_last_entry(root)
    shutil.rmtree(root / "keys" / "heads")


def edit_reason(root: Path) -> None:
    """Change what an entry says."""
    file = root / "log" / "keys" / "00000001.json"
    body = json.loads(file.read_text())
    body["fields"]["key_id"] = "contact-2025-09"
    file.write_bytes(encode_record(body))


def forge_release(root: Path) -> None:
    """Append an entry that releases the hold, with another entry's MAC."""
    folder = root / "log" / "keys"
    body = json.loads((folder / "00000002.json").read_text())
    body["number"], body["kind"], body["fields"]["hold"] = 3, "release", 1
    (folder / "00000003.json").write_bytes(encode_record(body))


def forge_length(root: Path) -> None:
    """Say that the audit is shorter, and cut it."""
    delete_last_entry(root)
    file = max((root / "keys" / "heads" / "keys").iterdir())
    body = json.loads(file.read_text())
    body["number"] = 1
    file.write_bytes(encode_record(body))


@pytest.mark.parametrize(
    "attack",
    [
        delete_last_entry,
        delete_first_entry,
        delete_audit,
        delete_entries,
        delete_end_and_length,
        edit_reason,
        forge_length,
    ],
)
def test_hold_cannot_be_taken_away_without_keys(policy: Policy, root: Path, attack: Callable[[Path], None]) -> None:
    """Whoever may write to the state directory and has no key is found out, by those who read and those who write."""
    hold(policy, root)
    hold(policy, root, "case 2")
    attack(root)
    with pytest.raises(VerificationError):
        facts_of(policy, root)
    with pytest.raises(VerificationError), key_audit(LocalStateStore(root), policy, "shred"):
        pass


def tear_end(root: Path) -> None:
    """Leave a part of a record, as a power cut does."""
    (root / "log" / "keys" / "00000003.json").write_bytes(b'{"kind":"hold"')


@pytest.mark.parametrize("planted", [forge_release, tear_end])
def test_what_is_planted_at_the_end_stops_nothing(policy: Policy, root: Path, planted: Callable[[Path], None]) -> None:
    """No hold is released by it, and the next entry takes its number."""
    hold(policy, root)
    hold(policy, root, "case 2")
    planted(root)
    assert [held.reason for held in facts_of(policy, root).holds[KEY]] == ["case 1", "case 2"]
    hold(policy, root, "case 3")
    assert [held.reason for held in facts_of(policy, root).holds[KEY]] == ["case 1", "case 2", "case 3"]


def test_tombstone_alone_shows_that_the_audit_is_gone(policy: Policy, root: Path) -> None:
    """A state directory that has tombstones and no audit of keys lost it."""
    bury(policy, root)
    delete_audit(root)
    shutil.rmtree(root / "keys" / "heads")
    with pytest.raises(VerificationError, match=r"audit of keys: is gone, though keys/tombstones/.* is there"):
        facts_of(policy, root)


def test_earlier_copy_is_found_by_a_head_that_was_kept(policy: Policy, root: Path) -> None:
    """A state directory from before a hold authenticates; only a head that was kept elsewhere tells."""
    hold(policy, root, "case 0")
    shutil.copytree(root, root.with_name("copy"))
    hold(policy, root)
    head = facts_of(policy, root).head
    shutil.rmtree(root)
    root.with_name("copy").rename(root)
    assert len(facts_of(policy, root).holds[KEY]) == 1
    with pytest.raises(VerificationError, match="none is the record 2"):
        facts_of(policy, root, head)
    none = AuditHead(0, "")
    with pytest.raises(VerificationError, match="has 1 entries, where none is expected"):
        facts_of(policy, root, none)
    shutil.rmtree(root)
    assert facts_of(policy, root) == facts_of(policy, root, none) == KeyFacts()
    with pytest.raises(VerificationError, match="is gone, though its head was kept"):
        facts_of(policy, root, head)


def test_crash_between_records_is_no_alarm(policy: Policy, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the first entry, after it, or between an entry and the record of its head: the next one goes on."""

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    for name in ("append", "_keep_head"):
        with monkeypatch.context() as patch:
            patch.setattr(AuditWriter if name == "append" else KeyAudit, name, kill)
            with pytest.raises(Killed):
                hold(policy, root, name)
    assert facts_of(policy, root).holds == {}
    kept = KeyAudit._keep_head
    with monkeypatch.context() as patch:
        patch.setattr(KeyAudit, "_keep_head", lambda self, head: kill() if head.number else kept(self, head))
        with pytest.raises(Killed):
            hold(policy, root, "before its head")
    assert [found.reason for found in facts_of(policy, root).holds[KEY]] == ["before its head"]
    hold(policy, root, "after")
    assert len(facts_of(policy, root).holds[KEY]) == 2


def test_one_writer_at_a_time(policy: Policy, root: Path) -> None:
    """A hold that comes while a key is shredded is refused, and its message names who works there."""
    with (
        key_audit(LocalStateStore(root), policy, "shred apply"),
        pytest.raises(RunConflictError, match="held by run shred apply of"),
    ):
        hold(policy, root)


@pytest.mark.parametrize("reason", ["planted\n\x1b[31m" * 99, "short"])
def test_planted_tombstone_shreds_nothing(policy: Policy, root: Path, reason: str) -> None:
    """A record that somebody planted gets into messages, short and escaped, and into no decision."""
    hold(policy, root)
    bury(policy, root)
    (file,) = (root / "keys" / "tombstones").iterdir()
    body = json.loads(file.read_text())
    file.write_text(json.dumps({**body, "reason": reason}))
    told = describe_tombstone(policy.run_state, KEY)
    assert told is not None
    assert len(told) < 180
    assert told.isprintable()
    assert facts_of(policy, root).tombstones[KEY].reason == "its retention is over"
    file.write_text(json.dumps({**body, "key_id": "other"}))
    assert describe_tombstone(policy.run_state, KEY) is None


def test_keys_are_shredded_by_an_authentic_tombstone_of_what_is_gone(policy: Policy, root: Path) -> None:
    """A key that is missing, begun, there again, or only marked for readers is not; each is asked for once."""
    service, store = LocalKeyService(policy.key_service), LocalStateStore(root)
    other = "contact-2025-02"

    def selected() -> frozenset[str]:
        return ShreddedKeys(store, policy).select((KEY, other, "none"))

    assert selected() == ShreddedKeys(store, policy).list_all() == frozenset()
    service.delete_key(KEY)
    with key_audit(store, policy, "shred") as audit:
        audit.begin(KEY, "over", "probe", [])
    assert selected() == frozenset()
    bury(policy, root)
    assert selected() == ShreddedKeys(store, policy).list_all() == {KEY}
    service.delete_key(other)
    mark = store.read(tombstone_name(key_digest(KEY))) or b""
    store.create(tombstone_name(key_digest(other)), mark.replace(KEY.encode(), other.encode()))
    kept = ShreddedKeys(store, policy)
    assert kept.select((KEY, other)) == {KEY}
    assert kept.tombstone(KEY).reason == "its retention is over"
    error = KeyNotFoundError("is not there")
    assert "was shredded by" in str(describe_refused(kept, KEY, error))
    assert describe_refused(kept, other, error) is error
    service.create(KEY)
    assert selected() == frozenset()
    assert kept.select((KEY,)) == {KEY}
    service.delete_key(KEY)
    (root / "log/keys/00000003.json").unlink()
    with pytest.raises(VerificationError, match="none is the record 3"):
        selected()


@pytest.mark.parametrize("verb", ["unwrap", "describe"])
def test_who_may_not_look_is_told_of_no_shredded_key(
    policy: Policy, root: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Without the right to open audits, or to see whether the key is gone, it stays a key that cannot be opened."""
    bury(policy, root)
    LocalKeyService(policy.key_service).delete_key(KEY)
    assert ShreddedKeys(LocalStateStore(root), policy).select((KEY,)) == {KEY}

    def deny(*_: object) -> None:
        raise KeyAccessDeniedError("denied")

    monkeypatch.setattr(LocalKeyService, verb, deny)
    assert ShreddedKeys(LocalStateStore(root), policy).select((KEY,)) == frozenset()


OWN = Wrapping("pii", 2, "own")
FOOTER = Wrapping("footer", 1, "any")
ROTATION = Rotation("pii", 2, OWN)
WRONG_KEY = Drift("wrong_key", "/t/f", "email", "encrypted with 'old', not 'pii'", "old", only_keys=True)
EXTRA = Drift("extra", "/t/f", "note", "encrypted with 'pii'", only_keys=False)


def file(*wrappings: Wrapping, prefix: bytes | None = b"prefix") -> FileSummary:
    """Return the summary of a file whose data keys are wrapped so."""
    return FileSummary("/t/f", "encrypted", "AES_GCM_V1", "footer", prefix, False, b"12345678", 1, 1, {}, wrappings)


@pytest.mark.parametrize(
    ("wrappings", "rotation", "kinds"),
    [
        ((FOOTER, OWN), ROTATION, []),
        ((FOOTER,), ROTATION, []),
        ((FOOTER, replace(OWN, version=1)), ROTATION, ["old_version"]),
        ((FOOTER, replace(OWN, digest="another writer's")), ROTATION, ["other_kek"]),
        ((OWN, replace(OWN, digest="another writer's")), ROTATION, ["other_kek"]),
        ((replace(OWN, version=3, digest="wrapped directly"),), ROTATION, ["other_kek"]),
        ((replace(OWN, version=0),), ROTATION, ["other_kek"]),  # AWS does not tell: the KEK decides
        ((OWN,), replace(ROTATION, wrapping=None), ["other_kek"]),
        ((FOOTER,), replace(ROTATION, wrapping=None), []),
    ],
)
def test_files_differ_until_the_tables_kek_wraps_all(
    wrappings: tuple[Wrapping, ...], rotation: Rotation, kinds: list[str]
) -> None:
    """Only the key that is rotated counts, and of it everything that a reader would have to open besides the KEK."""
    found = rotation.drift_of(file(*wrappings), ())
    assert [difference.kind for difference in found] == kinds
    if found:
        assert action_of(found, rewrap=True) == "re-wrap"


def test_other_drift_decides_whether_data_keys_can_stay() -> None:
    """What is under a master key that the plan lacks is rewrapped in one go; any other drift is re-keyed."""
    stale = file(replace(OWN, version=1))
    assert action_of(ROTATION.drift_of(stale, [WRONG_KEY]), rewrap=True) == "re-wrap"
    assert action_of(ROTATION.drift_of(stale, [EXTRA]), rewrap=True) == "re-key"
    assert action_of(ROTATION.drift_of(replace(stale, aad_prefix=None), ()), rewrap=True) == "re-key"


def test_unit_is_left_alone_or_refused_where_it_is_another_runs() -> None:
    """A unit with nothing under the key is not this rotation's; one with more to do is refused by name."""
    stale = ROTATION.drift_of(file(replace(OWN, version=1)), ())
    unreadable = Drift("unreadable", "/t/g", None, "VerificationError: no")
    assert select_drift((EXTRA, WRONG_KEY)) == ()
    assert select_drift((*stale, EXTRA)) == (*stale, EXTRA)
    assert select_drift((unreadable,)) == (unreadable,)
    refuse_other_drift("p=1", (*stale, WRONG_KEY), ROTATION)
    with pytest.raises(VerificationError, match=r"p=1: /t/f: note: extra: .*a rotation of 'pii' wraps keys anew"):
        refuse_other_drift("p=1", (*stale, EXTRA), ROTATION)


def test_rotation_looks_for_the_kek_that_was_used() -> None:
    """What is proven after staging is that the KEK of the orders wraps, whatever was known before."""
    kek = WrappedKek("pii", "id", "local:v2:AAAA")
    asked = replace(ROTATION, wrapping=None).with_keks([WrappedKek("footer", "id", "x"), kek])
    assert asked.wrapping is not None
    assert (asked.wrapping.key_id, asked.wrapping.version) == ("pii", 2)
    assert asked.drift_of(file(asked.wrapping), ()) == ()
    assert replace(ROTATION, wrapping=None).with_keks([]).wrapping is None


def test_a_resumed_run_stays_a_rotation() -> None:
    """The journal keeps the key and the version; journals of runs without say nothing of them, as they always did."""
    options = RunOptions(rewrap=True, rotate_key="pii", rotate_to=2)
    assert RunOptions(where="p = 1").as_begun(options.to_dict()) == options
    assert "rotate_key" not in RunOptions().to_dict()
    assert options.as_begun(RunOptions().to_dict()).rotate_key is None
    rekeys = RunOptions(rotate_key="pii", rotate_to=2)
    assert RunOptions(rewrap=True).as_begun(rekeys.to_dict()) == rekeys


class _Killed(RuntimeError):
    """The process ends here."""


class Service(LocalKeyService):
    """A local key service whose process may be killed, or that hides versions, as AWS does from some credentials."""

    killed = hidden = False

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, and end the process if it is to be killed."""
        made = super().rotate(key_id)
        if self.killed:
            raise _Killed
        return self.describe(made.key_id)

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key, with one version if versions are hidden."""
        found = super().describe(key_id)
        return replace(found, versions=1) if self.hidden else found


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A key service with one key."""
    opened = Service(KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")}))
    opened.create("pii")
    return opened


@pytest.fixture
def store(tmp_path: Path) -> LocalStateStore:
    """A state directory."""
    return LocalStateStore(tmp_path / "state")


def test_a_version_that_is_not_told_is_looked_for_as_such(store: LocalStateStore) -> None:
    """Under a key service that tells no version, KEKs are recorded under 0, and a rotation looks for those."""
    trust: Any = SimpleNamespace(store=store, table_id="t")
    rotation = rotation_of(RunOptions(rotate_key="pii", rotate_to=0, dry_run=True), trust)
    assert rotation is not None and rotation.version == 0


def test_a_version_is_made_once_a_rotation(store: LocalStateStore, service: Service) -> None:
    """An unfinished rotation goes on under its version, a finished one is followed by the next; a plan makes none."""
    assert plan_version(store, service, "pii", keep_version=False) == 2
    assert plan_version(store, service, "pii", keep_version=True) == 1
    assert [begin_version(store, service, "pii", keep_version=False) for _ in range(3)] == [2, 2, 2]
    assert plan_version(store, service, "pii", keep_version=False) == 2
    finish_rotation(store, "pii", 2)
    assert plan_version(store, service, "pii", keep_version=False) == 3
    assert begin_version(store, service, "pii", keep_version=True) == 2
    finish_rotation(store, "pii", 2)
    assert begin_version(store, service, "pii", keep_version=False) == 3
    with pytest.raises(KeyNotFoundError):
        begin_version(store, service, "gone", keep_version=False)


def test_a_version_for_new_data_keys_is_never_one_that_rewrapped(store: LocalStateStore, service: Service) -> None:
    """Files that an unfinished rotation has rewrapped would else count as re-keyed; the other way round as well."""
    assert begin_version(store, service, "pii", keep_version=False) == 2
    assert plan_version(store, service, "pii", keep_version=False, rekeys=True) == 3
    assert [begin_version(store, service, "pii", keep_version=False, rekeys=True) for _ in range(2)] == [3, 3]
    assert begin_version(store, service, "pii", keep_version=False) == 4


def test_a_killed_process_makes_no_further_version(store: LocalStateStore, service: Service) -> None:
    """What the key service did before the process ended is seen by the next, which goes on."""
    service.killed = True
    with pytest.raises(_Killed):
        begin_version(store, service, "pii", keep_version=False)
    service.killed = False
    assert begin_version(store, service, "pii", keep_version=False) == 2
    assert service.describe("pii").versions == 2


def test_hidden_versions_are_no_success(store: LocalStateStore, service: Service) -> None:
    """A service that does not tell of the version it made is asked for one, and once; the way on is named."""
    service.hidden = True
    for _ in range(2):
        with pytest.raises(KeyServiceError, match=r"asked for version 2 of 'pii', and tells of 1.*--keep-version"):
            begin_version(store, service, "pii", keep_version=False)
    service.hidden = False
    assert service.describe("pii").versions == 2
    assert begin_version(store, service, "pii", keep_version=False) == 2


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version": 1, "key_id": "other", "to": 9}'])
def test_damaged_record_is_none(store: LocalStateStore, service: Service, content: bytes) -> None:
    """A record that says nothing of this key is passed over."""
    RotationRecord("pii", 5, asked=True).keep(store)
    (name,) = store.list("keys/rotations/")
    store.delete(name)
    store.create(name, content)
    assert RotationRecord.read(store, "pii") is None
    assert begin_version(store, service, "pii", keep_version=False) == 2


def test_records_that_older_versions_wrapped_are_found(store: LocalStateStore, service: Service) -> None:
    """A MAC key and a run's secret count, in packs too; those under the newest version or another key do not.

    Nor does what a former key service of another type wrapped; what nobody can tell counts.
    """
    old = service.wrap("pii", b"k" * 16)
    service.rotate("pii")
    new = service.wrap("pii", b"k" * 16)

    def record(name: str, key_id: str, wrapped: str, before: bytes = b"") -> None:
        inner = {"fields": {"secret": {"key_id": key_id, "wrapped": wrapped}}}
        store.create(name, before + json.dumps(inner).encode() + b"\n")

    record("keys/macs/t/mac-key.json", "pii", old)
    record("log/t/00000001.json", "other", old)
    record("log/t/00000002.json", "pii", new)
    record("log/t/00000011-00000064.json", "pii", old, b'{"fields":{}}\n')
    record("log/t/00000003.json", "pii", "AQICAHh")
    store.create("log/t/00000004.json", b"torn")
    record("log/t/00000005.json", "pii", "vault:v1:AAAA")
    assert [need.what for need in find_records(store, "pii", 2, "local")] == [
        "keys/macs/t/mac-key.json",
        "log/t/00000003.json",
        "log/t/00000011-00000064.json",
    ]
    assert [need.what for need in find_records(store, "pii", 2, "vault")] == [
        "log/t/00000003.json",
        "log/t/00000005.json",
    ]
    assert list(find_records(store, "fin", 2, "local")) == []
