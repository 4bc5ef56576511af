"""Tests below inside/ import Airflow, and so run in its environment only: test_airflow.py starts them there."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("airflow") else ["inside"]
