"""The metrics of all tables: their format to the letter, what they say, and what asks for them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkcrypt.runs.passes.estate import EstateStatus, TableStatus
from sparkcrypt.runs.passes.metrics import GAUGES, metrics_text
from tests.growth import Work, assert_linear
from tests.services.installed import ROOT
from tests.unit.backfill.estates import SECRET, estate

SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (?P<value>[0-9.e+]+)', re.ASCII
)
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"')
NAME = re.compile(r"sparkcrypt_[a-z_]+")


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Parse a file of metrics as strictly as the format's description allows."""
    assert text.endswith("\n") and "\r" not in text
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    known, current = set[str](), ""
    lines = text.split("\n")[:-1]
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in known, "metrics of one name stand together"
            known.add(current)
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {current} gauge" and before.startswith(f"# HELP {current} ")
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match["name"] == current
            labels = tuple((name, _unescape(value)) for name, value in LABEL.findall(match["labels"] or ""))
            assert (current, labels) not in found
            found[current, labels] = float(match["value"])
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def value(text: str, name: str, **labels: str) -> float:
    """Return the value of one sample."""
    return parsed(text)[name, tuple(labels.items())]


def test_every_metric_is_written_and_says_what_is_known() -> None:
    """A table of which everything is known has each of them."""
    text = metrics_text(estate())
    assert {name for name, _ in parsed(text)} == set(GAUGES)
    assert value(text, "sparkcrypt_tag_matching_bytes", tag="pii") == 80
    assert value(text, "sparkcrypt_table_drifted_files", table="s.t", kind="plaintext") == 2
    assert value(text, "sparkcrypt_table_last_pass_outcome", table="s.t", outcome="incomplete") == 1
    assert value(text, "sparkcrypt_table_run_rewritten_bytes_per_second", table="s.t") == 250
    assert value(text, "sparkcrypt_table_old_plaintext_since_timestamp_seconds", table="s.t") == 1795132800
    assert value(text, "sparkcrypt_table_old_beyond_grace", table="s.t") == 1
    assert value(text, "sparkcrypt_table_tags_lost", table="s.t") == 1
    assert value(text, "sparkcrypt_key_rotation_overdue_since_timestamp_seconds", key="pii") == 1793491200


def test_what_is_not_known_is_absent() -> None:
    """A zero would be taken for good news; whether the key service answered has a metric of its own."""
    text = metrics_text(EstateStatus("2026-11-27T00:00:00Z", "d", overdue=None))
    assert {name for name, _ in parsed(text)} == {
        "sparkcrypt_status_timestamp_seconds", "sparkcrypt_tables", "sparkcrypt_earlier_tables", "sparkcrypt_keys_known"
    }  # fmt: skip
    assert value(text, "sparkcrypt_keys_known") == 0
    bare = EstateStatus("2026-11-27T00:00:00Z", "d", tables=(TableStatus("s.t", "id"),))
    assert not [name for name, _ in parsed(metrics_text(bare)) if "_old_" in name or "_files" in name]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\\nb", "ä{b}", "a,b=c", "\ud800"])
def test_labels_are_escaped(name: str) -> None:
    """Whatever a table is called, its name is one value of a label, and the file stays readable."""
    shown = name.encode(errors="replace").decode()
    assert value(metrics_text(estate(name)), "sparkcrypt_table_files", table=shown) == 10


def test_no_value_is_in_metrics() -> None:
    """Units, problems and reasons are named by values of partition columns, and by messages."""
    assert SECRET not in metrics_text(estate())


def test_cost_grows_with_the_tables() -> None:
    """Each has its samples."""

    def prepare(number: int) -> Work:
        done = estate(tables=number)
        return lambda: metrics_text(done)

    assert_linear(prepare, 60, most=2.1)


def expressions(document: Any) -> list[str]:
    """Return every expression of a document of Grafana or Prometheus."""
    if isinstance(document, list):
        return [found for part in document for found in expressions(part)]
    if not isinstance(document, dict):
        return []
    own = [document["expr"]] if "expr" in document else []
    return own + [found for part in document.values() for found in expressions(part)]


def documents(folder: Path = ROOT / "conf" / "monitoring") -> dict[str, Any]:
    """Return what is there for Grafana and Prometheus."""
    alerts = yaml.safe_load((folder / "alerts.yaml").read_text())
    return {"dashboard": json.loads((folder / "dashboard.json").read_text()), "alerts": alerts}


def test_dashboard_and_alerts_ask_for_what_is_written() -> None:
    """Each of their names is one of the code's, with labels that its samples have, and each has its purpose."""
    samples = parsed(metrics_text(estate()))
    labels = {name: {label for label, _ in pairs} for name, pairs in samples}
    asked = {kind: expressions(document) for kind, document in documents().items()}
    for expression in [*asked["dashboard"], *asked["alerts"]]:
        names = NAME.findall(expression)
        assert names and set(names) <= set(GAUGES), expression
        by = re.findall(r"by \((\w+)\)|\{(\w+)", expression)
        assert {label for pair in by for label in pair if label} <= labels[names[0]], expression
    used = {name for found in asked.values() for expression in found for name in NAME.findall(expression)}
    assert set(GAUGES) - used == {
        "sparkcrypt_earlier_tables", "sparkcrypt_table_files", "sparkcrypt_table_last_pass_timestamp_seconds",
        "sparkcrypt_table_old_bytes", "sparkcrypt_table_old_plaintext_files", "sparkcrypt_table_quarantined_units",
    }  # fmt: skip


def test_texts_of_alerts_name_labels_that_samples_have() -> None:
    """Else an alert would come without the name of its table."""
    labels = {name: {label for label, _ in pairs} for name, pairs in parsed(metrics_text(estate()))}
    (group,) = documents()["alerts"]["groups"]
    for rule in group["rules"]:
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named <= labels[NAME.findall(rule["expr"])[0]], rule["alert"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])


def test_legends_and_places_of_panels_are_in_order() -> None:
    """A legend names a label that is left by its expression, and no panel lies over another."""
    labels = {name: {label for label, _ in pairs} for name, pairs in parsed(metrics_text(estate()))}
    taken: set[tuple[int, int]] = set()
    for panel in documents()["dashboard"]["panels"]:
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert named <= labels[NAME.findall(target["expr"])[0]], panel["title"]
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
