"""Webhooks over the API: kept, changed, tried, rotated, and told of what happens, with a log of every delivery."""

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
    """A DNS server; no name exists until told."""
    with DnsServer() as running:
        yield running


@pytest.fixture(scope="module")
def server(dns_server: DnsServer) -> Iterator[Server]:
    """A server whose operator lets it reach this machine under one name."""
    with Server(env={"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1", **dns_server.env}).set_up() as running:
        yield running
        running.stop()


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Somebody who listens."""
    with Receiver(tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.fixture
def hook(api: Client, receiver: Receiver, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A webhook that listens to one event, named after the test; deleted afterwards."""
    receiver.respond_with()
    name = request.node.name.partition("[")[0][:60]
    made = api.post("/webhooks", {"url": receiver.url, "events": [name]}).expect(201)
    yield made
    if api.get(f"/webhooks/{made['id']}").status == 200:
        api.send("DELETE", f"/webhooks/{made['id']}").expect(200)


def happen(api: Client, hook: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Let the event happen that a webhook listens to."""
    body = {"event": hook["events"][0], "contact_email": "ann@example.org", "create_contact": True, **more}
    return api.post("/events", body).expect(201)


def delivery(api: Client, hook: dict[str, Any], event: dict[str, Any], status: str) -> dict[str, Any]:
    """Wait for the delivery of an event to have a status, and return it."""
    path = f"/webhooks/{hook['id']}/deliveries"
    return api.wait(path, lambda rows: bool(rows) and rows[0]["status"] == status, event_id=event["id"])[0]


def name_of(delivery: dict[str, Any]) -> str:
    """Return the name of a delivery's message: its number and when it came to be, for a restore gives numbers again."""
    moment = datetime.fromisoformat(delivery["created_at"])
    return f"msg_{delivery['id']}_{round(1000 * moment.timestamp())}"


def test_an_event_arrives_signed_and_whole(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """What arrives is the event as the API answers it, under a name of its own, signed with the secret shown once."""
    event = happen(api, hook, data={"size": "ü"})
    found = delivery(api, hook, event, "delivered")
    (one,) = [one for one in receiver.requests if one.event["id"] == event["id"]]
    assert one.event == api.get(f"/events/{event['id']}").json
    assert one.name == name_of(found) and one.headers["content-type"] == "application/json"
    assert is_signed_by(hook["secret"], one.headers, one.body)
    assert not is_signed_by(hook["secret"], one.headers, one.body + b" ")
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", hook["secret"])
    assert (found["attempts"], found["response_status"], found["error"], found["event"]) == (
        1, 200, None, event["event"],
    )  # fmt: skip
    assert found["next_attempt_at"] is None and found["duration_ms"] is not None
    assert api.get(f"/webhooks/{hook['id']}/deliveries/{found['id']}").json == found


def test_a_secret_is_shown_once(api: Client, server: Server, hook: dict[str, Any]) -> None:
    """No other answer has it, nor has the database in any spelling."""
    secret = hook["secret"]
    for path in (f"/webhooks/{hook['id']}", "/webhooks"):
        assert secret not in api.get(path).text
    patched = api.send("PATCH", f"/webhooks/{hook['id']}", {"events": hook["events"]})
    assert patched.expect(200)["events"] == hook["events"] and secret not in patched.text
    stored = b"".join(path.read_bytes() for path in server.data.glob("campanero.db*"))
    assert secret.removeprefix("whsec_").encode() not in stored and secret not in server.output


def test_rotation_lets_both_sign_for_a_while(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """After a rotation each message has two signatures, so that whoever listens never has to refuse one."""
    rotated = api.post(f"/webhooks/{hook['id']}/rotate_secret").expect(200)
    assert rotated["secret"] != hook["secret"] and rotated["old_secret_until"] is not None
    event = happen(api, hook)
    delivery(api, hook, event, "delivered")
    one = receiver.requests[-1]
    assert len(one.headers["webhook-signature"].split(" ")) == 2
    assert all(is_signed_by(secret, one.headers, one.body) for secret in (hook["secret"], rotated["secret"]))


def test_only_what_was_asked_for(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """Events of other names are none of its business; nor is what happened before it was there or while it was off."""
    before = len(receiver.requests)
    api.post("/events", {"event": "something_else", "contact_email": "ann@example.org", "create_contact": True})
    happen(api, hook)
    api.send("PATCH", f"/webhooks/{hook['id']}", {"enabled": False}).expect(200)
    off = happen(api, hook)
    on = api.send("PATCH", f"/webhooks/{hook['id']}", {"enabled": True}).expect(200)
    assert on["disabled_at"] is None
    last = happen(api, hook)
    delivery(api, hook, last, "delivered")
    late = api.post("/webhooks", {"url": f"{receiver.url}/late", "events": hook["events"]}).expect(201)
    final = happen(api, hook)
    delivery(api, late, final, "delivered")
    delivery(api, hook, final, "delivered")
    api.send("DELETE", f"/webhooks/{late['id']}").expect(200)
    came = [(one.path, one.event["id"]) for one in receiver.requests[before:]]
    assert ("/hook/late", final["id"]) in came and len([path for path, _ in came if path == "/hook/late"]) == 1
    assert off["id"] not in [number for _, number in came]
    assert {one.event["event"] for one in receiver.requests[before:]} == set(hook["events"])


def test_all_events(api: Client, receiver: Receiver) -> None:
    """Without names, or with a star, it gets all; what the service itself records too."""
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


def test_a_trial(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """A trial says at once what was answered; it stands in no log, and works while the webhook is off."""
    receiver.respond_with(418, "I am a teapot \x07")
    api.send("PATCH", f"/webhooks/{hook['id']}", {"enabled": False}).expect(200)
    tried = api.post(f"/webhooks/{hook['id']}/test").expect(200)
    assert (tried["ok"], tried["response_status"], tried["response_text"]) == (False, 418, "I am a teapot �")
    one = receiver.requests[-1]
    assert one.event == tried["event"] and one.event["event"] == hook["events"][0]
    assert one.event["test"] is True and is_signed_by(hook["secret"], one.headers, one.body)
    receiver.respond_with()
    tried = api.post(f"/webhooks/{hook['id']}/test", {"event": "order_paid"}).expect(200)
    assert tried["ok"] and tried["event"]["event"] == "order_paid"
    assert api.get(f"/webhooks/{hook['id']}/deliveries").json == []
    refused = api.post(f"/webhooks/{hook['id']}/test", {"event": "No Name"})
    assert refused.status == 422 and refused.json["validation_errors"] == {"event": ["is invalid"]}


def test_a_failure_is_tried_again_and_can_be_replayed(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """After a failure the log says what was answered and when it is tried again; a replay does it now."""
    receiver.respond_with(500, "broken")
    event = happen(api, hook)
    path = f"/webhooks/{hook['id']}/deliveries"
    failed = api.wait(path, lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert (failed["status"], failed["response_status"], failed["response_text"]) == ("pending", 500, "broken")
    assert failed["next_attempt_at"] > failed["last_attempt_at"]
    failing = api.get(f"/webhooks/{hook['id']}").json
    assert failing["failing_since"] is not None and failing["pending_count"] == 1
    receiver.respond_with()
    api.post(f"{path}/{failed['id']}/replay").expect(200)
    done = delivery(api, hook, event, "delivered")
    assert api.get(f"/webhooks/{hook['id']}").json["failing_since"] is None
    again = api.post(f"{path}/{done['id']}/replay").expect(200)
    assert again["status"] == "pending" and again["attempts"] == 0
    delivery(api, hook, event, "delivered")
    names = [one.name for one in receiver.requests if one.event["id"] == event["id"]]
    assert names == [name_of(failed)] * 3
    api.send("PATCH", f"/webhooks/{hook['id']}", {"enabled": False}).expect(200)
    assert api.post(f"{path}/{done['id']}/replay").status == 422
    assert api.post(f"{path}/987654/replay").status == 404


def test_a_redirect_is_no_yes(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """Where a receiver points elsewhere nobody goes: it is a failure like any other."""
    receiver.respond_with(302, "", Location=f"{receiver.url}/elsewhere")
    event = happen(api, hook)
    found = api.wait(f"/webhooks/{hook['id']}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert (found["event_id"], found["response_status"], found["status"]) == (event["id"], 302, "pending")
    assert [one.path for one in receiver.requests if one.event["id"] == event["id"]] == ["/hook"]


def test_gone_switches_off(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """Who answers 410 is asked no more, and people are told by an event."""
    receiver.respond_with(410)
    happen(api, hook)
    off = api.wait(f"/webhooks/{hook['id']}", lambda row: not row["enabled"])
    assert off["disabled_reason"] == "gone" and off["disabled_at"] is not None
    told = api.get("/events", event="webhook_disabled").expect(200)[0]
    assert told["data"]["webhook_id"] == hook["id"] and told["data"]["reason"] == "gone"


def test_a_later_moment_that_is_asked_for(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """Whoever is overrun says for how long, and is left alone so long; never longer than the last rung."""
    receiver.respond_with(429, "", Retry_After="3600")
    happen(api, hook)
    found = api.wait(f"/webhooks/{hook['id']}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert found["next_attempt_at"][:13] > found["last_attempt_at"][:13]


@pytest.mark.parametrize("url", [
    "http://localhost:{port}/", "http://127.1:{port}/", "http://10.0.0.1/", "http://[::1]/", "http://2130706433/",
    "http://0x7f000001/", "https://8.8.8.8:22/", "https://a:b@example.org/", "https://[::ffff:127.0.0.2]/",
    "http://169.254.169.254/latest", "ftp://example.org/", "file:///etc/passwd", "gopher://example.org/", "x", "",
    "https://", "https://example.org:99999/", "https://exa mple.org/", "https://example.org/\u0000",
    "http://１０.０.０.１/", "http://①⓪.0.0.1/", "https://.example.org/",
])  # fmt: skip
def test_addresses_that_are_never_asked(url: str, api: Client, receiver: Receiver) -> None:
    """What can never be a public web address is refused at once (T28)."""
    refused = api.post("/webhooks", {"url": url.format(port=receiver.port)})
    assert refused.status == 422 and set(refused.json["validation_errors"]) == {"url"}, refused.text


@pytest.mark.parametrize("url", ["https://пример.рф/a", "http://bücher.example:80/", "https://[2606:4700::1111]/x"])
def test_addresses_of_all_the_world(url: str, api: Client) -> None:
    """Names in every script, and addresses of the open network."""
    made = api.post("/webhooks", {"url": url, "enabled": False}).expect(201)
    assert made["url"] == url
    api.delete(f"/webhooks/{made['id']}").expect(200)


def test_all_faults_at_once(api: Client) -> None:
    """Every wrong field is named; what nobody reads is named too."""
    refused = api.post("/webhooks", {"url": 7, "events": ["Order Paid", 3], "enabled": "yes"})
    assert set(refused.json["validation_errors"]) >= {"url", "enabled"}
    refused = api.post("/webhooks", {"url": "https://example.org/", "events": ["ok_name", "Order Paid"]})
    assert refused.json["validation_errors"] == {"events[1]": ["is invalid"]}
    made = api.post("/webhooks", {"url": "https://example.org/", "enabled": False, "secret": "whsec_mine"})
    assert made.headers["X-Ignored-Fields"] == "secret" and made.json["secret"] != "whsec_mine"
    api.send("DELETE", f"/webhooks/{made.json['id']}").expect(200)


def test_a_delivery_of_another_webhook_is_none_of_this(api: Client, receiver: Receiver, hook: dict[str, Any]) -> None:
    """A delivery is found under its own webhook only."""
    event = happen(api, hook)
    found = delivery(api, hook, event, "delivered")
    other = api.post("/webhooks", {"url": receiver.url, "enabled": False}).expect(201)
    path = f"/webhooks/{other['id']}/deliveries/{found['id']}"
    assert api.get(path).status == 404 and api.post(f"{path}/replay").status == 404
    api.send("DELETE", f"/webhooks/{other['id']}").expect(200)


def test_no_secret_is_in_the_log(api: Client, server: Server, tmp_path: Path, hook: dict[str, Any]) -> None:
    """An address may hold a secret in its path or query: where it cannot be reached, the log names the host alone."""
    url = f"http://127.0.0.1:{Receiver(tmp_path).port}/services/T0SECRET?key=T0SECRET"
    api.patch(f"/webhooks/{hook['id']}", {"url": url}).expect(200)
    happen(api, hook)
    found = api.wait(f"/webhooks/{hook['id']}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert found["error"] == UNREACHED and found["duration_ms"] is None
    server.wait_for_line(re.compile("http: request to .* failed"))
    assert "T0SECRET" not in server.output


@pytest.mark.parametrize("records", [("127.0.0.1",), ("192.0.2.7", "10.0.0.1"), ("169.254.169.254",), ()])
def test_names_that_lead_inside(records: tuple[str, ...], api: Client, hook: dict[str, Any],
                                dns_server: DnsServer) -> None:  # fmt: skip
    """A name that leads inside, or nowhere, is not asked: one and the same word, no matter what is open there (T28)."""
    dns_server.set("inside.example", "A", *records)
    for scheme in ("http", "https"):
        api.patch(f"/webhooks/{hook['id']}", {"url": f"{scheme}://inside.example/"}).expect(200)
        tried = api.post(f"/webhooks/{hook['id']}/test").expect(200)
        assert (tried["ok"], tried["error"]) == (False, UNREACHED)
        assert tried["response_status"] is tried["response_text"] is tried["duration_ms"] is None


def test_an_answer_of_a_name_counts_once(api: Client, hook: dict[str, Any], dns_server: DnsServer) -> None:
    """Between looking a name up and connecting nobody can put another address in its place (T29)."""
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
    """Listen, and answer every connection with these bytes; returns the port."""
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
def test_nonsense_is_a_failure(kind: str, api: Client, server: Server, hook: dict[str, Any],
                               raw: Callable[[bytes], int]) -> None:  # fmt: skip
    """Whatever somebody answers is a failure like any other: tried again later, told in words that can be shown."""
    api.patch(f"/webhooks/{hook['id']}", {"url": f"http://127.0.0.1:{raw(GARBAGE[kind])}/"}).expect(200)
    happen(api, hook)
    found = api.wait(f"/webhooks/{hook['id']}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)[0]
    assert found["status"] == "pending" and found["response_status"] in (None, 500)
    assert (found["error"] is None) is (found["response_status"] == 500)
    assert not set(found["response_text"] or "") & set("\x00\x1b\x85")
    assert "Traceback" not in server.output
