from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, VerificationError
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    PLAINTEXT,
    FileEncryption,
    FileSummary,
    KeyRequest,
    inspect_file,
    read_footer,
    rewrite_file,
    verify_file,
)
from tests.unit.parquet.rewriting import (
    AMOUNT,
    NAME,
    PHONE,
    REDACTED,
    SSN,
    arrow_read,
    equal_but,
    new_encryption,
    nonces,
    write_plain,
)
from tests.unit.parquet.writers import ALGORITHMS, KEY_BITS, Keys, table, write_encrypted

MODES = ("encrypted", "plaintext")
PREFIX = b"5f3c/p=0/part-0.parquet\x00"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("bits", KEY_BITS)
def test_there_and_back(tmp_path: Path, mode: str, algorithm: str, bits: int) -> None:
    """Plaintext becomes encrypted, is keyed anew otherwise, and becomes plaintext: three files that say the same."""
    plain = write_plain(tmp_path / "plain")
    before = verify_file(plain)
    first = new_encryption(SSN, NAME, PHONE, bits=bits, algorithm=algorithm, footer_mode=mode)
    result = rewrite_file(plain, tmp_path / "first", encryption=first)
    made = inspect_file(tmp_path / "first", retrieve_key=Keys())
    assert (result.unauthenticated, made.rows, made.row_groups) == ((), 300, 3)
    assert {path for path, column in (made.columns or {}).items() if column.encrypted} == {SSN, NAME, PHONE}
    assert made.footer == ("encrypted" if mode == "encrypted" else "plaintext_signed")
    found = verify_file(tmp_path / "first", retrieve_key=Keys(), equal_to=before.digest)
    assert found.authenticated == ("all" if algorithm == "AES_GCM_V1" else "partial")
    assert arrow_read(tmp_path / "first") == table()

    other = new_encryption(AMOUNT, bits=384 - bits, footer_mode=MODES[mode == "encrypted"], columns={SSN: FOOTER_KEY})
    again = rewrite_file(tmp_path / "first", tmp_path / "second", retrieve_key=Keys(), encryption=other)
    assert len(again.unauthenticated) == (0 if algorithm == "AES_GCM_V1" else 3)
    after = verify_file(tmp_path / "second", retrieve_key=Keys(), equal_to=before.digest)
    assert (after.authenticated, after.algorithm) == ("all", "AES_GCM_V1")
    assert arrow_read(tmp_path / "second") == table()

    rewrite_file(tmp_path / "second", tmp_path / "third", retrieve_key=Keys())
    assert not inspect_file(tmp_path / "third").encrypted
    assert verify_file(tmp_path / "third", equal_to=before.digest).plaintext_columns
    assert arrow_read(tmp_path / "third", decrypt=False) == table()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("default", [FOOTER_KEY, PLAINTEXT])
def test_defaults_and_exceptions(tmp_path: Path, mode: str, default: Any) -> None:
    """Columns that are not named take the default; those that are take what they are given, plaintext too."""
    write_plain(tmp_path / "plain")
    encryption = new_encryption(
        SSN, default=default, footer_mode=mode, columns={AMOUNT: PLAINTEXT, ("id",): FOOTER_KEY}
    )
    rewrite_file(tmp_path / "plain", tmp_path / "out", encryption=encryption)
    summary = inspect_file(tmp_path / "out", retrieve_key=Keys())
    assert summary.columns is not None
    wanted = {SSN: True, AMOUNT: False, ("id",): True, ("day",): default is FOOTER_KEY, NAME: default is FOOTER_KEY}
    assert {path: summary.columns[path].encrypted for path in wanted} == wanted
    keys = {path: column.key_id for path, column in summary.columns.items() if column.encrypted}
    assert keys[SSN] == "ssn" and {key for path, key in keys.items() if path != SSN} == {"footer-key"}
    assert verify_file(tmp_path / "out", retrieve_key=Keys()).authenticated == "all"
    assert arrow_read(tmp_path / "out") == table()


