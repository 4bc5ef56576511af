"""Rewrites one ORC file by its order and proves the result equal to its source, stream by stream."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.open_places import Place, remove_file, size_of
from sparkcrypt.files.orc import (
    OrcEncryption,
    OrcKey,
    OrcRewriteResult,
    OrcVerification,
    inspect_orc,
    read_tail,
    rewrap_orc,
    rewrite_orc,
    summarise_orc,
    verify_orc,
)
from sparkcrypt.files.orc.file.tail import read_purged_note
from sparkcrypt.files.orders import FileOutcome, OrcOrder
from sparkcrypt.files.output import open_target
from sparkcrypt.files.parquet import KeyRequest, RetrieveKey
from sparkcrypt.files.source import open_source
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.schema import join_dotted

UNAUTHENTICATED_ORC = "all of it: ORC authenticates nothing"
"""What an outcome lists as unauthenticated for an encrypted ORC file."""


def rewrite_orc_order(
    order: OrcOrder, source: Place, target: Place, retrieve_key: RetrieveKey, maker: DataKeyMaker
) -> FileOutcome:
    """Rewrite a file and prove the result; a target that is not proven is removed.

    Args:
        order: what to do.
        source: the place of the order's source.
        target: the place of the order's target.
        retrieve_key: unwraps local keys.
        maker: makes and wraps local keys.

    Raises:
        SparkcryptError: as `rewrite_orc`, `rewrap_orc` and `verify_orc`.
    """
    digest_key = os.urandom(32)  # digests are only compared in this function, never stored
    retrieve_source = _refuse_others(order.source, order.source_identity, retrieve_key, "it was listed with")
    _refuse_other_keys(order, source)
    rewrites = order.action in ("encrypt", "decrypt")
    will_encrypt = None if not rewrites else tuple(order.columns)
    before = verify_orc(
        source,
        retrieve_key=retrieve_source,
        digest_key=digest_key,
        will_encrypt=will_encrypt,
        dark=order.carried,
        purged=order.purged,
    )
    outcome = _carry_out(order, source, target, retrieve_source, maker)
    try:
        after = _prove_equal(order, target, retrieve_key, before, outcome, digest_key)
    except BaseException:
        remove_file(target)
        raise
    weak = [UNAUTHENTICATED_ORC] if after.columns else []
    if before.columns:
        weak.append(f"source: {UNAUTHENTICATED_ORC}")
    return FileOutcome(
        source=order.source,
        target=order.target,
        rows=after.rows,
        bytes_before=size_of(source),
        bytes_after=size_of(target),
        unauthenticated=tuple(weak),
        notes=outcome.notes,
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """The notes on a target, and whether the rewrite left out user metadata."""

    notes: tuple[str, ...] = ()
    left_out: bool = False

    @classmethod
    def of(cls, result: OrcRewriteResult) -> _Made:
        return cls(tuple(result.notes), bool(result.left_out))


def _refuse_other_keys(order: OrcOrder, source: Place) -> None:
    """Refuse a source whose dark columns, or the identity of its local keys, differ from what was listed.

    Raises:
        VerificationError: a dark column is not under the shredded key (names the column and both keys), or the local
            keys are bound to another file.
    """
    dark = {**order.carried, **order.purged}
    if not dark:
        return
    summary = inspect_orc(source)
    for path, key_id in dark.items():
        found = summary.columns[path].key_id if path in summary.columns else None
        if found != key_id:
            raise VerificationError(
                f"{order.source}: column {join_dotted(path)} is under {found!r}, and was under the shredded {key_id!r} "
                "when it was listed; someone replaced the file"
            )
    if summary.identity != order.source_identity:
        raise VerificationError(
            f"{order.source}: its local keys are bound to another file than when it was listed; someone replaced it"
        )


def _carry_out(order: OrcOrder, source: Place, target: Place, retrieve_key: RetrieveKey, maker: DataKeyMaker) -> _Made:
    if order.action == "copy":
        with open_source(source) as file, open_target(target, file.access) as output:
            output.copy(file, 0, file.size, "the file")
        return _Made()
    if order.action == "rewrap":
        wrap_key = _Wrap(order, maker)
        return _Made.of(rewrap_orc(source, target, retrieve_key=retrieve_key, wrap_key=wrap_key, dark=order.carried))
    encryption = None
    if order.action == "encrypt":
        columns = {}
        for path, master in order.columns.items():
            key, wrapped = maker.make(master, is_footer_key=False, file_identity=order.identity)
            columns[path] = OrcKey(key, wrapped, master)
        encryption = OrcEncryption(columns)
    outcome = rewrite_orc(
        source, target, retrieve_key=retrieve_key, encryption=encryption, dark=order.carried, purge=order.purged
    )
    return _Made.of(outcome)


@dataclass(frozen=True, slots=True)
class _Wrap:
    """A callback that wraps a local key for the target, under the master key ordered for the columns it encrypts."""

    order: OrcOrder
    maker: DataKeyMaker

    def __call__(self, request: KeyRequest, key: bytes) -> tuple[bytes, str]:
        """Return the newly wrapped key, and the master key id.

        Raises:
            VerificationError: no master key was ordered for these columns, or more than one.
        """
        root = request.column or ()
        masters = {master for path, master in self.order.columns.items() if path[: len(root)] == root}
        if len(masters) != 1:
            raise VerificationError(
                f"{self.order.source}: column {join_dotted(root)} has one local key, and was ordered under "
                f"{', '.join(sorted(masters)) or 'none'}; someone replaced the file since it was listed"
            )
        (master,) = masters
        return self.maker.wrap(key, master, is_footer_key=False, file_identity=self.order.identity), master


def _refuse_others(file: str, identity: bytes | None, retrieve_key: RetrieveKey, what: str) -> RetrieveKey:
    """Return a callback that opens local keys bound to one file identity, and refuses all others."""

    def retrieve(request: KeyRequest) -> bytes:
        found, column = parse_key_material(request.key_metadata or b"").file_identity, join_dotted(request.column or ())
        if found is None:
            raise VerificationError(
                f"{file}: nothing ties the local key of {column} to this file; restore the file, or write it again"
            )
        if found != identity:
            raise VerificationError(
                f"{file}: the local key of {column} is bound to another file than {what}; someone replaced the file"
            )
        return retrieve_key(request)

    return retrieve


def _prove_equal(
    order: OrcOrder,
    target: Place,
    retrieve_key: RetrieveKey,
    before: OrcVerification,
    outcome: _Made,
    digest_key: bytes,
) -> OrcVerification:
    """Check that the target's content equals the source's, and that it is encrypted as ordered.

    Raises:
        VerificationError: it differs.
    """
    left_out = {"user_metadata"} if outcome.left_out else set()
    identity = order.source_identity if order.action == "copy" else order.identity
    retrieve_target = _refuse_others(order.target, identity, retrieve_key, "was ordered")
    ordered = before.columns if order.action == "copy" else {**order.columns, **order.carried}
    equal = {part: digest for part, digest in before.digests.items() if part not in left_out}
    try:
        after = verify_orc(
            target,
            retrieve_key=retrieve_target,
            equal_to=equal,
            digest_key=digest_key,
            dark=order.carried,
            nulls=order.purged,
        )
        tail = read_tail(target)
        found = summarise_orc(tail)
    except FormatError as error:
        raise VerificationError(f"{order.target}: the rewritten file cannot be read back: {error}") from error
    if order.purged.items() - read_purged_note(tail.footer).items():
        raise VerificationError(f"{order.target}: does not note each column that nulls have replaced, as was ordered")
    for path, column in found.columns.items():
        covering = [key for root, key in ordered.items() if path[: len(root)] == root]
        wanted = covering[0] if covering else None
        if column.key_id != wanted:
            raise VerificationError(
                f"{order.target}: column {join_dotted(path)} is under {column.key_id!r}, not {wanted!r}; it was "
                "ordered otherwise"
            )
    return after
