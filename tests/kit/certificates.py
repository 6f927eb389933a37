"""Keys and certificates for test servers, created with openssl: untrusted by default, or expired."""

import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOR_LOOPBACK = ["-nodes", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
_FOR_NAMES = ["-nodes", "-subj", "/CN=kit", "-addext"]


@dataclass(frozen=True)
class Certificate:
    """A certificate for 127.0.0.1 and its key, as PEM."""

    certificate: bytes
    key: bytes

    def context(self) -> ssl.SSLContext:
        """Return an SSL context for a server with this certificate."""
        with tempfile.TemporaryDirectory() as directory:
            key, certificate = Path(directory, "key.pem"), Path(directory, "cert.pem")
            key.write_bytes(self.key)
            certificate.write_bytes(self.certificate)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            return context


def self_signed(*names: str, days: int = 2) -> Certificate:
    """Create a self-signed certificate for these names, or for 127.0.0.1 without names."""
    options = [*_FOR_NAMES, f"subjectAltName={','.join(f'DNS:{name}' for name in names)}"] if names else _FOR_LOOPBACK
    with tempfile.TemporaryDirectory() as directory:
        key, certificate = Path(directory, "key.pem"), Path(directory, "cert.pem")
        command: list[Any] = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        _run(directory, *command, "-days", str(days), *options, "-keyout", key, "-out", certificate)
        return Certificate(certificate.read_bytes(), key.read_bytes())


def expired(like: Certificate) -> Certificate:
    """Create an expired certificate for 127.0.0.1 with the key of another certificate."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "key.pem").write_bytes(like.key)
        (folder / "index.txt").write_bytes(b"")
        (folder / "ca.conf").write_text(
            "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n"
            "rand_serial=yes\ncopy_extensions=copy\n[p]\ncommonName=supplied\n"
        )
        _run(directory, "openssl", "req", "-new", "-key", "key.pem", *_FOR_LOOPBACK[1:], "-out", "wish.pem")
        _run(
            directory, "openssl", "ca", "-batch", "-selfsign", "-config", "ca.conf", "-keyfile", "key.pem",
            "-in", "wish.pem", "-out", "cert.pem", "-notext",
            "-startdate", "20200101000000Z", "-enddate", "20200102000000Z",
        )  # fmt: skip
        return Certificate((folder / "cert.pem").read_bytes(), like.key)


def _run(directory: str, *command: Any) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
