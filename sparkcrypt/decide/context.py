"""The bridge's requests, every part of which is checked before it is used, and the tables that they are about.

A table has its name, UUID, tags, history and requirements from its writer's or reader's configuration.
"""

from __future__ import annotations

import base64
import difflib
import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

from sparkcrypt import names
from sparkcrypt.errors import BridgeError, ConfigError, show
from sparkcrypt.paths import Place, PlaceIndex, is_partition_folder
from sparkcrypt.policy.build import policy_from_canonical
from sparkcrypt.policy.model import Policy, TableRule, normalized_table
from sparkcrypt.schema import Path, Schema, schema_from_spark
from sparkcrypt.tags.model import TaggedColumn, history_of_properties, unite_tags

_MODES = ("encrypted", "plaintext_signed", "plaintext")
_HINT = "the jar and this helper do not belong together"


def require_text(request: Mapping[str, object], name: str) -> str:
    """Return a text field of a request.

    Raises:
        BridgeError: it is missing or empty.
    """
    value = request.get(name)
    if not isinstance(value, str) or not value:
        raise BridgeError(f"the request's {name!r} is {show(value)}; allowed: a text that is not empty; {_HINT}")
    return value


def optional_text(request: Mapping[str, object], name: str) -> str | None:
    """Return a text field of a request, or None if it is missing, null or empty.

    Raises:
        BridgeError: it is something else.
    """
    return require_text(request, name) if request.get(name) not in (None, "") else None


