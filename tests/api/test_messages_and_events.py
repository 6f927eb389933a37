"""Single messages, events, and idempotency (docs/decisions.md#4, #7, #13)."""

import threading

import pytest

from tests.kit.client import Client

MAIL = {"to": "solo@example.org", "subject": "Receipt {{ data.number }}", "body": "<p>No. {{ data.number }}</p>",
        "data": {"number": 7}}  # fmt: skip


def test_send_a_single_message(api: Client) -> None:
    """A message is queued, then sent, with its content, tags, headers and events."""
    message = api.post("/messages", MAIL | {"tags": {"kind": "receipt"}, "headers": {"X-Order": "7"}}).expect(201)
    done = api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")

    assert (message["status"], message["source_type"], message["transactional"], message["contact_id"]) == (
        "queued", "transactional", True, None,
    )  # fmt: skip
    assert (done["subject"], done["tags"], done["headers"]) == ("Receipt 7", {"kind": "receipt"}, {"X-Order": "7"})
    assert "No. 7" in done["html"] and "No. 7" in done["text"]
    assert "nsubscribe" not in done["html"]
    assert [event["event"] for event in done["events"]] == ["email_sent"]
    assert done["internet_message_id"].endswith("@campanero.invalid")


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"to", "subject", "body"}),
        ({"to": "solo@example.org"}, {"subject", "body"}),
        ({"to": "nope", "subject": "x", "body": "y"}, {"to"}),
        ({"to": "a@x.org\r\nBcc: b@y.org", "subject": "x", "body": "y"}, {"to"}),
        (MAIL | {"subject": "a\nb"}, {"subject"}),
        (MAIL | {"body": "{{ broken"}, {"body"}),
        (MAIL | {"headers": {"Bcc": "x@y.org"}}, {"headers.Bcc"}),
        (MAIL | {"headers": {"X-A": "a\r\nBcc: x"}}, {"headers.X-A"}),
        (MAIL | {"channel": "fax"}, {"channel"}),
        (MAIL | {"template_id": 4242}, {"template_id"}),
        (MAIL | {"from_email": "no at"}, {"from_email"}),
        (MAIL | {"send_at": "tomorrow"}, {"send_at"}),
    ],
)
def test_invalid_messages_are_rejected(api: Client, body: dict[str, object], fields: set[str]) -> None:
    """Errors are reported at their fields, and nothing is queued."""
    before = api.get("/messages").headers["X-Total-Count"]

    assert set(api.post("/messages", body).expect(422)["validation_errors"]) == fields
    assert api.get("/messages").headers["X-Total-Count"] == before


def test_idempotency_key_of_a_message(api: Client) -> None:
    """The same key and payload return the first message; another payload is a 409; the key may be in header or body."""
    first = api.post("/messages", MAIL, {"Idempotency-Key": "order-7"}).expect(201)
    again = api.post("/messages", MAIL, {"Idempotency-Key": "order-7"})
    in_body = api.post("/messages", MAIL | {"idempotency_key": "order-7"})
    other = api.post("/messages", MAIL | {"subject": "Other"}, {"Idempotency-Key": "order-7"})

    assert (again.status, again.json["id"], again.headers["Idempotent-Replayed"]) == (200, first["id"], "true")
    assert (in_body.status, in_body.json["id"]) == (200, first["id"])
    assert (other.status, other.json["code"]) == (409, "idempotency_conflict")
    assert first["idempotency_key"] == "order-7"
    assert api.post("/messages", MAIL, {"Idempotency-Key": "x" * 256}).status == 422


def test_twenty_parallel_repeats_are_one_message(api: Client) -> None:
    """Parallel requests with one key create one message."""
    numbers: list[int] = []

    def ask() -> None:
        numbers.append(api.post("/messages", MAIL, {"Idempotency-Key": "race"}).json["id"])

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(numbers) == 20 and len(set(numbers)) == 1


def test_a_failed_request_is_not_remembered(api: Client) -> None:
    """A key of a failed request can be used again."""
    assert api.post("/messages", MAIL | {"to": "nope"}, {"Idempotency-Key": "retry"}).status == 422
    assert api.post("/messages", MAIL, {"Idempotency-Key": "retry"}).status == 201


def test_idempotency_key_of_a_send(api: Client) -> None:
    """A repeated send returns the campaign as it is now, and sends nothing."""
    list_id = api.post("/lists", {"name": "Repeat"}).json["id"]
    api.post("/contacts", {"email": "repeat@example.org", "list_ids": [list_id]})
    campaign = api.post("/campaigns", {"name": "R", "template_attributes": {"subject": "s", "body": "b"}}).json
    body = {"trigger_attributes": {"contact_list_id": list_id}}
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send", body, {"Idempotency-Key": "k"}).expect(200)
    api.wait(path, lambda row: row["status"] == "completed")
    again = api.post(f"{path}/send", body, {"Idempotency-Key": "k"})

    assert (again.status, again.json["status"], again.headers["Idempotent-Replayed"]) == (200, "completed", "true")
    assert len(api.get("/messages", campaign_id=campaign["id"]).json) == 1


