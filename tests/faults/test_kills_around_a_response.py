"""Kills right before and right after a response: what was acknowledged is kept (P1)."""

import random
import threading
import time
from collections import Counter
from typing import Any

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.client import Client
from tests.kit.recipients import create_campaign, create_list, recipient_address, wait_until_completed
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

CONCURRENT = 8


class PendingRequests:
    """Concurrent requests when the server is killed, and the responses that arrived."""

    def __init__(self) -> None:
        self.responses: dict[int, tuple[int, Any]] = {}
        self.any_response = threading.Event()

    def send(self, api: Client, number: int, path: str, body: Any) -> None:
        """Send a request with its own idempotency key; a lost response is not recorded."""
        try:
            response = api.post(path, body, {"Idempotency-Key": f"key-{number}"})
            self.responses[number] = (response.status, response.json)
        except (OSError, AssertionError):
            return
        finally:
            self.any_response.set()


def message_body(number: int) -> dict[str, str]:
    """Return the body of a single message."""
    return {
        "to": recipient_address(number),
        "subject": f"Letter {number}",
        "body": "b",
        "from_email": "ana@bakery.example",
    }


def kill_during_requests(
    server: Server, requests: dict[int, tuple[str, Any]], wait: float
) -> dict[int, tuple[int, Any]]:
    """Send requests at once, kill the server `wait` seconds after the first response, and return the responses."""
    pending, api = PendingRequests(), server.client(validate=False)
    threads = [
        threading.Thread(target=pending.send, args=(api, number, *request)) for number, request in requests.items()
    ]
    for thread in threads:
        thread.start()
    pending.any_response.wait(10)
    time.sleep(wait)
    server.kill()
    for thread in threads:
        thread.join(10)
    server.start()
    return pending.responses


def test_acknowledged_messages_survive_a_kill(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """Each acknowledged message is sent, and each other request can be repeated with its key; all arrive once."""
    gate = smtp_server.rules.hold("connect")
    server, rng = relayed(), random.Random(1)
    rounds, repeated, survived = 25 if full else 3, 0, 0
    for round_number in range(rounds):
        requests = {
            number: ("/messages", message_body(number))
            for number in range(round_number * CONCURRENT, (round_number + 1) * CONCURRENT)
        }
        responses = kill_during_requests(server, requests, rng.choice((0, 0, 0.001, 0.005)))
        api = server.client(validate=False)
        for number, (path, body) in requests.items():
            repeated_response = api.post(path, body, {"Idempotency-Key": f"key-{number}"})
            if number in responses:
                assert responses[number][0] == 201 and repeated_response.status == 200
                assert repeated_response.json["id"] == responses[number][1]["id"]
                survived += 1
            else:
                assert repeated_response.status in (200, 201)
                repeated += 1
        conflict = api.post(
            "/messages",
            message_body(round_number) | {"subject": "other"},
            {"Idempotency-Key": f"key-{round_number * CONCURRENT}"},
        )
        assert (conflict.status, conflict.json["code"]) == (409, "idempotency_conflict")
    gate.release()
    smtp_server.wait_for(rounds * CONCURRENT)
    api.wait("/messages", lambda rows: all(row["status"] == "sent" for row in rows), limit=100)
    arrived = Counter(message.to for message in smtp_server.messages)
    count = rounds * CONCURRENT
    figures.note(size=count, kills=rounds, copies=arrived.total() - len(arrived), missing=count - len(arrived),
                 answered=survived, repeated=repeated)  # fmt: skip

    assert arrived == {recipient_address(number): 1 for number in range(count)}


def test_a_repeated_send_after_a_kill_is_one_campaign(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """After a kill during or after `send`, the repeated request returns the same audience, which gets the mail once."""
    gate = smtp_server.rules.hold("connect")
    server, rng = relayed(), random.Random(2)
    count, rounds, answered = 200, 25 if full else 3, 0
    list_id = create_list(server.client(), count)
    paths = []
    for round_number in range(rounds):
        path = create_campaign(server.client(validate=False), list_id, subject=f"Turn {round_number}")
        responses = kill_during_requests(server, {round_number: (f"{path}/send", {})}, rng.choice((0, 0.005)))
        answered += round_number in responses
        repeated = server.client(validate=False).post(f"{path}/send", {}, {"Idempotency-Key": f"key-{round_number}"})
        assert repeated.status == 200 and repeated.json["audience_count"] == count
        paths.append(path)
    for round_number in range(rounds):
        # Kill while the request is on its way or being processed
        path = create_campaign(server.client(validate=False), list_id, subject=f"Turn {rounds + round_number}")
        pending = PendingRequests()
        thread = threading.Thread(
            target=pending.send, args=(server.client(validate=False), 1000 + round_number, f"{path}/send", {})
        )
        thread.start()
        time.sleep(rng.uniform(0, 0.03))
        server.kill()
        thread.join(10)
        repeated = (
            server.start()
            .client(validate=False)
            .post(f"{path}/send", {}, {"Idempotency-Key": f"key-{1000 + round_number}"})
        )
        assert repeated.status == 200 and repeated.json["audience_count"] == count
        paths.append(path)
    gate.release()
    for path in paths:
        assert wait_until_completed(server.client(validate=False), path)["stats"]["sent"] == count
    expected = {
        (recipient_address(index), f"Turn {round_number}"): 1
        for index in range(count)
        for round_number in range(2 * rounds)
    }
    arrived = Counter((message.to, message.subject) for message in smtp_server.messages)
    figures.note(size=len(expected), kills=2 * rounds, copies=arrived.total() - len(arrived),
                 missing=len(expected) - len(arrived), answered=answered)  # fmt: skip

    assert arrived == expected
