"""Unsubscribing by the link, the button and the mailbox's one click (RFC 8058; T23, T24)."""

import re
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Response
from tests.kit.openapi_client import OpenApiClient, open_api_client
from tests.kit.server import Server

ONE_CLICK = b"List-Unsubscribe=One-Click"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def send_campaign(server: Server, name: str) -> tuple[dict[str, Any], str]:
    """Send a campaign to a new contact; return the contact and the path of its unsubscribe link."""
    api = open_api_client(server.client())
    list_id = api.lists.create({"name": name})["id"]
    contact = api.contacts.create({"email": f"{name.lower()}@example.org", "list_ids": [list_id]})
    campaign = api.campaigns.create({"name": name, "template_attributes": {"subject": "s", "body": "<p>b</p>"}})
    api.campaigns.send(campaign["id"], {"trigger_attributes": {"contact_list_id": list_id}})
    api.campaigns.get.wait(campaign["id"], until=lambda row: row["status"] == "completed")
    row = api.messages.list(contact_id=contact["id"])[0]
    text = api.messages.get(row["id"])["text"]
    match = re.search(r"http://[^/]+(/u/\S+)", text)
    assert match is not None
    return contact, match[1]


def request(server: Server, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
    """Send an anonymous request to a recipient's link."""
    return server.client(None, validate=False).request(method, path, body, headers or (FORM if body else {}))


def is_subscribed(server: Server, contact: dict[str, Any]) -> bool:
    """Return whether a contact is subscribed to email."""
    subscribed: bool = open_api_client(server.client()).contacts.get(contact["id"])["subscribed_email"]
    return subscribed


def test_reading_the_page_changes_nothing(server: Server) -> None:
    """GET, HEAD, OPTIONS and POSTs with other bodies do not unsubscribe."""
    contact, path = send_campaign(server, "Reader")
    for method in ("GET", "HEAD", "OPTIONS"):
        for agent in ("Mozilla/5.0", "BarracudaCentral", ""):
            request(server, method, path, None, **{"User-Agent": agent})
    page = request(server, "GET", path)
    wrong = [
        request(server, "POST", path, body) for body in (b"", b"confirm=0", b"List-Unsubscribe=yes", b'{"confirm":1}')
    ]

    assert is_subscribed(server, contact)
    assert page.status == 200 and "Nothing changes until you press" in page.text
    assert [response.status for response in wrong] == [400] * 4
    assert open_api_client(server.client()).events.list(event="opt_out", contact_id=contact["id"]) == []
    assert "reader@example.org" not in page.text and "r…r@e…e.org" in page.text
    assert (page.headers["Referrer-Policy"], page.headers["X-Robots-Tag"]) == ("no-referrer", "noindex")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("body", "source"),
    [
        (ONE_CLICK, "one_click"), (ONE_CLICK + b"\r\n", "one_click"), (ONE_CLICK + b"\n", "one_click"),
        (b"confirm=1", "link"),
    ],
)  # fmt: skip
def test_repeated_posts_opt_out_once(server: Server, body: bytes, source: str) -> None:
    """Each POST returns 200 without cookie or redirect; there is one opt-out event with its source."""
    contact, path = send_campaign(server, f"Leaver-{source}-{len(body)}")
    responses = [request(server, "POST", path, body) for _ in range(3)]
    api = open_api_client(server.client())
    channel = api.contacts.get(contact["id"])["channels"][0]
    events = api.events.list(event="opt_out", contact_id=contact["id"])

    assert [response.status for response in responses] == [200] * 3
    assert all("Set-Cookie" not in response.headers and "Location" not in response.headers for response in responses)
    assert (channel["subscribed"], channel["opted_out_by"], channel["opt_out_at"] is not None) == (
        False,
        "recipient",
        True,
    )
    assert [event["data"]["source"] for event in events] == [source]


def test_headers_that_are_not_utf_8(server: Server) -> None:
    """A client whose headers are not UTF-8 can unsubscribe."""
    contact, path = send_campaign(server, "Latin")
    headers = {"User-Agent": "M\xfcnchen/1.0", "Referer": "https://example.org/\xe9", "Accept-Language": "\xff"}
    responses = [request(server, "POST", path, body, **FORM, **headers) for body in (ONE_CLICK, b"confirm=1")]

    assert [response.status for response in responses] == [200, 200]
    assert not is_subscribed(server, contact)


