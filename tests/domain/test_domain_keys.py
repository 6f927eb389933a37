"""DKIM keys of sending domains: encrypted storage, choice of signers, rotation."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from appliance.core import clock, crypto
from appliance.core.errors import Conflict
from appliance.sending.delivery.dkim import Signer
from appliance.sending.domains import keys
from appliance.sending.domains.keys import KeyUnusable
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import DomainKey, SendingDomain
from tests.domain.home import Home

PAIRS = [keys.generate_keys(("rsa",)) for _ in range(3)]


def create_domain(home: Home, name: str = "bakery.example", status: str = "verified") -> SendingDomain:
    """Create a sending domain without a key."""
    now = clock.now_ms()
    return transactions.write(
        SendingDomain.create, account=home.account_id, name=name, status=status, ownership_token="x",
        verified_at=now if status == "verified" else None, created_at=now, updated_at=now,
    )  # fmt: skip


def fetch_signers(home: Home, name: str = "bakery.example", at: int | None = None) -> tuple[Signer, ...]:
    """Return the signers of mail from a domain, dated `at` (ms, default now)."""
    ring = keys.fetch_key_ring(home.account_id, name)
    return ring.get_signers_at(clock.now_ms() if at is None else at)


def signer_selectors(home: Home, name: str = "bakery.example", at: int | None = None) -> list[tuple[str, str]]:
    """Return (domain, selector) of each signer for mail from a domain."""
    return [(signer.domain, signer.selector) for signer in fetch_signers(home, name, at)]


def test_a_private_key_is_stored_encrypted(home: Home) -> None:
    """The row does not contain the private key, and the signer's key is the one that was stored."""
    (row,) = transactions.write(keys.store_first_keys, create_domain(home), PAIRS[0])
    der = PAIRS[0][0].private_key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ((ciphertext,),) = rows("SELECT private_key FROM domain_key")
    assert not any(der[offset : offset + 16] in ciphertext for offset in range(0, len(der) - 16, 16))
    (signer,) = fetch_signers(home)
    assert isinstance(signer.key, RSAPrivateKey) and signer.key.key_size == 2048
    assert signer.key.private_numbers() == PAIRS[0][0].private_key.private_numbers()
    assert keys.txt_record(row) == (f"{row.selector}._domainkey.bakery.example", f"v=DKIM1; k=rsa; p={row.public_key}")
    assert row.selector.startswith("c1-")


def test_a_key_that_cannot_be_decrypted_is_reported(home: Home, tmp_path: Path) -> None:
    """Another secret.key, changed bytes or another domain's key in the row raise KeyUnusable."""
    transactions.write(keys.store_first_keys, create_domain(home), PAIRS[0])
    transactions.write(keys.store_first_keys, create_domain(home, "other.example"), PAIRS[1])
    transactions.write(run, "UPDATE domain_key SET private_key = (SELECT private_key FROM domain_key WHERE id = 1)")
    assert signer_selectors(home)
    with pytest.raises(KeyUnusable, match=r"of other\.example cannot be read: put back the secret\.key"):
        signer_selectors(home, "other.example")
    transactions.write(run, "UPDATE domain_key SET private_key = CAST(private_key || x'00' AS BLOB)")
    with pytest.raises(KeyUnusable):
        signer_selectors(home)
    transactions.write(run, "UPDATE domain_key SET private_key = x''")
    with pytest.raises(KeyUnusable):
        signer_selectors(home)
    (tmp_path / "elsewhere").mkdir()
    transactions.write(lambda: keys._store_key(SendingDomain.get_by_id(1), PAIRS[2][0], "next"))
    transactions.write(lambda: keys.activate_key(DomainKey.get(DomainKey.state == "next")))
    assert signer_selectors(home)
    crypto.create_key(tmp_path / "elsewhere")
    with pytest.raises(KeyUnusable):
        signer_selectors(home)


def test_only_a_verified_domain_signs(home: Home) -> None:
    """A pending, failed or disabled domain has no signers, nor has another account."""
    transactions.write(keys.store_first_keys, create_domain(home), PAIRS[0])
    other_ring = keys.fetch_key_ring(home.account_id + 1, "bakery.example")
    assert len(signer_selectors(home)) == 1 and not other_ring.get_signers_at(clock.now_ms())
    for change in ("status = 'pending'", "status = 'failed', failed_at = verified_at", "enabled = 0"):
        transactions.write(run, f"UPDATE sending_domain SET status = 'verified', enabled = 1, {change}")
        assert not signer_selectors(home)


