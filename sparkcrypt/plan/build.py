"""Building of plans: tags are matched to the fields of a schema, and the policy decides on each leaf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from urllib.parse import quote

from sparkcrypt.errors import PlanError
from sparkcrypt.plan.model import Action, ColumnPlan, EncryptionPlan
from sparkcrypt.policy.model import Policy, TagRule
from sparkcrypt.schema import Leaf, Node, Path, Schema, join_dotted
from sparkcrypt.tags.find_column import ColumnIndex, fold
from sparkcrypt.tags.model import SOURCES, TaggedColumn


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
        return fold(path[:1]) in {fold((name,)) for name in self.partition_columns} and not self._index.find(path)

    def _find(self, path: Path) -> Path | None:
        found = self._index.find(path)
        if len(found) > 1:
            self.problems.append(
                f"column {join_dotted(path)} could be {' or '.join(map(join_dotted, found))}, which differ from it "
                "only by case; write the name as the schema has it"
            )
        return found[0] if found else None

    def _names(self) -> str:
        names = [join_dotted(leaf.parquet) for leaf in self._schema.leaves()]
        return ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")

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
        rules = [rule for rule in self._policy.tags if rule.name in carried]
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
