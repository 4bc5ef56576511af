"""A large store without its table: written, and opened in a separate process, whose memory is measured.

A store that is too large to be kept open is measured by ``parts``: the driver's work, and a task's for one part.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.skipping.format.bloom import BloomFilter
from sparkcrypt.skipping.format.description import BLOOM, MINMAX, VERSION, Index
from sparkcrypt.skipping.format.store import Bounds, Entry, IndexEntries, Row, Store, merge_parts
from sparkcrypt.skipping.format.values import part_budget
from sparkcrypt.skipping.indexes.entries import FILTER_SHARE, LIST_VALUES, make_index
from sparkcrypt.skipping.query.skip_files import OpenedStore, OpenedStores, PartedStore, Reader
from sparkcrypt.skipping.query.skipper import Compare, Listed, Skipper
from sparkcrypt.skipping.trusted.folder import LocalFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, StoreIdentity, StoreKeys, new_digest_key
from sparkcrypt.skipping.trusted.trust import Expected, PartIdentity, list_parts, open_manifest, open_part
from sparkcrypt.skipping.trusted.write import open_writer

UUID = "0a1b2c3d-0000-4000-8000-000000000001"
LIMITS: dict[str, Any] = {"most_values": LIST_VALUES, "false_positives": FILTER_SHARE}
ROWS_EACH, LENGTH, MODIFIED_MS = 500, 1_000_000, 1_700_000_000_000
WANTED = Compare("email", "=", "e0000700123")
FILTERED = 3_500
"""The number of distinct values for a filter of 4 KB."""
PART = "part.json"
FILTERS = 64
"""The number of different filters, more than gzip's window covers."""


def make_path(number: int) -> str:
    """Return the path of a data file, as long as those of Spark."""
    return f"/warehouse/sales.db/orders/part-{number:05d}-16acb65f-3026-472f-b2b6-c3fefea669a9-c000.snappy.parquet"


def write(folder: Path, count: int, kind: str) -> None:
    """Write a store with bounds of a long and of a text, or filters of a text; the text has its own key."""
    service = _service(folder)
    for key_id in ("footer", "pii"):
        service.create(key_id)
    email = make_index("email", kind, "string", **LIMITS)
    indexes = (email,) if kind == BLOOM else (make_index("id", MINMAX, "long", **LIMITS), email)
    shape = Store(
        VERSION, "/warehouse/sales.db/orders", None, (), (), tuple([IndexEntries(index) for index in indexes])
    )
    keys = StoreKeys(DataKeyMaker(service, data_key_bits=128), "footer", {"email": "pii"})
    with open_writer(LocalFolder(folder / "store"), shape, keys, StoreIdentity(UUID, 1)) as writer:
        for number, entries in enumerate(_entries(count, indexes)):
            name = f"{make_path(number)}#{MODIFIED_MS + number}"
            writer.add(Row(name, (), entries), ObjectFacts(LENGTH, "ab" * 16, "cd" * 16))
        writer.finish(digest_key=new_digest_key(), fixed_values={})


def _entries(count: int, indexes: tuple[Index, ...]) -> Iterator[tuple[Entry, ...]]:
    if len(indexes) == 1:
        filters = [_filter(number) for number in range(FILTERS)]
        yield from ((filters[number % FILTERS],) for number in range(count))
        return
    for first in range(0, count * ROWS_EACH, ROWS_EACH):
        last = first + ROWS_EACH - 1
        yield Bounds(first, last), Bounds(f"e{first:010d}", f"e{last:010d}")


def _filter(number: int) -> bytes:
    made = BloomFilter.for_values(FILTERED, FILTER_SHARE)
    for value in range(FILTERED):
        made.add(f"f{number}-{value}")
    return made.to_bytes()


def read(folder: Path, count: int) -> tuple[float, float, float]:
    """Open the store and ask for one value; return seconds, milliseconds, and the process's megabytes.

    Raises:
        SystemExit: it is too large to be kept open, or not exactly one file is left.
    """
    before, begin = _memory(), time.perf_counter()
    opened = OpenedStores().open(LocalFolder(folder / "store"), _reader(folder))
    seconds, megabytes = time.perf_counter() - begin, _memory() - before
    if not isinstance(opened, OpenedStore):
        raise SystemExit("the store is too large to be kept open; measure it by parts")
    begin = time.perf_counter()
    names = tuple(opened.skipper.name_indexes(_listed(count), WANTED))
    milliseconds = (time.perf_counter() - begin) * 1000
    if sum(found is None for found in names) != 1:
        raise SystemExit("another number of files than one is left, so the figures would mean nothing")
    return round(seconds, 2), round(milliseconds, 1), round(megabytes, 1)


def list_rows(folder: Path, count: int) -> tuple[float, float, float, int]:
    """Do the driver's work for a query by parts; return seconds to open and to list, megabytes, and parts.

    Raises:
        SystemExit: the store is read whole, or does not contain the files.
    """
    before, begin = _memory(), time.perf_counter()
    opened = OpenedStores().open(LocalFolder(folder / "store"), _reader(folder))
    seconds = time.perf_counter() - begin
    if not isinstance(opened, PartedStore):
        raise SystemExit("the store is kept open; measure it by read")
    megabytes, begin = _memory() - before, time.perf_counter()
    rows = [opened.row_of(file) for file in _listed(count)]
    parts = list(opened.parts_of(rows))
    if rows != list(range(count)):
        raise SystemExit("the store does not know the files, so the figures would mean nothing")
    (folder / PART).write_text(json.dumps(asdict(parts[0][1])))
    return round(seconds, 2), round(time.perf_counter() - begin, 2), round(megabytes, 1), len(parts)


def judge_first(folder: Path) -> tuple[float, float, int]:
    """Do a task's work for the first part; return seconds, megabytes, and the number of objects left."""
    identity = PartIdentity(**json.loads((folder / PART).read_text()))
    return _judge(folder, [identity])


def judge_all(folder: Path) -> tuple[float, float, int]:
    """Judge all parts in turn, like one core; return seconds, megabytes, and the number of objects left."""
    reader = _reader(folder)
    return _judge(
        folder, list_parts(open_manifest(LocalFolder(folder / "store"), reader.retrieve_key, reader.expected))
    )


def _judge(folder: Path, identities: Sequence[PartIdentity]) -> tuple[float, float, int]:
    store, reader = LocalFolder(folder / "store"), _reader(folder)
    before, begin, left = _memory(), time.perf_counter(), 0
    for identity in identities:
        part = merge_parts([open_part(store, identity, reader.retrieve_key, reader.expected, part_budget())])
        left += 0 if part is None else sum(names is None for names in Skipper(part, {}).name_rows(WANTED))
    return round(time.perf_counter() - begin, 2), round(_memory() - before, 1), left


def _service(folder: Path) -> KeyService:
    return open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": str(folder / "keys")}))


def _reader(folder: Path) -> Reader:
    opener = DataKeyOpener(_service(folder))
    expected = Expected(UUID, ("footer",), {"email": "pii"})
    return Reader("", expected, {}, lambda request: opener.open_metadata(request.key_metadata))


def _listed(count: int) -> Iterator[Listed]:
    return (Listed(make_path(number), MODIFIED_MS + number, LENGTH) for number in range(count))


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    work, place, number = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    works: dict[str, Callable[[], tuple[float, ...] | None]] = {
        "write": partial(write, place, number, MINMAX),
        "write-filters": partial(write, place, number, BLOOM),
        "read": partial(read, place, number),
        "driver": partial(list_rows, place, number),
        "part": partial(judge_first, place),
        "parts": partial(judge_all, place),
    }
    print(*(works[work]() or ()))
