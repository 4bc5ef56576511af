"""An S3 server in this process: moto, with requests and answers that a test may replace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.services.processes import LOCAL

Environ = dict[str, Any]
Serve = Callable[[], tuple[str, list[tuple[str, str]], bytes]]
"""A call that carries out a request and returns status, headers and body."""
Meddle = Callable[[Environ, Serve], "tuple[str, list[tuple[str, str]], bytes]"]


class MeddledS3:
    """A server that accepts any credentials and serves one request after the other.

    Moto checks whether a key is free and puts the object in two steps; S3 does both in one.

    Attributes:
        meddle: answers requests instead of the server, unless None.
        requests: method and path of each received request.
    """

    def __init__(self) -> None:
        self._served = DomainDispatcherApplication(create_backend_app)
        self._one_at_a_time = threading.RLock()
        self._server = make_server(LOCAL, 0, self._answer, threaded=True)
        self.meddle: Meddle | None = None
        self.requests: list[tuple[str, str]] = []
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://{LOCAL}:{self._server.server_port}"

    def make_bucket(self, name: str) -> None:
        """Create an empty bucket, even if another server of this process had one of that name."""
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        client.create_bucket(Bucket=name)
        for entry in client.list_objects_v2(Bucket=name).get("Contents", []):
            client.delete_object(Bucket=name, Key=entry["Key"])
        self.requests.clear()

    def stop(self) -> None:
        """End the server; its objects stay in this process."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def meddling(self, meddle: Meddle) -> Iterator[None]:
        """Answer requests by a function within the block."""
        self.meddle = meddle
        try:
            yield
        finally:
            self.meddle = None

    def _answer(self, environ: Environ, start: Any) -> list[bytes]:
        self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))

        def serve() -> tuple[str, list[tuple[str, str]], bytes]:
            said: list[Any] = []
            with self._one_at_a_time:
                body = b"".join(self._served(environ, lambda status, headers, *_: said.extend((status, headers))))
            return said[0], said[1], body

        status, headers, body = serve() if self.meddle is None else self.meddle(environ, serve)
        start(status, headers)
        return [body]
