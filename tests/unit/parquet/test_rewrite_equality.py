from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkcrypt.files.parquet import read_footer, verify_file
from sparkcrypt.files.parquet.rewrite.encryption import FOOTER_KEY, PLAINTEXT, DataKey, FileEncryption, FooterMode
from sparkcrypt.files.parquet.rewrite.file import rewrite_file
from sparkcrypt.files.parquet.verify.digest import DIGEST_PARTS
from sparkcrypt.names import Algorithm
from tests.fuzz.cases import Original, corpus

REDACTED = {"sorting_columns", "key_value_metadata"}
"""What a plaintext footer keeps to itself, if there is any of it."""
FOOTER_MODES: tuple[FooterMode, ...] = ("encrypted", "plaintext")
ALGORITHMS: tuple[Algorithm, ...] = ("AES_GCM_V1", "AES_GCM_CTR_V1")


def encryption(original: Original, algorithm: Algorithm, mode: FooterMode) -> tuple[FileEncryption, dict[bytes, bytes]]:
    """Return an encryption with keys of their own for three columns, and the keys by key metadata."""
    columns = read_footer(original.data, retrieve_key=original.retrieve_key if original.keys else None).columns
    assert columns is not None
    keys = {name: os.urandom(16) for name in (b"footer", b"0", b"1", b"2")}
    own = {crypto.path: DataKey(keys[b"%d" % number], b"%d" % number) for number, crypto in enumerate(columns[:3])}
    default = FOOTER_KEY if algorithm == "AES_GCM_V1" else PLAINTEXT
    footer = DataKey(keys[b"footer"], b"footer")
    return FileEncryption(
        algorithm=algorithm, footer=footer, footer_mode=mode, columns=dict(own), default=default
    ), keys


@pytest.mark.parametrize("mode", FOOTER_MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("original", corpus(), ids=lambda original: original.name)
def test_a_rewrite_has_the_digest_of_its_source(
    tmp_path: Path, original: Original, algorithm: Algorithm, mode: FooterMode
) -> None:
    """Files of six writers keep their digest when they are encrypted, re-keyed, and decrypted again, part by part."""
    source, target, back = tmp_path / "source", tmp_path / "target", tmp_path / "back"
    source.write_bytes(original.data)
    before = verify_file(source, retrieve_key=original.retrieve_key)
    order, keys = encryption(original, algorithm, mode)
    rewrite_file(str(source), str(target), retrieve_key=original.retrieve_key, encryption=order)
    found = verify_file(target, retrieve_key=lambda request: keys[request.key_metadata or b""])
    differing = {part for part in DIGEST_PARTS if found.digests[part] != before.digests[part]}
    assert differing <= (REDACTED if mode == "plaintext" else set())
    rewrite_file(str(target), str(back), retrieve_key=lambda request: keys[request.key_metadata or b""])
    verify_file(back, equal_to=found.digest)
