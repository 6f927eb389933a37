"""A message claimed while the one before it is being sent: it is checked again before its body leaves (P3, P4)."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.campaigns import states
from appliance.sending.messages import queue
from appliance.sending.workers import sender, smtp_worker
from appliance.sending.workers.circuit_breaker import CircuitBreaker
from appliance.sending.workers.email_sender import EmailSender
from appliance.sending.workers.smtp_worker import SmtpWorker
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home, recover_after_crash
from tests.domain.test_circuit_breaker import create_context
from tests.domain.test_queue_reader import send_campaign
from tests.domain.test_render_ahead import queue_single_messages, run_sender, use_relay
from tests.kit.smtp import SmtpServer
from tests.kit.smtp_rules import Gate

ADDRESSES = [f"p{number}@example.org" for number in range(1, 6)]


def fetch_statuses() -> list[tuple[str, str | None]]:
    """Return (status, reason of a skip) of all messages, by id."""
    return rows("SELECT status, skip_reason FROM message ORDER BY id")


def wait_for_claims(count: int) -> None:
    """Wait until so many messages are claimed, at most 5 s."""
    wait_until(lambda: [status for status, _ in fetch_statuses()].count("sending") == count)


def wait_until(is_reached: Callable[[], bool]) -> None:
    """Wait until a condition holds, at most 5 s."""
    until = time.monotonic() + 5
    while not is_reached():
        assert time.monotonic() < until, fetch_statuses()
        time.sleep(0.01)


def opt_out(home: Home) -> None:
    """Opt the second recipient out."""
    home.opt_out("p2@example.org")


def suppress(home: Home) -> None:
    """Add the second recipient to the suppression list."""
    home.suppress("p2@example.org", "manual")


def delete(home: Home) -> None:
    """Delete the second recipient."""
    contact_id = home.channel("p2@example.org").contact_id
    transactions.write(removal.delete, home.account_id, contact_id)


def pause(home: Home) -> None:
    """Pause the campaign."""
    transactions.write(states.pause, home.account_id, 1, Actor("key:1"))


def cancel(home: Home) -> None:
    """Cancel the campaign."""
    transactions.write(states.cancel, home.account_id, 1, Actor("key:1"))


def stop_account(home: Home) -> None:
    """Stop all sending of the account."""
    transactions.write(run, "UPDATE account SET sending_stopped = 1")


@pytest.mark.parametrize(
    ("forbid", "expected"),
    [
        (opt_out, ("skipped", "unsubscribed")),
        (suppress, ("skipped", "suppressed_manual")),
        (delete, ("skipped", "contact_deleted")),
        (pause, ("queued", None)),
        (cancel, ("cancelled", None)),
        (stop_account, ("queued", None)),
    ],
)
def test_a_claimed_message_is_not_sent_after_it_was_forbidden(
    forbid: Callable[[Home], None], expected: tuple[str, str | None], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever forbids a message that is claimed ahead, and is acknowledged before its body, keeps it from leaving."""
    with SmtpServer() as smtp:
        send_campaign(home, *ADDRESSES[:2])
        use_relay(home, smtp.port, email__connections="1")
        first_body = smtp.rules.hold("body", "p1@example.org", times=1)
        with run_sender(monkeypatch):
            first_body.wait_reached()
            wait_for_claims(2)
            forbid(home)
            first_body.release()
            wait_until(lambda: fetch_statuses()[1] == expected)
        assert [message.to for message in smtp.messages] == ["p1@example.org"]


