"""The work of a task: its batches, and the proof of each file."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.files import output
from sparkcrypt.files import rewrite as work
from sparkcrypt.files.footers import FooterFacts, read_facts, run_parts
from sparkcrypt.files.orders import Action, FileOrder, FileOutcome
from sparkcrypt.files.parquet import inspect_file, rewrite_file
from sparkcrypt.files.source import Input
from sparkcrypt.files.workers import BYTES_A_TASK, FILES_A_TASK, rewrite_packed, share_out
from sparkcrypt.log_lines import LogSettings
from sparkcrypt.policy.key_service import KeyServiceConfig
from tests.unit.native.orders import GCM, failed, rewrite

from .conftest import TABLE, Bench


def test_there_and_back(bench: Bench) -> None:
    """An encrypted file has the ordered keys and metadata; decrypted, it is the table again; copied, the same bytes."""
    order = bench.order()
    done = rewrite(bench, order)
    assert (done.error, done.refused, done.rows, done.unauthenticated) == (None, None, 3, ())
    retrieve = work._worker(bench.keys.to_json()).retrieve
    summary = inspect_file(order.target, retrieve_key=retrieve)
    assert order.encryption is not None and order.encryption.describe_difference(summary) is None
    copied = rewrite(bench, FileOrder(order.target, str(bench.folder / "copy"), "copy", None, b"-/out.parquet\0", GCM))
    assert copied.error is None
    assert Path(copied.target).read_bytes() == Path(order.target).read_bytes()
    plain = rewrite(bench, FileOrder(order.target, str(bench.folder / "plain"), "decrypt", None, None, GCM))
    assert plain.error is None
    assert pq.ParquetFile(plain.target).read().equals(TABLE)


@pytest.fixture
def footers_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the end of each file was read, by the file's name."""
    reads: Counter[str] = Counter()
    read = Input.read

    def counted(self: Input, offset: int, length: int, what: str) -> bytes:
        reads[Path(self.name).name] += what == "the end of the file"
        return read(self, offset, length, what)

    monkeypatch.setattr(Input, "read", counted)
    return reads


def test_a_footer_is_read_once_for_each_purpose(bench: Bench, footers_read: Counter[str]) -> None:
    """Once for the plan, once for the rewrite and once for its proof; of the new file once, for the proof."""
    assert isinstance(read_facts(bench.source, bench.source, lambda _: b"", depth="keys"), FooterFacts)
    assert footers_read == {"source.parquet": 1}
    order = bench.order()
    assert rewrite(bench, order).error is None
    assert footers_read == {"source.parquet": 3, "out.parquet": 1}
    footers_read.clear()
    cases: tuple[tuple[Action, int], ...] = (("rewrap", 2), ("encrypt", 2), ("decrypt", 2), ("copy", 1))
    for action, reads in cases:
        again = replace(order, source=order.target, target=f"{order.target}.{action}", source_algorithm=GCM)
        done = replace(again, action=action, encryption=order.encryption if action in ("rewrap", "encrypt") else None)
        assert rewrite(bench, done).error is None
        assert footers_read == {"out.parquet": reads, f"out.parquet.{action}": 1}
        footers_read.clear()


