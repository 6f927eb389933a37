"""Invitations of team members: the email with the link, who can see it, acceptance, and the ways in which it ends."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.api.test_threats_pages import Visitor
from tests.journeys.conftest import start_with_team
from tests.kit.api_users import user_client
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.smtp import SmtpServer
from tests.kit.smtp_message import Message

TEAM = "/settings/team"
_LINK = r"(?<!team)/invitations/\d+/[\w-]{22,}"


@pytest.fixture(scope="module")
def server(sink: SmtpServer) -> Iterator[Server]:
    """A server that sends through the sink, with an admin and a viewer beside the owner."""
    with start_with_team(sink, {"adam": "admin", "eye": "viewer"}) as running:
        yield running


@pytest.fixture(scope="module")
def owner(server: Server) -> Visitor:
    """The owner in a browser."""
    return Visitor(server, EMAIL)


def open_stranger(server: Server) -> Visitor:
    """Return a browser in which nobody is signed in."""
    visitor = object.__new__(Visitor)
    visitor.api, visitor.cookie = Client(server.url, validate=False), ""
    return visitor


def list_mails(sink: SmtpServer) -> list[Message]:
    """Return the messages that the server received, without those about a sign-in on a new device."""
    return [message for message in sink.messages if "/settings/you" not in (message.text() or "")]


def read_link(sink: SmtpServer, number: int) -> str:
    """Return the path of the link in the message with this number, counted from 1."""
    end = time.monotonic() + 60
    while len(list_mails(sink)) < number:
        assert time.monotonic() < end, "no message arrived"
        time.sleep(0.05)
    text = list_mails(sink)[number - 1].text() or ""
    match = re.search(_LINK, text)
    assert match, text
    return match[0]


def join(server: Server, link: str, **form: str) -> int:
    """Accept an invitation with a form and return the status."""
    return open_stranger(server).send("POST", link, {"name": "Ann", "password": PASSWORD, **form}).status


def find_row(owner: Visitor, email: str) -> str:
    """Return the path of an open invitation's forms."""
    row = next(row for row in re.findall(r"<tr>.*?</tr>", owner.send("GET", TEAM).text, re.S) if email in row)
    match = re.search(r"/settings/team/invitations/\d+", row)
    assert match
    return match[0]


def test_an_invitation_by_email(server: Server, sink: SmtpServer, owner: Visitor) -> None:
    """The link is in the email only, sets name, password and language, signs in, and works once."""
    count = len(list_mails(sink))
    assert owner.send("POST", TEAM, {"email": "Ann@Example.org", "role": "editor"}).status == 303
    assert "Invitation sent to ann@example.org" in owner.send("GET", TEAM).text
    link = read_link(sink, count + 1)
    mail = list_mails(sink)[count]
    assert mail.rcpt_to == ["ann@example.org"]
    assert "invites you to the team of Bakery" in " ".join((mail.text() or "").split())
    token = link.rpartition("/")[2]
    row = server.client().get("/messages", source_type="system").expect(200)[0]
    pages = ("/outbox", *(f"/outbox/{row['id']}{part}" for part in ("?view=message", "?view=source", "/html")), TEAM)
    seen = [server.client().get(f"/messages/{row['id']}").text, *(owner.send("GET", path).text for path in pages)]
    assert all(token not in text for text in seen)
    assert not any(token.encode() in path.read_bytes() for path in server.data.iterdir() if path.is_file())

    stranger = open_stranger(server)
    page = stranger.send("GET", link)
    assert page.status == 200 and "ann@example.org" in page.text and "Editor" in page.text
    rejected = stranger.send("POST", link, {"name": "", "password": "tiny-one", "language": "de"})
    assert rejected.status == 422 and "Enter your name." in rejected.text and "tiny-one" not in rejected.text
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda _: join(server, link, language="de"), range(4))) == [303] + [410] * 3
    ann = Visitor(server, "ann@example.org")
    assert 'lang="de"' in ann.send("GET", "/lists").text and ann.send("GET", TEAM).status == 403
    actions = [row["action"] for row in user_client(server).get("/audit").expect(200)]
    assert {"user_invite", "user_add"} <= set(actions)


def test_resending_and_revoking(server: Server, sink: SmtpServer, owner: Visitor) -> None:
    """A new link replaces the old one; a revoked invitation and one that has expired are refused."""
    count = len(list_mails(sink))
    owner.send("POST", TEAM, {"email": "bob@example.org", "role": "viewer"})
    first = read_link(sink, count + 1)
    assert owner.send("POST", f"{find_row(owner, 'bob@example.org')}/resend").status == 303
    second = read_link(sink, count + 2)
    assert first != second and open_stranger(server).send("GET", first).status == 410
    assert join(server, first) == 410
    assert owner.send("POST", f"{find_row(owner, 'bob@example.org')}/revoke").status == 303
    assert join(server, second) == 410 and "bob@example.org" not in owner.send("GET", TEAM).text.partition("toast")[0]
    assert open_stranger(server).send("GET", f"/invitations/{2**63}/x").status == 410


def test_who_may_invite_whom(server: Server, sink: SmtpServer, owner: Visitor) -> None:
    """Admins invite no owners, viewers nobody; members are named, and a disabled sender's invitation is void."""
    adam, eye = Visitor(server, "adam@example.org"), Visitor(server, "eye@example.org")
    assert adam.send("POST", TEAM, {"email": "x@example.org", "role": "owner"}).status == 403
    assert eye.send("POST", TEAM, {"email": "x@example.org", "role": "viewer"}).status == 403
    wrong = owner.send("POST", TEAM, {"email": "eye@example.org", "role": "viewer"})
    assert wrong.status == 422 and "already belongs to a member of your team" in wrong.text
    assert owner.send("POST", TEAM, {"email": "no address", "role": "viewer"}).status == 422
    count = len(list_mails(sink))
    assert adam.send("POST", TEAM, {"email": "cy@example.org", "role": "admin"}).status == 303
    link = read_link(sink, count + 1)
    users = user_client(server).get("/users").expect(200)
    number = next(user["id"] for user in users if user["email"] == "adam@example.org")
    owner.send("POST", f"{TEAM}/{number}/close")
    assert join(server, link) == 410
    owner.send("POST", f"{TEAM}/{number}/reopen")
    assert join(server, link) == 303


def test_without_a_mail_server_the_link_is_shown_once(tmp_path: Path) -> None:
    """In test mode no email is captured, because everybody reads those: the page shows the link, once."""
    clock = TestClock(tmp_path / "clock")
    with Server(clock=clock).set_up() as own:
        owner = Visitor(own, EMAIL)
        assert owner.send("POST", TEAM, {"email": "ann@example.org", "role": "owner"}).status == 303
        page = owner.send("GET", TEAM).text
        match = re.search(_LINK, page)
        assert match and not re.search(_LINK, owner.send("GET", TEAM).text)
        assert own.client().get("/messages").expect(200) == []
        clock.advance(days=8)
        assert join(own, match[0]) == 410
        owner = Visitor(own, EMAIL)
        assert "Expired" in owner.send("GET", TEAM).text
        owner.send("POST", f"{find_row(owner, 'ann@example.org')}/resend")
        match = re.search(_LINK, owner.send("GET", TEAM).text)
        assert match and join(own, match[0]) == 303
        addresses = [f"n{number}@example.org" for number in range(30)]
        statuses = [owner.send("POST", TEAM, {"email": email, "role": "viewer"}).status for email in addresses]
        assert statuses == [303] * 29 + [429]
        own.stop()
