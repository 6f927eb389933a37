"""Password reset: the email with the link, who can see it, and that the link works once (T13, T14, T18, T36)."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.test_threats_pages import Visitor
from tests.journeys.conftest import start_with_team
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.smtp import SmtpServer

_NEW = "another long password"
_EVIL = {"X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example", "Host": "evil.example"}


@pytest.fixture(scope="module")
def server(sink: SmtpServer) -> Iterator[Server]:
    """A server that sends through the sink, with an admin and two viewers beside the owner."""
    with start_with_team(sink, {"eye": "viewer", "tongue": "admin", "plain": "viewer"}) as running:
        yield running


def request_reset(server: Server, email: str, **headers: str) -> tuple[int, str]:
    """Request a reset link; return the status and the text of the page."""
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin", **headers}
    response = Client(server.url, validate=False).request("POST", "/forgot", f"email={email}".encode(), form)
    return response.status, response.text


def set_password(server: Server, path: str, password: str) -> int:
    """Set a password through a reset link and return the status."""
    visitor = object.__new__(Visitor)
    visitor.api, visitor.cookie = Client(server.url, validate=False), ""
    return visitor.send("POST", path, {"password": password}).status


def can_sign_in(server: Server, password: str) -> bool:
    """Return whether the owner can sign in with a password."""
    return Client(server.url).post("/v1/login", {"email": EMAIL, "password": password}).status == 200


def test_a_reset_link(server: Server, sink: SmtpServer) -> None:
    """Known and unknown addresses get the same page; the link uses our host, is shown to no user, and works once."""
    known, unknown = request_reset(server, EMAIL, **_EVIL), request_reset(server, "nobody@example.org", **_EVIL)
    assert known == unknown and known[0] == 200 and EMAIL not in known[1]
    [mail] = sink.wait_for(1).messages
    source = mail.text() or ""
    assert mail.rcpt_to == [EMAIL] and b"evil.example" not in mail.raw
    match = re.search(re.escape(server.url) + r"(/reset/[\w-]+)", source)
    assert match, source
    link, token = match[1], match[1].rpartition("/")[2]

    viewer = Visitor(server, "eye@example.org")
    api = server.client()
    row = api.get("/messages", source_type="system").expect(200)[0]
    pages = ("/outbox", *(f"/outbox/{row['id']}{part}" for part in ("?view=message", "?view=source", "/html")))
    seen = [api.get(f"/messages/{row['id']}").text, *(viewer.send("GET", path).text for path in pages)]
    assert all(token not in text for text in seen) and "/forgot" in seen[0]
    assert not any(token.encode() in path.read_bytes() for path in server.data.iterdir() if path.is_file())
    assert token not in server.output

    owner = Visitor(server, EMAIL)
    assert set_password(server, link, "short") == 422
    assert set_password(server, link[:-2] + ("AA" if link[-2:] != "AA" else "BB"), _NEW) == 410 and can_sign_in(
        server, PASSWORD
    )
    with ThreadPoolExecutor(6) as pool:
        # Submitted six times at once, it succeeds once
        assert sorted(pool.map(lambda _: set_password(server, link, _NEW), range(6))) == [303] + [410] * 5
    assert can_sign_in(server, _NEW) and not can_sign_in(server, PASSWORD) and owner.send("GET", "/lists").status == 303
    assert set_password(server, link, PASSWORD) == 410 and can_sign_in(server, _NEW)


def test_language_of_system_emails(server: Server, sink: SmtpServer) -> None:
    """A reset is in the language of the user's profile, else, like an invitation, in that of the account."""

    def read_email(address: str) -> tuple[str, str]:
        sink.wait_until(lambda: bool(sink.to(address)), f"an email to {address}")
        [mail] = sink.to(address)
        return mail.subject, mail.text() or ""

    english = {"Accept-Language": "en"}
    admin = Visitor(server, "tongue@example.org")
    assert admin.send("POST", "/settings/you/language", {"language": "de"}).status == 303
    request_reset(server, "tongue@example.org", **english)
    subject, text = read_email("tongue@example.org")
    assert subject == "Neues Passwort wählen" and "30 Minuten" in text

    server.client().patch("/account", {"locale": "fr-CA"}).expect(200)
    request_reset(server, "plain@example.org", **english)
    assert read_email("plain@example.org")[0] == "Choisir un nouveau mot de passe"

    assert admin.send("POST", "/settings/team", {"email": "new@example.org", "role": "viewer"}).status == 303
    assert "invite" in read_email("new@example.org")[0] and "équipe" in read_email("new@example.org")[1]


def test_limits_of_reset_requests(server: Server, sink: SmtpServer) -> None:
    """An address gets three emails an hour and a client ten requests; a changed password invalidates all links."""
    before = len(sink.to("eye@example.org"))
    assert [request_reset(server, "eye@example.org")[0] for _ in range(6)] == [200] * 6
    sink.wait_until(lambda: len(sink.to("eye@example.org")) >= before + 3, "three emails")
    links = [match[0] for message in sink.to("eye@example.org")[before:]
             if (match := re.search(r"/reset/[\w-]+", message.text() or ""))]  # fmt: skip
    assert len(links) == 3
    server.cli("user", "password", "--email", "eye@example.org", stdin=_NEW + "\n")
    assert {set_password(server, link, PASSWORD) for link in links} == {410}
    assert [request_reset(server, f"n{n}@example.org")[0] for n in range(5)][-1] == 429
    time.sleep(0.3)
    assert len(sink.to("eye@example.org")) == before + 3


def test_no_reset_email_with_the_capture_inbox() -> None:
    """With the capture inbox, which all users can read, no link is created; the page names the command instead."""
    with Server().set_up() as server:
        assert "campanero user password" in request_reset(server, EMAIL)[1]
        assert server.client().get("/messages").expect(200) == []
        server.stop()
