"""Data skipping: reads and judges stores that say of each data file what it cannot hold.  Knows nothing of Spark.

Source: the Parquet metadata store of Xskipper, versions 1 to 4 of its specification.  Everything here runs with the
standard library and, where a store is encrypted, ``cryptography``; pyarrow is needed to write one.
"""
