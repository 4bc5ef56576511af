"""One reader of a table: the keys that it may open, the refusals that it gets, and the events that its reads leave."""

from __future__ import annotations

import base64
import getpass
import itertools
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict

import pyarrow.parquet.encryption as pe

from sparkcrypt.decide.access_log import ACCESS, LOST, AccessLog, Outcome, Record, make_record
from sparkcrypt.decide.denied import refuse_named, refused_key
from sparkcrypt.decide.read_checks import check_footer_key
from sparkcrypt.errors import (
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyRetiredError,
    KeyServiceError,
    StorageError,
    VerificationError,
)
from sparkcrypt.files.open_places import Settings
from sparkcrypt.keys.expiring_cache import ExpiringCache
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.material import KeyMaterial, parse_key_material
from sparkcrypt.keys.opened import OpenedKeyService
from sparkcrypt.keys.tombstones import reason_of_absence
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import AccessLogRule, Policy, ReadMode
from sparkcrypt.schema import join_dotted

ROUTE = "arrow"
MOST_KEPT = 10_000
"""Maximum number of events kept in memory while the log cannot be written; further ones are counted as lost."""
_LOG = logging.getLogger(__name__)

_Same: TypeAlias = "tuple[str, Outcome, str | None]"
"""Key, outcome and reason, by which the events of one read are distinguished."""


@dataclass(slots=True)
class _Written:
    columns: set[str | None] = field(default_factory=set)
    further: int = 0
    last_ms: int = 0


class ProcessLog:
    """This process's writer of one access log; thread-safe.

    Args:
        rule: the log's location, and whether a read fails if its events cannot be written.
    """

    def __init__(self, rule: AccessLogRule) -> None:
        self.rule = rule
        self._application = f"{ROUTE}-{os.getpid()}"
        self._process = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
        self._log = AccessLog(rule.location, owner=f"{self._application}-{self._process}")
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._kept: list[Record] = []
        self._lost = 0
        self._is_warned = False

    def write(self, event: dict[str, object]) -> None:
        """Write an event, after earlier ones that could not be written.

        Raises:
            StorageError: it could not be written, and the log is required.
        """
        with self._lock:
            records = [*self._kept, *self._make_lost_record(), self._record(event)]
            try:
                self._log.append(records, durable=self.rule.required)
            except StorageError as error:
                if self.rule.required:
                    raise
                self._keep(records)
                if not self._is_warned:
                    _LOG.warning("%s; reads go on, and events are kept and written later", error)
                self._is_warned = True
            else:
                self._kept, self._lost, self._is_warned = [], 0, False

    def _record(self, event: dict[str, object]) -> Record:
        known = {"application": self._application, "route": ROUTE, "number": next(self._numbers)}
        return make_record({**event, **known}, process=self._process)

    def _make_lost_record(self) -> Iterable[Record]:
        if self._lost:
            now = _now_ms()
            yield self._record({"kind": LOST, "count": self._lost, "first_ms": now, "last_ms": now})

    def _keep(self, records: list[Record]) -> None:
        events = [record for record in records if record["kind"] != LOST]
        self._lost += len(events[MOST_KEPT:])
        self._kept = events[:MOST_KEPT]


_LOGS: ExpiringCache[tuple[int, AccessLogRule], ProcessLog] = ExpiringCache(float("inf"))
_READS = itertools.count(1)


def open_log(rule: AccessLogRule | None) -> ProcessLog | None:
    """Return this process's log for a policy, shared by all tables that it reads; None if the policy has none."""
    if rule is None:
        return None
    return _LOGS.get((os.getpid(), rule), lambda: ProcessLog(rule))  # a forked process needs its own log files


