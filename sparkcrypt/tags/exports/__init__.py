"""Tags of columns in what other products export: registries, catalogs, dbt."""
