"""The MAC keys of an audit: kept wrapped, succeeded by stronger ones, never by weaker."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path

import pytest

from sparkcrypt.errors import KeyServiceError, VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.audit import AuditWriter, verify_audit
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.ledger.state.store import LocalStateStore, encode_record
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.load import policy_from_text
from tests.unit.backfill.audits import entry, rewritten
from tests.unit.backfill.conftest import TABLE

FOLDER = f"keys/macs/{TABLE}/"
BEFORE = MasterKeys("footer", (), ("footer",))
AFTER = MasterKeys("audit", (), ("footer",))
"""A policy before and after it came to name a key for audits."""


@pytest.fixture
def service(tmp_path: Path) -> KeyService:
    """A real key service with three master keys."""
    opened = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")}))
    for key_id in ("audit", "other", "footer"):
        opened.create(key_id)
    return opened


def test_the_mac_key_is_kept_wrapped_and_used_by_every_writer(store: LocalStateStore, service: KeyService) -> None:
    """Two openings of one table make the same MACs; two tables do not; the key is not in the state directory."""
    first, again = (
        open_mac(store, TABLE, service, MasterKeys("audit")),
        open_mac(store, TABLE, service, MasterKeys("audit")),
    )
    other = open_mac(store, "other-table", service, MasterKeys("audit"))
    assert first(b"x") == again(b"x") != other(b"x")
    assert re.fullmatch("[0-9a-f]{64}", first(b"x"))
    kept = store.read(f"{FOLDER}mac-key.json") or b""
    body = json.loads(kept)
    assert set(body) == {"version", "table_id", "key_id", "wrapped"}
    assert first._keys == (service.unwrap("audit", body["wrapped"]),)
    assert first._keys[0].hex().encode() not in kept
    AuditWriter(TableLog.open(store, TABLE, first), 1).append(entry())
    assert verify_audit(store, TABLE, again) is not None
    with pytest.raises(VerificationError, match="does not authenticate"):
        verify_audit(store, TABLE, other)


def test_of_two_first_writers_one_makes_the_mac_key(store: LocalStateStore, service: KeyService) -> None:
    """Both end with the key that is in the store."""

    class Faster(LocalStateStore):
        def create(self, name: str, content: bytes) -> bool:
            faster.append(open_mac(store, TABLE, service, MasterKeys("audit")))
            return super().create(name, content)

    faster: list[TableMac] = []
    slow = open_mac(Faster(store._root), TABLE, service, MasterKeys("audit"))
    assert slow(b"x") == faster[0](b"x")


def test_a_lost_mac_key_is_not_made_anew(store: LocalStateStore, service: KeyService) -> None:
    """With entries and KEKs there and the key gone someone hides something; a log without KEKs may be planted."""
    AuditWriter(TableLog.open(store, TABLE, open_mac(store, TABLE, service, MasterKeys("audit"))), 1).append(entry())
    store.delete(f"{FOLDER}mac-key.json")
    store.create(f"keys/keks/{TABLE}/0123-128/000001.json", b"{}\n")
    with pytest.raises(VerificationError, match=r"mac-key\.json: is gone"):
        open_mac(store, TABLE, service, MasterKeys("audit"))
    store.delete(f"keys/keks/{TABLE}/0123-128/000001.json")
    made = open_mac(store, TABLE, service, MasterKeys("audit"))
    assert not TableLog.open(store, TABLE, made).records


def test_a_mac_key_under_another_master_key_is_refused_unless_it_is_named(
    store: LocalStateStore, service: KeyService
) -> None:
    """Who may wrap under a key of his own cannot bring his MAC key; an earlier key of the policy is accepted."""
    mac = open_mac(store, TABLE, service, MasterKeys("other"))
    with pytest.raises(VerificationError, match="wrapped by master key 'other', where 'audit'"):
        open_mac(store, TABLE, service, MasterKeys("audit"))
    assert open_mac(store, TABLE, service, MasterKeys("audit", ("other",)))(b"x") == mac(b"x")


def test_a_mac_key_of_another_table_a_damaged_or_a_short_one_is_refused(
    store: LocalStateStore, service: KeyService, tmp_path: Path
) -> None:
    """The MAC key's record is checked before it is believed."""
    open_mac(store, TABLE, service, MasterKeys("audit"))
    path = tmp_path / "state" / FOLDER / "mac-key.json"
    content = path.read_bytes()
    short = service.wrap("audit", secrets.token_bytes(16))
    cases = {
        "not the MAC key": rewritten(content, lambda body: body.update(table_id="other")),
        "16 bytes": rewritten(content, lambda body: body.update(wrapped=short)),
        "not a record": content[:-1],
    }
    for message, changed in cases.items():
        path.write_bytes(changed)
        with pytest.raises(VerificationError, match=message):
            open_mac(store, TABLE, service, MasterKeys("audit"))
    path.write_bytes(rewritten(content, lambda body: body.update(wrapped="junk")))
    with pytest.raises(KeyServiceError):
        open_mac(store, TABLE, service, MasterKeys("audit"))


def planted(store: LocalStateStore, service: KeyService, name: str, key_id: str) -> TableMac:
    """Write a MAC key of one's own, wrapped by a master key, as somebody who may use that key can."""
    key = secrets.token_bytes(32)
    body = {"version": 1, "table_id": TABLE, "key_id": key_id, "wrapped": service.wrap(key_id, key)}
    store.delete(FOLDER + name)
    assert store.create(FOLDER + name, encode_record(body))
    return TableMac(key)


