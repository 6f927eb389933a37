"""Rendering ahead of sending, with a real sender thread and server: in order, and no more than needed."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.campaigns import store
from appliance.campaigns.store import CampaignCreate
from appliance.content import brand
from appliance.content.brand import BrandWrite
from appliance.content.designs import sanitizer
from appliance.core import clock, validation
from appliance.core.errors import ConnectionFailed, Deferred
from appliance.sending.delivery.bounce_classes import is_rate_limited
from appliance.sending.messages import compose, queue, retries, transactional
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.messages.transactional import MessageWrite
from appliance.sending.workers import ready_queue
from appliance.sending.workers.circuit_breaker import CircuitBreaker, StopSwitch
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.sending.workers.email_sender import EmailSender
from appliance.sending.workers.rate_limits import ALL
from appliance.sending.workers.renderer import RenderedMessage, Renderer
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home
from tests.domain.test_queue_reader import send_campaign
from tests.kit.server import free_port
from tests.kit.smtp import SmtpServer


def use_relay(home: Home, port: int, **settings: Any) -> None:
    """Send all messages through a relay on this port."""
    home.configure(
        email__transport="relay", email__relay__host="127.0.0.1", email__relay__port=str(port),
        email__relay__tls="none", email__allow_unverified_domains="true", **settings,
    )  # fmt: skip
    transactions.write(run, "UPDATE message SET provider = 'relay'")


def queue_single_messages(account_id: int, count: int, body: str = "y") -> None:
    """Queue single messages, numbered in their addresses and after their bodies."""

    def queue_one(number: int) -> None:
        fields = {"to": f"s{number:04}@example.org", "subject": "x", "body": f"{body}{number}"}
        transactional.queue_message(account_id, validation.read(MessageWrite, fields))

    transactions.write(lambda: [queue_one(number) for number in range(count)])


@contextmanager
def run_sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Run a sender in its own thread; yield counts of calls to the renderer and of rendered messages."""
    counts: Counter[str] = Counter()
    render = ready_queue.ReadyQueue._render

    async def render_and_count(self: ready_queue.ReadyQueue, ledger_rows: dict[int, LedgerRow]) -> None:
        before = len(ledger_rows)
        await render(self, ledger_rows)
        counts["fills"] += 1
        counts["messages"] += before - len(ledger_rows)

    monkeypatch.setattr(ready_queue.ReadyQueue, "_render", render_and_count)
    transactions.start(before_write=queue.settle_log)
    sender = EmailSender("p")

    def drain() -> None:
        while not sender.stopping.wait(0.2):  # the service calls it regularly
            sender.drain()

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        yield counts
    finally:
        sender.stop()
        thread.join(30)


