"""A command's session, in an application that runs already."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sparkcrypt.spark.setup.command_session import spark_session
from tests.spark.sessions import none_active

pytestmark = pytest.mark.spark


def test_application_outlives_a_command_that_found_no_active_session(spark: SparkSession) -> None:
    """Its thread had none; the session that it got is the application's, and is not the command's to stop."""
    with none_active(spark):
        assert SparkSession.getActiveSession() is None
        with spark_session("a command") as given:
            assert given.range(3).count() == 3
    assert spark.range(2).count() == 2
