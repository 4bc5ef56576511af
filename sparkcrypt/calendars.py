"""Days of the old calendar (Julian until 4 October 1582, Gregorian from the next day on, the 15th) as Spark reads them.

Spark until 2.4, Hive and ORC's Java writer count days in it, and Spark 3 and later in the Gregorian calendar alone.
Source: ``rebaseJulianToGregorianDays`` in ``RebaseDateTime`` of Spark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FIRST_GREGORIAN_DAY = -141_427
"""1582-10-15, in days since 1970-01-01: from this day on the calendars agree."""
FIRST_DAY = -719_164
"""The year 1 begins in the old calendar; Spark takes days before it by other rules."""
SWITCHES = np.array(
    [
        *(FIRST_DAY, -682_945, -646_420, -609_895, -536_845, -500_320, -463_795, -390_745),
        *(-354_220, -317_695, -244_645, -208_120, -171_595, FIRST_GREGORIAN_DAY),
    ]
)
"""The days on which the difference between the calendars changes."""
_DIFFERENCES = np.array([2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, 0])


def gregorian_days(days: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the days with the same names in the Gregorian calendar, all since 1970-01-01; `FIRST_DAY` or later."""
    found: npt.NDArray[Any] = days + _DIFFERENCES[np.searchsorted(SWITCHES, days, side="right") - 1]
    return found.astype(days.dtype)
