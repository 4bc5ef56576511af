"""Fixtures of these tests."""

from __future__ import annotations

import uuid

import pytest

from tests.services.hdfs import Hdfs
from tests.services.meddled_s3 import MeddledS3
from tests.spark.fixtures import lake, private_jar

__all__ = ["lake", "private_jar"]


@pytest.fixture
def s3_place(s3_server: MeddledS3) -> tuple[str, dict[str, str]]:
    """A folder of S3 that no other test uses, and the settings to open it."""
    settings = {
        "fs.s3a.access.key": "all",
        "fs.s3a.secret.key": "all",
        "fs.s3a.endpoint": s3_server.endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
    }
    return f"s3a://lake/{uuid.uuid4().hex}/t", settings


@pytest.fixture
def hdfs_place(hdfs: Hdfs) -> tuple[str, dict[str, str]]:
    """A folder of HDFS that no other test uses, and the settings to open it."""
    return f"{hdfs.uri}/{uuid.uuid4().hex}/t", {"fs.defaultFS": hdfs.uri, "dfs.namenode.http-address": hdfs.http}
