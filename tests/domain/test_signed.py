"""DKIM signatures and return paths of outgoing mail: same bytes however often a message is prepared."""

import re
import time
from typing import Any

import pytest

from appliance.core import clock, crypto, validation
from appliance.core.errors import SenderRejected
from appliance.sending.domains import keys
from appliance.sending.domains.keys import KeyUnusable
from appliance.sending.messages import links, transactional
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.transactional import MessageWrite
from appliance.sending.workers.renderer import Renderer
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import DomainKey, SendingDomain
from tests.domain.home import Home
from tests.domain.test_domain_keys import PAIRS, create_domain
from tests.domain.test_render_ahead import run_sender, use_relay
from tests.domain.test_renderer import render_all
from tests.kit import dkim as kit
from tests.kit.smtp import SmtpServer

FROM = "ana@bakery.example"


def lookup_txt(name: str) -> list[str]:
    """Return the TXT records of a key, as DNS would."""
    return [value for key_name, value in map(keys.txt_record, DomainKey.select()) if key_name == name]


def send_campaign(home: Home, contact_count: int = 3, name: str = "Spring") -> list[LedgerRow]:
    """Send a campaign and return its ledger rows."""
    contacts = [home.contact(f"p{number}@example.org") for number in range(contact_count)]
    home.send(
        home.campaign(home.list_of(*(contact.id for contact in contacts), name=name).id, name=name, from_email=FROM)
    )
    return fetch_ledger_rows()


def fetch_ledger_rows() -> list[LedgerRow]:
    """Return the ledger rows of all messages, attempted first now."""
    now = clock.now_ms()
    return [
        LedgerRow._make(row)._replace(first_attempt_at=now)
        for row in rows(f"SELECT {COLUMNS} FROM message ORDER BY id")
    ]


def queue_single_message(home: Home, **fields: Any) -> LedgerRow:
    """Queue a transactional message and return its ledger row."""
    body = {"to": "ann@example.net", "subject": "s", "body": "b", "from_email": FROM, **fields}
    message_id = transactions.write(
        lambda: transactional.queue_message(home.account_id, validation.read(MessageWrite, body))
    ).id
    return next(row for row in fetch_ledger_rows() if row.id == message_id)


def verify_signatures(row: LedgerRow) -> list[tuple[str, str]]:
    """Prepare a message, verify its signatures, and return (domain, selector) of each."""
    content = MessagePreparer().prepare(row).envelope.content
    return [(signature.domain, signature.tags["s"]) for signature in kit.verify(content, lookup_txt)]


def test_mail_of_a_verified_domain_is_signed(home: Home) -> None:
    """Marketing and transactional mail from the domain or a subdomain is signed, other mail is not."""
    (key,) = transactions.write(keys.store_first_keys, create_domain(home), PAIRS[0])
    campaign_rows = send_campaign(home)
    for row in (
        *campaign_rows,
        queue_single_message(home),
        queue_single_message(home, from_email="ana@news.bakery.example"),
    ):
        assert verify_signatures(row) == [("bakery.example", key.selector)]
    assert not kit.signatures(
        MessagePreparer().prepare(queue_single_message(home, from_email="x@other.example")).envelope.content
    )


@pytest.mark.parametrize("sender", ["ana@bäckerei.example", "jörg@bäckerei.example", "Ana@XN--BCKEREI-5WA.example"])
def test_international_senders_are_signed(home: Home, sender: str) -> None:
    """In whatever form domain and local part are written, mail is signed under the domain's ASCII name."""
    (key,) = transactions.write(keys.store_first_keys, create_domain(home, "xn--bckerei-5wa.example"), PAIRS[0])
    row = queue_single_message(home, from_email=sender)
    assert verify_signatures(row) == [("xn--bckerei-5wa.example", key.selector)]
    assert MessagePreparer().prepare(row).envelope.mail_from.endswith("@bounce.xn--bckerei-5wa.example")


