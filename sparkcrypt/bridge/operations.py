"""The helper's operations, which answer the requests of the bridge.

Modules that only one operation needs are imported on its first request, and nothing beyond the standard library before:
a helper starts on any interpreter, and reports what the interpreter lacks.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import sparkcrypt
from sparkcrypt.decide.access_log import Record, make_record
from sparkcrypt.decide.context import optional_text, parse_policy, require_text
from sparkcrypt.errors import BridgeError, ConfigError, KeyAccessDeniedError, KeyNotFoundError, KeyRetiredError, show
from sparkcrypt.keys.expiring_cache import ExpiringCache
from sparkcrypt.keys.tombstones import reason_of_absence
from sparkcrypt.policy.key_service import KeyServiceConfig, credential_variables
from sparkcrypt.policy.model import AccessLogRule

if TYPE_CHECKING:
    from sparkcrypt.decide.access_log import AccessLog
    from sparkcrypt.decide.context import RouteKeys
    from sparkcrypt.keys.datakeys import DataKeyMaker
    from sparkcrypt.keys.opened import OpenedKeyService
    from sparkcrypt.keys.service import KeyService
    from sparkcrypt.skipping.query.skip_files import OpenedStores

Request: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = "dict[str, Any]"
_FOREVER = float("inf")
_KEK_SECONDS = 600.0
"""How long one KEK wraps new local keys of ORC files, as parquet-mr does with data keys."""
_LATE_SECONDS = 60.0
"""How long a helper caches the key service's answer on whether a bucket's key is replaced by one of late data."""

OPERATIONS_ON_KEYS = frozenset({"wrap", "unwrap", "open_key", "make_key", "skip_files", "judge_part"})
"""Operations on key bytes or values of queries: the text of an unexpected error in one is not sent to the caller."""

_WITHOUT_KEYS = (
    "check_orc_reader",
    "encrypted_columns",
    "judge_write",
    "check_declassified",
    "refuse_named",
    "table_tags",
)


def hello() -> Answer:
    """Return this helper's ``{"version", "pid", "python"}``."""
    return {"version": sparkcrypt.__version__, "pid": os.getpid(), "python": sys.executable}


