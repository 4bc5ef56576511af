"""Old files until they expire, of runs whose table is there: compared, reconciled, moved out of reach; open problems.

Deletion is in ``after``: of old files at their time (``expire``), and of orphans, which no table leads to any more.
"""
