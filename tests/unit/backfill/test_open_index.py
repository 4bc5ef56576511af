from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.runs.table.folder_index import StoreGeneration

MASTERS = MasterKeys("audit", (), ("footer",))


@pytest.fixture
def service(tmp_path: Path) -> KeyService:
    """A key service with the audit's key."""
    made = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")}))
    made.create("audit")
    return made


def generation(tmp_path: Path, service: KeyService, table: str = "t") -> StoreGeneration:
    """Return the record of a table's store."""
    return StoreGeneration(LocalStateStore(tmp_path / "state"), table, service, MASTERS)


def test_the_last_generation_is_kept(tmp_path: Path, service: KeyService) -> None:
    """What was noted last is told to whoever asks next, and an earlier one does not take its place."""
    assert generation(tmp_path, service).read() == 0
    assert not (tmp_path / "state").exists()
    for noted, last in ((1, 1), (3, 3), (2, 3), (4, 4)):
        generation(tmp_path, service).keep(noted)
        assert generation(tmp_path, service).read() == last
    assert generation(tmp_path, service, "u").read() == 0
    assert len(list((tmp_path / "state" / "indexes" / "t").iterdir())) == 1


def test_a_record_that_was_forged_or_moved_is_refused(tmp_path: Path, service: KeyService) -> None:
    """Who can only write to the state directory cannot say that an older store is the last one."""
    generation(tmp_path, service).keep(7)
    (record,) = (tmp_path / "state" / "indexes" / "t").iterdir()
    content = record.read_bytes()
    record.write_bytes(content.replace(b'"generation":7', b'"generation":6'))
    with pytest.raises(VerificationError, match="indexes/t: does not authenticate"):
        generation(tmp_path, service).read()
    record.write_bytes(content)
    generation(tmp_path, service, "u").keep(9)
    (other,) = (tmp_path / "state" / "indexes" / "u").iterdir()
    other.write_bytes(content)
    with pytest.raises(VerificationError, match="does not authenticate"):
        generation(tmp_path, service, "u").read()


def test_a_record_leaves_no_trace_of_an_audit(tmp_path: Path, service: KeyService) -> None:
    """A table whose audit is there had runs: the record's MAC key is kept apart."""
    generation(tmp_path, service).keep(1)
    assert LocalStateStore(tmp_path / "state").list("audit/t/") == ()
