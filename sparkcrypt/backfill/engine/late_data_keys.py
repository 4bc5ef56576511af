"""Which keys a run gives columns of buckets whose own key is gone: those of late data, where the policy has them."""

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
    """Chooses keys for the files of one run; the key service is opened once, and asked for each bucket once.

    Args:
        policy: whose tags say where late data go.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._service: KeyService | None = None
        self._routed: dict[str, str] = {}

    def choose(
        self, summary: FileSummary, columns: FileColumns, planned: Mapping[Path, str | None]
    ) -> dict[Path, str | None]:
        """Return column path -> key id for one file; None stands for the footer key.

        A column that is under a key of late data keeps it: another would lengthen the retention of its values.

        Args:
            summary: what the file's footer says.
            columns: its columns, matched with the table's.
            planned: what `FileColumns.key_ids` gives them.

        Raises:
            KeyServiceError: nobody can tell whether a bucket's key is there.
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
