"""Seals secrets that lie in the database, with a key that does not: a copy of the file alone tells none of them."""

import os

_NONCE_BYTES = 12


def seal(key: bytes, label: str, plain: bytes) -> bytes:
    """Encrypt a secret; `label` says what it belongs to, so that none opens in the place of another."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, label.encode())


def opened(key: bytes, label: str, sealed: bytes) -> bytes | None:
    """Decrypt a secret, or answer None if it was sealed with another key or for something else."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label.encode())
    except (InvalidTag, ValueError):
        return None
