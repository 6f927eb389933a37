"""Who may not change contacts gets no links with which a recipient would change them."""

import re
from typing import Any

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.api_users import add_user
from tests.kit.client import Client
from tests.kit.forms import create_form, request_as_visitor, submit_form
from tests.kit.server import Server

LINK = re.compile(r"/([updv])/((?:[\w-](?:=\r?\n)?){30})(?![\w-])")
BODY = "<a href='{{ unsubscribe_url }}'>u</a><a href='{{ preferences_url }}'>p</a><a href='{{ view_url }}'>v</a>"


@pytest.fixture(scope="module")
def messages(server: Server, api: Client) -> list[dict[str, Any]]:
    """Return a sent email to a contact, an email that asks for a confirmation, and an SMS with a link."""
    contact = api.post("/contacts", {"email": "linked@example.org", "phone": "+442079460044"}).expect(201)
    email = {"to": "linked@example.org", "subject": "s", "body": BODY, "transactional": False}
    sms = {"channel": "sms", "to": "+442079460044", "body": "Choose: {{ preferences_url }}"}
    ids = [api.post("/messages", body).expect(201)["id"] for body in (email, sms)]
    submit_form(server, create_form(server, "Linked"), email="signs@example.org").expect(202)
    [confirmation] = api.wait("/messages", lambda rows: len(rows) == 1, to="signs@example.org")
    return [
        api.wait(f"/messages/{number}", lambda row: row["status"] == "sent") | {"contact": contact["id"]}
        for number in (*ids, confirmation["id"])
    ]


def read_all(api: Client, messages: list[dict[str, Any]]) -> str:
    """Return everything that the API shows of the messages."""
    texts = []
    for message in messages:
        [captured] = api.get("/capture", message_id=message["id"]).expect(200)
        paths = [f"/messages/{message['id']}", f"/capture/{captured['id']}", f"/capture/{captured['id']}/raw"]
        texts += [api.get(path).text for path in (*paths, f"/contacts/{message['contact']}/conversation")]
    return "\n".join(texts)


def read_pages(page: Visitor, api: Client, messages: list[dict[str, Any]]) -> str:
    """Return everything that the pages show of the messages."""
    texts = []
    for message in messages:
        [captured] = api.get("/capture", message_id=message["id"]).expect(200)
        paths = [
            f"/outbox/{message['id']}/html", f"/outbox/{message['id']}?view=source", f"/inbox/{captured['id']}/html",
            *(f"/inbox/{captured['id']}?view={view}" for view in ("phone", "text", "source", "headers", "html")),
            f"/contacts/{message['contact']}/messages/{message['id']}",
            f"/contacts/{message['contact']}/messages/{message['id']}/html",
            f"/contacts/{message['contact']}/conversation", f"/contacts/{message['contact']}",
        ]  # fmt: skip
        responses = [page.send("GET", path) for path in paths]
        assert all(response.status in (200, 404) for response in responses)
        texts += [response.text for response in responses]
    return "\n".join(texts)


def test_readers_get_no_links_of_recipients(server: Server, api: Client, messages: list[dict[str, Any]]) -> None:
    """Viewers and keys that only read see where a link was; with `contacts:write` it works."""
    viewer = add_user(server, "viewer")
    reader = server.client(server.new_key("reader", "--scope", "read"))
    assert {link[0] for link in LINK.findall(read_all(api, messages))} == {*"updv"}
    for client in (viewer, reader):
        text = read_all(client, messages)
        assert LINK.findall(text) == [] and "/p/hidden" in text and "/d/hidden" in text
    shown = read_pages(Visitor(server, "owner@example.com"), api, messages)
    assert {link[0] for link in LINK.findall(shown)} == {*"updv"}
    hidden = read_pages(Visitor(server, "viewer@example.org"), api, messages)
    assert LINK.findall(hidden) == [] and "/u/hidden" in hidden
    assert request_as_visitor(server, "GET", "/p/hidden").status == 404
