"""Mail that reaches only its recipient, and headers without injected lines (T06, T07)."""

import re
from typing import Any

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.smtp import SmtpServer
from tests.kit.smtp_message import Message
from tests.kit.uploads import upload, wait_for_import


def test_mail_contains_only_data_of_its_recipient(
    fresh_server: FreshServer, smtp_server: SmtpServer, full: bool
) -> None:
    """Each mail has one recipient, only that recipient's values, and its own unsubscribe token (T06)."""
    count = 20_000 if full else 100
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__CONNECTIONS": "20"})
    api = server.client(keep_alive=True)
    list_id = api.post("/lists", {"name": "Crowd"}).expect(201)["id"]
    lines = ["email,first_name,last_name,mark,half"]
    lines += [
        f"p{number}@crowd.example,F{number}F,L{number}L,m{number}m,{'even' if number % 2 else 'odd'}"
        for number in range(count)
    ]
    wait_for_import(api, upload(api, "\r\n".join(lines), list_ids=[list_id], consent_source="test"), timeout=300)
    campaign = api.post("/campaigns", {"name": "Crowd", "template_attributes": personal_content()}).expect(201)
    api.post(f"/campaigns/{campaign['id']}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    finished = api.wait(f"/campaigns/{campaign['id']}", lambda row: row["status"] == "completed", timeout=600)

    assert (finished["stats"]["sent"], len(smtp_server.messages)) == (count, count)
    tokens = {check_message(message) for message in smtp_server.messages}
    assert len(tokens) == count, "every message has its own token"
    chosen = smtp_server.messages[:: count // 5]
    for message in chosen:
        address = re.findall(r"<(http\S+/u/\S+)>", message.raw_header("List-Unsubscribe") or "")[0]
        api.request("POST", address[len(server.url) :], b"List-Unsubscribe=One-Click",
                    {"Content-Type": "application/x-www-form-urlencoded"}, False)  # fmt: skip
    left = {row["contact_id"] for row in api.all("/events", event="opt_out")}
    owners = {row["contact_id"] for message in chosen for row in api.get("/messages", to=message.to).json}
    assert left == owners and len(owners) == len(chosen)


def personal_content() -> dict[str, Any]:
    """Return content with merge tags in text, URLs, conditions and headers."""
    text = (
        "<p>{{ first_name }} {{ contact.last_name }} {{ contact.data.mark }} {{ email }} "
        '<a href="https://x.test/?e={{ contact.data.mark }}">go</a></p>'
    )
    only = {"show_if": [{"name": "data.half", "predicate": "eq", "value": "even"}]}
    return {
        "subject": "{{ first_name }}", "from_name": "To {{ contact.data.mark }}", "from_email": "a@bakery.example",
        "preheader": "{{ contact.last_name }}",
        "design": {"sections": [{"type": "text", "props": {"content": text}},
                                {"type": "text", "props": {"content": "<p>EVEN {{ first_name }}</p>", **only}},
                                {"type": "footer"}]},
    }  # fmt: skip


def check_message(message: Message) -> str:
    """Check that all values in a mail are its recipient's, and return its token."""
    number = message.to.partition("@")[0][1:]
    assert message.headers("To") == [message.to] and message.headers("Cc") == message.headers("Bcc") == []
    for part in (message.html() or "", message.text() or ""):
        assert set(re.findall(r"\b[FL]\d+[FL]\b|\bm\d+m\b", part)) == {f"F{number}F", f"L{number}L", f"m{number}m"} - (
            {f"L{number}L"} if f"L{number}L" not in part else set()
        )
        assert set(re.findall(r"p\d+@crowd\.example", part)) == {message.to}
        assert ("EVEN" in part) == bool(int(number) % 2)
    assert message.subject == f"F{number}F" and f"To m{number}m" in (message.header("From") or "")
    result = set(re.findall(r"/u/([\w.-]+)", (message.html() or "") + (message.raw_header("List-Unsubscribe") or "")))
    assert len(result) == 1
    return result.pop()


BREAKS = [
    "a\rb",
    "a\nBcc: v@x.test",
    "a\r\nBcc: v@x.test",
    "a\x85b",
    "a\u2028b",
    "a\u2029b",
    "a\x0bb",
    "a\x0cb",
    "a\0b",
]
WORDS = ["%0d%0aBcc: v@x.test", "=?utf-8?q?hi=0D=0ABcc:_v@x.y?=", "=?utf-8?b?aGkNCkJjYzogdkB4LnkNCg0KYm9keQ==?=",
         "a\\r\\nBcc: v@x.test", "<v@x.test>, other@x.test", '"x" <v@x.test>']  # fmt: skip


def test_headers_reject_line_breaks(api: Client) -> None:
    """A field that becomes a header rejects every kind of line break, wherever it is written (T07)."""
    template = api.post("/templates", {"name": "x"}).expect(201)["id"]
    campaign_id = api.post("/campaigns", {"name": "x"}).expect(201)["id"]
    for value in BREAKS:
        for name in ("subject", "from_name", "preheader"):
            assert api.post("/templates", {name: value}).status == 422, (name, value)
            assert api.patch(f"/templates/{template}", {name: value}).status == 422, (name, value)
            response = api.patch(f"/campaigns/{campaign_id}", {"template_attributes": {name: value}})
            assert f"template_attributes.{name}" in response.expect(422)["validation_errors"], (name, value)
        for name in ("from_email", "reply_to"):
            assert api.post("/templates", {name: f"a@x.test{value}"}).status == 422, (name, value)
        for name in ("to", "subject", "from_name", "reply_to", "from_email"):
            body = {"to": "a@x.test", "subject": "s", "body": "<p>b</p>"}
            assert api.post("/messages", {**body, name: f"a@x.test{value}"}).status == 422, (name, value)
        assert api.post("/messages", {"to": "a@x.test", "subject": "s", "body": "<p>b</p>",
                                      "headers": {"X-A": value}}).status == 422, value  # fmt: skip
        assert api.post("/lists", {"name": value}).status == 422, value


def test_merged_values_add_no_headers(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Contact data in subject and From name stays on one line, and each header occurs once (T07)."""
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    list_id = api.post("/lists", {"name": "=?utf-8?q?x=0D=0ABcc:_v@x.y?="}).expect(201)["id"]
    # A NUL cannot be stored
    values = [text for text in BREAKS + WORDS if "\0" not in text]
    for number, value in enumerate(values):
        body = {"email": f"h{number}@example.org", "data": {"name": value}, "list_ids": [list_id]}
        api.post("/contacts", body).expect(201)
    content = {"subject": "Hi {{ contact.data.name }}", "from_name": "{{ contact.data.name }}",
               "body": "<p>{{ contact.data.name }}</p>", "from_email": "ana@bakery.example"}  # fmt: skip
    campaign = api.post("/campaigns", {"name": "x", "template_attributes": content}).expect(201)
    api.post(f"/campaigns/{campaign['id']}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait(f"/campaigns/{campaign['id']}", lambda row: row["status"] == "completed", timeout=60)

    assert len(smtp_server.messages) == len(values)
    for message in smtp_server.messages:
        value = values[int(message.to.partition("@")[0][1:])]
        for name in ("From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "List-Id", "List-Unsubscribe"):
            assert len(message.headers(name)) == 1, (name, value)
        for name in ("Bcc", "Cc", "X-Evil", "body"):
            assert message.headers(name) == [], value
        assert message.headers("To") == [message.to] and message.header(
            "From",
        ).endswith("<ana@bakery.example>")
        shown = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", f"Hi {value}")
        assert message.subject == shown, "text that looks like an encoded word is text"
