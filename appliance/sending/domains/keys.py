"""DKIM keys of sending domains: made, kept encrypted, changed for the next one, and handed to whoever signs.

Which key signs a message is a matter of its Date alone, so that a repeat has the same bytes whatever was changed since:
the key that was active then, else the one that is active now.
"""

import base64
import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from appliance.core import clock, crypto, tokens
from appliance.core.errors import Conflict, SenderRefused
from appliance.sending.delivery.dkim import Signer
from appliance.settings import config
from appliance.storage.models import DomainKey, SendingDomain
from appliance.storage.open import rows
from appliance.storage.work import is_writing, writing

if TYPE_CHECKING:
    from appliance.sending.delivery.dkim import PrivateKey


RSA, ED25519 = "rsa", "ed25519"
_LETTER = {RSA: "c", ED25519: "e"}
_BITS = 2048
# A record of a retired key is still asked for by who gets mail that was on its way, or reads it late
KEPT_MS = 7 * 86_400_000


class KeyUnusable(SenderRefused):
    """A stored key cannot be read with this installation's key; the text says what to do."""


class Pair(NamedTuple):
    """A new key before it has a row."""

    algorithm: str
    private_key: "PrivateKey"
    public_key: str  # the value of `p=`


def algorithms() -> tuple[str, ...]:
    """Return which keys a domain has in this installation."""
    return (RSA, ED25519) if config.current().email.dkim_ed25519 else (RSA,)


def generate(wanted: tuple[str, ...] | None = None) -> tuple[Pair, ...]:
    """Make new keys, of all `algorithms` unless it is said; takes 0.1 s and more, so never on the writer."""
    if is_writing():
        raise RuntimeError("keys are made before the verb that stores them")
    return tuple(_rsa() if algorithm == RSA else _ed25519() for algorithm in wanted or algorithms())


def _rsa() -> Pair:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Pair(RSA, key, base64.b64encode(public).decode())


def _ed25519() -> Pair:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return Pair(ED25519, key, base64.b64encode(key.public_key().public_bytes_raw()).decode())


def make(domain: SendingDomain, pairs: tuple[Pair, ...]) -> list[DomainKey]:
    """Store the first keys of a domain.

    The RSA key is active at once: its record is what the domain is verified by. A second signature waits as `next`
    until its record was seen.
    """
    return [_store(domain, pair, "active" if pair.algorithm == RSA else "next") for pair in pairs]


def rotate(domain: SendingDomain, pairs: tuple[Pair, ...]) -> list[DomainKey]:
    """Store the keys that follow those of a domain; they sign once `activate` says that their records are there.

    Raises Conflict while others wait for that already.
    """
    waiting = {key.algorithm for key in _of(domain, "next")}
    if waiting & {pair.algorithm for pair in pairs}:
        raise Conflict("a next key waits for its record already")
    return [_store(domain, pair, "next") for pair in pairs]


def activate(key: DomainKey) -> None:
    """Let a key sign from now on, and retire the one it follows."""
    writing()
    if key.state == "active":
        return
    if key.state == "retired":
        raise Conflict("a key that was retired does not come back")
    now = clock.now_ms()
    for before in _of(key.domain, "active"):
        if before.algorithm == key.algorithm:
            _end(before, now)
    key.state, key.activated_at = "active", now
    key.save()


def retire(key: DomainKey) -> None:
    """Let a key sign nothing new; raises Conflict for the one that the domain signs with."""
    writing()
    if key.state == "active" and key.algorithm == RSA:
        raise Conflict("the domain needs a key: make a next one first")
    if key.state != "retired":
        _end(key, clock.now_ms())


def _end(key: DomainKey, now: int) -> None:
    key.state, key.retired_at = "retired", now
    key.save()


def published(domain: SendingDomain) -> list[DomainKey]:
    """Return the keys whose records belong in DNS, oldest first: retired ones too, as long as mail may need them."""
    since = clock.now_ms() - KEPT_MS
    found = DomainKey.select().where(DomainKey.domain == domain).order_by(DomainKey.id)
    return [key for key in found if key.state != "retired" or (key.activated_at and key.retired_at > since)]


def record(key: DomainKey) -> tuple[str, str]:
    """Return name and value of the TXT record of a key (RFC 6376, 3.6)."""
    return f"{key.selector}._domainkey.{key.domain.name}", f"v=DKIM1; k={key.algorithm}; p={key.public_key}"


def _of(domain: SendingDomain, state: str) -> list[DomainKey]:
    return list(DomainKey.select().where(DomainKey.domain == domain, DomainKey.state == state))


