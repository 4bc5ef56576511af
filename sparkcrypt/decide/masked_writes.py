"""Nulls in place of denied columns are not data: a write that would store them is refused, by column name."""

from __future__ import annotations

from collections.abc import Mapping

from sparkcrypt import names
from sparkcrypt.errors import ConfigError, PlanError, show
from sparkcrypt.schema import Schema
from sparkcrypt.tags.model import masked_of_schema


def refuse_masked(schema: Schema, properties: Mapping[str, str], path: str) -> None:
    """Refuse a write of masked columns unless it says that it wants them stored.

    Args:
        schema: of what is written.
        properties: of the write.
        path: where to, for the message.

    Raises:
        PlanError: a column is masked; it is named.
        ConfigError: the option is neither true nor false.
    """
    said = properties.get(names.ALLOW_MASKED, "false").strip().lower()
    if said not in ("true", "false"):
        raise ConfigError(f"{names.ALLOW_MASKED} is {show(said)}; allowed: true, false")
    masked = masked_of_schema(schema)
    if masked and said == "false":
        raise PlanError(
            f"{path}: column {', '.join(masked)} holds nulls in place of values whose key is denied to this reader, "
            "and such nulls are not data; write without it, have it written by somebody who may read it, or set the "
            f"option {names.ALLOW_MASKED} of this write to true to store nulls"
        )
