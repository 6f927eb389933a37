"""Pebble, the ACME test server of Let's Encrypt, on loopback: real orders and real validation of challenges."""

import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from tests.kit import certificates
from tests.kit.server import free_port
from tests.kit.timeouts import extend_timeout

PROGRAM = "pebble"
EAB_KEY_ID, EAB_KEY = "kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"


def skip_without_pebble() -> None:
    """Skip a test if Pebble is not installed."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("no Pebble installed; packaging/test says how to get it")


class Pebble:
    """A CA that validates at ports of this test: `http_port` for HTTP-01 and `tls_port` for TLS-ALPN-01.

    It rejects some nonces, and validates at once unless `slow_seconds` is given. With `is_always_valid`, every name
    counts as proven, also one that does not exist.
    """

    def __init__(
        self, *, http_port: int, tls_port: int, days: int = 90, slow_seconds: int = 0, needs_account: bool = False,
        rejected_nonces: int = 15, is_always_valid: bool = False,
    ) -> None:  # fmt: skip
        self.home = Path(tempfile.mkdtemp(prefix="campanero-pebble-"))
        self.port, self.management = free_port(), free_port()
        self.directory = f"https://localhost:{self.port}/dir"
        own = certificates.self_signed("localhost", days=4000)
        (self.home / "cert.pem").write_bytes(own.certificate)
        (self.home / "key.pem").write_bytes(own.key)
        settings = {
            "listenAddress": f"127.0.0.1:{self.port}", "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.home / "cert.pem"), "privateKey": str(self.home / "key.pem"),
            "httpPort": http_port, "tlsPort": tls_port, "ocspResponderURL": "",
            "certificateValidityPeriod": days * 86_400, "externalAccountBindingRequired": needs_account,
            "externalAccountMACKeys": {EAB_KEY_ID: EAB_KEY},
        }  # fmt: skip
        (self.home / "config.json").write_text(json.dumps({"pebble": settings}))
        speed = {"PEBBLE_VA_SLEEPTIME": str(slow_seconds)} if slow_seconds else {"PEBBLE_VA_NOSLEEP": "1"}
        speed |= {"PEBBLE_VA_ALWAYS_VALID": "1"} if is_always_valid else {}
        self._env = os.environ | speed | {
            "PEBBLE_WFE_NONCEREJECT": str(rejected_nonces), "PEBBLE_AUTHZREUSE": "0", "no_proxy": "*",
        }  # fmt: skip
        self.env = {
            "SSL_CERT_FILE": str(self.home / "cert.pem"),
            "CAMPANERO_ACME__DIRECTORY": self.directory,
            "CAMPANERO_ACME__HTTP_LISTEN": f"127.0.0.1:{http_port}",
            "CAMPANERO_ACME__EMAIL": "owner@example.com",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start the CA, with new roots and without accounts, and return when it answers."""
        log = (self.home / "log").open("ab")
        command = [PROGRAM, "-config", str(self.home / "config.json")]
        self._process = subprocess.Popen(command, env=self._env, stdout=log, stderr=subprocess.STDOUT)
        log.close()
        end = time.monotonic() + extend_timeout(10)
        while True:
            try:
                self._fetch(self.directory)
                return self
            except OSError:
                assert time.monotonic() < end, self.log
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop the CA."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def log(self) -> str:
        """Return what the CA has logged."""
        return (self.home / "log").read_text(errors="replace")

    def root(self) -> str:
        """Return the root certificate as PEM."""
        return self._fetch(f"https://localhost:{self.management}/roots/0")

    def trust(self) -> ssl.SSLContext:
        """Return an SSL context that trusts only certificates of this CA."""
        return ssl.create_default_context(cadata=self.root())

    def _fetch(self, url: str) -> str:
        context = ssl.create_default_context(cafile=str(self.home / "cert.pem"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with contextlib.closing(opener.open(url, timeout=extend_timeout(5))) as response:
            return str(response.read().decode())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)


class Front:
    """An HTTPS proxy before a Pebble, which counts requests, holds responses back, and answers in place of the CA.

    Pebble makes its URLs of the Host header, so all requests of a client of `directory` come through here.
    """

    def __init__(self, pebble: Pebble) -> None:
        self._pebble = pebble
        self.port = free_port()
        self.directory = f"https://localhost:{self.port}/dir"
        self.requests: Counter[str] = Counter()  # by the first part of the path
        self.answers: dict[str, tuple[int, dict[str, str], dict[str, Any]]] = {}  # by the first part of the path
        self.extra: dict[str, str] = {}  # further entries of the directory
        self.held = threading.Event()  # a response is held back
        self._hold_path = ""
        self._released = threading.Event()
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> Self:
        """Accept requests."""
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                front.forward(self)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._pebble.home / "cert.pem", self._pebble.home / "key.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Refuse connections."""
        self.release()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def hold(self, path: str) -> None:
        """Hold back the next response to requests whose path begins so, after the CA has acted, until `release`."""
        self._hold_path = path
        self.held.clear()
        self._released.clear()

    def release(self) -> None:
        """Release the held response, and hold no further one."""
        self._hold_path = ""
        self._released.set()

    def forward(self, handler: BaseHTTPRequestHandler) -> None:
        """Pass a request on to the CA and its response back."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        first = "/" + handler.path.split("/")[1]
        if first in self.answers:
            self.requests[first] += 1
            status, headers, content = self.answers[first]
            self._reply(handler, status, headers, json.dumps(content).encode())
            return
        context = ssl.create_default_context(cafile=str(self._pebble.home / "cert.pem"))
        connection = http.client.HTTPSConnection("localhost", self._pebble.port, context=context, timeout=20)
        with contextlib.closing(connection):
            connection.request(handler.command, handler.path, body, dict(handler.headers.items()))
            response = connection.getresponse()
            content = response.read()
        self.requests[first] += response.status < 400  # Pebble rejects some nonces
        if first == "/dir" and self.extra:
            content = json.dumps(json.loads(content) | self.extra).encode()
        if self._hold_path == first and response.status < 400:
            self.held.set()
            self._released.wait(extend_timeout(30))
        kept = ("location", "replay-nonce", "content-type", "retry-after", "link")
        self._reply(handler, response.status, {k: v for k, v in response.getheaders() if k.lower() in kept}, content)

    def _reply(self, handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes) -> None:
        with contextlib.suppress(OSError):  # the client was killed
            handler.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)