@pytest.mark.parametrize("source_mode", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_files_that_arrow_encrypted(tmp_path: Path, source_mode: bool, algorithm: str) -> None:
    """What pyarrow encrypted is decrypted and re-keyed, each key asked for once, with its own key metadata."""
    source = write_encrypted(
        tmp_path / "src", plaintext_footer=source_mode, algorithm=algorithm, write_page_index=True, max_rows_per_page=30
    )
    before, keys = verify_file(source, retrieve_key=Keys()), Keys()
    rewrite_file(source, tmp_path / "plain", retrieve_key=keys)
    assert len(keys.asked) == len({request.column for request in keys.asked}) == 5
    verify_file(tmp_path / "plain", equal_to=before.digest)
    assert arrow_read(tmp_path / "plain", decrypt=False) == table()
    rewrite_file(source, tmp_path / "other", retrieve_key=Keys(), encryption=new_encryption(SSN, PHONE))
    assert verify_file(tmp_path / "other", retrieve_key=Keys(), equal_to=before.digest).authenticated == "all"
    assert arrow_read(tmp_path / "other") == table()


PREFIXES: list[dict[str, Any]] = [
    {},
    {"aad_prefix": b""},
    {"aad_prefix": PREFIX},
    {"aad_prefix": PREFIX, "store_aad_prefix": False},
]


@pytest.mark.parametrize("first", PREFIXES)
@pytest.mark.parametrize("second", PREFIXES)
@pytest.mark.parametrize("mode", MODES)
def test_aad_prefixes(tmp_path: Path, first: dict[str, Any], second: dict[str, Any], mode: str) -> None:
    """A prefix stored, supplied or absent becomes any other; readers need it exactly where it is not stored."""
    plain = write_plain(tmp_path / "plain", table(20))
    digest, expected = verify_file(plain).digest, PREFIX if first.get("aad_prefix") else None
    rewrite_file(plain, tmp_path / "a", encryption=new_encryption(SSN, footer_mode=mode, **first))
    supplied = None if first.get("store_aad_prefix", True) else PREFIX
    if supplied:
        with pytest.raises(ConfigError, match="aad_prefix"):
            rewrite_file(tmp_path / "a", tmp_path / "b", retrieve_key=Keys())
    seen: list[bytes] = []
    rewrite_file(
        tmp_path / "a",
        tmp_path / "b",
        retrieve_key=Keys(),
        aad_prefix=supplied or (seen.append if expected else None),
        encryption=new_encryption(AMOUNT, **second),
    )
    assert seen == ([expected] if expected and not supplied else [])
    footer = read_footer(tmp_path / "b")
    stored = second.get("aad_prefix") if second.get("store_aad_prefix", True) else None
    assert (footer.aad_prefix, footer.supply_aad_prefix) == (stored or None, not second.get("store_aad_prefix", True))
    known = None if second.get("store_aad_prefix", True) else PREFIX
    found = verify_file(tmp_path / "b", retrieve_key=Keys(), aad_prefix=known, equal_to=digest)
    assert found.authenticated == "all"


def test_a_refused_prefix_asks_for_no_key(tmp_path: Path) -> None:
    """What a check of the prefix raises ends the rewrite before any key is asked for and anything is written."""
    write_plain(tmp_path / "plain", table(5))
    rewrite_file(tmp_path / "plain", tmp_path / "a", encryption=new_encryption(SSN, aad_prefix=PREFIX))

    def refuse(prefix: bytes) -> None:
        raise VerificationError(f"not {prefix!r}")

    keys = Keys()
    with pytest.raises(VerificationError, match="not b'5f3c"):
        rewrite_file(tmp_path / "a", tmp_path / "b", retrieve_key=keys, aad_prefix=refuse)
    with pytest.raises(VerificationError, match="not encrypted"):
        rewrite_file(tmp_path / "plain", tmp_path / "b", aad_prefix=refuse)
    with pytest.raises(VerificationError, match="not the given one"):
        rewrite_file(tmp_path / "a", tmp_path / "b", retrieve_key=keys, aad_prefix=PREFIX[:-1])
    assert keys.asked == [] and not (tmp_path / "b").exists()


def test_encryption_by_the_summary(tmp_path: Path) -> None:
    """A callable gets the source's summary, revealed, and may answer that the target is plaintext."""
    source = write_encrypted(tmp_path / "src")
    seen: list[FileSummary] = []

    def choose(summary: FileSummary) -> FileEncryption | None:
        seen.append(summary)
        return None if len(seen) == 1 else new_encryption(*(summary.columns or {}))

    rewrite_file(source, tmp_path / "a", retrieve_key=Keys(), encryption=choose)
    rewrite_file(source, tmp_path / "b", retrieve_key=Keys(), encryption=choose)
    assert not inspect_file(tmp_path / "a").encrypted
    assert seen[0] == inspect_file(source, retrieve_key=Keys())
    assert verify_file(tmp_path / "b", retrieve_key=Keys()).plaintext_columns == ()


def test_keys_that_open_nothing(tmp_path: Path) -> None:
    """A missing retriever, a wrong key, a key of another length and a denial each end it by their own class."""
    source = write_encrypted(tmp_path / "src")
    with pytest.raises(ConfigError, match=r"src: the file is encrypted .*retrieve_key"):
        rewrite_file(source, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"signed: the file is encrypted .*retrieve_key"):
        rewrite_file(write_encrypted(tmp_path / "signed", plaintext_footer=True), tmp_path / "out")
    for column in (None, SSN):

        def wrong(request: KeyRequest, key: bytes, column: Any = column) -> bytes:
            return bytes(16) if request.column == column else key

        def denied(request: KeyRequest, key: bytes, column: Any = column) -> bytes:
            if request.column == column:
                raise KeyAccessDeniedError("no")
            return key

        with pytest.raises(VerificationError, match=r"src: .*does not authenticate"):
            rewrite_file(source, tmp_path / "out", retrieve_key=Keys(change=wrong))
        with pytest.raises(KeyAccessDeniedError, match=r"^no$"):
            rewrite_file(source, tmp_path / "out", retrieve_key=Keys(change=denied))
        with pytest.raises(ConfigError, match="allowed: 16, 24 or 32"):
            rewrite_file(source, tmp_path / "out", retrieve_key=Keys(change=lambda _, key: key[:15]))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nonces_are_drawn_afresh(tmp_path: Path, mode: str, algorithm: str) -> None:
    """No nonce of a target comes twice under a key, nor from its source; the file-unique is new too."""
    plain = write_plain(tmp_path / "plain", bloom_filter_options={"ssn": {"ndv": 300}})
    write_options: dict[str, Any] = {"algorithm": algorithm, "footer_mode": mode, "default": FOOTER_KEY}
    rewrite_file(plain, tmp_path / "a", encryption=new_encryption(SSN, AMOUNT, **write_options))
    rewrite_file(
        tmp_path / "a", tmp_path / "b", retrieve_key=Keys(), encryption=new_encryption(SSN, NAME, **write_options)
    )
    drawn: list[bytes] = []
    for name in ("a", "b"):
        by_key = nonces(tmp_path / name, Keys())
        found = [nonce for used in by_key.values() for nonce in used]
        assert len(by_key) == 3 and len(found) == verify_file(tmp_path / name, retrieve_key=Keys()).modules
        drawn += found
    assert len(set(drawn)) == len(drawn)
    uniques = {read_footer(tmp_path / name).aad_file_unique for name in ("a", "b")}
    assert len(uniques) == 2 and all(unique is not None and len(unique) == 8 for unique in uniques)


def test_one_key_for_several_columns(tmp_path: Path) -> None:
    """One data key given to footer and columns works: its modules tell each other apart by place."""
    write_plain(tmp_path / "plain")
    encryption = new_encryption()
    shared = FileEncryption(encryption.footer, columns={SSN: encryption.footer, NAME: encryption.footer})
    rewrite_file(tmp_path / "plain", tmp_path / "out", encryption=shared)
    used = nonces(tmp_path / "out", Keys())
    assert len(used) == 1 and len(set(used[encryption.footer.key])) == len(used[encryption.footer.key])
    assert verify_file(tmp_path / "out", retrieve_key=Keys()).authenticated == "all"


def test_names_that_are_no_identifiers(tmp_path: Path) -> None:
    """Dots, quotes, spaces and letters of any script in column names are taken as they are."""
    names = ["a.b", 'q"', " sp ", "ünï%3A", "x;y,z:"]
    content = pa.table({name: [f"{name}{number}" for number in range(5)] for name in names})
    pq.write_table(content, tmp_path / "plain")
    rewrite_file(tmp_path / "plain", tmp_path / "out", encryption=new_encryption(*((name,) for name in names)))
    assert verify_file(tmp_path / "out", retrieve_key=Keys()).plaintext_columns == ()
    assert arrow_read(tmp_path / "out") == content


def test_columns_of_the_same_name(tmp_path: Path) -> None:
    """A file with two columns of one name is encrypted in both, and comes back."""
    content = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["x", "y"])], names=["c", "c"])
    pq.write_table(content, tmp_path / "plain")
    digest = verify_file(tmp_path / "plain").digest
    rewrite_file(tmp_path / "plain", tmp_path / "out", encryption=new_encryption(("c",)))
    assert verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=digest).plaintext_columns == ()
    rewrite_file(tmp_path / "out", tmp_path / "back", retrieve_key=Keys())
    assert arrow_read(tmp_path / "back", decrypt=False) == content


