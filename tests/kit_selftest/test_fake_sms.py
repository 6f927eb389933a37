"""The provider of SMS of the kit does what a real one does, and what it is told to do wrong."""

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


def send(fake: FakeSms, to: str = "+15551230001", body: str = "Hello", **more: str) -> tuple[int, dict[str, object]]:
    """Hand over a message as a client of Twilio does."""
    form = urlencode({"To": to, "From": NUMBER, "Body": body, **more}).encode()
    answer = post(Post(f"{fake.url}{MESSAGES}", BASIC, form))
    return answer.status, json.loads(answer.body)


def listed(fake: FakeSms, **query: str) -> dict[str, object]:
    """Look messages up."""
    connection = http.client.HTTPConnection("127.0.0.1", fake.port, timeout=10)
    connection.request("GET", f"{MESSAGES}?{urlencode(query)}", headers=BASIC)
    found: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def test_it_takes_shows_and_remembers(fake_sms: FakeSms) -> None:
    """A message is answered with 201, stands in the log and in listings page by page, after a restart too."""
    sids = [send(fake_sms, body=f"Text {number} €")[1]["sid"] for number in range(3)]
    assert [one.body for one in fake_sms.accepted] == ["Text 0 €", "Text 1 €", "Text 2 €"]
    fake_sms.down()
    fake_sms.up()
    first = listed(fake_sms, To="+15551230001", From=NUMBER, PageSize="2")
    assert [one["sid"] for one in first["messages"]] == [sids[2], sids[1]]
    assert "Page=1" in first["next_page_uri"]
    second = listed(fake_sms, To="+15551230001", PageSize="2", Page="1")
    assert [one["sid"] for one in second["messages"]] == [sids[0]]
    assert second["next_page_uri"] is None
    assert listed(fake_sms, To="+15550000000")["messages"] == []
    assert listed(fake_sms, **{"DateSent>": "2100-01-01"})["messages"] == []
    assert len(listed(fake_sms, **{"DateSent>": "2020-01-01", "DateSent<": "2100-01-01"})["messages"]) == 3


def test_it_refuses_who_is_not_its_customer(fake_sms: FakeSms) -> None:
    """A wrong login is 401 with Twilio's code, and nothing is taken; so is a wrong signature the generic way."""
    form = urlencode({"To": "+15551230001", "From": NUMBER, "Body": "x"}).encode()
    answer = post(Post(f"{fake_sms.url}{MESSAGES}", {}, form))
    assert (answer.status, json.loads(answer.body)["code"]) == (401, 20003)
    said = {"id": 1, "to": "+15551230001", "from": "Bakery", "body": "x", "callback_url": ""}
    assert post(generic("wrong", f"{fake_sms.url}/send", said, 0)).status == 401
    assert post(generic(SECRET, f"{fake_sms.url}/send", said, 0)).status == 200
    assert [one.provider for one in fake_sms.accepted] == ["http"]


def test_it_does_wrong_as_told(fake_sms: FakeSms) -> None:
    """Refusals, faults after taking and before, as often as they were asked for."""
    fake_sms.reject(21211, "+1555*", times=1)
    fake_sms.throttle(7, times=1)
    fake_sms.fail(times=1)
    fake_sms.accept_then_fail(503, times=1)
    fake_sms.accept_then_reset(times=1)
    fake_sms.accept_then_cut(times=1)
    status, said = send(fake_sms)
    assert (status, said["code"]) == (400, 21211)
    assert send(fake_sms)[0] == 429
    assert send(fake_sms)[0] == 500
    assert fake_sms.accepted == []
    assert send(fake_sms)[0] == 503
    with pytest.raises(ConnectionResetError):
        send(fake_sms)
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        send(fake_sms)
    assert send(fake_sms)[0] == 201
    assert len(fake_sms.accepted) == 4


def test_it_waits_at_a_gate_and_hides(fake_sms: FakeSms) -> None:
    """What stands at a gate was taken; what is hidden is not found by looking."""
    fake_sms.hold("door", times=1)
    fake_sms.hide(60, times=1)
    held = Thread(target=send, args=(fake_sms,))
    held.start()
    fake_sms.wait_reached("door")
    assert len(fake_sms.accepted) == 1
    fake_sms.release("door")
    held.join()
    with pytest.raises(ConnectionResetError):
        send(fake_sms, body="Hidden")
    assert [one["body"] for one in listed(fake_sms)["messages"]] == ["Hello"]


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
def hooks() -> Iterator[ThreadingHTTPServer]:
    """Somebody who hears what a provider tells."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    server.heard = []  # type: ignore[attr-defined]  # a handler knows nothing but its server
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_it_tells_what_became_of_messages(fake_sms: FakeSms, hooks: ThreadingHTTPServer, tmp_path: Path) -> None:
    """Receipts are told as planned and by hand, signed over the address they go to; so is what people write."""
    base = f"http://127.0.0.1:{hooks.server_port}"
    fake_sms.send_receipts_for_all("sent", "delivered", repeat=2, shuffled=True)
    send(fake_sms, StatusCallback=f"{base}/hooks/twilio/status?m=abc")
    told = fake_sms.wait_for_receipts()
    assert sorted(one["status"] for one in told) == ["delivered", "delivered", "sent", "sent"]
    assert {one["answered"] for one in told} == {200}
    assert fake_sms.send_receipt(fake_sms.accepted[0], "undelivered", 30005).status == 200
    assert fake_sms.send_incoming(base, "+15551230001", "  Stop ", OptOutType="STOP").status == 200
    assert post(twilio_json(TOKEN, f"{base}/x?a=1", {"b": 2})).status == 200
    heard = hooks.heard  # type: ignore[attr-defined]  # set where the server is made
    assert all(right for _, _, right in heard)
    assert heard[-3][0] == "/hooks/twilio/status?m=abc"
    assert heard[-3][1]["ErrorCode"] == "30005"
    assert heard[-2][1]["Body"] == "  Stop "
    assert listed(fake_sms)["messages"][0]["status"] == "undelivered"
