"""A small table of encrypted files with a store, made without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt.files.parquet import DataKey, FileEncryption, KeyRequest, rewrite_file
from sparkcrypt.skipping.indexes.build import (
    IndexResult,
    Wanted,
    create_store,
    keys_of_store,
    plan_store,
    refresh_store,
)
from sparkcrypt.skipping.indexes.files import DataFolder
from sparkcrypt.skipping.indexes.indexed import Comparison, compare_files
from sparkcrypt.skipping.trusted.folder import LocalFolder
from sparkcrypt.skipping.trusted.sidecar import StoreKeys
from sparkcrypt.skipping.trusted.trust import Expected, TrustedStore
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.whole_stores import open_store

UUID = "0a1b2c3d-0000-4000-8000-000000000001"


@dataclass
class Table:
    """A folder of files and the folder of its store."""

    root: Path
    keys: Keys
    retrieve: Callable[[KeyRequest], bytes]
    read: list[str] = field(default_factory=list)
    clock: int = 1_700_000_000

    @property
    def data(self) -> DataFolder:
        """The files."""
        return DataFolder(str(self.root / "data"), self.retrieve, lambda path, _: self.read.append(Path(path).name))

    @property
    def folder(self) -> LocalFolder:
        """The store's folder."""
        return LocalFolder(self.root / "store")

    def write(self, name: str, *ids: int, uuid: str | None = None, key: str | None = None, at: int = 0) -> Path:
        """Write a file of rows, encrypted under a table's identity where one is given."""
        path = self.root / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "ssn": [f"{number:03}-secret" for number in ids]})
        if uuid is None and key is None:
            pq.write_table(rows, path)
        else:
            pq.write_table(rows, self.root / "plain")
            maker, partition = self.keys.keys.maker, "/".join(name.split("/")[:-1])
            prefix = f"{uuid or '-'}/{partition + '/' if partition else ''}{path.name}".encode() + b"\0"
            how = FileEncryption(
                DataKey(*maker.make("footer", is_footer_key=True)),
                columns={("ssn",): DataKey(*maker.make(key, is_footer_key=False))} if key else {},
                aad_prefix=prefix,
            )
            rewrite_file(self.root / "plain", path, encryption=how)
        self.clock += 1
        os.utime(path, (at or self.clock, at or self.clock))
        return path

    def create(self, *columns: str, generation: int = 0, **wanted: Any) -> IndexResult:
        """Make the store."""
        kinds = {name: ("minmax",) for name in columns or ("id",)} | wanted.pop("kinds", {})
        plan = plan_store(self.data, Wanted(kinds, **wanted))
        own = {name: column.key for name, column in plan.columns.items() if column.key}
        built = create_store(self.folder, plan, self.with_keys(own), generation=generation)
        self.read.clear()
        return built

    def with_keys(self, columns: dict[str, str]) -> StoreKeys:
        """Return what a store is encrypted with."""
        return StoreKeys(self.keys.keys.maker, "footer", columns)

    def opened(self, uuid: str | None = None, generation: int | None = None) -> TrustedStore:
        """Open the store."""
        return open_store(self.folder, self.retrieve, Expected(uuid, ("footer",), None, generation))

    def refresh(self, uuid: str | None = None, generation: int = 0) -> IndexResult:
        """Bring the store up to date."""
        opened = self.opened(uuid)
        own = self.with_keys(keys_of_store(opened.store, "footer"))
        return refresh_store(self.folder, self.data, opened, own, generation=generation)

    def known(self, uuid: str | None = None) -> dict[str, Any]:
        """Return what the store says of each file's first column."""
        store = self.opened(uuid).store
        names = [Path(name.partition("#")[0]).name for name in store.objects]
        return dict(zip(names, store.indexes[0].entries, strict=True))

    def compare(self) -> Comparison:
        """Compare the store with the files."""
        return compare_files(self.data, self.opened().sidecar)
