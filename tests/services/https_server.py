"""An HTTP server on 127.0.0.1 for tests, over TLS if it has a certificate."""

from __future__ import annotations

import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.services.processes import LOCAL


class HttpsServer(ThreadingHTTPServer):
    """A server with one thread for each connection.

    Args:
        handler: answers the requests of a connection.
        context: the TLS context; None means plain HTTP.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None) -> None:
        super().__init__((LOCAL, 0), handler)
        self._context = context

    @property
    def address(self) -> str:
        """Its URL."""
        return f"{'https' if self._context else 'http'}://{LOCAL}:{self.server_port}"

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; the handshake follows at its first read, in its own thread."""
        connection, address = super().get_request()
        if self._context is None:
            return connection, address
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that a client closed, for example after refusing the certificate."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
