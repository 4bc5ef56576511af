"""Values without the tags of the columns that they come from, where the policy allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkcrypt.errors import PlanError, show

if TYPE_CHECKING:
    from pyspark.sql import Column


def declassify(column: Column | str, reason: str) -> Column:
    """Return a column's values without its tags: what is written of them is not encrypted by these tags.

    The policy says who may do so, and for which tags (``declassify``); each use is written to the access log.  It is
    the SQL function ``declassify(column, 'reason')`` of sessions with the jar's extension.

    Example: ``df.select(declassify(F.year("born"), "ticket 17: years only").alias("year"))``

    Args:
        column: a column or its name.
        reason: why, for those who read the log.

    Raises:
        PlanError: the reason is empty.
    """
    if not reason.strip():
        raise PlanError(f"the reason is {show(reason)}; allowed: a text that says why the tags may go")
    return F.call_function("declassify", F.col(column) if isinstance(column, str) else column, F.lit(reason))
