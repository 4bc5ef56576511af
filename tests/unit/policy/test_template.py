"""Keys in policies: templates, retention, and former key services."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.policy import KeyTemplate
from sparkcrypt.policy.key_service import FormerService, KeyServiceConfig, split_former
from sparkcrypt.policy.load import load_policy

NULL = "__HIVE_DEFAULT_PARTITION__"
VALUES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def test_fixed_key_is_itself() -> None:
    """A text without braces is the key id, whatever signs it holds."""
    template = KeyTemplate("arn:aws:kms:eu-1:1:key/a b;c,d")
    assert template.render({}) == template.text
    assert template.columns == ()
    assert template.matches(template.text)
    assert not template.matches(template.text + "x")


def test_doubled_braces_are_braces() -> None:
    """Braces that belong to the key id are written twice."""
    assert KeyTemplate("a{{b}}-{p}").render({"p": "1"}) == "a{b}-1"


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        ("2026-01", "k-2026-01"),
        ("a b", "k-a%20b"),
        ("a/b", "k-a%2Fb"),
        ("ä", "k-%C3%A4"),
        ("%41", "k-%2541"),
        ("a:b;c,d=e", "k-a%3Ab%3Bc%2Cd%3De"),
        ("😀", "k-%F0%9F%98%80"),
        ("...", "k-..."),
        (NULL, f"k-{NULL}"),
    ],
)
def test_value_is_percent_encoded(value: str, rendered: str) -> None:
    """Letters, digits and - _ . ~ stay, the rest is percent-encoded; rows without a value have a key of their own."""
    assert KeyTemplate("k-{p}").render({"p": value}) == rendered


@pytest.mark.parametrize("value", ["../footer", "..", ".", "a/../b", "./a", "a/..", "..\\footer", ""])
def test_value_that_leaves_the_template_is_refused(value: str) -> None:
    """A value with a step up, or none, is a PlanError that names column and template."""
    with pytest.raises(PlanError, match=r"partition p=.* cannot stand in key 'k-\{p\}'"):
        KeyTemplate("k-{p}").render({"p": value})


def test_half_a_character_is_refused() -> None:
    """A value that UTF-8 cannot hold is a PlanError."""
    with pytest.raises(PlanError, match="half a character"):
        KeyTemplate("k-{p}").render({"p": "\ud800"})


@pytest.mark.parametrize(
    "value",
    [NULL, "2026-13-01", "2026-02-30", "2026-01", "20260131", "31.01.2026", "2026-W05-6", "today", "２０２６-01-01"],
)
def test_value_that_is_no_date_is_refused(value: str) -> None:
    """Where a date is needed, anything else is a PlanError that says how dates are written, on every Python alike."""
    with pytest.raises(PlanError, match=r"is not a date, which key .* write dates as 2026-01-31"):
        KeyTemplate("k-{p:%Y-%m}").render({"p": value})


@pytest.mark.parametrize("value", ["2026-01-31", "2026-01-31 10:20:30", "2026-01-31T10:20", "2026-01-31 10:20:30.1"])
def test_dates_and_timestamps_have_a_month(value: str) -> None:
    """Dates, and timestamps as Spark writes them in folder names, go to their month."""
    assert KeyTemplate("k-{p:%Y-%m}").render({"p": value}) == "k-2026-01"


def test_missing_value_is_told() -> None:
    """A write that does not show a partition's value is refused by the column's name; names count with their case."""
    for partition in ({}, {"DAY": "2026-01-01"}):
        with pytest.raises(PlanError, match="needs the value of partition column 'day'"):
            KeyTemplate("k-{day}").render(partition)


@given(VALUES, VALUES)
def test_rendered_values_are_injective(first: str, second: str) -> None:
    """Two values of a column never share a key, and every key is told to be the template's."""
    template = KeyTemplate("k-{p}")
    rendered = []
    for value in (first, second):
        try:
            rendered.append(template.render({"p": value}))
        except PlanError:
            return
    assert (rendered[0] == rendered[1]) == (first == second)
    assert all(template.matches(key) for key in rendered)


@given(st.dates(), st.sampled_from(["%Y", "%Y-%m", "%Y/%m/%d", "%G-%V", "%Y.%j", "%y%m"]))
def test_dates_match_their_template(day: object, date_format: str) -> None:
    """What a date template renders, it also matches, whatever signs stand in the format."""
    template = KeyTemplate(f"k-{{p:{date_format}}}")
    assert template.matches(template.render({"p": str(day)}))


@pytest.mark.parametrize("key", ["k-", "k-a b", "k-%zz", "k-a/b", "x-a", "k-2026-01\n", "k-%c3"])
def test_foreign_key_does_not_match(key: str) -> None:
    """Keys that the template cannot render do not match it."""
    assert not KeyTemplate("k-{p}").matches(key)


@pytest.mark.parametrize("key", ["k-2026-1", "k-2026-01-01", "k-abc", "k-2026-٠١"])
def test_foreign_date_does_not_match(key: str) -> None:
    """Keys that no date gives do not match a template of dates."""
    assert not KeyTemplate("k-{p:%Y-%m}").matches(key)


