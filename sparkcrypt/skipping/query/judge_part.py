"""Determines which objects a predicate excludes, for one part of a store that is too large to be kept open.

Each task of a query requests it for another part, whose identity it has from the driver's helper.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from sparkcrypt.decide.masked_leaves import plan_leaves
from sparkcrypt.decide.request import require_text
from sparkcrypt.errors import BridgeError
from sparkcrypt.keys.opened import OpenedKeyService
from sparkcrypt.skipping.format.decode_chunk import part_budget
from sparkcrypt.skipping.format.merge import merge_parts
from sparkcrypt.skipping.query.opened_stores import name_unused
from sparkcrypt.skipping.query.predicate_json import read_predicate
from sparkcrypt.skipping.query.skipper import Skipper
from sparkcrypt.skipping.query.store_request import column_types, find_place, retrieve_key
from sparkcrypt.skipping.trusted.trust import PartIdentity, open_part


def judge_part(
    request: Mapping[str, Any], service: OpenedKeyService, *, lifetime_seconds: float | None = None
) -> dict[str, Any]:
    """Decide which objects of one part of a store a query need not open.

    Args:
        request: as for `skip_files` without ``folders`` and ``files``, and with ``part`` from `pack_part`.
        service: the policy's key service.
        lifetime_seconds: maximum age of opened keys that this session accepts.

    Returns:
        ``rows``: index -> the base64 of a bitmap; its bit *n*, counted from the lowest of the first byte, is set if by
        this index no row of the object in row *n* can match; ``unused``: index -> reason why it is not used.

    Raises:
        SparkcryptError: the part is not the one in the store's sidecar, or cannot be read.
    """
    place, part, types = find_place(request), _unpack_part(request.get("part")), column_types(request)
    if place.folder is None:
        raise BridgeError(f"a part of a store is asked for, and {place.why}")
    expected = place.expect(plan_leaves(place.context, require_text(request, "schema")))
    if part.table_uuid != expected.table_uuid:
        raise BridgeError("a part of another table's store is asked for; ask for those of the table that is read")
    retrieve = partial(retrieve_key, service.opener, lifetime_seconds)
    store = merge_parts([open_part(place.folder, part, retrieve, expected, part_budget())])
    if store is None:  # unreachable: a footer whose key is denied was refused above
        raise BridgeError(f"{part.name}: was read without keys")
    predicate, bitmaps = read_predicate(request.get("predicate"), types), dict[str, bytearray]()
    for row, names in enumerate(Skipper(store, {}, types).name_rows(predicate)):
        if names is not None:
            bitmap = bitmaps.setdefault(" and ".join(names), bytearray((len(store.objects) + 7) // 8))
            bitmap[row >> 3] |= 1 << (row & 7)
    rows = {index: base64.b64encode(bitmap).decode() for index, bitmap in bitmaps.items()}
    return {"rows": rows, "unused": name_unused(store)}


def pack_part(part: PartIdentity) -> dict[str, Any]:
    """Return a part's identity as JSON values, for `judge_part`."""
    return asdict(part)


def _unpack_part(packed: Any) -> PartIdentity:
    try:
        part = PartIdentity(**packed)
        texts = (part.name, part.unique, part.objects, part.table_uuid)
        if not all(isinstance(text, str) for text in texts) or {type(part.length), type(part.generation)} != {int}:
            raise TypeError
    except TypeError as error:
        raise BridgeError(
            "the request's 'part' is not as expected; the jar and this helper do not belong together"
        ) from error
    return part
