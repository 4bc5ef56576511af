"""ORC files in the native engine: orders that travel, what a worker does with them, and what footers are read as."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import FormatError, SparkcryptError
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.native import orc_work, work
from sparkcrypt.native.footers import FooterFacts, pack, read_facts, unpack
from sparkcrypt.native.orders import Action, FileOutcome, KeySettings, OrcOrder, order_from_dict
from sparkcrypt.orc import inspect_orc, read_tail, rewrite_orc
from sparkcrypt.parquet import ColumnSummary, KeyRequest
from sparkcrypt.parquet.file.source import open_source
from tests.unit.native.conftest import TABLE, Bench
from tests.unit.native.orders import failed
from tests.unit.orc.corpus import file
from tests.unit.orc.rewriting import OrcKeys, patched

BOTH: dict[tuple[str, ...], str] = {("ssn",): "pii", ("tel",): "other"}
SSN: dict[tuple[str, ...], str] = {("ssn",): "pii"}


@pytest.fixture
def source(bench: Bench) -> str:
    """A plaintext ORC file."""
    place = str(bench.folder / "source.orc")
    pyarrow.orc.write_table(TABLE, place)
    return place


def carry_out(
    bench: Bench, source: str, action: Action, columns: dict[tuple[str, ...], str] | None = None, name: str = "out.orc"
) -> FileOutcome:
    """Carry out an order as a worker does, after both have travelled as JSON."""
    target = bench.folder / name
    before = inspect_orc(source).identity
    order = OrcOrder(source, str(target), action, columns or {}, identity_at(target), before, replace=True)
    told = order_from_dict(json.loads(json.dumps(order.to_dict())))
    assert told == order
    outcome = work.rewrite(told, KeySettings.from_json(bench.keys.to_json()), {})
    assert FileOutcome.from_json(outcome.to_json()) == outcome
    return outcome


def identity_at(path: Path) -> bytes:
    """Return what local keys of a file at this path are bound to."""
    return FileIdentity("uuid", "", path.name).to_aad_prefix()


def done(outcome: FileOutcome) -> str:
    """Return the target of an order that was carried out."""
    assert (outcome.error, outcome.refused) == (None, None)
    return outcome.target


def retriever(bench: Bench) -> Callable[[KeyRequest], bytes]:
    """Return what opens local keys by the bench's key service."""
    opener = DataKeyOpener(bench.service)
    return lambda request: opener.open_metadata(request.key_metadata)


def wrapped_in(path: str) -> set[bytes]:
    """Return the wrapped local keys of a file."""
    encryption = read_tail(path).encryption
    return set() if encryption is None else {variant.encrypted_key for variant in encryption.variants}


def test_file_is_encrypted_copied_wrapped_again_and_decrypted(bench: Bench, source: str) -> None:
    """A copy has the same bytes; a new wrapping has other wrapped keys; plaintext says what the source said."""
    outcome = carry_out(bench, source, "encrypt", BOTH)
    encrypted = done(outcome)
    assert (outcome.rows, outcome.unauthenticated) == (3, (orc_work.UNAUTHENTICATED_ORC,))
    copied = done(carry_out(bench, encrypted, "copy", name="copy.orc"))
    assert Path(copied).read_bytes() == Path(encrypted).read_bytes()
    again = done(carry_out(bench, encrypted, "rewrap", BOTH, name="again.orc"))
    assert len(wrapped_in(again)) == 2 and wrapped_in(again).isdisjoint(wrapped_in(encrypted))
    plain = done(carry_out(bench, again, "decrypt", name="plain.orc"))
    assert pyarrow.orc.read_table(plain).equals(pyarrow.orc.read_table(source))
    assert done(carry_out(bench, source, "copy", name="same.orc")) and wrapped_in(plain) == set()


def test_other_master_keys_wrap_the_same_local_keys(bench: Bench, source: str) -> None:
    """Every byte before the footer stays; a local key for which two master keys are ordered, or none, is refused."""
    encrypted = done(carry_out(bench, source, "encrypt", BOTH))
    leaves: dict[tuple[str, ...], str] = {("ssn",): "other", ("tel", "_elem"): "pii"}
    again = done(carry_out(bench, encrypted, "rewrap", leaves, name="again.orc"))
    end = read_tail(encrypted).footer_offset
    assert Path(again).read_bytes()[:end] == Path(encrypted).read_bytes()[:end]
    facts = read_facts("f", again, retriever(bench), every_key=True)
    assert isinstance(facts, FooterFacts)
    columns = (facts.summary.columns or {}).items()
    assert {path: column.key_id for path, column in columns if column.encrypted} == leaves
    assert {parse_key_material(wrapped).master_key_id for wrapped in wrapped_in(again)} == {"pii", "other"}
    plain = done(carry_out(bench, again, "decrypt", name="plain.orc"))
    assert pyarrow.orc.read_table(plain).equals(pyarrow.orc.read_table(source))
    cases: tuple[tuple[dict[tuple[str, ...], str], str], ...] = (
        ({("ssn",): "pii"}, "column tel has one local key, and was ordered under none"),
        ({**leaves, ("tel", "more"): "other"}, "was ordered under other, pii"),
    )
    for columns_ordered, said in cases:
        kind, message = failed(carry_out(bench, encrypted, "rewrap", columns_ordered, name="wrong.orc"))
        assert kind == "VerificationError" and said in message
        assert not (bench.folder / "wrong.orc").exists()