def test_an_unreachable_relay_causes_no_busy_loop(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the relay is unreachable, messages are rendered only now and then."""
    send_campaign(home, *(f"p{number}@example.org" for number in range(60)))
    use_relay(home, free_port())
    with run_sender(monkeypatch) as counts:
        time.sleep(1.5)
    assert counts["fills"] < 30


def test_a_sender_limit_causes_no_busy_loop(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a sender limit is reached, messages are rendered only now and then."""
    with SmtpServer() as smtp:
        send_campaign(home, *(f"p{number}@example.org" for number in range(60)))
        use_relay(home, smtp.port, email__sender_limits=["campanero.invalid 2/s"])
        with run_sender(monkeypatch) as counts:
            time.sleep(2)
        assert 2 <= len(smtp.messages) <= 8 and counts["fills"] < 60


def count_by_sender(smtp: SmtpServer) -> Counter[str]:
    """Return how many messages of each sending domain a server got."""
    return Counter(message.mail_from.rpartition("@")[2] for message in smtp.messages)


@pytest.mark.parametrize("limited", ["a.example", "b.example"])
def test_a_limited_sender_of_a_test_does_not_delay_the_other(
    limited: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a campaign with two senders, the messages of one leave at once while those of the other wait for its limit."""
    transactions.write(brand.update, home.account_id, BrandWrite(physical_address="1 Mill Lane, Bath"))
    contact_ids = [home.contact(f"p{number}@example.org").id for number in range(240)]
    body = {
        "name": "Test", "trigger_attributes": {"contact_list_id": home.list_of(*contact_ids).id},
        "template_attributes": {"subject": "A", "body": "<p>Hi</p>", "from_email": "news@a.example"},
        "experiment": {"variants": [{}, {"subject": "B", "body": "<p>Hi</p>", "from_email": "news@b.example"}]},
    }  # fmt: skip
    with SmtpServer() as smtp:
        use_relay(home, smtp.port, email__sender_limits=[f"{limited} 1/s"])
        home.send(transactions.write(store.create, home.account_id, validation.read(CampaignCreate, body)))
        totals = Counter(row[0] for row in rows("SELECT substr(sender, 6) FROM message"))
        [other], started_at = {"a.example", "b.example"} - {limited}, time.monotonic()
        with run_sender(monkeypatch) as counts:
            while (arrived := count_by_sender(smtp))[other] < totals[other] and time.monotonic() < started_at + 30:
                time.sleep(0.05)
            seconds = time.monotonic() - started_at
    assert arrived[other] == totals[other] > 80 and arrived[limited] <= seconds + 2
    # Those of the limited sender are not rendered again and again while they wait.
    assert counts["messages"] < totals[other] + seconds + 20


def test_single_messages_that_wait_for_a_limit_leave_room_for_others(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many single messages of a limited sender are not all rendered: a password of another sender is sent at once."""
    queue_single_messages(home.account_id, 300)
    with SmtpServer() as smtp:
        use_relay(home, smtp.port, email__sender_limits=["campanero.invalid 1/s"])
        until = time.monotonic() + 30
        with run_sender(monkeypatch):
            while not smtp.messages and time.monotonic() < until:
                time.sleep(0.05)
            fields = {"to": "password@example.org", "subject": "x", "body": "y", "from_email": "ana@other.example"}
            password = validation.read(MessageWrite, fields)
            transactions.write(transactional.queue_message, home.account_id, password)
            while "password@example.org" not in {message.to for message in smtp.messages}:
                assert len(smtp.messages) < 12 and time.monotonic() < until
                time.sleep(0.05)


@pytest.mark.parametrize("method", ["take", "peek_provider"])
def test_workers_that_wait_for_a_paused_group_do_not_refill_the_queue(
    method: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While all messages left are of a paused group, five idle workers read the rows again only after some seconds."""
    send_campaign(home, *(f"p{number}@gmail.com" for number in range(5)))
    use_relay(home, free_port(), email__rate_per_second="10", email__slow_down="60s")
    limits, refill_count = EmailRateLimits(config.current().email), 0
    (row,) = QueueReader().fetch_candidates(1)
    limits.handle_answer(row, Deferred("slow down", 421, "4.7.0"))
    refill = ready_queue.ReadyQueue._refill

    async def refill_and_count(self: ready_queue.ReadyQueue) -> None:
        nonlocal refill_count
        refill_count += 1
        await refill(self)

    async def wait_for_messages() -> None:
        waiting = ready_queue.ReadyQueue(CircuitBreaker(60.0), limits, 16, StopSwitch())
        workers = [asyncio.create_task(getattr(waiting, method)()) for _ in range(5)]
        await asyncio.sleep(0.5)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await waiting.close()

    monkeypatch.setattr(ready_queue.ReadyQueue, "_refill", refill_and_count)
    transactions.start(before_write=queue.settle_log)
    asyncio.run(wait_for_messages())
    assert 1 <= refill_count <= 5


@pytest.mark.parametrize("limited", [False, True])
def test_single_messages_are_sent_in_order(limited: bool, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single messages are sent about in the order of queueing, with few rendered ahead."""
    limits = {"email__sender_limits": ["campanero.invalid 5/s"]} if limited else {}
    with SmtpServer() as smtp:
        smtp.rules.delay("body", 0.1)
        queue_single_messages(home.account_id, 400)
        use_relay(home, smtp.port, **limits)
        with run_sender(monkeypatch) as counts:
            time.sleep(3)
        sent = [int(message.to[1:5]) for message in smtp.messages]
    assert len(sent) > 5 and max(sent) < len(sent) + 20
    assert counts["messages"] < len(sent) + 120


def test_an_opt_out_before_a_reconnect_stops_the_message(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message deferred to another connection is checked again, so an opt-out meanwhile stops it (P4)."""
    with SmtpServer() as smtp:
        send_campaign(home, "p1@example.org", "p2@example.org")
        use_relay(home, smtp.port, email__connections="1")
        first_body = smtp.rules.hold("body", "p1@example.org", times=1)
        with run_sender(monkeypatch):
            first_body.wait_reached()
            smtp.rules.reject("mail", "*", code=421, text="4.3.2 enough", times=1)
            reconnect = smtp.rules.hold("connect", times=1)
            first_body.release()
            reconnect.wait_reached()
            home.opt_out("p2@example.org")
            reconnect.release()
            time.sleep(1)
        assert [message.to for message in smtp.messages] == ["p1@example.org"]


def test_messages_of_a_stopped_account_stay_queued(home: Home) -> None:
    """After sending is stopped, a fetched message cannot be claimed and is not fetched again."""
    queue_single_messages(home.account_id, 2)
    transactions.write(run, "UPDATE message SET recipient = 'a@gmail.com', recipient_key = 'a@gmail.com' WHERE id = 1")
    reader = QueueReader()
    (row,) = reader.fetch_candidates(16, frozenset(), room={"google": 0})
    transactions.write(run, "UPDATE account SET sending_stopped = 1")
    assert transactions.write(queue.claim, [row], "p") == set()
    reader.give_back(row)
    assert reader.fetch_candidates(16, frozenset(), room={"google": 0}) == []


def test_throttles_are_bounded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of paused recipient domains do not stay in memory, and of them the last ones stay."""
    send_campaign(home, "p@example.org")
    rate_limits, now = EmailRateLimits(config.current().email), 1000.0
    monkeypatch.setattr("appliance.core.clock.monotonic", lambda: now)
    (row,) = QueueReader().fetch_candidates(1)
    error = Deferred("slow down", 421, "4.7.0")
    assert is_rate_limited(error)
    for number in range(2_000):
        now += 0.1
        rate_limits.handle_answer(row._replace(recipient_key=f"a@d{number}.example", provider="relay"), error)
    groups = [group for _, group in rate_limits._throttles]
    assert len(groups) <= 256 and ALL in groups and "d1990.example" in groups


def test_a_learned_rate_outlives_groups_without_refusals(home: Home) -> None:
    """In direct delivery, hundreds of willing domains do not make the sender forget which ones asked for less."""
    send_campaign(home, "p@example.org")
    home.configure(email__transport="direct")
    rate_limits = EmailRateLimits(config.current().email)
    (row,) = QueueReader().fetch_candidates(1)
    slow, *others = (row._replace(recipient_key=f"a@d{number}.example", provider="direct") for number in range(1_000))
    rate_limits.handle_answer(slow, Deferred("slow down", 421, "4.7.0"))
    home.advance(2 * 3600)
    for other in others:
        assert rate_limits.admit(other, "news@example.net") is None
        rate_limits.release(other.id)
    assert len(rate_limits._throttles) <= 256
    assert [status.group for status in rate_limits.get_status().throttled_groups] == ["d0.example"]


def test_direct_delivery_is_limited_with_another_transport(home: Home) -> None:
    """Direct messages of an earlier transport wait once their recipient group has its connections."""
    send_campaign(home, "p@example.org")
    use_relay(home, free_port())
    rate_limits = EmailRateLimits(config.current().email)
    (row,) = QueueReader().fetch_candidates(1)
    assert rate_limits.is_unlimited
    maximum = rate_limits.get_max_connections("example.org", "example.org")
    directs = [row._replace(id=number, provider="direct") for number in range(1, maximum + 2)]
    refused = [direct.id for direct in directs if rate_limits.admit(direct, "news@example.net") is not None]
    assert refused == [maximum + 1]


def test_limits_without_waiting_messages_are_forgotten(home: Home) -> None:
    """A refill forgets the limits for which no message waits any more."""
    send_campaign(home, "p@gmail.com")
    use_relay(home, free_port(), email__sender_limits=["campanero.invalid 1/s"])
    limits = EmailRateLimits(config.current().email)
    (row,) = QueueReader().fetch_candidates(1)

    async def take_two() -> None:
        waiting = ready_queue.ReadyQueue(CircuitBreaker(60.0), limits, 16, StopSwitch())
        assert limits.admit(row._replace(id=99), "news@campanero.invalid") is None  # uses up the limit of this second
        ready = await waiting.take()
        assert ready is not None and [*waiting._waiting] == ["from campanero.invalid"]
        waiting.finish_claim(ready.row, is_claimed=True)
        transactions.write(run, "UPDATE message SET status = 'sent', due_at = NULL")
        waiting.refill()
        assert await waiting.take() is None
        assert not waiting._waiting
        await waiting.close()

    transactions.start(before_write=queue.settle_log)
    asyncio.run(take_two())


def test_fewer_large_messages_are_rendered_ahead(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of messages of half the memory that may be used, two are rendered ahead, and not as many as of small ones."""
    send_campaign(home, *(f"p{number}@example.org" for number in range(40)))
    use_relay(home, free_port())
    (row, *_) = QueueReader().fetch_candidates(1)
    size = len(MessagePreparer().prepare(row).envelope.content)
    monkeypatch.setattr(ready_queue, "_MAX_READY_BYTES", int(2.5 * size))

    async def take_all() -> list[int]:
        waiting = ready_queue.ReadyQueue(
            CircuitBreaker(60.0), EmailRateLimits(config.current().email), 16, StopSwitch()
        )
        counts = []
        while (ready := await waiting.take()) is not None:
            transactions.write(run, "UPDATE message SET status = 'sent', due_at = NULL WHERE id = ?", (ready.row.id,))
            waiting.finish_claim(ready.row, is_claimed=True)
            counts.append(len(waiting._rendered))
        await waiting.close()
        return counts

    transactions.start(before_write=queue.settle_log)
    counts = asyncio.run(take_all())
    assert len(counts) == 40 and max(counts[16:]) <= 2


def test_content_that_is_compiled_delays_no_other_account(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the HTML of one account's messages is compiled, messages of another are taken, and no rows are reread."""
    other, may_end, refill_count = int(transactions.write(lambda: accounts.create("Other").id)), threading.Event(), 0
    queue_single_messages(home.account_id, 3, "<p>long</p>" * 1_000)
    use_relay(home, free_port())
    compose.try_compile.cache_clear()
    sanitizer._fetch_result.cache.clear()
    compile_content, refill = Renderer._compile, ready_queue.ReadyQueue._refill

    def compile_later(self: Renderer, *arguments: Any) -> list[RenderedMessage]:
        may_end.wait(10)
        return compile_content(self, *arguments)

    async def refill_and_count(self: ready_queue.ReadyQueue) -> None:
        nonlocal refill_count
        refill_count += 1
        await refill(self)

    async def take_all() -> list[int]:
        limits = EmailRateLimits(config.current().email)
        waiting = ready_queue.ReadyQueue(CircuitBreaker(60.0), limits, 16, StopSwitch())
        takes = [asyncio.create_task(waiting.take()) for _ in range(4)]
        await asyncio.sleep(0.5)
        queue_single_messages(other, 1)
        use_relay(home, free_port())
        waiting.refill()
        done, _ = await asyncio.wait(takes, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.5)
        assert len(done) == 1 and refill_count < 10
        may_end.set()
        messages = [await task for task in (*done, *(task for task in takes if task not in done))]
        await waiting.close()
        return [message.row.account_id for message in messages if message is not None and message.prepared is not None]

    monkeypatch.setattr(Renderer, "_compile", compile_later)
    monkeypatch.setattr(ready_queue.ReadyQueue, "_refill", refill_and_count)
    transactions.start(before_write=queue.settle_log)
    assert asyncio.run(take_all()) == [other] + 3 * [home.account_id]


def test_a_closed_queue_renders_no_more(home: Home) -> None:
    """A refill in progress ends with the queue; it could not have messages signed any more."""
    send_campaign(home, *(f"p{number}@example.org" for number in range(40)))
    use_relay(home, free_port())

    async def close_while_filling() -> None:
        waiting = ready_queue.ReadyQueue(
            CircuitBreaker(60.0), EmailRateLimits(config.current().email), 40, StopSwitch()
        )
        waiting.poll()
        await asyncio.sleep(0)
        await waiting.close()
        assert asyncio.all_tasks() == {asyncio.current_task()} and not waiting._taken_ids - {
            ready.row.id for ready in waiting._rendered
        }

    transactions.start(before_write=queue.settle_log)
    asyncio.run(close_while_filling())


def test_a_failed_refill_is_tried_again_after_a_growing_delay(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """While the rows cannot be read, workers wait; the error is logged once, and the messages come afterwards."""
    send_campaign(home, *(f"p{number}@example.org" for number in range(2)))
    use_relay(home, free_port())

    async def take_two() -> list[str]:
        waiting = ready_queue.ReadyQueue(
            CircuitBreaker(60.0), EmailRateLimits(config.current().email), 40, StopSwitch()
        )
        transactions.write(run, "ALTER TABLE send_log RENAME TO hidden_log")
        workers = [asyncio.create_task(waiting.take()) for _ in range(2)]
        _, pending = await asyncio.wait(workers, timeout=1.0)
        assert len(pending) == 2 and 0.4 <= waiting._backoff_seconds <= 0.8
        transactions.write(run, "ALTER TABLE hidden_log RENAME TO send_log")
        messages = await asyncio.gather(*workers)
        await waiting.close()
        return sorted(message.row.recipient for message in messages if message is not None)

    transactions.start()
    assert asyncio.run(take_two()) == ["p0@example.org", "p1@example.org"]
    assert [record.message for record in caplog.records] == ["sender: reading due messages failed"]


def use_two_relays(home: Home, port: int, **settings: Any) -> None:
    """Send with a relay on this port, and with `backup` what it cannot take."""
    options = {"host": "127.0.0.1", "port": port, "tls": "none"}
    use_relay(
        home, port,
        email__transports=[{"key": "backup", "name": "Backup", "kind": "relay", "options": options}],
        email__routes=[{"shares": {"default": 1, "backup": 0}}], **settings,
    )  # fmt: skip


@pytest.mark.parametrize("fate", ["parked", "not claimed", "not rendered"])
def test_a_returning_transport_is_probed_by_a_message_that_is_sent(fate: str, home: Home) -> None:
    """A message that is parked, refused at its claim or fails to render leaves the probe to the next one."""
    queue_single_messages(home.account_id, 2)
    transactions.write(run, "UPDATE message SET recipient = 'a@gmail.com', recipient_key = 'a@gmail.com' WHERE id = 1")
    use_two_relays(home, free_port(), email__recipient_limits=["gmail.com 1/h"] if fate == "parked" else [])
    if fate == "not rendered":
        transactions.write(run, "DELETE FROM message_content WHERE message_id = 1")
    limits, breaker = EmailRateLimits(config.current().email), CircuitBreaker(60.0)
    if fate == "parked":
        limits.count_past([(clock.now_ms(), "relay", None, "other@gmail.com")])
    breaker.handle_connection_failure("relay", ConnectionFailed("no route"))
    home.advance(61)

    async def take_probe() -> None:
        waiting = ready_queue.ReadyQueue(breaker, limits, 16, StopSwitch())
        first = await waiting.take()
        assert first is not None
        if fate == "parked":
            assert (first.row.id, first.row.provider) == (2, "relay") and breaker.is_probe(first.row)
        elif fate == "not claimed":
            assert first.row.id == 1 and breaker.is_probe(first.row)
            waiting.finish_claim(first.row, is_claimed=False)
            assert "relay" not in breaker.get_unavailable_providers()
        else:
            assert first.row.id == 1 and first.prepared is None
            assert "relay" not in breaker.get_unavailable_providers()
        await waiting.close()

    transactions.start(before_write=queue.settle_log)
    asyncio.run(take_probe())


@pytest.mark.parametrize("has_others", [False, True])
def test_a_message_in_doubt_of_a_deleted_transport_is_left_to_a_person(
    has_others: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other transport may repeat it by itself, so it does not wait for ever; a person can have it sent again."""
    send_campaign(home, "p1@example.org", "p2@example.org")
    undecided = "SELECT 1 FROM message WHERE status != 'sent' AND (error_code IS NULL OR status = 'queued')"
    with SmtpServer() as smtp:
        (use_two_relays if has_others else use_relay)(home, smtp.port)
        transactions.write(run, "UPDATE message SET provider = 'gone', uncertain_count = 1, attempts = 1 WHERE id = 1")
        until = time.monotonic() + 30
        with run_sender(monkeypatch):
            while rows(undecided) and time.monotonic() < until:
                time.sleep(0.05)
            assert rows("SELECT status, error_code FROM message ORDER BY id") == [
                ("uncertain", "in_doubt"), ("sent", None)
            ]  # fmt: skip
            transactions.write(retries.retry, home.account_id, 1, "user:1")
            while rows(undecided) and time.monotonic() < until:
                time.sleep(0.05)
        assert [message.to for message in smtp.messages] == ["p2@example.org", "p1@example.org"]
    assert rows("SELECT status, provider FROM message ORDER BY id") == 2 * [("sent", "relay")]
