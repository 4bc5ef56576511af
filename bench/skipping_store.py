"""A large store without its table: written, and opened in a process of its own, whose memory is told."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.skipping.format.description import Index
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import MINMAX, VERSION
from sparkcrypt.skipping.format.store import Bounds, IndexEntries
from sparkcrypt.skipping.keep.entries import make_index
from sparkcrypt.skipping.keep.gatherers import FILTER_SHARE, LIST_VALUES
from sparkcrypt.skipping.query.opened_stores import OpenedStores, Reader
from sparkcrypt.skipping.query.predicate import Compare
from sparkcrypt.skipping.query.skipper import Listed
from sparkcrypt.skipping.trusted.local_folder import LocalFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts
from sparkcrypt.skipping.trusted.trust import Expected
from sparkcrypt.skipping.trusted.write import StoreIdentity, StoreKeys, write_store

UUID = "0a1b2c3d-0000-4000-8000-000000000001"
LIMITS: dict[str, Any] = {"most_values": LIST_VALUES, "false_positives": FILTER_SHARE}
ROWS_EACH, LENGTH, MODIFIED_MS = 500, 1_000_000, 1_700_000_000_000


def make_path(number: int) -> str:
    """Return the path of a data file, as long as Spark's are."""
    return f"/warehouse/sales.db/orders/part-{number:05d}-16acb65f-3026-472f-b2b6-c3fefea669a9-c000.snappy.parquet"


def write(folder: Path, count: int) -> None:
    """Write a store with the bounds of a long and of a text, the text's under a key of its own."""
    service = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": str(folder / "keys")}))
    for key_id in ("footer", "pii"):
        service.create(key_id)
    firsts = range(0, count * ROWS_EACH, ROWS_EACH)
    bounds: dict[Index, tuple[Bounds, ...]] = {
        make_index("id", MINMAX, "long", **LIMITS): tuple(Bounds(first, first + ROWS_EACH - 1) for first in firsts),
        make_index("email", MINMAX, "string", **LIMITS): tuple(
            Bounds(f"e{first:010d}", f"e{first + ROWS_EACH - 1:010d}") for first in firsts
        ),
    }
    objects = tuple(f"{make_path(number)}#{MODIFIED_MS + number}" for number in range(count))
    indexes = tuple(IndexEntries(index, entries) for index, entries in bounds.items())
    write_store(
        LocalFolder(folder / "store"),
        Store(VERSION, "/warehouse/sales.db/orders", None, objects, (), indexes),
        {name: ObjectFacts(LENGTH, "ab" * 16, "cd" * 16) for name in objects},
        StoreKeys(DataKeyMaker(service, data_key_bits=128), "footer", {"email": "pii"}),
        StoreIdentity(UUID, 1),
    )


def read(folder: Path, count: int) -> tuple[float, float, float]:
    """Open the store and ask for one value; return seconds, milliseconds, and megabytes that the process took.

    Raises:
        SystemExit: another number of files than one is left.
    """
    service = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": str(folder / "keys")}))
    opener = DataKeyOpener(service)
    expected = Expected(UUID, ("footer",), {"email": "pii"})
    reader = Reader("", expected, {}, lambda request: opener.open_metadata(request.key_metadata))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    opened = OpenedStores().open(LocalFolder(folder / "store"), reader)
    seconds = time.perf_counter() - begin
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    files = [Listed(make_path(number), MODIFIED_MS + number, LENGTH) for number in range(count)]
    begin = time.perf_counter()
    names = () if opened is None else tuple(opened.skipper.name_indexes(files, Compare("email", "=", "e0000700123")))
    milliseconds = (time.perf_counter() - begin) * 1000
    if sum(found is None for found in names) != 1:
        raise SystemExit("another number of files than one is left, so the figures would mean nothing")
    return round(seconds, 2), round(milliseconds, 1), round(megabytes, 1)


if __name__ == "__main__":
    work, place, number = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if work == "write":
        write(place, number)
    else:
        print(*read(place, number))
