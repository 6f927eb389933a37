"""Delivery reports: each is recorded once with all its effects, and impossible ones change nothing."""

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
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Campaign, Message
from tests.domain.home import Home, record_and_claim

HARD = {"smtp": 550, "enhanced": "5.1.1", "text": "550 5.1.1 no such user"}
FULL = {"smtp": 552, "enhanced": "5.2.2", "text": "552 5.2.2 over quota"}


def send_campaign(home: Home, *addresses: str, accept: bool = True, name: str = "News") -> tuple[Campaign, list[int]]:
    """Send a campaign to these addresses; all messages are accepted, or the first is left claimed."""
    contact_ids = [home.contact(address).id for address in addresses or ("a@example.org",)]
    campaign = home.send(home.campaign(home.list_of(*contact_ids, name=name).id))
    ids = []
    while (row := record_and_claim(None, True)) is not None:
        ids.append(row.id)
        if not accept:
            break
        record_and_claim(Outcome(row, None, None, "Hello", "us@example.com", f"{row.id}@example.com"), False)
    return campaign, ids


def send_another(home: Home, address: str, error: DeliveryError | None = None) -> int:
    """Send another campaign to one address, with success or an error, and return the message id."""
    number = scalar("SELECT count(*) FROM campaign")
    campaign = home.send(home.campaign(home.list_of(home.contact(address).id, name=f"L{number}").id))
    row = record_and_claim(None, True)
    assert row is not None, f"nothing of campaign {campaign.id} may go out"
    record_and_claim(Outcome(row, error, None, "Hello", "us@example.com", f"{row.id}@example.com"), False)
    return row.id


def report(message_id: int, kind: str = "bounced", source: str = "dsn", **fields: Any) -> bool:
    """Record a delivery report, by default about the recipient of the message."""
    fields = {
        "recipient": scalar("SELECT recipient FROM message WHERE id = ?", (message_id,)) or "x@example.org"
    } | fields
    return transactions.write(delivery_reports.record_report, DeliveryReport(message_id, kind, source, **fields))  # type: ignore[arg-type]  # `kind` is any str here


def get_message(message_id: int) -> Message:
    """Return a message as it is stored."""
    return Message.get_by_id(message_id)


def events_of(message_id: int) -> list[str]:
    """Return the names of the message's events, without `email_sent` and `opt_out`."""
    query = "SELECT event FROM event WHERE resource_uid = ? AND event NOT IN ('email_sent', 'opt_out') ORDER BY id"
    return [event_row[0] for event_row in rows(query, (f"message:{message_id}",))]


def suppression_reasons() -> list[str]:
    """Return the reasons of all suppressions."""
    return [suppression_row[0] for suppression_row in rows("SELECT reason FROM suppression ORDER BY id")]


def snapshot_tables() -> list[Any]:
    """Return all rows that a report could change."""
    tables = ("message", "event", "suppression", "consent", "channel", "contact", "campaign", "bounce", "opt_out")
    return [rows(f"SELECT * FROM {table} ORDER BY 1") for table in tables]


def test_a_hard_bounce_is_recorded_with_all_its_effects(home: Home) -> None:
    """The message is bounced, the address suppressed, counters are raised, and the server's reply is kept."""
    campaign, [first, *_] = send_campaign(home, "gone@example.org", "b@example.org")
    assert report(first, **HARD, recipient="GONE@Example.org", key="dsn:1")
    message = get_message(first)
    assert (message.status, message.error_code, message.error_smtp, message.error_enhanced, message.error_text) == (
        "bounced", "returned", 550, "5.1.1", "550 5.1.1 no such user",
    )  # fmt: skip
    assert (
        message.bounced_at is not None
        and events_of(first) == ["email_bounced"]
        and suppression_reasons() == ["hard_bounce"]
    )
    assert home.channel("gone@example.org").suppression == "hard_bounce"
    assert home.channel("gone@example.org").fail_count == 1
    updated = store.get(home.account_id, campaign.id)
    assert (updated.bounced_count, updated.refused_count, updated.sent_count) == (1, 0, 2)
    assert (updated.stats["sent"], updated.stats["bounced"], updated.stats["accepted"]) == (
        1,
        1,
        2,
    ) and ledger_check.check_quickly(updated) == []
    assert fetch_one("SELECT diagnostic, source FROM suppression") == ("550 5.1.1 no such user", "dsn")