def test_bodies_with_repeated_spaces_are_signed(home: Home) -> None:
    """Repeated spaces in the template or in a value need canonicalization; all signatures are valid."""
    transactions.write(keys.store_first_keys, create_domain(home), PAIRS[0])
    names = ("Ann", "Ann  Lee", "Bo   Lee", "Ann")
    contacts = [home.contact(f"p{number}@example.org", first_name=name) for number, name in enumerate(names)]
    list_id = home.list_of(*(contact.id for contact in contacts)).id
    for body in ("<p>Hi {{ contact.first_name }}</p>", "<p>Hi   {{ contact.first_name }}</p>\n\t <b>x</b>  \n"):
        home.send(home.campaign(list_id, body=body, from_email=FROM))
    preparer, ledger_rows = MessagePreparer(), fetch_ledger_rows()
    single_spaced = [preparer.build(row).is_single_spaced for row in ledger_rows]
    assert single_spaced == [True, False, False, True, False, False, False, False]
    for row in ledger_rows:
        assert kit.verify(preparer.prepare(row).envelope.content, lookup_txt)


def test_a_retried_message_has_the_same_signature(home: Home) -> None:
    """A new key or a failed domain does not change a message whose first attempt was before."""
    sending_domain = create_domain(home)
    (first_key,) = transactions.write(keys.store_first_keys, sending_domain, PAIRS[0])
    home.advance(10)
    (row, *_) = send_campaign(home)
    original = MessagePreparer().prepare(row)
    home.advance(10)
    (second_key,) = transactions.write(keys.store_next_keys, sending_domain, PAIRS[1])
    transactions.write(keys.activate_key, second_key)
    assert MessagePreparer().prepare(row) == original
    assert verify_signatures(fetch_ledger_rows()[0]) == [("bakery.example", second_key.selector)]
    transactions.write(run, "UPDATE sending_domain SET status = 'failed', failed_at = ?", (clock.now_ms(),))
    assert MessagePreparer().prepare(row) == original and verify_signatures(row) == [
        ("bakery.example", first_key.selector)
    ]


def test_batch_signing_equals_single_signing(home: Home) -> None:
    """Messages rendered together are in order and have the same bytes as single ones."""
    transactions.write(keys.store_first_keys, create_domain(home), PAIRS[0])
    ledger_rows = [
        *send_campaign(home, 41),
        queue_single_message(home),
        queue_single_message(home, from_email="x@other.example"),
    ]
    renderer = Renderer()
    rendered = render_all(renderer, ledger_rows)
    renderer.close()
    assert [message.row.id for message in rendered] == [row.id for row in ledger_rows]
    assert [message.prepared for message in rendered] == [MessagePreparer().prepare(row) for row in ledger_rows]
    assert all(message.row.body_hash for message in rendered)


def test_a_new_key_signs_later_messages(home: Home) -> None:
    """A renderer that is in use signs further messages with a key activated since."""
    sending_domain = create_domain(home)
    transactions.write(keys.store_first_keys, sending_domain, PAIRS[0])
    ledger_rows, renderer = send_campaign(home, 4), Renderer()
    render_all(renderer, ledger_rows[:2])
    home.advance(1)
    (second_key,) = transactions.write(keys.store_next_keys, sending_domain, PAIRS[1])
    transactions.write(keys.activate_key, second_key)
    (later_message,) = render_all(renderer, fetch_ledger_rows()[2:3])
    renderer.close()
    assert later_message.prepared is not None
    assert kit.verify(later_message.prepared.envelope.content, lookup_txt)[0].tags["s"] == second_key.selector


