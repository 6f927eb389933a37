"""What leaves can be stopped: the link, the button, the mailbox's one click (RFC 8058; T23, T24)."""

import re
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Response
from tests.kit.server import Server
from tests.kit.spoken import Spoken, speak

ONE_CLICK = b"List-Unsubscribe=One-Click"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def mailed(server: Server, name: str) -> tuple[dict[str, Any], str]:
    """Send somebody a campaign and answer the contact and the path of the unsubscribe link."""
    api = speak(server.client())
    group = api.lists.create({"name": name})["id"]
    contact = api.contacts.create({"email": f"{name.lower()}@example.org", "list_ids": [group]})
    made = api.campaigns.create({"name": name, "template_attributes": {"subject": "s", "body": "<p>b</p>"}})
    api.campaigns.send(made["id"], {"trigger_attributes": {"contact_list_id": group}})
    api.campaigns.get.wait(made["id"], until=lambda row: row["status"] == "completed")
    row = api.messages.list(contact_id=contact["id"])[0]
    text = api.messages.get(row["id"])["text"]
    found = re.search(r"http://[^/]+(/u/\S+)", text)
    assert found is not None
    return contact, found[1]


def ask(server: Server, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
    """Ask a recipient's link as a stranger."""
    return server.client(None, validate=False).request(method, path, body, headers or (FORM if body else {}))


def is_subscribed(server: Server, contact: dict[str, Any]) -> bool:
    """Return whether a contact still gets marketing."""
    found: bool = speak(server.client()).contacts.get(contact["id"])["subscribed_email"]
    return found


def test_reading_changes_nothing(server: Server) -> None:
    """Scanners may GET, HEAD and OPTIONS as often as they like; so may a POST without the words."""
    contact, path = mailed(server, "Reader")
    for method in ("GET", "HEAD", "OPTIONS"):
        for agent in ("Mozilla/5.0", "BarracudaCentral", ""):
            ask(server, method, path, None, **{"User-Agent": agent})
    page = ask(server, "GET", path)
    wrong = [ask(server, "POST", path, body) for body in (b"", b"confirm=0", b"List-Unsubscribe=yes", b'{"confirm":1}')]

    assert is_subscribed(server, contact)
    assert page.status == 200 and "Nothing changes until you press" in page.text
    assert [answer.status for answer in wrong] == [400] * 4
    assert speak(server.client()).events.list(event="opt_out", contact_id=contact["id"]) == []
    assert "reader@example.org" not in page.text and "r…r@e…e.org" in page.text
    assert (page.headers["Referrer-Policy"], page.headers["X-Robots-Tag"]) == ("no-referrer", "noindex")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize(("body", "source"), [(ONE_CLICK, "one_click"), (b"confirm=1", "link")])
def test_one_post_opts_out_and_repeats_change_nothing(server: Server, body: bytes, source: str) -> None:
    """No cookie, no redirect, 200 each time; one consent event with its source."""
    contact, path = mailed(server, f"Leaver-{source}")
    answers = [ask(server, "POST", path, body) for _ in range(3)]
    api = speak(server.client())
    stored = api.contacts.get(contact["id"])["channels"][0]
    events = api.events.list(event="opt_out", contact_id=contact["id"])

    assert [answer.status for answer in answers] == [200] * 3
    assert all("Set-Cookie" not in answer.headers and "Location" not in answer.headers for answer in answers)
    assert (stored["subscribed"], stored["opted_out_by"], stored["opt_out_at"] is not None) == (
        False,
        "recipient",
        True,
    )
    assert [one["data"]["source"] for one in events] == [source]


def test_a_browser_with_a_name_that_is_no_utf_8_may_leave(server: Server) -> None:
    """Whatever bytes a program calls itself by, its one click opts out, and it is led on where a page leads."""
    contact, path = mailed(server, "Latin")
    strange = {"User-Agent": "M\xfcnchen/1.0", "Referer": "https://example.org/\xe9", "Accept-Language": "\xff"}
    answers = [ask(server, "POST", path, body, **FORM, **strange) for body in (ONE_CLICK, b"confirm=1")]

    assert [answer.status for answer in answers] == [200, 200]
    assert not is_subscribed(server, contact)


def test_a_proxy_that_nobody_named_is_told_of(server: Server) -> None:
    """Behind one all are one client to the doors, which send nobody a fourth mail: the log says what to set, once."""
    for number in range(3):
        ask(server, "GET", "/robots.txt", None, **{"X-Forwarded-For": f"198.51.100.{number}"})
    server.wait_for_line("127.0.0.1 sends X-Forwarded-For and is not in network.trusted_proxies")
    assert server.output.count("network.trusted_proxies") == 1


def test_one_click_as_multipart(server: Server) -> None:
    """Mailboxes may send the words as a multipart form (RFC 8058, section 3.1)."""
    contact, path = mailed(server, "Multipart")
    body = b'--x\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--x--\r\n'
    answer = ask(server, "POST", path, body, **{"Content-Type": "multipart/form-data; boundary=x"})

    assert answer.status == 200
    assert not is_subscribed(server, contact)


def test_who_opted_out_is_not_brought_back_by_a_write(server: Server) -> None:
    """A create or update with the address keeps the opt-out and says so; only an explicit opt-in lifts it."""
    contact, path = mailed(server, "Keeper")
    ask(server, "POST", path, ONE_CLICK)
    api = speak(server.client())
    answer = api.contacts.create.response({"email": "keeper@example.org"})
    patched = api.contacts.update(contact["id"], {"email": "Keeper@example.org"})
    explicit = api.contacts.create({"email": "keeper@example.org", "opt_in": True})

    assert answer.status == 200
    written = answer.json
    assert (written["subscribed_email"], written["kept_opt_out"]) == (False, ["keeper@example.org"])
    assert (patched["subscribed_email"], patched["kept_opt_out"]) == (False, ["keeper@example.org"])
    assert (explicit["subscribed_email"], explicit["kept_opt_out"]) == (True, [])


def test_the_opt_out_outlives_the_contact(server: Server) -> None:
    """Deleting the contact and clicking afterwards both leave the address out when it returns."""
    contact, path = mailed(server, "Phoenix")
    api = speak(server.client())
    api.contacts.delete(contact["id"])
    assert ask(server, "POST", path, ONE_CLICK).status == 200
    back = api.contacts.create.response({"email": "phoenix@example.org"}).expect(201)

    assert (back["subscribed_email"], back["kept_opt_out"]) == (False, ["phoenix@example.org"])


def test_tokens_that_are_not_ours_open_nothing(server: Server) -> None:
    """Every changed character and every other purpose is the same 404 page."""
    contact, path = mailed(server, "Guess")
    token = path.removeprefix("/u/")
    text = speak(server.client()).messages.list(contact_id=contact["id"])[0]["internet_message_id"]
    wrong = [token[:-1], token + "A", "x", text.split("@")[0]]
    wrong += [token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :] for index in range(len(token))]
    for guess in wrong:
        assert ask(server, "POST", f"/u/{guess}", ONE_CLICK).status == 404, guess
        assert ask(server, "GET", f"/v/{guess}").status == 404, guess

    assert is_subscribed(server, contact)
    assert ask(server, "GET", f"/v/{token}").status == 404


def test_a_message_is_read_in_the_browser(fresh_server: FreshServer) -> None:
    """`view_url` shows the personal message, with nothing in it that can run."""
    server = fresh_server()
    api: Spoken = speak(server.client())
    group = api.lists.create({"name": "View"})["id"]
    api.contacts.create({"email": "view@example.org", "first_name": "Vera", "list_ids": [group]})
    content = {"subject": "s", "body": "<p>Hi {{ first_name }} <a href='{{ view_url }}'>view</a><script>1</script></p>"}
    made = api.campaigns.create({"name": "v", "template_attributes": content})
    api.campaigns.send(made["id"], {"trigger_attributes": {"contact_list_id": group}})
    api.campaigns.get.wait(made["id"], until=lambda row: row["status"] == "completed")
    html = api.messages.get(api.messages.list()[0]["id"])["html"]
    found = re.search(r"http://[^/]+(/v/[\w-]+)", html)
    assert found is not None
    page = ask(server, "GET", found[1])

    assert page.status == 200 and "Hi Vera" in page.text
    assert (
        "sandbox" in page.headers["Content-Security-Policy"] and "script" not in page.headers["Content-Security-Policy"]
    )
