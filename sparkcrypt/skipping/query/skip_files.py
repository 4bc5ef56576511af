"""Determines, when a query is planned, which of a table's listed files it need not open, with the table's store.

A file is kept unless its exclusion is certain.  A query that reads a column whose key is denied gets all files, so that
it fails with the same refusal as without a store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sparkcrypt.decide.context import TableContext
from sparkcrypt.decide.masked_leaves import plan_leaves, wrapped_keks
from sparkcrypt.decide.request import require_text, require_texts
from sparkcrypt.errors import BridgeError, PlanError
from sparkcrypt.keys.access_decisions import KeyDecisions
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.opened import OpenedKeyService, access_token
from sparkcrypt.paths import partition_values, trailing_partition
from sparkcrypt.plan import ColumnPlan
from sparkcrypt.skipping.query.judge_part import pack_part
from sparkcrypt.skipping.query.opened_stores import OpenedStore, OpenedStores, PartedStore, Reader
from sparkcrypt.skipping.query.predicate import Predicate
from sparkcrypt.skipping.query.predicate_json import read_predicate
from sparkcrypt.skipping.query.skipper import Listed
from sparkcrypt.skipping.query.store_request import column_types, find_place, retrieve_key

_PLAINTEXT = "plaintext"


def skip_files(
    request: Mapping[str, Any],
    service: OpenedKeyService,
    stores: OpenedStores,
    *,
    lifetime_seconds: float | None = None,
) -> dict[str, Any]:
    """Decide which files a query need not open.

    Args:
        request: ``policy``, ``path`` (of the table), ``properties``, ``schema`` (Spark schema JSON without partition
            columns), ``types`` (column -> Spark type, for the columns of the predicate), ``read`` (columns that the
            query reads), ``predicate`` (`predicate_json`), ``folders`` (paths), ``files`` (for each: number of its
            folder, name, modification time in milliseconds and length), ``key_metadata`` (of some columns of some
            files, base64).
        service: the policy's key service.
        stores: the stores that this process has opened.
        lifetime_seconds: maximum age of opened keys that this session accepts.

    Returns:
        ``skipped``: numbers of the files to skip, in order; ``by``: index -> number of them that it excluded;
        ``unused``: index -> reason why it is not used; ``store`` and ``generation``; ``why``: reason why no store was
        consulted, else None; ``undecided``: ids of keys whose access cannot be decided without a key that they wrapped;
        nothing is skipped then; ``parts``: for a store that is too large to be kept open, the parts for `judge_part`,
        each with its ``part`` and the number of its ``first`` row; ``rows``: in that case the row of each file, or -1.

    Raises:
        SparkcryptError: the store cannot be used, or access to a key cannot be checked.
    """
    place, files, types = find_place(request), _listed_files(request), column_types(request)
    if place.folder is None:
        return _keep_all(place.why)
    plan = plan_leaves(place.context, require_text(request, "schema"))
    undecided, why = _find_denied(request, place.context, plan, files, service.decisions)
    if undecided or why is not None:
        return _keep_all(why, undecided)
    credential = access_token(place.context.policy.key_service, service.service)
    retrieve = partial(retrieve_key, service.opener, lifetime_seconds)
    reader = Reader(credential, place.expect(plan), types, retrieve)
    opened = stores.open(place.folder, reader, lifetime_seconds=lifetime_seconds)
    if opened is None:
        return _keep_all(f"there is no index at {place.folder.uri}; make one with `sparkcrypt index create`")
    predicate = read_predicate(request.get("predicate"), types)
    found = _list_rows(opened, files) if isinstance(opened, PartedStore) else _select(opened, files, predicate)
    return {**_keep_all(None), **found, "store": place.folder.uri, "generation": opened.generation}


def _select(opened: OpenedStore, files: Sequence[Listed], predicate: Predicate) -> dict[str, Any]:
    named = list(opened.skipper.name_indexes(files, predicate))
    skipped = [number for number, names in enumerate(named) if names is not None]
    by = Counter(" and ".join(names) for names in named if names is not None)
    return {"skipped": skipped, "by": dict(by), "unused": dict(opened.unused)}


def _list_rows(opened: PartedStore, files: Sequence[Listed]) -> dict[str, Any]:
    """Return the row of each file in the store, and the parts that contain these rows."""
    rows = [opened.row_of(file) for file in files]
    parts = [{"first": part.first, "part": pack_part(part.identity)} for part in opened.parts_of(rows)]
    return {"rows": rows, "parts": parts}


def _keep_all(why: str | None, undecided: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "skipped": [],
        "by": {},
        "unused": {},
        "why": why,
        "undecided": list(undecided),
        "store": None,
        "generation": None,
        "parts": [],
        "rows": [],
    }


def _find_denied(
    request: Mapping[str, Any],
    context: TableContext,
    plan: Sequence[ColumnPlan],
    files: Sequence[Listed],
    decisions: KeyDecisions,
) -> tuple[list[str], str | None]:
    """Return the keys whose access is undecided, and the reason to keep all files if a key that is read is denied."""
    read = frozenset(require_texts(request, "read"))
    keys: dict[str, str] = {context.policy.footer_key: "the footer"}
    for column in plan:
        if column.leaf.logical[0] in read:
            for key_id in _keys_of(column, files):
                keys.setdefault(key_id, f"column {column.leaf.dotted}")
    found = decisions.decide(keys, wrapped_keks(request))
    denied = [key_id for key_id, decision in found.items() if decision != "allowed"]
    if denied:
        return [], f"{keys[denied[0]]} is under key {denied[0]!r}, which is {found[denied[0]]}, so files decide"
    return [key_id for key_id in keys if key_id not in found and key_id != context.policy.footer_key], None


def _keys_of(column: ColumnPlan, files: Sequence[Listed]) -> Iterator[str]:
    """Yield the keys that may encrypt a column in files; partitions whose values yield no key are left out."""
    yield from (decode_key_id(key_id) for key_id in column.history if key_id != _PLAINTEXT)
    if column.key is None:
        return
    if not column.key.columns:
        yield column.key.text
        return
    for folder in {file.path.rpartition("/")[0] for file in files}:
        try:
            yield column.key.render(partition_values(trailing_partition(folder.split("/"))))
        except PlanError:
            continue


def _listed_files(request: Mapping[str, Any]) -> list[Listed]:
    folders = require_texts(request, "folders")
    try:
        return [
            Listed(f"{folders[folder]}/{name}", int(modified), int(length))
            for folder, name, modified, length in request["files"]
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BridgeError(
            "the request's 'files' are not as expected; the jar and this helper do not belong together"
        ) from error
