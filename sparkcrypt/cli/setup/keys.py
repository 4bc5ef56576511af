"""`sparkcrypt keys`: makes, lists, rotates, checks, holds, retires, exports and imports master keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.command_context import Workplace, check_writable, failed_report
from sparkcrypt.cli.frame.options import (
    AGE,
    CommandOptions,
    FilterOptions,
    Launch,
    TablesOptions,
    json_option,
    leave_out_option,
    option,
    options_from,
    policy_option,
    report_option,
    spark_options,
    use,
)
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.durable import write_new
from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceUnavailableError,
    StorageError,
)
from sparkcrypt.keys.local.keystore import decrypt_backup, encrypt_backup
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.open_service import has_key, open_key_service
from sparkcrypt.keys.service import KeyDescription, KeyService
from sparkcrypt.ledger.audit.key_audit import Hold, KeyFacts, Retirement, key_audit, read_key_facts
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.policy.key_service import FormerService, split_former
from sparkcrypt.policy.model import Policy, named_keys
from sparkcrypt.runs.passes.key_status import KeyStatus, key_statuses
from sparkcrypt.runs.passes.keys_in_use import find_uses_of_keys, has_key_records
from sparkcrypt.text import align_table, count_of, cut_lines, size_of

if TYPE_CHECKING:
    from sparkcrypt.runs.keys.retire import Retired

_HEAD = ("key", "versions", "age", "files", "bytes", "old version", "tables", "kept", "next rotation", "held")
_RESTORE = (
    "Restore it (docs/runbooks.md, 'A key is lost'); if nobody has it any more, --lost-key-accepted makes another"
)
_reason = click.option("--reason", required=True, metavar="TEXT", help="The reason, for the audit of keys.")


@click.command("status", cls=Command)
@click.argument("key_ids", nargs=-1, metavar="[KEY_ID…]")
@click.option(
    "--recorded",
    is_flag=True,
    help="Count only what runs have recorded, without Spark; it may be outdated or incomplete.",
)
@policy_option
@json_option
@spark_options
def key_status(key_ids: tuple[str, ...], recorded: bool, policy: str, as_json: bool, launch: Launch) -> None:
    """Show of each master key its versions and age, the tables, files and bytes under it, and its next rotation.

    Files are counted by the footers of every table of the catalog; those that runs have recorded, of files that have
    not changed, are not read again.  What could not be looked at is named.

    Examples:
      sparkcrypt keys status --policy policy.yaml
      sparkcrypt keys status pii --policy policy.yaml --json
      sparkcrypt keys status --recorded --policy policy.yaml
    """
    with Workplace("sparkcrypt keys", launch, short=True) as workplace:
        loaded, uses, coverage = workplace.policy(policy), None, None
        if not recorded:
            from sparkcrypt.runs.passes.keys_by_catalog import find_keys_in_use

            in_use = find_keys_in_use(workplace.spark, loaded, keeps=False)
            uses, coverage = (*in_use.tables, *in_use.recorded), in_use.coverage
        store = workplace.state_directory(loaded.run_state)
        found = key_statuses(store, open_key_service(loaded.key_service), loaded, uses)
    chosen = [status for status in found if not key_ids or status.key_id in key_ids]
    now = datetime.now(timezone.utc)
    rows = [status.to_dict(now) for status in chosen]
    lines = [align_table([_row(row) for row in rows], head=_HEAD) if chosen else "no keys", *_notes(chosen)]
    lines += [f"warning: {text}" for status in chosen if recorded for text in _name_uncounted(status)]
    lines += (
        []
        if coverage is None
        else [
            *("", *coverage.to_lines()),
            *(f"warning: {place.to_text()}" for place in coverage.by_record),
        ]
    )
    document = {"keys": rows, "coverage": None if coverage is None else coverage.to_dict()}
    show(document, "\n".join(lines), as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(FilterOptions, TablesOptions, CommandOptions):
    """The options of `sparkcrypt keys check`."""

    without_former: bool = option("Open with the key service alone, and not with former ones of the policy.")
    report: str | None = use(report_option)


@click.command("check", cls=Command)
@options_from(CheckOptions)
@click.pass_context
def check_keys(context: click.Context, options: CheckOptions) -> None:
    """Prove that every file of some tables can be opened with the keys at hand; exits with 74 if one cannot.

    Without --table and --database, of all databases.  Footers are read anew, by tasks where there are many, and each
    key that a file names is opened and tried on what it protects there.  Pages are not read: `sparkcrypt verify` reads
    them.  Columns under a shredded key are counted, and are no reason to end with 74.

    Examples:
      sparkcrypt keys check --table sales.customers --policy policy.yaml
      sparkcrypt keys check --database sales --policy policy.yaml --json
      sparkcrypt keys check --database sales --policy policy.yaml --without-former
    """
    check_writable(options.report)
    target = ", ".join((*options.tables, *(f"{name}.*" for name in options.databases)))
    head: dict[str, Any] = {"kind": "sparkcrypt keys check", "version": 1}
    with (
        Workplace("sparkcrypt keys", options.launch, short=True) as workplace,
        failed_report(workplace, options.report, target, **head),
    ):
        loaded, spark = workplace.policy(options.policy), workplace.spark
        from sparkcrypt.runs.keys.check_keys import check_keys as check
        from sparkcrypt.runs.passes.choose_tables import Filters

        found = check(
            spark,
            loaded,
            tables=options.tables,
            databases=options.databases,
            filters=Filters(options.select, options.exclude),
            without_former=options.without_former,
        )
        outcome = "incomplete" if found.exit_code else "done"
        workplace.write_report(options.report, {**head, "outcome": outcome, **found.to_dict()})
    rows = [
        (table.table, f"{table.files:,}", f"{table.encrypted:,}", f"{table.plaintext:,}", f"{len(table.unopened):,}")
        for table in found.tables
    ]
    lines = [align_table(rows, head=("table", "files", "opened", "not encrypted", "NOT opened"))]
    unopened = [entry for table in found.tables for entry in table.unopened]
    lines += cut_lines([f"{entry.what}: {entry.error}: {entry.message}" for entry in unopened])
    lines += [
        f"{table.table}: {count_of(files, 'file')} with columns under {key_id!r}, which was shredded"
        for table in found.tables
        for key_id, files in sorted(table.dark.items())
    ]
    lines += [f"skipped: {table}: {reason}" for table, reason in found.passed_over.items()]
    show(found.to_dict(), "\n".join(lines), as_json=options.as_json)
    context.exit(found.exit_code)


def _name_uncounted(status: KeyStatus) -> list[str]:
    """Return a warning about tables that are known to use a key, and of which no footer with it was read since."""
    tables = sorted(table for table, calls in status.tables.items() if not calls)
    if not tables:
        return []
    return [
        f"key {status.key_id!r}: files of {', '.join(tables)} are not counted: nobody has read their footers since a "
        "run wrote them; without --recorded they are read"
    ]


def _row(status: dict[str, Any]) -> tuple[object, ...]:
    untold = f", {status['files_of_untold_version']:,} not told" if status["files_of_untold_version"] else ""
    return (
        status["key_id"],
        _versions(status),
        None if status["age_days"] is None else f"{status['age_days']:,} d",
        f"{status['files']:,}",
        size_of(status["bytes"]),
        f"{status['files_on_old_versions']:,}{untold}",
        len(status["tables"]),
        None if status["retention_days"] is None else f"{status['retention_days']:,} d",
        "overdue" if status["overdue"] else status["rotation_due"],
        "not known" if status["holds"] is None else len(status["holds"]) or None,
    )


def _versions(status: dict[str, Any]) -> object:
    if status["versions"] is None:
        return "shredded" if status["shredded"] else "none: not there"
    return status["versions"] or "not told"


def _notes(found: list[KeyStatus]) -> list[str]:
    lines = []
    now = datetime.now(timezone.utc)
    for status in found:
        recorded: list[Hold | Retirement] = [*(status.holds or ())]
        recorded += [status.retired] if status.retired else []
        lines += [f"key {status.key_id!r}: {record.to_text()}" for record in recorded]
        if status.tombstone is not None:
            back = (
                ""
                if status.described is None
                else "; it is THERE AGAIN: `sparkcrypt shred plan` shows what is under it"
            )
            lines.append(f"{status.tombstone.to_text()}; effective {status.tombstone.effective_at}{back}")
        elif status.described is None and status.former_kinds:
            lines.append(
                f"key {status.key_id!r} is in a former key service alone: make it with `sparkcrypt keys create "
                f"{status.key_id}`, then move what is under it"
            )
        elif status.described is None:
            lines.append(f"key {status.key_id!r} is not there, and {count_of(status.amount.files, 'file')} need it")
        if status.former.files:
            lines.append(
                f"key {status.key_id!r}: {count_of(status.former.files, 'file')} under a former key service: "
                f"`sparkcrypt rotate --key {status.key_id} --keep-version` moves them"
            )
        if status.due is not None and status.due.is_overdue(now):
            lines.append(status.due.to_text())
        if status.due is not None and status.due.at is None:
            lines.append(f"key {status.key_id!r}: its key service does not say when its newest version was made")
    if any(status.holds is None for status in found):
        lines.append("holds and shredded keys are not known: these credentials may not open the audit of keys")
    return ["", *lines] if lines else []


@click.group(cls=Group)
def keys() -> None:
    """Make and look at the master keys of a policy's key service.

    Its type is local, vault, aws, gcp, azure or hadoop, or that of an installed package (docs/keys.md).
    """


@keys.command(cls=Command)
@click.argument("key_ids", nargs=-1, required=True, metavar="KEY_ID…")
@click.option(
    "--lost-key-accepted",
    "accepts_loss",
    is_flag=True,
    help="Also make keys that the state directory knows: what is under the lost ones stays unreadable.",
)
@policy_option
@json_option
@spark_options
def create(key_ids: tuple[str, ...], accepts_loss: bool, policy: str, as_json: bool, launch: Launch) -> None:
    """Make master keys; one that is there already is left as it is, and one that was shredded is refused.

    So is one that is lost: the state directory knows a table, an audit or a hold under it.
    Spark is started only where the state directory needs it.

    Examples:
      sparkcrypt keys create footer pii finance --policy policy.yaml
    """
    service = _service(policy)
    existed = [has_key(service, key_id) for key_id in key_ids]
    absent = [key_id for key_id, before in zip(key_ids, existed, strict=True) if not before]
    if absent:
        _refuse_known(service, absent, policy, launch, accepts_loss=accepts_loss)
        _tell_unexpected(service, absent, policy)
    descriptions = [service.create(key_id) for key_id in key_ids]
    rows = [{**key.to_dict(), "made": not before} for key, before in zip(descriptions, existed, strict=True)]
    text = "\n".join(f"{row['key_id']}: {'made' if row['made'] else 'is there already'}" for row in rows)
    show(rows, text, as_json=as_json)


@keys.command("list", cls=Command)
@policy_option
@json_option
def list_(policy: str, as_json: bool) -> None:
    """List every master key.

    Examples:
      sparkcrypt keys list --policy policy.yaml
    """
    found = _service(policy).list_keys()
    show([key.to_dict() for key in found], _table(found) if found else "no keys", as_json=as_json)


@keys.command("show", cls=Command)
@click.argument("key_id")
@policy_option
@json_option
def show_key(key_id: str, policy: str, as_json: bool) -> None:
    """Show one master key: its versions and when it was made.

    Examples:
      sparkcrypt keys show pii --policy policy.yaml
    """
    found = _service(policy).describe(key_id)
    show(found.to_dict(), _table((found,)), as_json=as_json)


@keys.command(cls=Command)
@click.argument("key_id")
@policy_option
@json_option
def rotate(key_id: str, policy: str, as_json: bool) -> None:
    """Add a version to a master key; files written from now on use it, older ones still open with the older versions.

    Examples:
      sparkcrypt keys rotate pii --policy policy.yaml
    """
    service = _service(policy)
    if not service.offers("rotate"):
        raise ConfigError(
            f"this policy's key service ({service.provider}) does not rotate keys here; rotate {key_id!r} "
            "with the service's own tools, new files then use the new version"
        )
    rotated = service.rotate(key_id)
    newest = f"version {rotated.versions}" if rotated.versions else "a new version, whose number is not told,"
    show(rotated.to_dict(), f"{key_id}: {newest} wraps from now on", as_json=as_json)


@keys.command("export", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("key_ids", nargs=-1, metavar="[KEY_ID…]")
@click.option(
    "--recipient",
    "recipients",
    multiple=True,
    required=True,
    metavar="age1…",
    help="The public half of a recovery key.",
)
@policy_option
@json_option
def export_keys(file: Path, key_ids: tuple[str, ...], recipients: tuple[str, ...], policy: str, as_json: bool) -> None:
    """Back up the master keys of a local key service, all or some, into one new file.

    Only a recovery key opens it: `age-keygen -o recovery.txt` makes one. Keep its secret half apart.
    Lose both the key directory and every backup, and the data is lost.

    Examples:
      sparkcrypt keys export /backup/keys-2026-11-22.age --recipient age1ql3z… --policy policy.yaml
    """
    exported = _require_local_service(_service(policy)).export_keys(key_ids)
    if not exported:
        raise ConfigError(f"there are no keys to back up; {file} was not written")
    content = encrypt_backup(exported, recipients)
    try:
        write_new(file, content)
    except FileExistsError as error:
        raise ConfigError(
            f"{file} is there already, and may be the only backup of its keys; name a new file"
        ) from error
    except OSError as error:
        raise StorageError(f"{file} was not written: {error.strerror}") from error
    rows = [{"key_id": key.key_id, "versions": key.newest.version} for key in exported]
    document = {"file": str(file), "bytes": len(content), "keys": rows}
    show(document, f"{file}: {len(rows)} keys, {', '.join(key.key_id for key in exported)}", as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class ImportOptions(CommandOptions):
    """The options of `sparkcrypt keys import`."""

    file: Path = use(click.argument("file", type=click.Path(path_type=Path)))
    key_ids: tuple[str, ...] = use(click.argument("key_ids", nargs=-1, metavar="[KEY_ID…]"))
    identity: TextIO = option("The recovery key's file; - reads standard input.", required=True, type=click.File())
    dry_run: bool = option("Open the backup, say what would be added, and add nothing.")


@keys.command("import", cls=Command)
@options_from(ImportOptions)
def import_keys(options: ImportOptions) -> None:
    """Add the master keys of a backup to a local key service; what is there stays as it is.

    A key that was shredded is not added: where the backup holds one, name the others.
    With --dry-run it proves that a backup can be opened, and shows what is lost without it.

    Examples:
      sparkcrypt keys import /backup/keys-2026-11-22.age --identity recovery.txt --dry-run --policy policy.yaml
    """
    file, key_ids, dry_run = options.file, options.key_ids, options.dry_run
    service = _require_local_service(_service(options.policy))
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror}") from error
    found = {key.key_id: key for key in decrypt_backup(content, options.identity.read())}
    absent = sorted(set(key_ids) - set(found))
    if absent:
        raise KeyNotFoundError(f"{file} holds no key {', '.join(map(repr, absent))}; its keys: {', '.join(found)}")
    if not dry_run:
        with Workplace("sparkcrypt keys", options.launch, short=True) as workplace:
            facts = _read_facts(workplace, workplace.policy(options.policy))
        for key_id in key_ids or found:
            facts.refuse_shredded(key_id, "imported")
    imported = service.import_keys([found[key_id] for key_id in key_ids or found], dry_run=dry_run)
    text = align_table(
        [(key.key_id, key.versions, added) for key, added in imported.items()],
        head=("key", "versions", "would be added" if dry_run else "added"),
    )
    show([{**key.to_dict(), "added": added} for key, added in imported.items()], text, as_json=options.as_json)


def _require_local_service(service: KeyService) -> LocalKeyService:
    if not isinstance(service, LocalKeyService):
        raise ConfigError(
            f"this policy's key service ({service.provider}) gives no key away; back it up with its own tools "
            "(docs/keys.md says which); only a local key service is exported"
        )
    return service


def _service(policy: str) -> KeyService:
    with Workplace("sparkcrypt keys", short=True) as workplace:
        return open_key_service(split_former(workplace.policy(policy).key_service)[0])


def _refuse_known(service: KeyService, absent: list[str], policy: str, launch: Launch, *, accepts_loss: bool) -> None:
    """Refuse to make keys that the key service does not have, where one of them is lost or was shredded.

    Raises:
        KeyNotFoundError: one was shredded, or the state directory knows something under it.
        KeyServiceUnavailableError: the folder of a local key service has no key at all, though keys are in use.
    """
    with Workplace("sparkcrypt keys", launch, short=True) as workplace:
        loaded = workplace.policy(policy)
        former = split_former(loaded.key_service)[1]
        if not accepts_loss:
            store = workplace.state_directory(loaded.run_state)
            if (
                not former
                and isinstance(service, LocalKeyService)
                and not service.list_keys()
                and has_key_records(store)
            ):
                raise KeyServiceUnavailableError(
                    f"{service!r} has no key, though the state directory {loaded.run_state} has records of keys in "
                    f"use: is it mounted, and is this the right policy? Nothing was made. {_RESTORE}"
                )
        facts = _read_facts(workplace, loaded)
        for key_id in absent:
            facts.refuse_shredded(key_id, "made")
        if accepts_loss:
            return
        uses = find_uses_of_keys(store, absent)
        for key_id in absent:
            use = uses.get(key_id) or facts.describe_state(key_id)
            if use is not None and not any(entry.has(key_id) and _may_exist(entry, key_id) for entry in former):
                raise KeyNotFoundError(
                    f"key {key_id!r} is not in the key service, but in use: {use}; a new key of its id would open "
                    f"nothing of that. Nothing was made. {_RESTORE}"
                )


def _tell_unexpected(service: KeyService, absent: list[str], policy: str) -> None:
    """Warn of keys that the policy does not name, and of a key directory that is new."""
    with Workplace("sparkcrypt keys", short=True) as workplace:
        loaded = workplace.policy(policy)
    named = [*named_keys(loaded)]
    templates = [template for rule in loaded.tags for template in (rule.key, rule.late_data) if template is not None]
    for key_id in absent:
        if key_id not in named and not any(template.matches(key_id) for template in templates):
            say(
                f"warning: the policy names no key {key_id!r}, so nothing is written under it; it names "
                f"{', '.join(named)}"
            )
    folder = loaded.key_service.options.get("path") if isinstance(service, LocalKeyService) else None
    if folder is not None and not Path(str(folder)).exists():
        say(
            f"{folder} is a new key directory: keys of another, such as that of a policy that was copied, are not in it"
        )


def _read_facts(workplace: Workplace, policy: Policy) -> KeyFacts:
    service, masters = open_key_service(policy.key_service), MasterKeys.of(policy)
    return read_key_facts(workplace.state_directory(policy.run_state), service, masters)


def _may_exist(former: FormerService, key_id: str) -> bool:
    """Return whether a former key service has a key; True if these credentials may not look."""
    try:
        return has_key(open_key_service(former.config), key_id)
    except KeyAccessDeniedError:
        return True


def _table(found: tuple[KeyDescription, ...]) -> str:
    return align_table(
        [(entry.key_id, entry.versions or "not told", entry.created) for entry in found],
        head=("key", "versions", "made"),
    )


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
    with Workplace("sparkcrypt keys", launch, short=True) as workplace:
        loaded = workplace.policy(policy)
        with key_audit(workplace.state_directory(loaded.run_state), loaded, "keys hold") as audit:
            hold = audit.hold(key_id, reason)
            facts = audit.facts
    document = {"key_id": key_id, **hold.to_dict(), "head": facts.head_text}
    show(document, f"{key_id}: {hold.to_text()}\nhead {facts.head_text}", as_json=as_json)


@click.command("release", cls=Command)
@click.argument("key_id")
@_reason
@click.option("--hold", "number", type=click.IntRange(1), metavar="N", help="The hold's number, if there are several.")
@policy_option
@json_option
@spark_options
def release_key(key_id: str, reason: str, number: int | None, policy: str, as_json: bool, launch: Launch) -> None:
    """Release a legal hold; the key is deleted by nothing but `sparkcrypt shred apply`.

    Examples:
      sparkcrypt keys release contact-2025-01 --reason "case 4711 is closed" --policy policy.yaml
    """
    with Workplace("sparkcrypt keys", launch, short=True) as workplace:
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


@dataclass(frozen=True, kw_only=True)
class RetireOptions(CommandOptions):
    """The options of `sparkcrypt keys retire`."""

    key_id: str = use(click.argument("key_id"))
    below: int | None = option("The lowest version that stays in use.", type=click.IntRange(2), metavar="N")
    grace: float = option(
        "How long the versions can be brought back; 30d by default.", type=AGE, default="30d", metavar="TIME"
    )
    undo: bool = option("Bring back the versions that are set aside.")
    leave_out: tuple[str, ...] = use(leave_out_option)


@click.command("retire", cls=Command)
@options_from(RetireOptions)
@click.pass_context
def retire_key(context: click.Context, options: RetireOptions) -> None:
    """End the use of a master key's versions below N; refused (74) while something that is known needs one.

    At first they are set aside: they unwrap nothing, a read that needs one is refused with this command's --undo, and
    --undo brings them back.  Given again after the grace, it looks again at everything and destroys them for good.

    The footers of every table of the catalog are read anew; old files that wait for expiry, MAC keys of audits and
    secrets of runs count too, and what cannot be looked at.  Copies, backups and other metastores are not known: they
    are what the grace is for.  The key services local and vault have this; others are refused.

    Examples:
      sparkcrypt keys retire pii --below 3 --policy policy.yaml
      sparkcrypt keys retire pii --below 3 --grace 90d --policy policy.yaml
      sparkcrypt keys retire pii --undo --policy policy.yaml
    """
    key_id, below = options.key_id, options.below
    if options.undo == (below is not None):
        raise click.UsageError("give --below, or else --undo", context)
    with Workplace("sparkcrypt keys", options.launch, short=True) as workplace:
        loaded = workplace.policy(options.policy)
        from sparkcrypt.runs.keys.retire import bring_versions_back, retire_versions

        if below is None:
            done = bring_versions_back(workplace.state_directory(loaded.run_state), loaded, key_id)
        else:
            done = retire_versions(
                workplace.spark, loaded, key_id, below, grace_seconds=options.grace, leave_out=options.leave_out
            )
    show(done.to_dict(), "\n".join(_describe(done)), as_json=options.as_json)


def _describe(done: Retired) -> list[str]:
    key_id, usable = done.described.key_id, done.described.first_usable
    lines = [] if done.coverage is None else done.coverage.to_lines()
    if done.coverage is not None:
        lines += [f"warning: {place.to_text()}" for place in done.coverage.by_record if key_id in place.key_ids]
    if done.retirement is not None:
        return [f"{key_id}: {done.retirement.to_text()}", *lines]
    return [f"{key_id}: {done.state}; versions from {usable} on unwrap", *lines]


keys.add_command(key_status)
keys.add_command(check_keys)
keys.add_command(hold_key)
keys.add_command(release_key)
keys.add_command(retire_key)
