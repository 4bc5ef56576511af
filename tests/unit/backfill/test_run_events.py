"""Events of OpenLineage about runs: what a listener hears, that tags come back by them, and that none ends a run."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.runs.passes import run_events
from sparkcrypt.runs.passes.run_events import Dataset, RunEvents, is_set_up
from sparkcrypt.tags.exports.openlineage import read_openlineage
from sparkcrypt.tags.field_metadata import ColumnLineage, PartLineage
from tests.unit.backfill.plans import planned
from tests.unit.backfill.run_reports import report

CANARY = "canary-of-a-value"
TABLE = Dataset("hive://metastore:9083", "sales.customers")
NOTED = (
    ColumnLineage("email", tags=("pii",), origins=(("crm.people", "mail"),), conditions=(("crm.people", "id"),)),
    ColumnLineage("email", origins=(("s3a://lake/raw", "e.mail"),)),
    ColumnLineage("phones", parts=(PartLineage("element", ("pii",), (("crm.people", "phone"),)),)),
    ColumnLineage("id", declassified=(("crm.people", "ssn"),)),
    ColumnLineage("email", declassified=(("crm.people", "ssn"),)),
)


@dataclass
class Heard:
    """What a listener was sent, and how it answers."""

    events: list[dict[str, Any]] = field(default_factory=list)
    requests: int = 0
    answer: int = 201


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing is set up, and no event was sent by this process; what the client sets is taken back."""
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE_")]:
        monkeypatch.delenv(name)
    before = dict(os.environ)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_events, "_SENDER", run_events._Sender())
    yield
    for name in os.environ.keys() - before.keys() - {"OPENLINEAGE_URL", "OPENLINEAGE_NAMESPACE"}:
        del os.environ[name]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """A listener of OpenLineage on 127.0.0.1, which the environment names."""
    told = Heard()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.requests += 1
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if told.answer == 201:
                told.events.append(json.loads(content))
            self.send_response(told.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # the base class names it so
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "night")
    yield told
    server.shutdown()
    server.server_close()


def run_once() -> None:
    """Make the events of a run that is done."""
    with RunEvents("encrypt", [TABLE], "20261121T101112Z-000000") as events:
        events.tell_run(report(key_ids=("pii", "footer")), planned(), NOTED)


def test_a_run_is_told_when_it_begins_and_ends(heard: Heard) -> None:
    """Both events are of one run; the last has its outcome, and the tags, keys and lineage of the table."""
    run_once()
    start, complete = heard.events
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert complete["job"]["namespace"] == "night" and complete["job"]["name"] == "sparkcrypt.encrypt.sales.customers"
    assert start["run"]["facets"]["sparkcrypt_run"]["runId"] == "20261121T101112Z-000000"
    told = complete["run"]["facets"]["sparkcrypt_run"]
    assert (told["runId"], told["outcome"], told["filesRewritten"]) == ("20261121T101112Z-3f9a2c", "done", 1000)
    (output,) = complete["outputs"]
    assert (output["namespace"], output["name"]) == ("hive://metastore:9083", "sales.customers")
    tags = [(entry["field"], entry["key"], entry["value"]) for entry in output["facets"]["tags"]["tags"]]
    assert tags == [("email", "pii", "true"), ("phones.element", "pii", "true")]
    keys = output["facets"]["sparkcrypt_keys"]
    assert keys["keyIds"] == ["pii", "footer"]
    assert keys["columns"] == {"ssn": "pii", "phones.list.element": "contact-2026-01"}
    made = output["facets"]["columnLineage"]["fields"]
    found = {
        column: [(origin["namespace"], origin["name"], origin["field"]) for origin in fields["inputFields"]]
        for column, fields in made.items()
    }
    assert found == {
        "email": [("hive://metastore:9083", "crm.people", "mail"), ("s3a://lake", "/raw", "e.mail")],
        "phones.element": [("hive://metastore:9083", "crm.people", "phone")],
    }