@pytest.mark.parametrize("change", ["value", "rows", "order", "metadata"])
def test_a_target_that_says_something_else_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Whatever the rewriter might do wrong, the proof does not pass, and the error says so."""
    other = {
        "value": TABLE.set_column(1, "ssn", pa.array(["a", "x", None])),
        "rows": TABLE.slice(0, 2),
        "order": TABLE.take([1, 0, 2]),
        "metadata": TABLE.replace_schema_metadata({"who": "else"}),
    }[change]
    pq.write_table(other, bench.folder / "other.parquet")

    def wrong(source: Any, target: Any, **named: Any) -> Any:
        return rewrite_file(str(bench.folder / "other.parquet"), target, **named)

    monkeypatch.setattr(work, "rewrite_file", wrong)
    outcome = rewrite(bench, bench.order())
    assert outcome.error is not None
    assert (outcome.error[0], "content differs" in outcome.error[1]) == ("VerificationError", True)


@pytest.mark.parametrize("wrong", ["column key", "footer key", "no encryption"])
def test_a_target_under_other_keys_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """A file that is right in content, but not encrypted as ordered, does not pass either."""
    real = work._Worker.encryption

    def changed(self: Any, order: Any, source: Any) -> Any:
        if wrong == "no encryption":
            return None
        other = (
            replace(order, columns={("ssn",): "other"}) if wrong == "column key" else replace(order, footer_key="other")
        )
        return real(self, other, source)

    monkeypatch.setattr(work._Worker, "encryption", changed)
    outcome = rewrite(bench, bench.order())
    assert outcome.error is not None
    assert (outcome.error[0], "ordered otherwise" in outcome.error[1]) == ("VerificationError", True)


def test_a_source_that_was_replaced_is_refused(bench: Bench) -> None:
    """Another AAD prefix, or other columns, than the listing saw: somebody put another file there."""
    order = bench.order()
    rewrite(bench, order)
    moved = FileOrder(order.target, str(bench.folder / "x"), "copy", None, b"-/another\0", GCM)
    assert failed(rewrite(bench, moved))[0] == "VerificationError"
    kind, message = failed(rewrite(bench, bench.order("y", gone="pii")))
    assert (kind, "gone" in message) == ("VerificationError", True)


def test_a_source_whose_algorithm_was_relabelled_is_refused(bench: Bench) -> None:
    """GCM called CTR would decrypt to garbage without an error; the listing's word holds."""
    order = bench.order()
    rewrite(bench, order)
    content = bytearray(Path(order.target).read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert content[footer : footer + 2] == b"\x1c\x1c"  # FileCryptoMetaData 1, EncryptionAlgorithm 1
    content[footer + 1] = 0x2C  # EncryptionAlgorithm 2: AES_GCM_CTR_V1
    Path(order.target).write_bytes(bytes(content))
    relabelled = FileOrder(order.target, str(bench.folder / "z"), "decrypt", None, b"-/out.parquet\0", GCM)
    kind, message = failed(rewrite(bench, relabelled))
    assert (kind, "algorithm" in message) == ("VerificationError", True)


def test_a_plaintext_page_that_was_damaged_is_refused(bench: Bench) -> None:
    """Its CRC tells; encrypting it would make the damage authentic."""
    pq.write_table(TABLE, bench.source, write_page_checksum=True, compression="none", use_dictionary=False)
    content = bytearray(Path(bench.source).read_bytes())
    place = content.index(b"\x01\x00\x00\x00a")
    content[place + 4] = ord("b")
    Path(bench.source).write_bytes(bytes(content))
    kind, message = failed(rewrite(bench, bench.order()))
    assert (kind, "CRC" in message) == ("VerificationError", True)


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_a_source_that_cannot_be_read_has_no_target(bench: Bench, damage: str) -> None:
    """The outcome names the file, and nothing else is left in the folder."""
    order = bench.order(id="pii", ssn="pii")
    rewrite(bench, order)
    content = bytearray(Path(order.target).read_bytes())
    if damage == "cut":
        content = content[:-9]
    content[30] ^= damage == "flipped"
    victim = bench.folder / "victim"
    if damage != "missing":
        victim.write_bytes(bytes(content))
    before = sorted(bench.folder.iterdir())
    kind, message = failed(rewrite(bench, FileOrder(str(victim), str(bench.folder / "z"), "decrypt", None, None, GCM)))
    assert (kind in ("FormatError", "VerificationError"), str(victim) in message) == (True, True)
    assert sorted(bench.folder.iterdir()) == before


@pytest.mark.parametrize("replaces", [False, True])
def test_a_source_is_never_its_own_target(bench: Bench, replaces: bool) -> None:
    """An attempt removes what an earlier one left at its target: that must not be the only copy."""
    order = bench.order()
    content = Path(order.source).read_bytes()
    outcome = rewrite(bench, replace(order, target=order.source, replace=replaces))
    assert outcome.error is not None and "is both source and target" in outcome.error[1]
    assert Path(order.source).read_bytes() == content


def test_only_a_run_of_its_own_replaces_a_target(bench: Bench) -> None:
    """A file that is there is kept, unless the order says that it can only be an earlier attempt's."""
    order = bench.order()
    Path(order.target).write_bytes(b"mine")
    outcome = rewrite(bench, order)
    assert outcome.error is not None and outcome.error[0] == "ConfigError"
    assert Path(order.target).read_bytes() == b"mine"
    assert rewrite(bench, replace(order, replace=True)).error is None
    assert Path(order.target).read_bytes()[:4] == b"PARE"


def test_a_file_system_that_python_cannot_open_is_refused_not_failed(bench: Bench) -> None:
    """So that another engine takes the unit; the reason names the scheme."""
    outcome = rewrite(bench, replace(bench.order(), source="nowhere://host/t/file.parquet"))
    assert outcome.error is None
    assert outcome.refused is not None and "nowhere://" in outcome.refused


def test_a_missing_key_names_it_and_leaves_nothing(bench: Bench) -> None:
    """The class tells the exit code."""
    kind, message = failed(rewrite(bench, bench.order(ssn="absent")))
    assert (kind, "absent" in message) == ("KeyNotFoundError", True)


def test_a_table_costs_one_unwrap_for_each_master_key(bench: Bench) -> None:
    """With the table's KEKs, many files need no wrap, and each KEK is unwrapped for writing and for the proof."""
    from sparkcrypt.ledger.state.store import LocalStateStore
    from sparkcrypt.runs.rewrite.keks import TableKeks

    config = KeyServiceConfig.from_dict(json.loads(bench.keys.key_service))
    store, masters = LocalStateStore(bench.folder / "state"), ["footer", "pii"]
    keks = TableKeks(store, "t", config, 128).find_or_make(bench.service, masters)
    settings = replace(bench.keys, keks=keks)
    bench.log.unlink(missing_ok=True)
    for number in range(5):
        assert work.rewrite(bench.order(f"{number}.parquet", ssn="pii", id="pii"), settings, {}).error is None
    assert sorted(bench.calls()) == ["unwrap"] * 4


LARGE = BYTES_A_TASK + 1


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([], []),
        ([1], [1]),
        ([LARGE], [1]),
        ([LARGE, LARGE, 1, 1], [1, 1, 2]),
        ([1, LARGE, 1], [1, 1, 1]),
        ([0] * (2 * FILES_A_TASK + 1), [FILES_A_TASK, FILES_A_TASK, 1]),
        ([BYTES_A_TASK // 4] * 9, [4, 4, 1]),
    ],
)
def test_small_files_share_a_task_and_large_ones_do_not(lengths: list[int], sizes: list[int]) -> None:
    """Every order is carried out once, in order."""
    tasks = share_out(lengths)
    assert [place for task in tasks for place in task] == list(range(len(lengths)))
    assert [len(task) for task in tasks] == sizes


def outcomes(bench: Bench, *tasks: list[str]) -> list[FileOutcome]:
    """Carry out tasks of rewrites, each of some files by their names, the last task first."""
    orders = [[bench.order(name, ssn="pii") for name in task] for task in tasks]
    texts = [[json.dumps(order.to_dict()) for order in task] for task in orders]
    work = partial(rewrite_packed, bench.keys.to_json(), {})
    places = pa.RecordBatch.from_pydict({"id": list(reversed(range(len(tasks))))})
    return [
        FileOutcome.from_json(text)
        for batch in run_parts(texts, work, LogSettings(), [places])
        for text in batch.column(0).to_pylist()
    ]


def test_one_file_of_a_task_does_not_end_the_work_on_others(bench: Bench) -> None:
    """Outcomes are in the order of the orders, and each is of its own file."""
    (bench.folder / "b.parquet").write_bytes(b"somebody's")
    found = outcomes(bench, ["a.parquet", "b.parquet", "c.parquet"], ["d.parquet"])
    told = {outcome.target.rpartition("/")[2]: outcome.error is None for outcome in found}
    assert list(told.items()) == [("d.parquet", True), ("a.parquet", True), ("b.parquet", False), ("c.parquet", True)]
    assert (bench.folder / "b.parquet").read_bytes() == b"somebody's"


def test_folder_is_synced_once_a_task_and_before_an_outcome_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that fails no file of the task counts as written."""
    synced: list[str] = []
    monkeypatch.setattr(output, "sync_folder", synced.append)
    assert [outcome.error for outcome in outcomes(bench, ["a.parquet", "b.parquet"])] == [None, None]
    assert len(synced) == 1

    def fail(_: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(output, "sync_folder", fail)
    failed = outcomes(bench, ["c.parquet", "d.parquet"])
    assert [outcome.error is not None and outcome.error[0] for outcome in failed] == ["StorageError"] * 2
