"""Orders to rewrite the files of a unit: the master key of each column, and what becomes of dark columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sparkcrypt import names
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.orders import Action, EncryptionOrder, FileOrder
from sparkcrypt.files.parquet.summary import describe_purged
from sparkcrypt.keys.bucket_keys import route_late_keys
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.unit import partition_of
from sparkcrypt.paths import trailing_partition
from sparkcrypt.plan.orc import cover_columns
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.columns import FileColumns, ScannedFile
from sparkcrypt.runs.table.difference import KINDS, Drift, drift_by_file, is_purged, refuse_dark
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.runs.table.target import Target
from sparkcrypt.runs.table.unit_survey import action_of
from sparkcrypt.schema import Path, join_dotted

_LEAVE = "--purge, which puts nulls in their place, or leave such partitions out by --where"
_EARLIER_RUN = re.compile(r"^run-[0-9a-f]{6}-")
_NONE: Mapping[Path, str] = MappingProxyType({})


class ColumnKeys:
    """Chooses keys for the files of one target.

    Args:
        target: the target whose plan has the keys.
        policy: has the keys of late data, in its tags.
    """

    def __init__(self, target: Target, policy: Policy) -> None:
        self._target, self._late = target, LateKeys(policy)

    def choose(self, file: ScannedFile, partition: Mapping[str, str], *, purges: bool) -> dict[Path, str | None]:
        """Return column path -> key id for one file; None stands for the footer key.

        Dark columns have no key, unless they are replaced by nulls: these are under the key that is planned for the
        column, or under the footer's if the planned key is the shredded one.

        Args:
            file: the file.
            partition: values of the file's partition.
            purges: whether dark columns are replaced by nulls.

        Raises:
            PlanError: as `FileColumns.key_ids`.
            KeyServiceError: as `LateKeys.choose`.
            UnsupportedFileError: readers of the table would refuse a column under the footer's key.
        """
        plan = self._target.plan
        planned = file.columns.key_ids(plan, partition)
        keys: dict[Path, str | None] = {}
        for path, key in self._late.choose(file, planned).items():
            if path not in file.dark:
                keys[path] = None if is_purged(file.summary, path, key, plan) else key
            elif purges and planned[path] != file.dark[path]:
                keys[path] = key
            elif purges:
                self._refuse_unbelieved(file.path, file.columns, path)
                keys[path] = None
        return keys

    def _refuse_unbelieved(self, file: str, columns: FileColumns, path: Path) -> None:
        plan, history = self._target.plan, columns.planned[path].history
        if plan.require_encryption and plan.footer_key not in map(decode_key_id, history):
            raise UnsupportedFileError(
                f"{file}: column {join_dotted(path)} would be under the footer's key {plan.footer_key!r} once nulls "
                f"replace it, and {self._target.name} requires encryption, so its readers would refuse the file; name "
                f"{plan.footer_key!r} under 'history' of the column's tag in the policy first; nothing was changed"
            )


class LateKeys:
    """Chooses keys for the files of one run; opens the key service once, and queries it once for each bucket.

    Args:
        policy: has the keys of late data, in its tags.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._service: KeyService | None = None
        self._routed: dict[str, str] = {}

    def choose(self, file: ScannedFile, planned: Mapping[Path, str | None]) -> dict[Path, str | None]:
        """Return column path -> key id for one file; None stands for the footer key.

        A column that is under a key of late data keeps it: another key would lengthen the retention of its values.

        Args:
            file: the file.
            planned: the result of `FileColumns.key_ids`.

        Raises:
            KeyServiceError: the key service does not answer whether a bucket's key exists.
        """
        return {path: self._choose_key(file, path, key) for path, key in planned.items()}

    def _choose_key(self, file: ScannedFile, path: Path, key_id: str | None) -> str | None:
        if key_id is None or file.columns.planned[path].late_data is None:
            return key_id
        found = (file.summary.columns or {})[path].key_id
        if file.columns.is_late(path, found, key_id):
            return found
        if key_id not in self._routed:
            self._service = self._service or open_key_service(self._policy.key_service)
            self._routed[key_id] = route_late_keys(self._policy, self._service, (key_id,)).get(key_id, key_id)
        return self._routed[key_id]


