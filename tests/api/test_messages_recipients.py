"""Messages with copies, own parts, sender and headers: one message to each recipient (docs/decisions.md#7)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import Message, SmtpServer

MAIL = {"to": "ann@example.org", "from": "Ana Núñez <ana@bakery.example>", "subject": "Order {{ data.number }}",
        "html": "<p>Hello {{ contact.first_name }}, no. {{ data.number }}</p>", "data": {"number": 7}}  # fmt: skip
FINAL = ("sent", "skipped", "failed")


@pytest.fixture(scope="module")
def server(relay: SmtpServer) -> Iterator[Server]:
    """Yield a server that sends through the relay."""
    with Server(relay=relay.port).set_up() as running:
        running.set_postal_address()
        yield running
        running.stop()


def send(api: Client, relay: SmtpServer, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Message]]:
    """Send a message, wait until each recipient has an outcome, and return the response and the mails by recipient."""
    before = len(relay.messages)
    created: dict[str, Any] = api.post("/messages", body).expect(201)
    for recipient in created["recipients"]:
        api.wait(f"/messages/{recipient['id']}", lambda row: row["status"] in FINAL)
    return created, {message.to: message for message in relay.messages[before:]}


def test_each_recipient_gets_a_message_of_its_own(api: Client, relay: SmtpServer) -> None:
    """One RCPT each; To and Cc are in all headers, Bcc in no bytes; suppressed recipients are reported (T06)."""
    api.post("/contacts", {"email": "ann@example.org", "first_name": "Ann"}).expect(201)
    api.post("/contacts", {"email": "boss@example.org", "first_name": "Boss"}).expect(201)
    api.post("/suppressions", {"address": "gone@example.org", "reason": "manual"}).expect(201)
    body = MAIL | {"cc": ["boss@example.org", "gone@example.org", "ed@bücher.example"],
                   "bcc": ["archive@example.org"]}  # fmt: skip
    created, mails = send(api, relay, body)
    detail = api.get(f"/messages/{created['recipients'][1]['id']}").expect(200)

    assert [(row["kind"], row["address"], row["skip_reason"]) for row in created["recipients"]] == [
        ("to", "ann@example.org", None), ("cc", "boss@example.org", None),
        ("cc", "gone@example.org", "suppressed_manual"), ("cc", "ed@bücher.example", None),
        ("bcc", "archive@example.org", None),
    ]  # fmt: skip
    assert (created["id"], created["to"]) == (created["recipients"][0]["id"], "ann@example.org")
    assert set(mails) == {"ann@example.org", "boss@example.org", "ed@xn--bcher-kva.example", "archive@example.org"}
    for mail in mails.values():
        assert mail.header("To") == "ann@example.org"
        assert mail.header("Cc") == "boss@example.org, gone@example.org, ed@xn--bcher-kva.example"
        assert mail.headers("Bcc") == [] and (b"archive@" in mail.raw) is False
        assert "Hello Ann, no. 7" in mail.parsed.get_body(("html",)).get_content()
        assert "Hello Ann, no. 7" in mail.parsed.get_body(("plain",)).get_content()
    assert len({mail.header("Message-ID") for mail in mails.values()}) == 4
    assert (detail["to"], detail["recipients"][0]["status"]) == ("boss@example.org", "sent")
    assert {row["id"] for row in detail["recipients"]} == {row["id"] for row in created["recipients"]}


def test_the_idempotency_key_covers_all_recipients(api: Client, relay: SmtpServer) -> None:
    """A repeated request sends to nobody again; with another recipient it is a conflict."""
    body = MAIL | {"to": "once@example.org", "bcc": ["copy@example.org"]}
    first = api.post("/messages", body, {"Idempotency-Key": "copies"}).expect(201)
    again = api.post("/messages", body, {"Idempotency-Key": "copies"})
    for recipient in first["recipients"]:
        api.wait(f"/messages/{recipient['id']}", lambda row: row["status"] in FINAL)

    assert (again.status, [row["id"] for row in again.json["recipients"]]) == (
        200, [row["id"] for row in first["recipients"]],
    )  # fmt: skip
    assert api.post("/messages", body | {"bcc": ["other@example.org"]}, {"Idempotency-Key": "copies"}).status == 409
    assert [len(relay.to(address)) for address in ("once@example.org", "copy@example.org")] == [1, 1]


def test_suppressed_to_with_a_deliverable_copy(api: Client, relay: SmtpServer) -> None:
    """The copy is sent although `to` is suppressed; if all are, the response is 422."""
    for address in ("no@example.org", "neither@example.org"):
        api.post("/suppressions", {"address": address, "reason": "manual"}).expect(201)
    created, mails = send(api, relay, MAIL | {"to": "no@example.org", "cc": ["yes@example.org"]})
    error = api.post("/messages", MAIL | {"to": "no@example.org", "cc": ["neither@example.org"]}).expect(422)

    assert (created["status"], set(mails)) == ("skipped", {"yes@example.org"})
    assert (mails["yes@example.org"].header("To"), error["reason"]) == ("no@example.org", "recipient_suppressed")


def test_own_html_text_sender_and_headers(api: Client, relay: SmtpServer) -> None:
    """`html` without a tag is HTML all the same, `text` alone makes both parts, and allowed headers are sent."""
    headers = {"X-Order": "7", "In-Reply-To": "<1@bakery.example>", "References": "<0@bakery.example> " * 20,
               "List-Unsubscribe": "<https://bakery.example/stop>"}  # fmt: skip
    own = {"html": "Fish &amp; chips", "text": "Fish & chips!", "reply_to": "help@bakery.example", "headers": headers}
    _, mails = send(api, relay, MAIL | own | {"from": '"Núñez, \\"Ana\\"" <ana@bakery.example>'})
    mail = mails["ann@example.org"]
    plain = {"html": None, "text": "1 < 2 & <b>so</b> {{ data.number }}", "from": "ana@bakery.example"}
    _, mails = send(api, relay, MAIL | plain | {"to": "plain@example.org"})
    parsed = mails["plain@example.org"].parsed

    assert mail.header("From") == '"Núñez, \\"Ana\\"" <ana@bakery.example>'
    assert "<div>Fish &amp; chips</div>" in mail.parsed.get_body(("html",)).get_content()
    assert mail.parsed.get_body(("plain",)).get_content().strip() == "Fish & chips!"
    assert {name: (mail.header(name) or "").strip() for name in headers} == {
        name: value.strip() for name, value in headers.items()
    }
    assert mail.header("Reply-To") == "help@bakery.example"
    assert parsed.get_body(("plain",)).get_content().strip() == "1 < 2 & <b>so</b> 7"
    assert "1 &lt; 2 &amp; &lt;b&gt;so&lt;/b&gt; 7" in parsed.get_body(("html",)).get_content()


def test_all_faults_are_reported_at_their_fields(api: Client) -> None:
    """Every fault of recipients, sender, content and headers is at its own field, and nothing is queued."""
    before = api.get("/messages").headers["X-Total-Count"]
    template = api.post("/templates", {"name": "t", "subject": "s", "body": "<p>x</p>"}).expect(201)["id"]
    body = MAIL | {
        "cc": ["ANN@example.org", "x", "käse@example.org"], "bcc": ["a\r\nb@example.org"], "from": "Ana <no at>",
        "from_name": "Ana", "template_id": template, "text": "x",
        "headers": {"Bcc": "a@example.org", "Received": "x", "X-SMTPAPI": "{}", "X-A": "ü",
                    "X-MSYS-API": '{"bcc": []}', "X-MC-BccAddress": "a@example.org"},
    }  # fmt: skip
    error = api.post("/messages", body).expect(422)["validation_errors"]

    assert set(error) == {
        "cc[0]", "cc[1]", "cc[2]", "bcc[0]", "from", "html", "text", "headers.Bcc", "headers.Received",
        "headers.X-SMTPAPI", "headers.X-A", "headers.X-MSYS-API", "headers.X-MC-BccAddress",
    }  # fmt: skip
    assert error["headers.Bcc"] == ["is not allowed as a header: use the field `bcc`"]
    many = [f"r{number}@example.org" for number in range(30)]
    for faulty, fields in (
        ({"cc": many, "bcc": [f"b{address}" for address in many]}, {"bcc"}),
        ({"cc": many * 2}, {"cc"}),
        ({"body": "<p>x</p>"}, {"html"}),
        ({"html": "{{ broken"}, {"html"}),
        ({"from": "{{ broken <ana@bakery.example>"}, {"from"}),
        ({"from": "A <a@bakery.example>, B <b@bakery.example>"}, {"from"}),
        ({"transactional": False, "cc": ["b@example.org"], "headers": {"List-Id": "x"}}, {"cc", "headers.List-Id"}),
        ({"channel": "sms", "to": "+14155550123", "body": "x", "cc": ["b@example.org"]}, {"cc"}),
    ):
        assert set(api.post("/messages", MAIL | faulty).expect(422)["validation_errors"]) == fields, faulty
    assert api.get("/messages").headers["X-Total-Count"] == before


def test_an_erased_recipient_leaves_the_headers(api: Client, relay: SmtpServer) -> None:
    """The erasure of a copied contact ends its message, and the others go without its address."""
    contact = api.post("/contacts", {"email": "leaver@example.org"}).expect(201)
    body = MAIL | {"to": "stays@example.org", "cc": ["leaver@example.org"], "send_at": "2099-01-01T00:00:00Z"}
    created = api.post("/messages", body).expect(201)
    api.delete(f"/contacts/{contact['id']}?erase=true").expect(200)
    detail = api.get(f"/messages/{created['id']}").expect(200)

    assert [(row["address"], row["status"]) for row in detail["recipients"]] == [
        ("stays@example.org", "held"), (None, "skipped"),
    ]  # fmt: skip
    assert "leaver" not in str(detail)


def test_copies_of_a_narrow_key_show_no_contact(api: Client, server: Server, relay: SmtpServer) -> None:
    """Without `contacts:read`, only the contact of `to` gets the contact's values, and no copy does (T45)."""
    api.post("/contacts", {"email": "una@example.org", "first_name": "Una", "data": {"plan": "gold"}}).expect(201)
    body = MAIL | {"to": "una@example.org", "cc": ["seen@example.org"], "bcc": ["unseen@example.org"],
                   "subject": "For {{ contact.first_name }}", "html": "<p>{{ contact.data.plan }}</p>"}  # fmt: skip
    narrow = server.client(server.new_key("shop", "--scope", "messages:send,messages:read"))
    _, mails = send(narrow, relay, body)
    _, wide = send(api, relay, body)

    assert {address: (mail.header("Subject"), b"gold" in mail.raw) for address, mail in mails.items()} == {
        "una@example.org": ("For Una", True), "seen@example.org": ("For", False), "unseen@example.org": ("For", False),
    }  # fmt: skip
    assert {(mail.header("Subject"), b"gold" in mail.raw) for mail in wide.values()} == {("For Una", True)}


