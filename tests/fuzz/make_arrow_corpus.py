"""Writes the files of the corpus that pyarrow makes: ``python -m tests.fuzz.make_arrow_corpus``."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow.parquet as pq

from sparkcrypt.files.parquet import verify_file
from tests.fuzz.cases import CORPUS, KEYS
from tests.unit.parquet.writers import Keys, table, write_encrypted, write_uniform

WRITING: dict[str, Any] = {"row_group_size": 100, "write_page_index": True}
UNIFORM_KEY = b"a made-up secret"


def main() -> None:
    """Write the files, and add their keys to the others'."""
    pq.write_table(table(), CORPUS / "arrow_plain.parquet", max_rows_per_page=30, write_page_checksum=True, **WRITING)
    variants: dict[str, dict[str, Any]] = {
        "arrow_gcm": {},
        "arrow_gcm_signed": {"plaintext_footer": True, "bits": 256},
        "arrow_gcm_v2": {"data_page_version": "2.0"},
        "arrow_ctr_v2": {"data_page_version": "2.0", "algorithm": "AES_GCM_CTR_V1"},
    }
    keys = json.loads(KEYS.read_text())
    for name, options in variants.items():
        asked = Keys()
        verify_file(write_encrypted(CORPUS / f"{name}.parquet", **options, **WRITING), retrieve_key=asked)
        keys[f"{name}.parquet"] = {
            hashlib.sha256(request.key_metadata or b"").hexdigest(): asked(request).hex()
            for request in tuple(asked.asked)
        }
    write_uniform(
        CORPUS / "arrow_prefix.parquet", UNIFORM_KEY, aad_prefix=b"t/p=0\x00", plaintext_footer=True, **WRITING
    )
    keys["arrow_prefix.parquet"] = {hashlib.sha256(b"").hexdigest(): UNIFORM_KEY.hex()}
    KEYS.write_text(json.dumps(keys, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
