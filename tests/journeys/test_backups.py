"""Automatic backups, backups before an upgrade, and what the doctor reports about them."""

import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import pytest

from appliance.storage.migrations import MIGRATIONS
from benchmarks.bench_backup import grow
from tests.api.test_threats_pages import Visitor, invite
from tests.conftest import FreshServer
from tests.kit.api_users import user_client
from tests.kit.clock import TestClock
from tests.kit.recipients import create_list
from tests.kit.server import EMAIL, PASSWORD, Server
from tests.kit.timeouts import extend_timeout

DAILY = {"CAMPANERO_BACKUP__EVERY": "24h", "CAMPANERO_BACKUP__KEEP": "2"}


def backups(server: Server) -> list[str]:
    """Return the names of the automatic backups, oldest first."""
    return sorted(path.name for path in (server.data / "backups").glob("campanero-*"))


def wait_for_backups(server: Server, count: int) -> list[str]:
    """Wait until there are `count` backups and no partial file."""
    end = time.monotonic() + extend_timeout(10)
    while len(backups(server)) != count or list((server.data / "backups").glob(".*")):
        assert time.monotonic() < end, (backups(server), server.output)
        time.sleep(0.1)
    return backups(server)


def test_daily_backups_keep_the_newest(fresh_server: FreshServer, clock: TestClock) -> None:
    """The first backup comes after a day, then one a day; the oldest are deleted, and other files stay."""
    server = fresh_server(clock=clock, env=DAILY)
    time.sleep(1.5)
    assert backups(server) == []
    clock.advance(hours=25)
    first = wait_for_backups(server, 1)
    (server.data / "backups" / "mine.tar.gz").write_bytes(b"mine")
    server.restart()
    for _ in range(2):
        clock.advance(hours=25)
        end = time.monotonic() + extend_timeout(10)
        before = backups(server)
        while backups(server)[-1:] == before[-1:]:
            assert time.monotonic() < end, server.output
            time.sleep(0.1)
        wait_for_backups(server, 2)
    assert first[0] not in backups(server) and (server.data / "backups" / "mine.tar.gz").exists()
    server.stop()


def test_backups_on_request_do_not_push_out_earlier_days(fresh_server: FreshServer, clock: TestClock) -> None:
    """Of the backups of a day the first stays, and the newest; those of the day before stay too."""
    server = fresh_server(clock=clock, env=DAILY)
    # To two o'clock of the day after tomorrow, so that the requests below are of one day
    clock.advance(86_400 * 2 - clock.now() % 86_400 + 3_600 * 2)
    [yesterday] = wait_for_backups(server, 1)
    clock.advance(hours=25)
    first = wait_for_backups(server, 2)[-1]
    owner, newest = Visitor(server, EMAIL), first
    for _ in range(4):
        clock.advance(minutes=1)
        assert owner.send("POST", "/settings/backups/create").status == 303
        end, before = time.monotonic() + extend_timeout(10), newest
        while (newest := backups(server)[-1]) == before:
            assert time.monotonic() < end, server.output
            time.sleep(0.1)
        assert wait_for_backups(server, 3) == [yesterday, first, newest]
    server.stop()


def test_a_failed_backup_is_logged(fresh_server: FreshServer, clock: TestClock) -> None:
    """The log has the reason of a failed backup, and the service keeps running."""
    server = fresh_server(clock=clock, env=DAILY)
    (server.data / "backups").write_text("in the way")
    clock.advance(hours=25)
    server.wait_for_line("backups: failed error=File exists: .*backups")
    time.sleep(2.5)
    assert server.client().get("/account").status == 200
    server.stop()


@pytest.fixture
def first_schema(fresh_server: FreshServer, full: bool) -> Server:
    """A data directory of the first schema; with `--full`, one of two gigabytes."""
    server = fresh_server()
    api = server.client(validate=False)
    create_list(api, 300)
    server.stop()
    database = server.data / "campanero.db"
    if full:
        grow(database, 2_000, 300)
    _downgrade_to_first_schema(database)
    return server


def _downgrade_to_first_schema(database: Path) -> None:

    connection = apsw.Connection(str(database))
    connection.execute(
        "DROP TABLE restoration; DROP TABLE installation; DROP TABLE send_log; "
        "PRAGMA application_id = 0; PRAGMA user_version = 1"
    )
    connection.close()


def test_an_upgrade_makes_a_backup_first(first_schema: Server, tmp_path: Path, full: bool) -> None:
    """The start of a newer version backs up the old database and migrates it, also after kills during the start."""
    server = first_schema
    backup = server.data / "backups" / f"before-schema-{len(MIGRATIONS)}.tar.gz"
    for turn in range(30 if full else 6):
        process = server.begin("serve", "--listen", f"127.0.0.1:{server.port}")
        time.sleep(0.05 + 0.1 * turn)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    server.start(timeout=600)
    assert server.client().get("/account").expect(200)["counts"]["contacts"] == 300
    server.stop()
    assert backup.exists() and not list((server.data / "backups").glob(".*"))
    names = [path.name for path in (server.data / "backups").iterdir()]
    assert names == [backup.name]
    shutil.copyfile(backup, tmp_path / "old.tar.gz")
    server.cli("restore", str(tmp_path / "old.tar.gz"), "--force", timeout=600)
    server.start()
    assert server.client().get("/account").expect(200)["counts"]["contacts"] == 300
    server.stop()


