"""The ORC files of the fuzzer's corpus, and what opens them."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

from sparkcrypt.files.parquet import KeyRequest

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
NAMES = sorted(path.stem for path in CORPUS.glob("*.orc"))
CODECS = ("none", "zlib", "snappy", "zstd", "lz4")


def file(name: str) -> Path:
    """Return a file of the corpus."""
    return CORPUS / f"{name}.orc"


@cache
def _keys() -> dict[str, bytes]:
    found = json.loads((CORPUS / "orc_keys.json").read_text())
    return {digest: bytes.fromhex(key) for digest, key in found.items()}


def retrieve_key(request: KeyRequest) -> bytes:
    """Return the local key, or a wrong one for a wrapped key that was altered."""
    return _keys().get(hashlib.sha256(request.key_metadata or b"").hexdigest(), bytes(16))