def test_a_complaint_opts_out_with_evidence(home: Home) -> None:
    """A complaint suppresses and opts out the address as its recipient, and counts for the campaign."""
    campaign, [first] = send_campaign(home)
    assert report(first, "complained", "arf", text="abuse")
    channel = home.channel("a@example.org")
    assert (channel.suppression, channel.subscribed, channel.opted_out_by) == ("complaint", False, "recipient")
    assert get_message(first).status == "complained" and events_of(first) == ["email_complained"]
    assert ("suppressed", "recipient", "arf", "recipient") in home.consent_rows("a@example.org")
    updated = store.get(home.account_id, campaign.id)
    assert (updated.complained_count, updated.stats["complained"]) == (1, 1) and ledger_check.check_quickly(
        updated
    ) == []


def test_a_delivery_report_marks_the_message_delivered(home: Home) -> None:
    """`delivered_at` is the reported time, but not before the message was sent."""
    _, [first] = send_campaign(home)
    sent_at = get_message(first).sent_at
    assert report(first, "delivered", "hook", at=sent_at - 60_000)
    assert (get_message(first).status, get_message(first).delivered_at) == ("delivered", sent_at) and events_of(
        first
    ) == ["email_delivered"]


@pytest.mark.parametrize(
    ("kinds", "status", "names"),
    [
        (("delivered", "bounced"), "bounced", ["email_delivered", "email_bounced"]),
        (("bounced", "delivered"), "bounced", ["email_bounced"]),
        (("complained", "delivered", "bounced"), "complained", ["email_complained"]),
        (("bounced", "bounced", "soft_bounced"), "bounced", ["email_bounced"]),
        (("bounced", "complained", "complained"), "complained", ["email_bounced", "email_complained"]),
        (("delivered", "delivered"), "delivered", ["email_delivered"]),
    ],
)
def test_a_status_never_goes_back(kinds: tuple[str, ...], status: str, names: list[str], home: Home) -> None:
    """In any order of reports the status only moves forward, and each kind of event is recorded once."""
    campaign, [first] = send_campaign(home)
    for kind in kinds:
        report(first, kind, "ses")
    assert get_message(first).status == status and events_of(first) == names
    assert ledger_check.check_quickly(store.get(home.account_id, campaign.id)) == []


def test_impossible_reports_change_nothing(home: Home) -> None:
    """Unknown messages, other recipients, unsent, test, erased or too old messages: nothing is written."""
    _, [first] = send_campaign(home)
    [unsent_campaign] = [home.send(home.campaign(home.list_of(home.contact("w@example.org").id, name="W").id))]
    queued_id = scalar("SELECT id FROM message WHERE campaign_id = ?", (unsent_campaign.id,))
    before = snapshot_tables()
    assert not report(first + 999, **HARD)
    assert not report(first, **HARD, recipient="other@example.org") and not report(
        first, **HARD, recipient="no address"
    )
    for source in ("dsn", "smtp", "hook", "ses", "mailgun", "postmark", "sendgrid"):
        assert not report(first, **HARD, recipient=None, source=source), "who names nobody"
        assert not report(first, "complained", source, recipient=None)
    assert not report(queued_id, **HARD) and not report(queued_id, "complained", "arf")
    assert snapshot_tables() == before
    for change in ("test = 1", "test = 0, recipient_key = NULL", "recipient_key = 'a@example.org', status = 'failed'"):
        transactions.write(run, f"UPDATE message SET {change} WHERE id = ?", (first,))
        before = snapshot_tables()
        assert not report(first, **HARD) and snapshot_tables() == before
    transactions.write(run, "UPDATE message SET status = 'sent' WHERE id = ?", (first,))
    home.advance(14 * 86400 + 1)
    before = snapshot_tables()
    assert not report(first, **HARD) and snapshot_tables() == before
    home.advance(76 * 86400)
    assert not report(first, "complained", "arf") and snapshot_tables() == before


def test_a_complaint_after_60_days_counts(home: Home) -> None:
    """A complaint 60 days after sending suppresses the address."""
    _, [first] = send_campaign(home, "a@example.org")
    home.advance(60 * 86400)
    assert report(first, "complained", "arf") and home.channel("a@example.org").suppression == "complaint"


def test_a_report_with_a_known_key_is_ignored(home: Home) -> None:
    """A key counts once for each source, and is deleted after some time."""
    _, [first, second] = send_campaign(home, "a@example.org", "b@example.org")
    assert report(first, "delivered", "ses", key="k1") and not report(second, "delivered", "ses", key="k1")
    assert report(second, "delivered", "postmark", key="k1"), "names belong to their source"
    assert [report(first, **HARD, key="d") for _ in range(100)].count(True) == 1 and events_of(first).count(
        "email_bounced"
    ) == 1
    home.advance(101 * 86400)
    third = send_another(home, "c@example.org")
    assert report(third, "delivered", "ses", key="k3") and scalar("SELECT count(*) FROM processed_notification") == 1