def test_the_content_of_all_recipients_is_limited(api: Client) -> None:
    """Fewer recipients are allowed for larger content, that of a template included (T20)."""
    line = f"<p>{'word ' * 99}</p>\n"
    large = line * (400_000 // len(line))
    template = api.post("/templates", {"name": "Large", "subject": "s", "body": large}).expect(201)["id"]
    others = {"bcc": [f"r{number}@example.org" for number in range(49)], "send_at": "2099-01-01T00:00:00Z"}
    base = {"to": "one@example.org", "from": "ana@bakery.example"}
    for content in ({"subject": "s", "html": large}, {"template_id": template}):
        errors = api.post("/messages", base | others | content).expect(422)["validation_errors"]
        assert errors == {"bcc": ["is too long (maximum is 12 recipients)"]}
        few = base | others | content | {"bcc": others["bcc"][:11]}
        assert len(api.post("/messages", few).expect(201)["recipients"]) == 12
    assert api.post("/messages", base | others | {"subject": "s", "html": line * 100}).status == 201


def test_headers_may_not_name_another_message(api: Client, relay: SmtpServer) -> None:
    """Returned mail that names two messages is ignored, so a header may not add the name of another one (T31)."""
    _, mails = send(api, relay, MAIL | {"to": "self@example.org", "html": "<p>{{ unsubscribe_url }}</p>"})
    url = mails["self@example.org"].parsed.get_body(("plain",)).get_content().strip()
    addresses = (f"b+{'0' * 30}@bounce.bakery.example", f"unsubscribe+{'0' * 44}@bounce.bakery.example")
    values = [f"<{url}>", *(f"<mailto:{address}>" for address in addresses)]
    headers = {"X-Original-To": addresses[0], "x-hmxmroriginalrecipient": "ann@example.org"}
    faults = [api.post("/messages", MAIL | {"headers": {"List-Unsubscribe": value}}).expect(422) for value in values]
    reserved = api.post("/messages", MAIL | {"headers": headers}).expect(422)

    assert "/u/" in url
    assert [fault["validation_errors"] for fault in faults] == [{"headers.List-Unsubscribe": ["is invalid"]}] * 3
    assert reserved["validation_errors"] == {f"headers.{name}": ["is reserved"] for name in headers}
    foreign = {"List-Unsubscribe": f"<https://bakery.example/u/{'a' * 30}>, <mailto:stop@bakery.example>"}
    assert api.post("/messages", MAIL | {"headers": foreign}).status == 201
