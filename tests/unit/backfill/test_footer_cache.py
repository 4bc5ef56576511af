"""What footers said is kept for files that have not changed, and never for what may change without them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparkcrypt.files.footers import FooterFacts, pack, unpack
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.spark.files.hadoop import SourceFile

INSIDE = FileSummary(
    *("a", "encrypted", "AES_GCM_V1", "footer", None, False, None, 1, 1, {}), wrappings=(Wrapping("footer", 1, "f"),)
)
BESIDE = replace(INSIDE, path="b", external_material=True)


def test_material_beside_a_file_is_read_anew(tmp_path: Path) -> None:
    """A file's stamp tells nothing of the file of key material beside it, which others may rotate; both are counted."""
    cache = FooterCache(LocalStateStore(tmp_path), "id")
    sources = [SourceFile("a", 10, 1), SourceFile("b", 10, 1)]
    found = {"a": FooterFacts(INSIDE, {}), "b": FooterFacts(BESIDE, {})}
    cache.keep("unit", sources, found)
    assert cache.find_known("unit", sources) == {"a": found["a"]}
    assert [dict(facts) for _, _, facts in cache.read_all()] == [found]


def test_packed_facts_say_where_the_material_is() -> None:
    """What tasks tell the driver holds it."""
    facts = {"a": FooterFacts(INSIDE, {}), "b": FooterFacts(BESIDE, {})}
    assert unpack(pack(facts)) == facts
