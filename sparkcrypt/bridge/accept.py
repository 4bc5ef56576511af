"""What a reader refuses: a file whose encryption differs from what the policy, or its history, allows.

The algorithm in a footer is not authenticated, and whoever holds the footer key alone can write a footer in which an
encrypted column is a plaintext one; so a file's own word on its encryption is never enough.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, TypeAlias

from sparkcrypt.bridge.context import TableContext
from sparkcrypt.bridge.identity import partition_values, trailing_partition
from sparkcrypt.errors import FormatError, PlanError, VerificationError
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.plan import ColumnPlan, build_plan
from sparkcrypt.policy.model import PLAINTEXT, allowed_key_ids
from sparkcrypt.schema import Path, dotted, schema_from_parquet

_Tree: TypeAlias = "dict[str, _Tree]"

FILE_UNIQUE_BYTES = 8
_NEXT = "if an earlier policy allowed it, name it under 'history' in the policy; else restore the file or write it again"


def check_footer(context: TableContext, path: str, footer: Mapping[str, Any]) -> None:
    """Check mode, algorithm, file-unique and footer key.

    Raises:
        VerificationError: one of them is not allowed.
    """
    if footer["mode"] == "plaintext":
        if context.require_encryption:
            raise VerificationError(
                f"{path}: is plaintext, and {context.name or 'its table'} requires encryption; `sparkcrypt verify` lists such "
                "files, `encrypt_table` encrypts them"
            )
        return
    allowed = (context.policy.algorithm, *context.policy.algorithm_history)
    if footer.get("algorithm") not in allowed:
        raise VerificationError(f"{path}: its algorithm is {footer.get('algorithm')}; allowed: {', '.join(allowed)}; {_NEXT}")
    unique = base64.b64decode(footer.get("aad_file_unique") or "")
    if len(unique) != FILE_UNIQUE_BYTES:
        raise VerificationError(f"{path}: its AAD file-unique has {len(unique)} bytes; allowed: {FILE_UNIQUE_BYTES}; {_NEXT}")
    key_id = _key_id(path, "the footer", footer.get("footer_key_metadata"))
    if key_id not in (context.policy.footer_key, *context.policy.footer_key_history):
        raise VerificationError(
            f"{path}: its footer key is {key_id!r}; allowed: {context.policy.footer_key!r}; {_NEXT} (footer.history)"
        )


def check_columns(context: TableContext, path: str, footer: Mapping[str, Any]) -> None:
    """Check every column's key against the plan of the file's own columns.

    Raises:
        VerificationError: a column is plaintext, or under a key, that neither plan nor history allows.
    """
    planned = _planned(context, path, footer)
    values = partition_values(trailing_partition(path.split("/")[:-1]))
    for column in footer["columns"]:
        name = tuple(column["path"])
        if not column["encrypted"]:
            _check_plaintext(context, path, name, planned.get(name))
            continue
        if column.get("key_metadata") is None:
            continue  # the footer key, which was checked
        key_id = _key_id(path, f"column {dotted(name)}", column["key_metadata"])
        if key_id not in _allowed(planned.get(name), values) and not (
            planned.get(name) is None and allowed_key_ids(context.policy, key_id)
        ):
            _refuse_key(context, path, name, key_id, planned.get(name))


def _refuse_key(context: TableContext, path: str, name: Path, key_id: str, plan: ColumnPlan | None) -> None:
    known = allowed_key_ids(context.policy, key_id)
    if known and not context.require_encryption:
        return  # drift, which a backfill mends
    wanted = plan.key.text if plan is not None and plan.key is not None else "no key"
    raise VerificationError(f"{path}: column {dotted(name)} is encrypted with {key_id!r}; the policy wants {wanted!r}; {_NEXT}")


def _allowed(plan: ColumnPlan | None, values: Mapping[str, str]) -> tuple[str, ...]:
    if plan is None:
        return ()
    history = tuple(decode_key_id(entry) for entry in plan.history if entry != PLAINTEXT)
    if plan.key is None:
        return history
    if set(plan.key.columns) <= set(values):
        return (plan.key.render(values), *history)
    return history


def _check_plaintext(context: TableContext, path: str, name: Path, plan: ColumnPlan | None) -> None:
    if not context.require_encryption or plan is None or plan.action == "plaintext" or PLAINTEXT in plan.history:
        return
    raise VerificationError(
        f"{path}: column {dotted(name)} is plaintext, and the tag {plan.tag or 'untagged'!r} of {context.name or 'its table'} "
        f"encrypts it; {_NEXT}"
    )


def _planned(context: TableContext, path: str, footer: Mapping[str, Any]) -> dict[Path, ColumnPlan]:
    """Plan the file's columns by the tags that reach a reader."""
    tree: _Tree = {}
    for column in footer["columns"]:
        below = tree
        for name in column["path"]:
            below = below.setdefault(name, {})
    try:
        plan = build_plan(
            schema_from_parquet(_fields(tree)),
            context.tagged,
            context.policy,
            table=context.name,
            partition_columns=None,
            history=context.history,
            skip_absent=True,
        )
    except PlanError as error:
        raise VerificationError(f"{path}: cannot be checked, since its table's tags make no plan: {error}") from error
    return {column.path: column for column in plan.columns}


def _fields(tree: _Tree) -> list[dict[str, Any]]:
    """Rebuild a message type from column paths: lists and maps are told by the names that writers give their groups."""
    return [
        {
            "name": name,
            "kind": "group" if below else "leaf",
            "annotation": _annotation(below),
            "repetition": "repeated" if name in ("list", "bag", "array", "key_value", "map") else "optional",
            "children": _fields(below),
        }
        for name, below in tree.items()
    ]


def _annotation(below: _Tree) -> str | None:
    shape = [(name, list(inner)) for name, inner in below.items()]
    if shape in ([("list", ["element"])], [("list", ["item"])], [("bag", ["array_element"])], [("array", [])]):
        return "LIST"
    return "MAP" if shape in ([("key_value", ["key", "value"])], [("map", ["key", "value"])]) else None


def _key_id(path: str, what: str, key_metadata: str | None) -> str:
    try:
        return parse_key_material(base64.b64decode(key_metadata or "")).master_key_id
    except FormatError as error:
        raise VerificationError(f"{path}: the key metadata of {what} cannot be read: {error}") from error

