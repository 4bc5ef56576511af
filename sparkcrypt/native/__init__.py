"""The native engine: rewrites files page by page with keys of a key service, in this process or in tasks of Spark.

It runs on executors from the jar, so it needs nothing but the standard library, ``cryptography``, the key service's own
library and, in tasks of Spark, pyarrow.
"""
