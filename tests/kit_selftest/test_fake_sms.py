"""The SMS provider of the test kit behaves like a real one, and shows the faults that a test sets."""

import base64
import http.client
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlencode

import pytest

from tests.kit.fake_sms import NUMBER, SECRET, SID, TOKEN, FakeSms, post
from tests.kit.sms_signing import Post, generic, twilio_json, twilio_signature

BASIC = {"Authorization": "Basic " + base64.b64encode(f"{SID}:{TOKEN}".encode()).decode()}
MESSAGES = f"/2010-04-01/Accounts/{SID}/Messages.json"


def send_sms(
    fake: FakeSms, to: str = "+15551230001", body: str = "Hello", **more: str
) -> tuple[int, dict[str, object]]:
    """Send a message as a client of Twilio does."""
    form = urlencode({"To": to, "From": NUMBER, "Body": body, **more}).encode()
    response = post(Post(f"{fake.url}{MESSAGES}", BASIC, form))
    return response.status, json.loads(response.body)


def list_messages(fake: FakeSms, **query: str) -> dict[str, object]:
    """Request a page of messages."""
    connection = http.client.HTTPConnection("127.0.0.1", fake.port, timeout=10)
    connection.request("GET", f"{MESSAGES}?{urlencode(query)}", headers=BASIC)
    response: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    return response


def test_messages_are_accepted_listed_and_stored(fake_sms: FakeSms) -> None:
    """An accepted message is logged and listed in pages, also after a restart."""
    sids = [send_sms(fake_sms, body=f"Text {number} €")[1]["sid"] for number in range(3)]
    assert [message.body for message in fake_sms.accepted] == ["Text 0 €", "Text 1 €", "Text 2 €"]
    fake_sms.down()
    fake_sms.up()
    first = list_messages(fake_sms, To="+15551230001", From=NUMBER, PageSize="2")
    assert [message["sid"] for message in first["messages"]] == [sids[2], sids[1]]
    assert "Page=1" in first["next_page_uri"]
    second = list_messages(fake_sms, To="+15551230001", PageSize="2", Page="1")
    assert [message["sid"] for message in second["messages"]] == [sids[0]]
    assert second["next_page_uri"] is None
    assert list_messages(fake_sms, To="+15550000000")["messages"] == []
    assert list_messages(fake_sms, **{"DateSent>": "2100-01-01"})["messages"] == []
    assert len(list_messages(fake_sms, **{"DateSent>": "2020-01-01", "DateSent<": "2100-01-01"})["messages"]) == 3


def test_invalid_credentials_are_rejected(fake_sms: FakeSms) -> None:
    """A wrong login is a 401 with Twilio's code, and so is a wrong generic signature."""
    form = urlencode({"To": "+15551230001", "From": NUMBER, "Body": "x"}).encode()
    response = post(Post(f"{fake_sms.url}{MESSAGES}", {}, form))
    assert (response.status, json.loads(response.body)["code"]) == (401, 20003)
    fields = {"id": 1, "to": "+15551230001", "from": "Bakery", "body": "x", "callback_url": ""}
    assert post(generic("wrong", f"{fake_sms.url}/send", fields, 0)).status == 401
    assert post(generic(SECRET, f"{fake_sms.url}/send", fields, 0)).status == 200
    assert [message.provider for message in fake_sms.accepted] == ["http"]


def test_faults_are_shown_as_often_as_set(fake_sms: FakeSms) -> None:
    """Rejections and faults before and after accepting a message happen in order."""
    fake_sms.reject(21211, "+1555*", times=1)
    fake_sms.throttle(7, times=1)
    fake_sms.fail(times=1)
    fake_sms.accept_then_fail(503, times=1)
    fake_sms.accept_then_reset(times=1)
    fake_sms.accept_then_cut(times=1)
    status, body = send_sms(fake_sms)
    assert (status, body["code"]) == (400, 21211)
    assert send_sms(fake_sms)[0] == 429
    assert send_sms(fake_sms)[0] == 500
    assert fake_sms.accepted == []
    assert send_sms(fake_sms)[0] == 503
    with pytest.raises(ConnectionResetError):
        send_sms(fake_sms)
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        send_sms(fake_sms)
    assert send_sms(fake_sms)[0] == 201
    assert len(fake_sms.accepted) == 4


def test_gates_and_hidden_messages(fake_sms: FakeSms) -> None:
    """A message at a gate is accepted; a hidden one is not listed."""
    fake_sms.hold("door", times=1)
    fake_sms.hide(60, times=1)
    held = Thread(target=send_sms, args=(fake_sms,))
    held.start()
    fake_sms.wait_reached("door")
    assert len(fake_sms.accepted) == 1
    fake_sms.release("door")
    held.join()
    with pytest.raises(ConnectionResetError):
        send_sms(fake_sms, body="Hidden")
    assert [message["body"] for message in list_messages(fake_sms)["messages"]] == ["Hello"]


class _Hook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        url = f"http://{self.headers['Host']}{self.path}"
        fields = {name: values[0] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
        if self.headers["Content-Type"] == "application/json":
            fields = {}
        right = twilio_signature(TOKEN, url, fields) == self.headers["X-Twilio-Signature"]
        self.server.heard.append((self.path, fields, right))  # type: ignore[attr-defined]  # set where the server is made
        self.send_response(200 if right else 403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def webhook_server() -> Iterator[ThreadingHTTPServer]:
    """Yield a server that records and verifies requests of the provider."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    server.heard = []  # type: ignore[attr-defined]  # a handler knows nothing but its server
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_receipts_and_incoming_messages(fake_sms: FakeSms, webhook_server: ThreadingHTTPServer, tmp_path: Path) -> None:
    """Planned and single receipts and incoming messages are sent with valid signatures."""
    base = f"http://127.0.0.1:{webhook_server.server_port}"
    fake_sms.send_receipts_for_all("sent", "delivered", repeat=2, shuffled=True)
    send_sms(fake_sms, StatusCallback=f"{base}/hooks/twilio/status?m=abc")
    result = fake_sms.wait_for_receipts()
    assert sorted(row["status"] for row in result) == ["delivered", "delivered", "sent", "sent"]
    assert {row["answered"] for row in result} == {200}
    assert fake_sms.send_receipt(fake_sms.accepted[0], "undelivered", 30005).status == 200
    assert fake_sms.send_incoming(base, "+15551230001", "  Stop ", OptOutType="STOP").status == 200
    assert post(twilio_json(TOKEN, f"{base}/x?a=1", {"b": 2})).status == 200
    heard = webhook_server.heard  # type: ignore[attr-defined]  # set where the server is made
    assert all(right for _, _, right in heard)
    assert heard[-3][0] == "/hooks/twilio/status?m=abc"
    assert heard[-3][1]["ErrorCode"] == "30005"
    assert heard[-2][1]["Body"] == "  Stop "
    assert list_messages(fake_sms)["messages"][0]["status"] == "undelivered"
