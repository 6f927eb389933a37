"""Kills during SMTP submission: what was acknowledged is there, and what a program repeats is there once (P1)."""

import random
import smtplib
import sqlite3
import threading
import time
from collections import Counter

import pytest

from tests.kit.server import Server
from tests.kit.submission import Ports, create_key

CONNECTIONS, KILLS = 4, 3


def compose(subject: str, size: int) -> bytes:
    """Return an email whose Message-ID is its subject."""
    head = (
        f"From: shop@bakery.example\r\nTo: a@example.org\r\nSubject: {subject}\r\nMessage-ID: <{subject}@shop>\r\n\r\n"
    )
    return head.encode() + b"x" * 70 + b"\r\n" + (b"y" * 70 + b"\r\n") * (size // 72)


class Program:
    """A program that sends one email after the other, and repeats each until it is acknowledged."""

    def __init__(self, number: int, ports: Ports, key: str) -> None:
        self.number, self.ports, self.key = number, ports, key
        self.acknowledged: list[str] = []
        self.attempt_count = 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.stopping = threading.Event()

    def run(self) -> None:
        """Send until `stopping` is set."""
        client: smtplib.SMTP | None = None
        while not self.stopping.is_set():
            subject = f"{self.number}-{len(self.acknowledged)}"
            # Every fifth is stored on disk, and the others in the database.
            size = 400_000 if len(self.acknowledged) % 5 == 4 else 2_000
            try:
                client = client or self.ports.connect(self.key)
                self.attempt_count += 1
                client.sendmail("shop@bakery.example", ["a@example.org", "b@example.org"], compose(subject, size))
            except (OSError, smtplib.SMTPException):
                client = None
                time.sleep(0.05)
            else:
                self.acknowledged.append(subject)


def test_kills_lose_and_double_nothing(full: bool) -> None:
    """Whenever the service is killed, each acknowledged email has one row for each recipient, with its bytes."""
    ports, rng = Ports(), random.Random(3)
    # The relay cannot be reached, so that all emails stay in the queue.
    env = ports.env | {
        "CAMPANERO_EMAIL__TRANSPORT": "relay", "CAMPANERO_EMAIL__RELAY__HOST": "127.0.0.1",
        "CAMPANERO_EMAIL__RELAY__PORT": "9", "CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true",
        "CAMPANERO_SUBMISSION__RECIPIENTS_PER_HOUR": "0",
    }  # fmt: skip
    with Server(env=env).set_up().start() as server:
        key = create_key(server)
        programs = [Program(number, ports, key) for number in range(CONNECTIONS)]
        for program in programs:
            program.thread.start()
        for _ in range(KILLS * (5 if full else 1)):
            time.sleep(rng.uniform(0.3, 0.9))
            server.kill()
            server.start()
        time.sleep(0.5)
        for program in programs:
            program.stopping.set()
            program.thread.join(60)
        server.stop()
        acknowledged = [subject for program in programs for subject in program.acknowledged]
        database = sqlite3.connect(server.data / "campanero.db")
        counts = Counter(subject for (subject,) in database.execute("SELECT subject FROM message"))
        contents = database.execute(
            "SELECT m.subject, r.size, r.sha256 FROM message m JOIN message_content c ON c.message_id = m.id "
            "JOIN raw_message r ON r.id = c.raw_message_id"
        ).fetchall()
        database.close()
    assert len(acknowledged) > 20 and sum(program.attempt_count for program in programs) > len(acknowledged)
    assert {subject: counts[subject] for subject in acknowledged} == dict.fromkeys(acknowledged, 2)
    assert set(counts.values()) == {2}
    assert len(contents) == sum(counts.values())


@pytest.mark.parametrize("size", [2_000, 400_000])
def test_a_repeat_after_a_lost_answer_is_one_message(size: int) -> None:
    """A program that was killed off before the answer repeats the email, and its recipient gets one."""
    ports = Ports()
    with Server(env=ports.env).set_up().start() as server:
        key = create_key(server)
        client = ports.connect(key)
        client.mail("shop@bakery.example")
        client.rcpt("a@example.org")
        client.docmd("DATA")
        assert client.sock is not None
        client.sock.sendall(compose("lost", size) + b".\r\n")
        client.sock.close()  # before the answer was read
        with ports.connect(key) as again:
            again.sendmail("shop@bakery.example", ["a@example.org"], compose("lost", size))
        rows = server.client().wait("/messages", lambda rows: rows and rows[0]["status"] == "sent")
        assert [row["subject"] for row in rows] == ["lost"]
        server.stop()
