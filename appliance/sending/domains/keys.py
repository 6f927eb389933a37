"""Create, store, rotate and load the DKIM keys of sending domains.

The Date of a message decides which key signs it: the key that was active at that time, or else the one active now.
A second attempt to send a message therefore has the same bytes as the first, even if the key was rotated between them.
"""

import base64
import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from appliance.core import clock, crypto
from appliance.core.errors import Conflict, SenderRejected
from appliance.core.i18n import gettext
from appliance.sending.delivery.dkim import Signer
from appliance.settings import config
from appliance.storage.database import rows
from appliance.storage.models import DomainKey, SendingDomain
from appliance.storage.transactions import is_in_write_transaction, require_write_transaction

if TYPE_CHECKING:
    from appliance.sending.delivery.dkim import PrivateKey


RSA, ED25519 = "rsa", "ed25519"
_SELECTOR_LETTER = {RSA: "c", ED25519: "e"}
_RSA_BITS = 2048
# Receivers need the DNS record of a retired key for mail that was in transit and for mail that they verify late
RETIRED_KEY_TTL_MS = 7 * clock.DAY_MS


class KeyUnusable(SenderRejected):
    """A stored private key cannot be decrypted with this installation's secret key; the text gives the remedy."""

    kind = "keyunusable"


class KeyPair(NamedTuple):
    """A new key pair that is not stored yet."""

    algorithm: str
    private_key: "PrivateKey"
    public_key: str  # in base64, the value of `p=` in the DNS record


def enabled_algorithms() -> tuple[str, ...]:
    """Return the algorithms of the keys that sign each message: RSA, and Ed25519 if the settings enable it."""
    return (RSA, ED25519) if config.current().email.dkim_ed25519 else (RSA,)


def generate_keys(algorithms: tuple[str, ...] | None = None) -> tuple[KeyPair, ...]:
    """Generate one key pair for each algorithm, by default for all enabled ones; nothing is stored.

    This takes 0.1 s or more and would block other writes, so RuntimeError is raised within a write transaction.
    """
    if is_in_write_transaction():
        raise RuntimeError("keys are made before the write that stores them")
    return tuple(
        _generate_rsa() if algorithm == RSA else _generate_ed25519() for algorithm in algorithms or enabled_algorithms()
    )


def _generate_rsa() -> KeyPair:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(RSA, key, base64.b64encode(public).decode())


def _generate_ed25519() -> KeyPair:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return KeyPair(ED25519, key, base64.b64encode(key.public_key().public_bytes_raw()).decode())


def store_first_keys(domain: SendingDomain, pairs: tuple[KeyPair, ...]) -> list[DomainKey]:
    """Store the first keys of a domain and return them.

    The RSA key is active at once, because its DNS record verifies the domain. An Ed25519 key has the state `next` until
    a check finds its record.
    """
    return [_store_key(domain, pair, "active" if pair.algorithm == RSA else "next") for pair in pairs]


def store_next_keys(domain: SendingDomain, pairs: tuple[KeyPair, ...]) -> list[DomainKey]:
    """Store keys of a domain in the state `next` and return them; they sign once `activate_key` is called.

    Raises Conflict if the domain already has a key in the state `next` of one of the algorithms.
    """
    waiting_algorithms = {key.algorithm for key in _fetch_by_state(domain, "next")}
    if waiting_algorithms & {pair.algorithm for pair in pairs}:
        raise Conflict(gettext("a next key waits for its record already"))
    return [_store_key(domain, pair, "next") for pair in pairs]


def activate_key(key: DomainKey) -> None:
    """Activate a key and retire the domain's active key of the same algorithm. Raises Conflict for a retired key."""
    require_write_transaction()
    if key.state == "active":
        return
    if key.state == "retired":
        raise Conflict(gettext("a key that was retired does not come back"))
    now = clock.now_ms()
    for previous_key in _fetch_by_state(key.domain, "active"):
        if previous_key.algorithm == key.algorithm:
            _retire(previous_key, now)
    key.state, key.activated_at = "active", now
    key.save()


def _retire(key: DomainKey, now: int) -> None:
    key.state, key.retired_at = "retired", now
    key.save()


def fetch_published_keys(domain: SendingDomain) -> list[DomainKey]:
    """Return the keys whose records should be in DNS, oldest first.

    A retired key is included for `RETIRED_KEY_TTL_MS` after its retirement.
    """
    retired_after = clock.now_ms() - RETIRED_KEY_TTL_MS
    domain_keys = DomainKey.select().where(DomainKey.domain == domain).order_by(DomainKey.id)
    return [key for key in domain_keys if key.state != "retired" or key.retired_at > retired_after]


def txt_record(key: DomainKey) -> tuple[str, str]:
    """Return the name and value of a key's TXT record (RFC 6376, 3.6)."""
    return f"{key.selector}._domainkey.{key.domain.name}", f"v=DKIM1; k={key.algorithm}; p={key.public_key}"


def _fetch_by_state(domain: SendingDomain, state: str) -> list[DomainKey]:
    return list(DomainKey.select().where(DomainKey.domain == domain, DomainKey.state == state))