class Operations:
    """The operations by name; safe for many threads.  One key service is opened per distinct configuration."""

    def __init__(self) -> None:
        self._services: ExpiringCache[KeyServiceConfig, OpenedKeyService] = ExpiringCache(_FOREVER)
        self._access_logs: ExpiringCache[tuple[str, str], AccessLog] = ExpiringCache(_FOREVER)
        self._buckets: ExpiringCache[tuple[str, str], tuple[str, ...]] = ExpiringCache(_FOREVER)
        self._late: ExpiringCache[tuple[str, str], dict[str, str]] = ExpiringCache(_LATE_SECONDS)
        self._makers: ExpiringCache[tuple[KeyServiceConfig, int], DataKeyMaker] = ExpiringCache(_KEK_SECONDS)
        self._seals: ExpiringCache[tuple[KeyServiceConfig, str, str], bytes] = ExpiringCache(_LATE_SECONDS)
        self._stores: ExpiringCache[None, OpenedStores] = ExpiringCache(_FOREVER)
        self._by_name: dict[str, Callable[[Request], Answer]] = {
            "hello": lambda _: hello(),
            "wrap": self._wrap,
            "unwrap": self._unwrap,
            "open_key": self._open_key,
            "make_key": self._make_key,
            "decide": self._decide,
            "access_events": self._access_events,
            "resolve_write": self._resolve_write,
            "resolve_orc_write": self._resolve_orc_write,
            "resolve_read": self._resolve_read,
            "resolve_orc_read": self._resolve_orc_read,
            "credential_variables": lambda request: {"names": list(credential_variables(_key_service_of(request)))},
            **dict.fromkeys(_WITHOUT_KEYS, _decide_without_keys),
            "skip_files": self._skip_files,
            "judge_part": self._judge_part,
        }

    def answer(self, request: Request) -> Answer:
        """Answer one request.

        Raises:
            SparkcryptError: the operation failed.
            BridgeError: there is no such operation.
        """
        operation = self._by_name.get(str(request.get("op")))
        if operation is None:
            raise BridgeError(f"operation {request.get('op')!r} is not known; allowed: {', '.join(self._by_name)}")
        return operation(request)

    def _wrap(self, request: Request) -> Answer:
        service = self._open(_key_service_of(request)).service
        return {"wrapped": service.wrap(_key_id_of(request), base64.b64decode(request["key"]))}

    def _unwrap(self, request: Request) -> Answer:
        keeper = self._open(_key_service_of(request)).keeper
        return {"key": base64.b64encode(keeper.unwrap(_key_id_of(request), request["wrapped"])).decode()}

    def _open_key(self, request: Request) -> Answer:
        from sparkcrypt.keys.material import parse_key_material

        material = parse_key_material(base64.b64decode(request["key_metadata"]))
        if request.get("expected_key_id") is not None:  # a local key of an ORC file
            from sparkcrypt.decide.file import check_local_key

            check_local_key(request["key_metadata"], request["expected_key_id"], request["path"])
        config = _key_service_of(request)
        opener = self._open(config).opener
        try:
            key = opener.open(material, lifetime_seconds=_lifetime_of(request))
        except (KeyAccessDeniedError, KeyNotFoundError, KeyRetiredError) as error:
            from sparkcrypt.decide.denied import refused_key

            raise refused_key(request, material.master_key_id, error) from error
        return {"key": base64.b64encode(key).decode()}

    def _make_key(self, request: Request) -> Answer:
        from sparkcrypt.keys.datakeys import DataKeyMaker

        config, bits = _key_service_of(request), int(request["bits"])
        service = self._open(config).service
        maker = self._makers.get((config, bits), lambda: DataKeyMaker(service, data_key_bits=bits))
        identity = base64.b64decode(request["file_identity"], validate=True)
        key, material = maker.make(_key_id_of(request), is_footer_key=False, file_identity=identity)
        return {"key": base64.b64encode(key).decode(), "key_metadata": base64.b64encode(material).decode()}

    def _resolve_read(self, request: Request) -> Answer:
        from sparkcrypt.decide.file import resolve_read

        return resolve_read(dict(request), self._open_seals(request))

    def _resolve_orc_read(self, request: Request) -> Answer:
        from sparkcrypt.decide.file import resolve_orc_read

        return resolve_orc_read(dict(request), self._open_seals(request))

    def _open_seals(self, request: Request) -> Callable[[str, str], bytes]:
        """Return a function that unwraps the secrets of histories, which many files of a table share."""

        def unwrap(key_id: str, wrapped: str) -> bytes:
            config = _key_service_of(request)
            return self._seals.get((config, key_id, wrapped), lambda: self._open(config).keeper.unwrap(key_id, wrapped))

        return unwrap

    def _resolve_orc_write(self, request: Request) -> Answer:
        from sparkcrypt.decide.file import resolve_orc_write

        answer = resolve_orc_write(dict(request), self._route_keys(request))
        if answer["encrypt"]:
            service = self._open(_key_service_of(request)).service
            self._make_keys(str(request["policy"]), service, answer["keys"])
        return answer

    def _resolve_write(self, request: Request) -> Answer:
        from sparkcrypt.decide.file import resolve_write
        from sparkcrypt.keys.opened import access_token

        answer = resolve_write(dict(request), self._route_keys(request))
        if answer["encrypt"]:
            # Parquet's static caches hold wrapped keys per access token alone.
            config = _key_service(answer["key_service"])
            service = self._open(config).service
            answer["access_token"] = access_token(config, service)
            self._make_keys(str(request["policy"]), service, [column["key"] for column in answer["columns"]])
        return answer

    def _make_keys(self, policy: str, service: KeyService, keys: Sequence[str | None]) -> None:
        """Create the keys of new buckets if the policy says so; each is checked once in a helper's life."""
        from sparkcrypt.decide.context import parse_policy
        from sparkcrypt.keys.bucket_keys import make_bucket_keys
        from sparkcrypt.keys.ids import decode_key_id

        key_ids = {decode_key_id(key) for key in keys if key is not None}
        parsed = parse_policy(policy)
        for key_id in sorted(key_ids) if any(rule.create_keys for rule in parsed.tags) else ():
            self._buckets.get((policy, key_id), partial(make_bucket_keys, parsed, service, (key_id,)))

    def _route_keys(self, request: Request) -> RouteKeys:
        """Return a function from keys of buckets to the keys of late data that replace them, with cached answers."""
        from sparkcrypt.decide.context import parse_policy
        from sparkcrypt.keys.bucket_keys import route_late_keys

        def route(key_ids: Collection[str]) -> Mapping[str, str]:
            text = str(request["policy"])
            policy = parse_policy(text)
            if all(rule.late_data is None for rule in policy.tags):
                return {}
            service = self._open(_key_service_of(request)).service
            routed: dict[str, str] = {}
            for key_id in sorted(key_ids):
                routed |= self._late.get((text, key_id), partial(route_late_keys, policy, service, (key_id,)))
            return routed

        return route

    def _open(self, config: KeyServiceConfig) -> OpenedKeyService:
        from sparkcrypt.keys.opened import OpenedKeyService

        return self._services.get(config, lambda: OpenedKeyService(config))

    def _decide(self, request: Request) -> Answer:
        from sparkcrypt.decide.denied import decide

        return decide(dict(request), self._open(_key_service_of(request)).decisions)

    def _skip_files(self, request: Request) -> Answer:
        from sparkcrypt.skipping.query.skip_files import OpenedStores, skip_files

        service, stores = self._open(_key_service_of(request)), self._stores.get(None, OpenedStores)
        return skip_files(request, service, stores, lifetime_seconds=_lifetime_of(request))

    def _judge_part(self, request: Request) -> Answer:
        from sparkcrypt.skipping.query.skip_files import judge_part

        return judge_part(request, self._open(_key_service_of(request)), lifetime_seconds=_lifetime_of(request))

    def _access_events(self, request: Request) -> Answer:
        from sparkcrypt.decide.access_log import AccessLog

        rule, (owner, records) = access_log_rule(request), records_of(request)
        log = self._access_logs.get((rule.location, owner), lambda: AccessLog(rule.location, owner=owner))
        log.append(records, durable=rule.required)
        return {"recorded": len(records)}


