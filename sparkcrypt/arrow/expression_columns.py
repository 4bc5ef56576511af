"""Which columns an expression of pyarrow asks for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def columns_in(expression: pc.Expression | None, schema: pa.Schema) -> tuple[str, ...]:
    """Return the top-level columns that an expression is evaluated on.

    pyarrow does not say; an expression that cannot be evaluated without a column needs it.

    Args:
        expression: None asks for nothing.
        schema: whose columns may be asked for.

    Raises:
        pyarrow.ArrowInvalid: it asks for a column that the schema lacks, or cannot be evaluated.
    """
    if expression is None:
        return ()
    _evaluate(expression, schema)
    text = str(expression)
    if "FieldPath(" in text:  # by its place
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
