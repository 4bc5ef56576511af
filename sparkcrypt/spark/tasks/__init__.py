"""Work that runs in Spark's tasks: orders of the native engine, footers, and digests of rows."""
