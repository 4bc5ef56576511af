"""A Parquet file opened: its bytes, its modules' ciphers, its footer, schema and layout."""
