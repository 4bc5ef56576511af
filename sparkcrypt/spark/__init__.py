"""Code that needs a Spark session: set-up, catalog, files, tags in the metastore, plans of tables, reading.

The only package that imports pyspark.
"""
