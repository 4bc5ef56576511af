"""`sparkcrypt keys hold|release`: holds, which forbid shredding a master key until they are released."""

from __future__ import annotations

import click

from sparkcrypt.backfill.audit.write_key_audit import key_audit
from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import Launch, json_option, policy_option, spark_options
from sparkcrypt.cli.frame.output import show

_reason = click.option("--reason", required=True, metavar="TEXT", help="Why; the audit of keys keeps it.")


@click.command("hold", cls=Command)
@click.argument("key_id")
@_reason
@policy_option
@json_option
@spark_options
def hold_key(key_id: str, reason: str, policy: str, as_json: bool, launch: Launch) -> None:
    """Put a legal hold on a master key: `sparkcrypt shred` refuses it until each of its holds is released.

    The hold is an entry of the audit of keys, in the state directory.  Keep the head that is printed where the users
    of the state directory cannot write: `sparkcrypt shred apply --head` finds a state directory that is older.

    Examples:
      sparkcrypt keys hold contact-2025-01 --reason "case 4711" --policy policy.yaml
    """
    with Workplace("sparkcrypt keys", launch) as workplace:
        loaded = workplace.policy(policy)
        with key_audit(workplace.state_directory(loaded.run_state), loaded, "keys hold") as audit:
            hold = audit.hold(key_id, reason)
            facts = audit.facts
    document = {"key_id": key_id, **hold.to_dict(), "head": facts.head_text}
    show(document, f"{key_id}: {hold.to_text()}\nhead {facts.head_text}", as_json=as_json)


@click.command("release", cls=Command)
@click.argument("key_id")
@_reason
@click.option("--hold", "number", type=click.IntRange(1), metavar="N", help="Which of several holds.")
@policy_option
@json_option
@spark_options
def release_key(key_id: str, reason: str, number: int | None, policy: str, as_json: bool, launch: Launch) -> None:
    """Release a legal hold; the key is deleted by nothing but `sparkcrypt shred apply`.

    Examples:
      sparkcrypt keys release contact-2025-01 --reason "case 4711 is closed" --policy policy.yaml
    """
    with Workplace("sparkcrypt keys", launch) as workplace:
        loaded = workplace.policy(policy)
        with key_audit(workplace.state_directory(loaded.run_state), loaded, "keys release") as audit:
            released = audit.release(key_id, reason, number)
            facts = audit.facts
    holds = facts.holds.get(key_id, ())
    document = {
        "key_id": key_id,
        "released": released.to_dict(),
        "holds": [hold.to_dict() for hold in holds],
        "head": facts.head_text,
    }
    lines = [f"{key_id}: released {released.to_text()}", *(f"stays: {hold.to_text()}" for hold in holds)]
    show(document, "\n".join([*lines, f"head {facts.head_text}"]), as_json=as_json)
