"""Sign-up forms as strangers use them, and the mails that ask them to confirm."""

import re
from functools import cache
from itertools import count
from typing import Any
from urllib.parse import urlencode

from tests.kit.client import Client, Response
from tests.kit.server import Server

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# A server that is asked through a proxy, and the clients behind it
BEHIND = {"CAMPANERO_NETWORK__TRUSTED_PROXIES": "127.0.0.1"}
_clients = count(1)


def stranger(server: Server) -> Client:
    """Return a client without a key."""
    return server.client(None, validate=False)


def ask(server: Server, method: str, path: str, form: dict[str, Any] | None = None, **headers: str) -> Response:
    """Ask for a page as a stranger, or post a form to it."""
    body = urlencode(form, doseq=True).encode() if form is not None else None
    return stranger(server).request(method, path, body, (FORM if form is not None else {}) | headers)


@cache
def _client(url: str) -> Client:
    """Return the one client for a server, which reads its document once."""
    return Client(url)


def make_form(server: Server, name: str, **body: Any) -> dict[str, Any]:
    """Make a form with a list of its own."""
    api = server.client()
    group = api.post("/lists", {"name": f"{name} list"}).expect(201)["id"]
    made: dict[str, Any] = api.post("/forms", {"name": name, "list_ids": [group], **body}).expect(201)
    return made


def submit(server: Server, form: dict[str, Any], headers: dict[str, str] | None = None, **said: Any) -> Response:
    """Submit a form as JSON, each time as another client, and hold the answer against the document."""
    number = next(_clients)
    client = {"X-Forwarded-For": f"198.18.{number // 256}.{number % 256}"}
    return _client(server.url).post(f"/v1/public/forms/{form['public_key']}", said, client | (headers or {}))


def letters(server: Server, address: str, count: int = 1) -> list[dict[str, Any]]:
    """Return the mails that the service itself wrote to an address, once so many of them are sent."""
    api = server.client()
    found = api.wait(
        "/messages", lambda rows: sum(one["status"] == "sent" for one in rows) >= count, to=address,
        source_type="system",
    )  # fmt: skip
    return [api.get(f"/messages/{one['id']}").expect(200) for one in found]


def link(letter: dict[str, Any], kind: str = "d") -> str:
    """Return the path of a link in a mail, which stands in both of its parts."""
    found = re.findall(rf"http://[^/]+(/{kind}/[\w-]+)", letter["text"])
    assert len(set(found)) == 1 and found[0] in letter["html"], letter["text"]
    return str(found[0])


def contact(server: Server, address: str) -> dict[str, Any] | None:
    """Return the contact of an address, or None."""
    rows = [
        one for one in server.client().get("/contacts", search=address).expect(200)
        if any(each["value"] == address for each in one["channels"])
    ]  # fmt: skip
    return rows[0] if rows else None


def events(server: Server, name: str, **query: Any) -> list[dict[str, Any]]:
    """Return the events of a name, newest first."""
    found: list[dict[str, Any]] = server.client().get("/events", event=name, **query).expect(200)
    return found
