"""The canonical JSON of a policy is the policy: nothing is lost, nothing is ambiguous, nothing substituted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import ConfigError, SparkcryptError
from sparkcrypt.policy import Policy, policy_from_canonical, policy_from_document

NAME = st.text(st.sampled_from("abcXYZé$%.-_/ß鍵"), min_size=1, max_size=6)
KEY = st.text(st.sampled_from("abcXYZ:/é$%;,+ "), min_size=1, max_size=8).filter(str.strip)
TAGS = ["t1", "T1", "личное", "a$b"]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Return documents that are policies."""

    def rule() -> Any:
        kind = draw(st.integers(0, 4))
        if kind == 0:
            return "plaintext"
        if kind == 1:
            return {"key": None, "history": draw(st.lists(KEY, min_size=1, max_size=2))}
        if kind == 2:
            return {"key": draw(KEY), "retention": draw(st.sampled_from(["1s", "90m", "400d", "52w"]))}
        if kind == 3:
            return {"key": "tmpl~{p:%Y}", "dates": {"p": draw(st.sampled_from(["%Y%m", {"y": "%Y", "m": "%m"}]))}}
        return {"key": "tmpl~{p}", "history": draw(st.lists(KEY, max_size=2))}

    def table() -> dict[str, Any]:
        return {
            "require_encryption": draw(st.booleans()),
            "enforce": draw(st.booleans()),
            "location": "/" + draw(NAME),
            "tags": draw(
                st.dictionaries(st.sampled_from(["c", "a.b", "%2E"]), st.lists(st.sampled_from(TAGS), min_size=1))
            ),
            **({"footer_mode": draw(st.sampled_from(["encrypted", "plaintext"]))} if draw(st.booleans()) else {}),
        }

    return {
        "version": 1,
        "key_service": {"type": "own", "x": draw(NAME), "y": draw(st.lists(st.integers(), max_size=2))},
        "algorithm": draw(st.sampled_from(["AES_GCM_V1", "AES_GCM_CTR_V1"])),
        "data_key_bits": draw(st.sampled_from([128, 192, 256])),
        "footer": {"key": draw(KEY), "history": draw(st.lists(KEY, max_size=2))},
        "audit": {"key": "audit-" + draw(KEY), "history": draw(st.lists(KEY, max_size=2))},
        "untagged": draw(st.sampled_from(["plaintext", "footer_key", "deny"])),
        "run_state": "/" + draw(NAME),
        **({"ask_for_access": "write to keys@example.org"} if draw(st.booleans()) else {}),
        **({"old_files": {"grace": draw(st.sampled_from(["0s", "90m", "2d"]))}} if draw(st.booleans()) else {}),
        **({"safe_aggregates": draw(st.lists(st.sampled_from(["avg", "sum"])))} if draw(st.booleans()) else {}),
        "tags": {name: rule() for name in draw(st.permutations(TAGS))},
        "tables": {name: table() for name in draw(st.permutations(["z.a", "a.z", "m.m$"]))},
        "algorithm_history": draw(st.lists(st.sampled_from(["AES_GCM_V1", "AES_GCM_CTR_V1"]), max_size=3)),
    }


def frozen(document: object) -> Policy:
    """Return the policy of a document."""
    return policy_from_document(document, locate=lambda _: "here")


@pytest.mark.slow
@settings(max_examples=150)
@given(documents())
def test_canonical_json_is_the_policy(document: dict[str, Any]) -> None:
    """A policy read back from its canonical JSON is equal, with the same text; ``$`` never stands in it."""
    policy = frozen(document)
    text = policy.canonical()
    assert policy_from_canonical(text) == policy
    assert policy_from_canonical(text).canonical() == text
    assert "$" not in text and text.isascii()
    assert [rule.name for rule in policy_from_canonical(text).tags] == list(document["tags"])


@pytest.mark.slow
@given(documents(), st.randoms(use_true_random=False))
def test_order_of_tables_does_not_change_the_digest(document: dict[str, Any], random: Any) -> None:
    """Tables, columns of an overlay and options may be written in any order; tags may not."""
    policy = frozen(document)
    tables = list(document["tables"].items())
    random.shuffle(tables)
    assert frozen({**document, "tables": dict(tables)}) == policy
    turned = dict(reversed(list(document["tags"].items())))
    assert frozen({**document, "tags": turned}).digest() != policy.digest()