def test_an_audit_under_the_footer_key_goes_on_under_a_key_of_its_own(
    store: LocalStateStore, service: KeyService
) -> None:
    """Entries from before verify, also before there is a new one; the next writer makes a new MAC key, once."""
    AuditWriter(TableLog.open(store, TABLE, open_mac(store, TABLE, service, BEFORE, renew=True)), 1).append(entry())
    looking = open_mac(store, TABLE, service, AFTER)
    assert looking.key_ids == ("footer",)
    assert verify_audit(store, TABLE, looking) is not None
    assert store.read(f"{FOLDER}mac-key-2.json") is None
    AuditWriter(TableLog.open(store, TABLE, open_mac(store, TABLE, service, AFTER, renew=True)), 1).append(entry())
    after = open_mac(store, TABLE, service, AFTER, renew=True)
    assert after.key_ids == ("footer", "audit")
    head = verify_audit(store, TABLE, after)
    assert head is not None and head.number == 2


def test_an_audit_goes_on_under_the_key_service_that_wraps_now(store: LocalStateStore, tmp_path: Path) -> None:
    """Whoever holds the former service's key writes no later entry; earlier ones verify as long as it is named."""
    former = {"type": "local", "path": str(tmp_path / "former"), "keys": ["audit"]}
    now = {"type": "local", "path": str(tmp_path / "now")}
    before = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": former["path"]}))
    moving = open_key_service(KeyServiceConfig.from_dict({**now, "former": [former]}))
    for opened in (before, moving):
        opened.create("audit")
    AuditWriter(TableLog.open(store, TABLE, open_mac(store, TABLE, before, AFTER, renew=True)), 1).append(entry())
    assert open_mac(store, TABLE, moving, AFTER).key_ids == ("audit",)
    for _ in range(2):
        AuditWriter(TableLog.open(store, TABLE, open_mac(store, TABLE, moving, AFTER, renew=True)), 1).append(entry())
    after = open_mac(store, TABLE, moving, AFTER)
    assert after.key_ids == ("audit", "audit")
    head = verify_audit(store, TABLE, after)
    assert head is not None and head.number == 3
    with pytest.raises(KeyServiceError, match="audit"):
        open_mac(store, TABLE, open_key_service(KeyServiceConfig.from_dict(now)), AFTER)


def test_readers_cannot_plant_a_mac_key_under_the_footer_key(store: LocalStateStore, service: KeyService) -> None:
    """Neither in the place of the audit's own key, nor as its successor."""
    for _ in range(2):
        AuditWriter(TableLog.open(store, TABLE, open_mac(store, TABLE, service, AFTER, renew=True)), 1).append(entry())
    planted(store, service, "mac-key-2.json", "footer")
    with pytest.raises(VerificationError, match=r"mac-key-2\.json: is wrapped by a weaker master key"):
        open_mac(store, TABLE, service, AFTER)
    store.delete(f"{FOLDER}mac-key-2.json")
    planted(store, service, "mac-key.json", "footer")
    forged = open_mac(store, TABLE, service, AFTER)
    assert AFTER.weakness(forged.key_ids[-1]) is not None
    with pytest.raises(VerificationError, match="does not authenticate"):
        verify_audit(store, TABLE, forged)


def test_an_earlier_audit_key_is_stronger_than_the_footer_key(store: LocalStateStore, service: KeyService) -> None:
    """With a history of audit keys, too, none that readers hold may follow."""
    masters = MasterKeys("audit", ("other",), ("footer",))
    open_mac(store, TABLE, service, MasterKeys("other"))
    planted(store, service, "mac-key-2.json", "footer")
    with pytest.raises(VerificationError, match="weaker"):
        open_mac(store, TABLE, service, masters)


def test_a_missing_mac_key_between_others_is_found(store: LocalStateStore, service: KeyService) -> None:
    """The first of two may not go."""
    open_mac(store, TABLE, service, BEFORE)
    open_mac(store, TABLE, service, AFTER, renew=True)
    store.delete(f"{FOLDER}mac-key.json")
    with pytest.raises(VerificationError, match=r"mac-key\.json: is gone"):
        open_mac(store, TABLE, service, AFTER)


@pytest.mark.parametrize(
    ("more", "current", "earlier", "weak"),
    [
        ("", "footer", (), True),
        ("audit: {key: audit}\n", "audit", (), False),
        ("audit: {key: audit, history: [other]}\n", "audit", ("other",), False),
    ],
)
def test_the_policy_says_which_master_key_and_whether_readers_hold_it(
    more: str, current: str, earlier: tuple[str, ...], weak: bool
) -> None:
    """Without a key of its own the audit goes by the footer's, which is told as a weakness with the remedy."""
    text = "version: 1\nkey_service: {type: local, path: k}\nfooter: {key: footer, history: [older]}\nuntagged: deny\n"
    masters = MasterKeys.of(policy_from_text(text + more, where="p", base="/"))
    assert masters == MasterKeys(current, earlier, ("footer", "older"))
    assert ("audit: {key: audit}" in (masters.weakness(masters.current) or "")) is weak
    assert masters.weakness("older") is not None


def test_a_mac_key_changes_no_mac_of_the_one_before(service: KeyService) -> None:
    """Which of two keys made a MAC is told by number; none is 0."""
    first, both = TableMac(b"k" * 32), TableMac(b"k" * 32, b"n" * 32)
    assert [both.check(b"x", first(b"x")), both.check(b"x", both(b"x")), both.check(b"y", both(b"x"))] == [1, 2, 0]
    assert both.check(b"x", "") == 0