def test_a_report_about_a_claimed_message_is_deferred(home: Home) -> None:
    """A report that arrives before the outcome is recorded raises Unavailable, and is accepted later."""
    _, [first] = send_campaign(home, accept=False)
    with pytest.raises(Unavailable):
        report(first, **HARD, key="early")
    row = LedgerRow._make(fetch_one(f"SELECT {', '.join(LedgerRow._fields)} FROM message WHERE id = ?", (first,)) or ())
    record_and_claim(Outcome(row, None, None, "Hello", "us@example.com", "1@example.com"), False)
    assert report(first, **HARD, key="early") and get_message(first).status == "bounced"


def test_a_bounce_of_an_uncertain_message_counts_it_as_sent(home: Home) -> None:
    """A bounced message in doubt is counted as sent first, so that the ledger stays consistent."""
    campaign, [first] = send_campaign(home)
    transactions.write(
        run, "UPDATE message SET status = 'uncertain', sent_at = NULL, uncertain_count = 1 WHERE id = ?", (first,)
    )
    transactions.write(run, "UPDATE campaign SET sent_count = 0 WHERE id = ?", (campaign.id,))
    assert report(first, **HARD)
    updated = store.get(home.account_id, campaign.id)
    assert (get_message(first).status, updated.sent_count, updated.bounced_count) == (
        "bounced",
        1,
        1,
    ) and ledger_check.check_quickly(updated) == []


@pytest.mark.parametrize("kind", ["complained", "bounced"])
def test_a_report_ends_the_retry_of_an_uncertain_message(kind: str, home: Home) -> None:
    """A report about an uncertain message that waits for its retry is recorded, and no second copy is sent."""
    campaign, [first] = send_campaign(home, accept=False)
    row = LedgerRow._make(fetch_one(f"SELECT {', '.join(LedgerRow._fields)} FROM message WHERE id = ?", (first,)) or ())
    record_and_claim(Outcome(row, Uncertain("the connection broke"), prepared=MessagePreparer().prepare(row)), False)
    transactions.write(states.pause, home.account_id, campaign.id, Actor("key:1"))
    assert (get_message(first).status, get_message(first).uncertain_count) == ("queued", 1)
    assert report(first, kind) and not report(first, kind)
    updated = store.get(home.account_id, campaign.id)
    assert (get_message(first).status, get_message(first).attempts, updated.sent_count) == (
        kind,
        1,
        1,
    ) and ledger_check.check_quickly(updated) == []
    transactions.write(send.resume, home.account_id, campaign.id, Actor("key:1"))
    assert record_and_claim(None, True) is None and fetch_one("SELECT count(*) FROM retry_payload") == (0,)


@pytest.mark.parametrize("kind", ["complained", "bounced"])
def test_a_report_ends_the_retry_after_a_temporary_rejection(kind: str, home: Home) -> None:
    """A complaint or hard bounce shows that a rejected message arrived: no retry and no other message follows."""
    codes = HARD if kind == "bounced" else {}
    campaign, [first] = send_campaign(home, accept=False)
    row = LedgerRow._make(fetch_one(f"SELECT {', '.join(LedgerRow._fields)} FROM message WHERE id = ?", (first,)) or ())
    record_and_claim(Outcome(row, Deferred("451 4.3.0 try again later", 451, "4.3.0")), False)
    home.send(home.campaign(home.list_of(home.contact("a@example.org").id, name="Second").id))
    assert (get_message(first).status, get_message(first).attempts) == ("queued", 1)
    assert not report(first, "delivered") and not report(first, "soft_bounced", **FULL)
    assert report(first, kind, **codes) and not report(first, kind, **codes)
    updated = store.get(home.account_id, campaign.id)
    assert (get_message(first).status, get_message(first).attempts, updated.sent_count) == (kind, 1, 1)
    assert ledger_check.check_quickly(updated) == []
    assert suppression_reasons() == ["complaint" if kind == "complained" else "hard_bounce"]
    home.advance(600)
    assert record_and_claim(None, True) is None


