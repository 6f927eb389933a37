"""Files of the data directory are removed or replaced under a running service: acknowledged data is kept."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import upload, wait_for_import


def _remove(path: Path) -> None:
    path.rename(path.with_name("put-aside"))


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.rename(path.with_name("put-aside"))
    path.with_name("copy").rename(path)


def test_opt_outs_survive_removal_of_the_journal(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Opt-outs before and after the removal are applied by a restore."""
    server = fresh_server()
    api = server.client(validate=False)
    ids = [api.post("/contacts", {"email": f"p{n}@example.org"}).expect(201)["id"] for n in range(2)]
    copy = tmp_path / "kept.tar.gz"
    server.cli("backup", str(copy))
    api.patch(f"/contacts/{ids[0]}", {"subscribed_email": False}).expect(200)
    (server.data / "optouts.jsonl").unlink()
    api.patch(f"/contacts/{ids[1]}", {"subscribed_email": False}).expect(200)
    server.stop()
    assert (server.data / "optouts.jsonl").stat().st_mode & 0o077 == 0
    assert "2 opt outs" in server.cli("restore", str(copy), "--force").stdout


def test_opt_outs_follow_a_replaced_journal(fresh_server: FreshServer) -> None:
    """After the journal is replaced by a copy, later opt-outs are written to the new file."""
    server = fresh_server()
    api = server.client(validate=False)
    person = api.post("/contacts", {"email": "p@example.org"}).expect(201)["id"]
    api.post("/suppressions", {"address": "never@example.org"}).expect(201)
    _replace(server.data / "optouts.jsonl")
    api.patch(f"/contacts/{person}", {"subscribed_email": False}).expect(200)
    lines = (server.data / "optouts.jsonl").read_text().splitlines()
    assert [json.loads(line).get("act") for line in lines] == [None, "suppressed", "opt_out"]
    server.stop()


def test_opt_outs_that_cannot_be_written_down_are_logged(fresh_server: FreshServer) -> None:
    """The journal is replaced by a directory: the request is answered with 503, and the log names the file."""
    server = fresh_server()
    api = server.client(validate=False)
    person = api.post("/contacts", {"email": "p@example.org"}).expect(201)["id"]
    journal = server.data / "optouts.jsonl"
    journal.unlink(missing_ok=True)
    journal.mkdir()
    assert api.patch(f"/contacts/{person}", {"subscribed_email": False}).status == 503
    server.wait_for_line(f"journal: write failed, so opt-outs fail path={journal}: Is a directory")


def _wait_for_health(api: Client, status: int, text: str = "") -> None:
    end = time.monotonic() + extend_timeout(10)
    while (health := api.get("/healthz")).status != status or text not in health.text:
        assert time.monotonic() < end, health.text
        time.sleep(0.1)


@pytest.mark.parametrize("move_away", [_remove, _replace])
def test_a_removed_database_takes_no_writes(move_away: Callable[[Path], None], fresh_server: FreshServer) -> None:
    """Writes return 503 and health gives the reason; after the file is back, writes succeed."""
    server = fresh_server()
    api = server.client(validate=False)
    database = server.data / "campanero.db"
    move_away(database)
    assert api.post("/contacts", {"email": "lost@example.org"}).status == 503
    _wait_for_health(api, 503, "removed or replaced")
    assert api.get("/readyz").status == 503
    (server.data / "put-aside").replace(database)
    _wait_for_health(api, 200)
    api.post("/contacts", {"email": "kept@example.org"}).expect(201)
    server.restart()
    assert [row["channels"][0]["value"] for row in api.all("/contacts")] == ["kept@example.org"]
    server.stop()


@pytest.mark.parametrize("is_put_back", [True, False])
def test_a_removed_wal_takes_no_writes(is_put_back: bool, fresh_server: FreshServer) -> None:
    """What was acknowledged before is kept, whether the file comes back or the service restarts."""
    server = fresh_server()
    api = server.client(validate=False)
    api.post("/contacts", {"email": "before@example.org"}).expect(201)
    log = server.data / "campanero.db-wal"
    time.sleep(1.5)  # the file is checked once a second
    _remove(log)
    assert api.post("/contacts", {"email": "lost@example.org"}).status == 503
    _wait_for_health(api, 503, "campanero.db-wal was removed")
    if is_put_back:
        (server.data / "put-aside").replace(log)
        _wait_for_health(api, 200)
        api.post("/contacts", {"email": "after@example.org"}).expect(201)
    server.restart()
    expected = ["before@example.org", *(["after@example.org"] if is_put_back else [])]
    assert sorted(row["channels"][0]["value"] for row in api.all("/contacts")) == sorted(expected)
    assert api.get("/healthz").status == 200
    server.stop()


def test_an_import_with_a_replaced_key_keeps_erasures(fresh_server: FreshServer) -> None:
    """The child process of a large import recognises erased addresses by the key of the running service."""
    server = fresh_server()
    api = server.client(validate=False)
    person = api.post("/contacts", {"email": "erased@example.org"}).expect(201)["id"]
    api.delete(f"/contacts/{person}?erase=true").expect(200)
    (server.data / "secret.key").write_text("ab" * 32 + "\n")
    rows = "".join(f"p{number}@example.org,{'x' * 2_000}\n" for number in range(400))
    job = wait_for_import(api, upload(api, f"email,note\nerased@example.org,\n{rows}"))
    assert job["created"] + job["updated"] + job["restored"] >= 400
    (contact,) = api.get("/contacts", search="erased@example.org").json
    assert contact["subscribed_email"] is False
    server.stop()


@pytest.mark.parametrize("name", ["imports", "attachments"])
def test_a_folder_on_a_disk_that_is_gone(name: str, fresh_server: FreshServer) -> None:
    """A file for a folder that links to a disk that is not mounted any more is refused with 503, as for a full disk."""
    server = fresh_server()
    server.set_postal_address()
    api = server.client(validate=False)
    folder = server.data / name
    if folder.exists():
        shutil.rmtree(folder)
    folder.symlink_to("/nonexistent/disk")
    message = {"to": "a@example.org", "subject": "x", "body": "y"}
    attachments = [{"filename": "a.txt", "content": "aGVsbG8="}]
    response = (
        upload(api, "email\na@example.org\n")
        if name == "imports"
        else api.post("/messages", {**message, "attachments": attachments})
    )
    assert response.expect(503)["code"] == "storage_unavailable"
    api.post("/messages", message).expect(201)
