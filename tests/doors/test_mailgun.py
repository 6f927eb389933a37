"""The door of Mailgun as raw HTTP: single messages, faults, access, limits and hostile values."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.doors.posting import Fields, authorize, find_messages, post_form, wait_for_mail
from tests.kit.client import Client, Response
from tests.kit.https_clients import wait_until
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

DOMAIN = "bakery.example"
PATH = f"/v3/{DOMAIN}/messages"
MAIL = (
    ("from", "Ana <ana@bakery.example>"), ("to", "ann@example.org"), ("subject", "Hello"), ("text", "Hello {{ x }}"),
)  # fmt: skip


def post(server: Server, fields: Fields, **more: Any) -> Response:
    """Post a message."""
    return post_form(server, PATH, fields, **more)


def build(**fields: str) -> list[tuple[str, str]]:
    """Return the fields of a message with other values; `h_` and the like stand for `h:`."""
    given = {name.replace("__", ":").replace("_", "-"): value for name, value in fields.items()}
    return [(name, value) for name, value in MAIL if name not in given] + list(given.items())


def bulk(variables: dict[str, Any], **fields: str) -> list[tuple[str, str]]:
    """Return the fields of a message to the addresses of `variables`."""
    given = build(recipient_variables=json.dumps(variables), **fields)
    return [(name, value) for name, value in given if name != "to"] + [("to", address) for address in variables]


def test_single_message_with_copies_and_files(server: Server, relay: SmtpServer) -> None:
    """All recipients see To and Cc; texts are literal; inline images are named by their file."""
    fields = [
        *build(to="Ann <ann@example.org>, bob@example.org", cc="cy@example.org", bcc="dee@example.org", h__X_Order="7",
               h__Reply_To="Shop <shop@bakery.example>",
               html='<img src="cid:logo.png">{{ 7 }} %recipient_email% <a href="%unsubscribe_url%">u</a>'),
        ("o:tag", "receipt"), ("v:order", "7"),
    ]  # fmt: skip
    files = [("attachment", "Rechnung.pdf", "application/pdf", b"%PDF"), ("inline", "logo.png", "image/png", b"PNG")]
    response = post(server, fields, files=files).expect(200)
    mails = wait_for_mail(relay, [f"{name}@example.org" for name in ("ann", "bob", "cy", "dee")])

    assert response["id"].startswith("<m") and response["id"].endswith("@bakery.example>")
    for mail in mails.values():
        assert (mail.header("To"), mail.header("Cc")) == ("ann@example.org, bob@example.org", "cy@example.org")
        assert (mail.header("Reply-To"), mail.header("X-Order")) == ("shop@bakery.example", "7")
        assert str(mail.text()).strip() == "Hello {{ x }}"
        assert "{{ 7 }} ann@example.org" in str(mail.html()) and f'<a href="{server.url}/u/' in str(mail.html())
        parts = {part.get_filename(): part["Content-ID"] for part in mail.parsed.walk() if part.get_filename()}
        assert parts == {"Rechnung.pdf": None, "logo.png": "<logo.png>"}


@pytest.mark.parametrize(("fields", "faults"), [
    (build(to="", subject="", text=""), {name: ["can't be blank"] for name in ("to", "subject", "html")}),
    (build(**{"from": "Ana"}), {"from": ["is invalid"]}),
    (build(to="nobody"), {"to": ["is invalid"]}),
    (build(h__Precedence="bulk"), {"h:Precedence": None}),
    (build(h__List_Unsubscribe="<%unsubscribe_url%>"), {"h:List-Unsubscribe": None}),
    (build(h__X_A="a\r\nBcc: eve@example.org"), {"h:X-A": ["is invalid"]}),
    (build(template="welcome", o__tracking="perhaps", o__time_zone_localize="09:00"),
     {"template": ["is not supported"], "o:tracking": ["must be yes or no"],
      "o:time-zone-localize": ["is not supported"]}),
    (build(o__deliverytime="tomorrow"), {"o:deliverytime": None}),
    ([*MAIL, *(("o:tag", f"t{number}") for number in range(11))], {"o:tag": None}),
    (build(recipient_variables="[1]"), {"recipient-variables": None}),
    (bulk({"ann@example.org": {"name": {"first": "Ann"}}}), {"recipient-variables": None}),
    (bulk({"ann@example.org": {"name": "Ann"}, "bob@example.org": {}}, text="%recipient.name%"), {"to[1]": None}),
    (bulk({"ann@example.org": {}, "nobody": {}, "ANN@example.org": {}}),
     {"to[1]": ["is invalid"], "to[2]": ["is already a recipient"]}),
    (bulk({"ann@example.org": {}}, cc="bob@example.org"), {"cc": None}),
    (bulk({"ann@example.org": {"a": "x\r\nBcc: eve@example.org"}}, h__X_A="%recipient.a%"), {"h:X-A": ["is invalid"]}),
    (bulk({"ann@example.org": {"a": "x" * 20_000}}, text="%recipient.a%"), {"recipient-variables": None}),
])  # fmt: skip
def test_faults_are_answered_at_once(server: Server, fields: Fields, faults: dict[str, list[str] | None]) -> None:
    """Each fault stands at its field and in the message; nothing is queued."""
    before = len(find_messages(server))
    body = post(server, fields).expect(400)

    assert body["errors"].keys() == faults.keys()
    assert all(texts is None or body["errors"][name] == texts for name, texts in faults.items())
    assert all(text in body["message"] for texts in body["errors"].values() for text in texts)
    assert len(find_messages(server)) == before


def test_values_are_data(server: Server, relay: SmtpServer) -> None:
    """No value of a recipient is a template, ends a header or a tag; placeholders nobody defined are text."""
    hostile = '{{ brand.company_name }}{% raw %}"><script>alert(1)</script>'
    variables = {"eve@example.org": {"a": hostile, "b": "x\r\nBcc: all@example.org", "c-1": "javascript:alert(1)"}}
    fields = bulk(
        variables, subject="S %recipient.b%", text="T %recipient.a% %recipient.missing%",
        html='<p title="%recipient.a%">%recipient.a%</p><a href="%recipient.c-1%">x</a> {%recipient.b%} %recipient%',
    )  # fmt: skip
    post(server, fields).expect(200)
    mail = wait_for_mail(relay, ["eve@example.org"])["eve@example.org"]
    html = str(mail.html())

    assert mail.header("Bcc") is None and "\n" not in str(mail.header("Subject"))
    assert str(mail.text()).strip() == f"T {hostile} %recipient.missing%"
    assert "<script" not in html and "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "{{ brand.company_name }}{% raw %}" in html and "eve@example.org" in html
    assert "javascript:" not in html


def test_fields_that_change_nothing_are_named(server: Server) -> None:
    """Ignored fields are in the header, so that none is dropped without a word."""
    response = post(server, build(to="ig@example.org", h__Sender="x@bakery.example", o__tracking_clicks="yes"))

    response.expect(200)
    assert response.headers["X-Ignored-Fields"] == "h:Sender, o:tracking-clicks"


def test_suppressed_recipient_is_in_the_events(server: Server) -> None:
    """A message that nobody may get is accepted, and its event says why."""
    server.client().post("/suppressions", {"address": "sup@example.org", "reason": "manual"}).expect(201)
    sent = post(server, build(to="sup@example.org")).expect(200)
    query = "event=failed&recipient=sup%40example.org"
    path = f"/v3/{DOMAIN}/events?{query}"
    page = Client(server.url).request("GET", path, None, authorize(str(server.key))).expect(200)

    [event] = page["items"]
    assert event["message"]["headers"]["message-id"] == sent["id"].strip("<>")
    assert event["reason"] == "generic"


def test_repeated_key_is_the_same_message(server: Server) -> None:
    """The header Idempotency-Key works as in the API; another message under the key is a conflict."""
    headers = {"Idempotency-Key": "k-1"}
    first = post(server, build(to="rep@example.org"), headers=headers).expect(200)
    again = post(server, build(to="rep@example.org"), headers=headers).expect(200)
    other = post(server, build(to="rep@example.org", subject="Other"), headers=headers)

    assert first == again
    assert other.status == 409
    assert len(find_messages(server, to="rep@example.org")) == 1


def test_recipients_and_bytes_are_limited(server: Server) -> None:
    """1,000 recipients are queued in one request, 1,001 are refused, and so are more than 25 MB of files."""
    many = {f"m{number}@example.org": {"n": str(number)} for number in range(1_001)}
    refused = post(server, bulk(many, text="%recipient.n%")).expect(400)
    del many["m1000@example.org"]
    # Held, because nobody looks at the messages
    later = ("o:deliverytime", "Thu, 01 May 2031 10:00:00 GMT")
    post(server, [*bulk(many, text="%recipient.n%"), later]).expect(200)
    content = b"x" * 2_097_152
    files = [("attachment", f"{number}.bin", "application/octet-stream", content) for number in range(13)]
    large = post(server, build(), files=files).expect(400)
    huge = post(server, build(), files=files * 2)
    text = post(server, build(text="x" * 1_048_577)).expect(400)

    assert refused["errors"] == {"to": ["is too long (maximum is 1000 recipients)"]}
    assert large["errors"] == {"attachment": ["is too large (maximum is 25 MB)"]}
    assert huge.status == 413
    assert list(text["errors"]) == ["text"]


def test_access_is_that_of_the_key(server: Server) -> None:
    """No key, a wrong user, another scheme, a missing scope, wrong paths, and messages of another account."""
    account = server.cli("account", "add", "Elsewhere").stdout.strip()
    reader, other = server.new_key("reader", "--scope", "messages:read"), server.new_key("x", "--account", account)
    events, bounce = f"/v3/{DOMAIN}/events", f"/v3/{DOMAIN}/bounces/ann@example.org"

    def request(method: str, path: str, headers: dict[str, str]) -> Response:
        return Client(server.url).request(method, path, b"" if method in ("POST", "PUT") else None, headers)

    post(server, build(to="mine@example.org")).expect(200)
    refused = request("POST", PATH, {})
    assert refused.expect(401) == {"message": "Forbidden"}
    # A browser would ask for the key, and send it with forms of other sites
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert request("GET", events, authorize(str(server.key), "root")).status == 401
    assert request("GET", events, {"Authorization": f"Bearer {server.key}"}).status == 401
    assert post(server, MAIL, key=reader).expect(403)["message"].endswith("messages:send scope.")
    assert request("DELETE", bounce, authorize(reader)).status == 403
    assert request("GET", "/v3/nodomain/events", authorize(reader)).status == 404
    assert "message" in request("PUT", PATH, authorize(reader)).expect(405)
    assert "message" in request("GET", f"{events}/e30", authorize(reader)).expect(400)
    assert request("GET", events, authorize(other)).expect(200)["items"] == []
    assert request("DELETE", bounce, authorize(other)).status == 404
    assert request("GET", f"{events}?limit=301&event=eaten&page=2", authorize(reader)).expect(400)["errors"].keys() == {
        "limit", "event", "page",
    }  # fmt: skip


def test_events_show_contacts_to_nobody_else(server: Server, api: Client) -> None:
    """A key that may not read contacts gets the subject with its merge tags, as it was submitted (T45)."""
    api.post("/contacts", {"email": "secret@example.org", "first_name": "Secretname"}).expect(201)
    body = {"to": "secret@example.org", "subject": "Hi {{ first_name }}", "body": "x", "tags": {"domain": DOMAIN}}
    api.post("/messages", body).expect(201)
    path = f"/v3/{DOMAIN}/events?recipient=secret@example.org"

    def read_subjects(key: str) -> set[str]:
        items = Client(server.url).request("GET", path, None, authorize(key)).expect(200)["items"]
        return {item["message"]["headers"]["subject"] for item in items}

    wait_until(lambda: bool(read_subjects(str(server.key))))
    assert read_subjects(str(server.key)) == {"Hi Secretname"}
    assert read_subjects(server.new_key("narrow", "--scope", "messages:read")) == {"Hi {{ first_name }}"}


def test_domain_must_be_one_of_the_account(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Where senders are checked, an unknown domain in the path is 404, and an unverified sender an error."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "false"})
    server.client().post("/domains", {"domain": {"name": DOMAIN}}).expect(201)
    unknown = post_form(server, "/v3/other.example/messages", MAIL).expect(404)
    unverified = post(server, MAIL).expect(400)
    tested = post_form(server, "/v3/other.example/messages", MAIL, key=server.new_key("test", "--test"))

    assert unknown["message"] == "Domain not found: other.example"
    assert "from" in unverified["errors"]
    assert tested.status == 200


def test_killed_request_can_be_repeated(fresh_server: FreshServer) -> None:
    """After a kill in the middle of a request, all recipients or none have a message; the repetition adds the rest."""
    server, count = fresh_server(), 300
    variables = {f"m{number}@example.org": {"n": str(number)} for number in range(count)}
    fields = bulk(variables, text="%recipient.n%", v__email_id="42")
    for delay in (0.1, 0.5):
        sending = threading.Thread(target=lambda: suppress_errors(lambda: post(server, fields)), daemon=True)
        sending.start()
        time.sleep(delay)
        server.kill()
        sending.join(30)
        server.start()
        assert count_messages(server) in (0, count)
    first, second = post(server, fields).expect(200), post(server, fields).expect(200)

    assert first == second
    assert count_messages(server) == count


def suppress_errors(function: Callable[[], object]) -> None:
    """Call a function whose connection may be lost."""
    with suppress(OSError, HTTPException):
        function()


def count_messages(server: Server) -> int:
    """Return the number of messages in the ledger."""
    return int(server.client().get("/messages", limit=1).headers["X-Total-Count"])
