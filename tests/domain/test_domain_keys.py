"""Keys of sending domains: kept so that only this installation reads them, and chosen so that a repeat is the same."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from appliance.core import clock, crypto
from appliance.core.errors import Conflict
from appliance.sending.domains import keys
from appliance.sending.domains.keys import KeyUnusable
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import DomainKey, SendingDomain
from tests.domain.home import Home

PAIRS = [keys.generate_keys(("rsa",)) for _ in range(3)]


def domain(home: Home, name: str = "bakery.example", status: str = "verified") -> SendingDomain:
    """Make a sending domain without a key."""
    now = clock.now_ms()
    return transactions.write(
        SendingDomain.create, account=home.account_id, name=name, status=status, ownership_token="x",
        verified_at=now if status == "verified" else None, created_at=now, updated_at=now,
    )  # fmt: skip


def selectors(home: Home, name: str = "bakery.example", at: int | None = None) -> list[tuple[str, str]]:
    """Return domain and selector of each signature of mail from a domain."""
    return [(one.domain, one.selector) for one in keys.fetch_signers(home.account_id, name, at)]


def test_a_key_is_kept_encrypted_and_comes_back(home: Home) -> None:
    """The row holds no private key anybody could read, and what signs is the key that was made."""
    (row,) = transactions.write(keys.store_first_keys, domain(home), PAIRS[0])
    plain = PAIRS[0][0].private_key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ((stored,),) = rows("SELECT private_key FROM domain_key")
    assert not any(plain[at : at + 16] in stored for at in range(0, len(plain) - 16, 16))
    (signer,) = keys.fetch_signers(home.account_id, "bakery.example")
    assert isinstance(signer.key, RSAPrivateKey) and signer.key.key_size == 2048
    assert signer.key.private_numbers() == PAIRS[0][0].private_key.private_numbers()
    assert keys.txt_record(row) == (f"{row.selector}._domainkey.bakery.example", f"v=DKIM1; k=rsa; p={row.public_key}")
    assert row.selector.startswith("c1-")


def test_a_key_of_another_installation_is_not_read(home: Home, tmp_path: Path) -> None:
    """With another secret.key, a changed byte, or in the row of another domain, a key is refused in clear words."""
    transactions.write(keys.store_first_keys, domain(home), PAIRS[0])
    transactions.write(keys.store_first_keys, domain(home, "other.example"), PAIRS[1])
    transactions.write(run, "UPDATE domain_key SET private_key = (SELECT private_key FROM domain_key WHERE id = 1)")
    assert selectors(home)
    with pytest.raises(KeyUnusable, match=r"of other\.example cannot be read: put back the secret\.key"):
        selectors(home, "other.example")
    transactions.write(run, "UPDATE domain_key SET private_key = CAST(private_key || x'00' AS BLOB)")
    with pytest.raises(KeyUnusable):
        selectors(home)
    transactions.write(run, "UPDATE domain_key SET private_key = x''")
    with pytest.raises(KeyUnusable):
        selectors(home)
    (tmp_path / "elsewhere").mkdir()
    transactions.write(lambda: keys._store_key(SendingDomain.get_by_id(1), PAIRS[2][0], "next"))
    transactions.write(lambda: keys.activate_key(DomainKey.get(DomainKey.state == "next")))
    assert selectors(home)
    crypto.create_key(tmp_path / "elsewhere")
    with pytest.raises(KeyUnusable):
        selectors(home)


def test_only_a_verified_domain_signs(home: Home) -> None:
    """A domain that is pending, failed, switched off or somebody else's signs nothing."""
    transactions.write(keys.store_first_keys, domain(home), PAIRS[0])
    assert len(selectors(home)) == 1 and not keys.fetch_signers(home.account_id + 1, "bakery.example")
    for change in ("status = 'pending'", "status = 'failed', failed_at = verified_at", "enabled = 0"):
        transactions.write(run, f"UPDATE sending_domain SET status = 'verified', enabled = 1, {change}")
        assert not selectors(home)


