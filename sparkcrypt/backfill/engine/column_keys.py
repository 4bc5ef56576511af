"""Which master keys a run gives the columns of one file: those of the plan, or others for late data and for nulls."""

from __future__ import annotations

from collections.abc import Mapping

from sparkcrypt.backfill.drift.difference import is_purged
from sparkcrypt.backfill.drift.match_columns import FileColumns
from sparkcrypt.backfill.engine.late_data_keys import LateKeys
from sparkcrypt.backfill.target.target import Target
from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.parquet import FileSummary
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import Path, join_dotted


class ColumnKeys:
    """Chooses keys for the files of one target.

    Args:
        target: whose plan has the keys.
        policy: whose tags say where late data go.
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

        Dark columns have none, but where nulls take their place: these are under the key that is planned for the
        column, or under the footer's where that is the shredded one.

        Args:
            summary: what the file's footer says.
            columns: its columns, matched with the table's.
            partition: values of the file's partition.
            dark: its columns under shredded keys, with these.
            purges: nulls take their place.

        Raises:
            PlanError: as `FileColumns.key_ids`.
            KeyServiceError: as `LateKeys.choose`.
            UnsupportedFileError: readers of the table would not believe the footer's key.
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
