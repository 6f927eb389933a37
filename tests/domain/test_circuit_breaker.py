"""The circuit breaker: repeated rejections pause a campaign or provider, and the pause is not lost."""

import asyncio
import time

import pytest
from peewee import IntegrityError

from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    DeliveryError,
    MailUnauthenticated,
    Postponed,
    RateLimited,
    RecipientRejected,
    SenderRejected,
    Uncertain,
)
from appliance.jobs import Jobs
from appliance.sending.delivery import bounce_classes
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.workers.circuit_breaker import MAX_REFUSALS, CircuitBreaker, StopSwitch
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.sending.workers.email_sender import EmailSender
from appliance.sending.workers.outcome_writer import OutcomeWriter
from appliance.sending.workers.rate_limits import ALL
from appliance.sending.workers.ready_queue import ReadyQueue
from appliance.sending.workers.renderer import RenderedMessage
from appliance.sending.workers.sender import WorkerContext
from appliance.sending.workers.smtp_worker import SmtpWorker
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home
from tests.domain.test_queue_reader import send_campaign
from tests.domain.test_render_ahead import use_relay
from tests.domain.test_transport_choice import build_row
from tests.kit.smtp import SmtpServer


def create_context(breaker: CircuitBreaker) -> WorkerContext[EmailRateLimits]:
    """Return what a worker of email needs; call it on an event loop."""
    limits, stop_switch = EmailRateLimits(config.current().email), StopSwitch()
    ready_queue = ReadyQueue(breaker, limits, 8, stop_switch)
    return WorkerContext(1, breaker, limits, stop_switch, ready_queue, OutcomeWriter("p", 1))


@pytest.mark.parametrize("scope", ["campaign", "provider"])
def test_a_pause_that_failed_to_save_is_retried(scope: str, home: Home) -> None:
    """While the pause cannot be written the campaign is held; later it is paused, and nothing stays held."""
    campaign_id = send_campaign(home, "ana@example.org")
    row, jobs = QueueReader().fetch_candidates(1)[0], Jobs("process")
    breaker = jobs.email_sender.breaker
    for _ in range(MAX_REFUSALS):
        if scope == "campaign":
            breaker.record_answer(row, SenderRejected("550 not from you", 550))
        else:
            breaker.handle_connection_failure(row.provider, ClientRejected("535 wrong password", 535))
    transactions.write(
        run,
        "CREATE TRIGGER full BEFORE UPDATE ON campaign WHEN new.phase = 'paused' "
        "BEGIN SELECT raise(ABORT, 'no room'); END",
    )
    with pytest.raises(IntegrityError):
        jobs.advance_campaigns()
    assert rows("SELECT phase FROM campaign") == [("sending",)]
    assert breaker.get_held_campaigns() == ((campaign_id,) if scope == "campaign" else ())
    transactions.write(run, "DROP TRIGGER full")
    jobs.advance_campaigns()
    assert rows("SELECT phase, pause_reason FROM campaign") == [("paused", "transport")]
    assert (
        breaker.get_held_campaigns() == ()
        and not breaker.get_pause_request().campaigns
        and not breaker.get_pause_request().providers
    )


def test_each_paused_campaign_has_its_own_reason(home: Home) -> None:
    """A reply to one campaign's message, which may name its recipient, is stored with no other campaign."""
    for number in range(3):
        send_campaign(home, *(f"p{index}.{number}@example.org" for index in range(3)), name=f"Spring {number}")
    by_campaign: dict[int, list[LedgerRow]] = {}
    for row in QueueReader().fetch_candidates(9):
        by_campaign.setdefault(row.campaign_id or 0, []).append(row)
    (first_id, first), (second_id, second), (_, third) = by_campaign.items()
    jobs = Jobs("process")
    breaker = jobs.email_sender.breaker
    for row in first:
        breaker.record_answer(row, MailUnauthenticated(f"550 5.7.27 <{row.recipient}> SPF", 550, "5.7.27"))
    for _ in range(MAX_REFUSALS):
        breaker.record_answer(second[0], SenderRejected(f"550 no mail for <{second[0].recipient}>", 550))
    breaker.record_answer(third[0], SenderRejected(f"550 no mail for <{third[0].recipient}>", 550))
    breaker.handle_connection_failure("capture", ConnectionFailed("no route"))
    jobs.advance_campaigns()
    details = dict(rows("SELECT id, json_extract(data, '$.pause_detail') FROM campaign WHERE phase = 'paused'"))
    assert details.keys() == {first_id, second_id}
    assert first[-1].recipient in details[first_id] and details[second_id].endswith(f"<{second[0].recipient}>")


