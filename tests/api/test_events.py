"""Events that clients send: parsed fields, idempotency, batches and retention."""

import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.clock import TestClock
from tests.kit.server import Server

PHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 "
    "Mobile/15E148 Safari/604.1"
)


@pytest.fixture(scope="module")
def contact_id(api: Client) -> int:
    """Return the id of a contact."""
    number: int = api.post("/contacts", {"email": "seen@example.org"}).expect(201)["id"]
    return number


def time_ago(**back: float) -> str:
    """Return a time before now in ISO 8601."""
    return (datetime.now(UTC) - timedelta(**back)).isoformat(timespec="milliseconds")


def starts_no_flow(server: Server, number: int) -> bool:
    """Return whether an event is marked to start no flow."""
    with closing(sqlite3.connect(server.data / "campanero.db")) as database:
        return bool(database.execute("SELECT quiet FROM event WHERE id = ?", (number,)).fetchone()[0])


def post_in_parallel(api: Client, count: int, path: str, body: Any) -> list[Response]:
    """Post the same body `count` times in parallel and return the responses."""
    responses: list[Response] = []
    threads = [threading.Thread(target=lambda: responses.append(api.post(path, body))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return responses


def test_client_fields_of_an_event(api: Client, contact_id: int) -> None:
    """User agent, referrer and UTM parameters are stored and parsed; only the network of an IP address is stored."""
    event = api.post("/events", {
        "event": "product_view", "contact_id": contact_id, "ip": "198.51.100.77", "user_agent": PHONE,
        "referrer": "https://search.example/?q=shoes",
        "resource_url": "https://shop.example/shoes?utm_source=letter&utm_medium=email&utm_campaign=May%20sale",
        "utm_medium": "mail",
    }).expect(201)  # fmt: skip

    assert (event["ip"], event["user_agent"], event["referrer"]) == (
        "198.51.100.0", PHONE, "https://search.example/?q=shoes",
    )  # fmt: skip
    assert (event["browser"], event["os"], event["device_type"]) == ("Safari", "iOS", "mobile")
    assert (event["utm_source"], event["utm_medium"], event["utm_campaign"]) == ("letter", "mail", "May sale")
    assert api.get(f"/events/{event['id']}").expect(200) == event


@pytest.mark.parametrize(
    ("how", "kept"),
    [("full", ["198.51.100.77", "2001:db8:1:2::9"]), ("truncated", ["198.51.100.0", "2001:db8:1::"]),
     ("none", [None, None])],
)  # fmt: skip
def test_privacy_ip(api: Client, contact_id: int, how: str, kept: list[str | None]) -> None:
    """The account stores whole IP addresses, truncated ones or none, for single events and batches."""
    before = api.get("/account").expect(200)["privacy_ip"]
    api.patch("/account", {"privacy_ip": how}).expect(200)
    bodies = [{"event": "seen_from", "contact_id": contact_id, "ip": ip} for ip in ("198.51.100.77", "2001:db8:1:2::9")]
    assert api.post("/events", bodies[0]).expect(201)["ip"] == kept[0]
    api.post("/events/batch", {"events": bodies}).expect(200)
    assert [row["ip"] for row in api.get("/events", event="seen_from", limit=2).json] == kept[::-1]
    api.patch("/account", {"privacy_ip": before}).expect(200)


def test_client_fields_are_not_taken_from_the_request(api: Client, contact_id: int) -> None:
    """The IP address and user agent of the API request are not stored."""
    event = api.post("/events", {"event": "checkout", "contact_id": contact_id}, {"User-Agent": PHONE}).expect(201)
    assert {event[name] for name in ("ip", "user_agent", "browser", "os", "device_type", "referrer")} == {None}


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"ip": "here"}, "ip", "is invalid"),
        ({"user_agent": "a\r\nb"}, "user_agent", "is invalid"),
        ({"user_agent": "x" * 1001}, "user_agent", "is too long (maximum is 1000 characters)"),
        ({"referrer": "x" * 2001}, "referrer", "is too long (maximum is 2000 characters)"),
        ({"idempotency_key": "a\tb"}, "idempotency_key", "is invalid"),
        ({"idempotency_key": ""}, "idempotency_key", "is invalid"),
        ({"created_at": time_ago(days=366)}, "created_at", "is invalid"),
        ({"created_at": time_ago(days=-1)}, "created_at", "is invalid"),
        ({"amount": "12"}, "amount", "is not a number"),
        ({"data": []}, "data", "is invalid"),
        ({"data": {"x": "y" * 40_000}}, "data", "is too long (maximum is 32768 bytes)"),
    ],
)
def test_invalid_event_fields_are_rejected(
    api: Client, contact_id: int, body: dict[str, Any], field: str, message: str
) -> None:
    """Each error is reported at its field, and nothing is recorded."""
    before = api.get("/events").headers["X-Total-Count"]
    errors = api.post("/events", {"event": "cart_add", "contact_id": contact_id, **body}).expect(422)[
        "validation_errors"
    ]
    assert errors == {field: [message]}
    assert api.get("/events").headers["X-Total-Count"] == before


