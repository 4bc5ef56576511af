"""What a run refuses to rewrite on a table that requires encryption, and the drift of foreign keys and footer modes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import VerificationError
from sparkcrypt.files.parquet import ColumnSummary, FileSummary
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.columns import match_columns
from sparkcrypt.runs.table.difference import drift_of_file
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.runs.table.target import Target
from sparkcrypt.runs.table.unit_survey import action_of
from sparkcrypt.runs.table.untouchable import refuse_unit
from sparkcrypt.schema import schema_from_spark
from sparkcrypt.tags.model import tags_of_schema
from tests.unit.backfill.scanned_files import scanned_file
from tests.unit.schema.message_types import fields_of

UUID = "1" * 32
PATH = "/t/p=1/f.parquet"
PREFIX = FileIdentity(UUID, "p=1", "f.parquet").to_aad_prefix()
POLICY = """
version: 1
key_service: {type: local, path: /keys}
footer: {key: footer}
untagged: plaintext
algorithm_history: [AES_GCM_CTR_V1]
tags: {pii: {key: pii}}
"""
Columns = Mapping[tuple[str, ...], ColumnSummary]
OWN: Columns = {
    ("id",): ColumnSummary(False, None),
    ("email",): ColumnSummary(True, "pii"),
    ("phone",): ColumnSummary(True, "pii"),
}


def policy() -> Policy:
    """Return a policy of one tag."""
    return policy_from_text(POLICY, where="policy.yaml", base="/")


def planned(*, required: bool = True, history: Mapping[str, tuple[str, ...]] | None = None) -> EncryptionPlan:
    """Return the plan of ``id, email, phone``, the last two pii; with what readers still take of a column."""
    fields = [
        {"name": name, "type": "string", "nullable": True, "metadata": {"tags": ["pii"]} if name != "id" else {}}
        for name in ("id", "email", "phone")
    ]
    schema = schema_from_spark({"type": "struct", "fields": fields})
    kept: dict[tuple[str, ...], tuple[str, ...]] = {(name,): entries for name, entries in (history or {}).items()}
    return build_plan(schema, tags_of_schema(schema), policy(), table="db.t", history=kept).require(required)


def file(columns: Columns | None = None, **changed: Any) -> FileSummary:
    """Return the summary of a file as the plan wants it, with other columns or other words of its footer."""
    summary = FileSummary(
        path=PATH,
        footer="encrypted",
        algorithm="AES_GCM_V1",
        footer_key="footer",
        aad_prefix=PREFIX,
        supply_aad_prefix=False,
        aad_file_unique=b"12345678",
        rows=1,
        row_groups=1,
        columns={**OWN, **(columns or {})},
        fields=json.dumps(fields_of(OWN)),
    )
    return replace(summary, **changed)


def email(key_id: str | None, *, encrypted: bool = True) -> FileSummary:
    """Return a file whose e-mail column is under another key, under none that is named, or in clear."""
    return file({("email",): ColumnSummary(encrypted, key_id)})


PLAIN = file(
    {name: ColumnSummary(False, None) for name in OWN},
    footer="plaintext",
    algorithm=None,
    footer_key=None,
    aad_prefix=None,
    aad_file_unique=None,
)
FORGED = {
    "plaintext": PLAIN,
    "missing": email(None, encrypted=False),
    "wrong_key": email("stolen"),
    "foreign_key": email(None),
    "aad_mismatch": file(aad_prefix=PREFIX.replace(b"1" * 32, b"2" * 32)),
}
ELSEWHERE = {
    "another table": FileIdentity("2" * 32, "p=1", "f.parquet").to_aad_prefix(),
    "another partition": FileIdentity(UUID, "p=2", "f.parquet").to_aad_prefix(),
    "another name": FileIdentity(UUID, "p=1", "g.parquet").to_aad_prefix(),
    "no table": FileIdentity(None, "p=1", "f.parquet").to_aad_prefix(),
    "nothing": None,
    "what is no identity": b"anything\0",
}


def scanned(plan: EncryptionPlan, *files: FileSummary) -> ScannedUnit:
    """Return a unit of these files with its drift."""
    known = {file.path: scanned_file(file, match_columns(file, plan)) for file in files}
    drift = [drift_of_file(file, plan, {"p": "1"}, table_uuid=UUID) for file in known.values()]
    unit = Unit("p=1", "/t/p=1", None, "p=1", {"p": "1"})
    return ScannedUnit(unit, known, tuple(difference for found in drift for difference in found))


def refuse(unit: ScannedUnit, plan: EncryptionPlan, *, adopt: bool = False) -> None:
    """Refuse a unit as a run does."""
    target: Target = type("Planned", (), {"plan": plan})()
    refuse_unit(unit, target, policy(), adopt=adopt, allow_decrypt=True)


@pytest.mark.parametrize("kind", FORGED)
def test_each_kind_is_refused_until_it_is_adopted(kind: str) -> None:
    """Without history no reader would believe the file: it is refused by its name and kind, with the way out."""
    plan = planned()
    unit = scanned(plan, FORGED[kind])
    assert [difference.kind for difference in unit.drift] == [kind]
    with pytest.raises(VerificationError, match=rf"{PATH}.*: {kind}: .* db\.t requires encryption.* --adopt"):
        refuse(unit, plan)
    refuse(unit, plan, adopt=True)


@pytest.mark.parametrize("kind", FORGED)
def test_nothing_is_refused_where_encryption_is_not_required(kind: str) -> None:
    """A table without that requirement is brought to its plan, whatever its files were."""
    plan = planned(required=False)
    unit = scanned(plan, FORGED[kind])
    assert [difference.kind for difference in unit.drift] == [kind]
    refuse(unit, plan)


@pytest.mark.parametrize("place", ELSEWHERE)
def test_file_of_another_place_is_refused_whatever_the_history(place: str) -> None:
    """Keys and plaintext of the past say nothing of where a file belongs, nor does its key being the planned one."""
    plan = planned(history={"email": ("stolen", "pii", "plaintext"), "phone": ("pii", "plaintext")})
    unit = scanned(plan, file(aad_prefix=ELSEWHERE[place]))
    assert [difference.kind for difference in unit.drift] == ["aad_mismatch"]
    with pytest.raises(VerificationError, match="aad_mismatch"):
        refuse(unit, plan)


@pytest.mark.parametrize(
    ("summary", "history", "accepted"),
    [
        (email("old"), {"email": ("old",)}, True),
        (email("old"), {"email": ("older", "old")}, True),
        (email("old/1"), {"email": ("old%2F1",)}, True),
        (email("old%2F1"), {"email": ("old%2F1",)}, False),  # history is percent-encoded, this key's id is not
        (email("old"), {"phone": ("old",)}, False),
        (email("old"), {"email": ("older",)}, False),
        (email("old"), {"email": ("plaintext",)}, False),
        (email(None, encrypted=False), {"email": ("plaintext",)}, True),
        (email(None, encrypted=False), {"email": ("pii", "plaintext")}, True),
        (email(None, encrypted=False), {"phone": ("plaintext",)}, False),
        (email(None, encrypted=False), {"email": ("pii",)}, False),
        (email(None), {"email": ("pii", "plaintext")}, False),
        (file({("email",): ColumnSummary(True, "old"), ("phone",): ColumnSummary(True, "old")}),
         {"email": ("old",)}, False),
        (file({("email",): ColumnSummary(True, "old"), ("phone",): ColumnSummary(False, None)}),
         {"email": ("old",), "phone": ("plaintext",)}, True),
        (file({("email",): ColumnSummary(True, "old")}, aad_prefix=None), {"email": ("old",)}, False),
    ],
)  # fmt: skip
def test_history_of_a_column_is_its_own(
    summary: FileSummary, history: dict[str, tuple[str, ...]], accepted: bool
) -> None:
    """An old key, or plaintext, is taken where that very column's history names it, and every column must be so."""
    plan = planned(history=history)
    unit = scanned(plan, summary)
    assert unit.drift
    if accepted:
        refuse(unit, plan)
    else:
        with pytest.raises(VerificationError, match="may be a forgery"):
            refuse(unit, plan)