def test_three_unauthenticated_messages_pause_the_campaign(home: Home) -> None:
    """The third message rejected for SPF pauses the campaign, with the DNS record to add, despite other successes."""
    send_campaign(home, *(f"p{number}@example.org" for number in range(5)))
    ledger_rows, jobs = QueueReader().fetch_candidates(5), Jobs("process")
    breaker = jobs.email_sender.breaker
    unauthenticated = MailUnauthenticated("550 5.7.27 SPF does not pass", 550, "5.7.27")
    for row in (ledger_rows[0], ledger_rows[0], ledger_rows[0], ledger_rows[1]):
        breaker.record_answer(row, unauthenticated)
        breaker.record_answer(ledger_rows[3], None)
    jobs.advance_campaigns()
    assert rows("SELECT phase FROM campaign") == [("sending",)], "two messages may be two servers wrong about us"
    breaker.record_answer(ledger_rows[2], unauthenticated)
    jobs.advance_campaigns()
    assert rows("SELECT phase, pause_reason FROM campaign") == [("paused", "transport")]
    [(pause_detail,)] = rows("SELECT json_extract(data, '$.pause_detail') FROM campaign")
    assert "5.7.27" in pause_detail and "SPF record" in pause_detail and breaker.get_held_campaigns() == ()


def test_consecutive_blocklist_rejections_pause_the_campaign(home: Home) -> None:
    """MAX_REFUSALS in a row at one provider pause the campaign; other replies do not count."""
    send_campaign(home, *(f"p{number}@gmail.com" for number in range(45)), "other@example.org")
    ledger_rows, jobs = QueueReader().fetch_candidates(100), Jobs("process")
    gmail_rows = [row for row in ledger_rows if row.recipient.endswith("@gmail.com")]
    (other,) = [row for row in ledger_rows if row not in gmail_rows]
    breaker = jobs.email_sender.breaker
    blocklisted = RecipientRejected("554 5.7.1 blocked using zen.spamhaus.org", 554, "5.7.1")
    for row in gmail_rows[: MAX_REFUSALS - 1]:
        breaker.record_answer(row, blocklisted)
        breaker.record_answer(other, None)
    breaker.record_answer(gmail_rows[20], None)
    for row in gmail_rows[21 : 21 + MAX_REFUSALS - 1]:
        breaker.record_answer(row, blocklisted)
        breaker.record_answer(row, RecipientRejected("550 5.1.1 no such user", 550, "5.1.1"))
    assert breaker.get_held_campaigns() == ()
    breaker.record_answer(gmail_rows[-1], blocklisted)
    jobs.advance_campaigns()
    assert rows("SELECT phase, pause_reason FROM campaign") == [("paused", "transport")]
    [(pause_detail,)] = rows("SELECT json_extract(data, '$.pause_detail') FROM campaign")
    assert "spamhaus" in pause_detail and bounce_classes.BLOCKLIST.help in pause_detail


def test_a_late_answer_does_not_hide_a_pause(home: Home) -> None:
    """A reply on an old connection leaves a paused provider in the status; after the pause it ends the failure."""
    send_campaign(home, "ana@example.org")
    row, breaker = QueueReader().fetch_candidates(1)[0], CircuitBreaker(0.2)
    breaker.handle_connection_failure(row.provider, ConnectionFailed("no route"))
    breaker.record_answer(row, None)
    assert breaker.get_paused_providers() == (row.provider,)
    [paused] = breaker.get_paused_transports()
    assert (paused.provider, paused.text) == (row.provider, "no route")
    time.sleep(0.25)
    breaker.record_answer(row, None)
    breaker.handle_connection_failure(row.provider, ConnectionFailed("no route"))
    assert breaker.get_paused_transports()[0].since > paused.since


def test_failures_of_rendering_do_not_hide_rejections(home: Home) -> None:
    """A relay that rejects the sender holds the campaign, although messages between them cannot be rendered."""
    addresses = [f"p{number}@example.org" for number in range(MAX_REFUSALS * 2)]
    lengths = [2, 2000] * MAX_REFUSALS  # a template may not repeat a part 2,000 times
    contacts = [
        home.contact(address, data={"many": list(range(length))})
        for address, length in zip(addresses, lengths, strict=True)
    ]
    body = "<p>{% for one in contact.data.many %}{{ one }}{% endfor %}</p>"
    campaign = home.send(home.campaign(home.list_of(*(contact.id for contact in contacts)).id, body=body))
    with SmtpServer() as smtp:
        smtp.rules.reject("mail", "*", code=550, text="5.7.1 not from you")
        use_relay(home, smtp.port, email__connections="1")
        transactions.start(before_write=queue.settle_log)
        sender = EmailSender("p")
        sender.drain()
    assert rows("SELECT count(*), skip_reason FROM message WHERE status = 'skipped'")[0][1] == "render_error"
    assert sender.breaker.get_held_campaigns() == (campaign.id,)