def test_all_event_errors_are_reported_at_once(api: Client) -> None:
    """Errors of name, time, contact and IP address are reported together."""
    body = {"event": "email_sent", "contact_id": 99_999, "created_at": "1999-01-01T00:00:00Z", "ip": "x"}
    assert set(api.post("/events", body).expect(422)["validation_errors"]) == {
        "event",
        "contact_id",
        "created_at",
        "ip",
    }


@pytest.mark.parametrize(
    ("body", "starts"),
    [
        ({}, True), ({"created_at": time_ago(minutes=50)}, True), ({"created_at": time_ago(minutes=70)}, False),
        ({"created_at": time_ago(days=300), "trigger": True}, True), ({"trigger": False}, False),
    ],
)  # fmt: skip
def test_old_events_start_no_flow(
    api: Client, server: Server, contact_id: int, body: dict[str, Any], starts: bool
) -> None:
    """An event that is over an hour old starts no flow, unless `trigger` says so."""
    event = api.post("/events", {"event": "order_paid", "contact_id": contact_id, **body}).expect(201)
    assert starts_no_flow(server, event["id"]) is not starts


def test_test_events_are_no_interactions(api: Client, server: Server) -> None:
    """A test event does not set the contact's last interaction; events of a test key are tests."""
    contact = api.post("/contacts", {"email": "unseen@example.org"}).expect(201)["id"]
    tester = server.client(server.new_key("tester", "--test"))
    first = api.post("/events", {"event": "checkout", "contact_id": contact, "test": True}).expect(201)
    second = tester.post("/events", {"event": "checkout", "contact_id": contact}).expect(201)

    assert (first["test"], second["test"]) == (True, True)
    assert api.get(f"/contacts/{contact}").json["last_interacted_at"] is None
    assert {row["id"] for row in api.get("/events", test="true", contact_id=contact).json} == {
        first["id"],
        second["id"],
    }
    assert api.get("/events", test="false", event="checkout", contact_id=contact).json == []


def create_flow(api: Client, event: str) -> int:
    """Create an active flow that an event starts and in which contacts wait."""
    body = {"trigger": {"event": event}, "steps": [{"duration": 86_400}], "status": "active"}
    return int(api.post("/flows", body).expect(201)["id"])


