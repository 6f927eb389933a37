"""The status of a sending domain: what changes it, when it is checked, and what has no effect."""

import threading
from typing import Any

import msgspec
import pytest

from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.core.errors import SenderRejected
from appliance.core.validation import read
from appliance.sending.domains import dns_checks, keys, records, store
from appliance.sending.domains.store import DomainCreate
from appliance.sending.messages import senders, transactional
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Account, SendingDomain
from tests.domain.home import Home
from tests.kit.dns import DnsServer

PAIRS = [keys.generate_keys(("rsa",)) for _ in range(2)]
MINUTE, HOUR = 60_000, 3_600_000
GOOD: dict[str, Any] = {"valid": "valid"}
WRONG: dict[str, Any] = {"valid": "invalid", "problem": "there is no TXT record yet"}
UNASKED: dict[str, Any] = {"valid": "unknown", "problem": "the DNS server answered SERVFAIL"}


def add_domain(home: Home, name: str = "bakery.example", pairs: Any = PAIRS[0]) -> SendingDomain:
    """Add a domain."""
    request = read(DomainCreate, {"domain": {"name": name}})
    return transactions.write(store.create, home.account_id, request, pairs, Actor("user:1", "192.0.2.1"))


def apply_check(domain: SendingDomain, *verdicts: dict[str, Any], others: dict[str, Any] = GOOD) -> SendingDomain:
    """Apply a check with these verdicts for the required records (the last one repeats), and return the domain."""
    expected = records.get_records(SendingDomain.get_by_id(domain.id))
    required = iter([*verdicts, *[verdicts[-1]] * 9])
    checked = [
        msgspec.structs.replace(record, **(next(required) if record.required else others)) for record in expected
    ]
    transactions.write(store.apply_check, domain.id, checked)
    return SendingDomain.get_by_id(domain.id)


def fetch_audit(domain: SendingDomain) -> list[tuple[str, str]]:
    """Return (actor, action) of each audit entry of a domain."""
    return rows("SELECT actor, action FROM audit WHERE subject = ? ORDER BY id", (f"domain:{domain.id}",))


def test_a_new_domain_is_checked_often_at_first(home: Home) -> None:
    """A new domain is checked after 1, 5, 15 and 60 minutes, then hourly; a missed check is not repeated."""
    domain, check_minutes = add_domain(home), []
    for _ in range(7):
        home.advance((domain.next_check_at - clock.now_ms()) / 1000)
        check_minutes.append(round((domain.next_check_at - domain.created_at) / MINUTE))
        domain = apply_check(domain, WRONG)
        assert domain.status == "pending" and domain.attention is None
    assert check_minutes == [1, 5, 15, 60, 120, 180, 240]
    home.advance(10 * 3600)
    late = apply_check(domain, WRONG)
    assert round((late.next_check_at - late.created_at) / HOUR) == 15


def test_a_domain_is_verified_when_required_records_are_valid(home: Home) -> None:
    """One missing or unknown required record is enough to keep it pending; optional ones do not count."""
    domain = add_domain(home)
    assert [
        apply_check(domain, *verdicts).status
        for verdicts in ((GOOD, WRONG), (WRONG, GOOD), (GOOD, UNASKED), (UNASKED,))
    ] == ["pending"] * 4
    domain = apply_check(domain, GOOD, others=WRONG)
    assert (domain.status, domain.attention, domain.verified_at) == ("verified", None, domain.checked_at)
    assert domain.next_check_at == domain.checked_at + 6 * HOUR
    apply_check(domain, GOOD)
    events = rows("SELECT event, resource_uid, resource_name FROM event")
    assert events == [("domain_verified", f"domain:{domain.id}", "bakery.example")]
    assert fetch_audit(domain) == [("user:1", "domain_add"), ("system", "domain_verified")]


