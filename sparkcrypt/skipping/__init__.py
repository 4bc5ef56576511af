"""Data skipping: stores of bounds, values and filters that tell which data files a query need not open; without Spark.

Source: the Parquet metadata store of Xskipper, versions 1 to 4 of its specification.  Reading a store needs only the
standard library and, if the store is encrypted, ``cryptography``; writing one needs pyarrow.
"""
