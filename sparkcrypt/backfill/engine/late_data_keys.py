"""The choice of keys for late data: columns of buckets whose own key no longer exists, if the policy has such keys."""

from __future__ import annotations

from collections.abc import Mapping

from sparkcrypt.backfill.drift.match_columns import FileColumns
from sparkcrypt.keys.bucket_keys import route_late_keys
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.parquet import FileSummary
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import Path


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
