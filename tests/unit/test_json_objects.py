"""Dataclasses as JSON objects: what the form of each field is, and that it comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from sparkcrypt.files.orders import EncryptionOrder, FileOrder
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.difference import Drift
from sparkcrypt.schema import Path


@dataclass(frozen=True, slots=True)
class Part(JsonObject, json_names={"total_bytes": "bytes", "secret": None}):
    """A part of a whole."""

    total_bytes: int
    secret: str = "of nobody's"


@dataclass(frozen=True, slots=True)
class Whole(JsonObject):
    """Every kind of field."""

    part: Part | None
    parts: tuple[Part, ...]
    keys: Mapping[Path, str | None]
    names: Mapping[str, tuple[str, ...]]
    prefix: bytes | None
    ids: frozenset[str] = frozenset()
    paths: tuple[Path, ...] = field(default=())


WHOLE = Whole(Part(1), (Part(2),), {("a", "b"): "k", ("c",): None}, {"t": ("x",)}, b"\xff", frozenset("ba"), (("p",),))
FORM = {
    "part": {"bytes": 1},
    "parts": [{"bytes": 2}],
    "keys": [[["a", "b"], "k"], [["c"], None]],
    "names": {"t": ["x"]},
    "prefix": "/w==",
    "ids": ["a", "b"],
    "paths": [["p"]],
}


def test_each_kind_of_field_has_its_form() -> None:
    """The members come in the order of the fields; what is named otherwise is, and what is no member is not there."""
    assert json.dumps(WHOLE.to_dict()) == json.dumps(FORM)
    empty = Whole(None, (), {}, {}, None).to_dict()
    assert list(empty.values()) == [None, [], [], {}, None, [], []]


@pytest.mark.parametrize(
    "order",
    [
        FileOrder(
            "s", "t", "encrypt", EncryptionOrder({("c",): None}, b"\0", "f", "plaintext", "AES_GCM_V1", {"k": "v"})
        ),
        FileOrder("s", "t", "copy", None, b"before", "AES_GCM_V1", replace=True, dark={("a", "b"): "gone"}),
        FileOrder(
            "s", "t", "rewrap", EncryptionOrder({("a",): "k"}, b"id"), dark={("b",): "gone"}, purges=True, format="orc"
        ),
    ],
)
def test_orders_come_back_whole(order: FileOrder) -> None:
    """What an executor gets is what the driver sent, of either format."""
    assert FileOrder.from_dict(json.loads(json.dumps(order.to_dict()))) == order


def test_an_order_that_lacks_a_member_is_refused() -> None:
    """No default takes the place of what is missing."""
    values = FileOrder("s", "t", "copy").to_dict()
    del values["dark"]
    with pytest.raises(KeyError, match="dark"):
        FileOrder.from_dict(values)


def test_forms_of_reports_stay() -> None:
    """What is left out of a form, and what stands for an empty object, is as before."""
    assert list(Drift("wrong_key", "f", None, "d", "k", only_keys=True).to_dict()) == [
        "kind",
        "file",
        "column",
        "detail",
        "key_id",
    ]
    made = Report("t", "run", "native", 1, 1, 0, 9, 8, 8, {}, True, 1.0, None, "done", audit={}, index={})
    assert [made.to_dict()[name] for name in ("audit", "index", "awaiting_expiry", "columns")] == [None, None, None, {}]
