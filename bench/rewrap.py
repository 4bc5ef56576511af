"""Files that one core rewraps in a second: new key material and a new footer, the data copied."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Report, forked, in_memory, with_target
from sparkcrypt.files.parquet import (
    DataKey,
    FileEncryption,
    KeyRequest,
    NewKeys,
    folders_synced_once,
    rewrap_file,
    rewrite_file,
)
from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig

FILES = 1000
RUNS = 5
COLUMNS = tuple(f"c{number}" for number in range(10))
ENCRYPTED = COLUMNS[:6]


def run() -> Report:
    """Rewrap 1,000 files on disk and in memory, with keys of a local key service."""
    subject = (
        f"re-wrap {FILES:,} files of {len(COLUMNS)} columns, {len(ENCRYPTED)} encrypted, 2 master keys, one process"
    )
    report = Report("rewrap", subject)
    with tempfile.TemporaryDirectory() as disk, in_memory() as memory:
        _measure(report, Path(disk), "on disk")
        _measure(report, memory, "in memory")
    return report


def _measure(report: Report, folder: Path, place: str) -> None:
    service = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": f"{folder}/keys"}))
    files = _files(folder, service)
    found = [with_target(folder, lambda target: forked(lambda: _rewrap(files, target, service))) for _ in range(RUNS)]
    report.at_least(f"{place}, a second of CPU", "files/s", [FILES / cost.cpu for cost in found], 500)
    report.add(f"{place}, a second on the clock", "files/s", [FILES / cost.wall for cost in found])
    report.facts[place] = {"bytes a file": Path(files[0]).stat().st_size}


def _files(folder: Path, service: KeyService) -> list[str]:
    for key in ("footer", "pii"):
        service.create(key)
    maker = DataKeyMaker(service, data_key_bits=128)
    plain = folder / "plain.parquet"
    pq.write_table(pa.table({name: range(1000) for name in COLUMNS}), plain)
    made = []
    (folder / "source").mkdir()
    for number in range(FILES):
        made.append(str(folder / "source" / f"{number}.parquet"))
        encryption = FileEncryption(
            DataKey(*maker.make("footer", is_footer_key=True)),
            columns={(name,): DataKey(*maker.make("pii", is_footer_key=False)) for name in ENCRYPTED},
            aad_prefix=f"bench/{number}.parquet\0".encode(),
        )
        rewrite_file(plain, made[-1], encryption=encryption)
    return made


def _rewrap(files: list[str], target: Path, service: KeyService) -> None:
    opener, maker = DataKeyOpener(service), DataKeyMaker(service, data_key_bits=128)

    def retrieve(request: KeyRequest) -> bytes:
        return opener.open(parse_key_material(request.key_metadata or b""))

    def wrap(request: KeyRequest, key: bytes) -> bytes:
        master_key_id = parse_key_material(request.key_metadata or b"").master_key_id
        return maker.wrap(key, master_key_id, is_footer_key=request.column is None)

    with folders_synced_once():
        for file in files:
            rewrap_file(file, target / Path(file).name, retrieve_key=retrieve, new_keys=NewKeys(wrap))
