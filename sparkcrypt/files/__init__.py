"""Data files, read and written without Spark: their bytes, places and listings, and work on whole files of any format.

It runs on executors from the jar, so it needs nothing but the standard library, ``cryptography``, the key service's own
library and, in tasks of Spark, pyarrow.
"""
