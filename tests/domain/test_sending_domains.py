"""The status of a sending domain: what moves it, when it is looked at, and what leaves it as it is."""

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
from appliance.sending.messages.ledger import COLUMNS, Claim
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


def add(home: Home, name: str = "bakery.example", pairs: Any = PAIRS[0]) -> SendingDomain:
    """Add a domain."""
    asked = read(DomainCreate, {"domain": {"name": name}})
    return transactions.write(store.create, home.account_id, asked, pairs, Actor("user:1", "192.0.2.1"))


def see(domain: SendingDomain, *verdicts: dict[str, Any], others: dict[str, Any] = GOOD) -> SendingDomain:
    """Let a check find the required records so, one after the other, and the rest alike."""
    wanted = records.get_records(SendingDomain.get_by_id(domain.id))
    required = iter([*verdicts, *[verdicts[-1]] * 9])
    found = [msgspec.structs.replace(one, **(next(required) if one.required else others)) for one in wanted]
    transactions.write(store.apply_check, domain.id, found)
    return SendingDomain.get_by_id(domain.id)


def audit(domain: SendingDomain) -> list[tuple[str, str]]:
    """Return who did what to a domain."""
    return rows("SELECT actor, action FROM audit WHERE subject = ? ORDER BY id", (f"domain:{domain.id}",))


def test_a_new_domain_is_looked_at_early_and_then_hourly(home: Home) -> None:
    """After 1, 5, 15 and 60 minutes, then each hour; whatever was missed is looked at once."""
    domain, seen = add(home), []
    for _ in range(7):
        home.advance((domain.next_check_at - clock.now_ms()) / 1000)
        seen.append(round((domain.next_check_at - domain.created_at) / MINUTE))
        domain = see(domain, WRONG)
        assert domain.status == "pending" and domain.attention is None
    assert seen == [1, 5, 15, 60, 120, 180, 240]
    home.advance(10 * 3600)
    late = see(domain, WRONG)
    assert round((late.next_check_at - late.created_at) / HOUR) == 15


def test_it_is_verified_once_what_is_required_is_there(home: Home) -> None:
    """One of two is not enough, nor is one that could not be asked for; records that help are not waited for."""
    domain = add(home)
    assert [see(domain, *two).status for two in ((GOOD, WRONG), (WRONG, GOOD), (GOOD, UNASKED), (UNASKED,))] == [
        "pending"
    ] * 4
    domain = see(domain, GOOD, others=WRONG)
    assert (domain.status, domain.attention, domain.verified_at) == ("verified", None, domain.checked_at)
    assert domain.next_check_at == domain.checked_at + 6 * HOUR
    see(domain, GOOD)
    said = rows("SELECT event, resource_uid, resource_name FROM event")
    assert said == [("domain_verified", f"domain:{domain.id}", "bakery.example")]
    assert audit(domain) == [("user:1", "domain_add"), ("system", "domain_verified")]


def test_three_in_a_row_fail_it_and_nothing_else(home: Home) -> None:
    """A good check begins anew; one that nobody could answer neither counts nor forgives."""
    domain = see(add(home), GOOD)
    for verdicts in ([WRONG, WRONG, GOOD], [WRONG, UNASKED, WRONG, UNASKED, UNASKED]):
        assert {see(domain, verdict).status for verdict in verdicts} == {"verified"}
    first = SendingDomain.get_by_id(domain.id).attention_since
    home.advance(60)
    failed = see(domain, WRONG, GOOD)
    assert (failed.status, failed.attention_since, failed.failed_at) == ("failed", first, failed.checked_at)
    assert failed.attention == "TXT _campanero.bakery.example: there is no TXT record yet"
    assert see(domain, UNASKED).status == "failed"
    back = see(domain, GOOD)
    assert (back.status, back.attention, back.attention_since, back.failed_checks) == ("verified", None, None, 0)
    assert [row[0] for row in rows("SELECT event FROM event ORDER BY id")] == [
        "domain_verified", "domain_failed", "domain_verified",
    ]  # fmt: skip


def test_attention_of_a_resolver_is_not_taken_for_the_records(home: Home) -> None:
    """What could not be asked is said too; once the records are wrong, the time is that of the first wrong one."""
    domain = see(add(home), GOOD)
    unasked = see(domain, UNASKED)
    assert unasked.attention == "TXT _campanero.bakery.example could not be asked for: the DNS server answered SERVFAIL"
    home.advance(3600)
    wrong = see(domain, WRONG)
    assert wrong.attention_since == wrong.checked_at > unasked.attention_since
    words = "DNS of bakery.example: TXT _campanero.bakery.example: there is no TXT record yet"
    found = senders.find_email_advice(home.account_id, "us@bakery.example", True)
    assert (found[0][0], found[0][1][: len(words)]) == ("domain_attention", words)


