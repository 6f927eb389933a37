"""Webhooks over the API: settings, deliveries, retries, test requests, secrets and network rules."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.dns import DnsServer
from tests.kit.server import Server
from tests.kit.webhook_receiver import Receiver, is_signed_by

UNREACHED = "no answer: the address cannot be reached within 5 seconds, or is not public"


@pytest.fixture(scope="module")
def dns_server() -> Iterator[DnsServer]:
    """Yield a DNS server without records."""
    with DnsServer() as running:
        yield running


@pytest.fixture(scope="module")
def server(dns_server: DnsServer) -> Iterator[Server]:
    """Yield a server that may send webhooks to this machine."""
    with Server(env={"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1", **dns_server.env}).set_up() as running:
        yield running
        running.stop()


@pytest.fixture
def hook(api: Client, receiver: Receiver, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Yield a webhook for one event that is named after the test; it is deleted afterwards."""
    receiver.respond_with()
    name = request.node.name.partition("[")[0][:60]
    webhook = api.post("/webhooks", {"url": receiver.url, "events": [name]}).expect(201)
    yield webhook
    if api.get(f"/webhooks/{webhook['id']}").status == 200:
        api.send("DELETE", f"/webhooks/{webhook['id']}").expect(200)


def record_event(api: Client, hook: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Record the event of a webhook."""
    body = {"event": hook["events"][0], "contact_email": "ann@example.org", "create_contact": True, **more}
    return api.post("/events", body).expect(201)


def wait_for_delivery(api: Client, hook: dict[str, Any], event: dict[str, Any], status: str) -> dict[str, Any]:
    """Wait until the delivery of an event has a status, and return it."""
    path = f"/webhooks/{hook['id']}/deliveries"
    return api.wait(path, lambda rows: bool(rows) and rows[0]["status"] == status, event_id=event["id"])[0]


def webhook_id_of(delivery: dict[str, Any]) -> str:
    """Return the `webhook-id` of a delivery: its id and creation time, because ids repeat after a restore."""
    moment = datetime.fromisoformat(delivery["created_at"])
    return f"msg_{delivery['id']}_{round(1000 * moment.timestamp())}"


def test_an_event_is_delivered_and_signed(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """The body is the event as the API returns it, with a unique id, signed with the secret."""
    event = record_event(api, hook, data={"size": "ü"})
    result = wait_for_delivery(api, hook, event, "delivered")
    (request,) = [request for request in receiver.requests if request.event["id"] == event["id"]]
    assert request.event == api.get(f"/events/{event['id']}").json
    assert request.name == webhook_id_of(result) and request.headers["content-type"] == "application/json"
    assert is_signed_by(hook["secret"], request.headers, request.body)
    assert not is_signed_by(hook["secret"], request.headers, request.body + b" ")
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", hook["secret"])
    assert (result["attempts"], result["response_status"], result["error"], result["event"]) == (
        1, 200, None, event["event"],
    )  # fmt: skip
    assert result["next_attempt_at"] is None and result["duration_ms"] is not None
    assert api.get(f"/webhooks/{hook['id']}/deliveries/{result['id']}").json == result


def test_the_secret_is_shown_once(api: Client, server: Server, hook: dict[str, Any]) -> None:
    """No other response, and no file of the database, contains the secret."""
    secret = hook["secret"]
    for path in (f"/webhooks/{hook['id']}", "/webhooks"):
        assert secret not in api.get(path).text
    patched = api.send("PATCH", f"/webhooks/{hook['id']}", {"events": hook["events"]})
    assert patched.expect(200)["events"] == hook["events"] and secret not in patched.text
    stored = b"".join(path.read_bytes() for path in server.data.glob("campanero.db*"))
    assert secret.removeprefix("whsec_").encode() not in stored and secret not in server.output


def test_both_secrets_sign_after_a_rotation(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """After a rotation a delivery has a signature of each secret."""
    rotated = api.post(f"/webhooks/{hook['id']}/rotate_secret").expect(200)
    assert rotated["secret"] != hook["secret"] and rotated["old_secret_until"] is not None
    event = record_event(api, hook)
    wait_for_delivery(api, hook, event, "delivered")
    request = receiver.requests[-1]
    assert len(request.headers["webhook-signature"].split(" ")) == 2
    assert all(is_signed_by(secret, request.headers, request.body) for secret in (hook["secret"], rotated["secret"]))


def test_a_webhook_gets_only_its_events(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """Events with other names, and those before its creation or while it is disabled, are not delivered."""
    before = len(receiver.requests)
    api.post("/events", {"event": "something_else", "contact_email": "ann@example.org", "create_contact": True})
    record_event(api, hook)
    api.send("PATCH", f"/webhooks/{hook['id']}", {"enabled": False}).expect(200)
    off = record_event(api, hook)
    on = api.send("PATCH", f"/webhooks/{hook['id']}", {"enabled": True}).expect(200)
    assert on["disabled_at"] is None
    last = record_event(api, hook)
    wait_for_delivery(api, hook, last, "delivered")
    late = api.post("/webhooks", {"url": f"{receiver.url}/late", "events": hook["events"]}).expect(201)
    final = record_event(api, hook)
    wait_for_delivery(api, late, final, "delivered")
    wait_for_delivery(api, hook, final, "delivered")
    api.send("DELETE", f"/webhooks/{late['id']}").expect(200)
    came = [(request.path, request.event["id"]) for request in receiver.requests[before:]]
    assert ("/hook/late", final["id"]) in came and len([path for path, _ in came if path == "/hook/late"]) == 1
    assert off["id"] not in [number for _, number in came]
    assert {request.event["event"] for request in receiver.requests[before:]} == set(hook["events"])


def test_a_webhook_for_all_events(api: Client, receiver: Receiver) -> None:
    """Without names, or with `*`, all events are delivered, also those of the service."""
    assert api.post("/webhooks", {"url": receiver.url, "events": ["*", "opt_in"]}).expect(201)["events"] == []
    hook = api.get("/webhooks").expect(200)[0]
    api.post("/contacts", {"email": "newcomer@example.org"}).expect(201)
    api.wait(
        f"/webhooks/{hook['id']}/deliveries",
        lambda rows: "contact_add" in [row["event"] for row in rows if row["status"] == "delivered"],
    )
    api.send("DELETE", f"/webhooks/{hook['id']}").expect(200)
    assert api.get(f"/webhooks/{hook['id']}").status == 404
    assert api.get(f"/webhooks/{hook['id']}/deliveries").status == 404


def test_send_a_test_request(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """The response shows the receiver's reply; it is not in the log, and works while the webhook is disabled."""
    receiver.respond_with(418, "I am a teapot \x07")
    api.send("PATCH", f"/webhooks/{hook['id']}", {"enabled": False}).expect(200)
    tried = api.post(f"/webhooks/{hook['id']}/test").expect(200)
    assert (tried["ok"], tried["response_status"], tried["response_text"]) == (False, 418, "I am a teapot �")
    request = receiver.requests[-1]
    assert request.event == tried["event"] and request.event["event"] == hook["events"][0]
    assert request.event["test"] is True and is_signed_by(hook["secret"], request.headers, request.body)
    receiver.respond_with()
    tried = api.post(f"/webhooks/{hook['id']}/test", {"event": "order_paid"}).expect(200)
    assert tried["ok"] and tried["event"]["event"] == "order_paid"
    assert api.get(f"/webhooks/{hook['id']}/deliveries").json == []
    error = api.post(f"/webhooks/{hook['id']}/test", {"event": "No Name"})
    assert error.status == 422 and error.json["validation_errors"] == {"event": ["is invalid"]}


def test_retry_and_replay_a_failed_delivery(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """The log has reply and next attempt; a replay delivers at once with the same id."""
    receiver.respond_with(500, "broken")
    event = record_event(api, hook)
    path = f"/webhooks/{hook['id']}/deliveries"
    failed = api.wait(path, lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert (failed["status"], failed["response_status"], failed["response_text"]) == ("pending", 500, "broken")
    assert failed["next_attempt_at"] > failed["last_attempt_at"]
    failing = api.get(f"/webhooks/{hook['id']}").json
    assert failing["failing_since"] is not None and failing["pending_count"] == 1
    receiver.respond_with()
    api.post(f"{path}/{failed['id']}/replay").expect(200)
    done = wait_for_delivery(api, hook, event, "delivered")
    assert api.get(f"/webhooks/{hook['id']}").json["failing_since"] is None
    again = api.post(f"{path}/{done['id']}/replay").expect(200)
    assert again["status"] == "pending" and again["attempts"] == 0
    wait_for_delivery(api, hook, event, "delivered")
    names = [request.name for request in receiver.requests if request.event["id"] == event["id"]]
    assert names == [webhook_id_of(failed)] * 3
    api.send("PATCH", f"/webhooks/{hook['id']}", {"enabled": False}).expect(200)
    assert api.post(f"{path}/{done['id']}/replay").status == 422
    assert api.post(f"{path}/987654/replay").status == 404


@pytest.mark.parametrize(
    "options", [("account:write",), ("account:write,events:read", "--test")], ids=["narrow", "test"]
)
def test_events_are_posted_only_for_keys_that_may_read_all(
    options: tuple[str, ...], api: Client, server: Server, receiver: Receiver, hook: dict[str, Any]
) -> None:
    """A key without `events:read`, and a test key, can stop a webhook, but not start or redirect it (T45)."""
    key, path = server.client(server.new_key("narrow", "--scope", *options)), f"/webhooks/{hook['id']}"
    delivery = wait_for_delivery(api, hook, record_event(api, hook), "delivered")
    refused = [
        key.post("/webhooks", {"url": receiver.url}),
        key.patch(path, {"url": receiver.url}), key.patch(path, {"events": []}), key.patch(path, {"events": None}),
        key.patch(path, {"enabled": True}), key.patch(path, {"enabled": None}),
        key.post(f"{path}/replay_failed"), key.post(f"{path}/deliveries/{delivery['id']}/replay"),
    ]  # fmt: skip
    scope = "events:read" if len(options) == 1 else None
    assert [response.expect(403).get("required_scope") for response in refused] == [scope] * len(refused)
    assert key.patch(path, {"enabled": False}).expect(200)["enabled"] is False
    assert api.get(path).expect(200)["url"] == hook["url"]


def test_a_redirect_is_a_failure(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """A redirect is not followed, and the delivery is retried."""
    receiver.respond_with(302, "", Location=f"{receiver.url}/elsewhere")
    event = record_event(api, hook)
    result = api.wait(f"/webhooks/{hook['id']}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert (result["event_id"], result["response_status"], result["status"]) == (event["id"], 302, "pending")
    assert [request.path for request in receiver.requests if request.event["id"] == event["id"]] == ["/hook"]


def test_410_disables_the_webhook(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """A 410 reply disables the webhook, which is recorded as an event."""
    receiver.respond_with(410)
    record_event(api, hook)
    off = api.wait(f"/webhooks/{hook['id']}", lambda row: not row["enabled"])
    assert off["disabled_reason"] == "gone" and off["disabled_at"] is not None
    result = api.get("/events", event="webhook_disabled").expect(200)[0]
    assert result["data"]["webhook_id"] == hook["id"] and result["data"]["reason"] == "gone"


def test_retry_after_of_a_receiver(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """The next attempt is as late as the receiver's Retry-After."""
    receiver.respond_with(429, "", Retry_After="3600")
    record_event(api, hook)
    result = api.wait(f"/webhooks/{hook['id']}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert result["next_attempt_at"][:13] > result["last_attempt_at"][:13]


@pytest.mark.parametrize("url", [
    "http://localhost:{port}/", "http://127.1:{port}/", "http://10.0.0.1/", "http://[::1]/", "http://2130706433/",
    "http://0x7f000001/", "https://8.8.8.8:22/", "https://a:b@example.org/", "https://[::ffff:127.0.0.2]/",
    "http://169.254.169.254/latest", "ftp://example.org/", "file:///etc/passwd", "gopher://example.org/", "x", "",
    "https://", "https://example.org:99999/", "https://exa mple.org/", "https://example.org/\u0000",
    "http://１０.０.０.１/", "http://①⓪.0.0.1/", "https://.example.org/",
])  # fmt: skip
def test_invalid_webhook_urls_are_rejected(url: str, api: Client, receiver: Receiver) -> None:
    """A URL that can never be a public web address is a 422 (T28)."""
    error = api.post("/webhooks", {"url": url.format(port=receiver.port)})
    assert error.status == 422 and set(error.json["validation_errors"]) == {"url"}, error.text


@pytest.mark.parametrize("url", ["https://пример.рф/a", "http://bücher.example:80/", "https://[2606:4700::1111]/x"])
def test_international_webhook_urls(url: str, api: Client) -> None:
    """International domain names and public IP addresses are accepted."""
    webhook = api.post("/webhooks", {"url": url, "enabled": False}).expect(201)
    assert webhook["url"] == url
    api.delete(f"/webhooks/{webhook['id']}").expect(200)


def test_all_webhook_errors_are_reported_at_once(api: Client) -> None:
    """Each invalid field is reported, and unknown keys are listed."""
    error = api.post("/webhooks", {"url": 7, "events": ["Order Paid", 3], "enabled": "yes"})
    assert set(error.json["validation_errors"]) >= {"url", "enabled"}
    error = api.post("/webhooks", {"url": "https://example.org/", "events": ["ok_name", "Order Paid"]})
    assert error.json["validation_errors"] == {"events[1]": ["is invalid"]}
    response = api.post("/webhooks", {"url": "https://example.org/", "enabled": False, "secret": "whsec_mine"})
    assert response.headers["X-Ignored-Fields"] == "secret" and response.json["secret"] != "whsec_mine"
    api.send("DELETE", f"/webhooks/{response.json['id']}").expect(200)


def test_deliveries_belong_to_their_webhook(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """A delivery under the path of another webhook is a 404."""
    event = record_event(api, hook)
    result = wait_for_delivery(api, hook, event, "delivered")
    other = api.post("/webhooks", {"url": receiver.url, "enabled": False}).expect(201)
    path = f"/webhooks/{other['id']}/deliveries/{result['id']}"
    assert api.get(path).status == 404 and api.post(f"{path}/replay").status == 404
    api.send("DELETE", f"/webhooks/{other['id']}").expect(200)


def test_webhook_urls_are_not_logged(api: Client, server: Server, tmp_path: Path, hook: dict[str, Any]) -> None:
    """If a request fails, the log has the host of the URL only."""
    url = f"http://127.0.0.1:{Receiver(tmp_path).port}/services/T0SECRET?key=T0SECRET"
    api.patch(f"/webhooks/{hook['id']}", {"url": url}).expect(200)
    record_event(api, hook)
    result = api.wait(f"/webhooks/{hook['id']}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert result["error"] == UNREACHED and result["duration_ms"] is None
    server.wait_for_line(re.compile("http: request to .* failed"))
    assert "T0SECRET" not in server.output


@pytest.mark.parametrize("records", [("127.0.0.1",), ("192.0.2.7", "10.0.0.1"), ("169.254.169.254",), ()])
def test_private_addresses_are_not_requested(records: tuple[str, ...], api: Client, hook: dict[str, Any],
                                dns_server: DnsServer) -> None:  # fmt: skip
    """A name with a private address, or none, gets the same error, whatever listens there (T28)."""
    dns_server.set("inside.example", "A", *records)
    for scheme in ("http", "https"):
        api.patch(f"/webhooks/{hook['id']}", {"url": f"{scheme}://inside.example/"}).expect(200)
        tried = api.post(f"/webhooks/{hook['id']}/test").expect(200)
        assert (tried["ok"], tried["error"]) == (False, UNREACHED)
        assert tried["response_status"] is tried["response_text"] is tried["duration_ms"] is None


def test_webhook_names_are_resolved_once(api: Client, hook: dict[str, Any], dns_server: DnsServer) -> None:
    """The checked address is the one that is connected to, which prevents DNS rebinding (T29)."""
    dns_server.set("rebound.example", "A", "127.0.0.1")
    api.patch(f"/webhooks/{hook['id']}", {"url": "http://rebound.example/"}).expect(200)
    before = len(dns_server.queries)
    api.post(f"/webhooks/{hook['id']}/test").expect(200)
    asked = [question[:2] for question in dns_server.queries[before:] if question[0] == "rebound.example."]
    assert sorted(asked) == [("rebound.example.", "A"), ("rebound.example.", "AAAA")]


GARBAGE = {
    "nothing": b"",
    "no HTTP": b"\x00\xff nonsense \r\n\r\n",
    "no end": b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
    "long header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
    "no number": b"HTTP/1.1 999999 Wow\r\n\r\n",
    "odd length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "odd chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "two answers": b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "odd pause": b"HTTP/1.1 500 No\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n",
    "odd text": b"HTTP/1.1 500 No\r\nContent-Length: 8\r\n\r\n\x00\xff\xfe\x1b[2J\x85",
    "only a beginning": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.fixture
def raw() -> Iterator[Callable[[bytes], int]]:
    """Yield a function that starts a server whose every reply is these bytes, and returns its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def send_raw(answer: bytes) -> int:
        def serve() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = listening.accept()
                    with caller, suppress(OSError):
                        caller.recv(65_536)
                        caller.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return int(listening.getsockname()[1])

    yield send_raw
    listening.close()


@pytest.mark.parametrize("kind", GARBAGE)
def test_invalid_replies_are_failures(kind: str, api: Client, server: Server, hook: dict[str, Any],
                               raw: Callable[[bytes], int]) -> None:  # fmt: skip
    """Any invalid HTTP reply is a failure that is retried, with an error that can be shown."""
    api.patch(f"/webhooks/{hook['id']}", {"url": f"http://127.0.0.1:{raw(GARBAGE[kind])}/"}).expect(200)
    record_event(api, hook)
    result = api.wait(f"/webhooks/{hook['id']}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert result["status"] == "pending" and result["response_status"] in (None, 500)
    assert (result["error"] is None) is (result["response_status"] == 500)
    assert not set(result["response_text"] or "") & set("\x00\x1b\x85")
    assert "Traceback" not in server.output
