"""Orders to rewrite the files of a unit: the master key of each column, and what becomes of dark columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.orders import OrcOrder
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.keys.bucket_keys import route_late_keys
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.plan.orc import cover_columns
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.columns import FileColumns
from sparkcrypt.runs.table.difference import Drift, is_purged
from sparkcrypt.runs.table.target import Target
from sparkcrypt.schema import Path, join_dotted


class ColumnKeys:
    """Chooses keys for the files of one target.

    Args:
        target: the target whose plan has the keys.
        policy: has the keys of late data, in its tags.
    """

    def __init__(self, target: Target, policy: Policy) -> None:
        self._target, self._late = target, LateKeys(policy)

    def choose(
        self,
        summary: FileSummary,
        columns: FileColumns,
        partition: Mapping[str, str],
        dark: Mapping[Path, str],
        *,
        purges: bool,
    ) -> dict[Path, str | None]:
        """Return column path -> key id for one file; None stands for the footer key.

        Dark columns have no key, unless they are replaced by nulls: these are under the key that is planned for the
        column, or under the footer's if the planned key is the shredded one.

        Args:
            summary: the file's footer.
            columns: its columns, matched with the table's.
            partition: values of the file's partition.
            dark: its columns under shredded keys, with these.
            purges: whether dark columns are replaced by nulls.

        Raises:
            PlanError: as `FileColumns.key_ids`.
            KeyServiceError: as `LateKeys.choose`.
            UnsupportedFileError: readers of the table would refuse a column under the footer's key.
        """
        plan = self._target.plan
        planned = columns.key_ids(plan, partition)
        keys: dict[Path, str | None] = {}
        for path, key in self._late.choose(summary, columns, planned).items():
            if path not in dark:
                keys[path] = None if is_purged(summary, path, key, plan) else key
            elif purges and planned[path] != dark[path]:
                keys[path] = key
            elif purges:
                self._refuse_unbelieved(summary.path, columns, path)
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

    def choose(
        self, summary: FileSummary, columns: FileColumns, planned: Mapping[Path, str | None]
    ) -> dict[Path, str | None]:
        """Return column path -> key id for one file; None stands for the footer key.

        A column that is under a key of late data keeps it: another key would lengthen the retention of its values.

        Args:
            summary: the file's footer.
            columns: its columns, matched with the table's.
            planned: the result of `FileColumns.key_ids`.

        Raises:
            KeyServiceError: the key service does not answer whether a bucket's key exists.
        """
        return {path: self._choose_key(summary, columns, path, key) for path, key in planned.items()}

    def _choose_key(self, summary: FileSummary, columns: FileColumns, path: Path, key_id: str | None) -> str | None:
        if key_id is None or columns.planned[path].late_data is None:
            return key_id
        found = (summary.columns or {})[path].key_id
        if columns.is_late(path, found, key_id):
            return found
        if key_id not in self._routed:
            self._service = self._service or open_key_service(self._policy.key_service)
            self._routed[key_id] = route_late_keys(self._policy, self._service, (key_id,)).get(key_id, key_id)
        return self._routed[key_id]


_NONE: Mapping[Path, str] = MappingProxyType({})


def order_orc_file(
    summary: FileSummary,
    target: str,
    keys: Mapping[Path, str | None],
    footer_key: str,
    *,
    identity: FileIdentity,
    drifts: bool,
    rewraps: bool,
    renames: bool,
    carried: Mapping[Path, str] = _NONE,
    purged: Mapping[Path, str] = _NONE,
) -> OrcOrder:
    """Return the order to rewrite one ORC file.

    Its local keys are bound to its name, so they are rewrapped if the new file has another name.  If dark columns stay,
    all columns are bound to the identity to which these are bound.

    Args:
        summary: the file's footer.
        target: the path of the new file.
        keys: column path -> key id, for columns to be encrypted; None stands for the footer key.
        footer_key: the footer key of the table's plan.
        identity: the identity of the new file.
        drifts: whether the file differs from the plan.
        rewraps: whether only the wrapping of its local keys changes.
        renames: whether the new file has another name.
        carried: its dark columns that stay, with their keys; empty if the identity changes.
        purged: its dark columns that are replaced by nulls.
    """
    found = {
        path: column.key_id
        for path, column in (summary.columns or {}).items()
        if column.key_id is not None and path not in carried
    }
    bound = (summary.aad_prefix or b"") if carried else identity.to_aad_prefix()
    order = OrcOrder(summary.path, target, "copy", found, bound, summary.aad_prefix, True, carried, purged)
    if not drifts:
        return replace(order, action="rewrap") if renames and summary.encrypted else order
    wanted = {path: key or footer_key for path, key in keys.items() if path not in carried}
    if rewraps:
        return replace(order, action="rewrap", columns={path: wanted.get(path, key) for path, key in found.items()})
    roots = cover_columns(summary.columns or (), wanted)
    return replace(order, action="encrypt" if roots else "decrypt", columns=roots)


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