def test_three_failed_checks_in_a_row_fail_a_domain(home: Home) -> None:
    """A valid check resets the count; one without a DNS answer neither counts nor resets."""
    domain = apply_check(add_domain(home), GOOD)
    for verdicts in ([WRONG, WRONG, GOOD], [WRONG, UNASKED, WRONG, UNASKED, UNASKED]):
        assert {apply_check(domain, verdict).status for verdict in verdicts} == {"verified"}
    attention_since = SendingDomain.get_by_id(domain.id).attention_since
    home.advance(60)
    failed = apply_check(domain, WRONG, GOOD)
    assert (failed.status, failed.attention_since, failed.failed_at) == ("failed", attention_since, failed.checked_at)
    assert failed.attention == "TXT _campanero.bakery.example: there is no TXT record yet"
    assert apply_check(domain, UNASKED).status == "failed"
    recovered = apply_check(domain, GOOD)
    assert (recovered.status, recovered.attention, recovered.attention_since, recovered.failed_checks) == (
        "verified",
        None,
        None,
        0,
    )
    assert [row[0] for row in rows("SELECT event FROM event ORDER BY id")] == [
        "domain_verified", "domain_failed", "domain_verified",
    ]  # fmt: skip


def test_attention_distinguishes_dns_errors_from_wrong_records(home: Home) -> None:
    """A DNS error is reported as such; its time is replaced when a record is found to be wrong."""
    domain = apply_check(add_domain(home), GOOD)
    unasked = apply_check(domain, UNASKED)
    assert unasked.attention == "TXT _campanero.bakery.example: the lookup failed: the DNS server answered SERVFAIL"
    home.advance(3600)
    wrong = apply_check(domain, WRONG)
    assert wrong.attention_since == wrong.checked_at > unasked.attention_since
    expected = "DNS of bakery.example: TXT _campanero.bakery.example: there is no TXT record yet"
    advice = senders.find_email_advice(home.account_id, "us@bakery.example", True)
    assert (advice[0][0], advice[0][1][: len(expected)]) == ("domain_attention", expected)


def test_a_pending_domain_fails_after_three_days(home: Home) -> None:
    """After 72 hours it fails at the next wrong record, but not at a DNS error."""
    domain, unlucky = add_domain(home), add_domain(home, "unlucky.example", PAIRS[1])
    home.advance(72 * 3600 - 60)
    assert apply_check(domain, WRONG).status == "pending"
    home.advance(61)
    assert (apply_check(domain, WRONG).status, apply_check(unlucky, UNASKED).status) == ("failed", "pending")
    assert apply_check(unlucky, GOOD).status == "verified"


def test_direct_delivery_requires_more_records(home: Home) -> None:
    """With direct delivery the return path and SPF records are required too."""
    home.configure(base_url="https://us.example", email__transport="relay", email__relay__host="mail.us.example")
    domain = apply_check(add_domain(home), GOOD, others=WRONG)
    assert domain.status == "verified"
    home.configure(base_url="https://us.example", email__transport="direct")
    required = [record.purpose for record in records.get_records(SendingDomain.get_by_id(domain.id)) if record.required]
    assert required == ["ownership", "dkim", "return_path", "spf"]
    other = add_domain(home, "mill.example", PAIRS[1])
    statuses = [
        apply_check(other, GOOD, GOOD, *verdicts).status for verdicts in ((WRONG, GOOD), (GOOD, WRONG), (GOOD, GOOD))
    ]
    assert statuses == ["pending", "pending", "verified"]


def test_a_changed_record_is_unknown(home: Home) -> None:
    """After a change of `base_url` the old check of the tracking record no longer counts."""
    home.configure(base_url="https://one.example")
    domain = apply_check(add_domain(home), GOOD)
    home.configure(base_url="https://two.example")
    result = {
        record.purpose: (record.value, record.valid)
        for record in records.get_records(SendingDomain.get_by_id(domain.id))
    }
    assert result["tracking"] == ("two.example", "unknown") and result["dkim"][1] == "valid"


def test_a_clock_set_back_delays_no_check(home: Home) -> None:
    """The next check is within the hour, even for a domain created in the future."""
    home.advance(86_400)
    domain = add_domain(home)
    home.advance(-86_400)
    assert apply_check(domain, WRONG).next_check_at <= clock.now_ms() + HOUR
    assert store.next_check_at("verified", 0, 1000) == 1000 + 6 * HOUR


