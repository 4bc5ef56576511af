"""Removes tags from a column's values in a query, if the policy allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkcrypt.errors import PlanError, show

if TYPE_CHECKING:
    from pyspark.sql import Column


def declassify(column: Column | str, reason: str) -> Column:
    """Return a column with the values of another one but without its tags, which no longer encrypt what is written.

    The policy's ``declassify`` defines who may use this, and for which tags; each use is logged as an access event.  It
    calls the SQL function ``declassify(column, 'reason')`` of sessions with the jar's extension.

    Example: ``df.select(declassify(F.year("born"), "ticket 17: years only").alias("year"))``

    Args:
        column: a column or its name.
        reason: the reason, for the readers of the log.

    Raises:
        PlanError: the reason is empty.
    """
    if not reason.strip():
        raise PlanError(f"the reason is {show(reason)}; allowed: a text that says why the tags may go")
    return F.call_function("declassify", F.col(column) if isinstance(column, str) else column, F.lit(reason))
