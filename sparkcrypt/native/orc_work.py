"""Rewrites one ORC file by its order and proves the result equal to its source, stream by stream."""

from __future__ import annotations

import os
from functools import partial

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.native.open_places import Place, remove_file, size_of
from sparkcrypt.native.orders import FileOutcome, OrcOrder
from sparkcrypt.orc import (
    OrcEncryption,
    OrcKey,
    OrcRewriteResult,
    OrcVerification,
    inspect_orc,
    rewrap_orc,
    rewrite_orc,
    verify_orc,
)
from sparkcrypt.parquet import KeyRequest, RetrieveKey
from sparkcrypt.schema import join_dotted

_NOTHING = "all of it: ORC authenticates nothing"


def rewrite_orc_order(
    order: OrcOrder, source: Place, target: Place, retrieve_key: RetrieveKey, maker: DataKeyMaker
) -> FileOutcome:
    """Rewrite a file and prove the result; what is not proven leaves no target.

    Args:
        order: what is to be done.
        source: where the order's source is.
        target: where the order's target shall be.
        retrieve_key: opens local keys by their wrapped form.
        maker: makes and wraps local keys.

    Raises:
        SparkcryptError: as `rewrite_orc`, `rewrap_orc` and `verify_orc`.
    """
    digest_key = os.urandom(32)  # digests are compared here, and kept nowhere
    will_encrypt = None if order.action == "rewrap" else tuple(order.columns) if order.action == "encrypt" else ()
    before = verify_orc(source, retrieve_key=retrieve_key, digest_key=digest_key, will_encrypt=will_encrypt)
    result = _carry_out(order, source, target, retrieve_key, maker)
    try:
        after = _prove_equal(order, target, retrieve_key, before, result, digest_key)
    except BaseException:
        remove_file(target)
        raise
    weak = (*((_NOTHING,) if after.columns else ()), *((f"source: {_NOTHING}",) if before.columns else ()))
    return FileOutcome(
        source=order.source,
        target=order.target,
        rows=after.rows,
        bytes_before=size_of(source),
        bytes_after=size_of(target),
        unauthenticated=weak,
        notes=result.notes,
    )


def _carry_out(
    order: OrcOrder, source: Place, target: Place, retrieve_key: RetrieveKey, maker: DataKeyMaker
) -> OrcRewriteResult:
    if order.action == "rewrap":
        return rewrap_orc(source, target, retrieve_key=retrieve_key, wrap_key=partial(_wrap_again, maker))
    encryption = None
    if order.action == "encrypt":
        keys = {path: (*maker.make(master, is_footer_key=False), master) for path, master in order.columns.items()}
        encryption = OrcEncryption({path: OrcKey(*key) for path, key in keys.items()})
    return rewrite_orc(source, target, retrieve_key=retrieve_key, encryption=encryption)


def _wrap_again(maker: DataKeyMaker, request: KeyRequest, key: bytes) -> tuple[bytes, str]:
    master = parse_key_material(request.key_metadata or b"").master_key_id
    return maker.wrap(key, master, is_footer_key=False), master


def _prove_equal(
    order: OrcOrder,
    target: Place,
    retrieve_key: RetrieveKey,
    before: OrcVerification,
    result: OrcRewriteResult,
    digest_key: bytes,
) -> OrcVerification:
    """See that the target says what the source says, encrypted as ordered.

    Raises:
        VerificationError: it does not.
    """
    left_out = {"user_metadata"} if result.left_out else set()
    equal = {part: digest for part, digest in before.digests.items() if part not in left_out}
    try:
        after = verify_orc(target, retrieve_key=retrieve_key, equal_to=equal, digest_key=digest_key)
        found = inspect_orc(target)
    except FormatError as error:
        raise VerificationError(f"{order.target}: the rewritten file cannot be read back: {error}") from error
    for path, column in found.columns.items():
        covering = [key for root, key in order.columns.items() if path[: len(root)] == root]
        wanted = covering[0] if covering else None
        if column.key_id != wanted:
            raise VerificationError(
                f"{order.target}: column {join_dotted(path)} is under {column.key_id!r}, not {wanted!r}; it was "
                "ordered otherwise"
            )
    return after
