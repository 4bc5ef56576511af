"""Airflow operators and a sensor that submit the jobs: backfills, rotations, shreddings, and stores for data skipping.

Install them where Airflow runs with ``pip install 'sparkcrypt[airflow]'``; of Spark they need only a `spark-submit` on
PATH.
"""

from __future__ import annotations

try:
    from sparkcrypt.airflow.operators import (
        SparkcryptBackfillOperator,
        SparkcryptDriftSensor,
        SparkcryptIndexOperator,
        SparkcryptOperator,
        SparkcryptPlanOperator,
        SparkcryptRotateOperator,
        SparkcryptShredOperator,
    )
    from sparkcrypt.airflow.reports import read_report
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "airflow" or error.name == "airflow":
        raise
    raise ImportError(
        f"sparkcrypt.airflow needs Airflow 3.0 or later with its provider apache-spark, and {error.name} is not there, "
        "as in Airflow 2: pip install 'sparkcrypt[airflow]', or submit the jobs by SparkSubmitOperator (docs/deploy.md)"
    ) from error

__all__ = [
    "SparkcryptBackfillOperator",
    "SparkcryptDriftSensor",
    "SparkcryptIndexOperator",
    "SparkcryptOperator",
    "SparkcryptPlanOperator",
    "SparkcryptRotateOperator",
    "SparkcryptShredOperator",
    "read_report",
]
