"""Names that Airflow 2 and Airflow 3 have in different places, under those of Airflow 3."""

from __future__ import annotations

try:
    from airflow.sdk import (
        Asset,
        BaseOperatorLink,
        BaseSensorOperator,
        ObjectStoragePath,
        PokeReturnValue,
        TaskGroup,
        task,
    )
    from airflow.sdk.execution_time.xcom import XCom
except ModuleNotFoundError as error:
    if error.name != "airflow.sdk":
        raise
    from airflow.datasets import Dataset as Asset
    from airflow.decorators import task
    from airflow.io.path import ObjectStoragePath
    from airflow.models import BaseOperatorLink
    from airflow.models.xcom import XCom
    from airflow.sensors.base import BaseSensorOperator, PokeReturnValue
    from airflow.utils.task_group import TaskGroup

__all__ = [
    "Asset",
    "BaseOperatorLink",
    "BaseSensorOperator",
    "ObjectStoragePath",
    "PokeReturnValue",
    "TaskGroup",
    "XCom",
    "task",
]