def test_concurrent_checks_are_shared(home: Home, dns: DnsServer) -> None:
    """Five checks of a domain at once send one DNS query and count once."""
    home.configure(network__dns_servers=[dns.address])
    domain = apply_check(add_domain(home), GOOD)
    dns.delay("_campanero.bakery.example", 0.4)
    check = store.prepare_check(domain.id)
    assert check is not None
    transactions.start()
    futures = [store.start_check(check) for _ in range(5)]
    for future in futures:
        future.result()
    assert dns.query_count("_campanero.bakery.example", "TXT") == 1
    assert SendingDomain.get_by_id(domain.id).failed_checks == 1
    assert store._running == {}


def test_a_domain_deleted_during_a_check_is_ignored(home: Home, dns: DnsServer) -> None:
    """Nothing is stored and nothing fails."""
    home.configure(network__dns_servers=[dns.address])
    domain = add_domain(home)
    check = store.prepare_check(domain.id)
    assert check is not None
    transactions.write(store.delete, home.account_id, domain.id, Actor("user:1"))
    store.start_check(check).result()
    assert store.prepare_check(domain.id) is None and not store.has_due_checks()
    assert rows("SELECT count(*) FROM domain_key") == [(0,)]


def test_an_error_in_a_check_stops_no_other_check(
    home: Home, dns: DnsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged, and that domain is checked again within the hour."""
    home.configure(network__dns_servers=[dns.address])
    failing_domain, valid_domain = add_domain(home, "bad.example"), add_domain(home, "good.example", PAIRS[1])
    original = dns_checks.check_record

    def check_record(record: Any, domain: str, ask: Any) -> Any:
        if domain == "bad.example":
            raise ZeroDivisionError
        return original(record, domain, ask)

    monkeypatch.setattr(dns_checks, "check_record", check_record)
    home.advance(61)
    transactions.start()
    store.run_due_checks(threading.Event())
    assert "bad.example could not be checked" in caplog.text
    assert SendingDomain.get_by_id(valid_domain.id).checked_at is not None
    next_check_at = SendingDomain.get_by_id(failing_domain.id).next_check_at
    assert clock.now_ms() < next_check_at <= clock.now_ms() + HOUR and not store.has_due_checks()


def test_checks_stop_with_the_process(home: Home) -> None:
    """With the stop event set no domain is checked."""
    add_domain(home)
    home.advance(61)
    stopping = threading.Event()
    stopping.set()
    store.run_due_checks(stopping)
    assert store.has_due_checks()


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("us@bakery.example", True), ("Us@BAKERY.example", True), ("us@news.bakery.example", False),
        ("us@bakery.example.evil", False), ("us@akery.example", False), ("us@xn--mnchen-3ya.example", True),
        ("us@münchen.example", True), ("us@MÜNCHEN.example", True), ("us@munchen.example", False),
        ("us@failed.example", False), ("us@theirs.example", False), ("us@gmail.com", False), ("us@", False),
    ],
)  # fmt: skip
def test_addresses_that_mail_may_be_sent_from(home: Home, address: str, is_allowed: bool) -> None:
    """Only addresses at exactly a verified domain of the account, however written; not above or below it."""
    home.configure(email__transport="relay", email__relay__host="mail.us.example")
    now = clock.now_ms()
    for name, status in (
        ("bakery.example", "verified"),
        ("xn--mnchen-3ya.example", "verified"),
        ("failed.example", "failed"),
    ):
        transactions.write(SendingDomain.create, account=home.account_id, name=name, status=status, ownership_token="x",
                   created_at=now, updated_at=now)  # fmt: skip
    account = Account.get_by_id(home.account_id)
    assert (senders.find_email_problems(account, address, "relay", marketing=False) == []) == is_allowed
    assert senders.find_email_problems(account, address, "capture", marketing=True) == []
    assert [code for code, _ in senders.find_email_advice(account.id, address, False)] == (
        [] if is_allowed else ["domain_unverified"]
    )
    assert senders.find_email_advice(account.id, address, True) == []
    assert senders.has_domain_failed(account.id, address) == (address == "us@failed.example")
    home.configure(email__transport="relay", email__relay__host="x", email__allow_unverified_domains=True)
    assert senders.find_email_problems(
        account, address, "relay", marketing=False
    ) == [] and not senders.has_domain_failed(account.id, address)


def test_domains_of_mailbox_providers_cannot_be_used(home: Home) -> None:
    """Such a domain is rejected if domains have to be verified; otherwise advice says that mail will be refused."""
    account, address = Account.get_by_id(home.account_id), "ceo@gmail.com"
    home.configure(email__transport="relay", email__relay__host="mail.us.example")
    [(field, message)] = senders.find_email_problems(account, address, "relay", marketing=False)
    assert field == "from_email" and "gmail.com is not verified" in message
    home.configure(email__transport="relay", email__relay__host="x", email__allow_unverified_domains=True)
    assert senders.find_email_problems(account, address, "relay", marketing=False) == []
    [(code, message)] = senders.find_email_advice(account.id, address, True)
    assert (
        code == "domain_unverified" and "gmail.com belongs to a mailbox provider" in message and "rejected" in message
    )


def test_an_account_without_a_domain_is_told_to_add_one(home: Home) -> None:
    """The made-up domain that stands in for one is never named, in no blocker and in no advice."""
    account = Account.get_by_id(home.account_id)
    address = senders.resolve_email(account, None)
    needed = "add a sending domain, or enter a From address of a verified domain"
    assert senders.find_email_advice(account.id, address, False) == [("domain_unverified", needed)]
    home.configure(email__transport="relay", email__relay__host="mail.us.example")
    assert senders.find_email_problems(account, address, "relay", marketing=False) == [("from_email", needed)]
    assert senders.list_from_addresses(account) == []


def test_a_dns_error_keeps_the_return_path(home: Home) -> None:
    """While the state of the MX record is only unknown the return path stays; a wrong record ends it."""
    home.configure(base_url="https://us.example")
    domain = apply_check(add_domain(home), GOOD)
    mx = next(record for record in records.get_records(domain) if record.purpose == "return_path")

    def find_host_after_check(found_values: list[str], valid: str) -> str | None:
        checked = [msgspec.structs.replace(mx, valid=valid, found=found_values) if record.is_same_record(mx) else record
                for record in records.get_records(SendingDomain.get_by_id(domain.id))]  # fmt: skip
        transactions.write(store.apply_check, domain.id, checked)
        return store.find_return_path_host(home.account_id, domain.name)

    own_records, other_records = [f"10 {mx.value}"], ["5 mail.theirs.example", f"10 {mx.value}"]
    results = [(own_records, "valid"), ([], "unknown"), ([], "unknown"), (other_records, "invalid"), ([], "unknown"),
               ([], "invalid"),
               ([], "unknown")]  # fmt: skip
    assert [find_host_after_check(*result) is not None for result in results] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_mail_from_a_deleted_domain_is_not_sent(home: Home) -> None:
    """A queued message raises SenderRejected, as its domain is no longer verified."""
    home.configure(email__transport="relay", email__relay__host="mail.us.example")
    domain = apply_check(add_domain(home), GOOD)
    request = {"to": "bo@example.net", "subject": "Hi", "body": "Hi", "from_email": f"us@{domain.name}"}
    row = transactions.write(transactional.queue_message, home.account_id, read(transactional.MessageWrite, request))
    ledger_row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (row.id,))[0])
    assert MessagePreparer().prepare(ledger_row).sender == f"us@{domain.name}"
    transactions.write(store.delete, home.account_id, domain.id, Actor("user:1", None))
    with pytest.raises(SenderRejected, match="no longer verified"):
        MessagePreparer().prepare(ledger_row)


def test_display_domain() -> None:
    """An ASCII (xn--) name is shown in Unicode; an invalid one stays as it is."""
    assert records.display_domain("xn--mnchen-3ya.example") == "münchen.example"
    assert records.display_domain("xn--.example") == "xn--.example"