def test_the_doctor_reports_missing_backups(fresh_server: FreshServer, clock: TestClock) -> None:
    """Disabled backups are ok; a backup that is two days overdue is a warning."""
    server = fresh_server(clock=clock, start=False)
    assert "backups: automatic backups are off" in server.cli("doctor", expect=None).stdout
    server.env |= DAILY
    assert "there is no backup yet" in server.cli("doctor", expect=None).stdout
    clock.advance(hours=49)
    assert "warn  backups: there is no backup yet" in server.cli("doctor", expect=None).stdout
    server.start()
    wait_for_backups(server, 1)
    assert "the last is 0 hours old" in server.cli("doctor", expect=None).stdout
    server.stop()


def test_ids_after_a_restore_are_new(fresh_server: FreshServer, tmp_path: Path) -> None:
    """No link in an email that was sent after the backup leads to a message that is sent after the restore (T06).

    The restore replaces the current data, or begins in an empty directory without it, and can be repeated.
    """
    copy, server, other = tmp_path / "copy.tar.gz", fresh_server(), fresh_server(start=False, set_up=False)
    _send_letters(server, "before")
    leaked_key, owner = server.new_key("old program"), Visitor(server, EMAIL)
    invitation = invite(owner, "guest@example.org")
    server.cli("backup", str(copy), "--with-key")
    lost, key_id = _send_letters(server, "lost"), _find_key(server, "old program")
    assert owner.send("POST", f"/settings/keys/{key_id}/revoke").status == 303
    other.key = server.key
    server.stop()
    seen = {name: set(ids) for name, ids in lost.items()}
    for target, options in ((server, ["--force"]), (other, []), (server, ["--force"])):
        target.cli("restore", str(copy), *options)
        target.start()
        target.client().patch("/account", {"sending_stopped": False}).expect(200)
        fresh = _send_letters(target, "fresh")
        for name, ids in fresh.items():
            # Without the current data, ids that do not leave the installation may be given again.
            assert not seen[name] & ids or (name == "contacts" and not options), name
        api = target.client()
        for path in _links(lost["bodies"]):
            assert api.request("GET", path, validate=False).status == 404, path
        assert all(api.request("GET", path, validate=False).status == 200 for path in _links(fresh["bodies"]))
        assert api.request("GET", invitation, validate=False).status == 410
        # Only the current data knows that the key was revoked.
        assert target.client(leaked_key).get("/account").status == (401 if options else 200)
        target.stop()
        for name, ids in fresh.items():
            seen[name] |= ids


def test_a_restore_names_users_who_were_disabled(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The command names the users who can sign in again, and only them."""
    server, copy = fresh_server(), tmp_path / "copy.tar.gz"
    for name in ("leaver", "stays"):
        server.cli("user", "add", "--email", f"{name}@example.org", "--role", "admin", stdin=f"{PASSWORD}\n")
    server.cli("backup", str(copy))
    owner = user_client(server)
    [leaver] = [user for user in owner.get("/users").expect(200) if user["email"] == "leaver@example.org"]
    owner.patch(f"/users/{leaver['id']}", {"disabled": True}).expect(200)
    server.stop()
    warning = "Disabled since the backup, and able to sign in again: leaver@example.org.\n"
    assert warning in server.cli("restore", str(copy), "--force").stdout
    assert "Disabled since" not in server.cli("restore", str(copy), "--force").stdout


def _find_key(server: Server, name: str) -> int:
    keys = user_client(server).get("/api_keys").expect(200)
    return next(int(key["id"]) for key in keys if key["name"] == name)


def _letter(name: str) -> dict[str, str]:
    body = "<p>x</p><a href='{{ view_url }}'>view</a> <a href='{{ unsubscribe_url }}'>leave</a>"
    return {"to": f"{name}@example.org", "subject": name, "body": body}


def _send_letters(server: Server, name: str) -> dict[str, set[Any]]:
    """Send a message to a new contact; return the ids of both, of its events and the text of the captured email."""
    api = server.client()
    contact = api.post("/contacts", {"email": f"{name}@example.org"}).expect(201)
    message = api.post("/messages", _letter(name)).expect(201)
    api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")
    [captured] = api.get("/capture", message_id=message["id"]).expect(200)
    text = api.get(f"/capture/{captured['id']}").expect(200)["html"]
    events = {event["id"] for event in api.get("/events", contact_id=contact["id"]).expect(200)}
    return {"messages": {message["id"]}, "bodies": {text}, "contacts": {contact["id"]}, "events": events}


def _links(bodies: set[str]) -> list[str]:
    """Return the paths of the links to pages for recipients in HTML bodies."""
    paths = [urlsplit(url).path for body in bodies for url in re.findall(r'href="([^"]+)"', body)]
    links = [path for path in paths if path[:3] in ("/v/", "/u/", "/p/")]
    assert links, bodies
    return links
