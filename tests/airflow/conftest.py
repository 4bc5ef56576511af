"""Collection rules: tests below inside/ import Airflow, and test_airflow.py runs them in its environment."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("airflow") else ["inside"]
