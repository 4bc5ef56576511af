"""ORC files in the native engine: orders that travel, what a worker does with them, and what footers are read as."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import FormatError, SparkcryptError
from sparkcrypt.files import rewrite as work
from sparkcrypt.files.footers import FooterFacts, pack, read_facts, unpack
from sparkcrypt.files.orc import inspect_orc, read_tail, rewrite_orc
from sparkcrypt.files.orc.file.tail import encode_purged_note
from sparkcrypt.files.orc.rewrite import end
from sparkcrypt.files.orc.verify.file import UNAUTHENTICATED
from sparkcrypt.files.orders import Action, EncryptionOrder, FileOrder, FileOutcome, KeySettings
from sparkcrypt.files.parquet import ColumnSummary, KeyRequest
from sparkcrypt.files.source import open_source
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.material import parse_key_material
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
    bench: Bench,
    source: str,
    action: Action,
    columns: dict[tuple[str, ...], str] | None = None,
    name: str = "out.orc",
    dark: dict[tuple[str, ...], str] | None = None,
    *,
    purges: bool = False,
) -> FileOutcome:
    """Carry out an order as a worker does, after both have travelled as JSON."""
    target = bench.folder / name
    before = inspect_orc(source).identity
    encryption = None if action == "copy" else EncryptionOrder(columns or {}, identity_at(target))
    order = FileOrder(
        source,
        str(target),
        action,
        encryption,
        before,
        replace=True,
        dark=dark or {},
        purges=purges,
        format="orc",
    )
    told = FileOrder.from_dict(json.loads(json.dumps(order.to_dict())))
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
    assert (outcome.rows, outcome.unauthenticated) == (3, (UNAUTHENTICATED,))
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
    size = read_tail(encrypted).footer_offset
    assert Path(again).read_bytes()[:size] == Path(encrypted).read_bytes()[:size]
    facts = read_facts("f", again, retriever(bench), depth="keys")
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
    monkeypatch.setattr(work, "open_source", lambda _: open_source(other))
    kind, message = failed(carry_out(bench, source, "copy"))
    assert kind == "VerificationError" and "its content is another in" in message


def test_copy_of_a_file_whose_keys_do_not_open_is_a_failure(bench: Bench, source: str) -> None:
    """Keys are opened before a file is copied too."""
    encrypted = done(carry_out(bench, source, "encrypt", SSN))
    (bench.folder / "keys" / "pii.json").unlink()
    work._worker.cache_clear()
    assert failed(carry_out(bench, encrypted, "copy", name="copy.orc"))[0] == "KeyNotFoundError"


@pytest.fixture
def dark(bench: Bench, source: str) -> str:
    """A file ``d/f.orc`` with a column under ``pii``, which is gone then, and one under ``other``."""
    made = done(carry_out(bench, source, "encrypt", BOTH, name="d/f.orc"))
    (bench.folder / "keys" / "pii.json").unlink()
    work._worker.cache_clear()
    return made


def test_dark_column_stays_whatever_becomes_of_others(bench: Bench, dark: str) -> None:
    """Others are decrypted, get new local keys, are wrapped again or copied; with its key back its values are there."""
    values = pyarrow.orc.read_table(bench.folder / "source.orc")
    elements: dict[tuple[str, ...], str] = {("tel", "_elem"): "footer"}
    orders: tuple[tuple[Action, dict[tuple[str, ...], str]], ...] = (
        ("decrypt", {}),
        ("encrypt", {("tel",): "other", ("id",): "footer"}),
        ("rewrap", elements),
        ("copy", elements),
    )
    made = [
        done(carry_out(bench, dark, action, columns, name=f"{action}/f.orc", dark=SSN)) for action, columns in orders
    ]
    assert [inspect_orc(path).columns["ssn",].key_id for path in made] == ["pii"] * 4
    assert [inspect_orc(path).columns["tel", "_elem"].key_id for path in made] == [None, "other", "footer", "other"]
    for path in made:
        assert wrapped_in(path) & wrapped_in(dark)
    told = failed(carry_out(bench, dark, "encrypt", {("tel",): "other"}, name="moved.orc", dark=SSN))
    assert told[0] == "VerificationError" and "not all bound to the same file" in told[1]
    bench.service.create("pii")  # another of the same name: what was shredded is not back
    kind, _ = failed(carry_out(bench, made[1], "decrypt", name="plain.orc"))
    assert kind == "KeyServiceError"
    plain = pyarrow.orc.read_table(made[0])
    assert plain.select(["id", "tel"]).equals(values.select(["id", "tel"]))
    assert plain.column("ssn").null_count == 3


def test_nulls_replace_a_dark_column(bench: Bench, dark: str) -> None:
    """In plaintext or under a live key; the file notes it, and footers that were read say so after they travelled."""
    values = pyarrow.orc.read_table(bench.folder / "source.orc")
    plain = done(carry_out(bench, dark, "decrypt", name="plain.orc", dark=SSN, purges=True))
    assert pyarrow.orc.read_table(plain).equals(values.set_column(1, "ssn", pa.nulls(3, pa.string())))
    columns: dict[tuple[str, ...], str] = {("ssn",): "footer", ("tel",): "other"}
    made = done(carry_out(bench, dark, "encrypt", columns, name="made.orc", dark=SSN, purges=True))
    facts = read_facts("f", made, retriever(bench), depth="keys")
    assert isinstance(facts, FooterFacts)
    assert facts.summary.purged == SSN
    assert (facts.summary.columns or {})["ssn",].key_id == "footer"
    assert unpack(pack({"f": facts})) == {"f": facts}
    again = done(carry_out(bench, made, "decrypt", name="again.orc"))
    assert pyarrow.orc.read_table(again).equals(pyarrow.orc.read_table(plain))


def test_column_that_is_not_dark_as_it_was_listed_is_refused(bench: Bench, dark: str, source: str) -> None:
    """A file that somebody exchanged for one in plaintext, or under another key, is neither carried nor purged."""
    other: dict[tuple[str, ...], str] = {("tel", "_elem"): "pii"}
    for place, columns, what in ((source, SSN, "is under None"), (dark, other, "is under 'other'")):
        for purges in (False, True):
            kind, said = failed(carry_out(bench, place, "decrypt", name="d/out.orc", dark=columns, purges=purges))
            assert kind == "VerificationError"
            assert what in said and "and was under the shredded 'pii' when it was listed" in said
    order = FileOrder(dark, str(bench.folder / "o.orc"), "copy", None, b"other", dark=SSN, format="orc")
    kind, said = failed(work.rewrite(order, bench.keys, {}))
    assert kind == "VerificationError" and "its local keys are bound to another file than when it was listed" in said


def test_purge_that_leaves_a_value_is_no_purge(bench: Bench, dark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's column is looked at, and so is the note; what is not proven leaves no target."""
    with monkeypatch.context() as patch:
        patch.setattr(work, "rewrite_orc", lambda source, target, **more: rewrite_orc(source, target, **keep(more)))
        kind, _ = failed(carry_out(bench, dark, "decrypt", name="made/f.orc", dark=SSN, purges=True))
    assert kind == "KeyNotFoundError"
    with monkeypatch.context() as patch:
        patch.setattr(end, "encode_purged_note", lambda _: encode_purged_note({}))
        kind, said = failed(carry_out(bench, dark, "decrypt", name="d/f2.orc", dark=SSN, purges=True))
    assert kind == "VerificationError" and "does not note each column" in said


def keep(more: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a rewrite that carries what it should purge."""
    return {**more, "dark": more["purge"], "purge": ()}


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
    found = read_facts("f", encrypted, retriever(bench), depth="keys")
    assert type(found).__name__ == "KeyNotFoundError"
    assert isinstance(read_facts("f", encrypted, retriever(bench), depth="keys", shredded=("pii",)), FooterFacts)


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
