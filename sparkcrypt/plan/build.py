"""The plan of a table or of a file, every leaf column with its key and the reason, made of tags, schema and policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal
from urllib.parse import quote

from sparkcrypt.errors import PlanError
from sparkcrypt.names import Algorithm
from sparkcrypt.policy.key_retention import is_past_retention
from sparkcrypt.policy.model import FooterMode, Policy, TableRule, TagRule
from sparkcrypt.policy.template import KeyTemplate
from sparkcrypt.schema import ColumnIndex, Leaf, Node, Path, Schema, fold, join_dotted
from sparkcrypt.tags.model import SOURCES, TaggedColumn
from sparkcrypt.text import Printable, align_rows

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
class EncryptionPlan(Printable):
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

    def to_text(self) -> str:
        """Return the plan as a text table; see `table_text`."""
        return self.table_text()

    def table_text(self) -> str:
        """Return the plan as a text table, encrypted columns first: column path, tags, their origin, key id, why."""
        rows = [("column", "tags", "from", "key", "why")]
        for column in sorted(self.columns, key=lambda column: column.action == "plaintext"):
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


def build_plan(
    schema: Schema,
    tagged: Iterable[TaggedColumn],
    policy: Policy,
    *,
    table: str | None = None,
    partition_columns: Iterable[str] | None = (),
    history: Mapping[Path, tuple[str, ...]] | None = None,
) -> EncryptionPlan:
    """Make the plan of a table or of a file.

    Args:
        schema: the columns that are in files: without partition columns.
        tagged: tags from every source, in any order.
        policy: what the tags mean.
        table: ``db.table``, when it is known.
        partition_columns: names of partition columns, which cannot be encrypted but may be used in key templates.
            None: not known, as to the writer of one file, which has its partition's values only.
        history: column -> percent-encoded key ids or ``plaintext`` that readers still accept, from the table's
            properties.

    Raises:
        PlanError: no plan can be made; one line for each problem of the whole schema.
    """
    planner = _Planner(schema, policy, table, partition_columns)
    planner.attach(tagged)
    columns = planner.columns(history or {})
    planner.refuse_problems()
    rule = policy.table(table)
    plan = EncryptionPlan(
        table=table,
        columns=columns,
        footer_key=policy.footer_key,
        footer_mode=rule.footer_mode or policy.footer_mode,
        algorithm=policy.algorithm,
        data_key_bits=policy.data_key_bits,
        policy_digest=policy.digest(),
        rule=rule,
        partition_columns=planner.partition_columns,
        key_service_json=policy.key_service.canonical(),
        schema=schema,
        footer_key_history=policy.footer_key_history,
    )
    return plan.require(rule.require_encryption)


def plan_columns(
    schema: Schema,
    tagged: Iterable[TaggedColumn],
    policy: Policy,
    history: Mapping[Path, tuple[str, ...]] | None = None,
) -> tuple[ColumnPlan, ...]:
    """Plan the columns of a schema that may lack columns of its table, as an older file does, and by its tags alone.

    Tags of columns that the schema lacks are ignored, the rule of the table is not asked, and columns without a tag
    are plaintext where the policy denies them.

    Args:
        schema: as for `build_plan`.
        tagged: as for `build_plan`.
        policy: as for `build_plan`.
        history: as for `build_plan`.

    Raises:
        PlanError: no plan can be made; one line for each problem of the whole schema.
    """
    policy = replace(policy, untagged="plaintext") if policy.untagged == "deny" else policy
    planner = _Planner(schema, policy, None, None)
    planner.attach(tagged, skip_absent=True)
    columns = planner.columns(history or {})
    planner.refuse_problems()
    return columns


def compare_tags(schema: Schema, tagged: Iterable[TaggedColumn], policy: Policy) -> tuple[str, ...]:
    """Return where the tags in the schema's metadata and those in the table's properties differ, a line for each."""
    planner = _Planner(schema, policy, None, None)
    planner.attach(tagged, skip_absent=True)
    return planner.differences()


class _Planner:
    """A planner that matches tags to the fields of one schema and decides on each leaf, collecting every problem."""

    def __init__(
        self, schema: Schema, policy: Policy, table: str | None, partition_columns: Iterable[str] | None
    ) -> None:
        self.problems: list[str] = []
        self.partition_columns = tuple(partition_columns or ())
        self._partitions_known = partition_columns is not None
        self._schema, self._policy, self._table = schema, policy, table
        self._index = ColumnIndex(schema)
        self._tags: dict[Path, dict[str, tuple[str, ...]]] = {}
        self._partitions = {fold((name,)) for name in self.partition_columns}
        self._shown: str | None = None

    def attach(self, tagged: Iterable[TaggedColumn], *, skip_absent: bool = False) -> None:
        """Assign each tag to the node that its path names."""
        in_order = sorted(tagged, key=lambda entry: (SOURCES.index(entry.source), entry.path, entry.tags))
        self._check_tags(in_order)
        for column in in_order:
            if self._is_partition(column.path):
                self.problems.append(
                    f"column {join_dotted(column.path)} is a partition column and cannot be encrypted, since its "
                    "values are folder names; remove its tag, or partition by a column that is not sensitive"
                )
                continue
            node = self._find(column.path)
            if node is None and skip_absent:
                continue
            if node is None:
                self.problems.append(
                    f"column {join_dotted(column.path)} is tagged {','.join(column.tags)} by the {column.source}, but "
                    f"the schema has no such column; allowed: {self._names()}; correct the tag, or remove it: of a "
                    "column that was renamed by `sparkcrypt tags unset`, after `tags set` of the new name"
                )
                continue
            by_source = self._tags.setdefault(node, {})
            by_source[column.source] = tuple(dict.fromkeys((*by_source.get(column.source, ()), *column.tags)))

    def _check_tags(self, tagged: Iterable[TaggedColumn]) -> None:
        unknown: dict[tuple[str, str], dict[str, None]] = {}
        for column in tagged:
            for tag in column.tags:
                if self._policy.tag(tag) is None:
                    unknown.setdefault((join_dotted(column.path), tag), {})[column.source] = None
        names = [rule.name for rule in self._policy.tags]
        for (path, tag), sources in unknown.items():
            near = get_close_matches(tag.lower(), names, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            self.problems.append(
                f"column {path} carries the tag {tag!r} (from the {' and the '.join(sources)}), which the policy does "
                f"not define; {hint}allowed: {', '.join(names) or 'none'}; correct the tag (`sparkcrypt tags set`), or "
                "define it in the policy's 'tags'"
            )

    def _is_partition(self, path: Path) -> bool:
        return fold(path[:1]) in self._partitions and not self._index.find(path)

    def _find(self, path: Path) -> Path | None:
        found = self._index.find(path)
        if len(found) > 1:
            self.problems.append(
                f"column {join_dotted(path)} could be {' or '.join(map(join_dotted, found))}, which differ from it "
                "only by case; write the name as the schema has it"
            )
        return found[0] if found else None

    def _names(self) -> str:
        if self._shown is None:
            names = [join_dotted(leaf.parquet) for leaf in self._schema.leaves()]
            self._shown = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
        return self._shown

    def columns(self, history: Mapping[Path, tuple[str, ...]]) -> tuple[ColumnPlan, ...]:
        """Return the plan of every leaf."""
        accepted: dict[Path, tuple[str, ...]] = {}
        for path, entries in sorted(history.items()):
            node = self._find(path)
            if node is not None:
                accepted[node] = (*accepted.get(node, ()), *sorted(entries))
        return tuple(self._column(leaf, chain, accepted) for leaf, chain in self._schema.walk_leaves())

    def _column(
        self, leaf: Leaf, chain: tuple[tuple[Path, Path, Node], ...], accepted: Mapping[Path, tuple[str, ...]]
    ) -> ColumnPlan:
        kept = tuple(entry for logical, _, _ in chain for entry in accepted.get(logical, ()))
        for logical, _, _ in reversed(chain):
            by_source = self._tags.get(logical)
            if by_source:
                own = "its own tag" if logical == leaf.logical else f"the tag of {join_dotted(logical)}"
                return self._by_tags(leaf, by_source, own, kept)
        return self._plan_untagged(leaf, kept)

    def _by_tags(
        self, leaf: Leaf, by_source: Mapping[str, tuple[str, ...]], own: str, kept: tuple[str, ...]
    ) -> ColumnPlan:
        carried = {tag for tags in by_source.values() for tag in tags}
        rules = self._policy.rules_of(carried)
        sources = tuple(source for source in SOURCES if source in by_source)
        if not rules:  # every tag is unknown, which was reported already
            return ColumnPlan(leaf, "plaintext", None, None, tuple(sorted(carried)), sources, "unknown tag")
        rule = rules[0]
        self._check_template(leaf, rule)
        why = own if len(rules) == 1 else f"{own}, {rule.name} before {', '.join(rule.name for rule in rules[1:])}"
        return ColumnPlan(
            leaf=leaf,
            action="encrypt" if rule.key else "plaintext",
            key=rule.key,
            tag=rule.name,
            tags=tuple(rule.name for rule in rules),
            sources=sources,
            why=why,
            history=tuple(dict.fromkeys((*(quote(entry, safe="-_.~") for entry in rule.history), *kept))),
            late_data=rule.late_data,
            retention_seconds=rule.retention_seconds,
        )

    def _check_template(self, leaf: Leaf, rule: TagRule) -> None:
        missing = [name for name in (rule.key.columns if rule.key else ()) if name not in self.partition_columns]
        if missing and rule.key and self._partitions_known:
            allowed = ", ".join(self.partition_columns) or "none, the table has no partitions"
            self.problems.append(
                f"column {leaf.dotted}: key {rule.key.text!r} of tag {rule.name!r} needs {', '.join(missing)}, which "
                f"is not a partition column of {self._table or 'the table'}; allowed: {allowed}; partition the table "
                "by it, or give the tag another key"
            )

    def _plan_untagged(self, leaf: Leaf, kept: tuple[str, ...]) -> ColumnPlan:
        if self._policy.untagged == "deny":
            self.problems.append(
                f"column {leaf.dotted} carries no tag, and the policy says 'untagged: deny'; tag it, with a plaintext "
                "tag if it may be read by all"
            )
        action: Action = "footer_key" if self._policy.untagged == "footer_key" else "plaintext"
        return ColumnPlan(leaf, action, None, None, (), (), f"untagged: {self._policy.untagged}", kept)

    def refuse_problems(self) -> None:
        """Raise an error if there is any problem.

        Raises:
            PlanError: one line for each problem.
        """
        if self.problems:
            raise PlanError("\n".join(sorted(dict.fromkeys(self.problems))))

    def differences(self) -> tuple[str, ...]:
        """Return where the tags in the schema's metadata and those in the table's properties differ."""
        without_metadata = {
            logical for _, chain in self._schema.walk_leaves() for logical, _, node in chain if len(node.parquet) != 1
        }
        found = []
        for path, by_source in sorted(self._tags.items()):
            if path in without_metadata:  # a Spark schema has no place for the tags of an element, key or value
                continue
            in_schema = set(by_source.get("schema metadata", ()))
            in_properties = set(by_source.get("table property", ()))
            if in_schema != in_properties and (in_schema or in_properties):
                found.append(
                    f"{join_dotted(path)}: schema metadata has {_names_of(in_schema)}, "
                    f"table properties have {_names_of(in_properties)}"
                )
        return tuple(found)


def _names_of(tags: set[str]) -> str:
    return ",".join(sorted(tags)) or "none"
