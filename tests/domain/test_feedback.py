"""What comes back about a message is written once, with all that follows from it, and nothing that cannot be true."""

from typing import Any

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import ledger_check, send, states, store
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    DeliveryError,
    MailUnauthenticated,
    RateLimited,
    RecipientRejected,
    Unavailable,
    Uncertain,
)
from appliance.inbound import delivery_reports
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.sending.messages import outcomes
from appliance.sending.messages.ledger import Claim, Outcome
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Campaign, Message
from tests.domain.home import Home, turn

HARD = {"smtp": 550, "enhanced": "5.1.1", "text": "550 5.1.1 no such user"}
FULL = {"smtp": 552, "enhanced": "5.2.2", "text": "552 5.2.2 over quota"}


def sent(home: Home, *addresses: str, accept: bool = True, name: str = "News") -> tuple[Campaign, list[int]]:
    """Send a campaign to these addresses; all are accepted, or the first is left in hand."""
    members = [home.contact(address).id for address in addresses or ("a@example.org",)]
    campaign = home.send(home.campaign(home.list_of(*members, name=name).id))
    ids = []
    while (claim := turn(None, True)) is not None:
        ids.append(claim.id)
        if not accept:
            break
        turn(Outcome(claim, None, None, "Hello", "us@example.com", f"{claim.id}@example.com"), False)
    return campaign, ids


def again(home: Home, address: str, error: DeliveryError | None = None) -> int:
    """Send one more campaign to one address, which is accepted or meets an error; returns the message."""
    number = scalar("SELECT count(*) FROM campaign")
    campaign = home.send(home.campaign(home.list_of(home.contact(address).id, name=f"L{number}").id))
    claim = turn(None, True)
    assert claim is not None, f"nothing of campaign {campaign.id} may go out"
    turn(Outcome(claim, error, None, "Hello", "us@example.com", f"{claim.id}@example.com"), False)
    return claim.id


def tell(message_id: int, kind: str = "bounced", source: str = "dsn", **more: Any) -> bool:
    """Hand in a fact, about the recipient of the message if nobody else is named."""
    more = {"recipient": scalar("SELECT recipient FROM message WHERE id = ?", (message_id,)) or "x@example.org"} | more
    return transactions.write(delivery_reports.record_report, DeliveryReport(message_id, kind, source, **more))  # type: ignore[arg-type]  # a test's word


def row(message_id: int) -> Message:
    """Return a message as it is stored."""
    return Message.get_by_id(message_id)


def events(message_id: int) -> list[str]:
    """Return the events of a message but its sending."""
    words = "SELECT event FROM event WHERE resource_uid = ? AND event NOT IN ('email_sent', 'opt_out') ORDER BY id"
    return [found[0] for found in rows(words, (f"message:{message_id}",))]


def suppressed() -> list[str]:
    """Return the reasons in force."""
    return [found[0] for found in rows("SELECT reason FROM suppression ORDER BY id")]


def everything() -> list[Any]:
    """Return all that a report could change."""
    tables = ("message", "event", "suppression", "consent", "channel", "contact", "campaign", "bounce", "opt_out")
    return [rows(f"SELECT * FROM {table} ORDER BY 1") for table in tables]


def test_a_hard_bounce_is_written_with_all_that_follows(home: Home) -> None:
    """One "no such recipient" ends the message as bounced, suppresses the address, counts, and is told in words."""
    campaign, [first, *_] = sent(home, "gone@example.org", "b@example.org")
    assert tell(first, **HARD, recipient="GONE@Example.org", key="dsn:1")
    found = row(first)
    assert (found.status, found.error_code, found.error_smtp, found.error_enhanced, found.error_text) == (
        "bounced", "returned", 550, "5.1.1", "550 5.1.1 no such user",
    )  # fmt: skip
    assert found.bounced_at is not None and events(first) == ["email_bounced"] and suppressed() == ["hard_bounce"]
    assert home.channel("gone@example.org").suppression == "hard_bounce"
    assert home.channel("gone@example.org").fail_count == 1
    now = store.get(home.account_id, campaign.id)
    assert (now.bounced_count, now.refused_count, now.sent_count) == (1, 0, 2)
    assert (now.stats["sent"], now.stats["bounced"], now.stats["accepted"]) == (1, 1, 2) and ledger_check.check_quickly(
        now
    ) == []
    assert fetch_one("SELECT diagnostic, source FROM suppression") == ("550 5.1.1 no such user", "dsn")


