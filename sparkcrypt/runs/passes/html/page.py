"""The report of a backfill pass as one self-contained HTML page: no scripts, no external images or styles."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from sparkcrypt.runs.passes.html import advice, pictures, tables, text, view
from sparkcrypt.text import count_of, size_of

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
    problems = list(view.problems_of(report))
    return {
        "head": view.headline(report),
        "dry": report.get("outcome") == "dry run",
        "report": report,
        "sums": view.totals(report),
        "problems": view.cut(problems),
        "count": len(problems),
        "warnings": view.cut(view.warnings_of(report)),
        "coverage": tables.coverage(view.read_list(report, "tables")),
        "throughput": pictures.throughput(view.read_list(report, "throughput")),
        "remains": tables.list_remainders(report),
        "tables": view.cut(tables.sort_tables(report)),
        "details": view.cut(tables.sort_tables(report), tables.MOST_DETAILS),
        "units": tables.sort_units(report, "units", "bytes_before"),
        "planned": tables.sort_units(report, "planned", "bytes"),
        "unchanged": view.cut(report.get("unchanged") or []),
        "passed_over": view.cut(view.reasons_of(report, "passed_over")),
    }


def _identifiers(report: Mapping[str, Any]) -> dict[str, str]:
    return {name: text.make_visible(report.get(name) or "") for name in ("pass_id", "policy_digest", "version")}


def load_template(name: str) -> Template:
    """Return a template of this package, which escapes all values."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("sparkcrypt.runs.passes.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "amount": "{:,.0f}".format,
        "duration": text.duration,
        "moment": text.moment,
        "size": size_of,
        "visible": text.make_visible,
    }
    environment.globals |= {
        "advice": advice,
        "change": text.change,
        "count_of": count_of,
        "number": view.read_number,
        "view": view,
    }
    return environment
