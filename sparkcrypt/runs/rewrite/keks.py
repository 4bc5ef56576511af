"""The KEKs of a table: one for each master key, kept wrapped in the state directory and used by later runs.

    keys/keks/<table id>/<digest of the key id>-<bits>/000001.json     the first KEK under a master key
    keys/keks/<table id>/<digest of the key id>-<bits>/000002.json     its successor

A reader of the table therefore makes one key-service call for each master key, however many executors wrote it, and one
more for each KEK that has a successor and still has files.  New files use a KEK as long as its record has the MAC of
the table's audit, the master key's current version wrapped it, the key service is the one that wrapped it, and it is
not old.  Otherwise it gets a successor.  Nothing depends on earlier records, since files contain their wrapped KEKs.

In the rotation of a master key, a key service that can (`KeyService.rewrap`) rewraps the KEK, so that the KEK is never
exposed, and files get a new wrapping of the KEK that they have.  A rewrapped KEK only rewraps files; it never wraps new
data keys, since anyone who unwrapped it under the earlier version could open these as well.
"""

from __future__ import annotations

import base64
import hmac
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, VerificationError
from sparkcrypt.keys.datakeys import KEK_ID_BYTES, RewrappedKek, WrappedKek
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.state.mac import Mac, has_mac_key
from sparkcrypt.ledger.state.store import StateStore, decode_record, encode_record
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.difference import Rotation

VERSION = 3
MAX_AGE = timedelta(days=90)
_CLOCKS_DIFFER = timedelta(days=1)
_PURPOSE = b"sparkcrypt table KEK\n"
"""The prefix of authenticated bytes: the same MAC key authenticates the audit, whose entries begin differently."""
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class TableKeks:
    """The KEKs of a table.

    Attributes:
        store: the state directory.
        table_id: the table's id.
        config: the key service; a KEK that another key service wrapped is not used.
        data_key_bits: the length of KEKs.
        mac: the MAC of the table's audit under its newest key; without it, anyone who can write to the state directory
            and may wrap can have their own KEK used.
    """

    store: StateStore
    table_id: str
    config: KeyServiceConfig
    data_key_bits: int
    mac: Mac | None = None

    def find_or_make(
        self, service: KeyService, master_keys: Iterable[str], *, rewraps: bool = False
    ) -> tuple[WrappedKek, ...]:
        """Return a KEK for each master key, created if there is none that may be used.

        A new KEK is in this process's memory only until it is wrapped; to use it, the stored text is unwrapped.

        Args:
            service: wraps new KEKs, and returns the versions of master keys.
            master_keys: the ids of the master keys.
            rewraps: the KEKs will wrap no new data keys, so that a rewrapped KEK may be used.

        Raises:
            KeyServiceError: a KEK could not be wrapped, or a master key no longer exists.
            ConfigError: the name of each new record was taken.
        """
        keks = (self._select(key) for key in sorted(set(master_keys)))
        return tuple(known.find_or_make(service, rewraps=rewraps) for known in keks)

    def list_wrappings(self, keks: Iterable[WrappedKek]) -> tuple[RewrappedKek, ...]:
        """Return every wrapping of some KEKs in authentic records, each with the KEK's current wrapping."""
        return tuple(
            RewrappedKek(record.kek, kek.wrapped_kek)
            for kek in keks
            for record in self._select(kek.master_key_id).records()
            if record.kek.kek_id == kek.kek_id
        )

    def find(self, master_key: str, version: int) -> WrappedKek | None:
        """Return the KEK that a rewrap would use under the newest version of a master key; None if there is none."""
        return self._select(master_key).find(version, rewraps=True)

    def _select(self, master_key: str) -> _Keks:
        return _Keks(self.store, self.table_id, master_key, self.config, self.data_key_bits, self.mac)


@dataclass(frozen=True, slots=True)
class _Record:
    """The authenticated record of a KEK."""

    kek: WrappedKek
    version: object
    made: int
    rewrapped: bool


