"""Attached files of messages: on the wire, on disk, refused ones, and their end (docs/decisions.md#7)."""

import base64
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.shared_clock import clock
from tests.kit.smtp import Message, SmtpServer

__all__ = ["clock"]
MAIL = {"to": "ann@example.org", "from": "ana@bakery.example", "subject": "Invoice", "html": "<p>Your invoice</p>"}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MEGABYTE = 1_048_576


def attachment(name: str, content: bytes, **more: Any) -> dict[str, Any]:
    """Return the JSON of a file."""
    return {"filename": name, "content": base64.b64encode(content).decode(), **more}


@pytest.fixture(scope="module")
def server(relay: SmtpServer, clock: TestClock) -> Iterator[Server]:
    """Yield a server that sends through the relay."""
    with Server(relay=relay.port, clock=clock).set_up() as running:
        running.set_postal_address()
        yield running
        running.stop()


def stored(server: Server) -> dict[str, Path]:
    """Return the stored files by their hash."""
    return {path.name: path for path in (server.data / "attachments").rglob("*") if path.is_file()}


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait up to 20 seconds for a condition."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def send(api: Client, relay: SmtpServer, body: dict[str, Any]) -> tuple[dict[str, Any], list[Message]]:
    """Send a message, wait until all recipients have it, and return the response and the mails."""
    before = len(relay.messages)
    created: dict[str, Any] = api.post("/messages", body).expect(201)
    for recipient in created["recipients"]:
        api.wait(f"/messages/{recipient['id']}", lambda row: row["status"] == "sent")
    return created, relay.messages[before:]


def test_files_and_inline_images_on_the_wire(api: Client, relay: SmtpServer, server: Server) -> None:
    """The mail has text, HTML with its image, and the files with their names, for every recipient; stored once."""
    names = [
        "report.pdf", 'Rechnung „März“ "2026"; Größe.pdf', "C:\\Users\\ana\\name.txt", "日本語" * 40 + ".csv",
        "x" * 240 + ".txt",
    ]  # fmt: skip
    files = [attachment(name, f"content of {index}".encode() * 50) for index, name in enumerate(names)]
    logo = attachment("logo.png", PIXEL, content_id="logo@bakery")
    invite = attachment("invite.ics", b"BEGIN:VCALENDAR", content_type='text/calendar; method="REQUEST"')
    html = "<p>Hi <img src='cid:logo@bakery' alt='Logo'><a href='cid:logo@bakery'>no link</a></p>"
    body = MAIL | {"html": html, "cc": ["bo@example.org"], "attachments": [*files, logo, invite]}
    created, mails = send(api, relay, body)

    assert len(mails) == 2
    for mail in mails:
        parsed = mail.parsed
        assert parsed.get_content_type() == "multipart/mixed"
        [content, *parts] = parsed.iter_parts()
        assert content.get_content_type() == "multipart/alternative"
        plain, related = content.iter_parts()
        assert (plain.get_content_type(), related.get_content_type()) == ("text/plain", "multipart/related")
        shown, image = related.iter_parts()
        assert 'src="cid:logo@bakery"' in shown.get_content() and "href" not in shown.get_content()
        assert (image["Content-ID"], image.get_content_disposition()) == ("<logo@bakery>", "inline")
        assert (image.get_content_type(), image.get_content(), image.get_filename()) == ("image/png", PIXEL, "logo.png")
        assert [part.get_filename() for part in parts] == [
            *names[:2], "name.txt", *names[3:], "invite.ics",
        ]  # fmt: skip
        assert [part.get_content_disposition() for part in parts] == ["attachment"] * 6
        assert parts[0].get_content_type() == "application/pdf"
        assert parts[0].get_payload(decode=True) == b"content of 0" * 50
        assert parts[5]["Content-Type"].params["method"] == "REQUEST"
        assert max(map(len, mail.raw.split(b"\r\n"))) <= 998
        assert mail.headers("Bcc") == []
    assert (created["attachments"][0]["filename"], created["attachments"][0]["size"]) == ("report.pdf", 600)
    assert api.get(f"/messages/{created['recipients'][1]['id']}").json["attachments"] == created["attachments"]
    paths = stored(server)
    assert len(paths) == 7
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths.values()} == {0o600}
    send(api, relay, body | {"to": "again@example.org", "cc": []})
    assert stored(server).keys() == paths.keys()


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        (attachment("setup.exe", b"x"), "filename"), (attachment("run.BAT. ", b"x"), "filename"),
        (attachment("invoice\u202efdp.js", b"x"), "filename"), (attachment("a\r\nBcc: x@y.org.pdf", b"x"), "filename"),
        (attachment("../", b"x"), "filename"), (attachment("a.pdf", b""), "content"),
        ({"filename": "a.pdf", "content": "not base64!"}, "content"), ({"filename": "a.pdf"}, "content"),
        (attachment("a.pdf", b"x", content_type="text/html\r\nX: y"), "content_type"),
        (attachment("a.pdf", b"x", content_type="message/rfc822"), "content_type"),
        (attachment("a.pdf", b"x", content_type="application/pdf; Name=run.exe"), "content_type"),
        (attachment("a.png", b"x", content_id="a> <b"), "content_id"),
    ],
)  # fmt: skip
def test_refused_files(api: Client, server: Server, entry: dict[str, Any], field: str) -> None:
    """A file that servers would reject or that could inject a header is an error at its field; nothing is stored."""
    before = stored(server).keys()
    body = MAIL | {"attachments": [attachment("fine.txt", b"x"), entry], "reply_to": "nobody"}
    error = api.post("/messages", body).expect(422)["validation_errors"]

    assert set(error) == {f"attachments[1].{field}", "reply_to"}
    assert stored(server).keys() == before


