"""No value of any field, parameter or page makes a door fail: the response is a success or an error of the client."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.api.doors import postmark, resend, sendgrid
from tests.doors.posting import authorize, post_form
from tests.doors.test_json_doors import MAILS, POSTMARK, RESEND, SENDGRID, post
from tests.kit.client import Client
from tests.kit.server import Server

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 1.5, "", " ", "x\r\ny", "x\x00y", "\ud800", "{{ 7 | }}", "{% raw %}", "<>", "a@b" * 300,
    [], [None], [1], [[]], ["a@example.org"] * 60, {}, {"email": 5}, {"enable": True}, [{}], [{"Name": 1, "Value": []}],
    [{"name": "x", "value": "\r\n"}], [{"type": "text/html", "value": "{{\ud800"}], [{"filename": "a", "content": "?"}],
    [{"email": "a@example.org", "name": '"\\<>{{'}], {"a": {"b": [1]}}, {"X-A": "ä"}, [{"to": [{"email": "\ud800"}]}],
)  # fmt: skip
TEXTS = (
    "", "x", "x\r\ny", "x\x00y", "{{ 7 | }}", "%recipient.%", "%recipient.a%", "{", "[]", "{}", '{"a@example.org": 1}',
    '{"a@example.org": {"a": "\\ud800"}}', "[" * 2_000, "yes", "<a@example.org>, b", "ä@example.org", "é" * 500,
)  # fmt: skip
FORM_FIELDS = (
    "from", "to", "cc", "bcc", "subject", "html", "text", "recipient-variables", "h:Reply-To", "h:X-A", "h:", "v:",
    "v:a", "o:tag", "o:tracking", "o:testmode", "o:deliverytime", "h:List-Unsubscribe", "attachment", "x\x00",
)  # fmt: skip
PARAMETERS = ("event", "tags", "begin", "end", "ascending", "limit", "recipient", "x")


def build_bodies(path: str, names: list[str]) -> Iterator[Any]:
    """Yield a message with each value in each field."""
    for name in names:
        for value in VALUES:
            yield MAILS[path] | {name: value}


@pytest.mark.parametrize(("path", "names"), [
    (POSTMARK, list(postmark.FIELDS)), (RESEND, list(resend.FIELDS)), (SENDGRID, list(sendgrid.FIELDS)),
])  # fmt: skip
def test_no_value_of_json_fails(server: Server, path: str, names: list[str], full: bool) -> None:
    """Some values in each field, with `--full` all of them, sent as batches where the service has them."""
    bodies = list(build_bodies(path, names))
    if path == SENDGRID:
        sandbox = {"mail_settings": {"sandbox_mode": {"enable": True}}}
        step = 3 if full else 7
        bodies = [sandbox | body for body in bodies[::step]]
        personal = [{name: value} for name in sendgrid.PERSONAL_FIELDS for value in VALUES]
        bodies += [MAILS[path] | sandbox | {"personalizations": [{"to": [], **item}]} for item in personal[::step]]
        statuses = {post(server, path, json.dumps(body).encode()).status for body in bodies}
        assert statuses <= {200, 202, 400}
        return
    bodies, size = bodies[:: 1 if full else 3], 100
    for start in range(0, len(bodies), size):
        headers = {"X_Batch_Validation": "permissive"} if path == RESEND else {}
        response = post(server, f"{path}/batch", json.dumps(bodies[start : start + size]).encode(), **headers)
        assert response.status == 200, response.body[:500]


@pytest.mark.parametrize("path", [POSTMARK, RESEND, SENDGRID])
def test_no_name_of_a_field_fails(server: Server, path: str) -> None:
    """A field whose name is half of a surrogate pair is an error of the client, also where the response repeats it."""
    for body in ({"\ud800": 1}, MAILS[path] | {"\udfff\ud800": {"\ud800": "\ud800"}}):
        response = post(server, path, json.dumps(body).encode())
        assert 400 <= response.status < 500, (body, response.body)
        json.loads(response.body)
    assert "Traceback" not in server.output


def test_no_field_of_a_form_fails(server: Server, full: bool) -> None:
    """Each text in some fields of a message for Mailgun, with `--full` in half of them."""
    valid = [("from", "ana@bakery.example"), ("to", "a@example.org"), ("subject", "s"), ("text", "t %recipient.a%")]
    for number, name in enumerate(FORM_FIELDS):
        step = 2 if full else 5
        for text in TEXTS[number % step :: step]:
            fields = [*((key, value) for key, value in valid if key != name), (name, text), ("o:testmode", "yes")]
            response = post_form(server, "/v3/bakery.example/messages", fields)
            assert response.status in (200, 400), (name, text, response.body[:300])
            assert response.json["message"]


def test_no_parameter_of_events_fails(server: Server) -> None:
    """Each text in each parameter, in a URL and in a page."""
    client, headers = Client(server.url), authorize(str(server.key))
    for name in PARAMETERS:
        for text in (*TEXTS[:12], "1e9", "9" * 400, "Fri, 99 Foo 2011", "a OR b AND c", "delivered OR"):
            token = base64.urlsafe_b64encode(json.dumps({"query": {name: text}, "at": 5, "id": -1}).encode()).decode()
            status = client.request("GET", f"/v3/bakery.example/events/{token.rstrip('=')}", None, headers).status
            assert status in (200, 400), (name, text)
    for page in ("e30", "bnVsbA", "!!", "eyJxdWVyeSI6IDF9", "%ff", "a" * 3_000):
        assert client.request("GET", f"/v3/bakery.example/events/{page}", None, headers).status in (200, 400, 404), page
    for address in ("%00@x.org", "a%0d%0a@example.org", "x" * 300, "%ff%fe@example.org"):
        assert client.request("DELETE", f"/v3/bakery.example/bounces/{address}", None, headers).status in (400, 404)
