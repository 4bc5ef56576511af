"""Tags x policy x schema -> which column is encrypted with which master key, and why.

Pure: no Spark, no JVM, no network.
"""

from sparkcrypt.plan.build import Action, ColumnPlan, EncryptionPlan, build_plan, compare_tags, plan_columns

__all__ = ["Action", "ColumnPlan", "EncryptionPlan", "build_plan", "compare_tags", "plan_columns"]
