"""The frozen values of a policy file, and their canonical JSON, which is sent to writers and readers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from sparkcrypt.errors import ConfigError, show
from sparkcrypt.names import ALGORITHMS, FILE_FORMATS, Algorithm, FileFormat
from sparkcrypt.paths import Place, is_local, local_path, split_path
from sparkcrypt.policy.key_service import KeyServiceConfig, canonical_json
from sparkcrypt.policy.section import (
    REQUIRED,
    Section,
    choice_setting,
    duration_setting,
    setting,
    write_settings,
)
from sparkcrypt.policy.template import KeyTemplate, TemplateIndex

T = TypeVar("T")
_STATE = "state/"
_NO_GRACE = "0s moves old files out of reach right after each swap"
FooterMode = Literal["encrypted", "plaintext"]
Untagged = Literal["plaintext", "footer_key", "deny"]
OnDenied = Literal["error", "mask"]
SinkMode = Literal["deny", "warn", "allow"]
InheritMode = Literal["observe", "refuse", "add"]
BucketingMode = Literal["warn", "deny"]

FOOTER_MODES: tuple[FooterMode, ...] = ("encrypted", "plaintext")
UNTAGGED: tuple[Untagged, ...] = ("plaintext", "footer_key", "deny")
ON_DENIED: tuple[OnDenied, ...] = ("error", "mask")
ReadMode = Literal["error", "mask", "drop"]
"""What a program that reads a table asks for in place of denied columns."""
READ_MODES: dict[ReadMode, OnDenied] = {"error": "error", "mask": "mask", "drop": "mask"}
"""The decision on each leaf that a mode needs; ``drop`` leaves out columns of which nothing remains."""
SINK_MODES: tuple[SinkMode, ...] = ("deny", "warn", "allow")
INHERIT_MODES: tuple[InheritMode, ...] = ("observe", "refuse", "add")
BUCKETING_MODES: tuple[BucketingMode, ...] = ("warn", "deny")
DATA_KEY_BITS = (128, 192, 256)
PLAINTEXT = "plaintext"
SAFE_AGGREGATES = (
    "approx_count_distinct",
    "avg",
    "corr",
    "count",
    "count_if",
    "covar_pop",
    "covar_samp",
    "kurtosis",
    "skewness",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
)
"""Aggregates that a policy may declare safe: all others return a value that some row has."""
INDEX_SCHEMES = ("file", "hdfs", "webhdfs", "swebhdfs")
"""File systems on which stores for data skipping are kept, besides local paths."""
OLD_FILES_GRACE_SECONDS = 24 * 3600
"""How long old files stay in place for running readers, unless a policy sets another time."""


def _read_path(section: Section, name: str) -> str | None:
    text = section.text(name, None)
    return section.resolve(text) if text else None


def _read_names(section: Section, name: str) -> tuple[str, ...]:
    values = section.texts(name)
    if not values:
        section.problem(name, "names nobody and nothing; list names, or leave declassify out")
    return values


def _read_formats(section: Section, name: str) -> tuple[FileFormat, ...]:
    """Return the formats whose files runs encrypt; Parquet is always one, since every write of Spark encrypts it."""
    values = section.texts(name)
    found = tuple(entry for entry in FILE_FORMATS if entry in values)
    if len(found) != len(values) or "parquet" not in found:
        section.problem(name, f"is {show(list(values))}; allowed: [parquet], or [parquet, orc]")
    return found


def _read_index_location(section: Section, name: str) -> str | None:
    """Return the location of stores for data skipping; one on a file system that is not allowed is a problem."""
    location = section.text(name)
    place = section.resolve(location) if location else None
    if place is not None and split_path(place)[0] not in (None, *INDEX_SCHEMES):
        section.problem(
            name,
            f"{show(place)}: stores are not kept on {place.partition(':')[0]}:, where two writers of one store could "
            f"not be kept apart; allowed: a local path, {', '.join(f'{scheme}:' for scheme in INDEX_SCHEMES)}; files "
            "of tables may be elsewhere",
        )
    return place


def _read_log_location(section: Section, name: str) -> str:
    """Return the folder of the log of access events; empty for one that is not on this machine's file system."""
    text = section.text(name)
    if not text:
        return ""
    located = section.resolve(text)
    if not is_local(located):
        section.problem(
            name,
            f"{show(located)} is on {located.partition(':')[0]}, and each reader appends to files of its own, which "
            "takes a file system of the machine; allowed: a path or a file: URI, on a local disk or one that is "
            "mounted",
        )
        return ""
    try:
        path = local_path(located)
    except ConfigError as error:
        section.problem(name, str(error))
        return ""
    if not path.startswith("/"):
        section.problem(name, f"{show(located)} is no absolute path here; allowed: a path such as /var/log/access")
    return path