def test_key_values_are_set(tmp_path: Path) -> None:
    """Entries of the encryption stand in the footer, in place of those of the same key, beside the others."""
    content = table(5).replace_schema_metadata({"keep": "1", "sparkcrypt.policy": "old"})
    write_plain(tmp_path / "plain", content)
    encryption = new_encryption(SSN, key_values={"sparkcrypt.policy": "new", "more": "ü"})
    rewrite_file(tmp_path / "plain", tmp_path / "out", encryption=encryption)
    footer = read_footer(tmp_path / "out", retrieve_key=Keys())
    assert footer.metadata is not None
    entries = [(entry.key, entry.value) for entry in footer.metadata.key_value_metadata or ()]
    assert [entry for entry in entries if entry[0] != "ARROW:schema"] == [
        ("keep", "1"),
        ("sparkcrypt.policy", "new"),
        ("more", "ü"),
    ]


def test_a_plaintext_copy_is_the_same_file(tmp_path: Path) -> None:
    """Plaintext rewritten to plaintext says the same, page bytes untouched."""
    write_plain(tmp_path / "plain", bloom_filter_options={"ssn": {"ndv": 300}})
    digest = verify_file(tmp_path / "plain").digest
    rewrite_file(tmp_path / "plain", tmp_path / "out")
    verify_file(tmp_path / "out", equal_to=digest)
    assert arrow_read(tmp_path / "out", decrypt=False) == table()


def test_redacted_parts_are_all_that_a_plaintext_footer_loses(tmp_path: Path) -> None:
    """With pandas metadata and sorting columns, a plaintext footer differs from its source in these alone."""
    content = table().replace_schema_metadata({"pandas": "{}", "other": "x"})
    write_plain(tmp_path / "plain", content, sorting_columns=[pq.SortingColumn(1)])
    rewrite_file(tmp_path / "plain", tmp_path / "out", encryption=new_encryption(SSN, footer_mode="plaintext"))
    before, after = verify_file(tmp_path / "plain"), verify_file(tmp_path / "out", retrieve_key=Keys())
    assert equal_but(after, before, *REDACTED)
    assert all(after.digests[part] != before.digests[part] for part in REDACTED)
