"""How ORC files differ from a plan, what they are ordered to become, and what an audit says of them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import FormatError, PlanError
from sparkcrypt.files.orders import Action, EncryptionOrder, FileOrder
from sparkcrypt.files.parquet import ColumnSummary, FileSummary
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.ledger.audit.evidence import DigestSecret
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.runs.rewrite.file_orders import find_move, order_orc_file
from sparkcrypt.runs.table.columns import match_columns
from sparkcrypt.runs.table.difference import Drift, Rotation, _keeps_roots, drift_of_file, keeps_dark
from sparkcrypt.runs.table.unit_survey import action_of
from sparkcrypt.runs.table.untouchable import refuse_unknown_columns
from sparkcrypt.schema import Path
from tests.unit.backfill.plans import planned
from tests.unit.backfill.scanned_files import scanned_file

FILE = "/t/f.orc"
BOUND, NEW = FileIdentity("uuid", "", "f.orc").to_aad_prefix(), FileIdentity("uuid", "", "new.orc")
TAGGED = {"email": "pii", "phones._elem": "pii"}


def orc_file(
    keys: Mapping[str, str | None] | None = None,
    *,
    rows: int = 1,
    names: str = "id email phones._elem",
    identity: bytes | None = BOUND,
) -> Any:
    """Return the summary of an ORC file; columns of ``keys`` are encrypted."""
    held = keys or {}
    return FileSummary(
        path=FILE,
        footer="plaintext",
        algorithm=None,
        footer_key=None,
        aad_prefix=identity if held else None,
        supply_aad_prefix=False,
        aad_file_unique=None,
        rows=rows,
        row_groups=rows,
        columns={
            tuple(name.split(".")): ColumnSummary(True, held[name])
            if name in held
            else ColumnSummary(False if rows else None, None)
            for name in names.split()
        },
        wrappings=(Wrapping("pii", 1, "wrapped"),) if held else (),
        format="orc",
    )


def drift_in(file: FileSummary, **more: Any) -> list[tuple[str, str | None]]:
    """Return kind and column of each difference of a file."""
    found = drift_of_file(scanned_file(file, match_columns(file, planned()), **more), planned(), {}, table_uuid="uuid")
    assert {difference.only_keys for difference in found} <= {
        {difference.kind for difference in found} == {"wrong_key"}
    }
    return [(difference.kind, difference.column) for difference in found]


def columns_of(order: FileOrder) -> Mapping[Path, str | None]:
    """Return the columns of an order, with their keys."""
    return {} if order.encryption is None else order.encryption.columns


def order_planned(
    file: FileSummary, target: str, action: Action = "encrypt", *, plan: EncryptionPlan | None = None
) -> FileOrder:
    """Return the order of a file by a plan."""
    plan = plan or planned()
    known = scanned_file(file, match_columns(file, plan))
    keys = {path: key or plan.footer_key for path, key in known.columns.key_ids(plan, {}).items()}
    return order_orc_file(known, target, keys, NEW, action, purges=False)


def test_what_local_keys_are_bound_to_can_differ() -> None:
    """A file, or its local keys, of another table, partition or name; and keys that are bound to nothing."""
    for others in (None, b"f.orc", FileIdentity("other", "", "f.orc").to_aad_prefix(), NEW.to_aad_prefix()):
        assert drift_in(orc_file(TAGGED, identity=others)) == [("aad_mismatch", None)]
    by_path = FileIdentity(None, "", "f.orc").to_aad_prefix()
    assert drift_in(orc_file(TAGGED, identity=by_path)) == [("aad_mismatch", None)]
    assert drift_in(orc_file({"id": "pii"}, names="id", identity=None)) == [("extra", "id")]


def test_columns_and_keys_are_what_else_differs() -> None:
    """A file has no algorithm and no footer key that could differ."""
    assert drift_in(orc_file(TAGGED)) == []
    assert drift_in(orc_file()) == [("plaintext", None)]
    assert drift_in(orc_file(rows=0)) == []
    assert drift_in(orc_file({"email": "pii"})) == [("missing", "phones._elem")]
    assert drift_in(orc_file({**TAGGED, "id": "pii"})) == [("extra", "id")]
    assert drift_in(orc_file({**TAGGED, "email": "fin"})) == [("wrong_key", "email")]
    assert drift_in(orc_file({**TAGGED, "email": None})) == [("foreign_key", "email")]
    assert drift_in(orc_file(names="id other")) == []


def test_untagged_columns_are_under_the_footers_key_where_the_policy_says_so() -> None:
    """ORC has no footer key; the master key is the same."""
    plan = planned(untagged="footer_key")
    for key, expected in (("footer", []), ("pii", ["wrong_key"])):
        file = orc_file({**TAGGED, "id": key})
        found = drift_of_file(scanned_file(file, match_columns(file, plan)), plan, {}, table_uuid=None)
        assert [difference.kind for difference in found] == expected
    order = order_planned(file, "/n", plan=plan)
    assert columns_of(order) == {("id",): "footer", ("email",): "pii", ("phones",): "pii"}


def test_column_that_the_table_lacks_is_refused() -> None:
    """What has no tag would stay in clear; so would what is nested otherwise than the table's."""
    file = orc_file(names="email former")
    with pytest.raises(PlanError, match=r"f\.orc: holds column former, which the table's schema"):
        refuse_unknown_columns([scanned_file(file, match_columns(file, planned()))])
    with pytest.raises(PlanError, match=r"f\.orc: column phones\.element is read as a list"):
        match_columns(orc_file(names="phones.element"), planned())