def test_a_complaint_opts_out_with_evidence(home: Home) -> None:
    """A complaint suppresses and opts the address out by the person's own act, and counts against the campaign."""
    campaign, [first] = sent(home)
    assert tell(first, "complained", "arf", text="abuse")
    channel = home.channel("a@example.org")
    assert (channel.suppression, channel.subscribed, channel.opted_out_by) == ("complaint", False, "recipient")
    assert row(first).status == "complained" and events(first) == ["email_complained"]
    assert ("suppressed", "recipient", "arf", "recipient") in home.acts("a@example.org")
    now = store.get(home.account_id, campaign.id)
    assert (now.complained_count, now.stats["complained"]) == (1, 1) and ledger_check.check_quickly(now) == []


def test_a_delivery_is_noted(home: Home) -> None:
    """A report of success makes a sent message delivered, at the moment that was told if that can be."""
    _, [first] = sent(home)
    left = row(first).sent_at
    assert tell(first, "delivered", "hook", at=left - 60_000)
    assert (row(first).status, row(first).delivered_at) == ("delivered", left) and events(first) == ["email_delivered"]


@pytest.mark.parametrize(
    ("told", "status", "names"),
    [
        (("delivered", "bounced"), "bounced", ["email_delivered", "email_bounced"]),
        (("bounced", "delivered"), "bounced", ["email_bounced"]),
        (("complained", "delivered", "bounced"), "complained", ["email_complained"]),
        (("bounced", "bounced", "soft_bounced"), "bounced", ["email_bounced"]),
        (("bounced", "complained", "complained"), "complained", ["email_bounced", "email_complained"]),
        (("delivered", "delivered"), "delivered", ["email_delivered"]),
    ],
)
def test_a_status_never_goes_back(told: tuple[str, ...], status: str, names: list[str], home: Home) -> None:
    """In whatever order reports come and however often, a message goes forward only and each verdict counts once."""
    campaign, [first] = sent(home)
    for kind in told:
        tell(first, kind, "ses")
    assert row(first).status == status and events(first) == names
    assert ledger_check.check_quickly(store.get(home.account_id, campaign.id)) == []


def test_what_cannot_be_true_changes_nothing(home: Home) -> None:
    """No such message, another recipient, never sent, a test, too late, an erased person: not a byte is written."""
    _, [first] = sent(home)
    [waiting] = [home.send(home.campaign(home.list_of(home.contact("w@example.org").id, name="W").id))]
    queued = scalar("SELECT id FROM message WHERE campaign_id = ?", (waiting.id,))
    before = everything()
    assert not tell(first + 999, **HARD)
    assert not tell(first, **HARD, recipient="other@example.org") and not tell(first, **HARD, recipient="no address")
    for source in ("dsn", "smtp", "hook", "ses", "mailgun", "postmark", "sendgrid"):
        assert not tell(first, **HARD, recipient=None, source=source), "who names nobody"
        assert not tell(first, "complained", source, recipient=None)
    assert not tell(queued, **HARD) and not tell(queued, "complained", "arf")
    assert everything() == before
    for change in ("test = 1", "test = 0, recipient_key = NULL", "recipient_key = 'a@example.org', status = 'failed'"):
        transactions.write(run, f"UPDATE message SET {change} WHERE id = ?", (first,))
        before = everything()
        assert not tell(first, **HARD) and everything() == before
    transactions.write(run, "UPDATE message SET status = 'sent' WHERE id = ?", (first,))
    home.advance(14 * 86400 + 1)
    before = everything()
    assert not tell(first, **HARD) and everything() == before
    home.advance(76 * 86400)
    assert not tell(first, "complained", "arf") and everything() == before


def test_people_complain_late(home: Home) -> None:
    """Whoever clears their inbox a month later and calls it spam is left alone from then on."""
    _, [first] = sent(home, "a@example.org")
    home.advance(60 * 86400)
    assert tell(first, "complained", "arf") and home.channel("a@example.org").suppression == "complaint"