def test_one_forgery_among_many_files_is_found() -> None:
    """The forged file is named, though what differs in the files beside it is known to history."""
    plan = planned(history={"email": ("old",)})
    names = ["a", "b", "forged", "z"]
    files = [
        replace(
            email("stolen" if name == "forged" else "old"),
            path=f"/t/p=1/{name}",
            aad_prefix=FileIdentity(UUID, "p=1", name).to_aad_prefix(),
        )
        for name in names
    ]
    assert [difference.kind for difference in scanned(plan, *files).drift] == ["wrong_key"] * 4
    with pytest.raises(VerificationError, match=r"^/t/p=1/forged: email: wrong_key"):
        refuse(scanned(plan, *files), plan)
    files.pop(2)
    refuse(scanned(plan, *files), plan)


@pytest.mark.parametrize(
    "summary", [file(), file(algorithm="AES_GCM_CTR_V1"), file(footer="plaintext_signed"),
                file({("id",): ColumnSummary(True, "footer")})],
)  # fmt: skip
def test_what_readers_believe_is_not_refused(summary: FileSummary) -> None:
    """A file as planned, of an earlier algorithm, the other footer mode, or with a column too many, is no forgery."""
    plan = planned()
    refuse(scanned(plan, summary), plan)


@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
def test_footer_of_the_other_mode_is_drift(mode: str) -> None:
    """A signed plaintext footer where an encrypted one is planned, and the other way round, is re-keyed as a whole."""
    plan = replace(planned(), footer_mode=mode)  # type: ignore[arg-type]
    found = {footer: scanned(plan, file(footer=footer)).drift for footer in ("encrypted", "plaintext_signed")}
    other = "plaintext_signed" if mode == "encrypted" else "encrypted"
    (drift,) = found.pop(other)
    said = f"the footer is {other.removesuffix('_signed')}, not {mode}"
    assert (drift.kind, drift.column, drift.detail, drift.only_keys) == ("wrong_footer", None, said, False)
    assert list(found.values()) == [()]
    assert action_of((drift,), rewrap=True) == "re-key"


