"""The plan of a table or of a file: every leaf column with its key and the reason, as JSON values and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from sparkcrypt.errors import PlanError
from sparkcrypt.names import Algorithm
from sparkcrypt.policy.key_retention import is_past_retention
from sparkcrypt.policy.model import FooterMode, TableRule
from sparkcrypt.policy.template import KeyTemplate
from sparkcrypt.schema import Leaf, Path, Schema
from sparkcrypt.text import align_rows

Action = Literal["encrypt", "footer_key", "plaintext"]


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The plan of one leaf column.

    ``key`` is set when ``action`` is ``encrypt``; it may contain partition values that are still to be filled in.
    ``history`` lists percent-encoded key ids, or ``plaintext``, that readers still accept for this column.
    ``late_data`` is the key of rows of buckets that are past ``retention_seconds`` and whose own key is gone.
    """

    leaf: Leaf
    action: Action
    key: KeyTemplate | None
    tag: str | None
    tags: tuple[str, ...]
    sources: tuple[str, ...]
    why: str
    history: tuple[str, ...] = ()
    late_data: KeyTemplate | None = None
    retention_seconds: int | None = None

    @property
    def path(self) -> Path:
        """The Parquet column path."""
        return self.leaf.parquet

    def takes_late(self, key_id: str | None, bucket_key: str | None, now: datetime) -> bool:
        """Return whether a key is of late data and a bucket is past the tag's retention, so that its rows are late.

        Args:
            key_id: the key of the column.
            bucket_key: the bucket's key by the plan.
            now: the time at which retentions are judged.
        """
        if self.key is None or self.late_data is None or key_id is None or bucket_key is None:
            return False
        late = self.late_data.matches(key_id)
        return late and is_past_retention(self.key, bucket_key, self.retention_seconds, now)

    def to_dict(self) -> dict[str, Any]:
        """Return the column as JSON values."""
        return {
            "column": self.leaf.dotted,
            "action": self.action,
            "key_id": self.key.text if self.key else None,
            "tag": self.tag,
            "tags": list(self.tags),
            "sources": list(self.sources),
            "why": self.why,
            "history": list(self.history),
        }


@dataclass(frozen=True, slots=True)
class EncryptionPlan:
    """Every leaf column of a table, or of one file, with its key; equal inputs in any order give equal plans.

    ``without_effect`` has a line for each property of the table that looks like a tag and is not read as one.
    ``in_clear`` has a line for each encrypted column whose values name files of the table.
    """

    table: str | None
    columns: tuple[ColumnPlan, ...]
    footer_key: str
    footer_mode: FooterMode
    algorithm: Algorithm
    data_key_bits: int
    policy_digest: str
    rule: TableRule
    require_encryption: bool = False
    partition_columns: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    key_service_json: str = field(default="", repr=False)
    schema: Schema = field(default=Schema(()), repr=False)
    footer_key_history: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()
    in_clear: tuple[str, ...] = ()

    def require(self, required: bool) -> EncryptionPlan:
        """Return the plan of a table that requires encryption, if it does and its rule enforces that.

        Args:
            required: whether the table's own property, or the policy, requires it.

        Raises:
            PlanError: no column is encrypted.
        """
        if not required or not self.rule.enforce:
            return self
        if not self.encrypted:
            raise PlanError(
                f"{self.table or 'this table'} requires encryption, but no column carries a tag that encrypts: its "
                "tags may have been lost; see `sparkcrypt tags show`, and set them with `sparkcrypt tags set` or in "
                "the policy's overlay"
            )
        return replace(self, require_encryption=True)

    @property
    def encrypted(self) -> tuple[ColumnPlan, ...]:
        """The columns that are not plaintext."""
        return tuple(column for column in self.columns if column.action != "plaintext")

    def key_ids(self, partition: Mapping[str, str]) -> dict[Path, str | None]:
        """Return column path -> key id for the files of one partition; None stands for the footer key.

        Raises:
            PlanError: a key needs a partition value that is missing or not allowed in it.
        """
        keys: dict[Path, str | None] = {}
        for column in self.encrypted:
            try:
                keys[column.path] = column.key.render(partition) if column.key else None
            except PlanError as error:
                raise PlanError(f"column {column.leaf.dotted}: {error}") from error
        return keys

    def master_keys(self, partition: Mapping[str, str]) -> tuple[str, ...]:
        """Return the distinct key ids that files of one partition need, the footer key first.

        There are none when every column is plaintext.
        """
        keys = self.key_ids(partition)
        if not keys:
            return ()
        return tuple(dict.fromkeys((self.footer_key, *sorted(key for key in keys.values() if key is not None))))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "table": self.table,
            "footer_key": self.footer_key,
            "footer_mode": self.footer_mode,
            "algorithm": self.algorithm,
            "data_key_bits": self.data_key_bits,
            "policy_digest": self.policy_digest,
            "require_encryption": self.require_encryption,
            "enforce": self.rule.enforce,
            "partition_columns": list(self.partition_columns),
            "columns": [column.to_dict() for column in self.columns],
            "differences": list(self.differences),
            "without_effect": list(self.without_effect),
            "in_clear": list(self.in_clear),
        }

    def table_text(self) -> str:
        """Return the plan as a text table: column path, tags, where they came from, key id, why."""
        rows = [("column", "tags", "from", "key", "why")]
        for column in self.columns:
            key = column.key.text if column.key else {"footer_key": self.footer_key, "plaintext": "-"}[column.action]
            tags, sources = ",".join(column.tags) or "-", ", ".join(column.sources) or "-"
            rows.append((column.leaf.dotted, tags, sources, key, column.why))
        lines = align_rows(rows)
        lines.insert(1, "  ".join("-" * max(map(len, cells)) for cells in zip(*rows, strict=True)))
        head = f"{self.table or 'files'}: {len(self.encrypted)} of {len(self.columns)} columns encrypted"
        if self.encrypted:
            head += f"; footer {self.footer_mode} under {self.footer_key}; {self.algorithm}, {self.data_key_bits} bits"
        if not self.rule.enforce:
            head += "; observed only (enforce: false)"
        notes = [f"differs: {difference}" for difference in self.differences]
        notes += [f"tag without effect: {line}" for line in self.without_effect]
        notes += [f"in clear: {line}" for line in self.in_clear]
        return "\n".join([head, *lines, *notes])

    def explain(self) -> None:
        """Print the plan as a table."""
        print(self.table_text())  # noqa: T201  # printing is what it is for, as Spark's DataFrame.explain
