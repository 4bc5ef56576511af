"""State on S3, GCS and Azure: a record is one object, put on the condition that its key is free.

Every object has a mark of the call that put it.  If an answer is lost, or the key is taken, the mark shows which call
created the object: two drivers may write the same bytes, but only one of them has created the record.

Endpoint, region and credentials come from Hadoop's configuration or the environment, never from the policy.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import urlsplit

from sparkcrypt import names
from sparkcrypt.errors import ConfigError, SparkcryptError, StorageError
from sparkcrypt.files.open_places import S3Options, s3_options
from sparkcrypt.ledger.state.store import check_name
from sparkcrypt.paths import Place, comparable_path

Provider = Literal["s3", "gcs", "azure"]

SCHEMES: dict[str, Provider] = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "wasb": "azure",
    "wasbs": "azure",
}
"""The schemes of object stores, with their providers."""
AZURE_ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
"""The environment variable with the storage account for URIs that name none."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket and a prefix of keys in it.

    Attributes:
        provider: the provider, whose API the bucket has.
        host: the host of an Azure storage account if the URI names it, or the account's bare name; empty for others.
        bucket: the name of the bucket; for Azure that of the container.
        root: the prefix of keys, without slashes around it; may be empty.
    """

    provider: Provider
    host: str
    bucket: str
    root: str

    @property
    def account(self) -> str:
        """The name of the Azure storage account; empty for others, or if it is not known."""
        return self.host.partition(".")[0]

    def holds(self, other: ObjectPlace) -> bool:
        """Return whether another place is this one or below it; an unknown account matches any."""
        if (self.provider, self.bucket) != (other.provider, other.bucket):
            return False
        if self.account and other.account and self.account != other.account:
            return False
        return not self.root or f"{other.root}/".startswith(f"{self.root}/")


def object_place(uri: str) -> ObjectPlace | None:
    """Parse the URI of an object store; None if its scheme is not that of an object store.

    Nothing is unescaped, as in Hadoop's own paths.

    Raises:
        ConfigError: the URI has no valid bucket, or a path that cannot be a key.
    """
    match = _URI.fullmatch(uri)
    provider = SCHEMES.get(match[1].lower()) if match else None
    if match is None or provider is None:
        return None
    bucket, _, host = match[2].partition("@")
    if (host and provider != "azure") or not _BUCKET.fullmatch(bucket):
        # The message omits the URI, since in old S3 URIs credentials preceded the bucket's name.
        form = "CONTAINER@ACCOUNT.dfs.core.windows.net" if provider == "azure" else "BUCKET"
        raise ConfigError(
            f"a {match[1]}: URI names no bucket that there could be; allowed: {match[1]}://{form}/folder, and no "
            "credentials in it"
        )
    parts = [part for part in (match[3] or "").split("/") if part]
    if {".", ".."} & set(parts) or any(not part.isprintable() for part in parts):
        raise ConfigError(f"{uri!r} is no place of an object store; allowed: a path without . and .. in it")
    if provider == "azure":
        host = host.lower() or os.environ.get(AZURE_ACCOUNT, "")
    return ObjectPlace(provider, host, bucket, "/".join(parts))


def lies_inside(uri: str, folder: str) -> bool:
    """Return whether a path or URI is a folder or below it, whatever schemes they are written with.

    Raises:
        ConfigError: one is a URI of an object store without a valid bucket.
    """
    inner, outer = object_place(uri), object_place(folder)
    if inner is not None and outer is not None:
        return outer.holds(inner)
    below, above = (Place.of(comparable_path(text)).without_links() for text in (uri, folder))
    return below.is_within(above)


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


EXTRA = "object-store"
"""The extra of this package that installs the library."""
MARK = "sparkcryptmark"
"""Name of the metadata with the mark; Azure allows only letters and digits."""
CREATE_SECONDS = 60.0
"""How long a creation is retried; less than a lock's lifetime."""
_PAUSES = (0.5, 2.0, 5.0)
CLIENT = {"timeout": "15s", "connect_timeout": "5s"}
_RETRY = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}
_NO_BUCKET = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound|FilesystemNotFound)</Code>")
_ANSWER = re.compile(
    r"(?:status code: )?(\d{3} [A-Z][A-Za-z ]+): <.*?<Code>(\w+)</Code>(?:.*?<Message>([^<]*)<)?", re.DOTALL
)
_FINAL = re.compile(r"status code: (?:501|(?!408|409|412|429)[34]\d\d) ")
"""Answers that a retry would not change."""
_QUERY = re.compile(r"(https?://[^\s?]*)\?\S*")
_MOST_LETTERS = 400
_PROVING = threading.Lock()
_PROVEN: set[str] = set()
"""State directories of which this process has proven that they refuse a second creation."""