class FileOrders:
    """Makes the orders to rewrite the files of one target.

    Args:
        target: the target with the plan.
        policy: the policy.
        renamed_by: the run that gives files new names, since they will be in the folder of the old ones; None keeps
            names.
        rewrap: keep data keys and rewrap them if only master keys differ.
        purge: replace columns whose keys were shredded by nulls.
    """

    def __init__(
        self, target: Target, policy: Policy, renamed_by: str | None, *, rewrap: bool = False, purge: bool = False
    ) -> None:
        self._target, self._renamed_by, self._rewrap, self._purge = target, renamed_by, rewrap, purge
        self._column_keys = ColumnKeys(target, policy)

    def list_orders(self, scanned: ScannedUnit, staged: str) -> list[FileOrder]:
        """Return the orders for a unit's files, whose new files will be in a folder.

        Raises:
            UnsupportedFileError: a file has dark columns that would need their keys.
            PlanError, KeyServiceError: as `ColumnKeys.choose`.
        """
        unit = scanned.unit
        drift = drift_by_file(scanned.drift)
        orders: list[FileOrder] = []
        for folder in unit.folders:
            values = partition_of(unit, folder)
            partition_path = unit.partition_path or trailing_partition(folder.relative.split("/"))
            place = f"{staged}/{folder.relative}" if folder.relative else staged
            for source in sorted(folder.files, key=lambda source: -source.length):
                name = new_name(source.path.rpartition("/")[2], self._renamed_by)
                identity = FileIdentity(self._target.uuid, partition_path, name)
                file, found = scanned.files[source.path], drift.get(source.path, [])
                make = self._order_orc if file.summary.format == "orc" else self._order_parquet
                orders.append(make(file, f"{place}/{name}", found, values, identity))
        return orders

    def _order_parquet(
        self,
        file: ScannedFile,
        target: str,
        drift: Sequence[Drift],
        values: Mapping[str, str],
        identity: FileIdentity,
    ) -> FileOrder:
        plan, summary = self._target.plan, file.summary
        order = FileOrder(
            file.path, target, "copy", None, summary.aad_prefix, summary.algorithm, replace=True, dark=file.dark
        )
        bound_to_name = self._renamed_by is not None and summary.footer != "plaintext"
        if not bound_to_name and not drift:
            return order
        rewraps = not bound_to_name and action_of(drift, rewrap=self._rewrap) == "re-wrap"
        if not rewraps and not self._purge:
            refuse_dark(file.path, file.dark, *_advise(drift, bound_to_name=bound_to_name))
        columns = self._column_keys.choose(file, values, purges=not rewraps)
        if not columns and (not file.dark or self._purge):
            return replace(order, action="decrypt", purges=True)
        key_values = {names.POLICY_DIGEST: plan.policy_digest}
        if file.dark and not rewraps:
            key_values[names.PURGED] = describe_purged({**summary.purged, **file.dark})
        encryption = EncryptionOrder(
            footer_key=plan.footer_key,
            footer_mode=plan.footer_mode,
            algorithm=plan.algorithm,
            columns=columns,
            aad_prefix=(summary.aad_prefix or b"") if rewraps else identity.to_aad_prefix(),
            key_values=key_values,
        )
        if rewraps:
            return replace(order, action="rewrap", encryption=encryption)
        return replace(order, action="encrypt", encryption=encryption, purges=True)

    def _order_orc(
        self,
        file: ScannedFile,
        target: str,
        drift: Sequence[Drift],
        values: Mapping[str, str],
        identity: FileIdentity,
    ) -> FileOrder:
        renames, rewraps = self._renamed_by is not None, action_of(drift, rewrap=self._rewrap) == "re-wrap"
        purges = self._purge and not rewraps
        moving = find_move(drift, renames=renames)
        if moving is not None and not purges:
            refuse_dark(file.path, file.dark, moving, _advise(drift, bound_to_name=True)[1])
        if not drift:
            return order_orc_file(file, target, {}, identity, "rewrap" if renames else "copy", purges=purges)
        keys = self._column_keys.choose(file, values, purges=purges)
        wanted = {path: key or self._target.plan.footer_key for path, key in keys.items()}
        return order_orc_file(file, target, wanted, identity, "rewrap" if rewraps else "encrypt", purges=purges)


