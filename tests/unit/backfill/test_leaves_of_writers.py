"""Each tagged leaf of a table is found in the files of any writer: encrypted by a rewrite, demanded by readers."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.arrow.judge import facts_of
from sparkcrypt.decide.context import parse_policy
from sparkcrypt.decide.file import resolve_read
from sparkcrypt.errors import VerificationError
from sparkcrypt.files.parquet import FileEncryption, inspect_file, read_footer, rewrite_file
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.runs.table.columns import match_columns
from sparkcrypt.runs.table.difference import drift_of_file, drift_of_unknown
from sparkcrypt.schema import schema_from_spark
from sparkcrypt.tags.model import tags_of_schema
from tests.unit.backfill.scanned_files import scanned_file
from tests.unit.decide.requests import NAME, PREFIX, UUID, policy, read
from tests.unit.parquet.rewriting import new_key
from tests.unit.parquet.writers import Keys
from tests.unit.schema.strategies import spark_schemas
from tests.unit.schema.writers import canary, tags_of_leaves, texts, write_as

POLICY = policy()
PLACE = f"file:/w/t/p=0/{NAME}"


def planned(document: dict[str, Any]) -> EncryptionPlan:
    """Return the plan of a table with this schema."""
    schema = schema_from_spark(document)
    return build_plan(schema, tags_of_schema(schema), parse_policy(POLICY))


def encryption(keys: dict[tuple[str, ...], str | None]) -> FileEncryption:
    """Return new data keys under these master keys."""
    columns = {path: new_key(key) for path, key in keys.items() if key is not None}
    return FileEncryption(new_key("footer", footer=True), columns=columns)


def is_read(file: Path, document: dict[str, Any]) -> bool:
    """Tell whether readers of a table that requires encryption take a file."""
    footer = facts_of(read_footer(file, retrieve_key=Keys()))
    footer["aad_prefix"] = base64.b64encode(f"{UUID}/p=0/{NAME}".encode() + b"\0").decode()
    properties = {PREFIX + "table.uuid": UUID, PREFIX + "require_encryption": "true"}
    try:
        resolve_read(read(PLACE, footer, properties=properties, requested_schema=json.dumps(document)))
    except VerificationError as error:
        assert "is plaintext" in str(error) or "has no encrypted column" in str(error)
        return False
    return True


@settings(max_examples=100, deadline=None)
@given(spark_schemas(), st.data())
def test_each_tagged_leaf_is_encrypted_and_demanded(document: dict[str, Any], data: st.DataObject) -> None:
    """Whatever forms and case its writer chose, a rewrite hides what is tagged and nothing else, and readers insist."""
    document = texts(document)
    tags = tags_of_leaves(document)
    plan = planned(document)
    with tempfile.TemporaryDirectory() as folder:
        file = write_as(Path(folder) / "f", document, lambda forms: data.draw(st.sampled_from(forms)))
        before = inspect_file(file)
        matched = match_columns(before, plan)
        assert not matched.unknown and not drift_of_unknown(scanned_file(before, matched), plan)
        assert [column.tag for column in matched.planned.values()] == tags
        assert len({column.leaf for column in matched.planned.values()}) == len(plan.columns)
        keys = matched.key_ids(plan, {})
        if not keys:
            return
        target = Path(folder) / "g"
        rewrite_file(file, target, encryption=encryption(keys))
        after = inspect_file(target, retrieve_key=Keys())
        assert drift_of_file(scanned_file(after, match_columns(after, plan)), plan, {}, table_uuid=None) == ()
        content = target.read_bytes()
        secret = [tag in ("pii", "finance") for tag in tags]
        assert [canary(leaf).encode() not in content for leaf in range(len(tags))] == secret
        assert is_read(target, document)
        del keys[data.draw(st.sampled_from(sorted(keys)))]
        rewrite_file(file, Path(folder) / "h", encryption=encryption(keys))
        assert not is_read(Path(folder) / "h", document)
