"""What wraps a data key, as wrapped texts tell it."""

from __future__ import annotations

import base64

import pytest

from sparkcrypt.keys.material import KeyMaterial, Wrapping, version_of, wrapping_of, wrapping_of_kek

HADOOP = "hadoop:v1:" + base64.b64encode((7).to_bytes(4, "big") + bytes(40)).decode()


@pytest.mark.parametrize(
    ("wrapped", "version"),
    [
        ("vault:v3:AAAA", 3),
        ("local:v12:AAAA", 12),
        (HADOOP, 7),
        ("hadoop:v1:no base64", 0),
        ("hadoop:v1:", 0),
        ("gcp:v1:AAAA", 0),  # of the form, not of the key
        ("AQICAHh", 0),
        ("vault:v0:AAAA", 0),
        ("vault:v3", 0),
        ("", 0),
    ],
)
def test_version_is_told_by_the_services_that_tell_it(wrapped: str, version: int) -> None:
    """Vault, the local service and Hadoop KMS write the version into what they give; all else is 0, and never wrong."""
    assert version_of(wrapped) == version


def test_wrappings_differ_as_a_readers_calls_do() -> None:
    """One KEK of two data keys is one call; another id or another text is another; so is each key without a KEK."""

    def material(wrapped_dek: str, kek_id: str | None = None, wrapped_kek: str | None = None) -> KeyMaterial:
        return KeyMaterial(False, None, None, "pii", wrapped_dek, kek_id, wrapped_kek)

    first = wrapping_of(material("a", "id", "local:v2:AAAA"))
    assert first == wrapping_of(material("b", "id", "local:v2:AAAA")) == wrapping_of_kek("pii", "id", "local:v2:AAAA")
    others = {
        wrapping_of(material("a", "other", "local:v2:AAAA")),
        wrapping_of(material("a", "id", "local:v2:BBBB")),
        wrapping_of(material("local:v2:AAAA")),
        wrapping_of(material("local:v2:BBBB")),
    }
    assert len(others | {first}) == 5
    assert Wrapping(*first.to_list()) == first
    assert (first.key_id, first.version) == ("pii", 2)