def _advise(drift: Iterable[Drift], *, bound_to_name: bool) -> tuple[str, str]:
    """Return why a file with dark columns is refused, and what the operator can do."""
    found = tuple(drift)
    doing = "a new name, which is part of what its columns are bound to," if bound_to_name else "new data keys"
    if any(difference.kind in KINDS for difference in found):
        return doing, "run `sparkcrypt backfill --purge` first, which puts nulls in their place"
    if not bound_to_name and all(difference.only_keys for difference in found):
        return doing, f"give --rewrap, which leaves data keys as they are, or {_LEAVE}"
    return doing, f"give {_LEAVE}"


def order_orc_file(
    file: ScannedFile, target: str, keys: Mapping[Path, str], identity: FileIdentity, action: Action, *, purges: bool
) -> FileOrder:
    """Return the order to rewrite one ORC file.

    Its local keys are bound to its name, so they are rewrapped if the new file has another name.  If dark columns stay,
    all columns are bound to the identity to which these are bound.

    Args:
        file: the file; its dark columns may only stay if the identity does.
        target: the path of the new file.
        keys: column path -> key id, for columns to be encrypted.
        identity: the identity of the new file.
        action: ``copy``; ``rewrap``, which copies a file without a local key; or ``encrypt``, which decrypts a file
            without a column to be encrypted.
        purges: whether dark columns are replaced by nulls.
    """
    summary = file.summary
    carried = _NONE if purges else file.dark
    found = {
        path: column.key_id
        for path, column in (summary.columns or {}).items()
        if column.key_id is not None and path not in carried
    }
    bound = (summary.aad_prefix or b"") if carried else identity.to_aad_prefix()
    wanted = {path: key for path, key in keys.items() if path not in carried}
    order = FileOrder(
        file.path,
        target,
        "copy",
        source_prefix=summary.aad_prefix,
        replace=True,
        dark=file.dark,
        purges=purges,
        format="orc",
    )
    if action == "copy" or (action == "rewrap" and not summary.encrypted):
        return order
    if action == "rewrap":
        rewrapped = EncryptionOrder({path: wanted.get(path, key) for path, key in found.items()}, bound)
        return replace(order, action="rewrap", encryption=rewrapped)
    roots = cover_columns(summary.columns or (), wanted)
    return replace(order, action="encrypt" if roots else "decrypt", encryption=EncryptionOrder(roots, bound))


def find_move(drift: Iterable[Drift], *, renames: bool) -> str | None:
    """Return which change to an ORC file would break the binding of its dark columns, for messages; None if none.

    Args:
        drift: the differences of the file.
        renames: whether the new file has another name.
    """
    if renames:
        return "a new name, which is part of what its local keys are bound to,"
    moved = any(difference.kind == "aad_mismatch" for difference in drift)
    return "binding its local keys to this table, its partition and name" if moved else None


def new_name(name: str, run_id: str | None) -> str:
    """Return a new name for a file: a prefix unique to the run, then the old name, including a bucket's number.

    The prefix of an earlier run is replaced.
    """
    if run_id is None:
        return name
    return f"run-{run_id.rpartition('-')[2]}-{_EARLIER_RUN.sub('', name)}"
