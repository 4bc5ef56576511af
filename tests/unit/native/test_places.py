from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.open_places import place

S3 = {
    "fs.s3a.access.key": "all",
    "fs.s3a.secret.key": "all",
    "fs.s3a.endpoint": "http://127.0.0.1:1",
    "fs.s3a.endpoint.region": "r",
    "fs.s3a.bucket.own.endpoint": "https://127.0.0.2:2",
    "fs.s3a.bucket.own.endpoint.region": "s",
}


@pytest.mark.parametrize("path", ["/a b/c%20", "file:/a b/c%20", "file:///a b/c%20", "file://localhost/a b/c%20"])
def test_local_paths(path: str) -> None:
    """They are what the system opens, with nothing unescaped."""
    assert place(path, {}) == "/a b/c%20"


def test_a_file_of_another_machine_is_refused() -> None:
    """Its path names another file here."""
    with pytest.raises(ConfigError, match=r"^file://other/lake/f: is on another machine; allowed: "):
        place("file://other/lake/f", {})


def opened(uri: str, settings: dict[str, str]) -> tuple[Any, str]:
    """Return the file system of a URI, and the path there."""
    found = place(uri, settings)
    assert not isinstance(found, str)
    return found


@pytest.mark.parametrize("path", ["/t/ts=10:00/f", "ts=10:00/f", "day=10:00/f", "a:b", "10:/f", "f"])
def test_a_name_with_a_colon_is_a_path(path: str) -> None:
    """Only what begins with a scheme and a slash after it is a URI; other paths stay as they are, relative ones too."""
    assert place(path, {}) == path


def test_buckets_have_their_own_settings() -> None:
    """A bucket's settings win over those of all, and file systems of different settings are not shared."""
    system, path = opened("s3a://own/t/a b", S3)
    other, other_path = opened("s3a://any/t", S3)
    assert (path, other_path) == ("own/t/a b", "any/t")
    assert (system.region, other.region) == ("s", "r")
    assert opened("s3a://own/t/c", S3)[0] is system
    assert opened("s3a://own/t", {**S3, "fs.s3a.access.key": "other"})[0] is not system


def test_other_file_systems_are_fsspecs() -> None:
    """Their paths begin as fsspec says, be it with what stands where a URI has its authority."""
    system, path = opened("memory://box/t/f", {})
    assert path == "/box/t/f" and system.type_name == "py::fsspec+memory"


def test_unknown_scheme() -> None:
    """The message names it, and the engine that may know it."""
    with pytest.raises(ConfigError, match=r"nosuch://x: its file system cannot be opened .* --engine spark"):
        place("nosuch://x/y", {})
