"""Tag a column once; every Spark write then encrypts it, every read respects its key, history follows every change.

Example::

    import sparkcrypt

    sparkcrypt.configure(spark, "policy.yaml")                   # writes encrypt, and reads need their keys
    table = sparkcrypt.Table(spark, "sales.customers", "policy.yaml")
    table.tag({"email": "pii"})
    print(table.plan())                                          # each column's key, and what is to do
    print(table.encrypt())                                       # existing files, each proven before it is used
    table.read().show()

`sparkcrypt init` writes a first policy.  Wherever a policy is asked for, the path of its file will do.

sessions      configure, session
tables        Table: plan, tag, encrypt, verify, read, expire, rollback, rotate, shred, status, lineage
frames        tag, declassify, masked_columns, skipping_report
functions     plan_table, plan_files, encrypt_table, verify_table, read_table, index_table, status
policies      load_policy, Policy, EncryptionPlan, SavedPlan, parquet_options

`sparkcrypt.arrow` reads tables without Spark (pyarrow, pandas, polars, DuckDB), `sparkcrypt.errors` has every error,
and `sparkcrypt.airflow` operators.  Names are imported on first use, so that the helper process of a JVM starts with
the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkcrypt.plan import EncryptionPlan as EncryptionPlan
    from sparkcrypt.policy.load import load_policy as load_policy
    from sparkcrypt.policy.model import Policy as Policy
    from sparkcrypt.runs.passes.estate import status as status
    from sparkcrypt.runs.passes.plan import plan_files as plan_files
    from sparkcrypt.runs.passes.run import encrypt_table as encrypt_table
    from sparkcrypt.runs.rewrite.saved_plan import SavedPlan as SavedPlan
    from sparkcrypt.runs.table.table_index import index_table as index_table
    from sparkcrypt.runs.table.verify import verify_table as verify_table
    from sparkcrypt.spark.setup.options import parquet_options as parquet_options
    from sparkcrypt.spark.setup.read import declassify as declassify
    from sparkcrypt.spark.setup.read import read_table as read_table
    from sparkcrypt.spark.setup.read import skipping_report as skipping_report
    from sparkcrypt.spark.setup.read import tag as tag
    from sparkcrypt.spark.setup.session import configure as configure
    from sparkcrypt.spark.setup.session import masked_columns as masked_columns
    from sparkcrypt.spark.setup.session import session as session
    from sparkcrypt.spark.tables.planning import plan_table as plan_table
    from sparkcrypt.table import Table as Table

__version__ = "0.2.0"

_HOMES = {
    "EncryptionPlan": "sparkcrypt.plan",
    "Policy": "sparkcrypt.policy.model",
    "SavedPlan": "sparkcrypt.runs.rewrite.saved_plan",
    "Table": "sparkcrypt.table",
    "configure": "sparkcrypt.spark.setup.session",
    "declassify": "sparkcrypt.spark.setup.read",
    "encrypt_table": "sparkcrypt.runs.passes.run",
    "index_table": "sparkcrypt.runs.table.table_index",
    "load_policy": "sparkcrypt.policy.load",
    "masked_columns": "sparkcrypt.spark.setup.session",
    "parquet_options": "sparkcrypt.spark.setup.options",
    "plan_files": "sparkcrypt.runs.passes.plan",
    "plan_table": "sparkcrypt.spark.tables.planning",
    "read_table": "sparkcrypt.spark.setup.read",
    "session": "sparkcrypt.spark.setup.session",
    "skipping_report": "sparkcrypt.spark.setup.read",
    "status": "sparkcrypt.runs.passes.estate",
    "tag": "sparkcrypt.spark.setup.read",
    "verify_table": "sparkcrypt.runs.table.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparkcrypt' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return ["__version__", *_HOMES]
