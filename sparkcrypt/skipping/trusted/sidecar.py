"""The sidecar of a store, an authenticated manifest of its files, table, generation and objects; and the store's keys.

``_sparkcrypt.json`` contains key material (PKMT1, wrapped by the footer's master key) and one AES-GCM box of JSON.
Readers of Parquet folders ignore a file of this name.  A store without a sidecar is shown but never used to skip: the
specification identifies an object only by path and modification time, and a file with both may have other rows.
Every index is under its column's key, everything else under the footer's key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.parquet.file.modules import KeyRequest, ModuleCipher, RetrieveKey
from sparkcrypt.files.parquet.file.schema import Path as ColumnPath
from sparkcrypt.files.parquet.rewrite.encryption import FOOTER_KEY, ColumnKey, DataKey, FileEncryption
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.description import OBJECT, PARTITION_PREFIX, VERSION, Index, Labels, field_name
from sparkcrypt.skipping.format.store import Store, leaf_paths_of

SIDECAR = "_sparkcrypt.json"
MAX_BYTES = 256 * 1024 * 1024
"""Maximum size of a sidecar; that of 100,000 objects has about 30 MB."""
DIGEST_KEY_BYTES = 32
_DIGEST_BYTES = 16
_FORMAT = "sparkcrypt index"
_VERSION = 1
_AAD = b"sparkcrypt index sidecar 1\0"


def new_digest_key() -> bytes:
    """Return a new key for the digests of footers."""
    return secrets.token_bytes(DIGEST_KEY_BYTES)


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """Facts about an object's file when it was indexed.

    Attributes:
        length: the file's length in bytes.
        file_unique: an encrypted file's file-unique in hexadecimal; None for a plaintext file.
        footer_digest: keyed digest of the file's footer in hexadecimal; None if the footer was not read.
    """

    length: int
    file_unique: str | None = None
    footer_digest: str | None = None


@dataclass(frozen=True, slots=True)
class PartSize:
    """The size of a store's file, which a reader checks before opening it.

    Attributes:
        rows: number of rows, one for each object.
        bytes: approximate decompressed size of its columns.
        values: number of values in its columns.
    """

    rows: int
    bytes: int
    values: int


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A store's manifest.

    Attributes:
        table_uuid: the table's UUID; None for a bare folder.
        generation: counts the store's writes, from 1 on.
        files: name of each file of the store -> its length in bytes and its file-unique in hexadecimal.
        objects: name of each object -> its facts.  Those with a row come first, in the order of ``files`` and of
            their rows, then those without one.
        given: partition column -> its value in every object, if no folder name contains it.
        digest_key: the key of the footers' digests.
        written_at: when it was written (ISO 8601, UTC), by its writer's clock.
        sizes: name of each file -> its size.
    """

    table_uuid: str | None
    generation: int
    files: Mapping[str, tuple[int, str]]
    objects: Mapping[str, ObjectFacts]
    written_at: str
    sizes: Mapping[str, PartSize]
    digest_key: bytes = field(default_factory=new_digest_key, repr=False)
    given: Mapping[str, str] = field(default_factory=dict)

    def footer_digest(self, tail: bytes) -> str:
        """Return the digest of a file's tail: the footer and the eight bytes after it."""
        return keyed_digest(self.digest_key, tail)


def keyed_digest(key: bytes, tail: bytes) -> str:
    """Return the digest of a file's tail under a key: HMAC-SHA256, truncated to 16 bytes, in hexadecimal."""
    return hmac.new(key, tail, hashlib.sha256).digest()[:_DIGEST_BYTES].hex()


