"""Drives one file of the corpus through the package: planned, encrypted, read, rotated, decrypted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

import sparkcrypt.errors
from sparkcrypt.arrow import GuardedOrc, GuardedTable, open_orc, open_table
from sparkcrypt.backfill.drift.match_columns import match_columns
from sparkcrypt.cli.files.rewrite_orders import Orders
from sparkcrypt.cli.frame.named_files import policy_keys
from sparkcrypt.errors import SparkcryptError, UnsupportedFileError
from sparkcrypt.native.orc_footers import read_orc_footer
from sparkcrypt.native.orders import KeySettings
from sparkcrypt.native.work import rewrite
from sparkcrypt.parquet import inspect_file
from sparkcrypt.parquet_schema import schema_from_parquet
from sparkcrypt.plan import build_plan
from sparkcrypt.plan.orc import cover_columns
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import Node, Schema, join_dotted, schema_from_spark
from sparkcrypt.tags.model import TaggedColumn
from tests.corpus.manifest import FILES, load

KEYS = ("pii", "fin")
Action = Literal["encrypt", "decrypt", "rewrap"]


@dataclass
class Trial:
    """What one file went through; ``entry`` is its line in the manifest."""

    name: str
    entry: Mapping[str, Any]
    folder: Path
    spark_schema: str | None = None
    spark_error: str = ""
    tags: dict[str, list[str]] = field(default_factory=dict)
    refusal: Exception | None = None
    rows: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        """The file of the corpus."""
        return FILES / self.name

    @property
    def is_orc(self) -> bool:
        """Whether its name says ORC."""
        return self.name.endswith(".orc")

    def place(self, step: str) -> Path:
        """Return where the outcome of a step is: alone in a folder."""
        return self.folder / step / self.name.replace(".", "-") / self.name

    def expects(self, route: str) -> str | None:
        """Return the text with which a route is said to refuse the file."""
        found: str | None = self.entry.get(route)
        return found


def trials(folder: Path) -> list[Trial]:
    """Return a trial of each file of the manifest."""
    return [Trial(name, entry, folder) for name, entry in load().items()]


def choose_tags(schema: Schema) -> dict[tuple[str, ...], str]:
    """Return column -> tag: a third of the columns stays without, and fields of one struct have different tags."""
    found: dict[tuple[str, ...], str] = {}

    def choose(node: Node, path: tuple[str, ...], number: int) -> None:
        if node.kind == "struct" and not node.children:
            return
        if node.kind == "struct" and len(node.children) > 1:
            for place, child in enumerate(node.children):
                found[(*path, child.name)] = KEYS[place % 2]
        else:
            found[path] = KEYS[number % 2]

    for number, node in enumerate(schema.fields):
        if number % 3 or len(schema.fields) < 3:
            choose(node, (node.name,), number)
    return found


def encrypt(trial: Trial, policy: Policy) -> None:
    """Plan and encrypt a file as a run does: by the tags of Spark's schema, else by those of the file's own."""
    try:
        path = str(trial.source)
        summary = read_orc_footer(path, path, None)[0] if trial.is_orc else inspect_file(path)
        if trial.spark_schema is not None:
            schema = schema_from_spark(trial.spark_schema)
        elif trial.is_orc:
            schema = Schema(tuple(Node(path[0], (path[0],), "leaf") for path in summary.columns or ()))
        else:
            schema = schema_from_parquet(json.loads(summary.fields or "[]"))
        tags = choose_tags(schema)
        plan = build_plan(schema, [TaggedColumn(path, (tag,), "overlay") for path, tag in tags.items()], policy)
        matched = match_columns(summary, plan)
        keys = {path: str(key) for path, key in matched.key_ids(plan, {}).items()}
        trial.tags = {join_dotted(path): [tag] for path, tag in tags.items()}
        if len(keys) != len(plan.encrypted) or matched.unknown:
            raise AssertionError(f"{trial.name}: not matched with its tags: {matched.unknown}, {sorted(keys)}")
        wanted = cover_columns(summary.columns or (), keys) if trial.is_orc else keys
        carry_out(trial, "encrypted", trial.source, policy, "encrypt", wanted)
    except (SparkcryptError, AssertionError) as error:
        trial.refusal = error


def carry_out(
    trial: Trial, step: str, source: Path, policy: Policy, action: Action, wanted: Mapping[Any, str] | None = None
) -> Path:
    """Rewrite a file as ``sparkcrypt rewrite`` does, proof included.

    Raises:
        SparkcryptError: it is refused or not proven.
    """
    target = trial.place(step)
    maker = Orders(policy, action, wanted or {}, {}, policy_keys(policy, any_key=False))
    order = maker.order(str(source), str(target))
    outcome = rewrite(order, KeySettings(policy.key_service.canonical(), policy.data_key_bits, ()), {})
    if outcome.refused:
        raise UnsupportedFileError(outcome.refused)
    if outcome.error:
        raise getattr(sparkcrypt.errors, outcome.error[0])(outcome.error[1])
    return target


def opened(trial: Trial, step: str, policy: Policy, **options: Any) -> GuardedTable | GuardedOrc:
    """Open an outcome from Python."""
    if trial.is_orc:
        return open_orc(str(trial.place(step)), policy, **options)
    return open_table(str(trial.place(step).parent), policy, tags=trial.tags, **options)


def arrow_rows(path: Path) -> pa.Table:
    """Read a plaintext file with pyarrow alone."""
    if path.suffix == ".orc":
        return pa.orc.ORCFile(path).read()
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()


def plain(rows: pa.Table | Iterable[Mapping[str, Any]]) -> list[str]:
    """Return rows as texts that can be compared, NaN too, columns of one name kept apart."""
    if isinstance(rows, pa.Table):
        columns = [column.to_pylist() for column in rows.columns]
        return [repr(row) for row in zip(*columns, strict=True)] if columns else [f"{rows.num_rows} rows"]
    return [repr(row) for row in rows]