def open_object_store(uri: str, access: ObjectAccess) -> ObjectStateStore:
    """Open a state directory on an object store, without a request to it yet.

    Args:
        uri: ``run_state`` of the policy, with a scheme of ``object_uri.SCHEMES``.
        access: the access to its bucket.

    Raises:
        ConfigError: the library is not installed, or refuses the configuration.
    """
    library = _library(uri)
    class_name = {"s3": "S3Store", "gcs": "GCSStore", "azure": "AzureStore"}[access.place.provider]
    further = {} if access.credentials is None else {"credential_provider": access.credentials}
    try:
        store = getattr(library.store, class_name)(
            access.place.bucket,
            config=dict(access.config),
            # Always given, since the environment's setting for plain http would apply otherwise.
            client_options={**CLIENT, "allow_http": access.plain},
            retry_config=_RETRY,
            **further,
        )
    except (library.exceptions.BaseError, ValueError, OSError) as error:
        raise ConfigError(
            f"run_state {uri}: cannot be opened: {_shorten_answer(error)}; correct the credentials in this environment"
        ) from error
    return ObjectStateStore(library, store, access, uri.rstrip("/"))


def _library(uri: str) -> Any:
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise ConfigError(
            f"run_state {uri}: state on an object store needs obstore, which this Python does not have; pip install "
            f"'sparkcrypt[{EXTRA}]' where the driver runs, or set run_state of the policy to a local disk or HDFS"
        ) from error
    return obstore