@dataclass(frozen=True, slots=True)
class _Keks:
    """The KEKs of a table under one master key."""

    store: StateStore
    table_id: str
    master_key: str
    config: KeyServiceConfig
    bits: int
    mac: Mac | None

    def find_or_make(self, service: KeyService, *, rewraps: bool) -> WrappedKek:
        """Return the newest KEK that may be used; if there is none, create one, or use another run's if it was faster.

        Raises:
            ConfigError: the name of each new record was taken.
        """
        newest_version = self._newest_version(service)
        for _ in range(_ATTEMPTS):
            numbers = self._numbers()
            newest = self.find(newest_version, numbers, rewraps=rewraps)
            if newest is not None:
                return newest
            free = next(number for number in count(1) if number not in numbers)
            if not (rewraps and self._rewrap(service, free, newest_version)):
                self._make(service, free, newest_version)
        raise ConfigError(
            f"{self._folder()} in the state directory gets records that are no KEKs as fast as KEKs are made; see who "
            "writes there"
        )

    def find(self, newest_version: int | None, numbers: set[int] | None = None, *, rewraps: bool) -> WrappedKek | None:
        """Return the newest KEK that may be used under a version of the master key; None if there is none."""
        for record in self.records(numbers):
            if newest_version in (None, record.version) and (rewraps or not record.rewrapped):
                return record.kek
        return None

    def records(self, numbers: set[int] | None = None) -> Iterator[_Record]:
        """Yield the authentic records of KEKs of this key service that are not too old, newest first."""
        for number in sorted(self._numbers() if numbers is None else numbers, reverse=True):
            record = self._read(number)
            if record is not None:
                yield record

    def _rewrap(self, service: KeyService, number: int, version: int | None) -> bool:
        """Have the key service rewrap the newest KEK; False if it cannot, or these credentials may not."""
        newest = next(self.records(), None) if self.mac is not None else None
        if newest is None or version is None or not service.offers("rewrap"):
            return False
        try:
            wrapped = service.rewrap(self.master_key, newest.kek.wrapped_kek)
        except KeyAccessDeniedError:
            return False
        self._keep(number, replace(newest.kek, wrapped_kek=wrapped), version, newest.made, rewrapped=True)
        return True

    def _newest_version(self, service: KeyService) -> int | None:
        """Return the master key's newest version; None if these credentials may not read it: then only age counts."""
        try:
            return service.describe(self.master_key).versions
        except KeyAccessDeniedError:
            return None

    def _read(self, number: int) -> _Record | None:
        name = self._name(number)
        try:
            body = decode_record(name, self.store.read(name) or b"")
            claimed_mac, made_at = body.pop("mac", None), body.get("made")
            kek = WrappedKek(self.master_key, str(body.get("kek_id")), str(body.get("wrapped_kek")))
            version, rewrapped = body.get("master_key_version"), body.get("rewrapped") is True
            expected = self._body(number, kek, version, made_at, rewrapped=rewrapped)
        except VerificationError:
            return None
        if body != expected or not isinstance(made_at, int) or not self._is_young(made_at):
            return None
        return _Record(kek, version, made_at, rewrapped) if self._authenticates(expected, claimed_mac) else None

    def _make(self, service: KeyService, number: int, version: int | None) -> None:
        wrapped = service.wrap(self.master_key, os.urandom(self.bits // 8))
        kek = WrappedKek(self.master_key, base64.b64encode(os.urandom(KEK_ID_BYTES)).decode(), wrapped)
        self._keep(number, kek, version, int(time.time()), rewrapped=False)

    def _keep(self, number: int, kek: WrappedKek, version: int | None, made: int, *, rewrapped: bool) -> None:
        body = self._body(number, kek, version, made, rewrapped=rewrapped)
        mac = None if self.mac is None else self.mac(_PURPOSE + encode_record(body))
        self.store.create(self._name(number), encode_record({**body, "mac": mac}))

    def _body(
        self, number: int, kek: WrappedKek, version: object, made_at: object, *, rewrapped: bool
    ) -> dict[str, Any]:
        return {
            "version": VERSION,
            "key_service": self.config.place(),
            "table_id": self.table_id,
            "number": number,
            "data_key_bits": self.bits,
            "master_key_id": self.master_key,
            "master_key_version": version,
            "kek_id": kek.kek_id,
            "wrapped_kek": kek.wrapped_kek,
            "made": made_at,
            **({"rewrapped": True} if rewrapped else {}),
        }

    def _authenticates(self, body: dict[str, Any], claimed_mac: object) -> bool:
        if self.mac is None:
            return True
        made = self.mac(_PURPOSE + encode_record(body))
        return isinstance(claimed_mac, str) and hmac.compare_digest(made.encode(), claimed_mac.encode())

    @staticmethod
    def _is_young(made: int) -> bool:
        return -_CLOCKS_DIFFER.total_seconds() <= time.time() - made < MAX_AGE.total_seconds()

    def _folder(self) -> str:
        return f"keys/keks/{self.table_id}/{key_digest(self.master_key)}-{self.bits}"

    def _name(self, number: int) -> str:
        return f"{self._folder()}/{number:06d}.json"

    def _numbers(self) -> set[int]:
        """Return the numbers of all records, authentic or not."""
        names = (name.rpartition("/")[2].removesuffix(".json") for name in self.store.list(f"{self._folder()}/"))
        return {int(name) for name in names if name.isascii() and name.isdigit() and name == f"{int(name):06d}"}


def rotation_of(options: RunOptions, trust: TableTrust) -> Rotation | None:
    """Return the rotation that a run's options request, with the table's present KEK; None for any other run.

    The KEK is looked up again for each unit, since the run may have stopped wrapping with it.  This creates no KEK:
    staging the first unit does.

    Args:
        options: the run's options.
        trust: the table's trust; a KEK that the audit's MAC does not authenticate is ignored.

    Raises:
        KeyServiceError: the master key no longer exists, or these credentials may not describe it.
        VerificationError: the MAC key is damaged.
    """
    if options.rotate_key is None:
        return None
    version = 1 if options.rotate_to is None else options.rotate_to
    if not options.dry_run:
        version = max(version, open_key_service(trust.policy.key_service).describe(options.rotate_key).versions)
    has_audit = has_mac_key(trust.store, trust.table_id)
    if not has_audit:
        return Rotation(options.rotate_key, version, None, options.rotate_from)
    policy = trust.policy
    keks = TableKeks(trust.store, trust.table_id, policy.key_service, policy.data_key_bits, trust.mac())
    kek = keks.find(options.rotate_key, version)
    rotation = Rotation(options.rotate_key, version, None, options.rotate_from)
    return rotation if kek is None else rotation.with_keks([kek])
