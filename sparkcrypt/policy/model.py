"""The frozen values of a policy file, and their canonical JSON, which is sent to writers and readers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal

from sparkcrypt.names import Algorithm, FileFormat
from sparkcrypt.paths import Place
from sparkcrypt.policy.key_service import KeyServiceConfig, canonical_json
from sparkcrypt.policy.template import KeyTemplate

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
    retention_seconds: int | None = None
    history: tuple[str, ...] = ()
    on_denied: OnDenied | None = None
    sinks: SinkMode | None = None
    rotate_every_seconds: int | None = None
    create_keys: bool = False
    late_data: KeyTemplate | None = None

    def template_of(self, key_id: str) -> KeyTemplate | None:
        """Return the template of the rule that gives a key id: that of its key or of its late data; None if neither."""
        return next((key for key in (self.key, self.late_data) if key is not None and key.matches(key_id)), None)

    def to_dict(self) -> dict[str, Any] | str:
        """Return the rule in the form of a policy file."""
        if self.key is None and not self.history:
            return PLAINTEXT
        dates = {} if self.key is None else {name: dict(columns) for name, columns in self.key.dates}
        entries = {
            "dates": dates or None,
            "retention": _seconds(self.retention_seconds),
            "history": list(self.history) or None,
            "on_denied": self.on_denied,
            "sinks": self.sinks,
            "rotate_every": _seconds(self.rotate_every_seconds),
            "create_keys": self.create_keys or None,
            "late_data": self.late_data.text if self.late_data else None,
        }
        named = {name: value for name, value in entries.items() if value is not None}
        return {"key": self.key.text if self.key else None, **named}


def _seconds(duration: int | None) -> str | None:
    return None if duration is None else f"{duration}s"


@dataclass(frozen=True, slots=True)
class TableRule:
    """A policy's rule for one table, besides the meaning of tags.

    ``inherit`` is how tagged values in its columns without these tags are treated; None leaves it to the policy.
    """

    name: str
    require_encryption: bool = False
    enforce: bool = True
    footer_mode: FooterMode | None = None
    location: str | None = None
    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    inherit: InheritMode | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the form of a policy file, without defaults."""
        entries = {
            "require_encryption": self.require_encryption or None,
            "enforce": None if self.enforce else False,
            "footer_mode": self.footer_mode,
            "location": self.location or None,
            "tags": {path: list(tags) for path, tags in self.tags} or None,
            "inherit": self.inherit,
        }
        return {name: value for name, value in entries.items() if value is not None}


@dataclass(frozen=True, slots=True)
class DeclassifyRule:
    """The principals that may declassify values of tagged columns, and the tags that they may remove."""

    principals: tuple[str, ...]
    tags: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the form of a policy file."""
        return {"principals": list(self.principals), "tags": list(self.tags)}


@dataclass(frozen=True, slots=True)
class AccessLogRule:
    """The place to which access events are written.

    Attributes:
        location: absolute path of a folder, the same on every machine that reads.
        required: whether a key is handed out only after its event was written.
    """

    location: str
    required: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the form of a policy file, without defaults."""
        return {"location": self.location, **({"required": True} if self.required else {})}


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

    key_service: KeyServiceConfig
    algorithm: Algorithm
    data_key_bits: int
    footer_key: str
    footer_mode: FooterMode
    untagged: Untagged
    run_state: str
    tags: tuple[TagRule, ...]
    tables: tuple[TableRule, ...] = ()
    algorithm_history: tuple[Algorithm, ...] = ()
    footer_key_history: tuple[str, ...] = ()
    audit_key: str | None = None
    audit_key_history: tuple[str, ...] = ()
    old_files_grace_seconds: int | None = None
    ask_for_access: str | None = None
    safe_aggregates: tuple[str, ...] | None = None
    index_location: str | None = None
    sinks: SinkMode | None = None
    inherit: InheritMode | None = None
    bucketing: BucketingMode | None = None
    access_log: AccessLogRule | None = None
    declassify: DeclassifyRule | None = None
    rotate_every_seconds: int | None = None
    strict_projection: bool = False
    formats: tuple[FileFormat, ...] = ("parquet",)
    aliases: tuple[tuple[Place, Place], ...] = ()

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

    def tag(self, name: str) -> TagRule | None:
        """Return the rule of a tag, or None."""
        return next((rule for rule in self.tags if rule.name == name), None)

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
        wanted = normalized_table(name or "")
        default = TableRule(name or "")
        return next((rule for rule in self.tables if normalized_table(rule.name) == wanted), default)

    def has_rule(self, name: str) -> bool:
        """Return whether the policy lists a table."""
        return any(normalized_table(rule.name) == normalized_table(name) for rule in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as a document for ``policy_from_document``; tags stay in order of precedence."""
        footer: dict[str, Any] = {"key": self.footer_key, "mode": self.footer_mode}
        if self.footer_key_history:
            footer["history"] = list(self.footer_key_history)
        document: dict[str, Any] = {
            "version": 1,
            "key_service": self.key_service.to_dict(),
            "algorithm": self.algorithm,
            "data_key_bits": self.data_key_bits,
            "footer": footer,
            "untagged": self.untagged,
            "run_state": self.run_state,
            "tags": [[rule.name, rule.to_dict()] for rule in self.tags],
            "tables": {rule.name: rule.to_dict() for rule in self.tables},
        }
        history = {"history": list(self.audit_key_history)} if self.audit_key_history else {}
        grace, safe, period = self.old_files_grace_seconds, self.safe_aggregates, self.rotate_every_seconds
        optional = {
            "algorithm_history": list(self.algorithm_history) or None,
            "audit": None if self.audit_key is None else {"key": self.audit_key, **history},
            "old_files": None if grace is None else {"grace": f"{grace}s"},
            "ask_for_access": self.ask_for_access,
            "safe_aggregates": None if safe is None else list(safe),
            "index": None if self.index_location is None else {"location": self.index_location},
            "sinks": self.sinks,
            "inherit": self.inherit,
            "bucketing": self.bucketing,
            "access_log": self.access_log and self.access_log.to_dict(),
            "declassify": self.declassify and self.declassify.to_dict(),
            "rotate_every": None if period is None else f"{period}s",
            "strict_projection": self.strict_projection or None,
            "formats": None if self.formats == ("parquet",) else list(self.formats),
            "aliases": {named.text(): real.text() for named, real in self.aliases} or None,
        }
        return document | {name: value for name, value in optional.items() if value is not None}

    def rotation_period(self, key_id: str) -> int | None:
        """Return the maximum age of a master key's newest version, in seconds; None if the policy sets none.

        The setting of a tag whose key it is overrides the policy's; of several tags, the shortest counts.
        """
        own = [
            rule.rotate_every_seconds
            for rule in self.tags
            if rule.template_of(key_id) is not None and rule.rotate_every_seconds is not None
        ]
        return min(own) if own else self.rotate_every_seconds

    def retention_of(self, key_id: str) -> int | None:
        """Return the retention of data under a master key, in seconds: the longest of its tags; None: kept for ever."""
        rules = [rule for rule in self.tags if rule.template_of(key_id) is not None]
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
    return any(rule.template_of(key_id) is not None or key_id in rule.history for rule in policy.tags)


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