def _store(domain: SendingDomain, pair: Pair, state: str) -> DomainKey:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    writing()
    now = clock.now_ms()
    before = DomainKey.select().where(DomainKey.domain == domain, DomainKey.algorithm == pair.algorithm).count()
    # The end is the key's own, so that two installations, or a domain that was deleted and comes back, never want
    # different values under one name
    own = hashlib.sha256(pair.public_key.encode()).hexdigest()[:4]
    selector = f"{_LETTER[pair.algorithm]}{before + 1}-{own}"
    plain = pair.private_key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return DomainKey.create(
        domain=domain, selector=selector, algorithm=pair.algorithm, public_key=pair.public_key, state=state,
        private_key=crypto.seal(tokens.derive("domain key"), _label(domain.id, selector), plain),
        created_at=now, activated_at=now if state == "active" else None,
    )  # fmt: skip


class Ring:
    """The keys that sign for a From domain, for as long as nothing of them changes."""

    def __init__(self, found: list["_Row"]) -> None:
        self._found = found

    def at(self, moment: int) -> tuple[Signer, ...]:
        """Return what signs mail dated at a moment: nothing, a key, or one of each algorithm. Raises KeyUnusable."""
        found = [row for row in self._found if row.failed_at is None or row.failed_at > moment]
        nearest = [row for row in found if row.name == found[0].name]
        chosen = (_dated([row for row in nearest if row.algorithm == one], moment) for one in algorithms())
        return tuple(Signer(row.name, row.selector, _opened(row)) for row in chosen if row is not None)


class _Row(NamedTuple):
    domain_id: int
    name: str
    failed_at: int | None  # since when its domain is not verified any more
    selector: str
    algorithm: str
    private_key: bytes
    activated_at: int
    retired_at: int | None


def ring(account_id: int, domain_name: str) -> Ring:
    """Return the keys that sign mail from a domain of an account.

    A verified domain signs for what is below it too, unless that is verified for itself.
    """
    names = with_parents(domain_name)
    found = rows(
        "SELECT d.id, d.name, CASE WHEN d.status = 'verified' THEN NULL ELSE d.failed_at END, k.selector, k.algorithm, "
        "k.private_key, k.activated_at, k.retired_at FROM sending_domain d JOIN domain_key k ON k.domain_id = d.id "
        "WHERE d.account_id = ? AND d.enabled AND k.activated_at IS NOT NULL AND "
        f"(d.status = 'verified' OR d.verified_at < d.failed_at) AND d.name IN ({', '.join('?' * len(names))}) "
        "ORDER BY length(d.name) DESC, k.id",
        (account_id, *names),
    )
    return Ring([_Row._make(row) for row in found])


def signers(account_id: int, domain_name: str, at: int | None = None) -> tuple[Signer, ...]:
    """Return what signs mail from a domain of an account, dated at a moment or now; raises KeyUnusable."""
    return ring(account_id, domain_name).at(clock.now_ms() if at is None else at)


def _dated(keys: list[_Row], at: int) -> _Row | None:
    """Return the key that was active at a moment, else the one that is active now."""
    then = [row for row in keys if row.activated_at <= at and (row.retired_at is None or at < row.retired_at)]
    now = [row for row in keys if row.retired_at is None]
    return max(then or now, key=lambda row: row.activated_at, default=None)


def with_parents(name: str) -> list[str]:
    """Return a domain and what it is below of, without the last label alone: those it is aligned with."""
    labels = name.lower().split(".")
    return [".".join(labels[first:]) for first in range(max(1, len(labels) - 1))]


def _opened(row: _Row) -> "PrivateKey":
    key = _loaded(tokens.derive("domain key"), _label(row.domain_id, row.selector), bytes(row.private_key))
    if key is None:
        raise KeyUnusable(
            f"the DKIM key {row.selector} of {row.name} cannot be read: put back the secret.key that belongs to this "
            "database, or delete the domain and add it again"
        )
    return key


@lru_cache(maxsize=256)
def _loaded(secret: bytes, label: str, sealed: bytes) -> "PrivateKey | None":
    """Decrypt and read a key once; reading an RSA key takes as long as several signatures."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    plain = crypto.opened(secret, label, sealed)
    if plain is None:
        return None
    try:
        key = load_der_private_key(plain, None, unsafe_skip_rsa_key_validation=True)  # nobody changed what was ours
    except ValueError:
        return None
    return key if isinstance(key, RSAPrivateKey | Ed25519PrivateKey) else None


def _label(domain_id: int, selector: str) -> str:
    """Return what a sealed key belongs to, so that none opens in the place of another."""
    return f"{domain_id}:{selector}"
