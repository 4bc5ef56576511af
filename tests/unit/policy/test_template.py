"""Key templates: what partition values may stand in them, and that they neither collide nor escape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.errors import PlanError
from sparkcrypt.policy import KeyTemplate

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