def test_a_report_counts_once(home: Home) -> None:
    """The same report under the same name is heard once, a hundred times over; its name is forgotten in time."""
    _, [first, second] = sent(home, "a@example.org", "b@example.org")
    assert tell(first, "delivered", "ses", key="k1") and not tell(second, "delivered", "ses", key="k1")
    assert tell(second, "delivered", "postmark", key="k1"), "names belong to their source"
    assert [tell(first, **HARD, key="d") for _ in range(100)].count(True) == 1 and events(first).count(
        "email_bounced"
    ) == 1
    home.advance(101 * 86400)
    third = again(home, "c@example.org")
    assert tell(third, "delivered", "ses", key="k3") and scalar("SELECT count(*) FROM processed_notification") == 1


def test_what_is_in_hand_is_told_again_later(home: Home) -> None:
    """A report that is quicker than the note that the message left is not lost: whoever brings it is to come again."""
    _, [first] = sent(home, accept=False)
    with pytest.raises(Unavailable):
        tell(first, **HARD, key="early")
    claim = Claim._make(fetch_one(f"SELECT {', '.join(Claim._fields)} FROM message WHERE id = ?", (first,)) or ())
    turn(Outcome(claim, None, None, "Hello", "us@example.com", "1@example.com"), False)
    assert tell(first, **HARD, key="early") and row(first).status == "bounced"


def test_a_report_settles_a_doubt(home: Home) -> None:
    """What came back was accepted: a message in doubt counts as sent first, so that the books balance."""
    campaign, [first] = sent(home)
    transactions.write(
        run, "UPDATE message SET status = 'uncertain', sent_at = NULL, uncertain_count = 1 WHERE id = ?", (first,)
    )
    transactions.write(run, "UPDATE campaign SET sent_count = 0 WHERE id = ?", (campaign.id,))
    assert tell(first, **HARD)
    now = store.get(home.account_id, campaign.id)
    assert (row(first).status, now.sent_count, now.bounced_count) == ("bounced", 1, 1) and ledger_check.check_quickly(
        now
    ) == []


@pytest.mark.parametrize("kind", ["complained", "bounced"])
def test_a_report_about_what_waits_for_its_repeat_is_believed(kind: str, home: Home) -> None:
    """However long its campaign pauses, what came back arrived: it is told now, and no second copy leaves."""
    campaign, [first] = sent(home, accept=False)
    claim = Claim._make(fetch_one(f"SELECT {', '.join(Claim._fields)} FROM message WHERE id = ?", (first,)) or ())
    turn(Outcome(claim, Uncertain("the connection broke"), prepared=MessagePreparer().prepare(claim)), False)
    transactions.write(states.pause, home.account_id, campaign.id, Actor("key:1"))
    assert (row(first).status, row(first).uncertain_count) == ("queued", 1)
    assert tell(first, kind) and not tell(first, kind)
    now = store.get(home.account_id, campaign.id)
    assert (row(first).status, row(first).attempts, now.sent_count) == (kind, 1, 1) and ledger_check.check_quickly(
        now
    ) == []
    transactions.write(send.resume, home.account_id, campaign.id, Actor("key:1"))
    assert turn(None, True) is None and fetch_one("SELECT count(*) FROM retry_payload") == (0,)


def test_a_bounce_after_the_end_moves_the_sums(home: Home) -> None:
    """After a campaign is completed a bounce moves one message from sent to bounced; the identity holds."""
    campaign, [first] = sent(home)
    transactions.write(
        run, "UPDATE campaign SET phase = 'completed', status = 'completed' WHERE id = ?", (campaign.id,)
    )
    assert tell(first, **HARD)
    stats = store.get(home.account_id, campaign.id).stats
    assert (stats["sent"], stats["bounced"], stats["audience"]) == (0, 1, 1)


def refused(kind: str) -> DeliveryError:
    """Return what a server says at once where a report says the same later."""
    return {
        "hard": RecipientRejected("550 5.1.1 no such user", 550, "5.1.1"),
        "full": RecipientRejected("5.2.2 full", 552, "5.2.2"),
        "off": RecipientRejected("550 5.2.1 disabled", 550, "5.2.1"),
        "spam": RecipientRejected("550 5.7.1 spam", 550, "5.7.1"),
        "expired": Deferred("451 4.3.0 later", 451, "4.3.0"),
    }[kind]