def test_a_domain_signs_for_its_subdomains(home: Home) -> None:
    """Mail from a subdomain is signed by the verified parent domain, unless the subdomain has its own key."""
    transactions.write(keys.store_first_keys, create_domain(home), PAIRS[0])
    assert [name for name, _ in signer_selectors(home, "News.Bakery.example")] == ["bakery.example"]
    assert not signer_selectors(home, "notbakery.example") and not signer_selectors(home, "example")
    transactions.write(keys.store_first_keys, create_domain(home, "news.bakery.example"), PAIRS[1])
    assert [name for name, _ in signer_selectors(home, "news.bakery.example")] == ["news.bakery.example"]
    assert [name for name, _ in signer_selectors(home, "a.b.bakery.example")] == ["bakery.example"]


def test_key_rotation(home: Home) -> None:
    """The next key signs once activated; messages dated earlier are still signed with the previous key."""
    sending_domain = create_domain(home)
    (first,) = transactions.write(keys.store_first_keys, sending_domain, PAIRS[0])
    before = clock.now_ms()
    home.advance(60)
    (second,) = transactions.write(keys.store_next_keys, sending_domain, PAIRS[1])
    assert second.selector.startswith("c2-") and signer_selectors(home) == [("bakery.example", first.selector)]
    with pytest.raises(Conflict):
        transactions.write(keys.store_next_keys, sending_domain, PAIRS[2])
    transactions.write(keys.activate_key, second)
    assert [key.state for key in DomainKey.select().order_by(DomainKey.id)] == ["retired", "active"]
    assert signer_selectors(home) == [("bakery.example", second.selector)]
    assert signer_selectors(home, at=before) == [("bakery.example", first.selector)]
    # A date before the first key, as after a clock step back, gets the active key
    assert signer_selectors(home, at=before - 3_600_000) == [("bakery.example", second.selector)]
    with pytest.raises(Conflict):
        transactions.write(lambda: keys.activate_key(DomainKey.get_by_id(first.id)))


def test_mail_dated_before_a_domain_failed_is_signed(home: Home) -> None:
    """After a domain failed, mail dated before the failure is still signed, so a retry has the same bytes."""
    sending_domain = create_domain(home)
    transactions.write(keys.store_first_keys, sending_domain, PAIRS[0])
    home.advance(60)
    before = clock.now_ms()
    home.advance(60)
    transactions.write(run, "UPDATE sending_domain SET status = 'failed', failed_at = ?", (clock.now_ms(),))
    assert not signer_selectors(home) and len(signer_selectors(home, at=before)) == 1


def test_retired_keys_stay_published_for_a_week(home: Home) -> None:
    """A retired key is published for a week more."""
    sending_domain = create_domain(home)
    transactions.write(keys.store_first_keys, sending_domain, PAIRS[0])
    (second,) = transactions.write(keys.store_next_keys, sending_domain, PAIRS[1])
    transactions.write(keys.activate_key, second)
    assert [key.selector[:2] for key in keys.fetch_published_keys(sending_domain)] == ["c1", "c2"]
    home.advance(7 * 86_400 + 1)
    assert [key.selector[:2] for key in keys.fetch_published_keys(sending_domain)] == ["c2"]


def test_an_ed25519_key_signs_once_activated(home: Home) -> None:
    """With `email.dkim_ed25519` a domain gets two keys; the Ed25519 key signs second, once it is activated."""
    home.configure(email__dkim_ed25519=True)
    pairs = keys.generate_keys()
    first, second = transactions.write(keys.store_first_keys, create_domain(home), pairs)
    assert [name for _, name in signer_selectors(home)] == [first.selector] and second.state == "next"
    transactions.write(keys.activate_key, second)
    signers = fetch_signers(home)
    assert [signer.selector for signer in signers] == [first.selector, second.selector]
    assert isinstance(signers[1].key, Ed25519PrivateKey)
    assert keys.txt_record(second)[1].startswith("v=DKIM1; k=ed25519; p=") and len(second.public_key) == 44
    home.configure()
    assert [name for _, name in signer_selectors(home)] == [first.selector]


def test_keys_cannot_be_generated_on_the_writer_thread(home: Home) -> None:
    """`generate_keys` is slow, so it raises RuntimeError within a write."""
    with pytest.raises(RuntimeError):
        transactions.write(keys.generate_keys)
