"""How deep a run is: from the call to the work on one unit, and from there to a page."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import sparkcrypt
from sparkcrypt import encrypt_table
from sparkcrypt.files.orders import FileOrder, FileOutcome, KeySettings
from sparkcrypt.files.parquet.rewrite import chunk
from sparkcrypt.files.rewrite import rewrite
from sparkcrypt.runs.rewrite import native_engine as native
from tests.spark.support import Lake

pytestmark = pytest.mark.spark

TO_THE_UNIT = 5
TO_THE_PAGE = 16
PACKAGE = str(Path(sparkcrypt.__file__).parent)


class Reached(BaseException):
    """Raised where a page is converted; nothing catches it on the way."""


def own_frames(error: BaseException) -> list[str]:
    """Return the functions of this package between the call and the error, those of a unit's thread too."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{Path(frame.filename).stem}.{frame.name}" for frame in frames if frame.filename.startswith(PACKAGE)]


def test_few_frames_lie_between_the_call_and_a_page(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger can follow a run: five functions to the work on one unit, and few more to each of its pages."""

    def raise_here(*_: object) -> None:
        raise Reached

    def rewrite_here(
        _: object, orders: Sequence[FileOrder], lengths: object, keys: KeySettings, told: Callable[[int], None]
    ) -> list[FileOutcome]:
        return [rewrite(order, keys, {}) for order in orders]

    policy = lake.policy(tables=f"  files.x: {{location: '{lake.root / 'in'}', tags: {{email: pii}}}}\n")
    with lake.stranger() as stranger:
        stranger.sql("SELECT 1 AS id, 'x' AS email").write.parquet(str(lake.root / "in"))
    monkeypatch.setattr(native, "rewrite_in_tasks", rewrite_here)
    monkeypatch.setattr(chunk, "_convert", raise_here)
    with pytest.raises(Reached) as raised:
        encrypt_table(lake.spark, None, policy, path=str(lake.root / "in"), output=str(lake.root / "out"))
    frames = [name for name in own_frames(raised.value) if not name.startswith("test_flow")]
    to_unit = frames.index("units.process") + 1
    assert to_unit <= TO_THE_UNIT, frames
    assert len(frames) <= TO_THE_PAGE, frames
