"""The state directory on a real HDFS: the behaviours of the local one, and those of locks in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from sparkcrypt.backfill.states import HadoopStateStore, open_states
from sparkcrypt.backfill.store import StateStore
from sparkcrypt.errors import ConfigError
from sparkcrypt.spark.files import HadoopFiles
from tests.services.hdfs import Hdfs
from tests.spark.support import Lake
from tests.unit.backfill.conftest import clock
from tests.unit.backfill.test_lock import (
    test_a_fenced_owner_that_releases_takes_nothing_from_the_new_one,
    test_a_paused_owner_is_fenced_off_even_when_nobody_took_over,
    test_a_paused_owner_is_fenced_off_when_another_took_over,
    test_a_released_lock_can_neither_be_checked_nor_renewed,
    test_a_released_lock_is_free_at_once_and_its_token_is_never_used_again,
    test_a_second_run_is_refused_and_told_about_the_first,
    test_an_expired_lock_is_taken_over_with_the_next_token,
    test_an_owner_whose_records_were_deleted_does_not_hold_the_lock,
    test_locks_of_two_tables_do_not_meet,
    test_renewals_move_the_end_and_do_not_pile_up,
)
from tests.unit.backfill.test_store import (
    test_a_deleted_name_may_be_created_again,
    test_a_record_is_created_once_and_read_back,
    test_names_are_listed_sorted_by_prefix,
    test_names_that_leave_the_directory_or_hide_are_refused,
    test_of_racing_threads_exactly_one_creates_a_record,
    test_what_is_not_there_reads_as_none_and_deletes_as_nothing,
)

pytestmark = [pytest.mark.spark, pytest.mark.services]
_NUMBERS = itertools.count()

# One behaviour suite for every store: these run here on the fixture ``store`` of this module.
__all__ = [
    "clock",
    "test_a_deleted_name_may_be_created_again",
    "test_a_fenced_owner_that_releases_takes_nothing_from_the_new_one",
    "test_a_paused_owner_is_fenced_off_even_when_nobody_took_over",
    "test_a_paused_owner_is_fenced_off_when_another_took_over",
    "test_a_record_is_created_once_and_read_back",
    "test_a_released_lock_can_neither_be_checked_nor_renewed",
    "test_a_released_lock_is_free_at_once_and_its_token_is_never_used_again",
    "test_a_second_run_is_refused_and_told_about_the_first",
    "test_an_expired_lock_is_taken_over_with_the_next_token",
    "test_an_owner_whose_records_were_deleted_does_not_hold_the_lock",
    "test_locks_of_two_tables_do_not_meet",
    "test_names_are_listed_sorted_by_prefix",
    "test_names_that_leave_the_directory_or_hide_are_refused",
    "test_of_racing_threads_exactly_one_creates_a_record",
    "test_renewals_move_the_end_and_do_not_pile_up",
    "test_what_is_not_there_reads_as_none_and_deletes_as_nothing",
]


@pytest.fixture
def root(hdfs: Hdfs) -> str:
    """A folder of HDFS that is not there yet."""
    return f"{hdfs.uri}/states/{next(_NUMBERS)}"


@pytest.fixture
def store(lake: Lake, root: str) -> Iterator[StateStore]:
    """An empty state directory on HDFS."""
    opened = open_states(lake.spark, root, outside="file:///nowhere")
    assert isinstance(opened, HadoopStateStore)
    yield opened
    HadoopFiles(lake.spark).delete_tree(root)


def test_a_name_that_is_a_folder_is_taken(store: StateStore, root: str, lake: Lake) -> None:
    """HDFS's rename would move the record into the folder, where nobody finds it, and say that it was created."""
    assert store.create("runs/1", b"x")
    assert not store.create("runs", b"y")
    assert store.list("") == ("runs/1",)
    assert [one.name for one in HadoopFiles(lake.spark).walk(root)] == ["1"]


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
        open_states(lake.spark, f"{hdfs.uri}/t/state", outside=f"{hdfs.uri}/t")