def test_a_message_of_another_transport_does_not_keep_the_next_one_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two transports, each connection claims its next message ahead, wherever that stands in the queue."""
    with SmtpServer() as smtp, SmtpServer() as backup:
        send_campaign(home, "p1@main.example", "p2@other.example", "p3@other.example", "p4@main.example")
        declared = {"key": "backup", "name": "Backup", "kind": "relay", "connections": 1,
                    "options": {"host": "127.0.0.1", "port": backup.port, "tls": "none"}}  # fmt: skip
        routes = [{"shares": {"backup": 1}, "recipients": ["other.example"]}]
        use_relay(home, smtp.port, email__connections="1", email__transports=[declared], email__routes=routes)
        gates = [smtp.rules.hold("body", "p1@main.example"), backup.rules.hold("rcpt", "p2@other.example")]
        with run_sender(monkeypatch):
            wait_until(
                lambda: [status for status, _ in fetch_statuses()] == ["sending", "sending", "queued", "sending"]
            )
            for gate in gates:
                gate.release()
            wait_until(lambda: {status for status, _ in fetch_statuses()} == {"sent"})
        assert [message.to for message in smtp.messages] == ["p1@main.example", "p4@main.example"]


@pytest.mark.parametrize("kind", ["capped", "single", "rejected"])
def test_messages_are_sent_while_others_write(home: Home, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Constant writes, or a rejected message, delay neither single messages nor those of an account with a cap."""
    with SmtpServer() as smtp:
        if kind == "single":
            queue_single_messages(home.account_id, 5)
        else:
            send_campaign(home, *ADDRESSES)
            transactions.write(run, 'UPDATE account SET frequency_cap = \'{"messages": 100, "days": 1}\'')
        use_relay(home, smtp.port, email__connections="1")
        if kind == "rejected":
            smtp.rules.reject("rcpt", ADDRESSES[1], code=550, text="5.1.1 No such user", times=1)
        has_ended = threading.Event()

        def write() -> None:
            while not has_ended.is_set():
                transactions.write(run, "UPDATE account SET updated_at = updated_at + 1")

        writer = threading.Thread(target=write)
        with run_sender(monkeypatch):
            if kind != "rejected":
                writer.start()
            try:
                wait_until(lambda: {status for status, _ in fetch_statuses()} <= {"sent", "failed"})
            finally:
                has_ended.set()
        if kind != "rejected":
            writer.join()
        assert len(smtp.messages) == (4 if kind == "rejected" else 5)


