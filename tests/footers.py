"""Footers in the cache of a state directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkcrypt.files.footers import Found
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.spark.files.listing import SourceFile


def unit_named(name: str, sources: Sequence[SourceFile]) -> Unit:
    """Return a unit of one folder."""
    return Unit(name, f"/t/{name}", None, name, {}, (Folder("", tuple(sources)),))


def keep_footers(cache: FooterCache, unit: str, sources: Sequence[SourceFile], found: Mapping[str, Found]) -> None:
    """Keep what the footers of the files of one unit say."""
    cache.keep([unit_named(unit, sources)], {unit: found}, {unit})