def _decide_without_keys(request: Request) -> Answer:
    """Answer an operation that asks no key service."""
    from sparkcrypt.decide.denied import refuse_named
    from sparkcrypt.decide.file import check_orc_reader, encrypted_columns
    from sparkcrypt.decide.judge_write import check_declassified, judge_write, table_tags

    operations: dict[str, Callable[[Request], Answer]] = {
        "check_declassified": check_declassified,
        "check_orc_reader": check_orc_reader,
        "encrypted_columns": encrypted_columns,
        "judge_write": judge_write,
        "refuse_named": refuse_named,
        "table_tags": table_tags,
    }
    return operations[request["op"]](request)


def _key_service_of(request: Request) -> KeyServiceConfig:
    """Return the key service that a request names, itself or in its policy."""
    text, policy = request.get("key_service"), request.get("policy")
    if text is not None:
        return _key_service(text)
    if policy is None:
        raise BridgeError(
            "the request names no key service; set parquet.sparkcrypt.key_service or parquet.sparkcrypt.policy"
        )
    try:
        return KeyServiceConfig.from_dict(json.loads(policy)["key_service"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError("parquet.sparkcrypt.policy is not a policy; leave it to sparkcrypt.configure") from error


@lru_cache(maxsize=100)  # almost every request names the same one
def _key_service(text: str) -> KeyServiceConfig:
    try:
        return KeyServiceConfig.from_dict(json.loads(text))
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            "parquet.sparkcrypt.key_service is not a JSON object; leave it to sparkcrypt.configure"
        ) from error


def _lifetime_of(request: Request) -> float | None:
    """Return for how many seconds a session keeps keys at most; None: the default."""
    seconds = request.get("lifetime_seconds")
    return None if seconds is None else float(max(0, int(seconds)))


def _key_id_of(request: Request) -> str:
    from sparkcrypt.keys.ids import decode_key_id

    return decode_key_id(request["key_id"])


def access_log_rule(request: Mapping[str, Any]) -> AccessLogRule:
    """Return the rule on the access log of a request's policy.

    Raises:
        ConfigError: the policy names none.
    """
    rule = parse_policy(require_text(request, "policy")).access_log
    if rule is None:
        raise ConfigError("the policy has no access_log; the jar and this helper do not belong together")
    return rule


def records_of(request: Mapping[str, Any]) -> tuple[str, list[Record]]:
    """Return the owner in the names of a JVM's files, and the records of its events.

    Args:
        request: ``policy``, ``process`` (the JVM's name for itself), ``application`` and ``events``, each in the form
            that `make_record` takes.

    Raises:
        BridgeError: an event is not valid.
    """
    events = request.get("events")
    if not isinstance(events, list) or not all(isinstance(event, Mapping) for event in events):
        raise BridgeError(f"the request's 'events' are {show(events)}; allowed: a list of objects")
    process = f"{socket.gethostname()}-{require_text(request, 'process')}"
    owner = f"{optional_text(request, 'application') or 'none'}-{process}"
    run_state = parse_policy(require_text(request, "policy")).run_state
    return owner, [_tell_absence(make_record(event, process=process), run_state) for event in events]


def _tell_absence(record: Record, run_state: str) -> Record:
    """Return a record with the reason why a key does not exist, which the JVM always reports as shredded."""
    key_id = record.get("key")
    if record.get("outcome") != "refused" or record.get("why") != "shredded" or not key_id:
        return record
    return record | {"why": reason_of_absence(run_state, key_id)}