def test_a_hundred_parallel_repeats_are_one_event(api: Client, contact_id: int) -> None:
    """One response is 201, the others are 200 with the same event, which starts the flow once (T44)."""
    shipped, marker = create_flow(api, "order_shipped"), create_flow(api, "marker")
    body = {"event": "order_shipped", "contact_id": contact_id, "idempotency_key": "ship-1", "data": {"parcel": 1}}
    late = {"event": "order_shipped", "contact_email": "late@example.org", "create_contact": True,
            "created_at": time_ago(hours=2)}  # fmt: skip
    api.post("/events", late).expect(201)
    responses = post_in_parallel(api, 100, "/events", body)
    api.post("/events", {"event": "marker", "contact_id": contact_id}).expect(201)

    assert sorted(response.status for response in responses) == [200] * 99 + [201]
    assert len({response.json["id"] for response in responses}) == 1
    assert api.get("/events", event="order_shipped", contact_id=contact_id).headers["X-Total-Count"] == "1"
    # A later event has had its effect, so this one has had its own
    api.wait(f"/flows/{marker}", lambda row: row["stats"]["entered"] == 1)
    row = api.get(f"/flows/{shipped}").expect(200)
    assert (row["stats"]["entered"], row["triggered_count"]) == (1, 1)


def test_a_repeat_after_a_merge_or_delete(api: Client) -> None:
    """A repeat returns the first event even if its contact was merged or deleted, and creates no contact."""
    contact_id, other = (
        api.post("/contacts", {"email": f"{name}@example.org"}).expect(201)["id"] for name in ("one", "two")
    )
    merged = {"event": "cart_add", "contact_id": other, "idempotency_key": "m"}
    gone = {"event": "cart_add", "contact_email": "gone@example.org", "create_contact": True, "idempotency_key": "g"}
    first = [api.post("/events", body).expect(201)["id"] for body in (merged, gone)]
    api.post(f"/contacts/{contact_id}/merge", {"contact_id": other}).expect(200)
    left = api.get("/contacts", search="gone@example.org").json[0]["id"]
    api.delete(f"/contacts/{left}").expect(200)

    assert [api.post("/events", body).expect(200)["id"] for body in (merged, gone)] == first
    assert api.get("/contacts", search="gone@example.org").json == []
    assert api.post("/events", merged | {"contact_id": 99_999, "data": {"x": 1}}).status == 409


@pytest.mark.parametrize("change", [{"data": {"n": 2}}, {"amount": 3}, {"utm_source": "x"}, {"test": True},
                                    {"created_at": time_ago(minutes=5)}, {"user_agent": PHONE}])  # fmt: skip
def test_an_idempotency_key_with_another_payload(api: Client, contact_id: int, change: dict[str, Any]) -> None:
    """A different payload with the same key is a conflict, whose message is a sentence."""
    body = {"event": "cart_remove", "contact_id": contact_id, "idempotency_key": "r", "data": {"n": 1.0}}
    api.post("/events", body)
    assert api.post("/events", body | {"data": {"n": 1}}).expect(200)["data"] == {"n": 1.0}
    error = api.post("/events", body | change).expect(409)
    assert error["code"] == "idempotency_conflict"
    assert error["message"] == "This idempotency_key was used for another event."


def test_a_batch_of_events(api: Client, contact_id: int) -> None:
    """Valid events are recorded, repeats counted, errors reported by index, and unknown keys named."""
    good = {"event": "bulk", "contact_id": contact_id}
    response = api.post("/events/batch", {"events": [
        good, good | {"idempotency_key": "b-1"}, {"event": "Bulk!", "contact_id": 99_999}, "no object",
        good | {"idempotency_key": "b-1"}, good | {"idempotency_key": "b-1", "amount": 2},
        {"event": "bulk", "contact_email": "brought@example.org", "create_contact": True, "utm_sorce": "x"},
        {"event": "bulk", "contact_email": "unknown@example.org"}, {"amount": "x"}, None,
    ]})  # fmt: skip
    done = response.expect(200)

    assert (done["created"], done["repeated"]) == (3, 1)
    assert {error["index"]: error["validation_errors"] for error in done["errors"]} == {
        2: {"event": ["is invalid"], "contact_id": ["must exist"]}, 3: {"base": ["is invalid"]},
        5: {"idempotency_key": ["has already been taken"]}, 7: {"contact_email": ["must exist"]},
        8: {"event": ["can't be blank"], "amount": ["is not a number"], "contact_id": ["can't be blank"]},
        9: {"base": ["is invalid"]},
    }  # fmt: skip
    assert [error["code"] for error in done["errors"]][2] == "idempotency_conflict"
    assert response.headers["X-Ignored-Fields"] == "events[6].utm_sorce"
    assert api.get("/events", event="bulk").headers["X-Total-Count"] == "3"
    brought = api.get("/contacts", search="brought@example.org").json
    assert [contact["subscribed_email"] for contact in brought] == [False]


