"""Keys deleted for good on real tables: what was confirmed and no more, proven, remembered, and killed anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hvac
import pytest

from sparkcrypt import configure
from sparkcrypt.errors import ConfigError, KeyNotFoundError, RunConflictError, VerificationError
from sparkcrypt.keys.local.keystore import KeyDirectory
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import DelegatingKeyService, OptionalVerb
from sparkcrypt.ledger.audit.key_audit import KeyAudit, KeyFacts, key_audit, read_key_facts
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys import apply_shredding as module
from sparkcrypt.runs.keys.apply_shredding import ShredOptions, prove_gone, shred_keys
from sparkcrypt.runs.keys.find_shreddable import Selection
from sparkcrypt.runs.keys.shredding_plan import ShredPlan, ShredReport
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.shredding import (
    KEYS,
    NEW,
    NEXT,
    OLD,
    make_policy_of_months,
    make_table_of_months,
    plan_shredding,
    run_command,
    state_of,
)
from tests.spark.support import Lake, key_service, refusal, rows_of

pytestmark = pytest.mark.spark


def shred(lake: Lake, policy: Policy, *tables: str, confirm: Any = None, **more: Any) -> ShredReport:
    """Shred what is due of some tables."""
    options = ShredOptions(more.pop("reason", None), more.pop("expected", None), attended=more.pop("attended", True))
    seen = confirm or (lambda _: None)
    return shred_keys(lake.spark, policy, Selection(tables, **more), options, confirm=seen)


def facts_of(policy: Policy) -> KeyFacts:
    """Read the audit of keys."""
    return read_key_facts(state_of(policy), key_service(policy), MasterKeys.of(policy))


def keys_of(policy: Policy) -> set[str]:
    """Return the keys of months that the key service has."""
    return {key.key_id for key in key_service(policy).list_keys() if key.key_id.startswith("contact-")}


def test_due_keys_are_deleted_and_the_rest_stays_readable(lake: Lake) -> None:
    """Two months go dark, told by report, audit and plan; another command finds nothing; other columns are read."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    before = rows_of(lake.spark.table("t").select("id", "ssn", "d"))
    asked: list[ShredPlan] = []
    report = shred(lake, policy, "t", confirm=asked.append)
    assert [[key.key_id for key in plan.chosen] for plan in asked] == [[OLD, NEXT]]
    assert (report.outcome, report.exit_code, keys_of(policy)) == ("done", 0, {NEW})
    gone = report.to_dict()["shredded"]
    assert [(key["key_id"], key["dark"][0]["rows"]) for key in gone] == [(OLD, 2), (NEXT, 1)]
    assert "nobody can prove that of a disk" in gone[0]["promise"]
    assert any("backups of the key service" in what for what in gone[0]["remains"])
    facts = facts_of(policy)
    assert (list(facts.tombstones), dict(facts.begun), facts.head_text) == ([OLD, NEXT], {}, report.head)
    assert facts.tombstones[OLD].dark[0]["partitions"] == ["d=2025-01-05", "d=2025-01-31"]
    assert facts.tombstones[OLD].effective_at == gone[0]["effective_at"] > facts.tombstones[OLD].time[:19]

    again = shred(lake, policy, "t", confirm=pytest.fail)
    assert (again.outcome, again.exit_code) == ("nothing to do", 0)
    assert [tombstone.key_id for tombstone in plan_shredding(lake, policy, "t").shredded] == [OLD, NEXT]
    with pytest.raises(KeyNotFoundError, match=f"'{OLD}' was shredded"):
        facts_of(policy).refuse_shredded(OLD, "made")
    session = lake.spark.newSession()
    session.sql(f"USE {lake.database}")
    assert rows_of(session.table("t").select("id", "ssn", "d")) == before


def in_vault(vault: Any, lake: Lake) -> KeyServiceConfig:
    """Return a real Vault as key service, with a mount of the test's own."""
    mount = f"shred-{lake.database}"
    hvac.Client(url=vault.address, token=vault.root_token).sys.enable_secrets_engine("transit", path=mount)
    token = lake.root / "token"
    token.touch(mode=0o600)
    token.write_text(vault.root_token)
    auth = {"method": "token", "token_file": str(token)}
    return KeyServiceConfig.from_dict({"type": "vault", "address": vault.address, "mount_point": mount, "auth": auth})