class ReadEvents:
    """The events of one read of a table; thread-safe.

    The first opening of a key for a column is written at once, before the key is used; further openings, for other
    files, are counted and written when the read ends.

    Args:
        log: the access log; None if the policy has none, and then nothing is written.
        table: the table's name as the reader gave it, else its folder.
        principal: the reader's name.
        run_state: the policy's state directory, whose tombstones explain why a key does not exist.
    """

    def __init__(self, log: ProcessLog | None, table: str, principal: str, *, run_state: str) -> None:
        self._log, self._run_state = log, run_state
        self._who = {"kind": ACCESS, "table": table, "principal": principal, "execution": f"{next(_READS)}"}
        self._lock = threading.Lock()
        self._written: dict[_Same, _Written] = {}

    def note_opened(self, key: str, column: str) -> None:
        """Note that a key was opened for a column.

        Raises:
            StorageError: the log is required, and the event could not be written.
        """
        self._note((key, "opened", None), column)

    def note_masked(self, key: str, column: str, why: str) -> None:
        """Note that a column is null in this read because of its key.

        Raises:
            StorageError: as `note_opened`.
        """
        self._note((key, "masked", why), column)

    def note_refused(self, key: str, column: str | None, error: Exception) -> None:
        """Note that a key was refused for a column, or for the footer if the column is None.

        The caller raises that error, so this raises none: an event that cannot be written is logged as a warning.
        """
        why: str | None = "denied" if isinstance(error, KeyAccessDeniedError) else None
        if isinstance(error, KeyNotFoundError):
            why = reason_of_absence(self._run_state, key)
        same: _Same = (key, "refused", why) if why else (key, "failed", type(error).__name__)
        try:
            self._note(same, column)
        except StorageError as lost:
            _LOG.warning("%s", lost)

    def close(self) -> None:
        """Write the counts of repeated openings of keys.  May be called several times."""
        with self._lock:
            counted = [(same, written) for same, written in self._written.items() if written.further]
            for same, written in counted:
                self._write(same, written.columns, written.further, written.last_ms)
                written.further = 0

    def _note(self, same: _Same, column: str | None) -> None:
        if self._log is None:
            return
        with self._lock:
            written = self._written.get(same) or _Written()
            written.last_ms = _now_ms()
            if column in written.columns:
                written.further += 1
                return
            self._write(same, {column}, 1, written.last_ms)
            written.columns.add(column)
            self._written[same] = written

    def _write(self, same: _Same, columns: set[str | None], count: int, last_ms: int) -> None:
        key, outcome, why = same
        event = {"key": key, "outcome": outcome, "why": why, "count": count, "first_ms": last_ms, "last_ms": last_ms}
        named = sorted(column for column in columns if column is not None)
        if self._log is not None:
            self._log.write({**self._who, **event, "columns": named, "footer": None in columns})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ReadOptions(TypedDict, total=False):
    """What may be said of a table or file that is opened, beside its place and policy.

    Attributes:
        table: ``db.table``, whose rule in the policy applies: its tags, and whether it requires encryption.
        properties: the table's properties in the metastore (``SHOW TBLPROPERTIES``), with its UUID, tags and history;
            all but sparkcrypt's are ignored.
        on_denied: ``error``: a denied column is an error; ``mask``: denied leaves are null.  A tag whose rule has
            ``on_denied: error`` is an error in every mode.
        principal: the reader's name in messages; the user of this process by default.
        settings: the Hadoop settings that are needed to access the files, such as ``fs.s3a.endpoint``.
        lifetime_seconds: how long an opened KEK is cached at most.
    """

    table: str | None
    properties: Mapping[str, str] | None
    on_denied: ReadMode | None
    principal: str | None
    settings: Settings | None
    lifetime_seconds: float | None


def refuse_unknown_options(kind: type[Any], options: Mapping[str, Any]) -> None:
    """Refuse options that a ``TypedDict`` does not name.

    Raises:
        TypeError: there is one.
    """
    allowed = sorted(kind.__optional_keys__)
    for name in options:
        if name not in allowed:
            raise TypeError(f"option {name!r} is not known; allowed: {', '.join(allowed)}")


