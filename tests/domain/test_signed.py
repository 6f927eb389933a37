"""What leaves is signed by its From domain and has a way back of its own, the same bytes however often it is made."""

import re
import time
from typing import Any

import pytest

from appliance.core import clock, crypto, validation
from appliance.core.errors import SenderRejected
from appliance.sending.domains import keys
from appliance.sending.domains.keys import KeyUnusable
from appliance.sending.messages import links, transactional
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.transactional import MessageWrite
from appliance.sending.workers.ready_queue import Renderer
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import DomainKey, SendingDomain
from tests.domain.home import Home
from tests.domain.test_domain_keys import PAIRS, domain
from tests.domain.test_feeder import relay, sending
from tests.kit import dkim as kit
from tests.kit.smtp import SmtpServer

FROM = "ana@bakery.example"


def text_of(name: str) -> list[str]:
    """Return the record of a key as DNS would."""
    return [value for place, value in map(keys.txt_record, DomainKey.select()) if place == name]


def campaign(home: Home, people: int = 3, name: str = "Spring") -> list[Claim]:
    """Send a campaign and answer its rows, dated now."""
    made = [home.contact(f"p{n}@example.org") for n in range(people)]
    home.send(home.campaign(home.list_of(*(one.id for one in made), name=name).id, name=name, from_email=FROM))
    return claims()


def claims() -> list[Claim]:
    """Return all rows in hand of a sender now."""
    now = clock.now_ms()
    return [
        Claim._make(row)._replace(first_attempt_at=now) for row in rows(f"SELECT {COLUMNS} FROM message ORDER BY id")
    ]


def letter(home: Home, **said: Any) -> Claim:
    """Post a single message and answer its row."""
    body = {"to": "ann@example.net", "subject": "s", "body": "b", "from_email": FROM, **said}
    number = transactions.write(
        lambda: transactional.queue_message(home.account_id, validation.read(MessageWrite, body))
    ).id
    return next(one for one in claims() if one.id == number)


def signed_by(claim: Claim) -> list[tuple[str, str]]:
    """Make a message, verify its signatures, and answer domain and selector of each."""
    content = MessagePreparer().prepare(claim).envelope.content
    return [(one.domain, one.tags["s"]) for one in kit.verify(content, text_of)]


def test_campaigns_and_single_messages_are_signed(home: Home) -> None:
    """Marketing and transactional mail of a verified domain, or from below it, is signed; other mail is not."""
    (key,) = transactions.write(keys.store_first_keys, domain(home), PAIRS[0])
    rows_of_campaign = campaign(home)
    for claim in (*rows_of_campaign, letter(home), letter(home, from_email="ana@news.bakery.example")):
        assert signed_by(claim) == [("bakery.example", key.selector)]
    assert not kit.signatures(MessagePreparer().prepare(letter(home, from_email="x@other.example")).envelope.content)


@pytest.mark.parametrize("sender", ["ana@bäckerei.example", "jörg@bäckerei.example", "Ana@XN--BCKEREI-5WA.example"])
def test_international_senders_are_signed(home: Home, sender: str) -> None:
    """However a domain and what stands before it are written, mail is signed under the domain's ASCII name."""
    (key,) = transactions.write(keys.store_first_keys, domain(home, "xn--bckerei-5wa.example"), PAIRS[0])
    claim = letter(home, from_email=sender)
    assert signed_by(claim) == [("xn--bckerei-5wa.example", key.selector)]
    assert MessagePreparer().prepare(claim).envelope.mail_from.endswith("@bounce.xn--bckerei-5wa.example")


def test_a_body_is_looked_through_where_it_has_to_be(home: Home) -> None:
    """Known to be plain, with double spaces in the template, and with them in one person's name: all are signed."""
    transactions.write(keys.store_first_keys, domain(home), PAIRS[0])
    names = ("Ann", "Ann  Lee", "Bo   Lee", "Ann")
    made = [home.contact(f"p{n}@example.org", first_name=name) for n, name in enumerate(names)]
    group = home.list_of(*(one.id for one in made)).id
    for body in ("<p>Hi {{ contact.first_name }}</p>", "<p>Hi   {{ contact.first_name }}</p>\n\t <b>x</b>  \n"):
        home.send(home.campaign(group, body=body, from_email=FROM))
    preparer, found = MessagePreparer(), claims()
    plain = [preparer.build(claim).is_single_spaced for claim in found]
    assert plain == [True, False, False, True, False, False, False, False]
    for claim in found:
        assert kit.verify(preparer.prepare(claim).envelope.content, text_of)


def test_a_repeat_is_signed_as_the_first_attempt(home: Home) -> None:
    """A key that follows, a setting and a domain that fails in between change no byte of a message that was dated."""
    here = domain(home)
    (first,) = transactions.write(keys.store_first_keys, here, PAIRS[0])
    home.advance(10)
    (claim, *_) = campaign(home)
    before = MessagePreparer().prepare(claim)
    home.advance(10)
    (second,) = transactions.write(keys.store_next_keys, here, PAIRS[1])
    transactions.write(keys.activate_key, second)
    assert MessagePreparer().prepare(claim) == before
    assert signed_by(claims()[0]) == [("bakery.example", second.selector)]
    transactions.write(run, "UPDATE sending_domain SET status = 'failed', failed_at = ?", (clock.now_ms(),))
    assert MessagePreparer().prepare(claim) == before and signed_by(claim) == [("bakery.example", first.selector)]