def test_tags_come_back_by_the_events(heard: Heard) -> None:
    """`tags pull --from openlineage` reads them, along the lineage of columns too; declassified ones carry none."""
    people = {"namespace": "hive://metastore:9083", "name": "crm.people"}
    own = [{"field": field, "key": tag, "value": "true"} for field, tag in (("mail", "contact"), ("ssn", "secret"))]
    run_once()
    events = [*heard.events, {"eventTime": "t", "inputs": [{**people, "facets": {"tags": {"tags": own}}}]}]
    found = set(read_openlineage("\n".join(map(json.dumps, events)), "events"))
    assert found == {
        ("sales.customers", "email", "pii"),
        ("sales.customers", "email", "contact"),
        ("sales.customers", "phones.element", "pii"),
        ("crm.people", "mail", "contact"),
        ("crm.people", "ssn", "secret"),
    }


def test_shredded_keys_are_told_by_table(heard: Heard) -> None:
    """A command that shreds has each table that went dark, with the keys and their columns."""
    with RunEvents("shred", [], namespace="hive://m:1") as events:
        events.tell_shredded("a", {"s.t": ("x", "y"), "s.u": ("x",)})
        events.tell_shredded("b", {"s.t": ("z",)})
    start, complete = heard.events
    assert (start["outputs"], complete["job"]["name"]) == ([], "sparkcrypt.shred")
    shredded = {told["name"]: told["facets"]["sparkcrypt_keys"]["shredded"] for told in complete["outputs"]}
    assert shredded == {"s.t": {"a": ["x", "y"], "b": ["z"]}, "s.u": {"a": ["x"]}}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (VerificationError("s.t: p=1 differs"), "VerificationError: s.t: p=1 differs"),
        (ValueError(CANARY), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_run_that_fails_says_why(heard: Heard, error: BaseException, message: str) -> None:
    """The error is the caller's as before; messages of other programs, which may have values, are not sent."""
    with pytest.raises(type(error)), RunEvents("rotate", [TABLE]):
        raise error
    assert [event["eventType"] for event in heard.events] == ["START", "FAIL"]
    assert heard.events[-1]["run"]["facets"]["errorMessage"]["message"] == message
    assert CANARY not in json.dumps(heard.events)


def test_a_listener_that_refuses_ends_no_run(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, and this process asks no more."""
    heard.answer = 400
    with caplog.at_level(logging.WARNING, "sparkcrypt"):
        run_once()
        run_once()
    assert heard.requests == 1
    told = [record.getMessage() for record in caplog.records if record.name.startswith("sparkcrypt")]
    assert len(told) == 1 and "an event was not sent: " in told[0] and "sends no further event" in told[0]


def test_without_the_client_a_run_goes_on(
    heard: Heard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where something sets it up and it is not installed, the next step is told once."""
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    run_once()
    run_once()
    assert heard.requests == 0
    assert [record.getMessage().count("sparkcrypt[openlineage]") for record in caplog.records] == [1]


def test_it_is_off_where_nothing_sets_it_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The client is not even imported, and nothing is said."""
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    run_once()
    assert caplog.records == []


def test_the_clients_own_file_sets_it_up(tmp_path: Path) -> None:
    """In the working folder or the home folder; here events go to a file, by another of the client's transports."""
    assert not is_set_up()
    events = tmp_path / "events"
    text = f"transport: {{type: file, log_file_path: {events}, append: true}}\n"
    (tmp_path / ".openlineage").mkdir()
    for place in (tmp_path / ".openlineage" / "openlineage.yml", tmp_path / "openlineage.yml"):
        place.write_text(text)
        assert is_set_up()
        place.unlink()
    (tmp_path / "openlineage.yml").write_text(text)
    run_once()
    assert [json.loads(line)["eventType"] for line in events.read_text().splitlines()] == ["START", "COMPLETE"]
