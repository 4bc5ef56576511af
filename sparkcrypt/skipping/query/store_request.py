"""Parses the common fields of requests about a table's store: its location, its expected identity, and its types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkcrypt.decide.context import TableContext, table_context
from sparkcrypt.decide.request import require_properties, require_text
from sparkcrypt.errors import BridgeError
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.plan import ColumnPlan
from sparkcrypt.skipping.trusted.folder import NO_LOCATION, StoreFolder, open_folder
from sparkcrypt.skipping.trusted.trust import Expected


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a table's store by the policy; if there is none, ``folder`` is None and ``why`` the reason."""

    context: TableContext
    folder: StoreFolder | None
    why: str | None = None

    def expect(self, plan: Sequence[ColumnPlan]) -> Expected:
        """Return the expected identity and keys of the store.

        A key template yields another key for each partition, so its text is no key, and such an index is not used.
        """
        keys = {
            column.leaf.logical[0]: column.key.text for column in plan if column.key and len(column.leaf.logical) == 1
        }
        return Expected.of(self.context.policy, self.context.uuid, keys)


def find_place(request: Mapping[str, Any]) -> Place:
    """Return the location of the store for a request's ``policy``, ``path`` and ``properties``."""
    context = table_context(require_text(request, "policy"), require_text(request, "path"), require_properties(request))
    location = context.policy.index_location
    if location is None:
        return Place(context, None, NO_LOCATION)
    if context.uuid is None:
        return Place(
            context, None, "the table has no UUID, by which its index would be found; tag it, or run `encrypt_table`"
        )
    return Place(context, open_folder(f"{location.rstrip('/')}/{context.uuid}", {}))


def column_types(request: Mapping[str, Any]) -> dict[str, str]:
    """Return column -> Spark type of a request's ``types``.

    Raises:
        BridgeError: it is no object of strings.
    """
    types = request.get("types")
    if not isinstance(types, dict) or not all(isinstance(kind, str) for kind in types.values()):
        raise BridgeError("the request's 'types' are not as expected; the jar and this helper do not belong together")
    return types


def retrieve_key(opener: DataKeyOpener, lifetime_seconds: float | None, request: KeyRequest) -> bytes:
    """Return a data key of a store, opened with a KEK that is not older than the session accepts."""
    return opener.open(parse_key_material(request.key_metadata or b""), lifetime_seconds=lifetime_seconds)
