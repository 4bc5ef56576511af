"""Pages and pictures without scripts, external images or styles: of a pass, of all tables, and of their lineage."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from sparkcrypt.runs.passes.html import content, estate, pictures
from sparkcrypt.text import count_of, duration, size_of

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.estate import EstateStatus
    from sparkcrypt.runs.passes.lineage import Lineage

_PAGE, _STATUS, _STYLE, _LINEAGE = "backfill.html.j2", "status.html.j2", "backfill.css", "lineage.svg.j2"


def report_html(report: Mapping[str, Any]) -> str:
    """Return a pass's report as an HTML page.

    All values of the report are escaped, since names of tables, columns and files come from users.  Long lists are cut,
    with the number of omitted elements; the JSON report has all of them.

    Args:
        report: JSON values, as `sparkcrypt.runs.passes.report.PassReport.to_dict` returns them.  For a pass that
            failed, ``outcome`` and ``error`` are enough.
    """
    return load_template(_PAGE).render(
        **_style(),
        picture=pictures,
        **_sections(report),
        **{name: content.make_visible(report.get(name) or "") for name in ("pass_id", "policy_digest", "version")},
    )


def status_html(done: EstateStatus, place: str) -> str:
    """Return the status of all tables as an HTML page; long lists are cut, and all values are escaped.

    Args:
        done: the status.
        place: where the page is written, from which links lead to reports of passes.
    """
    return load_template(_STATUS).render(**_style(), **estate.status_sections(done, place))


def _style() -> dict[str, str]:
    """Return the name of the style sheet, and the digest by which the page's policy allows it alone."""
    style = load_template(_STYLE).render()
    return {
        "style_name": _STYLE,
        "style_digest": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    }


def embed(page: str) -> str:
    """Return a page as an element of another, such as a notebook, whose styles it neither gets nor changes."""
    return f'<iframe srcdoc="{escape(page)}" style="width: 100%; height: 40em; border: 0"></iframe>'


def draw_lineage(lineage: Lineage) -> str:
    """Return the lineage of tables as a self-contained SVG."""
    return load_template(_LINEAGE).render(**pictures.lineage_picture(lineage))


def _sections(report: Mapping[str, Any]) -> dict[str, Any]:
    problems = list(content.problems_of(report))
    return {
        "head": content.headline(report),
        "dry": report.get("outcome") == "dry run",
        "report": report,
        "sums": content.totals(report),
        "problems": content.cut(problems),
        "count": len(problems),
        "warnings": content.cut(content.warnings_of(report)),
        "coverage": content.coverage(content.read_list(report, "tables")),
        "throughput": pictures.throughput(content.read_list(report, "throughput")),
        "remains": content.list_remainders(report),
        "tables": content.cut(content.sort_tables(report)),
        "details": content.cut(content.sort_tables(report), content.MOST_DETAILS),
        "units": content.sort_units(report, "units", "bytes_before"),
        "planned": content.sort_units(report, "planned", "bytes"),
        "unchanged": content.cut(report.get("unchanged") or []),
        "passed_over": content.cut(content.reasons_of(report, "passed_over")),
    }


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
        "duration": duration,
        "moment": content.moment,
        "size": size_of,
        "visible": content.make_visible,
    }
    environment.globals |= {
        "change": content.change,
        "count_of": count_of,
        "number": content.read_number,
        "content": content,
    }
    return environment
