"""An attacker's address: it takes HTTP requests and keeps what they carry."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Listener:
    """Where it listens, and the tokens that it was sent."""

    address: str
    tokens: list[str] = field(default_factory=list)
    requests: int = 0


@contextmanager
def listening() -> Iterator[Listener]:
    """Yield a listener on 127.0.0.1 that refuses whatever it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listener.requests += 1
            listener.tokens.append(self.headers.get("X-Vault-Token", ""))
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_PUT = do_LIST = do_GET

        def log_message(self, format: str, *args: object) -> None:  # the base class names it so
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener = Listener(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        server.server_close()