def test_it_gives_up_after_three_days_by_what_it_knows(home: Home) -> None:
    """At 72 hours without success it fails, unless nobody could be asked: then the next answer decides."""
    domain, unlucky = add(home), add(home, "unlucky.example", PAIRS[1])
    home.advance(72 * 3600 - 60)
    assert see(domain, WRONG).status == "pending"
    home.advance(61)
    assert (see(domain, WRONG).status, see(unlucky, UNASKED).status) == ("failed", "pending")
    assert see(unlucky, GOOD).status == "verified"


def test_with_direct_delivery_more_is_required(home: Home) -> None:
    """Where we hand mail over ourselves, returned mail and SPF have to be right too."""
    home.configure(base_url="https://us.example", email__transport="relay", email__relay__host="mail.us.example")
    domain = see(add(home), GOOD, others=WRONG)
    assert domain.status == "verified"
    home.configure(base_url="https://us.example", email__transport="direct")
    required = [one.purpose for one in records.get_records(SendingDomain.get_by_id(domain.id)) if one.required]
    assert required == ["ownership", "dkim", "return_path", "spf"]
    other = add(home, "mill.example", PAIRS[1])
    assert [see(other, GOOD, GOOD, *rest).status for rest in ((WRONG, GOOD), (GOOD, WRONG), (GOOD, GOOD))] == [
        "pending", "pending", "verified",
    ]  # fmt: skip


def test_a_record_that_changed_is_unknown_again(home: Home) -> None:
    """Once this installation has another name, what was found for the old one says nothing."""
    home.configure(base_url="https://one.example")
    domain = see(add(home), GOOD)
    home.configure(base_url="https://two.example")
    found = {one.purpose: (one.value, one.valid) for one in records.get_records(SendingDomain.get_by_id(domain.id))}
    assert found["tracking"] == ("two.example", "unknown") and found["dkim"][1] == "valid"


def test_a_clock_that_goes_back_stops_no_check(home: Home) -> None:
    """However far ahead a domain was made, it is looked at within the hour."""
    home.advance(86_400)
    domain = add(home)
    home.advance(-86_400)
    assert see(domain, WRONG).next_check_at <= clock.now_ms() + HOUR
    assert store.next_check_at("verified", 0, 1000) == 1000 + 6 * HOUR


def test_checks_at_once_are_one(home: Home, dns: DnsServer) -> None:
    """Who asks while a domain is being looked up waits for the same answer, and it counts once."""
    home.configure(network__dns_servers=[dns.address])
    domain = see(add(home), GOOD)
    dns.delay("_campanero.bakery.example", 0.4)
    asked = store.prepare_check(domain.id)
    assert asked is not None
    transactions.start()
    begun = [store.start_check(asked) for _ in range(5)]
    for one in begun:
        one.result()
    assert dns.asked("_campanero.bakery.example", "TXT") == 1
    assert SendingDomain.get_by_id(domain.id).failed_checks == 1
    assert store._running == {}


def test_a_domain_that_goes_meanwhile_is_no_fault(home: Home, dns: DnsServer) -> None:
    """Deleted between the question and the answer: nothing is stored, nothing fails."""
    home.configure(network__dns_servers=[dns.address])
    domain = add(home)
    asked = store.prepare_check(domain.id)
    assert asked is not None
    transactions.write(store.delete, home.account_id, domain.id, Actor("user:1"))
    store.start_check(asked).result()
    assert store.prepare_check(domain.id) is None and not store.has_due_checks()
    assert rows("SELECT count(*) FROM domain_key") == [(0,)]


