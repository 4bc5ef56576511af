"""What a rotation asks of files, which version it makes, and what a state directory knows of keys in use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkcrypt.errors import KeyNotFoundError, KeyServiceError, VerificationError
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.keys.datakeys import WrappedKek
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.keys.service import KeyDescription
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.runs.keys.rotate import RotationRecord, begin_version, finish_rotation, plan_version
from sparkcrypt.runs.passes.keys_by_catalog import find_records
from sparkcrypt.runs.rewrite.keks import rotation_of
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.difference import Drift, Rotation, refuse_other_drift, select_drift
from sparkcrypt.runs.table.unit_survey import action_of

OWN = Wrapping("pii", 2, "own")
FOOTER = Wrapping("footer", 1, "any")
ROTATION = Rotation("pii", 2, OWN)
WRONG_KEY = Drift("wrong_key", "/t/f", "email", "encrypted with 'old', not 'pii'", "old", only_keys=True)
EXTRA = Drift("extra", "/t/f", "note", "encrypted with 'pii'", only_keys=False)


def file(*wrappings: Wrapping, prefix: bytes | None = b"prefix") -> FileSummary:
    """Return the summary of a file whose data keys are wrapped so."""
    return FileSummary("/t/f", "encrypted", "AES_GCM_V1", "footer", prefix, False, b"12345678", 1, 1, {}, wrappings)


@pytest.mark.parametrize(
    ("wrappings", "rotation", "kinds"),
    [
        ((FOOTER, OWN), ROTATION, []),
        ((FOOTER,), ROTATION, []),
        ((FOOTER, replace(OWN, version=1)), ROTATION, ["old_version"]),
        ((FOOTER, replace(OWN, digest="another writer's")), ROTATION, ["other_kek"]),
        ((OWN, replace(OWN, digest="another writer's")), ROTATION, ["other_kek"]),
        ((replace(OWN, version=3, digest="wrapped directly"),), ROTATION, ["other_kek"]),
        ((replace(OWN, version=0),), ROTATION, ["other_kek"]),  # AWS does not tell: the KEK decides
        ((OWN,), replace(ROTATION, wrapping=None), ["other_kek"]),
        ((FOOTER,), replace(ROTATION, wrapping=None), []),
    ],
)
def test_files_differ_until_the_tables_kek_wraps_all(
    wrappings: tuple[Wrapping, ...], rotation: Rotation, kinds: list[str]
) -> None:
    """Only the key that is rotated counts, and of it everything that a reader would have to open besides the KEK."""
    found = rotation.drift_of(file(*wrappings), ())
    assert [difference.kind for difference in found] == kinds
    if found:
        assert action_of(found, rewrap=True) == "re-wrap"


def test_other_drift_decides_whether_data_keys_can_stay() -> None:
    """What is under a master key that the plan lacks is rewrapped in one go; any other drift is re-keyed."""
    stale = file(replace(OWN, version=1))
    assert action_of(ROTATION.drift_of(stale, [WRONG_KEY]), rewrap=True) == "re-wrap"
    assert action_of(ROTATION.drift_of(stale, [EXTRA]), rewrap=True) == "re-key"
    assert action_of(ROTATION.drift_of(replace(stale, aad_prefix=None), ()), rewrap=True) == "re-key"


def test_unit_is_left_alone_or_refused_where_it_is_another_runs() -> None:
    """A unit with nothing under the key is not this rotation's; one with more to do is refused by name."""
    stale = ROTATION.drift_of(file(replace(OWN, version=1)), ())
    unreadable = Drift("unreadable", "/t/g", None, "VerificationError: no")
    assert select_drift((EXTRA, WRONG_KEY)) == ()
    assert select_drift((*stale, EXTRA)) == (*stale, EXTRA)
    assert select_drift((unreadable,)) == (unreadable,)
    refuse_other_drift("p=1", (*stale, WRONG_KEY), ROTATION)
    with pytest.raises(VerificationError, match=r"p=1: /t/f: note: extra: .*a rotation of 'pii' wraps keys anew"):
        refuse_other_drift("p=1", (*stale, EXTRA), ROTATION)


def test_rotation_looks_for_the_kek_that_was_used() -> None:
    """What is proven after staging is that the KEK of the orders wraps, whatever was known before."""
    kek = WrappedKek("pii", "id", "local:v2:AAAA")
    asked = replace(ROTATION, wrapping=None).with_keks([WrappedKek("footer", "id", "x"), kek])
    assert asked.wrapping is not None
    assert (asked.wrapping.key_id, asked.wrapping.version) == ("pii", 2)
    assert asked.drift_of(file(asked.wrapping), ()) == ()
    assert replace(ROTATION, wrapping=None).with_keks([]).wrapping is None


def test_a_resumed_run_stays_a_rotation() -> None:
    """The journal keeps the key and the version; journals of runs without say nothing of them, as they always did."""
    options = RunOptions(rewrap=True, rotate_key="pii", rotate_to=2)
    assert RunOptions(where="p = 1").as_begun(options.to_dict()) == options
    assert "rotate_key" not in RunOptions().to_dict()
    assert options.as_begun(RunOptions().to_dict()).rotate_key is None
    rekeys = RunOptions(rotate_key="pii", rotate_to=2)
    assert RunOptions(rewrap=True).as_begun(rekeys.to_dict()) == rekeys


class _Killed(RuntimeError):
    """The process ends here."""


