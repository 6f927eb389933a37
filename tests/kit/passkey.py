"""An authenticator in software, with which tests make the responses of browsers, right ones and wrong ones."""

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

USER_PRESENT, USER_VERIFIED, BACKUP_ELIGIBLE, BACKED_UP, HAS_CREDENTIAL = 1, 4, 8, 16, 64


def to_text(value: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def to_bytes(text: str) -> bytes:
    """Return the bytes of base64url without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class SoftwarePasskey:
    """A passkey with an ES256 key; `flags` and `sign_count` are those of its next response."""

    origin: str
    host: str = "localhost"
    flags: int = USER_PRESENT | USER_VERIFIED
    sign_count: int = 0
    user_handle: bytes = b""
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def create(self, options: dict[str, Any], **client_data: Any) -> str:
        """Return the response to options for a new passkey as JSON; `client_data` changes what the browser says."""
        self.user_handle = to_bytes(options["user"]["id"])
        numbers = self.key.public_key().public_numbers()
        public_key = cbor2.dumps(
            {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        )
        credential = bytes(16) + len(self.credential_id).to_bytes(2, "big") + self.credential_id + public_key
        attestation = {"fmt": "none", "attStmt": {}, "authData": self._data(HAS_CREDENTIAL) + credential}
        return self.response(
            clientDataJSON=self._client_data("webauthn.create", options, client_data),
            attestationObject=cbor2.dumps(attestation), transports=["internal", "made-up"],
        )  # fmt: skip

    def sign(self, options: dict[str, Any], **client_data: Any) -> str:
        """Return the response to options for a sign-in as JSON; `client_data` changes what the browser says."""
        browser_data, data = self._client_data("webauthn.get", options, client_data), self._data(0)
        signature = self.key.sign(data + hashlib.sha256(browser_data).digest(), ec.ECDSA(hashes.SHA256()))
        return self.response(
            clientDataJSON=browser_data, authenticatorData=data, signature=signature, userHandle=self.user_handle
        )

    def response(self, **parts: Any) -> str:
        """Return the JSON of a credential with these parts of its response; bytes become base64url."""
        encoded = {name: to_text(part) if isinstance(part, bytes) else part for name, part in parts.items()}
        name = to_text(self.credential_id)
        return json.dumps({"id": name, "rawId": name, "type": "public-key", "response": encoded})

    def _data(self, more_flags: int) -> bytes:
        flags = bytes([self.flags | more_flags])
        return hashlib.sha256(self.host.encode()).digest() + flags + self.sign_count.to_bytes(4, "big")

    def _client_data(self, kind: str, options: dict[str, Any], changes: dict[str, Any]) -> bytes:
        values = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps({**values, **changes}).encode()
