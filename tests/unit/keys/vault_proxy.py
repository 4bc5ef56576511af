"""A proxy on 127.0.0.1 before a real Vault: it ends TLS, keeps what was asked, and fails on demand."""

from __future__ import annotations

import enum
import http.client
import ipaddress
import os
import socket
import ssl
import struct
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sparkcrypt.keys.service import KeyService
from tests.services.https_server import HttpsServer
from tests.services.processes import LOCAL
from tests.unit.keys.conftest import opened

UPSTREAM_SECONDS = 30.0
HOP_BY_HOP = {"host", "connection", "content-length", "transfer-encoding"}


class Fault(enum.Enum):
    """How a connection ends instead of with an answer."""

    RESET = "before Vault was asked"
    RESET_AFTER = "after Vault has done what was asked"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that arrived, through TLS where the proxy ends it."""

    method: str
    path: str
    headers: dict[str, str]


class Authority:
    """A certificate authority of a test's own."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        built = self._builder(self._name, self._key.public_key(), timedelta(days=1))
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._certificate = built.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())

    def bundle(self, file: Path) -> str:
        """Write its certificate in PEM and return the path."""
        file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        return str(file)

    def server_context(self, folder: Path, host: str = LOCAL, life: timedelta = timedelta(days=1)) -> ssl.SSLContext:
        """Return the TLS settings of a server whose certificate names one host and ends after ``life``."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        named: x509.GeneralName = x509.DNSName(host)
        if host == LOCAL:
            named = x509.IPAddress(ipaddress.ip_address(host))
        built = self._builder(subject, key.public_key(), life)
        built = built.add_extension(x509.SubjectAlternativeName([named]), critical=False)
        certificate = built.sign(self._key, hashes.SHA256())
        chain = folder / "server.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + life)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


class VaultProxy(HttpsServer):
    """Passes every request on, but for those that it is told to fail."""

    def __init__(self, upstream: str, context: ssl.SSLContext | None) -> None:
        super().__init__(_Passing, context)
        self.upstream = str(urlsplit(upstream).netloc)
        self.asked: list[Asked] = []
        self.delay_seconds = 0.0
        self._faults: dict[str, list[int | Fault]] = {}

    def fail(self, on: str, *faults: int | Fault) -> None:
        """Answer the next requests whose path holds ``on`` by these statuses and faults, one each."""
        self._faults[on] = list(faults)

    def count(self, path: str) -> int:
        """Return how many requests had ``path`` in their paths."""
        return sum(path in asked.path for asked in self.asked)

    def next_fault(self, path: str) -> int | Fault | None:
        """Return how a request is to fail, None for one that is passed on."""
        return next((faults.pop(0) for on, faults in self._faults.items() if on in path and faults), None)


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: VaultProxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(Asked(self.command, self.path, dict(self.headers)))
        time.sleep(self.server.delay_seconds)
        fault = self.server.next_fault(self.path)
        if fault is Fault.RESET:
            self._reset()
        elif isinstance(fault, int) and fault:
            self._answer(fault, b'{"errors": ["not now"]}')
        else:
            status, content = self._ask(body)
            if fault is Fault.RESET_AFTER:
                self._reset()
            else:
                self._answer(status, content)

    do_GET = do_POST = do_PUT = do_LIST = do_DELETE = _pass_on

    def _ask(self, body: bytes) -> tuple[int, bytes]:
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=UPSTREAM_SECONDS)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        try:
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            return answer.status, answer.read()
        finally:
            upstream.close()

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        os.close(self.connection.detach())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_proxy(upstream: str, context: ssl.SSLContext | None = None) -> Iterator[VaultProxy]:
    """Run a proxy before the server at ``upstream``, with TLS where a context is given."""
    proxy = VaultProxy(upstream, context)
    threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()


def through(proxy: VaultProxy, mount: str, **options: Any) -> KeyService:
    """Open the key service through a proxy."""
    return opened(type="vault", address=proxy.address, mount_point=mount, **options)


def whole(error: BaseException) -> str:
    """Return all that a log would hold of an error: its message, and those of the errors that it came from."""
    return "".join(traceback.format_exception(error))