def test_a_hard_bounce_forbids_a_claimed_message(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message to an address that another message found not to exist is not sent, though it was claimed before."""
    with SmtpServer() as smtp:
        send_campaign(home, "p1@example.org")
        home.send(home.campaign(1, name="Second"))
        use_relay(home, smtp.port, email__connections="2")
        waiting = smtp.rules.hold("data", "p1@example.org", times=1)
        rejecting = Gate()
        smtp.rules.reject("body", "p1@example.org", code=550, text="5.1.1 No such user", times=1, gate=rejecting)
        with run_sender(monkeypatch):
            rejecting.wait_reached()
            waiting.wait_reached()
            wait_for_claims(2)
            rejecting.release()
            wait_until(lambda: home.channel("p1@example.org").suppression == "hard_bounce")
            waiting.release()
            wait_until(lambda: sorted(status for status, _ in fetch_statuses()) == ["failed", "skipped"])
        assert not smtp.messages


def test_other_writes_keep_a_claim(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that forbids nothing costs a claimed message neither its turn nor an attempt."""
    with SmtpServer() as smtp:
        send_campaign(home, *ADDRESSES)
        use_relay(home, smtp.port, email__connections="1")
        first_body = smtp.rules.hold("body", "p1@example.org", times=1)
        with run_sender(monkeypatch):
            first_body.wait_reached()
            wait_for_claims(2)
            home.contact("other@example.org")
            first_body.release()
            wait_until(lambda: len(smtp.messages) == len(ADDRESSES))
        assert [message.to for message in smtp.messages] == ADDRESSES
        assert rows("SELECT DISTINCT attempts FROM message") == [(1,)]


def test_at_most_two_messages_of_a_connection_are_claimed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a body is held, the message behind it is claimed, and no other (P3)."""
    with SmtpServer() as smtp:
        send_campaign(home, *ADDRESSES)
        use_relay(home, smtp.port, email__connections="1")
        bodies = [smtp.rules.hold("body", address, times=1) for address in ADDRESSES]
        with run_sender(monkeypatch):
            for number, body in enumerate(bodies, 1):
                body.wait_reached()
                wait_for_claims(min(2, len(bodies) - number + 1))
                body.release()
        assert [message.to for message in smtp.messages] == ADDRESSES


def test_a_claim_behind_a_slow_body_is_given_up(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that waits for more than a second behind another is queued again, without an attempt."""
    with SmtpServer() as smtp:
        send_campaign(home, *ADDRESSES[:2])
        use_relay(home, smtp.port, email__connections="1")
        first_body = smtp.rules.hold("body", "p1@example.org", times=1)
        with run_sender(monkeypatch):
            first_body.wait_reached()
            wait_for_claims(2)
            wait_until(lambda: fetch_statuses()[1] == ("queued", None))
            first_body.release()
            wait_until(lambda: len(smtp.messages) == 2)
        assert [message.to for message in smtp.messages] == ADDRESSES[:2]
        assert rows("SELECT DISTINCT attempts FROM message") == [(1,)]


def test_a_slow_relay_keeps_its_connection(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a relay takes longer to accept a message than the next one may wait, no next one is sent ahead.

    Its envelope could not be withdrawn, so that each message would cost a connection.
    """
    monkeypatch.setattr(smtp_worker, "_MAX_WAIT_SECONDS", 0.1)
    with SmtpServer() as smtp:
        send_campaign(home, *ADDRESSES)
        smtp.rules.delay("body", 0.3)
        use_relay(home, smtp.port, email__connections="1")
        with run_sender(monkeypatch):
            wait_until(lambda: len(smtp.messages) == 5)
        # Behind the first message, the relay was not known to be slow yet
        assert len(smtp.phases("rcpt")) == 6 and len(smtp.phases("connect")) <= 3


def test_a_stop_during_the_next_envelope_keeps_the_outcome_before_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the service stops while a server delays an envelope sent ahead, the message before it is stored as sent (P3).

    Otherwise it would be in doubt, and the next start would send it once more.
    """
    monkeypatch.setattr(sender, "_STOP_SECONDS", 0.2)  # as long as the worker may finish before it is cancelled
    with SmtpServer() as smtp:
        send_campaign(home, *ADDRESSES[:2])
        use_relay(home, smtp.port, email__connections="1")
        first_body = smtp.rules.hold("body", "p1@example.org", times=1)
        second_envelope = smtp.rules.hold("rcpt", "p2@example.org", times=1)
        with run_sender(monkeypatch):
            first_body.wait_reached()
            wait_for_claims(2)
            first_body.release()
            second_envelope.wait_reached()
        assert fetch_statuses() == [("sent", None), ("queued", None)]
        second_envelope.release()
    assert recover_after_crash() == 0


@pytest.mark.parametrize("is_server_slow", [False, True])
def test_a_stop_while_a_claim_is_written_leaves_no_message_in_doubt(
    is_server_slow: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a worker is cancelled before its claim is on disk, the message that was not sent is queued again (P3)."""
    monkeypatch.setattr(sender, "_STOP_SECONDS", 0.1)
    with SmtpServer() as smtp:
        send_campaign(home, ADDRESSES[0])
        use_relay(home, smtp.port, email__connections="1")
        if is_server_slow:
            smtp.rules.hold("data", times=1)
        transactions.start(before_write=queue.settle_log)
        is_storage_free = threading.Event()
        stalled = transactions.submit_record(is_storage_free.wait, 10)
        email_sender = EmailSender("p")
        sending = threading.Thread(target=email_sender.drain)
        sending.start()
        smtp.wait_for_phase("data")
        time.sleep(0.1)
        email_sender.stop()
        time.sleep(0.5)
        is_storage_free.set()
        stalled.result(10)
        sending.join(10)
        smtp.rules.clear()
        assert fetch_statuses() == [("queued", None)] and smtp.messages == []
    assert recover_after_crash() == 0


def test_a_failure_to_settle_the_log_leaves_nothing_open(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections and threads of a loop are closed although its last outcomes cannot be written."""
    send_campaign(home, "p1@example.org")
    closed: list[sender.ReadyQueue] = []
    close = sender.ReadyQueue.close

    async def fail(self: sender.OutcomeWriter) -> None:
        raise RuntimeError("damaged")

    async def close_and_record(self: sender.ReadyQueue) -> None:
        await close(self)
        closed.append(self)

    monkeypatch.setattr(sender.OutcomeWriter, "flush", fail)
    monkeypatch.setattr(sender.ReadyQueue, "close", close_and_record)
    transactions.start(before_write=queue.settle_log)
    with SmtpServer() as smtp:
        use_relay(home, smtp.port)
        with pytest.raises(RuntimeError, match="damaged"):
            EmailSender("p").drain()
    assert len(closed) == 1


def test_a_message_taken_and_not_claimed_is_put_back_at_a_stop(home: Home) -> None:
    """After a stop, a worker claims no message that it took while it sent another."""
    send_campaign(home, "p1@example.org")

    async def stop_worker() -> None:
        context = create_context(CircuitBreaker(60.0))
        worker = SmtpWorker(context)
        ready = await context.ready_queue.take()
        worker._next = smtp_worker.NextMessage(ready)
        assert ready is not None
        context.stop_switch.stopping.set()
        assert not await worker._take_next()
        assert [*context.ready_queue._rendered] == [ready]
        await context.ready_queue.close()

    asyncio.run(stop_worker())