@dataclass(frozen=True, slots=True)
class TagRule:
    """The meaning of one tag: a master key, or plaintext (``key`` is None).

    ``history`` contains key ids (or ``plaintext``) of earlier policies: readers accept them until a backfill has
    replaced them.  ``on_denied`` is what a reader gets whose key is denied: ``mask`` gives nulls unless the session
    asks for an error, ``error`` is an error whatever the session asks for, None leaves it to the session.
    ``sinks`` is how writes of its columns to sinks that encrypt nothing are treated; None leaves it to the policy.
    ``rotate_every_seconds`` is the maximum age of its key's newest version; None leaves it to the policy.
    ``create_keys``: the first write into a bucket creates the bucket's key.
    ``late_data`` is the key, by the day of writing, of rows that arrive after their bucket's retention is over and its
    key is gone; None refuses them.
    """

    name: str
    key: KeyTemplate | None
    retention_seconds: int | None = duration_setting("retention")
    history: tuple[str, ...] = setting("history", Section.texts, default=())
    on_denied: OnDenied | None = choice_setting("on_denied", ON_DENIED, default=None)
    sinks: SinkMode | None = choice_setting("sinks", SINK_MODES, default=None)
    rotate_every_seconds: int | None = duration_setting("rotate_every")
    create_keys: bool = setting("create_keys", Section.boolean, default=False)
    late_data: KeyTemplate | None = setting("late_data", None, lambda late: late.text, default=None)

    def template_of(self, key_id: str) -> KeyTemplate | None:
        """Return the template of the rule that gives a key id: that of its key or of its late data; None if neither."""
        return next((key for key in (self.key, self.late_data) if key is not None and key.matches(key_id)), None)

    def to_dict(self) -> dict[str, Any] | str:
        """Return the rule in the form of a policy file."""
        if self.key is None and not self.history:
            return PLAINTEXT
        dates = {} if self.key is None else {name: dict(columns) for name, columns in self.key.dates}
        key = {"key": self.key.text if self.key else None, **({"dates": dates} if dates else {})}
        return {**key, **write_settings(self)}