def seal_sidecar(sidecar: Sidecar, key: DataKey) -> bytes:
    """Return the bytes of a sidecar, encrypted under a data key that must not be used for anything else.

    Raises:
        ConfigError: they exceed `MAX_BYTES`.
    """
    document = {
        "files": {name: list(facts) for name, facts in sidecar.files.items()},
        "objects": {
            name: [facts.length, facts.file_unique, facts.footer_digest] for name, facts in sidecar.objects.items()
        },
        "digest_key": base64.b64encode(sidecar.digest_key).decode(),
        "given": dict(sidecar.given),
        "written_at": sidecar.written_at,
        "sizes": {name: [size.rows, size.bytes, size.values] for name, size in sidecar.sizes.items()},
    }
    aad = _aad(sidecar.table_uuid, sidecar.generation, key.key_metadata.decode())
    box = ModuleCipher(key.key).encrypt(json.dumps(document, separators=(",", ":")).encode(), aad)
    outside = {
        "format": _FORMAT,
        "version": _VERSION,
        "table_uuid": sidecar.table_uuid,
        "generation": sidecar.generation,
        "key": key.key_metadata.decode(),
        "box": base64.b64encode(box).decode(),
    }
    sealed = json.dumps(outside).encode()
    if len(sealed) > MAX_BYTES:
        raise ConfigError(
            f"{SIDECAR}: would have {len(sealed):,} bytes for {len(sidecar.objects):,} files; allowed: {MAX_BYTES:,}, "
            "some 800,000 files of a table; index fewer of them"
        )
    return sealed


def claimed_generation(data: bytes) -> int:
    """Return the generation in a sidecar without authenticating it, as `open_sidecar` does.

    Raises:
        FormatError: the bytes are no sidecar.
    """
    return _read_clear_part(data)[1]


