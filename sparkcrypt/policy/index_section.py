"""The section ``index`` of a policy: where stores for data skipping are."""

from __future__ import annotations

from collections.abc import Callable

from sparkcrypt.errors import show
from sparkcrypt.paths import split_path
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