_OPENED: ExpiringCache[KeyServiceConfig, OpenedKeyService] = ExpiringCache(float("inf"))
FOOTER = "the footer"


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of a table: its policy, and the names that messages use.

    Attributes:
        policy: names the key service.
        table: the table's name; None if it has none.
        principal: the reader's name in messages; the key service authorises by credential, not by this name.
        lifetime_seconds: how long an opened KEK is cached at most; None: the default.
    """

    policy: Policy
    table: str | None
    principal: str
    lifetime_seconds: float | None = None

    @classmethod
    def of(cls, policy: Policy, table: str | None, options: ReadOptions) -> Reader:
        """Return the reader of a table under a policy, by default in the name of this process's user."""
        principal = options.get("principal") or getpass.getuser()
        return cls(policy, table, principal, options.get("lifetime_seconds"))

    @property
    def keys(self) -> OpenedKeyService:
        """The policy's key service, shared by all tables that this process reads with it.

        Raises:
            ConfigError: its type or options are invalid.
        """
        config = self.policy.key_service
        return _OPENED.get(config, lambda: OpenedKeyService(config))

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Return the secret of a sealed history; an `Unwrap`.

        Raises:
            KeyServiceError: the key service did not unwrap it.
        """
        return self.keys.keeper.unwrap(key_id, wrapped)

    def begin_events(self, place: str) -> ReadEvents:
        """Return the access events of a new read of the table, or of a place if the table has no name."""
        log = open_log(self.policy.access_log)
        return ReadEvents(log, self.table or place, self.principal, run_state=self.policy.run_state)

    def refuse_named(self, columns: Iterable[str], masked: Mapping[str, str]) -> None:
        """Refuse columns that were named and are null, if the policy has ``strict_projection``.

        Args:
            columns: the named columns.
            masked: column -> reason why it is null.

        Raises:
            KeyAccessDeniedError, KeyNotFoundError: one of them is null.
        """
        for column in columns if self.policy.strict_projection else ():
            if column in masked:
                refusal = {"owner": f"column {column}", "reason": masked[column], "of_policy": True}
                who = {"table": self.table, "principal": self.principal, "policy": self.policy.canonical()}
                refuse_named({**refusal, **who})

    def open(self, material: KeyMaterial, owner: str, path: str, *, kek: bool = False) -> bytes:
        """Return the data key in key material, or the KEK that wraps it.

        Raises:
            KeyAccessDeniedError, KeyNotFoundError, KeyRetiredError: the message names the owner, table, key, principal
                and file.
            KeyServiceError: the key service did not unwrap the key.
            FormatError: the material is damaged.
        """
        opener = self.keys.opener
        try:
            return (opener.open_kek if kek else opener.open)(material, lifetime_seconds=self.lifetime_seconds)
        except (KeyAccessDeniedError, KeyNotFoundError, KeyRetiredError) as error:
            facts = {"owner": owner, "path": path, "table": self.table, "principal": self.principal}
            request = {**facts, "policy": self.policy.canonical()}
            raise refused_key(request, material.master_key_id, error) from error


class FileKeys(pe.KmsClient):  # type: ignore[misc]  # pyarrow ships no types
    """A pyarrow KMS client that returns only the keys of one file that were opened before; thread-safe.

    Keys are opened before pyarrow reads: it aborts the process if a key is refused while it tests a filter against a
    column's statistics.

    Args:
        reader: the reader and its policy.
        path: the file's path.
        events: records each key that is opened or refused.
    """

    def __init__(self, reader: Reader, path: str, events: ReadEvents) -> None:
        super().__init__()
        self._reader = reader
        self._path = path
        self._events = events
        self._keys: dict[tuple[str, str], bytes] = {}

    def __repr__(self) -> str:
        return f"FileKeys({self._path!r})"

    def open_footer(self, key_metadata: bytes) -> bytes:
        """Open the footer's key and return the data key.

        Raises:
            KeyServiceError, FormatError: as `Reader.open`.
            VerificationError: the policy and its history name other master keys; the key service is not asked.
            StorageError: the policy's access_log is required, and the event could not be written.
        """
        check_footer_key(self._reader.policy, self._path, parse_key_material(key_metadata).master_key_id)
        self._open(key_metadata, None)
        return self._reader.open(parse_key_material(key_metadata), FOOTER, self._path)

    def open_column(self, key_metadata: bytes, column: tuple[str, ...]) -> None:
        """Open the key of a column that will be read.

        Args:
            key_metadata: the column's key metadata in the judged footer.
            column: the column's Parquet path.

        Raises:
            KeyServiceError, FormatError: as `Reader.open`.
            StorageError: as `open_footer`.
        """
        self._open(key_metadata, join_dotted(column))

    def data_key(self, key_metadata: bytes, column: tuple[str, ...] | None) -> bytes:
        """Return the data key of the footer, or of a column, whose key was opened before.

        Raises:
            KeyServiceError, FormatError: as `Reader.open`.
        """
        material = parse_key_material(key_metadata)
        if material.wrapped_kek is None:
            return self._keys[material.master_key_id, material.wrapped_dek]
        return self._reader.open(material, FOOTER if column is None else f"column {join_dotted(column)}", self._path)

    def _open(self, key_metadata: bytes, column: str | None) -> None:
        material = parse_key_material(key_metadata)
        is_double = material.wrapped_kek is not None
        wrapped = material.wrapped_kek if material.wrapped_kek is not None else material.wrapped_dek
        entry = (material.master_key_id, wrapped)
        key, owner = self._keys.get(entry), FOOTER if column is None else f"column {column}"
        try:
            opened = self._reader.open(material, owner, self._path, kek=is_double) if key is None else key
        except KeyServiceError as error:
            self._events.note_refused(material.master_key_id, column, error)
            raise
        if column is not None:  # the footer's key decrypts no values, so only its refusal is an event
            self._events.note_opened(material.master_key_id, column)
        self._keys[entry] = opened

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """Refuse to wrap a key, since the file is only read."""
        raise VerificationError(f"{self._path}: is read, so no key is wrapped under {master_key_identifier!r}")

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        """Return a key that was opened before.

        Raises:
            VerificationError: it was not: its column was not requested, or the footer is not the judged one.
        """
        text = wrapped_key.decode() if isinstance(wrapped_key, bytes) else wrapped_key
        key = self._keys.get((decode_key_id(master_key_identifier), text))
        if key is None:
            raise VerificationError(
                f"{self._path}: a key under {master_key_identifier!r} was not opened for this read: the file was "
                "rewritten meanwhile, or this pyarrow takes a column for another than Spark does; read it again, or "
                "with Spark"
            )
        return key

    def properties(self) -> Any:
        """Return the properties with which ``pyarrow.parquet.ParquetFile`` decrypts this file.

        pyarrow caches KEKs by an id that another file may claim falsely, so each file has its own factory and cache.
        """
        return pe.CryptoFactory(lambda _: self).file_decryption_properties(pe.KmsConnectionConfig(), _configuration())

    def dataset_config(self) -> Any:
        """Return the configuration with which a fragment of ``pyarrow.dataset`` decrypts this file."""
        from pyarrow.dataset import ParquetDecryptionConfig

        return ParquetDecryptionConfig(pe.CryptoFactory(lambda _: self), pe.KmsConnectionConfig(), _configuration())


def _configuration() -> Any:
    return pe.DecryptionConfiguration(cache_lifetime=timedelta(seconds=600))


def encode(value: bytes | None) -> str | None:
    """Return bytes in base64, as requests contain them."""
    return None if value is None else base64.b64encode(value).decode()
