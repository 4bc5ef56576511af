"""Rotation of a master key: adds a version or names a successor, and rewraps the data keys of its tables under it.

    keys/rotations/<digest of the key id>/00000002.json     the version it makes, and whether all is under it

The record, by which a repeated command continues an unfinished rotation, is written before the key service is asked for
a version.  A command that was killed, or whose budget was spent, therefore continues with the version that it made, and
makes no other.  The record is used for nothing else: a process that can write to the state directory can make a
rotation use the newest existing version, which the report names.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyServiceError, VerificationError
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.key_audit import ShreddedKeys, describe_refused
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.store import LatestRecord, StateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.keys_by_catalog import find_keys_in_use
from sparkcrypt.runs.passes.keys_in_use import Coverage
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.report import PassReport, RotatedKey
from sparkcrypt.spark.tables.table import quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


VERSION = 1


@dataclass(frozen=True, slots=True)
class RotationRecord:
    """The last rotation of a master key that was begun.

    Attributes:
        key_id: the master key.
        to: the version that it makes.
        asked: whether the key service was asked for it, and answered.
        finished: whether the pass over the chosen tables ended without a failure or a spent budget.
        rekeys: whether files get new data keys under it, instead of being rewrapped only.
    """

    key_id: str
    to: int
    asked: bool = False
    finished: bool = False
    rekeys: bool = False

    def keep(self, store: StateStore) -> None:
        """Write it in place of the previous record."""
        body = {"version": VERSION, "key_id": self.key_id, "to": self.to, "asked": self.asked}
        content = json.dumps({**body, "finished": self.finished, "rekeys": self.rekeys})
        _record(store, self.key_id).replace(content.encode())

    @classmethod
    def read(cls, store: StateStore, key_id: str) -> RotationRecord | None:
        """Return the record of a master key; None if there is none."""
        for content in _record(store, key_id).read():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record = json.loads(content)
                if record["version"] == VERSION and record["key_id"] == key_id:
                    marks = (bool(record[name]) for name in ("asked", "finished", "rekeys"))
                    return cls(key_id, int(record["to"]), *marks)
        return None


def plan_version(
    store: StateStore, service: KeyService, key_id: str, *, keep_version: bool, rekeys: bool = False
) -> int:
    """Return the version under which a rotation would wrap; nothing is changed.  See `begin_version`.

    Raises:
        KeyServiceError: the key does not exist, or these credentials may not describe it.
    """
    newest = service.describe(key_id).versions
    begun = _find_unfinished(store, key_id, rekeys=rekeys)
    return newest if keep_version or (begun is not None and begun.to <= newest) else newest + 1


def begin_version(
    store: StateStore, service: KeyService, key_id: str, *, keep_version: bool, rekeys: bool = False
) -> int:
    """Return the version under which a rotation wraps; create it, unless an unfinished rotation has created it.

    Args:
        store: the state directory.
        service: the key service.
        key_id: the master key.
        keep_version: create no version, and use the newest one.
        rekeys: files get new data keys; the version of an unfinished rotation that only rewraps is not used for that.

    Raises:
        ConfigError: the key service cannot rotate keys through sparkcrypt.
        KeyServiceError: it did not add the version, or does not list it.
    """
    newest = service.describe(key_id).versions
    begun = _find_unfinished(store, key_id, rekeys=rekeys)
    if keep_version or (begun is not None and begun.to <= newest):
        RotationRecord(key_id, newest, asked=True, rekeys=rekeys).keep(store)
        return newest
    if begun is not None and begun.asked:
        raise _untold_error(key_id, begun.to, newest)
    if not service.offers("rotate"):
        raise ConfigError(
            f"this policy's key service ({service.provider}) does not rotate keys here; rotate {key_id!r} with "
            "the service's own tools, then give --keep-version, which rewraps under the version that is newest"
        )
    RotationRecord(key_id, newest + 1, rekeys=rekeys).keep(store)
    version = service.rotate(key_id).versions
    RotationRecord(key_id, newest + 1, asked=True, rekeys=rekeys).keep(store)
    if version <= newest:
        raise _untold_error(key_id, newest + 1, version)
    return version


def finish_rotation(store: StateStore, key_id: str, version: int) -> None:
    """Record that a rotation is complete, so that the next one creates a version."""
    RotationRecord(key_id, version, asked=True, finished=True).keep(store)


def _find_unfinished(store: StateStore, key_id: str, *, rekeys: bool) -> RotationRecord | None:
    begun = RotationRecord.read(store, key_id)
    return None if begun is None or begun.finished or begun.rekeys != rekeys else begun


def _record(store: StateStore, key_id: str) -> LatestRecord:
    return LatestRecord(store, f"keys/rotations/{key_digest(key_id)}/")


def _untold_error(key_id: str, version: int, newest: int) -> KeyServiceError:
    return KeyServiceError(
        f"the key service was asked for version {version} of {key_id!r}, and tells of {newest}; it may take a while, "
        "or hide versions from these credentials (AWS: kms:ListKeyRotations); run again when it tells of it, or give "
        "--keep-version to rewrap under what it tells of"
    )


_UNREACHED = (
    "what was copied can still be opened by whoever holds the earlier version: old files until `sparkcrypt backfill "
    "expire` deletes them, snapshots and backups of the storage, folders made with --output, tables of other "
    "catalogs, and files that anybody has copied; rotate such tables with a session on their catalog, delete copies "
    "that nobody needs, and only then retire the earlier versions (`sparkcrypt keys retire`)"
)


@dataclass(frozen=True, slots=True)
class RotationOptions(PassOptions):
    """The options of a rotation, with those of its pass.

    Attributes:
        successor: another master key, which gets no version, and under which everything is rewrapped.
        keep_version: make no version, and rewrap under the newest one.
        compromised: the key may have been used by others: every file that uses it gets new data keys, for all of its
            columns.
    """

    successor: str | None = None
    keep_version: bool = False
    compromised: bool = False


def rotate_key(
    spark: SparkSession,
    policy: Policy,
    key_id: str,
    *,
    tables: Iterable[str] = (),
    databases: Iterable[str] = (),
    options: RotationOptions | None = None,
) -> PassReport:
    """Add a version to a master key, and rewrap under it the data keys of every file that uses the key.

    With a successor, everything under the master key is rewrapped under the successor, which the policy must name in
    its place.

    Unless the key is compromised, pages are copied unchanged.  Each master key of a rewrapped file then has one KEK for
    the table, so a reader makes one call for each master key, however many processes wrote the files.  The work is done
    by a pass, with journal, audit, budgets and swaps.  The same call continues it, without making a further version.

    Args:
        spark: a classic session; it will be configured with the policy.
        policy: the policy whose key service has the key.
        key_id: the master key.
        tables: names or patterns; without tables and databases, all tables of the catalog that use the key.
        databases: databases of which every table in a format of the policy is chosen.
        options: how to rotate, and the options of the pass; those of its runs on keys are set here.

    Raises:
        ConfigError: the key service does not rotate keys, no table is known to use the key, a compromised version is to
            be kept, or the policy does not name the successor in the key's place.
        KeyServiceError: the key does not exist, or may not be rotated.
        PlanError: a table or database does not exist.
        VerificationError: no table is known to use the key, and some could not be looked at.
    """
    options = options or RotationOptions()
    successor, compromised = options.successor, options.compromised
    if compromised and options.keep_version:
        raise ConfigError("--compromised needs a version that nobody has used, and --keep-version makes none; omit it")
    if successor is not None:
        refuse_unplanned(policy, key_id, successor, compromised=compromised)
    store, service = (
        open_state_directory(spark, policy.run_state),
        open_key_service(policy.key_service),
    )
    chosen, databases, dry_run = tuple(tables), tuple(databases), options.run.dry_run
    coverage, missing = None, tuple[str, ...]()
    if not chosen and not databases:
        chosen, missing, coverage = find_tables(spark, policy, key_id, keeps=not dry_run)
    predecessor, key_id = (None, key_id) if successor is None else (key_id, successor)
    try:
        before = service.describe(key_id).versions
    except KeyNotFoundError as error:
        raise describe_refused(ShreddedKeys(store, policy), key_id, error) from error
    choose = plan_version if dry_run else begin_version
    keeps = options.keep_version or predecessor is not None
    version = choose(store, service, key_id, keep_version=keeps, rekeys=compromised)
    run = replace(options.run, rewrap=not compromised, rotate_key=key_id, rotate_to=version, keep_going=True)
    run = replace(run, rotate_from=predecessor)
    if compromised:  # an unfinished run that only rewraps must not put old data keys under the new version
        run, missing = replace(run, resume="never"), (*missing, _UNREACHED)
    rotated = RotatedKey(key_id, version, made=version > before, rekeys=compromised, predecessor=predecessor)

    def tell(report: PassReport) -> PassReport:
        return replace(report, rotation=rotated, coverage=coverage, warnings=(*report.warnings, *missing))

    done = tell(
        backfill(
            spark,
            policy,
            tables=chosen,
            databases=databases,
            options=replace(options, run=run, on_failure=lambda report: options.on_failure(tell(report))),
        )
    )
    if not dry_run and done.outcome in ("done", "nothing to do", "untagged"):
        finish_rotation(store, key_id, version)
    return done


def refuse_unplanned(policy: Policy, key_id: str, successor: str, *, compromised: bool) -> None:
    """Check that the policy names a successor in a master key's place.

    Raises:
        ConfigError: it does not, or the key is compromised; the message says what to change.
    """
    if compromised:
        raise ConfigError(
            f"--compromised gives new data keys, and --to rewraps them; with {successor!r} in the policy, `sparkcrypt "
            "backfill` without --rewrap gives new data keys under it"
        )
    rules = [rule for rule in policy.tags if rule.key is not None]
    uses = [f"tag {rule.name!r}" for rule in rules if rule.template_of(key_id) is not None]
    named = [rule for rule in rules if rule.template_of(successor) is not None and key_id in rule.history]
    if policy.footer_key == key_id:
        uses.append("the footer")
    if uses or successor == key_id:
        raise ConfigError(
            f"the policy gives {', '.join(uses) or 'what is rewrapped'} the key {key_id!r}; name {successor!r} there, "
            f"and {key_id!r} under its history, then give the command again"
        )
    if not named and not (policy.footer_key == successor and key_id in policy.footer_key_history):
        raise ConfigError(
            f"the policy has no tag, and no footer, whose key is {successor!r} with {key_id!r} under its history; that "
            "is what readers go by while files are under both; add it, then give the command again"
        )


def find_tables(
    spark: SparkSession, policy: Policy, key_id: str, *, keeps: bool
) -> tuple[tuple[str, ...], tuple[str, ...], Coverage]:
    """Return the tables of the catalog that use a master key, warnings about what else may, and what was looked at.

    Args:
        spark: a classic session.
        policy: the policy with the key service, which opens footers.
        key_id: the master key.
        keeps: store what is read of footers for the next time.

    Raises:
        ConfigError: no table of the catalog uses it.
        VerificationError: none is known to use it, and some could not be looked at.
    """
    found = find_keys_in_use(spark, policy, keeps=keeps)
    chosen = [use.name for use in found.tables if use.holds(key_id) and "/" not in use.name]
    others = [use.name for use in found.tables if use.holds(key_id) and "/" in use.name]
    unseen = [use.name for use in found.recorded if use.holds(key_id)]
    coverage = replace(found.coverage, by_record=[p for p in found.coverage.by_record if key_id in p.key_ids])
    if not chosen:
        kind = VerificationError if coverage.not_looked_at else ConfigError
        unread = "".join(f"; not looked at: {table}: {reason}" for table, reason in coverage.not_looked_at.items())
        raise kind(
            f"no table of the catalog holds {key_id!r}{_list([*others, *unseen])}; name tables with --table or "
            f"--database; `sparkcrypt keys rotate` alone adds a version{unread}"
        )
    warnings = [f"{name}: holds {key_id!r}, and is no table, so it is not rotated" for name in others]
    warnings += [
        f"{name}: may hold {key_id!r}, and is no table of this catalog; it was not looked at" for name in unseen
    ]
    warnings += [place.to_text() for place in coverage.by_record]
    return tuple(_quote(name) for name in sorted(chosen)), tuple(warnings), coverage


def _quote(name: str) -> str:
    database, _, table = name.partition(".")
    return f"{quote_name(database)}.{quote_name(table)}"


def _list(names: Iterable[str]) -> str:
    text = ", ".join(sorted(names))
    return f", but for what is no table of this catalog ({text})" if text else ""