def test_marketing_needs_consent(api: Client) -> None:
    """A marketing message to a stranger is stored as skipped and rejected."""
    error = api.post("/messages", MAIL | {"to": "stranger@example.org", "transactional": False}).expect(422)
    row = api.get(f"/messages/{error['message_id']}").expect(200)

    assert (error["reason"], error["skip_reason"]) == ("recipient_suppressed", "no_consent")
    assert (row["status"], row["skip_reason"]) == ("skipped", "no_consent")


def test_marketing_has_an_unsubscribe_link(api: Client) -> None:
    """A single marketing email has a footer with the unsubscribe link."""
    api.post("/contacts", {"email": "agreed@example.org"}).expect(201)
    message = api.post("/messages", MAIL | {"to": "agreed@example.org", "transactional": False}).expect(201)
    done = api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")

    assert "/u/" in done["html"] and "/u/" in done["text"]


def test_a_message_for_later_is_held(api: Client) -> None:
    """A message with a future `send_at` is held until then."""
    message = api.post("/messages", MAIL | {"send_at": "2099-05-01T10:00:00Z"}).expect(201)

    assert (message["status"], message["next_attempt_at"]) == ("held", "2099-05-01T10:00:00.000Z")


def test_message_filters(api: Client) -> None:
    """Each filter returns the matching messages; an unknown status is an error."""
    message = api.post("/messages", MAIL | {"to": "filter-me@example.org"}).expect(201)

    assert [row["id"] for row in api.get("/messages", to="Filter-me@example.org").json] == [message["id"]]
    assert message["id"] in [row["id"] for row in api.get("/messages", source_type="transactional", limit=100).json]
    assert api.get("/messages", status="lost").status == 422
    assert api.get("/messages", created_after="2099-01-01").json == []


def test_clients_record_events(api: Client) -> None:
    """An event is stored with its fields; `create_contact` creates a contact that is not subscribed."""
    body = {"event": "order_paid", "contact_email": "buyer@example.org", "create_contact": True, "amount": 12.5,
            "data": {"sku": "a1"}, "resource_uid": "order:1", "utm_source": "letter"}  # fmt: skip
    event = api.post("/events", body).expect(201)
    contact = api.get(f"/contacts/{event['contact_id']}").expect(200)

    assert (event["amount"], event["data"], event["generated"], event["chain_depth"]) == (12.5, {"sku": "a1"}, False, 0)
    assert (contact["subscribed_email"], contact["last_interacted_at"] is not None) == (False, True)
    assert [row["id"] for row in api.get("/events", event="order_paid", resource_uid="order:1").json] == [event["id"]]
    assert api.get(f"/events/{event['id']}").expect(200) == event


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"contact_id": 1}, "event", "can't be blank"),
        ({"event": "email_sent", "contact_id": 1}, "event", "is reserved"),
        ({"event": "Order Paid", "contact_id": 1}, "event", "is invalid"),
        ({"event": "order_paid"}, "contact_id", "can't be blank"),
        ({"event": "order_paid", "contact_email": "unknown@example.org"}, "contact_email", "must exist"),
        ({"event": "order_paid", "contact_id": 999999}, "contact_id", "must exist"),
        ({"event": "order_paid", "contact_id": 1, "created_at": "2001-01-01T00:00:00Z"}, "created_at", "is invalid"),
    ],
)
def test_invalid_events_are_rejected(api: Client, body: dict[str, object], field: str, message: str) -> None:
    """Each error is reported at its field."""
    api.post("/contacts", {"email": "first@example.org"})
    assert message in api.post("/events", body).expect(422)["validation_errors"][field]


def test_an_event_is_recorded_once_per_key(api: Client) -> None:
    """A repeat returns the first event; the key is separate for each event name."""
    contact = api.post("/contacts", {"email": "keyed@example.org"}).json["id"]
    body = {"event": "checkout", "contact_id": contact, "idempotency_key": "c-1"}
    first = api.post("/events", body).expect(201)
    again = api.post("/events", {"event": "checkout", "contact_id": contact}, {"Idempotency-Key": "c-1"})
    other = api.post("/events", body | {"data": {"x": 1}})

    assert (again.status, again.json["id"], again.headers["Idempotent-Replayed"]) == (200, first["id"], "true")
    assert other.status == 409
    assert api.post("/events", body | {"event": "cart_add"}).status == 201
