"""The KEKs of a table: one for each master key, kept wrapped in the state directory and used by every later run.

So a reader of the table makes as many key-service calls as there are master keys, however many executors wrote it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable

from sparkcrypt.backfill.store import StateStore
from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.datakeys import KEK_ID_BYTES, WrappedKek
from sparkcrypt.keys.service import KeyService


def table_keks(
    store: StateStore, table_id: str, service: KeyService, master_keys: Iterable[str], *, data_key_bits: int
) -> tuple[WrappedKek, ...]:
    """Return a KEK for each master key, made where there is none yet.

    A new KEK exists in this process until it is wrapped; who needs it unwraps what is stored.

    Raises:
        KeyServiceError: a KEK could not be wrapped.
        ConfigError: a stored record is not what it was written as.
    """
    return tuple(_kek(store, table_id, service, key, data_key_bits) for key in sorted(set(master_keys)))


def _kek(store: StateStore, table_id: str, service: KeyService, master_key: str, bits: int) -> WrappedKek:
    name = f"keks/{table_id}/{hashlib.sha256(master_key.encode()).hexdigest()[:32]}-{bits}.json"
    known = store.read(name)
    if known is None:
        wrapped = service.wrap(master_key, os.urandom(bits // 8))
        kek_id = base64.b64encode(os.urandom(KEK_ID_BYTES)).decode()
        record = {"master_key_id": master_key, "kek_id": kek_id, "wrapped_kek": wrapped}
        store.create(name, json.dumps(record, ensure_ascii=True).encode())
        known = store.read(name)  # another run's, if it was faster
    try:
        record = json.loads(known or b"")
        kek = WrappedKek(str(record["master_key_id"]), str(record["kek_id"]), str(record["wrapped_kek"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{name} in the state directory is not a KEK's record; remove it, a new one is made"
        ) from error
    if kek.master_key_id != master_key:
        raise ConfigError(
            f"{name} in the state directory is the KEK of another master key; remove it, a new one is made"
        )
    return kek
