"""What a person must decide first stands first among the problems of an unfinished run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.runs.old_folders import replacements
from sparkcrypt.runs.rewrite.recover import Recovered
from sparkcrypt.runs.rewrite.schedule import FailedUnit


def test_a_swap_that_was_cut_off_is_named_before_what_tells_to_close_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the run, as an unproven unit tells to, is refused until the swap is decided."""
    monkeypatch.setattr(replacements, "problems_of", lambda _: None)
    monkeypatch.setattr(replacements, "_name_folders", lambda *_: ("old", "here"))
    monkeypatch.setattr(replacements, "describe_cut_off", lambda *_: "its swap was cut off")

    def open_problem(_: Any, __: Any, name: str, *what: Any) -> FailedUnit:
        return FailedUnit(name, "OpenProblem", what[-1][1])

    monkeypatch.setattr(replacements, "open_problem", open_problem)
    unproven = FailedUnit("p=0", "VerificationError", "run once with --resume never")
    recovered = Recovered(problems=[unproven], cut_off=[cast("Any", SimpleNamespace(name="p=1", staged="s"))])
    assert [unit.name for unit in replacements.open_cut_off(cast("Any", None), recovered).problems] == ["p=1", "p=0"]
    with pytest.raises(VerificationError, match="its swap was cut off"):
        recovered.refuse_problems()