def test_many_are_signed_as_each_alone(home: Home) -> None:
    """Signed together in threads or one by one, the bytes and their order are the same."""
    transactions.write(keys.store_first_keys, domain(home), PAIRS[0])
    found = [*campaign(home, 41), letter(home), letter(home, from_email="x@other.example")]
    maker = Renderer()
    made = maker.render(found)
    maker.close()
    assert [one.claim.id for one in made] == [one.id for one in found]
    assert [one.prepared for one in made] == [MessagePreparer().prepare(claim) for claim in found]
    assert all(one.claim.body_hash for one in made)


def test_a_key_that_follows_signs_the_next_ones(home: Home) -> None:
    """A sender that is at work signs what it makes next with a key that was activated since."""
    here = domain(home)
    transactions.write(keys.store_first_keys, here, PAIRS[0])
    found, maker = campaign(home, 4), Renderer()
    maker.render(found[:2])
    home.advance(1)
    (second,) = transactions.write(keys.store_next_keys, here, PAIRS[1])
    transactions.write(keys.activate_key, second)
    (later,) = maker.render(claims()[2:3])
    maker.close()
    assert later.prepared is not None
    assert kit.verify(later.prepared.envelope.content, text_of)[0].tags["s"] == second.selector


def test_the_return_path_is_the_message_s_own_where_somebody_listens(home: Home) -> None:
    """On capture always, elsewhere while the MX record was there when last looked for: else it is the From address."""
    claim = letter(home)
    own = f"b+{crypto.sign_hex_token(links.BOUNCE, claim.id)}@bounce."

    def mail_from(provider: str, **row: Any) -> str:
        SendingDomain.delete().execute()
        if row:
            here = domain(home, row.pop("name", "bakery.example"))
            transactions.write(lambda: SendingDomain.update(**row).where(SendingDomain.id == here.id).execute())
        return MessagePreparer().prepare(claim._replace(provider=provider)).envelope.mail_from

    def mx(valid: str, name: str = "bounce.bakery.example", kind: str = "MX") -> list[dict[str, str]]:
        return [
            {"record_type": "TXT", "name": name, "valid": "valid"},
            {"record_type": kind, "name": name, "valid": valid},
        ]

    assert mail_from("capture") == f"{own}bakery.example"
    assert mail_from("relay") == mail_from("direct", dns_records=None) == FROM
    for provider in ("relay", "direct"):
        assert mail_from(provider, dns_records=mx("valid")) == f"{own}bakery.example"
        for other in (mx("invalid"), mx("unknown"), mx("valid", "bounce.other.example"), mx("valid", kind="TXT")):
            assert mail_from(provider, dns_records=other) == FROM
    assert mail_from("relay", dns_records=mx("valid"), enabled=False) == FROM
    assert mail_from("relay", dns_records=mx("valid"), name="other.example") == FROM
    claim = letter(home, from_email="ana@news.bakery.example")
    assert mail_from("relay", dns_records=mx("valid")).endswith("@bounce.bakery.example")
    assert links.read_return_path(mail_from("relay", dns_records=mx("valid")).partition("@")[0]) == claim.id


def test_nothing_leaves_in_the_name_of_a_domain_that_was_lost(home: Home) -> None:
    """A message waits while its domain has failed, on a real transport; in the built-in inbox it may be read."""
    here = domain(home)
    transactions.write(keys.store_first_keys, here, PAIRS[0])
    claim = letter(home)
    home.configure(email__transport="relay", email__relay__host="127.0.0.1")
    transactions.write(run, "UPDATE sending_domain SET status = 'failed', failed_at = ?", (clock.now_ms() - 1,))
    with pytest.raises(SenderRejected, match=r"bakery\.example is not verified as yours any more"):
        MessagePreparer().prepare(claim._replace(provider="relay"))
    assert MessagePreparer().prepare(claim)
    transactions.write(run, "UPDATE sending_domain SET status = 'verified'")
    assert MessagePreparer().prepare(claim._replace(provider="relay"))


def test_a_key_that_cannot_be_read_blames_nobody(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing leaves unsigned and no recipient's attempt is counted; once the key is back all of it leaves."""
    transactions.write(keys.store_first_keys, domain(home), PAIRS[0])
    campaign(home, 5)
    good = scalar("SELECT private_key FROM domain_key")
    transactions.write(run, "UPDATE domain_key SET private_key = zeroblob(40)")
    with pytest.raises(KeyUnusable):
        MessagePreparer().prepare(claims()[0])
    with SmtpServer() as smtp:
        relay(home, smtp.port, email__probe_after="1s")
        with sending(monkeypatch):
            _until(lambda: scalar("SELECT count(*) FROM message WHERE error_code = 'senderrefused'") == 5)
            ((words,),) = rows("SELECT DISTINCT error_text FROM message")
            assert re.match(r"the DKIM key c1-.* cannot be read: put back the secret\.key", words)
            assert rows("SELECT DISTINCT attempts, uncertain_count, skip_reason FROM message") == [(0, 0, None)]
            assert not rows("SELECT 1 FROM suppression") and not smtp.messages
            transactions.write(run, "UPDATE domain_key SET private_key = ?", (good,))
            _until(lambda: len(smtp.messages) == 5)
        assert all(kit.verify(one.raw, text_of) for one in smtp.messages)


def _until(what: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
