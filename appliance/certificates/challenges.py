"""The responses to the challenges of a CA that are being validated now (RFC 8555, section 8; RFC 8737).

The issuer adds and removes them; the listeners of ports 80 and 443 answer only these. Each method may be called on any
thread.
"""

import hashlib
import re
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from appliance.core import clock

HTTP_PATH = "/.well-known/acme-challenge/"
HTTP_CONTENT_TYPE = "application/octet-stream"
TLS_PROTOCOL = "acme-tls/1"
# RFC 8737, section 3: a validating CA offers this protocol and no other, so that its ClientHello contains exactly this
# extension (RFC 7301, section 3.1).
TLS_HELLO_EXTENSION = b"\x00\x10\x00\x0d\x00\x0b\x0a" + TLS_PROTOCOL.encode()
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,500}")
_ACME_IDENTIFIER = "1.3.6.1.5.5.7.1.31"


class LiveChallenges:
    """The challenges that a CA may validate now."""

    def __init__(self) -> None:
        self._responses: dict[str, bytes] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}

    def add_http(self, token: str, key_authorization: str) -> None:
        """Serve a key authorization over HTTP. Raises ValueError if the token is not base64url (RFC 8555, 8.3)."""
        if not _TOKEN.fullmatch(token):
            raise ValueError("the token of the CA is invalid")
        self._responses[token] = key_authorization.encode()

    def add_tls(self, name: str, key_authorization: str) -> None:
        """Serve the certificate that proves a name over TLS (RFC 8737, section 3)."""
        self._contexts[name.lower()] = _build_context(name, hashlib.sha256(key_authorization.encode()).digest())

    def clear(self) -> None:
        """Remove all responses."""
        self._responses.clear()
        self._contexts.clear()

    def find_response(self, path: str) -> bytes | None:
        """Return the body for a path of an HTTP request, or None if no challenge has this path."""
        return self._responses.get(path.removeprefix(HTTP_PATH)) if path.startswith(HTTP_PATH) else None

    @property
    def has_tls(self) -> bool:
        """Return whether a name is being validated over TLS."""
        return bool(self._contexts)

    def tls_context(self) -> ssl.SSLContext:
        """Return a context that serves the challenge's certificate for the name in SNI, and rejects other names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sni_callback = self._select
        return context

    def _select(self, connection: Any, name: str | None, first: Any) -> int | None:
        context = self._contexts.get((name or "").lower())
        if context is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = context
        return None


def _build_context(name: str, digest: bytes) -> ssl.SSLContext:
    """Return the context with the self-signed certificate for a name, with the digest in its acmeIdentifier."""
    from cryptography import x509

    # DER: OCTET STRING of 32 bytes
    extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(_ACME_IDENTIFIER), b"\x04\x20" + digest)
    pem = build_self_signed([name], [(extension, True)], timedelta(days=1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([TLS_PROTOCOL])
    # OpenSSL reads certificates only from files; this one proves nothing once the challenge is over.
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(pem)
        context.load_cert_chain(file.name)
    return context


def build_self_signed(names: list[str], extensions: list[tuple[Any, bool]], lifetime: timedelta) -> bytes:
    """Return a self-signed certificate for these names and its new key, as PEM.

    `extensions` are further extensions, each with whether it is critical.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.fromtimestamp(clock.now(), UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Campanero, self-signed")])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + lifetime)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False)
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, is_critical)
    certificate = builder.sign(key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