@pytest.mark.parametrize("other", [{}, {("phone",): ColumnSummary(True, "old")}])
def test_key_metadata_without_a_master_key_is_drift(other: Columns) -> None:
    """Such a column is named, and its file's data keys are never wrapped anew: nobody can open one of them."""
    drift = scanned(planned(), file({("email",): ColumnSummary(True, None), **other})).drift
    assert [(difference.kind, difference.column) for difference in drift] == [
        ("foreign_key", "email"),
        ("wrong_key", "phone"),
    ][: len(drift)]
    assert len(drift) == 1 + len(other)
    assert drift[0].detail == "its key metadata names no master key, so not 'pii'"
    assert not any(difference.only_keys for difference in drift)
    assert action_of(drift, rewrap=True) != "re-wrap"


def test_nothing_is_decrypted_without_consent() -> None:
    """A column that the plan does not encrypt any more keeps its unit as it is, until someone allows it."""
    target: Target = type("Planned", (), {"plan": planned()})()
    unit = scanned(planned(), file({("id",): ColumnSummary(True, "footer")}))
    with pytest.raises(VerificationError, match="column id, encrypted with 'footer', would be decrypted"):
        refuse_unit(unit, target, policy(), adopt=True, allow_decrypt=False)
    refuse_unit(unit, target, policy(), adopt=True, allow_decrypt=True)
