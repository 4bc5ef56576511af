"""The reference of the command line says what the commands say."""

from __future__ import annotations

from tools.write_commands_page import PAGE, render_page


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    """Every command and option is on the page, in the words of its help."""
    assert PAGE.read_text() == render_page(), "run: python tools/write_commands_page.py"