def require_texts(request: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Return a field of a request that is a list of texts.

    Raises:
        BridgeError: it is something else.
    """
    value = request.get(name)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise BridgeError(f"the request's {name!r} are {show(value)}; allowed: a list of texts; {_HINT}")
    return tuple(value)


def require_mapping(request: Mapping[str, object], name: str) -> Mapping[str, Any]:
    """Return a field of a request that has fields of its own.

    Raises:
        BridgeError: it is something else.
    """
    value = request.get(name)
    if not isinstance(value, Mapping):
        raise BridgeError(f"the request's {name!r} is {show(value)}; allowed: a mapping; {_HINT}")
    return value


def require_properties(request: Mapping[str, object]) -> dict[str, str]:
    """Return the configuration entries of a request.

    Raises:
        BridgeError: they are not a mapping of texts to texts.
    """
    value = request.get("properties")
    if not isinstance(value, Mapping) or not all(isinstance(entry, str) for pair in value.items() for entry in pair):
        raise BridgeError(f"the request's 'properties' are {show(value)}; allowed: names with texts; {_HINT}")
    return dict(value)


def require_footer(request: Mapping[str, object]) -> Mapping[str, Any]:
    """Return the footer in a request.

    Raises:
        BridgeError: a part of it is missing or invalid.
    """
    footer = request.get("footer")
    if not isinstance(footer, Mapping) or footer.get("mode") not in _MODES:
        raise BridgeError(f"the request's 'footer' is {show(footer)}; allowed modes: {', '.join(_MODES)}; {_HINT}")
    for name in ("aad_prefix", "aad_file_unique", "footer_key_metadata"):
        decode_base64(footer.get(name), name)
    for name in ("columns", "fields"):
        if not isinstance(footer.get(name), list):
            raise BridgeError(f"the footer's {name!r} are {show(footer.get(name))}; allowed: a list; {_HINT}")
    for column in footer["columns"]:
        _check_column(column)
    return footer


def _check_column(column: object) -> None:
    path = column.get("path") if isinstance(column, Mapping) else None
    if not (
        isinstance(column, Mapping)
        and isinstance(path, list)
        and path
        and all(isinstance(name, str) for name in path)
        and isinstance(column.get("encrypted"), bool)
    ):
        raise BridgeError(f"a column of the footer is {show(column)}; allowed: its path and 'encrypted'; {_HINT}")
    decode_base64(column.get("key_metadata"), "key_metadata")


def decode_base64(text: object, name: str) -> bytes | None:
    """Return the bytes of a base64 field; null is None.

    Raises:
        BridgeError: it is not base64.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise BridgeError(f"the footer's {name!r} is not a text in base64; {_HINT}")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise BridgeError(f"the footer's {name!r} is not base64; {_HINT}") from error


_KNOWN = (
    names.POLICY,
    names.KEY_SERVICE,
    names.SESSION_TOKEN,
    names.STREAM,
    names.LOCATIONS,
    names.TABLE,
    names.TABLE_NAME,
    names.TABLE_UUID,
    names.TABLE_SCHEMA,
    names.QUERY_SCHEMA,
    names.OWNER_SCHEMAS,
    names.REQUIRE_ENCRYPTION,
    names.PARTITION,
    names.ALLOW_MASKED,
    names.FIELD_METADATA,
)
LINKS_SECONDS = 60
"""How long it is kept to what the links of known locations lead."""
_BY_COLUMN = (names.TAGS_PREFIX, names.HISTORY_PREFIX)
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


T = TypeVar("T")
RouteKeys: TypeAlias = Callable[[Collection[str]], Mapping[str, str]]
"""Called with the key ids that a write needs; returns key id of a bucket whose key is gone -> key id of late data."""


def keep_keys(key_ids: Collection[str]) -> Mapping[str, str]:
    """Route no key: each bucket is written under its own key."""
    return {}


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
    """Return the context of the table that a path belongs to.

    Args:
        policy_text: canonical policy JSON.
        path: the file's path, final or temporary.
        properties: configuration entries that begin with ``parquet.sparkcrypt.`` or ``parquet.encryption.``.

    Raises:
        ConfigError: a property is not known, or has a value that is not allowed.
        PlanError: a tag property is malformed.
    """
    refuse_unknown(properties)
    policy = parse_policy(policy_text)
    located = _find_location(path, policy_text, properties.get(names.LOCATIONS))
    name = _table_name(properties.get(names.TABLE), located.get("table"), path)
    name = _name_in_catalog(policy, properties.get(names.TABLE_NAME), name, path)
    rule = policy.table(name)
    required = _flag(properties) or rule.require_encryption
    return TableContext(
        policy=policy,
        name=name,
        uuid=_identifier(properties.get(names.TABLE_UUID) or located.get("uuid")),
        rule=rule,
        require_encryption=rule.enforce and required,
        tagged=unite_tags(schemas=_schemas_of_table(properties), properties=properties, overlay=rule.tags),
        history=history_of_properties(properties),
        partition=_partition(properties.get(names.PARTITION)),
    )


def context_of_request(request: Mapping[str, Any]) -> TableContext:
    """Return the context of a request's table, by its ``policy``, ``path`` and ``properties``, as `table_context`."""
    return table_context(require_text(request, "policy"), require_text(request, "path"), require_properties(request))


def _schemas_of_table(properties: Mapping[str, str]) -> tuple[Schema, ...]:
    texts = (properties.get(names.TABLE_SCHEMA), properties.get(names.QUERY_SCHEMA))
    others = _parse_json(properties.get(names.OWNER_SCHEMAS), names.OWNER_SCHEMAS, list)
    return tuple(map(schema_from_spark, (*(text for text in map(unescape_json, texts) if text), *others)))


def unescape_json(text: str | None) -> str | None:
    """Return JSON without Java's escapes, which Hive's SerDe may have added and which are all JSON's as well."""
    return str(json.loads(f'"{text}"')) if text and text.startswith(('{\\"', '[{\\"')) else text


def _table_name(stated: str | None, located: str | None, path: str) -> str | None:
    if stated and located and normalized_table(stated) != normalized_table(located):
        raise ConfigError(
            f"{names.TABLE} is {show(stated)}, but {path} belongs to {located}, whose rule would not apply; "
            "remove the option, or correct the location in the policy"
        )
    return stated or located


def _name_in_catalog(policy: Policy, catalog: str | None, known: str | None, path: str) -> str | None:
    """Return the name used to look up rules: the catalog's, unless the policy has a rule for the other name only."""
    if not catalog or not known or normalized_table(catalog) == normalized_table(known):
        return known or catalog
    ruled = [name for name in (catalog, known) if policy.has_rule(name)]
    if len(ruled) > 1:
        raise ConfigError(
            f"{path} belongs to table {show(catalog)} of the catalog and by its place to {show(known)}, and the "
            "policy has a rule for each; remove one rule, or correct its location"
        )
    return ruled[0] if ruled else catalog


def _identifier(uuid: str | None) -> str | None:
    if uuid and not re.fullmatch(r"[0-9A-Za-z_.][0-9A-Za-z_.-]*", uuid):
        raise ConfigError(f"{names.TABLE_UUID} is {show(uuid)}; allowed: a UUID, as `sparkcrypt tags set` gives one")
    return uuid or None


def _partition(text: str | None) -> str | None:
    if text and not all(is_partition_folder(folder) for folder in text.split("/")):
        raise ConfigError(f"{names.PARTITION} is {show(text)}; allowed: folders such as p=0/q=1")
    return text


def refuse_keys_by_hand(properties: Mapping[str, str]) -> None:
    """Refuse Parquet's own key properties under this factory: the policy decides on keys, and they could differ.

    Raises:
        ConfigError: one of them is set; it is named.
    """
    for name in _BY_HAND:
        if properties.get(name):
            raise ConfigError(
                f"{name} is set by hand, but {names.CRYPTO_FACTORY} is sparkcrypt's, which goes by the policy; remove "
                f"it and tag the columns; {names.STOCK_CRYPTO_FACTORY_CLASS} takes it, where the launch "
                f"({names.STOCK_FACTORY}=true) or configure(…, stock_factory=True) allows that factory, for tables "
                "without tags and rules"
            )


def refuse_unknown(properties: Mapping[str, str]) -> None:
    """Refuse an unknown property of sparkcrypt or of Parquet's encryption: misspelt, it would leave data in clear.

    Raises:
        ConfigError: a property is unknown; the message names the one that was probably meant.
    """
    for name in properties:
        known = name in _KNOWN or name in _UPSTREAM or name.startswith(_BY_COLUMN)
        if not known and name.startswith((names.PREFIX, "parquet.encryption.")):
            allowed = _KNOWN if name.startswith(names.PREFIX) else _UPSTREAM
            near = [f"{prefix}<column>" for prefix in _BY_COLUMN if _resembles(name, prefix)]
            near = near or _find_similar_name(name, allowed)
            hint = f"; did you mean {near[0]}?" if near else f"; allowed: {', '.join(allowed)}"
            raise ConfigError(f"option {name} is not known, and a misspelt option would leave data in clear{hint}")


def _find_similar_name(name: str, allowed: tuple[str, ...]) -> list[str]:
    """Return the allowed name whose part after the common prefix is most similar, if one is."""
    start = names.PREFIX if name.startswith(names.PREFIX) else "parquet.encryption."
    by_own_part = {entry.removeprefix(start): entry for entry in allowed}
    return [by_own_part[match] for match in difflib.get_close_matches(name.removeprefix(start), list(by_own_part), n=1)]


def _resembles(name: str, prefix: str) -> bool:
    """Return whether the third part of a name is nearly ``tags`` or ``history``."""
    part, wanted = name.split(".")[2], prefix.split(".")[2]
    return name.count(".") > prefix.count(".") - 1 and bool(difflib.get_close_matches(part, [wanted], cutoff=0.7))


def _flag(properties: Mapping[str, str]) -> bool:
    value = properties.get(names.REQUIRE_ENCRYPTION, "false").strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{names.REQUIRE_ENCRYPTION} is {value!r}; allowed: true, false")
    return value == "true"


def _find_location(path: str, policy_text: str, locations_json: str | None) -> Mapping[str, str | None]:
    """Find the table whose location is the nearest above a path, or above where its links lead to."""
    known = _known_locations(policy_text, locations_json, int(time.monotonic() // LINKS_SECONDS))
    place = Place.of(path, parse_policy(policy_text).aliases)
    named, real = (next((entry for _, entry in known.find_above(at)), {}) for at in (place, place.without_links()))
    if named and real and normalized_table(named.get("table") or "") != normalized_table(real.get("table") or ""):
        raise ConfigError(
            f"{path} belongs to {named.get('table')}, and leads by links to {real.get('table')}; use the real path"
        )
    return real or named


@lru_cache(maxsize=64)
def _known_locations(policy_text: str, locations_json: str | None, _: int) -> PlaceIndex[Mapping[str, str | None]]:
    policy, known = parse_policy(policy_text), _locations(locations_json)
    known += [(rule.location, {"table": rule.name}) for rule in policy.tables if rule.location]
    known += [(unquote(location), entry) for location, entry in known if "%" in location]
    known += [(_folder_of_runs(location), entry) for location, entry in known]
    places = [(Place.of(location, policy.aliases), entry) for location, entry in known]
    return PlaceIndex([*places, *((place.without_links(), entry) for place, entry in places)])


def _folder_of_runs(location: str) -> str:
    """Return the folder for files that runs write for a table: ``.sparkcrypt/<folder>`` beside its folder."""
    above, slash, name = location.rstrip("/").rpartition("/")
    return f"{above}{slash}.sparkcrypt/{name}"


def _locations(text: str | None) -> list[tuple[str, dict[str, str | None]]]:
    known = _parse_json(text, names.LOCATIONS, dict)
    if not all(
        isinstance(entry, dict) and all(value is None or isinstance(value, str) for value in entry.values())
        for entry in known.values()
    ):
        raise ConfigError(f"{names.LOCATIONS} is {show(known)}; leave it to sparkcrypt.configure")
    return list(known.items())


def _parse_json(text: str | None, name: str, kind: type[T]) -> T:
    """Return what a property of the jar says; an empty value of its kind if it is not set."""
    try:
        value = json.loads(unescape_json(text) or "") if text else kind()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not JSON; leave it to sparkcrypt.configure") from error
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {show(value)}; leave it to sparkcrypt.configure")
    return value
