"""A forgotten password: the mail with the link, who sees it, and what the link opens, once (T13, T14, T18, T36)."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.smtp import SmtpServer

_NEW = "another long password"
_EVIL = {"X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example", "Host": "evil.example"}


@pytest.fixture(scope="module")
def sink() -> Iterator[SmtpServer]:
    """Where mail goes."""
    with SmtpServer() as running:
        yield running


@pytest.fixture(scope="module")
def server(sink: SmtpServer) -> Iterator[Server]:
    """A server that sends, with somebody who only looks."""
    settings = {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true"}
    with Server(relay=sink.port, env=settings).set_up() as running:
        running.give_address()
        running.client().patch("/account", {"email_from_email": "team@example.com"}).expect(200)
        running.cli("user", "add", "--email", "eye@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
        yield running
        running.stop()


def ask(server: Server, email: str, **headers: str) -> tuple[int, str]:
    """Ask for a link, and answer what is said about it."""
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin", **headers}
    answer = Client(server.url, validate=False).request("POST", "/forgot", f"email={email}".encode(), form)
    return answer.status, answer.text


def choose(server: Server, path: str, word: str) -> int:
    """Choose a password by a link."""
    stranger = object.__new__(Visitor)
    stranger.api, stranger.cookie = Client(server.url, validate=False), ""
    return stranger.send("POST", path, {"password": word}).status


def works(server: Server, word: str) -> bool:
    """Return whether the owner signs in with a password."""
    return Client(server.url).post("/v1/login", {"email": EMAIL, "password": word}).status == 200


def test_a_link_is_for_its_recipient_alone(server: Server, sink: SmtpServer) -> None:
    """Known and unknown read alike; the link names our own host, nobody else sees it, and it opens once."""
    known, unknown = ask(server, EMAIL, **_EVIL), ask(server, "nobody@example.org", **_EVIL)
    assert known == unknown and known[0] == 200 and EMAIL not in known[1]
    [mail] = sink.wait_for(1).messages
    source = mail.text() or ""
    assert mail.rcpt_to == [EMAIL] and b"evil.example" not in mail.raw
    found = re.search(re.escape(server.url) + r"(/reset/[\w-]+)", source)
    assert found, source
    link, token = found[1], found[1].rpartition("/")[2]

    eye = Visitor(server, "eye@example.org")
    api = server.client()
    row = api.get("/messages", source_type="system").expect(200)[0]
    pages = ("/outbox", *(f"/outbox/{row['id']}{part}" for part in ("?view=message", "?view=source", "/html")))
    seen = [api.get(f"/messages/{row['id']}").text, *(eye.send("GET", path).text for path in pages)]
    assert all(token not in text for text in seen) and "/forgot" in seen[0]
    assert not any(token.encode() in path.read_bytes() for path in server.data.iterdir() if path.is_file())
    assert token not in server.output

    here = Visitor(server, EMAIL)
    assert choose(server, link, "short") == 422
    assert choose(server, link[:-2] + ("AA" if link[-2:] != "AA" else "BB"), _NEW) == 410 and works(server, PASSWORD)
    with ThreadPoolExecutor(6) as hands:
        # Pressed six times at once, it counts once
        assert sorted(hands.map(lambda _: choose(server, link, _NEW), range(6))) == [303] + [410] * 5
    assert works(server, _NEW) and not works(server, PASSWORD) and here.send("GET", "/lists").status == 303
    assert choose(server, link, PASSWORD) == 410 and works(server, _NEW)


def test_a_flood_of_questions_is_three_mails(server: Server, sink: SmtpServer) -> None:
    """Three an hour to an address, ten questions of a client; any change of the password ends what is on its way."""
    before = len(sink.messages)
    assert [ask(server, "eye@example.org")[0] for _ in range(6)] == [200] * 6
    links = [found[0] for one in sink.wait_for(before + 3).messages[before:]
             if (found := re.search(r"/reset/[\w-]+", one.text() or ""))]  # fmt: skip
    assert len(links) == 3
    server.cli("user", "password", "--email", "eye@example.org", stdin=_NEW + "\n")
    assert {choose(server, link, PASSWORD) for link in links} == {410}
    assert [ask(server, f"n{n}@example.org")[0] for n in range(5)][-1] == 429
    time.sleep(0.3)
    assert len(sink.messages) == before + 3


def test_nothing_is_sent_where_mail_is_captured() -> None:
    """What all who sign in could read is never written; the page says what helps instead."""
    with Server().set_up() as server:
        assert "campanero user password" in ask(server, EMAIL)[1]
        assert server.client().get("/messages").expect(200) == []
        server.stop()
