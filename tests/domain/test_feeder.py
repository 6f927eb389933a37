"""What is made ready and for whom, with a real sender thread and a real server: in order, no more than is needed."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from appliance.core import validation
from appliance.core.errors import Deferred
from appliance.sending.delivery.bounce_classes import is_rate_limited
from appliance.sending.messages import queue, transactional
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.messages.transactional import MessageWrite
from appliance.sending.workers import ready_queue
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.sending.workers.email_sender import EmailSender
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import run
from tests.domain.home import Home
from tests.domain.test_line import crowd
from tests.kit.server import free_port
from tests.kit.smtp import SmtpServer


def relay(home: Home, port: int, **settings: Any) -> None:
    """Let everything leave by a server of the kit."""
    home.configure(
        email__transport="relay", email__relay__host="127.0.0.1", email__relay__port=str(port),
        email__relay__tls="none", email__allow_unverified_domains="true", **settings,
    )  # fmt: skip
    transactions.write(run, "UPDATE message SET provider = 'relay'")


def singles(home: Home, count: int) -> None:
    """Post single messages, numbered in their addresses."""

    def put(number: int) -> None:
        body = {"to": f"s{number:04}@example.org", "subject": "x", "body": "y"}
        transactional.queue_message(home.account_id, validation.read(MessageWrite, body))

    transactions.write(lambda: [put(number) for number in range(count)])


@contextmanager
def sending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Send in a thread of its own; yields how often something was made ready, and how many messages."""
    made: Counter[str] = Counter()
    make = ready_queue.ReadyQueue._render

    def counted(self: ready_queue.ReadyQueue, *arguments: Any) -> Any:
        found = make(self, *arguments)
        made["fills"] += 1
        made["messages"] += len(found)
        return found

    monkeypatch.setattr(ready_queue.ReadyQueue, "_render", counted)
    transactions.start()
    sender = EmailSender("p")

    def drain() -> None:
        while not sender.stopping.wait(0.2):  # as the pulse rings in a service
            sender.drain()

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        yield made
    finally:
        sender.stop()
        thread.join(30)


def test_a_way_out_that_is_closed_is_left_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody connects or makes anything ready again and again while a server is away, rate or no rate."""
    crowd(home, *(f"p{number}@example.org" for number in range(60)))
    relay(home, free_port())
    with sending(monkeypatch) as made:
        time.sleep(1.5)
    assert made["fills"] < 30


def test_a_limit_is_waited_for_in_peace(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a sender's limit is closed nothing is read over and over."""
    with SmtpServer() as smtp:
        crowd(home, *(f"p{number}@example.org" for number in range(60)))
        relay(home, smtp.port, email__sender_limits=["campanero.invalid 2/s"])
        with sending(monkeypatch) as made:
            time.sleep(2)
        assert 2 <= len(smtp.messages) <= 8 and made["fills"] < 60


@pytest.mark.parametrize("limited", [False, True])
def test_single_messages_go_in_their_order(limited: bool, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait and however slowly they go: the first ones first, and few of them in memory."""
    limits = {"email__sender_limits": ["campanero.invalid 5/s"]} if limited else {}
    with SmtpServer() as smtp:
        smtp.rules.delay("body", 0.1)
        singles(home, 400)
        relay(home, smtp.port, **limits)
        with sending(monkeypatch) as made:
            time.sleep(3)
        sent = [int(message.to[1:5]) for message in smtp.messages]
    assert len(sent) > 5 and max(sent) < len(sent) + 20
    assert made["messages"] < len(sent) + 120


def test_an_opt_out_is_heard_before_another_connection(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has had enough of a connection gets the next message on another one, after another look (P4)."""
    with SmtpServer() as smtp:
        crowd(home, "p1@example.org", "p2@example.org")
        relay(home, smtp.port, email__connections="1")
        first = smtp.rules.hold("body", "p1@example.org", times=1)
        with sending(monkeypatch):
            first.wait_reached()
            smtp.rules.refuse("mail", "*", code=421, text="4.3.2 enough", times=1)
            again = smtp.rules.hold("connect", times=1)
            first.release()
            again.wait_reached()
            home.leave("p2@example.org")
            again.release()
            time.sleep(1)
        assert [message.to for message in smtp.messages] == ["p1@example.org"]


def test_what_an_account_may_not_send_is_not_handed_out_again(home: Home) -> None:
    """A message that was taken when its account was switched off waits, also while some group is spared."""
    singles(home, 2)
    transactions.write(run, "UPDATE message SET recipient = 'a@gmail.com', recipient_key = 'a@gmail.com' WHERE id = 1")
    line = QueueReader()
    (row,) = line.fetch_candidates(16, frozenset(), room={"google": 0})
    transactions.write(run, "UPDATE account SET sending_stopped = 1")
    assert transactions.write(queue.record_and_claim, [], [row], "p") == set()
    line.give_back(row)
    assert line.fetch_candidates(16, frozenset(), room={"google": 0}) == []


def test_groups_of_which_nothing_is_heard_are_forgotten(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """What thousands of domains once asked for does not stay in memory for ever."""
    crowd(home, "p@example.org")
    pace, now = EmailRateLimits(config.current().email), 1000.0
    monkeypatch.setattr("appliance.core.clock.monotonic", lambda: now)
    (claim,) = QueueReader().fetch_candidates(1)
    error = Deferred("slow down", 421, "4.7.0")
    assert is_rate_limited(error)
    for number in range(2_000):
        now += 10.0
        pace.record_answer(claim._replace(recipient_key=f"a@d{number}.example", provider="relay"), error)
    assert len(pace._throttles) < 400
