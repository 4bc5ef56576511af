"""Airflow operators, sensors and a task group that submit the jobs: backfills, checks, expiries, rotations and others.

Install them where Airflow runs with ``pip install 'sparkcrypt[airflow]'``; of Spark they need only a `spark-submit` on
PATH.  Names are imported on first use, so that Airflow can ask for the plugin without its provider for Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkcrypt.airflow.groups import database_group
    from sparkcrypt.airflow.operators import (
        SparkcryptBackfillOperator,
        SparkcryptCheckKeysOperator,
        SparkcryptExpireOperator,
        SparkcryptIndexOperator,
        SparkcryptOperator,
        SparkcryptPlanOperator,
        SparkcryptResolveOperator,
        SparkcryptRotateOperator,
        SparkcryptShredOperator,
        SparkcryptVerifyOperator,
        table_asset,
    )
    from sparkcrypt.airflow.reports import read_report
    from sparkcrypt.airflow.sensors import SparkcryptDriftSensor, SparkcryptProblemsSensor

_HOMES = {
    "SparkcryptBackfillOperator": "operators",
    "SparkcryptCheckKeysOperator": "operators",
    "SparkcryptDriftSensor": "sensors",
    "SparkcryptExpireOperator": "operators",
    "SparkcryptIndexOperator": "operators",
    "SparkcryptOperator": "operators",
    "SparkcryptPlanOperator": "operators",
    "SparkcryptProblemsSensor": "sensors",
    "SparkcryptResolveOperator": "operators",
    "SparkcryptRotateOperator": "operators",
    "SparkcryptShredOperator": "operators",
    "SparkcryptVerifyOperator": "operators",
    "database_group": "groups",
    "read_report": "reports",
    "table_asset": "operators",
}

__all__ = [
    "SparkcryptBackfillOperator",
    "SparkcryptCheckKeysOperator",
    "SparkcryptDriftSensor",
    "SparkcryptExpireOperator",
    "SparkcryptIndexOperator",
    "SparkcryptOperator",
    "SparkcryptPlanOperator",
    "SparkcryptProblemsSensor",
    "SparkcryptResolveOperator",
    "SparkcryptRotateOperator",
    "SparkcryptShredOperator",
    "SparkcryptVerifyOperator",
    "database_group",
    "read_report",
    "table_asset",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparkcrypt.airflow' has no attribute {name!r}")
    try:
        return getattr(import_module(f"sparkcrypt.airflow.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "airflow" or error.name == "airflow":
            raise
        raise ImportError(
            f"sparkcrypt.airflow needs Airflow 2.10 or later with its provider apache-spark, and {error.name} is not "
            "there: pip install 'sparkcrypt[airflow]', or submit the jobs by SparkSubmitOperator "
            "(docs/how-to/airflow.md)"
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