def test_orders_follow_the_drift() -> None:
    """Without drift a file is copied, whatever is in it; keys are wrapped again; else it is encrypted or decrypted."""

    def order(file: FileSummary, action: Action = "encrypt") -> FileOrder:
        return order_planned(file, "/t/new.orc", action)

    def made(action: Action, columns: dict[Path, str], before: bytes | None = BOUND) -> FileOrder:
        encryption = None if action == "copy" else EncryptionOrder(columns, NEW.to_aad_prefix())
        return FileOrder(FILE, "/t/new.orc", action, encryption, before, replace=True, format="orc")

    held: dict[Path, str] = {("email",): "pii", ("phones", "_elem"): "pii"}
    whole: dict[Path, str] = {("email",): "pii", ("phones",): "pii"}
    assert order(orc_file(TAGGED), "copy") == made("copy", held)
    assert order(orc_file(TAGGED), "rewrap") == made("rewrap", held)
    assert order(orc_file(names="id"), "rewrap") == made("copy", {}, None)
    assert order(orc_file(TAGGED), "copy").master_keys() == set()
    assert order(orc_file()) == made("encrypt", whole, None)
    assert order(orc_file({"id": "pii"}, names="id")) == made("decrypt", {})


def test_local_keys_stay_where_only_master_keys_differ() -> None:
    """Each may be of several columns that the plan has under one key; where it has two, new local keys are needed."""
    plan = planned()

    def drift(keys: Mapping[str, str | None]) -> list[tuple[str, bool]]:
        file = orc_file(keys)
        found = drift_of_file(scanned_file(file, match_columns(file, plan)), plan, {}, table_uuid=None)
        return [(difference.kind, difference.only_keys) for difference in found]

    assert drift({"email": "fin", "phones._elem": "fin"}) == [("wrong_key", True)] * 2
    moved = orc_file({"email": "fin", "phones._elem": "fin"}, identity=b"f.orc")
    found = drift_of_file(scanned_file(moved, match_columns(moved, plan)), plan, {}, table_uuid="uuid")
    assert "aad_mismatch" in {difference.kind for difference in found} and not any(each.only_keys for each in found)
    assert drift({"email": "fin"}) == [("wrong_key", False), ("missing", False)]
    assert drift({"email": "fin", "phones._elem": None}) == [("wrong_key", False), ("foreign_key", False)]
    file = orc_file({"email": "fin", "phones._elem": "pii"})
    order = order_planned(file, "/n", "rewrap")
    assert (order.action, columns_of(order)) == ("rewrap", {("email",): "pii", ("phones", "_elem"): "pii"})
    both = orc_file({"st.x": "old", "st.y": "old"}, names="st.x st.y")
    assert _keeps_roots(both, {("st", "x"): "a", ("st", "y"): "a"})
    assert not _keeps_roots(both, {("st", "x"): "a", ("st", "y"): "b"})


def test_rotation_rewraps_what_matches_its_plan() -> None:
    """The local keys of a file can be wrapped again; where its plan differs too, it gets new ones."""
    rotation = Rotation("pii", 2, None)
    (found,) = rotation.drift_of(orc_file(TAGGED), ())
    assert (found.kind, found.only_keys, action_of([found], rewrap=True)) == ("old_version", True, "re-wrap")
    drift = Drift("wrong_key", FILE, "email", "encrypted with 'fin', not 'pii'", "fin")
    found = rotation.drift_of(orc_file(TAGGED), (drift,))[-1]
    assert not found.only_keys


DARK: dict[Path, str] = {("email",): "gone"}


def order_dark(
    file: FileSummary,
    keys: Mapping[Path, str],
    action: Action = "encrypt",
    dark: Mapping[Path, str] = DARK,
    *,
    purges: bool = False,
) -> FileOrder:
    """Return the order of a file with a dark column."""
    known = scanned_file(file, match_columns(file, planned()), dark=dark)
    return order_orc_file(known, "/t/f2.orc", keys, NEW, action, purges=purges)


