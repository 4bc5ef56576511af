"""Sections of a policy that name places: ``index``, where stores for data skipping are, and ``aliases``."""

from __future__ import annotations

from collections.abc import Callable

from sparkcrypt.errors import show
from sparkcrypt.paths import Place, split_path
from sparkcrypt.policy.model import INDEX_SCHEMES
from sparkcrypt.policy.section import Section


def index_location_of(root: Section, resolve: Callable[[str], str]) -> str | None:
    """Return the location of stores for data skipping; None if the policy names none.

    Args:
        root: the document; a location on a file system that is not allowed for stores is a problem.
        resolve: makes a relative path absolute.
    """
    if "index" not in root.names():
        root.raw("index", None)
        return None
    index = root.section("index")
    location = index.text("location")
    index.close()
    if not location:
        return None
    place = resolve(location)
    scheme = split_path(place)[0]
    if scheme not in (None, *INDEX_SCHEMES):
        index.problem(
            "location",
            f"{show(place)}: stores are not kept on {place.partition(':')[0]}:, where two writers of one store could "
            f"not be kept apart; allowed: a local path, {', '.join(f'{name}:' for name in INDEX_SCHEMES)}; files of "
            "tables may be elsewhere",
        )
    return place


def aliases_of(root: Section) -> tuple[tuple[Place, Place], ...]:
    """Return the further names of places, each with the place by the name that counts.

    Args:
        root: the document; a name that is no URI, counts itself for another, or has two meanings is a problem.
    """
    section = root.section("aliases", {})
    found, spelled = dict[Place, Place](), dict[Place, str]()
    for name in sorted(map(str, section.names())):
        named, real = Place.of(name), Place.of(section.text(name))
        spelled.setdefault(named, name)
        if named.scheme is None or real.scheme is None:
            section.problem(name, _NO_URI)
        elif found.setdefault(named, real) != real:
            section.problem(name, "is another spelling of a name above, and leads elsewhere; keep one")
        elif named.is_within(real) or real.is_within(named):
            section.problem(name, f"lies in {real.text()} or has it inside, so it is no other name of it; {_NEXT}")
    for named, real in found.items():
        for other in found:
            if real.is_within(other):
                section.problem(spelled[named], f"leads to {real.text()}, which is itself below an alias; {_NEXT}")
    section.close()
    return tuple(sorted(found.items(), key=lambda pair: pair[0].text()))


_NEXT = "name the place by which the catalog knows its tables"
_NO_URI = "is no alias; allowed: a URI and the one that counts for it, such as hdfs://nn1.example.org:8020: hdfs://prod"
