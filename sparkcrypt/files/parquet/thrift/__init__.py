"""Thrift's compact protocol, and Parquet's metadata structs in it."""