class ObjectStateStore:
    """Records as objects of one bucket; use ``open_object_store`` to create it.

    Before the first record is created, a probe proves that the store refuses a second creation.

    Args:
        library: obstore.
        store: the bucket, as opened by the library.
        access: the access to the bucket.
        uri: the URI of the state directory, for messages.
    """

    def __init__(self, library: Any, store: Any, access: ObjectAccess, uri: str) -> None:
        self._library, self._store, self._uri, self._root = library, store, uri, access.place.root
        self._identity = repr(access)
        self._refusals = (library.exceptions.AlreadyExistsError, library.exceptions.PreconditionError)
        self._errors = (library.exceptions.BaseError, ValueError, OSError)

    def __repr__(self) -> str:
        return f"ObjectStateStore({self._uri!r})"

    def create(self, name: str, content: bytes) -> bool:
        """Create a record with its whole content; False if the name is taken.

        Raises:
            ConfigError: the name is not valid, or the store refuses or does not honour conditional creation.
            StorageError: the store did not answer in time; the record may exist.
        """
        key = self._key(name)
        self._prove()
        return self._create(key, content, uuid.uuid4().hex)

    def read(self, name: str) -> bytes | None:
        """Return a record's content; None if there is no such record.

        Raises:
            ConfigError: the name is not valid, there is no such bucket, or the store refuses.
            StorageError: the store does not answer.
        """
        found = self._get(self._key(name), f"read {name}")
        return None if found is None else found[1]

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names that begin with a prefix, sorted.

        Raises:
            ConfigError: there is no such bucket, or the store refuses.
            StorageError: the store does not answer, so the names would be incomplete.
        """
        folder = prefix.rpartition("/")[0]
        start = self._key(folder) if folder else self._root
        doing = f"list {prefix or 'everything'}"
        try:
            found = [
                (str(meta["path"]), int(meta["size"]))
                for some in self._library.list(self._store, prefix=start or None)
                for meta in some
            ]
        except self._errors as error:
            raise self._failure(doing, error) from error
        above = len(self._root) + 1 if self._root else 0
        names = (key[above:] for key, size in found if size or self._get(key, doing) is not None)
        return tuple(sorted(name for name in names if name.startswith(prefix) and not _is_hidden(name)))

    def delete(self, name: str) -> None:
        """Delete a record; does nothing if there is none.

        Raises:
            ConfigError: the name is not valid, there is no such bucket, or the store refuses.
            StorageError: the store does not answer.
        """
        self._delete(self._key(name), f"delete {name}")

    def _key(self, name: str) -> str:
        check_name(name)
        return f"{self._root}/{name}" if self._root else name

    def _prove(self) -> None:
        """Prove, once per process, that the store refuses to create a key twice.

        Raises:
            ConfigError: a key can be created twice, or objects lose their marks.
        """
        with _PROVING:
            if self._identity in _PROVEN:
                return
            key, first, second = self._key(f"probes/{uuid.uuid4()}"), uuid.uuid4().hex, uuid.uuid4().hex
            try:
                outcomes = self._create(key, b"first", first), self._create(key, b"second", second)
                found = self._get(key, "read a probe")
            except SparkcryptError:
                with contextlib.suppress(SparkcryptError):
                    self._delete(key, "delete a probe")
                raise
            self._delete(key, "delete a probe")
            if outcomes != (True, False) or found != (first, b"first"):
                raise ConfigError(
                    f"run_state {self._uri}: this store does not honour conditional creation: an object was put twice "
                    "under one key, or lost its metadata, so two runs could hold one table; set run_state of the "
                    "policy to a store that does, a local disk or HDFS"
                )
            _PROVEN.add(self._identity)

    def _create(self, key: str, content: bytes, mark: str) -> bool:
        """Put an object under a free key; after any other answer, the stored object's mark shows which call created it.

        A request without an answer may still arrive: it has the same mark as its retry, and only one of them finds the
        key free.
        """
        until, pauses = time.monotonic() + CREATE_SECONDS, iter(_PAUSES)
        while True:
            refused = self._put(key, content, mark)
            if refused is None:
                return True
            found = self._get(key, "read what is there")
            if found is not None:
                return found[0] == mark
            pause = next(pauses, None)
            if pause is None or _FINAL.search(str(refused)) or time.monotonic() + pause > until:
                raise self._failure("create a record", refused) from refused
            time.sleep(pause)  # the key is free again, or the store could not serve the request

    def _put(self, key: str, content: bytes, mark: str) -> Exception | None:
        """Put an object under a free key; return None, or the error after which the caller reads the key."""
        try:
            self._library.put(self._store, key, content, mode="create", attributes={MARK: mark}, use_multipart=False)
        except (*self._refusals, self._library.exceptions.GenericError) as error:
            answer: Exception = error
            return answer
        except self._errors as error:
            raise self._failure("create a record", error) from error
        return None

    def _get(self, key: str, doing: str) -> tuple[str, bytes] | None:
        """Return an object's mark and content; None if there is no object, or it stands for a folder."""
        try:
            found = self._library.get(self._store, key)
            marks = dict(found.attributes)
            content = bytes(found.bytes())
        except FileNotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                raise self._failure(doing, error) from error
            return None
        except self._errors as error:
            raise self._failure(doing, error) from error
        return None if marks.get("hdi_isfolder") == "true" else (str(marks.get(MARK, "")), content)

    def _delete(self, key: str, doing: str) -> None:
        try:
            self._library.delete(self._store, key)
        except FileNotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                raise self._failure(doing, error) from error
        except self._errors as error:
            raise self._failure(doing, error) from error

    def _failure(self, doing: str, error: Exception) -> SparkcryptError:
        """Return the error to raise: a StorageError if a retry may help, else a ConfigError."""
        where = f"run_state {self._uri}: cannot {doing}: {_shorten_answer(error)}"
        if _NO_BUCKET.search(str(error)):
            return ConfigError(f"{where}; make that bucket, or correct run_state of the policy")
        if "501 Not Implemented" in str(error):
            return ConfigError(
                f"{where}; this store does not honour conditional creation: set run_state of the policy to one that "
                "does, a local disk or HDFS"
            )
        passing = isinstance(error, (self._library.exceptions.GenericError, *self._refusals))
        if passing and not _FINAL.search(str(error)):
            return StorageError(f"{where}; run again when the store answers")
        return ConfigError(
            f"{where}; look at its region and endpoint, and let these credentials list, get, put and delete there"
        )


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _shorten_answer(error: Exception) -> str:
    """Return a store's answer without parts that may be secret: queries of URLs, and details of a refusal."""
    text = str(error).partition("\n\nDebug source")[0]
    answer = _ANSWER.search(text)
    if answer is not None:
        return ": ".join(part.strip() for part in answer.groups() if part)
    return _QUERY.sub(r"\1?…", " ".join(text.split()))[:_MOST_LETTERS]