def open_sidecar(data: bytes, retrieve_key: RetrieveKey, is_footer_key: Callable[[str], bool]) -> Sidecar:
    """Decrypt and authenticate a sidecar.

    Args:
        data: the sidecar's bytes.
        retrieve_key: opens its data key.
        is_footer_key: tells whether a master key is the policy's footer key, or in its history.

    Raises:
        FormatError: the bytes are no sidecar.
        VerificationError: it does not authenticate, or is under another master key.
        KeyServiceError: the key service did not open its key.
    """
    table_uuid, generation, outside = _read_clear_part(data)
    key, box = outside.get("key"), outside.pop("box", None)
    if not isinstance(key, str) or not isinstance(box, str) or not key.isascii():
        raise FormatError(f"{SIDECAR}: lacks its key or its box; expected both")
    material = parse_key_material(key.encode())
    if not is_footer_key(material.master_key_id):
        raise VerificationError(
            f"{SIDECAR}: is under master key {material.master_key_id!r}, which the policy does not name for footers; "
            "name it under footer.history if it was the footer's once, else index the table again"
        )
    cipher = ModuleCipher(retrieve_key(KeyRequest(SIDECAR, None, key.encode())))
    try:
        sealed = base64.b64decode(box, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{SIDECAR}: its box is not base64; expected base64") from error
    box = None  # frees memory: a large box is not kept in several forms
    opened = cipher.decrypt(sealed, _aad(table_uuid, generation, key), SIDECAR)
    del sealed
    return _sidecar(table_uuid, generation, _object(_json(opened)))


def _aad(table_uuid: str | None, generation: int, key: str) -> bytes:
    return _AAD + json.dumps([table_uuid, generation, key]).encode()


def _read_clear_part(data: bytes) -> tuple[str | None, int, dict[str, Any]]:
    outside = _object(_json(data[: MAX_BYTES + 1]))
    if len(data) > MAX_BYTES or (outside.get("format"), outside.get("version")) != (_FORMAT, _VERSION):
        raise FormatError(f"{SIDECAR}: is no sidecar of version {_VERSION}; expected one: index the table again")
    table_uuid, generation = outside.get("table_uuid"), outside.get("generation")
    if not (table_uuid is None or isinstance(table_uuid, str)) or type(generation) is not int or generation < 1:
        raise FormatError(f"{SIDECAR}: lacks its table or its generation; expected both")
    return table_uuid, generation, outside


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{SIDECAR}: is no JSON; expected an object") from error


def _object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise FormatError(f"{SIDECAR}: is no JSON object; expected one")
    return document


def _sidecar(table_uuid: str | None, generation: int, document: Mapping[str, Any]) -> Sidecar:
    """Return the content of a box; its fields are checked, since another version of sparkcrypt may have sealed it."""
    try:
        files = {str(name): (int(length), str(unique)) for name, (length, unique) in document["files"].items()}
        objects = {str(name): ObjectFacts(*facts) for name, facts in document["objects"].items()}
        digest_key = base64.b64decode(document["digest_key"], validate=True)
        values = {str(column): str(value) for column, value in document["given"].items()}
        written_at = str(document["written_at"])
        sizes = {str(name): PartSize(*map(_count, size)) for name, size in document["sizes"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{SIDECAR}: holds other fields than version {_VERSION}; expected its own") from error
    if any(type(facts.length) is not int for facts in objects.values()):
        raise FormatError(f"{SIDECAR}: holds a length that is no number; expected numbers")
    if any("/" in name or name.startswith((".", "_")) for name in files):
        raise FormatError(f"{SIDECAR}: names a file outside of the store's folder; expected names")
    if sizes.keys() != files.keys() or sum(size.rows for size in sizes.values()) > len(objects):
        raise FormatError(f"{SIDECAR}: tells the sizes of other files and objects than it names; expected of its own")
    return Sidecar(table_uuid, generation, files, objects, written_at, sizes, digest_key, values)


def _count(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError("a size that is no number")
    return number


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The identity of a store: the table's UUID (None for a bare folder), and its generation, from 1 on."""

    table_uuid: str | None
    generation: int

    def aad_prefix(self, name: str) -> bytes:
        """Return the AAD prefix of a file of the store, which no data file and no other generation has."""
        return FileIdentity(self.table_uuid, f".index/{self.generation}", name).to_aad_prefix()


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The keys of a store.

    Attributes:
        maker: makes data keys.
        footer: the master key of everything that has no key of its own.
        columns: column -> the master key of its indexes; untagged columns are left out.
    """

    maker: DataKeyMaker
    footer: str
    columns: Mapping[str, str]

    def of(self, index: Index) -> str:
        """Return the master key of an index."""
        own = {self.columns[column] for column in index.columns if column in self.columns}
        return own.pop() if len(own) == 1 else self.footer

    def make_footer_key(self) -> DataKey:
        """Return a new data key under the footer's master key."""
        return DataKey(*self.maker.make(self.footer, is_footer_key=True))


def label_fields(store: Store, keys: StoreKeys) -> Store:
    """Return a store of version 4, with names of fields, and with labels of keys where upstream reads them."""
    indexes = tuple(
        replace(
            index,
            index=replace(
                index.index,
                field=field_name(index.index.columns, index.index.kind),
                key=encode_key_id(keys.of(index.index)),
            ),
        )
        for index in store.indexes
    )
    partitions = tuple(
        (replace(column, field=PARTITION_PREFIX + column.column), values) for column, values in store.partitions
    )
    under: dict[str, list[str]] = {encode_key_id(keys.footer): [OBJECT, *(column.field for column, _ in partitions)]}
    for index in indexes:
        under.setdefault(index.index.key or "", []).extend(".".join(path) for path in leaf_paths_of(index.index))
    text = ";".join(f"{label}:{','.join(paths)}" for label, paths in under.items())
    labels = Labels(encode_key_id(keys.footer), text, "encrypted")
    return replace(store, version=VERSION, labels=labels, indexes=indexes, partitions=partitions)


def choose_encryption(store: Store, schema: str, keys: StoreKeys, aad_prefix: bytes) -> FileEncryption:
    """Return the encryption of one file of a store, with new data keys."""
    own: dict[str, DataKey] = {}
    columns: dict[ColumnPath, ColumnKey] = {}
    for index in store.indexes:
        master = keys.of(index.index)
        if master == keys.footer:
            continue
        if master not in own:
            own[master] = DataKey(*keys.maker.make(master, is_footer_key=False))
        columns |= dict.fromkeys(leaf_paths_of(index.index), own[master])
    return FileEncryption(
        keys.make_footer_key(),
        columns=columns,
        default=FOOTER_KEY,
        aad_prefix=aad_prefix,
        key_values={SPARK_SCHEMA: schema},
    )