@given(JSON_VALUES)
def test_any_json_is_a_policy_or_refused(value: object) -> None:
    """Whatever JSON arrives, the answer is a policy or a ConfigError."""
    with pytest.raises(ConfigError):
        policy_from_canonical(json.dumps(value))


@pytest.mark.slow
@settings(max_examples=200)
@given(documents(), st.data())
def test_any_change_of_a_policy_is_a_policy_or_refused(document: dict[str, Any], data: st.DataObject) -> None:
    """A policy with any one value replaced by any JSON is a policy or a ConfigError, never another error."""
    place: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON_VALUES)
    try:
        policy_from_canonical(json.dumps(document)).canonical()
    except SparkcryptError as error:
        assert isinstance(error, ConfigError)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nul", '{"version": NaN}', "\ud800"])
def test_text_that_is_no_policy_is_refused(text: str) -> None:
    """Texts that are not JSON, or no policy, are a ConfigError that says where a policy comes from."""
    with pytest.raises(ConfigError, match=r"parquet\.sparkcrypt\.policy"):
        policy_from_canonical(text)


def test_a_tag_twice_in_canonical_json_is_refused() -> None:
    """The list of tags in canonical JSON holds each tag once, as the file did."""
    document = frozen(
        {"version": 1, "key_service": {"type": "own"}, "footer": {"key": "f"}, "untagged": "deny"}
    ).to_dict()
    document["tags"] = [["pii", "plaintext"], ["pii", {"key": "k"}]]
    with pytest.raises(ConfigError, match=r"tags\.pii: written twice"):
        frozen(document)


def test_what_of_derived_data_stands_in_the_canonical_json_only_where_they_are_written() -> None:
    """A policy that names none keeps the digest that it had; an empty list makes not even counts safe."""
    document = {
        "version": 1,
        "key_service": {"type": "own"},
        "footer": {"key": "f"},
        "untagged": "plaintext",
        "tags": {"pii": {"key": "k"}},
    }
    silent = frozen(document)
    assert silent.digest() == "e7f521dc5485a618242c2fdff6f5a000ce8680ec20a6c809d117d260250a2bb3"
    assert frozen({**document, "safe_aggregates": []}).to_dict()["safe_aggregates"] == []
    assert "strict_projection" not in frozen(document).to_dict()
    assert frozen({**document, "strict_projection": True}).to_dict()["strict_projection"] is True
    said = frozen({**document, "sinks": "deny", "tags": {"pii": {"key": "k", "sinks": "warn"}}})
    assert frozen(said.to_dict()) == said
    assert (said.to_dict()["sinks"], said.tags[0].sinks) == ("deny", "warn")
    said = frozen({**document, "inherit": "refuse", "tables": {"a.b": {"inherit": "add"}}})
    assert frozen(said.to_dict()) == said
    assert (said.to_dict()["inherit"], said.tables[0].inherit) == ("refuse", "add")
    assert frozen({**document, "safe_aggregates": ["sum", "avg"]}).to_dict()["safe_aggregates"] == ["avg", "sum"]


def test_grace_of_old_files_stands_in_the_canonical_json_only_where_it_is_written() -> None:
    """A policy that says nothing of old files has the digest that it always had, and 24 hours of grace."""
    document = {
        "version": 1,
        "key_service": {"type": "own"},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
    }
    silent = frozen(document)
    assert (silent.grace_seconds, "old_files" in silent.to_dict()) == (86_400, False)
    at_once = frozen({**document, "old_files": {"grace": "0s"}})
    assert (at_once.grace_seconds, at_once.to_dict()["old_files"]) == (0, {"grace": "0s"})
    assert frozen({**document, "old_files": {"grace": "2h"}}).grace_seconds == 7_200