@dataclass(frozen=True, slots=True)
class TableRule:
    """A policy's rule for one table, besides the meaning of tags.

    ``inherit`` is how tagged values in its columns without these tags are treated; None leaves it to the policy.
    """

    name: str
    require_encryption: bool = setting("require_encryption", Section.boolean, default=False)
    enforce: bool = setting("enforce", lambda section, name: section.boolean(name, True), default=True)
    footer_mode: FooterMode | None = choice_setting("footer_mode", FOOTER_MODES, default=None)
    location: str | None = setting("location", _read_path, default=None)
    tags: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        "tags", None, lambda tags: {path: list(names) for path, names in tags}, default=()
    )
    inherit: InheritMode | None = choice_setting("inherit", INHERIT_MODES, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the form of a policy file, without defaults."""
        return write_settings(self)


@dataclass(frozen=True, slots=True)
class DeclassifyRule:
    """The principals that may declassify values of tagged columns, and the tags that they may remove."""

    principals: tuple[str, ...] = setting("principals", _read_names)
    tags: tuple[str, ...] = setting("tags", _read_names)

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the form of a policy file."""
        return write_settings(self)


@dataclass(frozen=True, slots=True)
class AccessLogRule:
    """The place to which access events are written.

    Attributes:
        location: absolute path of a folder, the same on every machine that reads.
        required: whether a key is handed out only after its event was written.
    """

    location: str = setting("location", _read_log_location)
    required: bool = setting("required", Section.boolean, default=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the form of a policy file, without defaults."""
        return write_settings(self)


@dataclass(frozen=True, slots=True)
class Policy:
    """The meaning of each tag, the key service with the keys, and the rules of tables.

    ``tags`` is in order of precedence.  ``algorithm_history`` and ``footer_key_history`` are what readers still accept
    of earlier policies.  ``audit_key`` wraps what authenticates the audits of runs; None leaves that to the footer key,
    which readers may use too.  ``old_files_grace_seconds`` is None if the policy does not set it.
    ``ask_for_access`` is a text for readers who are denied a key.
    ``safe_aggregates`` are those whose results do not carry their arguments' tags, as written; None is ``count`` alone.
    ``index_location`` is where stores for data skipping are, a folder for each table; None if it is not set.
    ``sinks`` is how writes of tagged columns to sinks that encrypt nothing are treated, as written.
    ``inherit`` is how tagged values in columns of a table that lack these tags are treated, as written.
    ``bucketing`` is how writes into existing tables that are bucketed by a tagged column are treated.
    ``access_log`` is where readers write access events; None if they write none.
    ``declassify`` is the rule on who may remove tags from values; None: no principal.
    ``rotate_every_seconds`` is the age of a master key's newest version at which its rotation is due.
    ``strict_projection`` makes it an error to name a column that would be null because its key cannot be used.
    ``formats`` are those whose files runs encrypt; tables in others are ignored.
    ``aliases`` are further names of places, each with the name that counts.
    """

    key_service: KeyServiceConfig = setting("key_service", None, lambda config: config.to_dict())
    algorithm: Algorithm = choice_setting("algorithm", ALGORITHMS, "AES_GCM_V1")
    data_key_bits: int = choice_setting("data_key_bits", DATA_KEY_BITS, 256)
    footer_key: str = setting("footer.key", Section.text)
    footer_mode: FooterMode = choice_setting("footer.mode", FOOTER_MODES, "encrypted")
    untagged: Untagged = choice_setting("untagged", UNTAGGED, REQUIRED)
    run_state: str = setting("run_state", lambda section, name: section.resolve(section.text(name, _STATE) or _STATE))
    tags: tuple[TagRule, ...] = setting("tags", None, lambda rules: [[rule.name, rule.to_dict()] for rule in rules])
    tables: tuple[TableRule, ...] = ()
    algorithm_history: tuple[Algorithm, ...] = setting(
        "algorithm_history", lambda section, name: section.choices(name, ALGORITHMS), default=()
    )
    footer_key_history: tuple[str, ...] = setting("footer.history", Section.texts, default=())
    audit_key: str | None = setting("audit.key", lambda section, name: section.text(name) or None, default=None)
    audit_key_history: tuple[str, ...] = setting("audit.history", Section.texts, default=())
    old_files_grace_seconds: int | None = setting(
        "old_files.grace",
        lambda section, name: section.duration(name, REQUIRED, zero=_NO_GRACE),
        lambda seconds: f"{seconds}s",
        default=None,
    )
    ask_for_access: str | None = setting("ask_for_access", lambda section, name: section.text(name, None), default=None)
    safe_aggregates: tuple[str, ...] | None = setting(
        "safe_aggregates",
        lambda section, name: section.choices(name, SAFE_AGGREGATES, "is none that hides single values"),
        default=None,
    )
    index_location: str | None = setting("index.location", _read_index_location, default=None)
    sinks: SinkMode | None = choice_setting("sinks", SINK_MODES, default=None)
    inherit: InheritMode | None = choice_setting("inherit", INHERIT_MODES, default=None)
    bucketing: BucketingMode | None = choice_setting("bucketing", BUCKETING_MODES, default=None)
    access_log: AccessLogRule | None = setting("access_log", None, lambda rule: rule.to_dict(), default=None)
    declassify: DeclassifyRule | None = setting("declassify", None, lambda rule: rule.to_dict(), default=None)
    rotate_every_seconds: int | None = duration_setting("rotate_every")
    strict_projection: bool = setting("strict_projection", Section.boolean, default=False)
    formats: tuple[FileFormat, ...] = setting("formats", _read_formats, default=("parquet",))
    aliases: tuple[tuple[Place, Place], ...] = setting(
        "aliases", None, lambda aliases: {named.text(): real.text() for named, real in aliases}, default=()
    )
    _places: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _by_table: Mapping[str, TableRule] = field(init=False, repr=False, compare=False)
    _by_key: TemplateIndex[TagRule] = field(init=False, repr=False, compare=False)
    _history: Mapping[str, list[str]] = field(init=False, repr=False, compare=False)

    @property
    def readable_algorithms(self) -> tuple[Algorithm, ...]:
        """The algorithms of files that readers accept: the policy's own and those of its history."""
        return (self.algorithm, *self.algorithm_history)

    @property
    def grace_seconds(self) -> int:
        """How long old files stay in place after a swap; 0 moves them out of reach at once."""
        written = self.old_files_grace_seconds
        return OLD_FILES_GRACE_SECONDS if written is None else written

    def for_principal(self, principal: str) -> Policy:
        """Return the policy with a principal's name in place of each ``{principal}`` in the key service's options.

        Raises:
            ConfigError: the name is not allowed there.
        """
        return replace(self, key_service=self.key_service.for_principal(principal))

    def __post_init__(self) -> None:
        """Index the rules of tags and tables; of several with one name, which no policy may have, the first counts."""
        names: dict[str, int] = {}
        for place, rule in enumerate(self.tags):
            names.setdefault(rule.name, place)
        tables: dict[str, TableRule] = {}
        for table in self.tables:
            tables.setdefault(normalized_table(table.name), table)
        keys = ((key, rule) for rule in self.tags for key in (rule.key, rule.late_data) if key is not None)
        history: dict[str, list[str]] = {}
        for rule in self.tags:
            for key_id in rule.history:
                history.setdefault(key_id, []).append(rule.name)
        object.__setattr__(self, "_history", history)
        object.__setattr__(self, "_places", names)
        object.__setattr__(self, "_by_table", tables)
        object.__setattr__(self, "_by_key", TemplateIndex(keys))

    def tag(self, name: str) -> TagRule | None:
        """Return the rule of a tag, or None."""
        place = self._places.get(name)
        return None if place is None else self.tags[place]

    def find_tag(self, name: str) -> TagRule | None:
        """Return the rule of a tag, or of the only one whose name differs in case alone; None if there is none."""
        exact = self.tag(name)
        if exact is not None:
            return exact
        alike = [rule for rule in self.tags if rule.name.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None

    def rules_of(self, tags: Iterable[str]) -> tuple[TagRule, ...]:
        """Return the rules of those tags that the policy has, in order of precedence."""
        return tuple(self.tags[place] for place in sorted({self._places[tag] for tag in tags if tag in self._places}))

    def rules_giving(self, key_id: str) -> tuple[TagRule, ...]:
        """Return the rules whose key, or key of late data, could be a key, in order of precedence."""
        return tuple({rule.name: rule for rule in self._by_key.find(key_id)}.values())

    def rules_of_key(self, key_id: str) -> tuple[TagRule, ...]:
        """Return these rules and those whose history has the key, in order of precedence."""
        return self.rules_of([*(rule.name for rule in self.rules_giving(key_id)), *self._history.get(key_id, ())])

    def sink_mode(self, rule: TagRule, *, requires_encryption: bool) -> SinkMode:
        """Return how a write of a tagged column to a sink that encrypts nothing is treated.

        Args:
            rule: the rule of the column's tag, which overrides the policy's setting.
            requires_encryption: whether a table that is read requires encryption; the default is then ``deny``, else
                ``warn``.
        """
        return rule.sinks or self.sinks or ("deny" if requires_encryption else "warn")

    def inherit_mode(self, rule: TableRule, *, requires_encryption: bool) -> InheritMode:
        """Return how tagged values in columns of a table that lack these tags are treated.

        Args:
            rule: the rule of the table, which overrides the policy's setting.
            requires_encryption: whether the table requires encryption; the default is then ``refuse``, else
                ``observe``.
        """
        return rule.inherit or self.inherit or ("refuse" if requires_encryption else "observe")

    def table(self, name: str | None) -> TableRule:
        """Return the rule of a table; a table that the policy does not list has the default rule.

        Names compare without case, as in the Hive metastore; ``spark_catalog.`` in front is ignored.
        """
        return self._by_table.get(normalized_table(name or "")) or TableRule(name or "")

    def has_history(self, key_id: str) -> bool:
        """Return whether the history of a tag has a key."""
        return key_id in self._history

    def has_rule(self, name: str) -> bool:
        """Return whether the policy lists a table."""
        return normalized_table(name) in self._by_table

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as a document for ``policy_from_document``; tags stay in order of precedence."""
        tables = {rule.name: rule.to_dict() for rule in self.tables}
        return {"version": 1, "tables": tables, **write_settings(self)}

    def rotation_period(self, key_id: str) -> int | None:
        """Return the maximum age of a master key's newest version, in seconds; None if the policy sets none.

        The setting of a tag whose key it is overrides the policy's; of several tags, the shortest counts.
        """
        own = [rule.rotate_every_seconds for rule in self.rules_giving(key_id) if rule.rotate_every_seconds is not None]
        return min(own) if own else self.rotate_every_seconds

    def retention_of(self, key_id: str) -> int | None:
        """Return the retention of data under a master key, in seconds: the longest of its tags; None: kept for ever."""
        rules = self.rules_giving(key_id)
        kept = [rule.retention_seconds for rule in rules if rule.retention_seconds is not None]
        return max(kept) if kept and len(kept) == len(rules) else None

    def canonical(self) -> str:
        """Return the canonical JSON; equal texts mean the same policy."""
        return canonical_json(self.to_dict())

    def digest(self) -> str:
        """Return SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()


def normalized_table(name: str) -> str:
    """Return a table's name in the form used for comparison: lower case, no back-quotes, no ``spark_catalog.``."""
    return name.replace("`", "").lower().removeprefix("spark_catalog.")


def allowed_key_ids(policy: Policy, key_id: str) -> bool:
    """Return whether a rule of the policy, or its history, names this key."""
    if key_id in (policy.footer_key, *policy.footer_key_history):
        return True
    return bool(policy.rules_giving(key_id)) or policy.has_history(key_id)


def named_keys(policy: Policy) -> dict[str, bool]:
    """Return the keys in a policy, the footer's first and the audit's last, each with whether it is a template.

    The key ids of a template depend on partitions.
    """
    named = {policy.footer_key: False}
    for rule in policy.tags:
        if rule.key is not None:
            named.setdefault(rule.key.text if rule.key.columns else rule.key.render({}), bool(rule.key.columns))
        if rule.late_data is not None and not rule.late_data.columns:
            named.setdefault(rule.late_data.render({}), False)
    if policy.audit_key is not None:
        named.setdefault(policy.audit_key, False)
    return named
