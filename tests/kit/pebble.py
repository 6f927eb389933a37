"""Pebble, the ACME test server of Let's Encrypt, on loopback: real orders and real validation of challenges."""

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Self

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

    It rejects some nonces, and validates at once unless `slow_seconds` is given.
    """

    def __init__(
        self, *, http_port: int, tls_port: int, days: int = 90, slow_seconds: int = 0, needs_account: bool = False,
        rejected_nonces: int = 15, port: int = 0,
    ) -> None:  # fmt: skip
        self.home = Path(tempfile.mkdtemp(prefix="campanero-pebble-"))
        self.port, self.management = port or free_port(), free_port()
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