def test_limits_of_attachments(api: Client, relay: SmtpServer, server: Server) -> None:
    """25 MB arrive; a byte more, a larger body without files, and too many files do not; other routes take 2 MB."""
    content = os.urandom(25 * MEGABYTE)
    created, [mail] = send(api, relay, MAIL | {"attachments": [attachment("large.bin", content)]})
    [_, part] = mail.parsed.iter_parts()
    over = api.post("/messages", MAIL | {"attachments": [attachment("a.bin", content), attachment("b.bin", b"x")]})
    many = api.post("/messages", MAIL | {"attachments": [attachment("a.txt", b"x")] * 21})
    padded = attachment("a.txt", b"x") | {"note": "x" * 3 * MEGABYTE}

    assert part.get_payload(decode=True) == content and created["attachments"][0]["size"] == 25 * MEGABYTE
    assert over.expect(422)["validation_errors"] == {"attachments": ["is too large (maximum is 25 MB)"]}
    assert set(many.expect(422)["validation_errors"]) == {"attachments"}
    assert api.post("/messages", MAIL | {"attachments": [padded]}).expect(413)["code"] == "payload_too_large"
    assert api.post("/messages", MAIL | {"html": "x" * 3 * MEGABYTE}).status == 413
    assert api.post("/lists", {"name": "x" * 3 * MEGABYTE}).status == 413
    stranger = server.client("camp_live_wrong")
    assert stranger.post("/messages", MAIL | {"attachments": [attachment("a.bin", content)]}).status == 401
    assert api.post("/messages", {"channel": "sms", "to": "+14155550123", "body": "x",
                                  "attachments": [attachment("a.txt", b"x")]}).status == 422  # fmt: skip


def test_a_repeated_request_with_files(api: Client, relay: SmtpServer) -> None:
    """The same key and files give the first message; another content under the same name is a conflict."""
    body = MAIL | {"to": "twice@example.org", "attachments": [attachment("a.txt", b"one")]}
    key = {"Idempotency-Key": "file"}
    first, again = api.post("/messages", body, key).expect(201), api.post("/messages", body, key)
    other = api.post("/messages", body | {"attachments": [attachment("a.txt", b"two")]}, key)
    api.wait(f"/messages/{first['id']}", lambda row: row["status"] == "sent")

    assert (again.status, again.json["id"], again.json["attachments"]) == (200, first["id"], first["attachments"])
    assert (other.status, len(relay.to("twice@example.org"))) == (409, 1)


def test_erasure_deletes_the_files_of_a_contact(api: Client, server: Server, relay: SmtpServer) -> None:
    """The file of an erased contact is gone at once, unless another message needs it."""
    contact = api.post("/contacts", {"email": "erase@example.org"}).expect(201)["id"]
    shared, own = attachment("shared.txt", b"shared by two"), attachment("Ms Erase.txt", b"of one person")
    before = stored(server).keys()
    created, _ = send(api, relay, MAIL | {"to": "erase@example.org", "attachments": [shared, own]})
    send(api, relay, MAIL | {"to": "keeps@example.org", "attachments": [shared]})
    assert len(stored(server).keys() - before) == 2
    api.delete(f"/contacts/{contact}", erase="true").expect(200)
    wait_until(lambda: len(stored(server).keys() - before) == 1)

    [kept] = stored(server).keys() - before
    assert stored(server)[kept].read_bytes() == b"shared by two"
    assert api.get(f"/messages/{created['id']}").expect(200)["attachments"] == []


