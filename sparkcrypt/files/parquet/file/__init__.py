"""Opens Parquet files: their bytes, their modules' ciphers, their footer, schema and layout."""
