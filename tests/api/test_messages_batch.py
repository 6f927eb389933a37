"""Batches of messages: a result for each, in order, on disk before the response (docs/decisions.md#7)."""

import base64
import threading
import time
from collections import Counter
from typing import Any

from appliance.api.messages import split_batch
from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server

MAIL = {"subject": "Order", "html": "<p>Thanks</p>"}


def mails(count: int, name: str) -> list[dict[str, Any]]:
    """Return messages to different recipients."""
    return [MAIL | {"to": f"{name}{number}@example.org", "data": {"number": number}} for number in range(count)]


def test_each_message_has_its_result(api: Client) -> None:
    """Valid messages are queued, and invalid ones have the errors of a single request, at their own fields."""
    api.post("/suppressions", {"address": "gone@example.org", "reason": "manual"}).expect(201)
    file = {"filename": "a.txt", "content": base64.b64encode(b"text").decode()}
    messages = [
        *mails(2, "fine"), {"to": "nobody", "html": "{{ broken", "cc": ["x"]}, 5, MAIL | {"to": "gone@example.org"},
        MAIL | {"to": "file@example.org", "attachments": [file], "note": 1},
        MAIL | {"to": "bad@example.org", "attachments": [file | {"filename": "a.exe"}]},
        {"channel": "sms", "to": "+12025550143", "body": "Thanks", "subject": "Order"},
    ]  # fmt: skip
    response = api.post("/messages/batch", {"messages": messages})
    results = response.expect(200)["results"]

    assert (response.json["queued"], response.json["rejected"]) == (4, 4)
    assert [result["status"] for result in results] == [201, 201, 422, 422, 422, 201, 422, 201]
    assert [result["message"]["to"] for result in results[:2]] == ["fine0@example.org", "fine1@example.org"]
    assert set(results[2]["errors"]) == {"to", "subject", "html", "cc[0]"}
    assert set(results[3]["errors"]) == {"base"}
    assert results[4]["reason"] == "recipient_suppressed"
    assert results[5]["message"]["attachments"][0]["filename"] == "a.txt"
    assert set(results[6]["errors"]) == {"attachments[0].filename"}
    assert {*response.headers["X-Ignored-Fields"].split(", ")} == {"messages[5].note", "messages[7].subject"}
    for result in (results[0], results[1], results[5]):
        api.wait(f"/messages/{result['message']['id']}", lambda row: row["status"] == "sent")


def test_a_repeated_batch_queues_nothing_again(api: Client) -> None:
    """The same key returns the same messages; another batch under it is a conflict; a message may have its own key."""
    own = MAIL | {"to": "own@example.org", "idempotency_key": "own-key"}
    body, key = {"messages": [*mails(3, "again"), own]}, {"Idempotency-Key": "batch-1"}
    first, second = (api.post("/messages/batch", body, key).expect(200)["results"] for _ in range(2))
    single = api.post("/messages", own)
    changed = api.post("/messages/batch", {"messages": mails(2, "again")}, key)

    assert [result["status"] for result in second] == [200] * 4
    assert [result["message"]["id"] for result in first] == [result["message"]["id"] for result in second]
    assert (single.status, single.json["id"]) == (200, first[3]["message"]["id"])
    assert (changed.status, changed.json["code"]) == (409, "idempotency_conflict")


def test_limits_of_a_batch(api: Client, server: Server) -> None:
    """At most 500 messages, 25 MB of files together, and the scope of single messages."""
    content = base64.b64encode(b"x" * 9_000_000).decode()
    files = [message | {"attachments": [{"filename": "a.bin", "content": content}]} for message in mails(3, "big")]
    reader = server.client(server.new_key("reader", "--scope", "messages:read"))

    error = api.post("/messages/batch", {"messages": mails(501, "many")}).expect(422)
    assert error["validation_errors"] == {"messages": ["is too long (maximum is 500 entries)"]}
    error = api.post("/messages/batch", {"messages": files}).expect(422)
    assert error["validation_errors"] == {"messages": ["is too large (maximum is 25 MB)"]}
    assert reader.post("/messages/batch", {"messages": mails(1, "x")}).expect(403)["required_scope"] == "messages:send"
    assert api.post("/messages/batch", {}).expect(422)["validation_errors"] == {"messages": ["can't be blank"]}
    assert api.post("/messages/batch", {"messages": []}).expect(200)["results"] == []


def test_each_recipient_counts_in_the_rate_limit(fresh_server: FreshServer) -> None:
    """A batch and a message with copies are admitted like one request, and use a token for each recipient."""
    server = fresh_server(env={"CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "600"})
    api = server.client()
    copies = [f"copy-{number}@example.org" for number in range(40)]
    message = api.post("/messages", MAIL | {"to": "first@example.org", "cc": copies[:20], "bcc": copies[20:]}).expect(
        201
    )
    first = api.post("/messages/batch", {"messages": mails(59, "rate")})
    refused = api.post("/messages", MAIL | {"to": "later@example.org"})

    assert len(message["recipients"]) == 41
    assert (first.status, first.headers["RateLimit-Remaining"]) == (200, "0")
    assert refused.status == 429 and 1 <= int(refused.headers["Retry-After"]) <= 10


def test_a_killed_batch_is_completed_by_its_repetition(fresh_server: FreshServer) -> None:
    """After a kill in the middle, the same request queues the rest, and every recipient has one message."""
    server = fresh_server()
    count = 200
    body, key = {"messages": mails(count, "kill")}, {"Idempotency-Key": "killed"}
    client = server.client(validate=False)

    def send() -> None:
        try:
            client.post("/messages/batch", body, key)
        except (OSError, AssertionError):
            return

    thread = threading.Thread(target=send)
    thread.start()
    reader = server.client()
    while int(reader.get("/messages", limit=1).headers["X-Total-Count"]) < 50:
        time.sleep(0.01)
    server.kill()
    thread.join(10)
    api = server.start().client()
    before = int(api.get("/messages", limit=1).headers["X-Total-Count"])
    results = api.post("/messages/batch", body, key).expect(200)["results"]

    statuses = Counter(result["status"] for result in results)
    assert statuses[200] == before and statuses[201] == count - before
    assert Counter(row["to"] for row in api.all("/messages")).most_common(1)[0][1] == 1
    assert int(api.get("/messages", limit=1).headers["X-Total-Count"]) == count


def test_copies_count_in_the_parts_of_a_batch() -> None:
    """A part has at most 25 recipients, or one message, so that no transaction is long for other accounts (T22)."""

    def parts(*copies: int) -> list[tuple[int, int]]:
        messages = [{"to": "a@example.org", "cc": ["c@example.org"] * number} for number in copies]
        return [(start, len(part)) for start, part in split_batch(messages)]

    assert parts(*[0] * 60) == [(0, 25), (25, 25), (50, 10)]
    assert parts(49, 49, 0, 0) == [(0, 1), (1, 1), (2, 2)]
    assert parts(11, 12, 0) == [(0, 2), (2, 1)] and parts() == []
    assert [len(part) for _, part in split_batch([None, {"cc": "x"}, {"bcc": [1] * 30}])] == [2, 1]