DATED = {
    "month": ((("day", (("day", "%Y%m"),)),), {"day": "202501"}),
    "month with a sign": ((("day", (("day", "%Y-%m"),)),), {"day": "2025-01"}),
    "day": ((("day", (("day", "%d.%m.%Y"),)),), {"day": "31.01.2025"}),
    "hour": ((("day", (("day", "%Y-%m-%d-%H"),)),), {"day": "2025-01-31-07"}),
    "columns": (
        (("day", (("year", "%Y"), ("month", "%m"), ("dom", "%d"))),),
        {"year": "2025", "month": "1", "dom": "31"},
    ),
    "two columns": ((("day", (("year", "%Y"), ("month", "%m"))),), {"year": "2025", "month": "01", "dom": "x"}),
    "day of the year": ((("day", (("year", "%Y"), ("n", "%j"))),), {"year": "2025", "n": "031"}),
}


@pytest.mark.parametrize(("dates", "partition"), DATED.values(), ids=DATED)
def test_dates_are_written_as_the_policy_says(
    dates: tuple[tuple[str, tuple[tuple[str, str], ...]], ...], partition: dict[str, str]
) -> None:
    """A month, an hour, or a date of several partition columns gives the key of its bucket, and names its columns."""
    template = KeyTemplate("k-{day:%Y-%m}", dates)
    assert template.render(partition) == "k-2025-01"
    assert template.columns == tuple(column for column, _ in dates[0][1])
    with pytest.raises(PlanError, match=f"needs the value of partition column '{template.columns[-1]}'"):
        template.render({name: value for name, value in partition.items() if name != template.columns[-1]})


@pytest.mark.parametrize("value", ["2025-01", "2025", "202513", " 202501", "202501 ", "2025٠1", "", NULL, "20250101"])
def test_value_that_is_no_date_of_this_form_is_refused(value: str) -> None:
    """What another format wrote is refused with the form that is wanted; no month is guessed."""
    with pytest.raises(PlanError, match=r"is not a date of the form %Y%m, which key 'k-{m:%Y-%m}' needs"):
        KeyTemplate("k-{m:%Y-%m}", (("m", (("m", "%Y%m"),)),)).render({"m": value})


POLICY = """
version: 1
key_service:
  type: vault
  address: https://vault:8200
  former: {former}
footer: {{key: footer, mode: encrypted}}
untagged: plaintext
run_state: state/
tags:
  pii: {{key: pii}}
"""


def load(folder: Path, former: str) -> KeyServiceConfig:
    """Return the key service of a policy with these former ones."""
    (folder / "policy.yaml").write_text(POLICY.format(former=former))
    return load_policy(folder / "policy.yaml").key_service


def test_paths_are_those_of_the_policy_and_principals_have_their_own(tmp_path: Path) -> None:
    """The canonical text holds former services too, so a launch that is pinned is pinned with them."""
    config = load(tmp_path, "[{type: local, path: 'keys-{principal}', keys: [pii, 'contact-*']}]")
    current, (former,) = split_former(config)
    assert current == KeyServiceConfig.from_dict({"type": "vault", "address": "https://vault:8200"})
    assert former.config.options == {"path": f"{tmp_path}/keys-{getpass.getuser()}"}
    told = config.canonical().replace(getpass.getuser(), "{principal}")
    named = KeyServiceConfig.from_dict(json.loads(told)).for_principal("ann")
    assert split_former(named)[1][0].config.options["path"].endswith("/keys-ann")
    assert [former.has(key) for key in ("pii", "piio", "contact-2026", "my-contact-1", "footer")] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert FormerService(current, ("a.c", "*")).has("any\nthing")
    assert not FormerService(current, ("a.c",)).has("abc")
    assert current.place() == config.place() != former.config.place()
    waiting = {**config.to_dict(), "timeout_seconds": 3, "auth": {"method": "token"}}
    assert KeyServiceConfig.from_dict(waiting).place() == config.place()


@pytest.mark.parametrize(
    ("former", "problem"),
    [
        ("[]", r"key_service.former: is \[\]; allowed: a list of former key services"),
        ("local", r"key_service.former: is 'local'; allowed"),
        ("[{type: local, path: a}]", r"key_service.former.0: 'keys' is missing"),
        ("[{type: local, path: a, keys: pii}]", r"key_service.former.0.keys: is 'pii'; allowed: a list of key ids"),
        ("[{type: local, path: a, keys: []}]", r"key_service.former.0.keys: is \[\]; allowed"),
        (
            "[{type: local, path: a, keys: [p], region: x}]",
            r"policy.yaml:6: key_service.former.0.region: is not a known",
        ),
        ("[{type: local, keys: [p]}]", r"key_service.former.0: 'path' is missing"),
        ("[{type: ephemeral, secret: aa, keys: [p]}]", r"key_service.former.0.type: is 'ephemeral'"),
        ("[{type: vault, token: s.x, keys: [p]}]", r"key_service.former.0.token: holds a secret"),
        (
            "[{type: other, keys: [p], former: [{type: local, path: a, keys: [p]}]}]",
            r"key_service.former.0.former: stands in a former key service",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, former: str, problem: str) -> None:
    """Each with the line, and with what is allowed."""
    with pytest.raises(ConfigError, match=problem):
        load(tmp_path, former)


@pytest.mark.parametrize("former", ["x", [], ["local"], [{"type": "local"}], [{"type": "local", "keys": [""]}]])
def test_configuration_that_no_policy_wrote_is_refused(former: object) -> None:
    """A launch may carry the configuration alone."""
    config = KeyServiceConfig.from_dict({"type": "vault", "former": former})
    with pytest.raises(ConfigError, match=r"key_service: former (is|holds) .*; allowed: a list of former key services"):
        split_former(config)
