"""What a writer's or reader's configuration says of its table: name, UUID, tags, history, what it requires."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from sparkcrypt import names
from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.policy.build import policy_from_canonical
from sparkcrypt.policy.model import Policy, TableRule
from sparkcrypt.schema import Path
from sparkcrypt.tags.model import TaggedColumn, history_of_properties, tags_of_overlay, tags_of_properties

_KNOWN = (
    names.POLICY,
    names.KEY_SERVICE,
    names.LOCATIONS,
    names.TABLE,
    names.TABLE_UUID,
    names.REQUIRE_ENCRYPTION,
    names.PARTITION,
)
_BY_HAND = (
    "parquet.encryption.footer.key",
    "parquet.encryption.column.keys",
    "parquet.encryption.uniform.key",
    "parquet.encryption.complete.columns",
)
_UPSTREAM = (
    *_BY_HAND,
    "parquet.encryption.plaintext.footer",
    "parquet.encryption.algorithm",
    "parquet.encryption.data.key.length.bits",
    "parquet.encryption.kek.length.bits",
    "parquet.encryption.double.wrapping",
    "parquet.encryption.key.material.store.internally",
    "parquet.encryption.cache.lifetime.seconds",
    "parquet.encryption.kms.client.class",
    "parquet.encryption.kms.instance.id",
    "parquet.encryption.kms.instance.url",
    "parquet.encryption.key.access.token",
)


@dataclass(frozen=True, slots=True)
class TableContext:
    """One table as a writer or reader of one of its files sees it; ``name`` and ``uuid`` are None when not known."""

    policy: Policy
    name: str | None
    uuid: str | None
    rule: TableRule
    require_encryption: bool
    tagged: tuple[TaggedColumn, ...]
    history: Mapping[Path, tuple[str, ...]]
    partition: str | None


@lru_cache(maxsize=64)
def parse_policy(text: str) -> Policy:
    """Parse a policy once per text."""
    return policy_from_canonical(text)


def table_context(policy_text: str, path: str, properties: Mapping[str, str]) -> TableContext:
    """Gather what is known of the table that a path belongs to.

    Args:
        policy_text: canonical policy JSON.
        path: of the file, final or temporary.
        properties: configuration entries that begin with ``parquet.sparkcrypt.`` or ``parquet.encryption.``.

    Raises:
        ConfigError: a property is not known, or not what it must be.
        PlanError: a tag property is malformed.
    """
    _refuse_unknown(properties)
    policy = parse_policy(policy_text)
    located = _located(path, policy, properties.get(names.LOCATIONS))
    name = properties.get(names.TABLE) or located.get("table")
    rule = policy.table(name)
    return TableContext(
        policy=policy,
        name=name,
        uuid=properties.get(names.TABLE_UUID) or located.get("uuid"),
        rule=rule,
        require_encryption=rule.enforce and (rule.require_encryption or _flag(properties)),
        tagged=(*tags_of_properties(properties), *tags_of_overlay(dict(rule.tags))),
        history=history_of_properties(properties),
        partition=properties.get(names.PARTITION),
    )


def refuse_keys_by_hand(properties: Mapping[str, str]) -> None:
    """Refuse Parquet's own key properties under this factory: the policy decides, and two masters would differ.

    Raises:
        ConfigError: one of them is set; it is named.
    """
    for name in _BY_HAND:
        if properties.get(name):
            raise ConfigError(
                f"{name} is set by hand, but {names.CRYPTO_FACTORY} is sparkcrypt's, which goes by the policy; remove it and tag "
                f"the columns, or set {names.CRYPTO_FACTORY} to {names.STOCK_CRYPTO_FACTORY_CLASS} for this table"
            )


def _refuse_unknown(properties: Mapping[str, str]) -> None:
    for name in properties:
        known = (
            name in _KNOWN or name in _UPSTREAM or name.startswith((names.TAGS_PREFIX, names.HISTORY_PREFIX))
        )
        if not known and name.startswith((names.PREFIX, "parquet.encryption.")):
            allowed = _KNOWN if name.startswith(names.PREFIX) else _UPSTREAM
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; allowed: {', '.join(allowed)}"
            raise ConfigError(f"option {name} is not known, and a misspelt option would leave data in clear{hint}")


def _flag(properties: Mapping[str, str]) -> bool:
    value = properties.get(names.REQUIRE_ENCRYPTION, "false").strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{names.REQUIRE_ENCRYPTION} is {value!r}; allowed: true, false")
    return value == "true"


def comparable_path(path: str) -> str:
    """Return a path or URI as it is compared: ``file:`` and ``file://`` forms alike, no slash at the end, unescaped."""
    if path.startswith("/"):
        return "file:" + (path.rstrip("/") or "/")
    parts = urlsplit(path)
    authority = f"//{parts.netloc}" if parts.netloc else ""
    return f"{parts.scheme}:{authority}{unquote(parts.path).rstrip('/')}"


def _located(path: str, policy: Policy, locations_json: str | None) -> dict[str, str | None]:
    """Find the table whose location is the nearest above a path."""
    try:
        known: dict[str, dict[str, str | None]] = json.loads(locations_json) if locations_json else {}
    except ValueError as error:
        raise ConfigError(f"{names.LOCATIONS} is not JSON; leave it to sparkcrypt.configure") from error
    table_locations = [(comparable_path(location), entry) for location, entry in known.items()]
    table_locations += [
        (comparable_path(rule.location), {"table": rule.name}) for rule in policy.tables if rule.location
    ]
    here = comparable_path(path) + "/"
    above = [(len(location), entry) for location, entry in table_locations if here.startswith(location + "/")]
    return max(above, key=lambda pair: pair[0])[1] if above else {}


def require_text(request: Mapping[str, object], name: str) -> str:
    """Return a text field of a request.

    Raises:
        PlanError: it is missing or empty.
    """
    value = request.get(name)
    if not isinstance(value, str) or not value:
        raise PlanError(f"the request has no {name!r}; the jar and this helper do not belong together")
    return value