def test_the_return_path_is_signed_if_bounces_are_received(home: Home) -> None:
    """The return path is signed with capture or a valid MX record of the domain; otherwise it is the From address."""
    ledger_row = queue_single_message(home)
    signed_prefix = f"b+{crypto.sign_hex_token(links.BOUNCE, ledger_row.id)}@bounce."

    def mail_from(provider: str, **row: Any) -> str:
        SendingDomain.delete().execute()
        if row:
            sending_domain = create_domain(home, row.pop("name", "bakery.example"))
            transactions.write(
                lambda: SendingDomain.update(**row).where(SendingDomain.id == sending_domain.id).execute()
            )
        return MessagePreparer().prepare(ledger_row._replace(provider=provider)).envelope.mail_from

    def build_dns_records(valid: str, name: str = "bounce.bakery.example", kind: str = "MX") -> list[dict[str, str]]:
        return [
            {"record_type": "TXT", "name": name, "valid": "valid"},
            {"record_type": kind, "name": name, "valid": valid},
        ]

    assert mail_from("capture") == f"{signed_prefix}bakery.example"
    assert mail_from("relay") == mail_from("direct", dns_records=None) == FROM
    for provider in ("relay", "direct"):
        assert mail_from(provider, dns_records=build_dns_records("valid")) == f"{signed_prefix}bakery.example"
        for dns_records in (
            build_dns_records("invalid"),
            build_dns_records("unknown"),
            build_dns_records("valid", "bounce.other.example"),
            build_dns_records("valid", kind="TXT"),
        ):
            assert mail_from(provider, dns_records=dns_records) == FROM
    assert mail_from("relay", dns_records=build_dns_records("valid"), enabled=False) == FROM
    assert mail_from("relay", dns_records=build_dns_records("valid"), name="other.example") == FROM
    ledger_row = queue_single_message(home, from_email="ana@news.bakery.example")
    assert mail_from("relay", dns_records=build_dns_records("valid")).endswith("@bounce.bakery.example")
    assert (
        links.read_return_path(mail_from("relay", dns_records=build_dns_records("valid")).partition("@")[0])
        == ledger_row.id
    )


def test_mail_of_a_failed_domain_is_not_sent(home: Home) -> None:
    """A relay does not get the message until the domain is verified again; the capture inbox does."""
    sending_domain = create_domain(home)
    transactions.write(keys.store_first_keys, sending_domain, PAIRS[0])
    row = queue_single_message(home)
    home.configure(email__transport="relay", email__relay__host="127.0.0.1")
    transactions.write(run, "UPDATE sending_domain SET status = 'failed', failed_at = ?", (clock.now_ms() - 1,))
    with pytest.raises(SenderRejected, match=r"bakery\.example is no longer verified"):
        MessagePreparer().prepare(row._replace(provider="relay"))
    assert MessagePreparer().prepare(row)
    transactions.write(run, "UPDATE sending_domain SET status = 'verified'")
    assert MessagePreparer().prepare(row._replace(provider="relay"))


def test_an_unreadable_key_costs_no_attempt(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are not sent unsigned and no attempt is counted; once the key is back they are sent."""
    transactions.write(keys.store_first_keys, create_domain(home), PAIRS[0])
    send_campaign(home, 5)
    private_key = scalar("SELECT private_key FROM domain_key")
    transactions.write(run, "UPDATE domain_key SET private_key = zeroblob(40)")
    with pytest.raises(KeyUnusable):
        MessagePreparer().prepare(fetch_ledger_rows()[0])
    with SmtpServer() as smtp:
        use_relay(home, smtp.port, email__probe_after="1s")
        with run_sender(monkeypatch):
            _wait_until(lambda: scalar("SELECT count(*) FROM message WHERE error_code = 'sender_rejected'") == 5)
            ((error_text,),) = rows("SELECT DISTINCT error_text FROM message")
            assert re.match(r"the DKIM key c1-.* cannot be read: put back the secret\.key", error_text)
            assert rows("SELECT DISTINCT attempts, uncertain_count, skip_reason FROM message") == [(0, 0, None)]
            assert not rows("SELECT 1 FROM suppression") and not smtp.messages
            transactions.write(run, "UPDATE domain_key SET private_key = ?", (private_key,))
            _wait_until(lambda: len(smtp.messages) == 5)
        assert all(kit.verify(message.raw, lookup_txt) for message in smtp.messages)


def _wait_until(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)
