"""Refusal of writes that would store the nulls in place of denied columns, which are not data."""

from __future__ import annotations

from collections.abc import Mapping

from sparkcrypt import names
from sparkcrypt.errors import ConfigError, PlanError, show
from sparkcrypt.schema import Schema
from sparkcrypt.tags.model import masked_of_schema


def refuse_masked(schema: Schema, properties: Mapping[str, str], path: str) -> None:
    """Refuse a write of masked columns unless its properties allow it.

    Args:
        schema: schema of the written rows.
        properties: properties of the write.
        path: the path that is written, for the message.

    Raises:
        PlanError: a column is masked; it is named.
        ConfigError: the option is neither true nor false.
    """
    allowed = properties.get(names.ALLOW_MASKED, "false").strip().lower()
    if allowed not in ("true", "false"):
        raise ConfigError(f"{names.ALLOW_MASKED} is {show(allowed)}; allowed: true, false")
    masked = masked_of_schema(schema)
    if masked and allowed == "false":
        raise PlanError(
            f"{path}: column {', '.join(masked)} holds nulls in place of values whose key is denied to this reader, "
            "and such nulls are not data; write without it, have it written by somebody who may read it, or set the "
            f"option {names.ALLOW_MASKED} of this write to true to store nulls"
        )
