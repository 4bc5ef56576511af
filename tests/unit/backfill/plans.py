"""The plan with which these tests compare files."""

from __future__ import annotations

from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.schema import schema_from_spark
from sparkcrypt.tags.model import tags_of_schema


def planned(*, untagged: str = "plaintext") -> EncryptionPlan:
    """Return the plan of a table of ``id, email, phones: array<string>`` whose last two are pii."""
    text = f"""
version: 1
key_service: {{type: local, path: /keys}}
footer: {{key: footer}}
untagged: {untagged}
tags: {{pii: {{key: pii}}}}
"""
    policy = policy_from_text(text, where="policy.yaml", base="/")
    tags = {"tags": ["pii"]}
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "email", "type": "string", "nullable": True, "metadata": tags},
        {
            "name": "phones",
            "type": {"type": "array", "elementType": "string", "containsNull": True},
            "nullable": True,
            "metadata": tags,
        },
    ]
    schema = schema_from_spark({"type": "struct", "fields": fields})
    return build_plan(schema, tags_of_schema(schema), policy, table="db.t")
