"""The geometry of the report's pictures follows from the numbers, and its numbers read as people write them."""

from __future__ import annotations

import math
import random

import pytest

from sparkcrypt.runs.passes.html.content import (
    change,
    list_remainders,
    make_visible,
    moment,
    shell_word,
)
from sparkcrypt.runs.passes.html.content import coverage as coverage_groups
from sparkcrypt.runs.passes.html.pictures import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_STEPS,
    RIGHT,
    TOP,
    WIDTH,
    Throughput,
    throughput,
)
from sparkcrypt.text import count_of, duration, percent, size_of
from tests.unit.backfill.pass_reports import MEGABYTE, coverage, incomplete, points, quarantined, report, table


def corners(picture: Throughput) -> list[tuple[float, float]]:
    """Return the points of the line."""
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in picture.line.split())]


def drawn(document: list[dict[str, float]]) -> Throughput:
    """Return a picture that must be there."""
    picture = throughput(document)
    assert picture is not None
    return picture


def rate_at(picture: Throughput, y: float) -> float:
    """Return the rate that a height stands for, by the axis as it is labelled."""
    low, high = picture.y_ticks[0], picture.y_ticks[-1]
    return float(float(high.label.replace(",", "")) * (low.at - y) / (low.at - high.at))


def test_the_line_is_at_the_height_of_each_minute() -> None:
    """Rates are read off the axis as they were put in, over the time in which they were reached."""
    picture = drawn(points([20e6, 40e6, 30e6, 10e6]))
    assert picture.unit == "MB/s"
    line = corners(picture)
    assert [round(rate_at(picture, y), 1) for _, y in line] == [20, 20, 40, 40, 30, 30, 10, 10]
    width = (WIDTH - LEFT - RIGHT) / 4
    assert [x for x, _ in line[::2]] == pytest.approx([LEFT + width * minute for minute in range(4)], abs=0.1)
    assert rate_at(picture, picture.mean_y) == pytest.approx(25, abs=0.3)
    assert picture.summary == "6.0 GB in 4 min: 25.0 MB/s on average, 40.0 MB/s at most."
    labels = "0|30 s|1 min|1 min 30 s|2 min|2 min 30 s|3 min|3 min 30 s|4 min"
    assert "|".join(tick.label for tick in picture.x_ticks) == labels


@pytest.mark.parametrize(
    "document",
    [
        [],
        [{"seconds": 0.0, "files": 0, "bytes": 0}],
        [{"seconds": 5.0, "files": 0, "bytes": 0}],
        [{"seconds": 0, "bytes": 9}],
        [{"seconds": None, "bytes": None}],
        [{}],
        [{"seconds": math.nan, "bytes": 1}, {"seconds": 1, "bytes": math.inf}],
    ],
)
def test_without_bytes_or_time_there_is_no_picture(document: list[dict[str, float]]) -> None:
    """Nothing is drawn, and nothing is divided by zero."""
    assert throughput(document) is None


def test_one_point_is_a_flat_line_from_the_start() -> None:
    """A single unit is all that is known: its mean rate, over its time."""
    picture = drawn([{"seconds": 10.0, "files": 1, "bytes": 5 * MEGABYTE}])
    line = corners(picture)
    assert [x for x, _ in line] == [LEFT, WIDTH - RIGHT]
    assert {
        round(rate_at(picture, y) if picture.unit == "MB/s" else rate_at(picture, y) / 1000, 2) for _, y in line
    } == {0.5}


