"""CRCs of pages: the fast library where it is installed, zlib where it is not, and the same values of both."""

from __future__ import annotations

import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.files.parquet.pages.chunk import crc32

WITHOUT = """
import sys, zlib
sys.modules["isal"] = None
from sparkcrypt.files.parquet.pages.chunk import crc32
from sparkcrypt.files.parquet.rewrite import chunk_writer
print(crc32 is zlib.crc32, chunk_writer.crc32 is zlib.crc32)
"""


def test_fast_library_is_used_where_it_is_installed() -> None:
    """The extra ``fast-crc`` needs no setting."""
    isal_zlib = pytest.importorskip("isal.isal_zlib")
    assert crc32 is isal_zlib.crc32 is not zlib.crc32


def test_zlib_is_used_without_it() -> None:
    """Readers and writers of pages work without the extra."""
    found = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]


@given(st.binary(max_size=70_000), st.binary(max_size=300))
def test_values_are_those_of_zlib(first: bytes, second: bytes) -> None:
    """Of whole pages, and of pages in two parts, as levels and values of a V2 page are."""
    whole = zlib.crc32(first + second)
    assert crc32(memoryview(first)) == zlib.crc32(first)
    assert crc32(second, crc32(first)) == whole == zlib.crc32(second, crc32(first))
