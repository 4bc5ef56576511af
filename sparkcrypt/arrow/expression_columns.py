"""Finds the columns that a pyarrow expression uses."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def columns_in(expression: pc.Expression | None, schema: pa.Schema) -> tuple[str, ...]:
    """Return the top-level columns that an expression uses.

    pyarrow has no interface for this, so a column counts as used if the expression cannot be evaluated without it.

    Args:
        expression: the expression; None uses no column.
        schema: the columns that it may use.

    Raises:
        pyarrow.ArrowInvalid: it uses a column that the schema lacks, or cannot be evaluated.
    """
    if expression is None:
        return ()
    _evaluate(expression, schema)
    text = str(expression)
    if "FieldPath(" in text:  # a column is given by its position
        return tuple(schema.names)
    named = [name for name in schema.names if name in text]
    return tuple(name for name in named if not _can_do_without(expression, schema, name))


def _can_do_without(expression: pc.Expression, schema: pa.Schema, name: str) -> bool:
    try:
        _evaluate(expression, schema.remove(schema.get_field_index(name)))
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError):
        return False
    return True


def _evaluate(expression: pc.Expression, schema: pa.Schema) -> None:
    schema.empty_table().filter(expression)
