"""Places as the helper compares them, of tables and of the log."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.paths import Place, PlaceIndex, comparable_path, hadoop_local_path, is_local, is_within, local_path
from tests.services.installed import ROOT, java_home, spark_home
from tests.services.quick_java import QUICK

FILE = ROOT / "tests" / "places.json"
CASES = json.loads(FILE.read_text())


@pytest.mark.parametrize("case", CASES["forms"], ids=lambda case: case[0])
def test_form(case: list[str]) -> None:
    """All spellings of a place have one form, which is its own form."""
    text, scheme, authority, path = case
    assert Place.of(text) == Place(scheme, authority, path)
    assert not path.startswith("/") or comparable_path(comparable_path(text)) == comparable_path(text)


@pytest.mark.parametrize("case", CASES["aliased"], ids=lambda case: case[0])
def test_alias(case: list[str]) -> None:
    """What an alias names whole, or a place below that, has the name that counts."""
    aliases = [(Place.of(name), Place.of(real)) for name, real in CASES["aliases"].items()]
    assert Place.of(case[0], aliases).text() == case[1]


@pytest.mark.parametrize("case", CASES["within"], ids=lambda case: f"{case[0]} in {case[1]}")
def test_within(case: list[object]) -> None:
    """A place is within another of the same store, and within one that does not say its store."""
    assert is_within(str(case[0]), str(case[1])) is case[2]


@pytest.mark.parametrize(
    ("text", "for_hadoop", "for_people"),
    [
        ("/a%20b/#c", "/a%20b/#c", "/a%20b/#c"),
        ("file:/a%20b/#c?d", "/a%20b/#c?d", "/a b/#c?d"),
        ("file:///a", "/a", "/a"),
        ("file://localhost/a", "/a", "/a"),
        ("FILE:/a", "/a", "/a"),
        ("file:a", None, "a"),
        ("a/day=10:00", None, "a/day=10:00"),
        ("hdfs://n/a", None, None),
        ("hdfs:/a", None, None),
        ("file://other/a", None, ConfigError),
    ],
)
def test_local_path(text: str, for_hadoop: str | None, for_people: str | type[Exception] | None) -> None:
    """Text of Hadoop's is taken as it is, a URI that people give is unescaped; another machine's is neither."""
    assert hadoop_local_path(text) == for_hadoop
    assert is_local(text) is (for_people is not None)
    if isinstance(for_people, str):
        assert local_path(text) == for_people
    elif for_people is not None:
        with pytest.raises(for_people, match="is on 'other'; allowed: a path, or file:/path"):
            local_path(text)


@pytest.mark.slow
def test_jar_has_the_same_form() -> None:
    """The jar answers each case as Python does."""
    jars = f"{ROOT / 'sparkcrypt' / '_jar' / 'sparkcrypt.jar'}:{spark_home() / 'jars'}/*"
    source = Path(__file__).with_name("PlaceCheck.java")
    command = [str(java_home() / "bin" / "java"), *QUICK, "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]
    done = subprocess.run([*command, "-cp", jars, source, FILE], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == CASES


def test_links(tmp_path: Path) -> None:
    """Links of a local file system are followed, also to what does not exist; other stores have none."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "ahead").symlink_to(tmp_path / "not" / "yet")
    root = os.path.realpath(tmp_path)
    assert Place.of(f"file:{tmp_path}/link/p=1").without_links() == Place("file", "", f"{root}/real/p=1")
    assert Place.of(f"{tmp_path}/ahead/p=1").without_links() == Place(None, "", f"{root}/not/yet/p=1")
    for text in (f"hdfs://nn{tmp_path}/link", "lake/t"):
        assert Place.of(text).without_links() == Place.of(text)


def test_index_finds_what_a_look_at_all_places_finds() -> None:
    """At, above and below, with places that do not say their store."""
    chosen = random.Random(1)
    stores = ("", "file:", "s3a://a", "s3a://b", "hdfs:", "hdfs://nn")

    def any_place() -> str:
        return chosen.choice(stores) + "".join(f"/{chosen.choice('ab')}" for _ in range(chosen.randrange(5)))

    known = [Place.of(any_place()) for _ in range(300)]
    index = PlaceIndex((place, number) for number, place in enumerate(known))
    for _ in range(300):
        place = Place.of(any_place())
        above = [number for _, number in index.find_above(place)]
        assert sorted(above) == [number for number, other in enumerate(known) if place.is_within(other)]
        assert [len(known[number].path) for number in above] == sorted(
            (len(known[number].path) for number in above), reverse=True
        )
        below = [n for n, other in enumerate(known) if other.is_within(place) and other.path != place.path]
        assert sorted(number for _, number in index.find_below(place)) == below


def test_index_does_not_look_at_all_places() -> None:
    """Of ten thousand tables, a look-up compares only those on the way up."""
    compared = 0

    class Counted(Place):
        def is_alike(self, other: Place) -> bool:
            nonlocal compared
            compared += 1
            return super().is_alike(other)

    index = PlaceIndex((Place("s3a", "lake", f"/db/t{number}"), number) for number in range(10_000))
    at = Counted("s3a", "lake", "/db/t77/p=1/q=2")
    assert [number for _, number in index.find_above(at)] == [77]
    assert compared == 1


@pytest.mark.slow
def test_log_of_a_policy_is_the_same_key_of_maps_whenever_it_is_asked_for() -> None:
    """Events that wait, the bound on them and events that were written at once are found under it again."""
    jars = f"{ROOT / 'sparkcrypt' / '_jar' / 'sparkcrypt.jar'}:{spark_home() / 'jars'}/*"
    source = Path(__file__).with_name("LogPlaceCheck.java")
    command = [str(java_home() / "bin" / "java"), *QUICK, "-cp", jars, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "true true false\n"
