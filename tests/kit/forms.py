"""Sign-up forms as visitors use them, and the confirmation emails."""

import re
from functools import cache
from itertools import count
from typing import Any
from urllib.parse import urlencode

from tests.kit.client import Client, Response
from tests.kit.server import Server

FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
# The environment of a server behind a proxy, so that a test can choose the client IP
BEHIND_PROXY = {"CAMPANERO_NETWORK__TRUSTED_PROXIES": "127.0.0.1"}
_clients = count(1)


def anonymous_client(server: Server) -> Client:
    """Return a client without an API key."""
    return server.client(None, validate=False)


def request_as_visitor(
    server: Server, method: str, path: str, form: dict[str, Any] | None = None, **headers: str
) -> Response:
    """Request a page without signing in; with a `form`, its fields are the URL-encoded body."""
    body = urlencode(form, doseq=True).encode() if form is not None else None
    return anonymous_client(server).request(method, path, body, (FORM_HEADERS if form is not None else {}) | headers)


@cache
def _client(url: str) -> Client:
    """Return the cached client of a server, which reads the OpenAPI document once."""
    return Client(url)


def create_form(server: Server, name: str, **body: Any) -> dict[str, Any]:
    """Create a form with a new list and return it."""
    api = server.client()
    list_id = api.post("/lists", {"name": f"{name} list"}).expect(201)["id"]
    form: dict[str, Any] = api.post("/forms", {"name": name, "list_ids": [list_id], **body}).expect(201)
    return form


def submit_form(server: Server, form: dict[str, Any], headers: dict[str, str] | None = None, **values: Any) -> Response:
    """Submit a form as JSON from a new client IP each time, and check the response against OpenAPI."""
    number = next(_clients)
    client = {"X-Forwarded-For": f"198.18.{number // 256}.{number % 256}"}
    return _client(server.url).post(f"/v1/public/forms/{form['public_key']}", values, client | (headers or {}))


def wait_for_system_emails(server: Server, address: str, count: int = 1) -> list[dict[str, Any]]:
    """Wait until `count` system emails to an address are sent, and return all."""
    api = server.client()
    messages = api.wait(
        "/messages", lambda rows: sum(message["status"] == "sent" for message in rows) >= count, to=address,
        source_type="system",
    )  # fmt: skip
    return [api.get(f"/messages/{message['id']}").expect(200) for message in messages]


def get_link(email: dict[str, Any], kind: str = "d") -> str:
    """Return the path of the only link of a kind in an email; both parts of the email must contain it."""
    paths = re.findall(rf"http://[^/]+(/{kind}/[\w-]+)", email["text"])
    assert len(set(paths)) == 1 and paths[0] in email["html"], email["text"]
    return str(paths[0])


def find_contact(server: Server, address: str) -> dict[str, Any] | None:
    """Return the contact with an email address, or None."""
    rows = [
        row for row in server.client().get("/contacts", search=address).expect(200)
        if any(channel["value"] == address for channel in row["channels"])
    ]  # fmt: skip
    return rows[0] if rows else None


def get_events(server: Server, name: str, **query: Any) -> list[dict[str, Any]]:
    """Return the events with a name, newest first."""
    rows: list[dict[str, Any]] = server.client().get("/events", event=name, **query).expect(200)
    return rows
