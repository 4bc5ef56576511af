"""What the helper answers to each operation of the bridge.

What one operation alone needs is imported when that operation is first asked for, and nothing beyond the standard
library before: a helper starts, and says what it lacks, on any interpreter.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import sparkcrypt
from sparkcrypt.errors import BridgeError, ConfigError
from sparkcrypt.keys.once import ExpiringCache
from sparkcrypt.policy.key_service import KeyServiceConfig

if TYPE_CHECKING:
    from sparkcrypt.keys.counting import CountingKeyService
    from sparkcrypt.keys.datakeys import DataKeyOpener

Request: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = "dict[str, Any]"
_FOREVER = float("inf")

OPERATIONS_ON_KEYS = frozenset({"wrap", "unwrap", "open_key"})
"""Operations that hold key bytes: the text of an unforeseen error in one of them is not passed on."""


def hello() -> Answer:
    """Answer ``{"version", "pid", "python"}``: who serves."""
    return {"version": sparkcrypt.__version__, "pid": os.getpid(), "python": sys.executable}


class Operations:
    """Answers requests; safe for many threads.  One key service is opened per distinct configuration."""

    def __init__(self) -> None:
        self._services: ExpiringCache[KeyServiceConfig, CountingKeyService] = ExpiringCache(_FOREVER)
        self._openers: ExpiringCache[tuple[KeyServiceConfig, float | None], DataKeyOpener] = ExpiringCache(_FOREVER)
        self._opened: list[CountingKeyService] = []
        self._by_name: dict[str, Callable[[Request], Answer]] = {
            "hello": lambda _: hello(),
            "wrap": self._wrap,
            "unwrap": self._unwrap,
            "open_key": self._open_key,
            "resolve_write": self._resolve_write,
            "resolve_read": _resolve_read,
            "encrypted_columns": _encrypted_columns,
            "check_partitioning": _check_partitioning,
            "check_format": _check_format,
            "stats": lambda _: self._stats(),
        }

    def answer(self, request: Request) -> Answer:
        """Answer one request.

        Raises:
            SparkcryptError: what the operation could not do.
            BridgeError: there is no such operation.
        """
        operation = self._by_name.get(str(request.get("op")))
        if operation is None:
            raise BridgeError(f"operation {request.get('op')!r} is not known; allowed: {', '.join(self._by_name)}")
        return operation(request)

    def _wrap(self, request: Request) -> Answer:
        service = self._service(_key_service_of(request))
        return {"wrapped": service.wrap(_key_id_of(request), base64.b64decode(request["key"]))}

    def _unwrap(self, request: Request) -> Answer:
        service = self._service(_key_service_of(request))
        return {"key": base64.b64encode(service.unwrap(_key_id_of(request), request["wrapped"])).decode()}

    def _open_key(self, request: Request) -> Answer:
        from sparkcrypt.keys.material import parse_key_material

        material = parse_key_material(base64.b64decode(request["key_metadata"]))
        config, lifetime_seconds = _key_service_of(request), _lifetime_of(request)
        opener = self._openers.get((config, lifetime_seconds), lambda: self._open_opener(config, lifetime_seconds))
        return {"key": base64.b64encode(opener.open(material)).decode()}

    def _resolve_write(self, request: Request) -> Answer:
        from sparkcrypt.bridge.resolve import resolve_write
        from sparkcrypt.keys.access_token import access_token

        answer = resolve_write(dict(request))
        if answer["encrypt"]:
            # Parquet's static caches hold wrapped keys per access token alone.
            config = _key_service(answer["key_service"])
            answer["access_token"] = access_token(config, self._service(config))
        return answer

    def _service(self, config: KeyServiceConfig) -> CountingKeyService:
        return self._services.get(config, lambda: self._open_service(config))

    def _open_service(self, config: KeyServiceConfig) -> CountingKeyService:
        from sparkcrypt.keys.counting import CountingKeyService
        from sparkcrypt.keys.service import open_key_service

        service = CountingKeyService(open_key_service(config))
        self._opened.append(service)
        return service

    def _open_opener(self, config: KeyServiceConfig, lifetime_seconds: float | None) -> DataKeyOpener:
        from sparkcrypt.keys.datakeys import DataKeyOpener

        service = self._service(config)
        if lifetime_seconds is None:
            return DataKeyOpener(service)
        return DataKeyOpener(service, lifetime_seconds=lifetime_seconds)

    def _stats(self) -> Answer:
        opened = list(self._opened)
        return {
            "key_services": len(opened),
            "wraps": sum(service.wraps for service in opened),
            "unwraps": sum(service.unwraps for service in opened),
        }


def _resolve_read(request: Request) -> Answer:
    from sparkcrypt.bridge.resolve import resolve_read

    return resolve_read(dict(request))


def _encrypted_columns(request: Request) -> Answer:
    from sparkcrypt.bridge.resolve import encrypted_columns

    return encrypted_columns(dict(request))


def _check_partitioning(request: Request) -> Answer:
    from sparkcrypt.bridge.planned import check_partitioning

    return check_partitioning(dict(request))


def _check_format(request: Request) -> Answer:
    from sparkcrypt.bridge.planned import check_format

    return check_format(dict(request))


def _key_service_of(request: Request) -> KeyServiceConfig:
    """Return the key service that a request names itself, or inside its policy."""
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


def _key_service(text: str) -> KeyServiceConfig:
    try:
        return KeyServiceConfig.from_dict(json.loads(text))
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            "parquet.sparkcrypt.key_service is not a JSON object; leave it to sparkcrypt.configure"
        ) from error


def _lifetime_of(request: Request) -> float | None:
    """Return for how many whole seconds a session keeps keys: each number of them has an opener of its own."""
    asked = request.get("lifetime_seconds")
    return None if asked is None else float(max(0, int(asked)))


def _key_id_of(request: Request) -> str:
    from sparkcrypt.keys.ids import decode_key_id

    return decode_key_id(request["key_id"])