def test_a_retry_sends_the_same_bytes(api: Client, relay: SmtpServer) -> None:
    """After a temporary error, the file is sent with the same Message-ID and bytes."""
    relay.rules.store_then_close("doubt@*", times=1)
    body = MAIL | {"to": "doubt@example.org", "attachments": [attachment("a.bin", os.urandom(50_000))]}
    created = api.post("/messages", body).expect(201)
    api.wait(f"/messages/{created['id']}", lambda row: row["status"] == "sent", timeout=60)
    first, second = relay.to("doubt@example.org")

    assert first.raw == second.raw


def test_old_files_are_deleted(api: Client, relay: SmtpServer, server: Server, clock: TestClock) -> None:
    """30 days after the last change of its message a file is deleted; a held message keeps its file."""
    later = {"send_at": "2099-01-01T00:00:00Z", "attachments": [attachment("later.txt", b"for a held message")]}
    held = api.post("/messages", MAIL | later).expect(201)
    sent, _ = send(api, relay, MAIL | {"to": "old@example.org", "attachments": [attachment("old.txt", b"an old file")]})
    assert len(stored(server)) >= 2
    clock.advance(days=31)
    wait_until(lambda: len(stored(server)) == 1)

    assert [path.read_bytes() for path in stored(server).values()] == [b"for a held message"]
    assert api.get(f"/messages/{sent['id']}").expect(200)["attachments"][0]["filename"] == "old.txt"
    assert api.get(f"/messages/{held['id']}").expect(200)["status"] == "held"


def test_killed_requests_leave_no_files(fresh_server: FreshServer) -> None:
    """A file whose request was killed before its rows were written is deleted at the next start; backups have files."""
    server = fresh_server()
    api = server.client()
    api.post("/messages", MAIL | {"attachments": [attachment("kept.txt", b"kept")]}).expect(201)
    [kept] = stored(server)
    lock = sqlite3.connect(server.data / "campanero.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")  # the file is written, and its rows are not
    body, key = (
        MAIL | {"to": "bo@example.org", "attachments": [attachment("a.txt", b"killed")]},
        {"Idempotency-Key": "k"},
    )
    client = server.client(validate=False)

    def post() -> None:
        with suppress(OSError, AssertionError):
            client.post("/messages", body, key)

    thread = threading.Thread(target=post)
    thread.start()
    wait_until(lambda: len(stored(server)) == 2)
    server.kill()
    thread.join(10)
    lock.close()
    server.start()
    wait_until(lambda: list(stored(server)) == [kept])
    assert [row["to"] for row in api.get("/messages").expect(200)] == ["ann@example.org"]
    again = api.post("/messages", body, key).expect(201)
    api.wait(f"/messages/{again['id']}", lambda row: row["status"] == "sent")
    kept_files = stored(server).keys()
    assert len(kept_files) == 2
    backup = server.home / "backup.tar.gz"
    server.cli("backup", str(backup))
    server.stop()
    stored(server)[kept].unlink()
    server.cli("restore", str(backup), "--force")

    assert stored(server).keys() == kept_files and stored(server)[kept].read_bytes() == b"kept"


def captured_raw(api: Client, message_id: int) -> Response:
    """Return the source of a captured message."""
    [row] = api.wait("/capture", bool, message_id=message_id)
    return api.get(f"/capture/{row['id']}/raw")


def test_captured_messages_have_their_files(fresh_server: FreshServer) -> None:
    """The test inbox stores no second copy of a file, and its source has the file all the same."""
    server = fresh_server()
    api, content = server.client(), os.urandom(MEGABYTE)
    created = api.post("/messages", MAIL | {"attachments": [attachment("data.bin", content)]}).expect(201)
    raw = captured_raw(api, created["id"])
    database = server.data / "campanero.db"
    size = database.stat().st_size + database.with_name("campanero.db-wal").stat().st_size

    parsed = message_from_bytes(raw.body, policy=policy.default)
    [part] = parsed.iter_attachments()
    assert part.get_payload(decode=True) == content
    assert size < 40 * MEGABYTE