def test_the_access_log_stands_in_the_canonical_json_only_where_it_is_written() -> None:
    """A policy without access_log has the text, and so the digest, that it had before there was such an option."""
    document = {
        "version": 1,
        "key_service": {"type": "local", "path": "/k"},
        "footer": {"key": "f"},
        "untagged": "deny",
    }
    assert "access_log" not in json.loads(frozen(document).canonical())
    for written in ({"location": "/log"}, {"location": "/log", "required": True}):
        policy = frozen({**document, "access_log": written})
        assert policy.to_dict()["access_log"] == written
        assert policy_from_canonical(policy.canonical()) == policy
    by_uri = frozen({**document, "access_log": {"location": "file:/a%20b", "required": False}})
    assert by_uri.to_dict()["access_log"] == {"location": "/a b"}
    with pytest.raises(ConfigError, match=r"access_log\.location: 'log' is no absolute path"):
        frozen({**document, "access_log": {"location": "log"}})


def test_the_place_of_stores_stands_in_the_canonical_json_only_where_it_is_written() -> None:
    """Policies without it keep their digest; a relative place is resolved, and a URI stays."""
    document = {
        "version": 1,
        "key_service": {"type": "local", "path": "/k"},
        "footer": {"key": "f"},
        "untagged": "deny",
    }
    assert "index" not in policy_from_document(document, locate=str).to_dict()
    for written, place in (("i", "/base/i"), ("webhdfs://nn:9870/i", "webhdfs://nn:9870/i")):
        made = policy_from_document(
            {**document, "index": {"location": written}},
            locate=str,
            resolve=lambda path: path if ":" in path or path.startswith("/") else f"/base/{path}",
        )
        assert made.to_dict()["index"] == {"location": place}
        assert policy_from_canonical(made.canonical()) == made


def test_rotation_periods_stand_where_they_are_written_and_the_tags_own_goes_first() -> None:
    """A silent policy has the digest that it always had; a tag's own period, the shortest of several, goes first."""
    document = {
        "version": 1,
        "key_service": {"type": "local", "path": "/keys"},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
        "tags": {"pii": {"key": "pii"}, "month": {"key": "month-{p}", "rotate_every": "30d"}},
    }
    silent = frozen({**document, "tags": {"pii": {"key": "pii"}}})
    assert (silent.rotation_period("pii"), "rotate_every" in silent.canonical()) == (None, False)
    own = frozen(document)
    day = 86_400
    assert [own.rotation_period(key) for key in ("pii", "month-7")] == [None, 30 * day]
    both = frozen({**document, "rotate_every": "52w"})
    periods = [both.rotation_period(key) for key in ("pii", "footer", "month-7")]
    assert periods == [364 * day, 364 * day, 30 * day]
    assert policy_from_canonical(both.canonical()) == both
    shorter = {**document["tags"], "strict": {"key": "pii", "rotate_every": "1d"}}  # type: ignore[dict-item]
    assert frozen({**document, "rotate_every": "52w", "tags": shorter}).rotation_period("pii") == day


def test_formats_are_parquet_alone_unless_they_are_written() -> None:
    """A silent policy, and one that writes the default, have the digest that policies always had."""
    document = {
        "version": 1,
        "key_service": {"type": "local", "path": "/keys"},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
        "tags": {"pii": {"key": "pii"}},
    }
    silent = frozen(document)
    assert (silent.formats, "formats" in silent.canonical()) == (("parquet",), False)
    assert frozen({**document, "formats": ["parquet"]}).digest() == silent.digest()
    both = frozen({**document, "formats": ["orc", "parquet"]})
    assert both.formats == ("parquet", "orc")
    assert policy_from_canonical(both.canonical()) == both


def test_data_are_kept_as_long_as_the_longest_of_a_keys_tags_says() -> None:
    """A tag without an end keeps what is under its key, whatever another tag of the key says."""
    document = {
        "version": 1,
        "key_service": {"type": "local", "path": "/keys"},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
    }
    tags: dict[str, Any] = {"a": {"key": "k", "retention": "10d"}, "b": {"key": "k", "retention": "20d"}}
    assert frozen({**document, "tags": tags}).retention_of("k") == 20 * 86_400
    assert frozen({**document, "tags": {**tags, "c": {"key": "k"}}}).retention_of("k") is None
    assert frozen({**document, "tags": tags}).retention_of("other") is None
