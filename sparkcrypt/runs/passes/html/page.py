"""The report of a backfill pass as one self-contained HTML page: no scripts, no external images or styles."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from sparkcrypt.runs.passes.html import pictures, tables, view
from sparkcrypt.runs.passes.html.text import make_visible

_PAGE, _STYLE = "backfill.html.j2", "backfill.css"


def report_html(report: Mapping[str, Any]) -> str:
    """Return a pass's report as an HTML page.

    All values of the report are escaped, since names of tables, columns and files come from users.  Long lists are cut,
    with the number of omitted elements; the JSON report has all of them.

    Args:
        report: JSON values, as `sparkcrypt.runs.passes.report.PassReport.to_dict` returns them.  For a pass that
            failed, ``outcome`` and ``error`` are enough.
    """
    style = load_template(_STYLE).render()
    return load_template(_PAGE).render(
        style_name=_STYLE,
        style_digest=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        picture=pictures,
        **_sections(report),
        **_identifiers(report),
    )


def _sections(report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "head": view.headline(report),
        "dry": report.get("outcome") == "dry run",
        "figures": view.figures(report),
        "problems": view.cut(list(view.problems_of(report))),
        "warnings": view.cut(view.warnings_of(report)),
        "coverage": tables.coverage(view.read_list(report, "tables")),
        "throughput": pictures.throughput(view.read_list(report, "throughput")),
        "remains": tables.list_remainders(report),
        "tables": tables.table_rows(report),
        "details": tables.details(report),
        "units": tables.unit_rows(report),
        "planned": tables.unit_rows(report, "planned"),
        "unchanged": view.cut([make_visible(name) for name in report.get("unchanged") or []]),
        "passed_over": view.cut(view.reasons_of(report, "passed_over")),
    }


def _identifiers(report: Mapping[str, Any]) -> dict[str, str]:
    return {name: make_visible(report.get(name) or "") for name in ("pass_id", "policy_digest", "version")}


def load_template(name: str) -> Template:
    """Return a template of this package, which escapes all values."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("sparkcrypt.runs.passes.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