class Service(LocalKeyService):
    """A local key service whose process may be killed, or that hides versions, as AWS does from some credentials."""

    killed = hidden = False

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, and end the process if it is to be killed."""
        made = super().rotate(key_id)
        if self.killed:
            raise _Killed
        return self.describe(made.key_id)

    def describe(self, key_id: str) -> KeyDescription:
        """Describe a key, with one version if versions are hidden."""
        found = super().describe(key_id)
        return replace(found, versions=1) if self.hidden else found


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A key service with one key."""
    opened = Service(KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")}))
    opened.create("pii")
    return opened


@pytest.fixture
def store(tmp_path: Path) -> LocalStateStore:
    """A state directory."""
    return LocalStateStore(tmp_path / "state")


def test_a_version_that_is_not_told_is_looked_for_as_such(store: LocalStateStore) -> None:
    """Under a key service that tells no version, KEKs are recorded under 0, and a rotation looks for those."""
    trust: Any = SimpleNamespace(store=store, table_id="t")
    rotation = rotation_of(RunOptions(rotate_key="pii", rotate_to=0, dry_run=True), trust)
    assert rotation is not None and rotation.version == 0


def test_a_version_is_made_once_a_rotation(store: LocalStateStore, service: Service) -> None:
    """An unfinished rotation goes on under its version, a finished one is followed by the next; a plan makes none."""
    assert plan_version(store, service, "pii", keep_version=False) == 2
    assert plan_version(store, service, "pii", keep_version=True) == 1
    assert [begin_version(store, service, "pii", keep_version=False) for _ in range(3)] == [2, 2, 2]
    assert plan_version(store, service, "pii", keep_version=False) == 2
    finish_rotation(store, "pii", 2)
    assert plan_version(store, service, "pii", keep_version=False) == 3
    assert begin_version(store, service, "pii", keep_version=True) == 2
    finish_rotation(store, "pii", 2)
    assert begin_version(store, service, "pii", keep_version=False) == 3
    with pytest.raises(KeyNotFoundError):
        begin_version(store, service, "gone", keep_version=False)


def test_a_version_for_new_data_keys_is_never_one_that_rewrapped(store: LocalStateStore, service: Service) -> None:
    """Files that an unfinished rotation has rewrapped would else count as re-keyed; the other way round as well."""
    assert begin_version(store, service, "pii", keep_version=False) == 2
    assert plan_version(store, service, "pii", keep_version=False, rekeys=True) == 3
    assert [begin_version(store, service, "pii", keep_version=False, rekeys=True) for _ in range(2)] == [3, 3]
    assert begin_version(store, service, "pii", keep_version=False) == 4


def test_a_killed_process_makes_no_further_version(store: LocalStateStore, service: Service) -> None:
    """What the key service did before the process ended is seen by the next, which goes on."""
    service.killed = True
    with pytest.raises(_Killed):
        begin_version(store, service, "pii", keep_version=False)
    service.killed = False
    assert begin_version(store, service, "pii", keep_version=False) == 2
    assert service.describe("pii").versions == 2


def test_hidden_versions_are_no_success(store: LocalStateStore, service: Service) -> None:
    """A service that does not tell of the version it made is asked for one, and once; the way on is named."""
    service.hidden = True
    for _ in range(2):
        with pytest.raises(KeyServiceError, match=r"asked for version 2 of 'pii', and tells of 1.*--keep-version"):
            begin_version(store, service, "pii", keep_version=False)
    service.hidden = False
    assert service.describe("pii").versions == 2
    assert begin_version(store, service, "pii", keep_version=False) == 2


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version": 1, "key_id": "other", "to": 9}'])
def test_damaged_record_is_none(store: LocalStateStore, service: Service, content: bytes) -> None:
    """A record that says nothing of this key is passed over."""
    RotationRecord("pii", 5, asked=True).keep(store)
    (name,) = store.list("rotations/")
    store.delete(name)
    store.create(name, content)
    assert RotationRecord.read(store, "pii") is None
    assert begin_version(store, service, "pii", keep_version=False) == 2


def test_records_that_older_versions_wrapped_are_found(store: LocalStateStore, service: Service) -> None:
    """A MAC key and a run's secret count, in packs too; those under the newest version or another key do not.

    Nor does what a former key service of another type wrapped; what nobody can tell counts.
    """
    old = service.wrap("pii", b"k" * 16)
    service.rotate("pii")
    new = service.wrap("pii", b"k" * 16)

    def record(name: str, key_id: str, wrapped: str, *, packed: bool = False) -> None:
        inner = {"entry": {"secret": {"key_id": key_id, "wrapped": wrapped}}}
        body = {"entries": [json.dumps(inner)]} if packed else inner
        store.create(name, json.dumps(body).encode())

    record("audit/t/mac-key.json", "pii", old)
    record("audit/t/00000001.json", "other", old)
    record("audit/t/00000002.json", "pii", new)
    record("audit/t/pack-00000001-00000064.json", "pii", old, packed=True)
    record("audit/t/00000003.json", "pii", "AQICAHh")
    store.create("audit/t/00000004.json", b"torn")
    record("audit/t/00000005.json", "pii", "vault:v1:AAAA")
    assert [need.what for need in find_records(store, "pii", 2, "local")] == [
        "audit/t/00000003.json",
        "audit/t/mac-key.json",
        "audit/t/pack-00000001-00000064.json",
    ]
    assert [need.what for need in find_records(store, "pii", 2, "vault")] == [
        "audit/t/00000003.json",
        "audit/t/00000005.json",
    ]
    assert list(find_records(store, "fin", 2, "local")) == []
