"""Access to a bucket with state: endpoint, region and credentials, from Hadoop's configuration or the environment.

None of these come from the policy.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sparkcrypt import names
from sparkcrypt.errors import ConfigError
from sparkcrypt.files.open_places import S3Options, s3_options
from sparkcrypt.ledger.state.object_uri import AZURE_ACCOUNT, ObjectPlace, object_place

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gcs": ("GOOGLE_BASE_URL",),
    "azure": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The environment variables with an endpoint, by provider; the first that is set counts."""
_AWS = re.compile(r"s3(?:[.-](?P<region>[a-z]{2}-[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?")


@dataclass(frozen=True, slots=True)
class ObjectAccess:
    """The settings of a client of a bucket.

    Attributes:
        place: bucket and root.
        config: options of the client, without secrets.
        plain: whether the client may use plain http.
        credentials: returns the keys of Hadoop's configuration; None if the client finds its own in the environment.
    """

    place: ObjectPlace
    config: Mapping[str, Any]
    plain: bool
    credentials: Callable[[], dict[str, Any]] | None = field(default=None, repr=False)


def object_access(uri: str, settings: Mapping[str, str], *, allow_http: bool) -> ObjectAccess:
    """Return the access to the bucket of a URI.

    Args:
        uri: the URI of the state directory.
        settings: Hadoop's configuration (`sparkcrypt.files.open_places.worker_settings`); used for all S3 schemes but
            ``s3:``.
        allow_http: whether the launch configuration allows plain http to other machines.

    Raises:
        ConfigError: it is not a URI of an object store, names no storage account, or its endpoint is plain http and
            that is not allowed.
    """
    place = object_place(uri)
    if place is None:
        raise ConfigError(f"run_state {uri}: is no place of an object store; allowed: s3:, s3a:, gs:, abfs: and az:")
    if place.provider == "s3":
        return _s3(uri, place, settings, allow_http)
    endpoint = _of_environment(place)
    if place.provider == "gcs":
        config = {} if endpoint is None else {"base_url": endpoint}
    else:
        endpoint = endpoint if "." not in place.host else f"https://{place.host.replace('.dfs.', '.blob.', 1)}"
        config = _azure(uri, place, endpoint)
    return ObjectAccess(place, config, _is_plain(uri, endpoint, allow_http))


def _s3(uri: str, place: ObjectPlace, settings: Mapping[str, str], allow_http: bool) -> ObjectAccess:
    options = s3_options(place.bucket, {} if uri.lower().startswith("s3:") else settings)
    of_aws = _AWS.fullmatch(options.endpoint or "")
    region = options.region or (of_aws["region"] if of_aws else None)
    config: dict[str, Any] = {"conditional_put": "etag", "disable_bulk_delete": True}
    if region is not None:
        config["region"] = region
    endpoint = _of_environment(place)
    if options.endpoint is not None and of_aws is None:
        endpoint = f"{'http' if options.plain else 'https'}://{options.endpoint}"
    if endpoint is not None:  # under both names: the second one, from the environment, would take precedence
        config |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
    return ObjectAccess(place, config, _is_plain(uri, endpoint, allow_http), _credentials(options))


def _credentials(options: S3Options) -> Callable[[], dict[str, Any]] | None:
    """Return a provider of Hadoop's keys and token; a token from the environment would not belong to these keys."""
    if options.access_key is None or options.secret_key is None:
        return None
    found = {
        "access_key_id": options.access_key,
        "secret_access_key": options.secret_key,
        "token": options.session_token,
        "expires_at": None,
    }
    return lambda: dict(found)


def _azure(uri: str, place: ObjectPlace, endpoint: str | None) -> dict[str, Any]:
    if not place.account:
        raise ConfigError(
            f"run_state {uri}: names no storage account; write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/folder, "
            f"or set {AZURE_ACCOUNT}"
        )
    config: dict[str, Any] = {"account_name": place.account, "use_emulator": False}
    return config if endpoint is None else config | {"endpoint": endpoint}


def _of_environment(place: ObjectPlace) -> str | None:
    found = (os.environ.get(name, "").strip() for name in _ENDPOINTS[place.provider])
    return next((endpoint for endpoint in found if endpoint), None)


def _is_plain(uri: str, endpoint: str | None, allow_http: bool) -> bool:
    """Return whether an endpoint is plain http, and check that it is allowed.

    Raises:
        ConfigError: it is plain http to another machine, and that is not allowed.
    """
    split = urlsplit(endpoint or "https:")
    if split.scheme.lower() != "http":
        return False
    if not allow_http and not _is_loopback(split.hostname or ""):
        raise ConfigError(
            f"run_state {uri}: its endpoint {split.hostname} is plain http, by which everybody on the way could change "
            f"records; use https, or set {names.ALLOW_HTTP}=true when Spark is launched"
        )
    return True


def _is_loopback(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