@pytest.mark.parametrize("reported", [False, True], ids=["refused", "reported"])
@pytest.mark.parametrize(
    ("kind", "names", "reason"),
    [
        ("hard", ["email_bounced"], "hard_bounce"),
        ("off", ["email_soft_bounced", "email_bounced"], "hard_bounce"),
        ("full", ["email_soft_bounced"] * 5, "soft_bounce"),
        ("spam", ["email_failed"] * 7, None),
    ],
)
def test_refused_and_reported_are_judged_alike(
    kind: str, names: list[str], reason: str | None, reported: bool, home: Home
) -> None:
    """The same refusals come to the same events, counts and suppression, said at once or brought later."""
    found = []
    for _ in names:
        assert suppressed() == []
        error = refused(kind)
        number = again(home, "a@example.org", None if reported else error)
        if reported:
            assert tell(number, "bounced", smtp=error.smtp, enhanced=error.enhanced, text=error.text)
        found += events(number)
        assert row(number).status == ("bounced" if reported else "failed")
    assert found == names and suppressed() == ([reason] if reason else [])
    assert home.channel("a@example.org").suppression == reason
    assert home.channel("a@example.org").fail_count == len(names)
    softs = names.count("email_soft_bounced") + (1 if kind == "off" else 0)
    assert fetch_one("SELECT email_soft_bounce_count FROM contact") == (softs,)


def test_a_success_forgives_what_was_before(home: Home) -> None:
    """Only failures without a success between count, and only of the last 30 days."""
    for _ in range(4):
        tell(again(home, "a@example.org"), **FULL)
        home.advance(60)
    home.advance(86400)
    tell(again(home, "a@example.org"), "delivered", "ses")
    home.advance(60)
    for _ in range(4):
        tell(again(home, "a@example.org"), **FULL)
        home.advance(60)
    assert suppressed() == []
    home.advance(31 * 86400)
    tell(again(home, "a@example.org"), **FULL)
    assert suppressed() == [], "what is old does not count"


def test_an_acceptance_alone_is_a_success_after_two_days(home: Home) -> None:
    """A relay accepts everything: only when nothing came back for two days has a message arrived."""
    for _ in range(4):
        tell(again(home, "a@example.org"), **FULL)
        home.advance(60)
    again(home, "a@example.org")
    home.advance(3600)
    tell(again(home, "a@example.org"), **FULL)
    assert suppressed() == ["soft_bounce"]


@pytest.mark.parametrize(
    ("kind", "text", "event", "reason"),
    [
        ("bounced", "", "email_bounced", "hard_bounce"),
        ("bounced", "550 5.1.1 no such user", "email_bounced", "hard_bounce"),
        ("bounced", "mailbox is full", "email_soft_bounced", None),
        ("bounced", "552 5.3.4 message too big", "email_failed", None),
        ("bounced", "550 5.7.1 looks like spam", "email_failed", None),
        ("soft_bounced", "", "email_soft_bounced", None),
        ("soft_bounced", "550 5.1.1 no such user", "email_soft_bounced", None),
    ],
)
def test_who_judges_is_believed_where_words_say_nothing(
    kind: str, text: str, event: str, reason: str | None, home: Home
) -> None:
    """A provider's own judgement counts; what is about size, content or policy never counts against the recipient."""
    _, [first] = sent(home)
    assert tell(first, kind, "postmark", text=text)
    assert events(first) == [event] and suppressed() == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (Deferred("451 4.3.0 later", 451, "4.3.0"), "temporary"),
        (Deferred("nobody answers there", None, "4.4.1"), "temporary"),
        (Deferred("452 4.2.2 full", 452, "4.2.2"), "full"),
        (Deferred("connection lost before the message was sent"), "setup"),
        (Deferred("421 4.7.28 unusual rate", 421, "4.7.28"), "reputation"),
        (RateLimited("451 slow down", 60, 451, "4.7.1"), "setup"),
        (ConnectionFailed("no route to the relay"), "setup"),
        (ClientRejected("535 wrong password", 535), "setup"),
        (MailUnauthenticated("421 4.7.26 unauthenticated", 421, "4.7.26"), "authentication"),
        (RecipientRejected("550 5.0.0 no", 550, "5.0.0"), "refused"),
    ],
)
def test_what_was_given_up_blames_whom_it_should(error: DeliveryError, name: str) -> None:
    """A mailbox or its server that took no mail for days counts; a way out that was closed is nobody's fault."""
    assert outcomes.classify_error(error).name == name
