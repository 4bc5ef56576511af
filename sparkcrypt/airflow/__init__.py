"""Airflow operators and a sensor that submit the jobs: backfills, rotations, shreddings, and stores for data skipping.

Install them where Airflow runs with ``pip install 'sparkcrypt[airflow]'``; of Spark they need only a `spark-submit` on
PATH.
"""

from __future__ import annotations

from sparkcrypt.airflow.operators import (
    SparkcryptBackfillOperator,
    SparkcryptIndexOperator,
    SparkcryptPlanOperator,
    SparkcryptRotateOperator,
    SparkcryptShredOperator,
)
from sparkcrypt.airflow.reports import read_report
from sparkcrypt.airflow.sensors import SparkcryptDriftSensor

__all__ = [
    "SparkcryptBackfillOperator",
    "SparkcryptDriftSensor",
    "SparkcryptIndexOperator",
    "SparkcryptPlanOperator",
    "SparkcryptRotateOperator",
    "SparkcryptShredOperator",
    "read_report",
]