def test_a_domain_signs_for_what_is_below_it(home: Home) -> None:
    """Mail from a host below a verified domain is signed by that domain, unless the host has its own; no other is."""
    transactions.write(keys.store_first_keys, domain(home), PAIRS[0])
    assert [name for name, _ in selectors(home, "News.Bakery.example")] == ["bakery.example"]
    assert not selectors(home, "notbakery.example") and not selectors(home, "example")
    transactions.write(keys.store_first_keys, domain(home, "news.bakery.example"), PAIRS[1])
    assert [name for name, _ in selectors(home, "news.bakery.example")] == ["news.bakery.example"]
    assert [name for name, _ in selectors(home, "a.b.bakery.example")] == ["bakery.example"]


def test_a_key_follows_another(home: Home) -> None:
    """The next key signs once it is activated; what is dated before that is signed as it was."""
    here = domain(home)
    (first,) = transactions.write(keys.store_first_keys, here, PAIRS[0])
    before = clock.now_ms()
    home.advance(60)
    (second,) = transactions.write(keys.store_next_keys, here, PAIRS[1])
    assert second.selector.startswith("c2-") and selectors(home) == [("bakery.example", first.selector)]
    with pytest.raises(Conflict):
        transactions.write(keys.store_next_keys, here, PAIRS[2])
    transactions.write(keys.activate_key, second)
    assert [one.state for one in DomainKey.select().order_by(DomainKey.id)] == ["retired", "active"]
    assert selectors(home) == [("bakery.example", second.selector)]
    assert selectors(home, at=before) == [("bakery.example", first.selector)]
    # A clock that stepped back is no reason to sign nothing
    assert selectors(home, at=before - 3_600_000) == [("bakery.example", second.selector)]
    with pytest.raises(Conflict):
        transactions.write(lambda: keys.activate_key(DomainKey.get_by_id(first.id)))
    with pytest.raises(Conflict):
        transactions.write(lambda: keys.retire_key(DomainKey.get_by_id(second.id)))


def test_what_was_signed_before_a_domain_failed_stays_signed(home: Home) -> None:
    """A domain that fails between an attempt and its repeat changes no byte of the repeat."""
    here = domain(home)
    transactions.write(keys.store_first_keys, here, PAIRS[0])
    home.advance(60)
    before = clock.now_ms()
    home.advance(60)
    transactions.write(run, "UPDATE sending_domain SET status = 'failed', failed_at = ?", (clock.now_ms(),))
    assert not selectors(home) and len(selectors(home, at=before)) == 1


def test_records_stand_while_mail_may_need_them(home: Home) -> None:
    """The record of a retired key is wanted for a week more; that of a key that never signed is not."""
    here = domain(home)
    transactions.write(keys.store_first_keys, here, PAIRS[0])
    (second,) = transactions.write(keys.store_next_keys, here, PAIRS[1])
    transactions.write(keys.activate_key, second)
    (third,) = transactions.write(keys.store_next_keys, here, PAIRS[2])
    transactions.write(keys.retire_key, third)
    assert [key.selector[:2] for key in keys.fetch_published_keys(here)] == ["c1", "c2"]
    home.advance(7 * 86_400 + 1)
    assert [key.selector[:2] for key in keys.fetch_published_keys(here)] == ["c2"]


def test_a_second_signature_waits_for_its_record(home: Home) -> None:
    """With the setting a domain gets two keys; the short one signs, second, once it was activated."""
    home.configure(email__dkim_ed25519=True)
    pairs = keys.generate_keys()
    first, second = transactions.write(keys.store_first_keys, domain(home), pairs)
    assert [name for _, name in selectors(home)] == [first.selector] and second.state == "next"
    transactions.write(keys.activate_key, second)
    both = keys.fetch_signers(home.account_id, "bakery.example")
    assert [one.selector for one in both] == [first.selector, second.selector]
    assert isinstance(both[1].key, Ed25519PrivateKey)
    assert keys.txt_record(second)[1].startswith("v=DKIM1; k=ed25519; p=") and len(second.public_key) == 44
    home.configure()
    assert [name for _, name in selectors(home)] == [first.selector]


def test_no_key_is_made_on_the_writer(home: Home) -> None:
    """Making a key takes long, so a verb cannot do it."""
    with pytest.raises(RuntimeError):
        transactions.write(keys.generate_keys)
