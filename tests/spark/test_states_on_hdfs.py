"""The state directory on a real HDFS: the behaviours of the local one, and those of locks in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.ledger.state.directory import HadoopStateStore, open_state_directory
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.spark.files.hadoop import HadoopFiles
from tests.services.hdfs import Hdfs
from tests.spark.support import Lake
from tests.unit.backfill.conftest import clock
from tests.unit.backfill.lock_behaviour import LockBehaviour
from tests.unit.backfill.store_behaviour import StoreBehaviour

pytestmark = [pytest.mark.spark, pytest.mark.services]
_NUMBERS = itertools.count()

__all__ = ["clock"]


@pytest.fixture
def root(hdfs: Hdfs) -> str:
    """A folder of HDFS that is not there yet."""
    return f"{hdfs.uri}/states/{next(_NUMBERS)}"


@pytest.fixture
def store(lake: Lake, root: str) -> Iterator[StateStore]:
    """An empty state directory on HDFS."""
    opened = open_state_directory(lake.spark, root, outside="file:///nowhere")
    assert isinstance(opened, HadoopStateStore)
    yield opened
    HadoopFiles(lake.spark).delete_tree(root)


class TestLock(LockBehaviour):
    """The behaviours of every lock, on HDFS."""


class TestStore(StoreBehaviour):
    """The behaviours of every store, on HDFS."""


def test_a_name_that_is_a_folder_is_taken(store: StateStore, root: str, lake: Lake) -> None:
    """HDFS's rename would move the record into the folder, where nobody finds it, and say that it was created."""
    assert store.create("runs/1", b"x")
    assert not store.create("runs", b"y")
    assert store.list("") == ("runs/1",)
    assert [file.name for file in HadoopFiles(lake.spark).walk(root)] == ["1"]


def test_a_writer_that_died_before_the_rename_leaves_no_record(store: StateStore, root: str, lake: Lake) -> None:
    """Its hidden file is not listed, and its name is free."""
    assert store.create("runs/0", b"x")
    HadoopFiles(lake.spark).write_new(f"{root}/runs/.leftover.tmp", b"part of")
    assert store.list("") == ("runs/0",)
    assert store.read("runs/1") is None
    assert store.create("runs/1", b"whole")


def test_state_is_its_owners_alone(store: StateStore, root: str, lake: Lake) -> None:
    """Wrapped keys and digests of rows are for nobody else."""
    store.create("a/b", b"1")
    assert HadoopFiles(lake.spark).status(root).mode == "0700"


def test_state_inside_the_table_is_refused(lake: Lake, hdfs: Hdfs) -> None:
    """An overwrite of the table would delete it."""
    with pytest.raises(ConfigError, match="inside the table's folder"):
        open_state_directory(lake.spark, f"{hdfs.uri}/t/state", outside=f"{hdfs.uri}/t")
