"""Signs mail (RFC 6376, 8301, 8463): relaxed/relaxed, our own list of headers, nothing that changes from one attempt to
the next, so that a repeat is the same bytes.
"""

from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

PrivateKey = RSAPrivateKey | Ed25519PrivateKey


class Signer(NamedTuple):
    """One signature of a mail: for which domain, with which key, and where a reader finds its public half."""

    domain: str
    selector: str
    key: PrivateKey