def test_a_whole_batch_may_be_repeated(api: Client, contact_id: int) -> None:
    """A batch that is sent in parallel and again is recorded once, in its order."""
    body = {"events": [{"event": "import_row", "contact_id": contact_id, "idempotency_key": f"i{number}",
                        "resource_uid": f"row:{number}"} for number in range(1_000)]}  # fmt: skip
    responses = [response.expect(200) for response in post_in_parallel(api, 3, "/events/batch", body)]
    again = api.post("/events/batch", body).expect(200)

    assert sorted(response["created"] for response in responses) == [0, 0, 1_000]
    assert again == {"created": 0, "repeated": 1_000, "errors": []}
    newest = api.get("/events", event="import_row", limit=100)
    assert newest.headers["X-Total-Count"] == "1000"
    assert [row["resource_uid"] for row in newest.json] == [f"row:{number}" for number in range(999, 899, -1)]


@pytest.mark.parametrize(
    ("events", "message"),
    [("x", "is invalid"), ({}, "is invalid"), (None, "can't be blank"),
     ([{}] * 1_001, "is too long (maximum is 1000 entries)")],
)  # fmt: skip
def test_invalid_batches_are_rejected(api: Client, events: Any, message: str) -> None:
    """A batch that is not a list of at most 1000 events is rejected as a whole; an empty one is valid."""
    assert api.post("/events/batch", {"events": []}).expect(200) == {"created": 0, "repeated": 0, "errors": []}
    assert api.post("/events/batch", {"events": events}).expect(422)["validation_errors"]["events"] == [message]


def test_a_repeat_with_large_numbers(api: Client, contact_id: int) -> None:
    """An event with numbers beyond 64 bits is recognized as a repeat."""
    body = {"event": "cart_add", "contact_id": contact_id, "idempotency_key": "n",
            "data": {"whole": 10**30, "exact": 2**63, "part": 0.1, "words": "\U0001f600"}}  # fmt: skip
    first = api.post("/events", body).expect(201)
    assert api.post("/events", body).expect(200)["id"] == first["id"]


def test_read_only_event_fields_are_ignored(api: Client, contact_id: int) -> None:
    """A client cannot set fields of the service, nor send events with reserved names."""
    body = {"event": "product_view", "contact_id": contact_id, "generated": True, "chain_depth": 4, "user_id": 1,
            "browser": "Mine", "account_id": 2}  # fmt: skip
    response = api.post("/events", body)
    created = response.expect(201)
    assert (created["generated"], created["chain_depth"], created["user_id"], created["browser"]) == (
        False,
        0,
        None,
        None,
    )
    assert "chain_depth" in response.headers["X-Ignored-Fields"]
    assert api.post("/events/batch", {"events": [body | {"event": "flow_goal"}]}).json["errors"][0][
        "validation_errors"
    ] == {"event": ["is reserved"]}


def test_old_events_are_deleted(fresh_server: FreshServer, clock: TestClock) -> None:
    """With `events.keep = 30d` the running service deletes older events, and the doctor reports no problem."""
    server = fresh_server(clock=clock, env={"CAMPANERO_EVENTS__KEEP": "30d"})
    api = server.client()
    response = api.post("/events", {"event": "checkout", "contact_email": "x@example.org", "create_contact": True})
    clock.advance(days=29)
    assert api.get(f"/events/{response.expect(201)['id']}").status == 200
    clock.advance(days=2)
    api.wait("/events", lambda rows: rows == [])
    assert api.get(f"/events/{response.json['id']}").status == 404
    server.cli("doctor")
