"""Backfills, rotations and shreddings on Airflow's schedule: operators and a sensor, thin over the jobs.

Install them where Airflow runs with ``pip install 'sparkcrypt[airflow]'``; nothing of Spark is needed there but a
`spark-submit` on PATH.
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