def _store_key(domain: SendingDomain, pair: KeyPair, state: str) -> DomainKey:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    require_write_transaction()
    now = clock.now_ms()
    key_count = DomainKey.select().where(DomainKey.domain == domain, DomainKey.algorithm == pair.algorithm).count()
    # The suffix is derived from the key. Otherwise two installations with the same domain, or a domain that was deleted
    # and added again, would need different records at the same name.
    key_hash = hashlib.sha256(pair.public_key.encode()).hexdigest()[:4]
    selector = f"{_SELECTOR_LETTER[pair.algorithm]}{key_count + 1}-{key_hash}"
    plain = pair.private_key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return DomainKey.create(
        domain=domain, selector=selector, algorithm=pair.algorithm, public_key=pair.public_key, state=state,
        private_key=crypto.seal(crypto.derive_key("domain key"), _label(domain.id, selector), plain),
        created_at=now, activated_at=now if state == "active" else None,
    )  # fmt: skip


class KeyRing:
    """The keys that sign mail of a From domain, as they were when the ring was read from the database."""

    def __init__(self, key_rows: list["_KeyRow"]) -> None:
        self._rows = key_rows
        self._signers_at = lru_cache(maxsize=4)(self._find_signers)  # many messages have the same date

    def get_signers_at(self, moment: int) -> tuple[Signer, ...]:
        """Return the signers of mail dated `moment` (ms): at most one for each algorithm, all of the same domain.

        A domain that has lost its verification signs only mail dated before the loss. Raises KeyUnusable if a key
        cannot be decrypted.
        """
        return self._signers_at(moment) if self._rows else ()

    def _find_signers(self, moment: int) -> tuple[Signer, ...]:
        candidates = [row for row in self._rows if row.failed_at is None or row.failed_at > moment]
        nearest = [row for row in candidates if row.name == candidates[0].name]
        selected_rows = (
            _select_key([row for row in nearest if row.algorithm == algorithm], moment)
            for algorithm in enabled_algorithms()
        )
        return tuple(Signer(row.name, row.selector, _load_key(row)) for row in selected_rows if row is not None)


class _KeyRow(NamedTuple):
    domain_id: int
    name: str
    failed_at: int | None  # when the domain lost its verification; None for a verified domain
    selector: str
    algorithm: str
    private_key: bytes
    activated_at: int
    retired_at: int | None


def fetch_key_ring(account_id: int, domain_name: str) -> KeyRing:
    """Return the keys that sign an account's mail from a domain; the ring is empty if no domain signs for it.

    A domain also signs for its subdomains; of several such domains, the one nearest to the From domain signs.
    """
    names = domain_and_parents(domain_name)
    key_rows = rows(
        "SELECT d.id, d.name, CASE WHEN d.status = 'verified' THEN NULL ELSE d.failed_at END, k.selector, k.algorithm, "
        "k.private_key, k.activated_at, k.retired_at FROM sending_domain d JOIN domain_key k ON k.domain_id = d.id "
        "WHERE d.account_id = ? AND d.enabled AND k.activated_at IS NOT NULL AND "
        f"(d.status = 'verified' OR d.verified_at < d.failed_at) AND d.name IN ({', '.join('?' * len(names))}) "
        "ORDER BY length(d.name) DESC, k.id",
        (account_id, *names),
    )
    return KeyRing([_KeyRow._make(row) for row in key_rows])


def _select_key(keys: list[_KeyRow], moment: int) -> _KeyRow | None:
    """Return the key that was active at `moment` (ms), else the key that is active now, else None."""
    active_then = [
        row for row in keys if row.activated_at <= moment and (row.retired_at is None or moment < row.retired_at)
    ]
    active_now = [row for row in keys if row.retired_at is None]
    return max(active_then or active_now, key=lambda row: row.activated_at, default=None)


def domain_and_parents(name: str) -> list[str]:
    """Return a domain and its parent domains in lower case, nearest first, without the top-level domain."""
    labels = name.lower().split(".")
    return [".".join(labels[start:]) for start in range(max(1, len(labels) - 1))]


def _load_key(row: _KeyRow) -> "PrivateKey":
    key = _decrypt_key(crypto.derive_key("domain key"), _label(row.domain_id, row.selector), bytes(row.private_key))
    if key is None:
        raise KeyUnusable(
            f"the DKIM key {row.selector} of {row.name} cannot be read: put back the secret.key that belongs to this "
            "database, or delete the domain and add it again"
        )
    return key


@lru_cache(maxsize=256)
def _decrypt_key(secret: bytes, label: str, sealed: bytes) -> "PrivateKey | None":
    """Decrypt and parse a private key; return None if that fails.

    The result is cached, because parsing an RSA key takes as long as several signatures.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    plain = crypto.unseal(secret, label, sealed)
    if plain is None:
        return None
    try:
        key = load_der_private_key(
            plain, None, unsafe_skip_rsa_key_validation=True
        )  # this installation generated the key and stored it encrypted
    except ValueError:
        return None
    return key if isinstance(key, RSAPrivateKey | Ed25519PrivateKey) else None


def _label(domain_id: int, selector: str) -> str:
    """Return the label with which a private key is encrypted; a copy of the key in another row cannot be decrypted."""
    return f"{domain_id}:{selector}"
