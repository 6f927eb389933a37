"""The power goes right after an answer, or before it (P1)."""

import random
import threading
import time
from collections import Counter
from typing import Any

from tests.faults.conftest import Figures, Relayed
from tests.kit.client import Client
from tests.kit.recipients import address, completed, crowd, draft
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

AT_ONCE = 8


class Asking:
    """Requests under way when the power goes: what was answered, and the ids behind the answers."""

    def __init__(self) -> None:
        self.answers: dict[int, tuple[int, Any]] = {}
        self.first = threading.Event()

    def ask(self, api: Client, number: int, path: str, body: Any) -> None:
        """Ask with a key of its own; an answer that never comes is none."""
        try:
            answer = api.post(path, body, {"Idempotency-Key": f"key-{number}"})
            self.answers[number] = (answer.status, answer.json)
        except (OSError, AssertionError):
            return
        finally:
            self.first.set()


def letter(number: int) -> dict[str, str]:
    """Return a single message of its own."""
    return {"to": address(number), "subject": f"Letter {number}", "body": "b", "from_email": "ana@bakery.example"}


def killed_while_asked(server: Server, asked: dict[int, tuple[str, Any]], wait: float) -> dict[int, tuple[int, Any]]:
    """Ask all at once and kill so long after the first answer; returns what was answered."""
    asking, api = Asking(), server.client(validate=False)
    threads = [threading.Thread(target=asking.ask, args=(api, number, *one)) for number, one in asked.items()]
    for thread in threads:
        thread.start()
    asking.first.wait(10)
    time.sleep(wait)
    server.kill()
    for thread in threads:
        thread.join(10)
    server.start()
    return asking.answers


def test_what_was_answered_is_sent_and_what_was_not_may_be_repeated(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """Each 2xx survives the kill right behind it; each request without one is repeated with its key and sent once."""
    gate = smtp_server.rules.hold("connect")
    server, dice = relayed(), random.Random(1)
    rounds, repeated, survived = 25 if full else 3, 0, 0
    for turn in range(rounds):
        asked = {number: ("/messages", letter(number)) for number in range(turn * AT_ONCE, (turn + 1) * AT_ONCE)}
        answers = killed_while_asked(server, asked, dice.choice((0, 0, 0.001, 0.005)))
        api = server.client(validate=False)
        for number, (path, body) in asked.items():
            again = api.post(path, body, {"Idempotency-Key": f"key-{number}"})
            if number in answers:
                assert answers[number][0] == 201 and again.status == 200
                assert again.json["id"] == answers[number][1]["id"]
                survived += 1
            else:
                assert again.status in (200, 201)
                repeated += 1
        other = api.post("/messages", letter(turn) | {"subject": "other"}, {"Idempotency-Key": f"key-{turn * AT_ONCE}"})
        assert (other.status, other.json["code"]) == (409, "idempotency_conflict")
    gate.release()
    smtp_server.wait_for(rounds * AT_ONCE)
    api.wait("/messages", lambda rows: all(row["status"] == "sent" for row in rows), limit=100)
    arrived = Counter(message.to for message in smtp_server.messages)
    count = rounds * AT_ONCE
    figures.note(size=count, kills=rounds, copies=arrived.total() - len(arrived), missing=count - len(arrived),
                 answered=survived, repeated=repeated)  # fmt: skip

    assert arrived == {address(number): 1 for number in range(count)}


def test_a_campaign_that_was_answered_is_sent_and_a_repeated_send_is_the_same(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """Killed right after or before the answer of `send`, its audience half made or whole: one audience, sent once."""
    gate = smtp_server.rules.hold("connect")
    server, dice = relayed(), random.Random(2)
    count, rounds, answered = 200, 25 if full else 3, 0
    group = crowd(server.client(), count)
    paths = []
    for turn in range(rounds):
        path = draft(server.client(validate=False), group, subject=f"Turn {turn}")
        answers = killed_while_asked(server, {turn: (f"{path}/send", {})}, dice.choice((0, 0.005)))
        answered += turn in answers
        again = server.client(validate=False).post(f"{path}/send", {}, {"Idempotency-Key": f"key-{turn}"})
        assert again.status == 200 and again.json["audience_count"] == count
        paths.append(path)
    for turn in range(rounds):
        # The power goes while the request is on its way, or in the middle of it
        path = draft(server.client(validate=False), group, subject=f"Turn {rounds + turn}")
        asking = Asking()
        thread = threading.Thread(
            target=asking.ask, args=(server.client(validate=False), 1000 + turn, f"{path}/send", {})
        )
        thread.start()
        time.sleep(dice.uniform(0, 0.03))
        server.kill()
        thread.join(10)
        again = (
            server.start().client(validate=False).post(f"{path}/send", {}, {"Idempotency-Key": f"key-{1000 + turn}"})
        )
        assert again.status == 200 and again.json["audience_count"] == count
        paths.append(path)
    gate.release()
    for path in paths:
        assert completed(server.client(validate=False), path)["stats"]["sent"] == count
    everybody = {(address(index), f"Turn {turn}"): 1 for index in range(count) for turn in range(2 * rounds)}
    arrived = Counter((message.to, message.subject) for message in smtp_server.messages)
    figures.note(size=len(everybody), kills=2 * rounds, copies=arrived.total() - len(arrived),
                 missing=len(everybody) - len(arrived), answered=answered)  # fmt: skip

    assert arrived == everybody
