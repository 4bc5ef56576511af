"""The rows and queries of the measurements of data skipping, the same for sparkcrypt and for Iceberg."""

from __future__ import annotations

FILES, ROWS_EACH = 2_000, 500
WARM_UP, ROUNDS = 1, 5
SCHEMA = "id BIGINT, email STRING, account STRING, note STRING"
COLUMNS = (
    "id",
    "concat('e', lpad(id, 8, '0')) email",
    f"concat('a', lpad(id * 7919 % {FILES * ROWS_EACH}, 8, '0')) account",
    "sha2(string(id), 256) note",
)
"""Expressions over a range of ids, in as many slices as files: ``id`` and ``email`` are clustered, and each file has
distinct values of ``account`` from their whole range."""
QUERIES = {
    "one value": "SELECT count(*), max(note) FROM t WHERE email = 'e00700123'",
    "a range": "SELECT count(*), max(note) FROM t WHERE id BETWEEN 400200 AND 400900",
    "a scattered value": "SELECT count(*), max(note) FROM t WHERE account = 'a00700123'",
}
"""The first matches one file, the second two; the third matches one, which bounds cannot find."""
