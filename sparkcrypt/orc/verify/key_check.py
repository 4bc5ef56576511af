"""Opens the local keys of a file, and sees that they are those that it names and that none is used twice."""

from __future__ import annotations

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.orc.file.cipher import LocalKey, LocalKeys
from sparkcrypt.orc.file.encryption import Encryption, Variant
from sparkcrypt.orc.file.tail import Tail
from sparkcrypt.schema import join_dotted


def check_keys(tail: Tail, encryption: Encryption, keys: LocalKeys) -> None:
    """Open every local key.

    Raises:
        FormatError: a key has another length than its algorithm's.
        VerificationError: a wrapped key is under another master key than the file names, or one local key encrypts
            two variants, or two stripes of one id: equal key streams then lie over different data.
    """
    seen: dict[LocalKey, Variant] = {}
    for variant in encryption.variants:
        uses = [
            (variant.encrypted_key, tail.footer_id),
            *((stripe.local_keys[variant.number], stripe.id) for stripe in tail.stripes),
        ]
        ids: dict[bytes, set[int]] = {}
        for wrapped, stripe_id in uses[1:]:
            if stripe_id in ids.setdefault(wrapped, set()):
                raise VerificationError(
                    f"variant {variant.number} has one local key for two stripes of id {stripe_id}; expected another "
                    "key or id for each: write the file again"
                )
            ids[wrapped].add(stripe_id)
        for wrapped in dict.fromkeys(wrapped for wrapped, _ in uses):
            _check_name(variant, wrapped)
            key = keys.open(variant, wrapped)
            if key in seen:
                raise VerificationError(
                    f"variants {seen[key].number} and {variant.number} have one local key; expected one for each: "
                    "write the file again"
                )
            seen[key] = variant


def _check_name(variant: Variant, wrapped: bytes) -> None:
    try:
        material = parse_key_material(wrapped)
    except FormatError:  # another writer's own form
        return
    if material.master_key_id != variant.key.key_id:
        raise VerificationError(
            f"{join_dotted(variant.root.path)} is said to be under {variant.key.key_id!r}, and its local key is "
            f"wrapped by {material.master_key_id!r}; expected one master key: somebody altered the file"
        )