@pytest.mark.parametrize(
    "error",
    [Deferred("no attempt for 15 more minutes", None, "4.4.1"), RateLimited("mx replies slowly", 60), Postponed("", 0)],
    ids=["unreachable", "slow", "closed"],
)
def test_what_no_server_said_does_not_hide_rejections(error: DeliveryError, home: Home) -> None:
    """Delays and failed look-ups between rejections of the sender do not reset their count."""
    campaign_id = send_campaign(home, "ana@example.org")
    [row] = QueueReader().fetch_candidates(1)
    breaker = CircuitBreaker(60.0)

    async def record_answers() -> None:
        context = create_context(breaker)
        worker = SmtpWorker(context)
        for _ in range(MAX_REFUSALS):
            for answer in (SenderRejected("550 not from you", 550), error):
                ready = RenderedMessage(row, None, None, 0.0)
                await worker._complete_outcome(ready, None, Outcome(row, answer))
        await context.ready_queue.close()

    asyncio.run(record_answers())
    assert breaker.get_held_campaigns() == (campaign_id,)


def test_counts_of_old_campaigns_are_forgotten(home: Home) -> None:
    """The rejections of thousands of campaigns do not stay in memory."""
    send_campaign(home, "ana@example.org")
    row, breaker = QueueReader().fetch_candidates(1)[0], CircuitBreaker(60.0)
    errors = (
        MailUnauthenticated("550 5.7.27 SPF does not pass", 550, "5.7.27"),
        RecipientRejected("554 5.7.1 blocked using zen.spamhaus.org", 554, "5.7.1"),
        SenderRejected("550 not from you", 550),
    )
    for campaign_id in range(3_000):
        for error in errors:
            breaker.record_answer(row._replace(campaign_id=campaign_id), error)
    counts = (breaker._unauthenticated, breaker._reputation_counts, breaker._refusal_counts)
    assert [len(errors_by_key) for errors_by_key in counts] == [1_000] * 3


def test_one_message_probes_a_transport_after_its_pause() -> None:
    """After a pause one message is the probe; the provider stays closed for others until it has answered."""
    breaker, first, second = CircuitBreaker(0.2), build_row(), build_row()._replace(id=2)
    breaker.handle_connection_failure("relay", ConnectionFailed("refused"))
    assert not breaker.begin_probe(first) and breaker.get_unavailable_providers() == ("relay",)
    time.sleep(0.25)
    assert breaker.get_unavailable_providers() == () and breaker.begin_probe(first)
    assert not breaker.begin_probe(second) and breaker.get_unavailable_providers() == ("relay",)
    assert breaker.is_probe(first) and not breaker.is_probe(second)
    breaker.handle_connection_failure("relay", ConnectionFailed("refused"))
    time.sleep(0.25)
    assert breaker.begin_probe(second)
    breaker.record_answer(second, None)
    assert breaker.get_unavailable_providers() == () and not breaker.begin_probe(first)


def test_a_probe_whose_sender_is_rejected_opens_its_transport() -> None:
    """The transport has answered, although it does not take mail of this sender."""
    breaker, probe = CircuitBreaker(0.2), build_row()
    breaker.handle_connection_failure("relay", ConnectionFailed("refused"))
    time.sleep(0.25)
    assert breaker.begin_probe(probe) and breaker.get_unavailable_providers() == ("relay",)
    breaker.record_answer(probe, SenderRejected("the sender was not verified here"))
    assert breaker.get_unavailable_providers() == ("relay",)
    breaker.record_answer(probe, SenderRejected("550 5.7.1 sender not allowed", 550))
    assert breaker.get_unavailable_providers() == ()


def test_rejections_by_a_replaceable_provider_pause_no_campaign() -> None:
    """Twenty rejected logins pause campaigns, but not while another transport takes their messages; lost answers do."""
    for is_replaceable in (False, True):
        breaker = CircuitBreaker(30, lambda _provider, answer=is_replaceable: answer)
        for _ in range(MAX_REFUSALS):
            breaker.handle_connection_failure("relay", ClientRejected("535 wrong password", 535))
        assert breaker.get_pause_request().providers.keys() == (set() if is_replaceable else {"relay"})
        assert breaker.get_unavailable_providers() == ("relay",)
    for _ in range(MAX_REFUSALS):
        breaker.record_answer(build_row(), Uncertain("no reply"))
    assert breaker.get_pause_request().providers.keys() == {"relay"}


def test_a_relay_is_throttled_for_what_it_refused_itself(home: Home) -> None:
    """Refusals of three recipient groups throttle the whole relay, if all of them are its own."""
    limits = EmailRateLimits(config.current().email)

    def refuse(provider: str, *domains: str) -> set[str]:
        for domain in domains:
            row = build_row()._replace(provider=provider, recipient_key=f"ann@{domain}")
            limits.handle_answer(row, Deferred("421 4.7.0 rate limit exceeded, try later", 421, "4.7.0"))
        return {name for name, group in limits._throttles if group == ALL}

    assert refuse("relay:a", "gmail.com", "outlook.com") == set()
    assert refuse("relay:b", "yahoo.com", "gmail.com") == set()
    assert refuse("relay:b", "aol.com", "gmx.de") == {"relay:b"}
    assert refuse("relay:a", "gmx.de") == {"relay:b", "relay:a"}
