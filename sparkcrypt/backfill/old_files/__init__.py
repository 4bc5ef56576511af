"""Old files until they expire, of tables that exist: comparison, reconciling, moving out of reach, open problems.

Deletion is in ``after``: of old files (``expire``), and of orphans, to which no table refers any more.
"""
