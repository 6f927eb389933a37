"""The background work as a whole: whether it is running, and how its senders are replaced and stopped."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from appliance.core import signals
from appliance.jobs import BackgroundWork, Jobs
from appliance.sending.messages import queue
from appliance.sending.workers import sender
from appliance.sending.workers.email_sender import EmailSender
from appliance.storage import transactions
from appliance.storage.database import rows
from tests.domain.home import Home
from tests.domain.test_queue_reader import send_campaign
from tests.domain.test_render_ahead import use_relay
from tests.kit.smtp import SmtpServer


def test_background_work_is_running(home: Home) -> None:
    """`is_running` is true from start to stop."""
    transactions.start()
    work = BackgroundWork("process")
    assert not work.is_running()
    work.start()
    assert work.is_running()
    work.stop()
    assert not work.is_running()
    transactions.stop()


@contextmanager
def run_in_thread(function: Callable[[], None]) -> Iterator[threading.Thread]:
    """Run a function in a thread, and wait for its end."""
    thread = threading.Thread(target=function)
    thread.start()
    yield thread
    thread.join(30)
    assert not thread.is_alive()


def test_saved_settings_wait_for_the_reply_of_a_slow_server(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message whose reply takes longer than a shutdown may is sent once, and the next one with the new settings."""
    monkeypatch.setattr(sender, "_STOP_SECONDS", 0.1)
    monkeypatch.setattr(sender, "_CANCEL_SECONDS", 0.1)
    with SmtpServer() as smtp, SmtpServer() as new_relay:
        send_campaign(home, "p1@example.org", "p2@example.org")
        use_relay(home, smtp.port, email__connections="1")
        reply = smtp.rules.store_then_hold("p1@example.org", times=1)
        transactions.start(before_write=queue.settle_log)
        jobs = Jobs("p")
        with run_in_thread(jobs.send_due_email):
            reply.wait_reached()
            use_relay(home, new_relay.port, email__connections="1")
            with run_in_thread(jobs.renew):
                time.sleep(1)
                reply.release()
        jobs.send_due_email()
        assert [message.to for message in smtp.messages] == ["p1@example.org"]
        assert [message.to for message in new_relay.messages] == ["p2@example.org"]
    assert rows("SELECT status, attempts, uncertain_count FROM message") == [("sent", 1, 0)] * 2


def test_a_shutdown_is_short_while_settings_are_being_applied(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shutdown that begins during a renewal cancels the message that waits for its reply."""
    monkeypatch.setattr(sender, "_STOP_SECONDS", 0.1)
    with SmtpServer() as smtp:
        send_campaign(home, "p1@example.org")
        use_relay(home, smtp.port, email__in_doubt="hold")
        reply = smtp.rules.store_then_hold(times=1)
        transactions.start(before_write=queue.settle_log)
        jobs = Jobs("p")
        with run_in_thread(jobs.send_due_email) as sending:
            reply.wait_reached()
            with run_in_thread(jobs.renew):
                time.sleep(0.5)
                assert sending.is_alive()
                jobs.stop()
        reply.release()
    assert rows("SELECT status FROM message") == [("uncertain",)]


def test_many_wake_ups_start_few_runs_of_the_email_sender(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each submitted message wakes the sender; it looks for due mail at most 50 times a second, and at least once."""
    runs: list[float] = []
    looks_for_email = EmailSender.is_due

    def count(email_sender: EmailSender) -> bool:
        runs.append(time.monotonic())
        return looks_for_email(email_sender)

    monkeypatch.setattr(EmailSender, "is_due", count)
    transactions.start()
    work = BackgroundWork("process")
    work.start()
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            signals.wake("outbox")
            time.sleep(0.001)
    finally:
        work.stop()
        transactions.stop()
    # The pulse looks once a second too.
    assert 2 <= len(runs) <= 55