@pytest.mark.parametrize("end", ["failed", "cancelled", "skipped"])
def test_a_complaint_about_a_rejected_message_counts(end: str, home: Home) -> None:
    """Who complains has got the message, although its server rejected it and it was never repeated."""
    campaign, [first] = send_campaign(home, accept=False)
    row = LedgerRow._make(fetch_one(f"SELECT {', '.join(LedgerRow._fields)} FROM message WHERE id = ?", (first,)) or ())
    error = (
        RecipientRejected("554 5.7.1 refused", 554, "5.7.1") if end == "failed" else Deferred("451 4.3.0 later", 451)
    )
    record_and_claim(Outcome(row, error), False)
    if end == "cancelled":
        transactions.write(states.cancel, home.account_id, campaign.id, Actor("key:1"))
    elif end == "skipped":
        home.opt_out("a@example.org")
        home.advance(600)
        assert record_and_claim(None, True) is None
    assert get_message(first).status == end and suppression_reasons() == []
    assert not report(first, **HARD)
    assert report(first, "complained", "arf") and not report(first, "complained", "arf")
    updated = store.get(home.account_id, campaign.id)
    assert (get_message(first).status, get_message(first).skip_reason) == ("complained", None)
    assert (updated.sent_count, updated.complained_count, suppression_reasons()) == (1, 1, ["complaint"])
    assert ledger_check.check_quickly(updated) == []


def test_a_bounce_after_completion_updates_the_stats(home: Home) -> None:
    """A bounce after the campaign is completed moves one message from sent to bounced."""
    campaign, [first] = send_campaign(home)
    transactions.write(
        run, "UPDATE campaign SET phase = 'completed', status = 'completed' WHERE id = ?", (campaign.id,)
    )
    assert report(first, **HARD)
    stats = store.get(home.account_id, campaign.id).stats
    assert (stats["sent"], stats["bounced"], stats["audience"]) == (0, 1, 1)


def rejection(kind: str) -> DeliveryError:
    """Return the error of an immediate rejection for a kind of reply."""
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
def test_rejections_and_reports_have_the_same_effects(
    kind: str, names: list[str], reason: str | None, reported: bool, home: Home
) -> None:
    """The same replies give the same events, counters and suppression, at once or in a later report."""
    names_found = []
    for _ in names:
        assert suppression_reasons() == []
        error = rejection(kind)
        number = send_another(home, "a@example.org", None if reported else error)
        if reported:
            assert report(number, "bounced", smtp=error.smtp, enhanced=error.enhanced, text=error.text)
        names_found += events_of(number)
        assert get_message(number).status == ("bounced" if reported else "failed")
    assert names_found == names and suppression_reasons() == ([reason] if reason else [])
    assert home.channel("a@example.org").suppression == reason
    assert home.channel("a@example.org").fail_count == len(names)
    expected_soft_bounces = names.count("email_soft_bounced") + (1 if kind == "off" else 0)
    assert fetch_one("SELECT email_soft_bounce_count FROM contact") == (expected_soft_bounces,)


def test_a_delivery_resets_earlier_soft_bounces(home: Home) -> None:
    """Only soft bounces since the last delivery and within 30 days count."""
    for _ in range(4):
        report(send_another(home, "a@example.org"), **FULL)
        home.advance(60)
    home.advance(86400)
    report(send_another(home, "a@example.org"), "delivered", "ses")
    home.advance(60)
    for _ in range(4):
        report(send_another(home, "a@example.org"), **FULL)
        home.advance(60)
    assert suppression_reasons() == []
    home.advance(31 * 86400)
    report(send_another(home, "a@example.org"), **FULL)
    assert suppression_reasons() == [], "what is old does not count"


def test_a_recent_acceptance_does_not_reset_soft_bounces(home: Home) -> None:
    """An accepted message does not reset soft bounces within the first two days."""
    for _ in range(4):
        report(send_another(home, "a@example.org"), **FULL)
        home.advance(60)
    send_another(home, "a@example.org")
    home.advance(3600)
    report(send_another(home, "a@example.org"), **FULL)
    assert suppression_reasons() == ["soft_bounce"]


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
def test_a_providers_classification_is_used(kind: str, text: str, event: str, reason: str | None, home: Home) -> None:
    """A provider's classification counts, but size, content and policy never count against the recipient."""
    _, [first] = send_campaign(home)
    assert report(first, kind, "postmark", text=text)
    assert events_of(first) == [event] and suppression_reasons() == ([reason] if reason else [])


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
def test_classify_error_of_an_expired_message(error: DeliveryError, name: str) -> None:
    """Failures of the mailbox or its server count against the recipient; failures of our own setup do not."""
    assert outcomes.classify_error(error).name == name