@pytest.mark.services
def test_keys_of_vault_are_deleted(lake: Lake, vault: Any) -> None:
    """A real Vault deletes the keys: nobody wraps or unwraps with them, as a fresh process proves; the rest is read."""
    config = in_vault(vault, lake)
    policy = replace(make_policy_of_months(lake), key_service=config)
    service = open_key_service(config)
    for key_id in ("footer", "pii", *KEYS):
        service.create(key_id)
    configure(lake.spark, policy)
    make_table_of_months(lake, policy)
    before = rows_of(lake.spark.table("t").select("id", "ssn", "d"))
    report = shred(lake, policy, "t")
    assert (report.outcome, report.exit_code) == ("done", 0)
    facts = read_key_facts(state_of(policy), service, MasterKeys.of(policy))
    assert list(facts.tombstones) == [key.key_id for key in report.shredded] == [OLD, NEXT]
    for key_id in (OLD, NEXT):
        with pytest.raises(KeyNotFoundError):
            service.wrap(key_id, bytes(16))
    service.wrap(NEW, bytes(16))
    session = lake.spark.newSession()
    session.sql(f"USE {lake.database}")
    assert rows_of(session.table("t").select("id", "ssn", "d")) == before
    assert session.table("t").where("d = '2026-10-01'").select("email").orderBy("id").collect() == [("e4",), ("e5",)]
    assert OLD in refusal(lambda: session.table("t").where("d = '2025-01-05'").select("email").collect())


def test_what_is_held_refused_or_not_confirmed_stays(lake: Lake) -> None:
    """A held key and one that is needed stay while another goes; an answer that is not given deletes nothing."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    with key_audit(state_of(policy), policy, "keys hold") as audit:
        audit.hold(NEXT, "case 4711")
    with pytest.raises(RuntimeError, match="no"):
        shred(lake, policy, "t", confirm=lambda _: (_ for _ in ()).throw(RuntimeError("no")))
    assert keys_of(policy) == {OLD, NEXT, NEW}
    report = shred(lake, policy, "t")
    assert ([key.key_id for key in report.shredded], [key.key_id for key in report.kept]) == ([OLD], [NEXT])
    assert (report.outcome, keys_of(policy)) == ("done", {NEXT, NEW})
    with pytest.raises(VerificationError, match=f"'{NEXT}' is not shredded: is under hold 1 of .*: case 4711"):
        shred(lake, policy, "t", key_id=NEXT)
    for key_id in (NEW, "pii", "footer", "audit"):
        with pytest.raises(VerificationError, match=f"'{key_id}' is not shredded: "):
            shred(lake, policy, "t", key_id=key_id, reason="because")
        key_service(policy).describe(key_id)


def test_hold_that_comes_after_the_question_counts(lake: Lake) -> None:
    """Holds and tables are looked at again right before each deletion, not only when the plan was shown."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)

    def hold(_: ShredPlan) -> None:
        with key_audit(state_of(policy), policy, "keys hold") as audit:
            audit.hold(OLD, "case 4712")
        lake.sql("ALTER TABLE t ADD COLUMNS (phone STRING)")
        set_tags(lake.spark, "t", {"phone": ["contact"]}, policy)
        lake.sql("INSERT INTO t PARTITION (d = '2025-02-01') VALUES (9, 'e9', 's9', 'p9')")

    report = shred(lake, policy, "t", confirm=hold)
    assert (report.shredded, report.outcome, report.exit_code) == ([], "incomplete", 74)
    assert "case 4712" in report.left[OLD]
    assert f"more came under it since it was confirmed: phone of {lake.name('t')}" in report.left[NEXT]
    assert keys_of(policy) == {OLD, NEXT, NEW}
    assert facts_of(policy).begun == {}


class Killed(BaseException):
    """What a killed command ends with."""