def test_copy_that_is_not_the_source_is_removed(bench: Bench, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is read back: one that says something else is a failure, and leaves no target."""
    other = bench.folder / "other.orc"
    pyarrow.orc.write_table(pa.table({"id": [7, 8, 9], "ssn": ["x", "y", "z"], "tel": [["1"], [], None]}), other)
    monkeypatch.setattr(orc_work, "open_source", lambda _: open_source(other))
    kind, message = failed(carry_out(bench, source, "copy"))
    assert kind == "VerificationError" and "its content is another in" in message


def test_copy_of_a_file_whose_keys_do_not_open_is_a_failure(bench: Bench, source: str) -> None:
    """Keys are opened before a file is copied too."""
    encrypted = done(carry_out(bench, source, "encrypt", SSN))
    (bench.folder / "keys" / "pii.json").unlink()
    work._worker.cache_clear()
    assert failed(carry_out(bench, encrypted, "copy", name="copy.orc"))[0] == "KeyNotFoundError"


def test_end_of_a_file_is_read_as_footers_are(bench: Bench, source: str) -> None:
    """Columns by ORC's names, each with its key; rows, stripes, codec, and what wraps its keys; all of it travels."""
    encrypted = done(carry_out(bench, source, "encrypt", BOTH))
    facts = read_facts("f", encrypted, retriever(bench))
    assert isinstance(facts, FooterFacts)
    summary = facts.summary
    assert (summary.path, summary.format, summary.footer, summary.encrypted) == ("f", "orc", "plaintext", True)
    assert (summary.rows, summary.row_groups, summary.algorithm) == (3, 1, None)
    assert summary.aad_prefix == identity_at(Path(encrypted))
    assert summary.columns == {
        ("id",): ColumnSummary(False, None),
        ("ssn",): ColumnSummary(True, "pii"),
        ("tel", "_elem"): ColumnSummary(True, "other"),
    }
    assert [(wrapping.key_id, wrapping.version) for wrapping in summary.wrappings] == [("other", 1), ("pii", 1)]
    plain = read_facts("p", source, retriever(bench))
    assert isinstance(plain, FooterFacts) and not plain.summary.encrypted and plain.codecs == facts.codecs
    parquet = read_facts("q", bench.source, retriever(bench))
    found = {"f": facts, "p": plain, "q": parquet}
    assert unpack(pack(found)) == found
    assert isinstance(parquet, FooterFacts) and parquet.summary.format == "parquet"


def test_every_key_is_opened_where_that_is_asked(bench: Bench, source: str) -> None:
    """Without it no key is needed; keys under a shredded master key are left out."""
    encrypted = done(carry_out(bench, source, "encrypt", BOTH))
    (bench.folder / "keys" / "pii.json").unlink()
    assert isinstance(read_facts("f", encrypted, retriever(bench)), FooterFacts)
    found = read_facts("f", encrypted, retriever(bench), every_key=True)
    assert type(found).__name__ == "KeyNotFoundError"
    assert isinstance(read_facts("f", encrypted, retriever(bench), every_key=True, shredded=("pii",)), FooterFacts)


def test_file_without_stripes_has_nothing_to_encrypt(bench: Bench) -> None:
    """Its columns are neither encrypted nor in clear."""
    place = str(bench.folder / "empty.orc")
    pyarrow.orc.write_table(TABLE.slice(0, 0), place)
    facts = read_facts("f", place, retriever(bench))
    assert isinstance(facts, FooterFacts) and facts.summary.row_groups == 0
    assert {column.encrypted for column in (facts.summary.columns or {}).values()} == {None}


def test_key_that_another_master_key_wrapped_is_refused(bench: Bench, source: str) -> None:
    """A plan is not to believe the name of a key that the wrapped key contradicts."""
    encrypted = done(carry_out(bench, source, "encrypt", SSN))
    tail, content = read_tail(encrypted), Path(encrypted).read_bytes()
    assert tail.encryption is not None and tail.encryption.keys[0].name == "pii"
    encryption = tail.footer.message(10, "encryption")
    assert encryption is not None
    (key,) = encryption.messages(2, "a key")
    renamed = encryption.replace_field(2, [key.replace_field(1, [b"other"]).encode()])
    Path(encrypted).write_bytes(patched(tail, content, tail.footer.replace_field(10, [renamed.encode()])))
    found = read_facts("f", encrypted, retriever(bench))
    assert isinstance(found, SparkcryptError) and "is said to be under 'other'" in str(found)


def test_foreign_wrapped_key_names_no_master_key(tmp_path: Path, bench: Bench) -> None:
    """What Hadoop or a cloud wrapped cannot be opened, so its column is under no key that anybody here knows."""
    place = tmp_path / "foreign.orc"
    rewrite_orc(file("arrow_zstd"), place, encryption=OrcKeys().encryption(["name"]))
    facts = read_facts("f", str(place), retriever(bench))
    assert isinstance(facts, FooterFacts)
    assert (facts.summary.columns or {})["name",] == ColumnSummary(True, None)


def test_damaged_files_are_errors_of_their_own_format(bench: Bench, source: str) -> None:
    """A file that begins as ORC does is told as ORC; what begins otherwise as Parquet."""
    content = Path(source).read_bytes()
    for data, said in (
        (content[:-30], "the postscript: field number 0"),
        (b"PAR1" + content, "not a Parquet file"),
    ):
        found = read_facts("f", data, retriever(bench))
        assert isinstance(found, FormatError) and said in str(found)


def test_local_keys_are_of_the_length_that_the_policy_says(bench: Bench, source: str) -> None:
    """The local keys are wrapped as data keys of Parquet files are."""
    wide = replace(bench, keys=KeySettings(bench.keys.key_service, 256))
    encrypted = done(carry_out(wide, source, "encrypt", SSN))
    (wrapped,) = wrapped_in(encrypted)
    assert parse_key_material(wrapped).master_key_id == "pii"
    assert len(retriever(bench)(KeyRequest(encrypted, None, wrapped))) == 32