def test_an_untrusted_proxy_is_logged(server: Server) -> None:
    """X-Forwarded-For from an address outside `network.trusted_proxies` is logged once."""
    for number in range(3):
        request(server, "GET", "/robots.txt", None, **{"X-Forwarded-For": f"198.51.100.{number}"})
    server.wait_for_line("127.0.0.1 sends X-Forwarded-For and is not in network.trusted_proxies")
    assert server.output.count("network.trusted_proxies") == 1


def test_one_click_as_multipart_form(server: Server) -> None:
    """The one-click body may be a multipart form (RFC 8058, section 3.1)."""
    contact, path = send_campaign(server, "Multipart")
    body = b'--x\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--x--\r\n'
    response = request(server, "POST", path, body, **{"Content-Type": "multipart/form-data; boundary=x"})

    assert response.status == 200
    assert not is_subscribed(server, contact)


def test_writes_keep_an_opt_out(server: Server) -> None:
    """Creating or updating the contact keeps the opt-out and says so; an explicit `opt_in` lifts it."""
    contact, path = send_campaign(server, "Keeper")
    request(server, "POST", path, ONE_CLICK)
    api = open_api_client(server.client())
    response = api.contacts.create.response({"email": "keeper@example.org"})
    patched = api.contacts.update(contact["id"], {"email": "Keeper@example.org"})
    explicit = api.contacts.create({"email": "keeper@example.org", "opt_in": True})

    assert response.status == 200
    contact_row = response.json
    assert (contact_row["subscribed_email"], contact_row["kept_opt_out"]) == (False, ["keeper@example.org"])
    assert (patched["subscribed_email"], patched["kept_opt_out"]) == (False, ["keeper@example.org"])
    assert (explicit["subscribed_email"], explicit["kept_opt_out"]) == (True, [])


def test_an_opt_out_survives_deleting_the_contact(server: Server) -> None:
    """Unsubscribing after the contact was deleted applies when the address is added again."""
    contact, path = send_campaign(server, "Phoenix")
    api = open_api_client(server.client())
    api.contacts.delete(contact["id"])
    assert request(server, "POST", path, ONE_CLICK).status == 200
    recreated = api.contacts.create.response({"email": "phoenix@example.org"}).expect(201)

    assert (recreated["subscribed_email"], recreated["kept_opt_out"]) == (False, ["phoenix@example.org"])


def test_forged_tokens_return_404(server: Server) -> None:
    """Changed tokens and tokens of other purposes return 404 and change nothing."""
    contact, path = send_campaign(server, "Guess")
    token = path.removeprefix("/u/")
    text = open_api_client(server.client()).messages.list(contact_id=contact["id"])[0]["internet_message_id"]
    wrong = [token[:-1], token + "A", "x", text.split("@")[0]]
    wrong += [token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :] for index in range(len(token))]
    for guess in wrong:
        assert request(server, "POST", f"/u/{guess}", ONE_CLICK).status == 404, guess
        assert request(server, "GET", f"/v/{guess}").status == 404, guess

    assert is_subscribed(server, contact)
    assert request(server, "GET", f"/v/{token}").status == 404


def test_the_browser_view_of_a_message(fresh_server: FreshServer) -> None:
    """`view_url` shows the personalised message without scripts."""
    server = fresh_server()
    api: OpenApiClient = open_api_client(server.client())
    list_id = api.lists.create({"name": "View"})["id"]
    api.contacts.create({"email": "view@example.org", "first_name": "Vera", "list_ids": [list_id]})
    content = {"subject": "s", "body": "<p>Hi {{ first_name }} <a href='{{ view_url }}'>view</a><script>1</script></p>"}
    campaign = api.campaigns.create({"name": "v", "template_attributes": content})
    api.campaigns.send(campaign["id"], {"trigger_attributes": {"contact_list_id": list_id}})
    api.campaigns.get.wait(campaign["id"], until=lambda row: row["status"] == "completed")
    html = api.messages.get(api.messages.list()[0]["id"])["html"]
    match = re.search(r"http://[^/]+(/v/[\w-]+)", html)
    assert match is not None
    page = request(server, "GET", match[1])

    assert page.status == 200 and "Hi Vera" in page.text
    assert (
        "sandbox" in page.headers["Content-Security-Policy"] and "script" not in page.headers["Content-Security-Policy"]
    )
