"""The package as Python code meets it: what its help says, and what its functions take."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import sparkcrypt
from sparkcrypt import arrow
from sparkcrypt.policy.load import PolicySource
from sparkcrypt.runs.rewrite.options import RunKeywords, RunOptions

TAKE_A_POLICY = [
    function
    for function in (
        *(getattr(sparkcrypt, name) for name in dir(sparkcrypt)),
        *(getattr(arrow, name) for name in arrow.__all__),
    )
    if (function is sparkcrypt.Table or inspect.isfunction(function))
    and "policy" in inspect.signature(function).parameters
]


@pytest.mark.parametrize("function", TAKE_A_POLICY, ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_a_policy_may_be_the_path_of_its_file(function: Callable[..., Any]) -> None:
    """Every exported function that takes a policy takes its path too, and says so."""
    assert inspect.signature(function).parameters["policy"].annotation == "PolicySource"
    assert re.search(r"policy: [^:]*path of its file", inspect.getdoc(function) or "", re.DOTALL)
    assert str in PolicySource.__args__


def test_the_functions_that_take_a_policy_are_known() -> None:
    """The test above sees them all."""
    names = {function.__name__ for function in TAKE_A_POLICY}
    assert names >= {"Table", "configure", "encrypt_table", "open_orc", "open_table", "read_table", "session", "status"}


def test_keywords_of_a_run_are_its_options() -> None:
    """What type checkers know of ``encrypt_table(…, engine=…)`` has each option, with its type."""
    hints = get_type_hints(RunOptions)
    assert get_type_hints(RunKeywords) == {known.name: hints[known.name] for known in fields(RunOptions)}


def test_the_help_begins_with_an_example_and_every_name() -> None:
    """It fits two screens; each name is in one line of its list, and each method of a table is named."""
    assert len(pydoc.plain(pydoc.render_doc(sparkcrypt)).splitlines()) <= 80
    text = inspect.getdoc(sparkcrypt) or ""
    lines = text[text.index("sessions ") : text.index("\n\n`sparkcrypt.arrow`")].splitlines()
    listed = {word for line in lines for word in re.findall(r"\w+", line.partition(":")[0])[1:]}
    (named,) = (line.partition(":")[2] for line in lines if line.startswith("tables"))
    methods = [name for name, _ in inspect.getmembers(sparkcrypt.Table, inspect.isfunction) if name[0] != "_"]
    assert listed == {*dir(sparkcrypt)} - {"__version__"}
    assert sorted(methods) == sorted(re.findall(r"\w+", named))