def test_dark_columns_are_carried_by_every_order() -> None:
    """No key is ordered for them, and new local keys are bound to what theirs are bound to."""
    file = orc_file({"email": "gone", "phones._elem": "pii"})
    keys: dict[Path, str] = {("id",): "fin", ("email",): "pii", ("phones", "_elem"): "pii"}
    cases: tuple[tuple[Action, dict[Path, str]], ...] = (
        ("encrypt", {("id",): "fin", ("phones",): "pii"}),
        ("rewrap", {("phones", "_elem"): "pii"}),
        ("copy", {}),
    )
    for action, columns in cases:
        order = order_dark(file, keys, action)
        assert (order.action, columns_of(order), order.carried, order.purged) == (action, columns, DARK, {})
        assert order.source_prefix == BOUND
        assert order.encryption is None or order.encryption.aad_prefix == BOUND
    plain = order_dark(file, {})
    assert (plain.action, columns_of(plain), plain.carried) == ("decrypt", {}, DARK)
    whole = orc_file({"who.mail": "gone"}, names="who.mail who.age")
    mixed = order_dark(whole, {("who", "mail"): "pii", ("who", "age"): "pii"}, dark={("who", "mail"): "gone"})
    assert columns_of(mixed) == {("who", "age"): "pii"}


def test_purged_columns_are_ordered_under_a_live_key() -> None:
    """They are among the columns that are encrypted, and what is made is bound to its own place."""
    file = orc_file({"email": "gone", "phones._elem": "pii"})
    keys: dict[Path, str] = {("email",): "footer", ("phones", "_elem"): "pii"}
    order = order_dark(file, keys, purges=True)
    assert (order.action, columns_of(order)) == ("encrypt", {("email",): "footer", ("phones",): "pii"})
    assert (order.carried, order.purged) == ({}, DARK)
    assert order.encryption is not None and order.encryption.aad_prefix == NEW.to_aad_prefix()
    assert order.master_keys() == {"footer", "pii"}


def test_what_moves_a_file_takes_it_from_its_dark_columns() -> None:
    """Their wrapped keys name the file, and nobody can wrap them again; a survey says so too."""
    moved = Drift("aad_mismatch", FILE, None, "of another table")
    missing = Drift("missing", FILE, "id", "plaintext, not 'pii'")
    assert "a new name" in str(find_move([], renames=True))
    assert "binding its local keys" in str(find_move([missing, moved], renames=False))
    assert find_move([missing], renames=False) is None
    assert keeps_dark("orc", "encrypt", [missing]) and not keeps_dark("parquet", "encrypt", [missing])
    assert not keeps_dark("orc", "re-key", [moved])
    assert keeps_dark("orc", "purge", [moved]) and keeps_dark("parquet", "re-wrap", [missing])


def test_nulls_under_the_footers_key_are_what_a_purge_leaves() -> None:
    """Where the file notes the shredded key that is planned; the note of a column under another key says nothing."""
    held = {"email": "footer", "phones._elem": "pii"}
    noted = replace(orc_file(held), purged={("email",): "pii"})
    assert drift_in(noted) == []
    assert drift_in(replace(noted, purged={("email",): "other"})) == [("wrong_key", "email")]
    assert drift_in(orc_file(held)) == [("wrong_key", "email")]
    other = replace(orc_file({"email": "fin", "phones._elem": "pii"}), purged={("email",): "pii"})
    (found,) = drift_of_file(scanned_file(other, match_columns(other, planned())), planned(), {}, table_uuid="uuid")
    assert found.detail == "encrypted with 'fin', not 'pii'"  # a forged note must not take it to the footer's key
    moved = replace(planned(), footer_key="newer", footer_key_history=("footer",))
    (found,) = drift_of_file(scanned_file(noted, match_columns(noted, moved)), moved, {}, table_uuid="uuid")
    assert (found.kind, found.detail, found.only_keys) == ("wrong_key", "encrypted with 'footer', not 'newer'", True)
    both = replace(orc_file({"who.mail": "footer", "who.age": "footer"}, names="who.mail who.age"), purged={})
    assert _keeps_roots(both, {("who", "mail"): None, ("who", "age"): None})


def test_digest_of_an_orc_file_is_of_every_byte() -> None:
    """One changed bit anywhere gives another digest, and so does another secret; a Parquet file needs a footer."""
    secret, content = DigestSecret("k", "w", bytes(32)), b"ORC" + bytes(3_000_000) + b"ORC\x05"
    digest, other = secret.of_file(io.BytesIO(content)), DigestSecret("k", "w", b"\1" * 32)
    assert secret.of_file(io.BytesIO(content)) == digest != other.of_file(io.BytesIO(content))
    for place in (3, 1_500_000, len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 1
        assert secret.of_file(io.BytesIO(bytes(changed))) != digest
    with pytest.raises(FormatError, match="shorter than its footer says"):
        secret.of_file(io.BytesIO(b"OR" + bytes([0, 255, 255, 0])))
