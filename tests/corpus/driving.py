"""Drives one file of the corpus through the package: planned, encrypted, read, rotated, decrypted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

import sparkcrypt.errors
from sparkcrypt.arrow import GuardedOrc, GuardedTable, open_orc, open_table
from sparkcrypt.cli.files.rewrite import Orders
from sparkcrypt.cli.frame.named_files import policy_keys
from sparkcrypt.errors import PlanError, SparkcryptError, UnsupportedFileError
from sparkcrypt.files.format import read_orc_footer
from sparkcrypt.files.orders import KeySettings
from sparkcrypt.files.parquet import inspect_file
from sparkcrypt.files.rewrite import rewrite
from sparkcrypt.plan import build_plan
from sparkcrypt.plan.orc import cover_columns
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.columns import match_columns
from sparkcrypt.runs.table.difference import drift_of_unknown
from sparkcrypt.schema import Node, Schema, join_dotted, schema_from_spark
from sparkcrypt.tags.model import TaggedColumn
from tests.corpus.manifest import FILES, load
from tests.unit.backfill.scanned_files import scanned_file

KEYS = DENIED, _ = "pii", "fin"
Column: TypeAlias = tuple[str, ...]
Action = Literal["encrypt", "decrypt", "rewrap"]


@dataclass
class Trial:
    """What one file went through; ``entry`` is its line in the manifest."""

    name: str
    entry: Mapping[str, Any]
    folder: Path
    spark_schema: str | None = None
    spark_error: str = ""
    tags: dict[Column, str] = field(default_factory=dict)
    keys: dict[Column, str] = field(default_factory=dict)
    refusal: SparkcryptError | None = None

    @property
    def source(self) -> Path:
        """The file as it is in the corpus."""
        return self.place("plain")

    @property
    def is_orc(self) -> bool:
        """Whether its name says ORC."""
        return self.name.endswith(".orc")

    def place(self, step: str) -> Path:
        """Return where the outcome of a step is: alone in a folder, as is a copy of the file itself."""
        return self.folder / step / self.name.replace(".", "-") / self.name

    def expects(self, route: str) -> str | None:
        """Return the text with which a route is said to refuse the file."""
        found: str | None = self.entry.get(route)
        return found


def trials(folder: Path) -> list[Trial]:
    """Return a trial of each file of the manifest."""
    found = [Trial(name, entry, folder) for name, entry in load().items()]
    for trial in found:
        place = trial.place("plain")
        place.parent.mkdir(parents=True)
        place.write_bytes((FILES / trial.name).read_bytes())
    return found


def choose_tags(schema: Schema) -> dict[tuple[str, ...], str]:
    """Return column -> tag: a third of the columns stays without, and fields of one struct have different tags."""
    found: dict[tuple[str, ...], str] = {}

    def choose(node: Node, path: tuple[str, ...], number: int) -> None:
        if not node.name or (node.kind == "struct" and not node.children):
            return  # nothing names such a column, or it has no values
        if node.kind == "struct" and len(node.children) > 1:
            for place, child in enumerate(node.children):
                below = (*path, child.name)
                found[below] = KEYS[place % 2]
        else:
            found[path] = KEYS[number % 2]

    for number, node in enumerate(schema.fields):
        if number % 3 or len(schema.fields) < 3:
            choose(node, (node.name,), number)
    return found


def encrypt(trial: Trial, policy: Policy) -> None:
    """Encrypt a file as a run does, by the tags of columns that Spark reads; else as ``sparkcrypt rewrite`` does."""
    path, wanted = str(trial.source), dict[Column, str]()
    try:
        summary = read_orc_footer(path, path, None)[0] if trial.is_orc else inspect_file(path)
        columns = tuple(summary.columns or ())
        if trial.spark_schema is None:
            tops = dict.fromkeys(column[:1] for column in columns)
            wanted = {top: KEYS[place % 2] for place, top in enumerate(tops)}
        else:
            schema = schema_from_spark(trial.spark_schema)
            trial.tags = choose_tags(schema)
            tagged = [TaggedColumn(path, (tag,), "overlay") for path, tag in trial.tags.items()]
            plan = build_plan(schema, tagged, policy)
            matched = match_columns(summary, plan)
            if drift := drift_of_unknown(scanned_file(summary, matched), plan):
                raise PlanError(str(drift[0]))
            keys = {path: str(key) for path, key in matched.key_ids(plan, {}).items()}
            covered = {matched.planned[path].path for path in keys}
            assert covered == {column.path for column in plan.encrypted}, f"{trial.name}: a tagged column is not found"
            wanted = cover_columns(columns, keys) if trial.is_orc else keys
        trial.keys = wanted
        carry_out(trial, "encrypted", trial.source, policy, "encrypt", wanted)
    except SparkcryptError as error:
        trial.refusal = error


def go_on(trial: Trial, policy: Policy) -> None:
    """Rewrap what was encrypted, give it new data keys, and decrypt it."""
    rewrapped = carry_out(trial, "rewrapped", trial.place("encrypted"), policy, "rewrap")
    rekeyed = carry_out(trial, "rekeyed", rewrapped, policy, "encrypt", trial.keys)
    carry_out(trial, "decrypted", rekeyed, policy, "decrypt")


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
    tags = {join_dotted(path): [tag] for path, tag in trial.tags.items()}
    return open_table(str(trial.place(step).parent), policy, tags=tags, **options)


def arrow_rows(path: Path) -> pa.Table:
    """Read a plaintext file with pyarrow alone."""
    if path.suffix == ".orc":
        return pa.orc.ORCFile(path).read()
    return pq.read_table(path, coerce_int96_timestamp_unit="us", partitioning=None)


def plain(rows: pa.Table) -> list[str]:
    """Return rows as texts that can be compared, NaN too; instants in UTC, as pyarrow has those of INT96."""
    columns = [column.cast(pa.timestamp(column.type.unit)) if pa.types.is_timestamp(column.type) else column
               for column in rows.columns]  # fmt: skip
    texts = [repr(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
    return texts if columns else [f"{rows.num_rows} rows"]
