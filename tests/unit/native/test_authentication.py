"""Every module of a file authenticated where its footer is read, and what of that travels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkcrypt.errors import ConfigError, KeyNotFoundError, SparkcryptError, VerificationError
from sparkcrypt.files import footers
from sparkcrypt.files import rewrite as work
from sparkcrypt.files.footers import Authentication, Depth, FooterFacts, Found, pack, read_facts, read_packed, unpack
from tests.unit.native.orders import rewrite

from .conftest import Bench


@pytest.fixture
def encrypted(bench: Bench) -> str:
    """A file whose first column is under a key of its own, so that it begins with a page of that."""
    done = rewrite(bench, bench.order(id="pii"))
    assert done.error is None
    footers._open_keys.cache_clear()
    return done.target


def read(bench: Bench, path: str, depth: Depth = "modules", shredded: tuple[str, ...] = ()) -> Found:
    """Read a file with the keys of the bench."""
    return read_facts(path, path, work._worker(bench.keys.to_json()).retrieve, depth=depth, shredded=shredded)


def proof_of(found: Found) -> Authentication:
    """Return the proof of a file whose footer could be read."""
    assert isinstance(found, FooterFacts) and found.proof is not None
    return found.proof


def flip(path: str, offset: int) -> None:
    """Change a byte of a file."""
    content = bytearray(Path(path).read_bytes())
    content[offset] ^= 1
    Path(path).write_bytes(content)


def test_whole_file_is_authenticated_on_demand_alone(bench: Bench, encrypted: str) -> None:
    """The facts of the footer are the same to each depth; a plaintext file has nothing to prove."""
    found = read(bench, encrypted)
    assert proof_of(found) == Authentication(None, partial=False)
    for depth in ("footer", "keys"):
        facts = read(bench, encrypted, depth)
        assert isinstance(facts, FooterFacts) and isinstance(found, FooterFacts)
        assert facts.proof is None and facts.summary == found.summary
    plain = read(bench, bench.source)
    assert isinstance(plain, FooterFacts) and plain.proof is None


def test_changed_page_is_the_error_of_the_proof_alone(bench: Bench, encrypted: str) -> None:
    """Its footer can be read, so the file is still compared with its plan."""
    flip(encrypted, 20)
    assert isinstance(read(bench, encrypted, "keys"), FooterFacts)
    proof = proof_of(read(bench, encrypted))
    assert isinstance(proof.error, VerificationError) and proof.partial
    assert encrypted in str(proof.error)


def test_changed_footer_is_the_error_of_the_file(bench: Bench, encrypted: str) -> None:
    """Nothing is known of such a file."""
    flip(encrypted, Path(encrypted).stat().st_size - 12)
    assert isinstance(read(bench, encrypted), SparkcryptError)


def test_columns_under_shredded_keys_are_left_out(bench: Bench, encrypted: str) -> None:
    """All else is authenticated, and what was left out is named with its key."""
    (bench.folder / "keys" / "pii.json").unlink()
    work._worker.cache_clear()
    assert isinstance(proof_of(read(bench, encrypted)).error, KeyNotFoundError)
    proof = proof_of(read(bench, encrypted, shredded=("pii",)))
    assert (proof.error, proof.partial, proof.dark) == (None, True, {("id",): "pii"})


def test_proof_travels_with_the_facts(bench: Bench, encrypted: str) -> None:
    """Each part of it, and the error with its class; facts without one are packed as before."""
    facts = read(bench, encrypted)
    assert isinstance(facts, FooterFacts)
    assert unpack(pack({encrypted: facts})) == {encrypted: facts}
    assert "proofs" not in json.loads(pack({"f": read(bench, encrypted, "keys")}))
    failed = Authentication(KeyNotFoundError("gone"), True, ("statistics of column a",), {("a", "b.c"): "k"})
    again = proof_of(unpack(pack({"f": FooterFacts(facts.summary, facts.codecs, proof=failed)}))["f"])
    assert type(again.error) is KeyNotFoundError and str(again.error) == "gone"
    assert (again.partial, again.in_clear, again.dark) == (True, failed.in_clear, failed.dark)


def in_task(bench: Bench, paths: list[str], reader: str = "a") -> dict[str, Found]:
    """Return what a task reads of files."""
    (packed,) = read_packed((bench.keys.key_service, reader), {}, "modules", (), paths)
    return unpack(packed)


def test_tasks_of_a_reader_open_a_key_once_a_process(bench: Bench, encrypted: str) -> None:
    """Keys that were opened for one reader are used for no other."""
    before = len(bench.calls())
    for _ in range(3):
        assert proof_of(in_task(bench, [encrypted])[encrypted]).error is None
    assert bench.calls()[before:] == ["unwrap"] * 2
    in_task(bench, [encrypted], "b")
    assert bench.calls()[before:] == ["unwrap"] * 4


def test_task_that_cannot_open_the_key_service_says_so_of_each_file(bench: Bench, encrypted: str) -> None:
    """An executor without the credentials fails no job: the driver is asked for its files."""
    service = json.dumps({"type": "local"})
    (packed,) = read_packed((service, "a"), {}, "modules", (), [encrypted, bench.source])
    found = unpack(packed)
    assert found.keys() == {encrypted, bench.source}
    assert all(isinstance(error, ConfigError) for error in found.values())