@pytest.mark.parametrize("seed", range(20))
def test_any_points_stay_inside_the_picture_and_keep_their_sum(seed: int) -> None:
    """However many points, of whatever size and order: the line is inside the axes, and its area is all bytes."""
    chance = random.Random(seed)
    document = [
        {"seconds": chance.uniform(0, 10 ** chance.uniform(-2, 6)), "bytes": chance.uniform(0, 1e15)}
        for _ in range(chance.choice([1, 2, 7, 300, 3000]))
    ]
    picture = drawn(document)
    line = corners(picture)
    assert len(line) <= 2 * MOST_STEPS
    assert all(LEFT <= x <= WIDTH - RIGHT and TOP - 0.1 <= y <= HEIGHT - BOTTOM for x, y in line)
    assert 3 <= len(picture.y_ticks) <= 7
    assert len({tick.label for tick in picture.y_ticks}) == len(picture.y_ticks)
    assert 2 <= len(picture.x_ticks) <= 10
    assert len({tick.label for tick in picture.x_ticks}) == len(picture.x_ticks)
    assert all(LEFT <= tick.at <= WIDTH - RIGHT for tick in picture.x_ticks)
    scale = {"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9}[picture.unit]
    area = sum(rate_at(picture, y) for _, y in line[::2]) * scale / (len(line) // 2)
    mean = rate_at(picture, picture.mean_y) * scale
    assert area == pytest.approx(mean, rel=0.02, abs=rate_at(picture, TOP) * scale * 0.005)


def test_coverage_is_summed_over_tables_and_shown_for_each_where_they_are_few() -> None:
    """Bytes weigh, not tables; more than six tables are one group."""
    small = table("db.small", coverage={"pii": coverage(before=1.0, after=1.0, total_bytes=100)})
    large = table("db.large", coverage={"pii": coverage(before=0.0, after=0.5, total_bytes=300)})
    groups = coverage_groups([small, large])
    assert [group.title for group in groups] == ["All tables", "db.small", "db.large"]
    whole = groups[0].rows.rows[0]
    assert (whole.before, whole.after) == (25.0, 62.5)
    assert (whole.before_text, whole.after_text, whole.data) == ("25.0 %", "62.5 %", "250 B of 400 B")
    assert len(coverage_groups([small] * 7)) == 1
    assert coverage_groups([table(coverage={})]) == ()


@pytest.mark.parametrize(
    ("found", "share"),
    [
        (
            {"files": 4, "bytes": 0, "before": {"files": 1, "bytes": 0}, "after": {"files": 4, "bytes": 0}},
            (25.0, 100.0),
        ),
        ({"files": 0, "bytes": 0, "before": {}, "after": {}}, (100.0, 100.0)),
        ({"files": 1, "bytes": 10, "before": None, "after": {"bytes": 99}}, (0.0, 100.0)),
    ],
)
def test_coverage_of_nothing_and_of_odd_numbers_is_a_share(
    found: dict[str, object], share: tuple[float, float]
) -> None:
    """Empty files count as files, no files need nothing, and no bar is longer than its track."""
    row = coverage_groups([table(coverage={"pii": found})])[0].rows.rows[0]
    assert (row.before, row.after) == share


def test_what_remains_adds_up_to_all_units() -> None:
    """Done, waiting and quarantined units are shares of one whole; tables that were not worked on have none."""
    rows = {row.table: row for row in list_remainders(incomplete()).rows}
    assert set(rows) == {"sales.orders", "sales.ledger", "sales.mirror"}
    orders = rows["sales.orders"]
    assert (orders.done, orders.waiting, orders.quarantined) == (60.0, 20.0, 20.0)
    assert orders.state == "2 waiting, 2 quarantined"
    assert (orders.units, orders.files, orders.data) == ("4 of 10 units", "8", "800.0 MB")
    assert (rows["sales.ledger"].state, rows["sales.ledger"].units) == ("failed", "")


def test_more_quarantined_units_than_are_left_do_not_overflow() -> None:
    """A report whose numbers do not agree still makes bars of at most their track."""
    held = [quarantined(f"p={number}", "FormatError", "") for number in range(5)]
    row = list_remainders(report(table(count=0, units_left=2, quarantined=held))).rows[0]
    assert row.done + row.waiting + row.quarantined == 100.0


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1.24e9, "1.2 GB"),
        (7.5e15, "7.5 PB"),
        (4.2e18, "4,200.0 PB"),
    ],
)
def test_sizes_have_decimal_units(number: float, text: str) -> None:
    """No size is ever a thousand of its unit but of the largest."""
    assert size_of(number) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 9, "0 %"),
        (9, 9, "100 %"),
        (1, 10**6, "< 0.1 %"),
        (10**6 - 1, 10**6, "> 99.9 %"),
        (1, 3, "33.3 %"),
        (0, 0, "100 %"),
    ],
)
def test_a_share_is_all_or_nothing_only_where_it_is(part: int, whole: int, text: str) -> None:
    """One file that is missing out of a million is not 100 %."""
    assert percent(part, whole) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (4.24, "4.2 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (185, "3 min 5 s"),
        (3599.7, "1 h"),
        (11_220, "3 h 7 min"),
        (86_399, "23 h 59 min"),
        (187_200, "2 d 4 h"),
        (8.64e7, "1,000 d"),
    ],
)
def test_time_spans_have_two_units_at_most(seconds: float, text: str) -> None:
    """No span has sixty of a unit."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-21T10:11:12+00:00", "2026-11-21 10:11:12 UTC"),
        ("2026-11-21T10:11:12.5Z", "2026-11-21 10:11:12 UTC"),
        ("2026-11-21T12:11:12+02:00", "2026-11-21 10:11:12 UTC"),
        ("2026-11-21T12:11:12", "2026-11-21 12:11:12"),
        ("yesterday", "yesterday"),
        (None, ""),
        (7, ""),
    ],
)
def test_times_are_shown_in_utc(text: object, shown: str) -> None:
    """Another offset is converted; what is no time is shown as it is, or not at all."""
    assert moment(text) == shown


def test_numbers_and_names_read_well() -> None:
    """One file, many files; more, less, the same; a cut name says so; a plain word has no quotes."""
    assert (count_of(1, "file"), count_of(3456, "file")) == ("1 file", "3,456 files")
    assert (change(0, 5), change(100, 101), change(100, 90), change(10**6, 10**6 + 1)) == (
        "",
        "+1.0 %",
        "−10.0 %",
        "±0.0 %",
    )
    assert make_visible("x" * 400) == "x" * 299 + "…"
    assert (shell_word("db.t"), shell_word("a b"), shell_word("a\tb")) == ("db.t", "'a b'", "$'a\\u0009b'")