def test_one_that_cannot_be_checked_stops_no_other(
    home: Home, dns: DnsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours is logged, and the domain comes again within the hour instead of at once and for ever."""
    home.configure(network__dns_servers=[dns.address])
    bad, good = add(home, "bad.example"), add(home, "good.example", PAIRS[1])
    real = dns_checks.check_record

    def judge(record: Any, domain: str, ask: Any) -> Any:
        if domain == "bad.example":
            raise ZeroDivisionError
        return real(record, domain, ask)

    monkeypatch.setattr(dns_checks, "check_record", judge)
    home.advance(61)
    transactions.start()
    store.run_due_checks(threading.Event())
    assert "bad.example could not be checked" in caplog.text
    assert SendingDomain.get_by_id(good.id).checked_at is not None
    later = SendingDomain.get_by_id(bad.id).next_check_at
    assert clock.now_ms() < later <= clock.now_ms() + HOUR and not store.has_due_checks()


def test_a_round_ends_with_the_process(home: Home) -> None:
    """Told to stop, it asks nobody."""
    add(home)
    home.advance(61)
    stopping = threading.Event()
    stopping.set()
    store.run_due_checks(stopping)
    assert store.has_due_checks()


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("us@bakery.example", True), ("Us@BAKERY.example", True), ("us@news.bakery.example", False),
        ("us@bakery.example.evil", False), ("us@akery.example", False), ("us@xn--mnchen-3ya.example", True),
        ("us@münchen.example", True), ("us@MÜNCHEN.example", True), ("us@munchen.example", False),
        ("us@failed.example", False), ("us@theirs.example", False), ("us@gmail.com", False), ("us@", False),
    ],
)  # fmt: skip
def test_from_which_addresses_mail_may_leave(home: Home, address: str, may: bool) -> None:
    """Exactly the verified names of this account, however they are written; nothing above, below or beside them."""
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
    assert (senders.find_email_problems(account, address, "relay", marketing=False) == []) == may
    assert senders.find_email_problems(account, address, "capture", marketing=True) == []
    assert [code for code, _ in senders.find_email_advice(account.id, address, False)] == (
        [] if may else ["domain_unverified"]
    )
    assert senders.find_email_advice(account.id, address, True) == []
    assert senders.has_domain_failed(account.id, address) == (address == "us@failed.example")
    home.configure(email__transport="relay", email__relay__host="x", email__allow_unverified_domains=True)
    assert senders.find_email_problems(
        account, address, "relay", marketing=False
    ) == [] and not senders.has_domain_failed(account.id, address)


def test_the_name_of_a_mailbox_provider_is_nobodys(home: Home) -> None:
    """Refused where a domain has to be verified, for it never can be; where none has to, it is said what follows."""
    account, address = Account.get_by_id(home.account_id), "ceo@gmail.com"
    home.configure(email__transport="relay", email__relay__host="mail.us.example")
    [(field, words)] = senders.find_email_problems(account, address, "relay", marketing=False)
    assert field == "from_email" and "gmail.com is not verified" in words
    home.configure(email__transport="relay", email__relay__host="x", email__allow_unverified_domains=True)
    assert senders.find_email_problems(account, address, "relay", marketing=False) == []
    [(code, words)] = senders.find_email_advice(account.id, address, True)
    assert code == "domain_unverified" and "gmail.com belongs to its provider" in words and "refused" in words


def test_a_resolver_that_fails_moves_no_return_path(home: Home) -> None:
    """Mail goes on to come back to us while nobody can be asked for the record that leads it here; gone is gone."""
    home.configure(base_url="https://us.example")
    domain = see(add(home), GOOD)
    mx = next(one for one in records.get_records(domain) if one.purpose == "return_path")

    def host(found: list[str], valid: str) -> str | None:
        seen = [msgspec.structs.replace(mx, valid=valid, found=found) if one.is_same_record(mx) else one
                for one in records.get_records(SendingDomain.get_by_id(domain.id))]  # fmt: skip
        transactions.write(store.apply_check, domain.id, seen)
        return store.find_return_path_host(home.account_id, domain.name)

    ours, theirs = [f"10 {mx.value}"], ["5 mail.theirs.example", f"10 {mx.value}"]
    answers = [(ours, "valid"), ([], "unknown"), ([], "unknown"), (theirs, "invalid"), ([], "unknown"), ([], "invalid"),
               ([], "unknown")]  # fmt: skip
    assert [host(*one) is not None for one in answers] == [True, True, True, False, False, False, False]


def test_what_waits_does_not_leave_from_a_domain_that_was_deleted(home: Home) -> None:
    """Unsigned and in a name that is not proven any more nothing goes out: it waits, and says why."""
    home.configure(email__transport="relay", email__relay__host="mail.us.example")
    domain = see(add(home), GOOD)
    asked = {"to": "bo@example.net", "subject": "Hi", "body": "Hi", "from_email": f"us@{domain.name}"}
    row = transactions.write(transactional.queue_message, home.account_id, read(transactional.MessageWrite, asked))
    claim = Claim._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (row.id,))[0])
    assert MessagePreparer().prepare(claim).sender == f"us@{domain.name}"
    transactions.write(store.delete, home.account_id, domain.id, Actor("user:1", None))
    with pytest.raises(SenderRejected, match="not verified"):
        MessagePreparer().prepare(claim)


def test_names_are_shown_as_their_owners_write_them() -> None:
    """The ASCII form is for DNS; what cannot be read back is shown as it is."""
    assert records.display_domain("xn--mnchen-3ya.example") == "münchen.example"
    assert records.display_domain("xn--.example") == "xn--.example"