NO_HEAD = AuditHead(0, "")
KILLS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def kills(function: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Note a way to kill the command."""
    KILLS[function.__name__] = function
    return function


def die(*_: Any, **__: Any) -> Any:
    """End the command at once."""
    raise Killed


def after(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that ends the command when it has been made."""

    def then_die(*arguments: Any, **options: Any) -> Any:
        call(*arguments, **options)
        raise Killed

    return then_die


@kills
def before_the_audit(patch: pytest.MonkeyPatch) -> None:
    """Nothing is written yet."""
    patch.setattr(KeyAudit, "begin", die)


@kills
def after_the_audit(patch: pytest.MonkeyPatch) -> None:
    """The audit says that it begins; the key is there."""
    patch.setattr(KeyAudit, "begin", after(KeyAudit.begin))


@kills
def after_the_deletion(patch: pytest.MonkeyPatch) -> None:
    """The key is gone, and nothing proves it yet."""
    patch.setattr(LocalKeyService, "delete_key", after(LocalKeyService.delete_key))


@kills
def after_the_proof(patch: pytest.MonkeyPatch) -> None:
    """The key is seen to be gone."""
    patch.setattr(module, "prove_gone", after(prove_gone))


@kills
def before_the_mark(patch: pytest.MonkeyPatch) -> None:
    """The tombstone is in the audit, and readers have no word of it."""
    patch.setattr(KeyAudit, "mark", die)


@kills
def after_the_tombstone(patch: pytest.MonkeyPatch) -> None:
    """All is written, and the lock is not given back."""
    patch.setattr(KeyAudit, "bury", after(KeyAudit.bury))


def test_killed_command_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between any two steps, the next command ends what was begun, and no key is forgotten or deleted twice."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    for step, kill in KILLS.items():
        folder = lake.root / f"keys {step}"
        own = replace(
            policy,
            key_service=KeyServiceConfig.from_dict({"type": "local", "path": str(folder)}),
            run_state=str(lake.root / f"state {step}"),
        )
        folder.mkdir(mode=0o700)
        for file in Path(policy.key_service.options["path"]).glob("*.json"):
            (folder / file.name).write_bytes(file.read_bytes())
            (folder / file.name).chmod(0o600)
        with monkeypatch.context() as patch:
            kill(patch)
            with pytest.raises(Killed):
                shred(lake, own, "t", reason="first", expected=NO_HEAD)
        ends = step in ("before_the_mark", "after_the_tombstone")  # between two keys, so nothing shows that more is due
        report = shred(lake, own, "t", reason="second", expected=None if ends else NO_HEAD)
        assert report.outcome == "done", step
        facts = facts_of(own)
        assert (sorted(facts.tombstones), dict(facts.begun), keys_of(own)) == ([OLD, NEXT], {}, {NEW}), step
        reasons = [facts.tombstones[OLD].reason, facts.tombstones[NEXT].reason]
        assert reasons == ["second" if step == "before_the_audit" else "first", "second"], step
        assert len(list((lake.root / f"state {step}" / "keys" / "tombstones").iterdir())) == 2, step


def test_key_that_still_unwraps_is_no_tombstone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key service that says that it deleted a key and did not is found out, and asked again by the next command."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    with monkeypatch.context() as patch:
        patch.setattr(KeyDirectory, "remove", lambda *_: None)
        with pytest.raises(VerificationError, match=f"'{OLD}' still unwraps what it wrapped"):
            shred(lake, policy, "t")
    facts = facts_of(policy)
    assert (list(facts.begun), dict(facts.tombstones), keys_of(policy)) == ([OLD], {}, {OLD, NEXT, NEW})
    assert shred(lake, policy, "t").outcome == "done"
    key_service(policy).create(OLD)  # by hand, beside every rule
    assert [key.key_id for key in plan_shredding(lake, policy, "t").keys] == [OLD]
    assert shred(lake, policy, "t").outcome == "done"
    assert keys_of(policy) == {NEW}


def test_service_without_the_verb_is_told_how(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a service deletes no key here, somebody does by hand, and the command writes the tombstones."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)

    class WithoutDeletion(DelegatingKeyService):
        def offers(self, verb: OptionalVerb) -> bool:
            return verb != "delete_key" and super().offers(verb)

    monkeypatch.setattr(module, "open_key_service", lambda _: WithoutDeletion(key_service(policy)))
    told = rf"\(LocalKeyService\) does not delete keys here; delete '{OLD}', '{NEXT}' with"
    with pytest.raises(ConfigError, match=told):
        shred(lake, policy, "t")
    assert facts_of(policy) == KeyFacts()
    for key_id in (OLD, NEXT):
        key_service(policy).delete_key(key_id)
    report = shred(lake, policy, "t")
    assert (report.outcome, report.shredded[0].promise) == ("done", "the key service had the key no more")
    assert list(facts_of(policy).tombstones) == [OLD, NEXT]


def test_unattended_command_needs_word_of_holds(lake: Lake) -> None:
    """Without an audit of keys, which may have been lost with its holds, a job is told to say that there is none."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    (file,) = lake.root.glob("policy-*/policy.yaml")
    command = ("shred", "apply", "--table", lake.name("t"), "--yes", "--reason", "over")
    code, document, _ = run_command(file, *command)
    assert (code, "give --head none" in document["error"]["message"]) == (78, True)
    assert run_command(file, *command[:-2])[0] == 64
    code, document, _ = run_command(file, *command, "--head", f"1:{'0' * 64}")
    assert (code, "is gone, though its head was kept" in document["error"]["message"]) == (74, True)
    assert keys_of(policy) == {OLD, NEXT, NEW}
    code, document, _ = run_command(file, *command, "--head", "none", "--report", str(lake.root / "report.json"))
    assert (code, document["outcome"], keys_of(policy)) == (0, "done", {NEW})
    report = json.loads((lake.root / "report.json").read_text())
    assert (report["kind"], report["outcome"], len(report["shredded"])) == ("sparkcrypt shred", "done", 2)
    code, document, _ = run_command(file, *command, "--head", "none", "--report", str(lake.root / "report.json"))
    assert json.loads((lake.root / "report.json").read_text())["outcome"] == "failed"
    assert (code, "where none is expected" in document["error"]["message"]) == (74, True)


def test_person_types_what_is_deleted(lake: Lake) -> None:
    """The number of keys, or the id of a single one: anything else, and an end of input, deletes nothing."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    (file,) = lake.root.glob("policy-*/policy.yaml")
    command = ("shred", "apply", "--table", lake.name("t"))
    for answer in ("", "y\n", "1\n", f"{OLD}\n"):
        code, _, errors = run_command(file, *command, answer=answer)
        assert (code, "and not the number of keys, 2; nothing was deleted" in errors) == (64, True)
    code, _, errors = run_command(file, *command, "--key", OLD, answer="1\n")
    assert (code, f"and not the id of the key, {OLD}" in errors) == (64, True)
    assert keys_of(policy) == {OLD, NEXT, NEW}
    assert "it knows of no hold" in errors
    code, document, _ = run_command(file, *command, "--key", OLD, answer=f"{OLD}\n")
    assert (code, [key["key_id"] for key in document["shredded"]], keys_of(policy)) == (0, [OLD], {NEXT, NEW})


def test_two_commands_do_not_meet(lake: Lake) -> None:
    """A second command is refused while the first holds the audit of keys; it has deleted nothing."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    with (
        key_audit(state_of(policy), policy, "shred apply"),
        pytest.raises(RunConflictError, match="held by run shred apply"),
    ):
        shred(lake, policy, "t")
    assert keys_of(policy) == {OLD, NEXT, NEW}


def test_tenant_is_shredded_by_name(lake: Lake) -> None:
    """A key without a date is never due; who names it, and says why, shreds it."""
    policy = make_policy_of_months(lake)
    lake.sql("CREATE TABLE t (id INT, email STRING, r STRING) USING parquet PARTITIONED BY (r)")
    set_tags(lake.spark, "t", {"email": ["tenant"]}, policy)
    lake.sql("INSERT INTO t VALUES (1, 'e1', 'acme')")
    assert shred(lake, policy, "t").outcome == "nothing to do"
    with pytest.raises(ConfigError, match="'tenant-acme' has no date; give --reason"):
        shred(lake, policy, "t", key_id="tenant-acme")
    report = shred(lake, policy, "t", key_id="tenant-acme", reason="contract ended")
    assert [key.key_id for key in report.shredded] == ["tenant-acme"]
    assert facts_of(policy).tombstones["tenant-acme"].reason == "contract ended"
