"""Opens the local keys of a file, and checks that they are those that it names and that none is used twice."""

from __future__ import annotations

from collections.abc import Collection

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.orc.file.cipher import LocalKey, LocalKeys
from sparkcrypt.files.orc.file.encryption import Encryption, Variant
from sparkcrypt.files.orc.file.tail import Tail, read_tail
from sparkcrypt.files.parquet.file.keys import RetrieveKey
from sparkcrypt.files.source import Source, naming
from sparkcrypt.keys.material import KeyMaterial, parse_key_material
from sparkcrypt.schema import join_dotted


def verify_orc_keys(source: Source, *, retrieve_key: RetrieveKey, shredded: Collection[str] = ()) -> Tail:
    """Open every local key of a file, without reading its streams.

    Args:
        source: as `read_tail`.
        retrieve_key: called once for each local key.
        shredded: master keys whose local keys are not opened.

    Returns:
        The file's tail.

    Raises:
        FormatError, VerificationError: as `check_keys`.
    """
    tail = read_tail(source)
    if tail.encryption is not None:
        with naming(tail.file):
            named = [variant for variant in tail.encryption.variants if variant.key.key_id in shredded]
            dark = {variant.number for variant in named if check_key_name(variant, variant.encrypted_key) is not None}
            check_keys(tail, tail.encryption, LocalKeys(tail.file, retrieve_key), dark)
    return tail


def check_keys(tail: Tail, encryption: Encryption, keys: LocalKeys, dark: Collection[int] = ()) -> None:
    """Open every local key, except those of the variants whose numbers are in ``dark``.

    Raises:
        FormatError: a key's length is not its algorithm's.
        VerificationError: a wrapped key is under another master key than the file names, or one local key encrypts
            two variants, or two stripes of the same id: different data would be encrypted with the same key stream.
    """
    variants: dict[LocalKey, Variant] = {}
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
            check_key_name(variant, wrapped)
            if variant.number in dark:
                continue
            key = keys.open(variant, wrapped)
            if key in variants:
                raise VerificationError(
                    f"variants {variants[key].number} and {variant.number} have one local key; expected one for each: "
                    "write the file again"
                )
            variants[key] = variant


def check_key_name(variant: Variant, wrapped: bytes) -> KeyMaterial | None:
    """Return the key material of a variant's wrapped local key, or None for a form of another writer.

    Raises:
        VerificationError: the file names another master key for the variant.
    """
    try:
        material = parse_key_material(wrapped)
    except FormatError:
        return None
    if material.master_key_id != variant.key.key_id:
        raise VerificationError(
            f"{join_dotted(variant.root.path)} is said to be under {variant.key.key_id!r}, and its local key is "
            f"wrapped by {material.master_key_id!r}; expected one master key: somebody altered the file"
        )
    return material
