"""The names of the engines that rewrite files: by their pages, or by their rows."""

from __future__ import annotations

from typing import Literal

Engine = Literal["native", "spark"]
ENGINES: tuple[Engine, ...] = ("native", "spark")
