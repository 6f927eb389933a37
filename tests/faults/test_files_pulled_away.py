"""Files of the data directory that are removed or replaced beneath a running service: nothing acknowledged is lost."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.patience import soon
from tests.kit.uploads import done, upload


def _remove(path: Path) -> None:
    path.rename(path.with_name("put-aside"))


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.rename(path.with_name("put-aside"))
    path.with_name("copy").rename(path)


def test_opt_outs_survive_the_removal_of_their_journal(fresh_server: FreshServer, tmp_path: Path) -> None:
    """What was acknowledged before and after it is told to a backup that is restored."""
    server = fresh_server()
    api = server.client(validate=False)
    people = [api.post("/contacts", {"email": f"p{n}@example.org"}).expect(201)["id"] for n in range(2)]
    kept = tmp_path / "kept.tar.gz"
    server.cli("backup", str(kept))
    api.patch(f"/contacts/{people[0]}", {"subscribed_email": False}).expect(200)
    (server.data / "optouts.jsonl").unlink()
    api.patch(f"/contacts/{people[1]}", {"subscribed_email": False}).expect(200)
    server.stop()
    assert (server.data / "optouts.jsonl").stat().st_mode & 0o077 == 0
    assert "2 opt outs" in server.cli("restore", str(kept), "--force").stdout


def test_opt_outs_go_into_a_journal_that_was_put_in_the_place_of_another(fresh_server: FreshServer) -> None:
    """An operator who copies the file over itself does not send later opt-outs into one without a name."""
    server = fresh_server()
    api = server.client(validate=False)
    person = api.post("/contacts", {"email": "p@example.org"}).expect(201)["id"]
    api.post("/suppressions", {"address": "never@example.org"}).expect(201)
    _replace(server.data / "optouts.jsonl")
    api.patch(f"/contacts/{person}", {"subscribed_email": False}).expect(200)
    lines = (server.data / "optouts.jsonl").read_text().splitlines()
    assert [json.loads(line).get("act") for line in lines] == [None, "suppressed", "opt_out"]
    server.stop()


def _until(api: Client, status: int, words: str = "") -> None:
    end = time.monotonic() + soon(10)
    while (health := api.get("/healthz")).status != status or words not in health.text:
        assert time.monotonic() < end, health.text
        time.sleep(0.1)


@pytest.mark.parametrize("harm", [_remove, _replace])
def test_a_database_that_is_pulled_away_takes_no_writes(
    harm: Callable[[Path], None], fresh_server: FreshServer
) -> None:
    """Nothing is acknowledged that would be lost with the file, health says why, and all goes on once it is back."""
    server = fresh_server()
    api = server.client(validate=False)
    database = server.data / "campanero.db"
    harm(database)
    assert api.post("/contacts", {"email": "lost@example.org"}).status == 503
    _until(api, 503, "removed or replaced")
    assert api.get("/readyz").status == 503
    (server.data / "put-aside").replace(database)
    _until(api, 200)
    api.post("/contacts", {"email": "kept@example.org"}).expect(201)
    server.restart()
    assert [row["channels"][0]["value"] for row in api.all("/contacts")] == ["kept@example.org"]
    server.stop()


@pytest.mark.parametrize("is_put_back", [True, False])
def test_a_log_of_the_database_that_is_pulled_away_takes_no_writes(
    is_put_back: bool, fresh_server: FreshServer
) -> None:
    """What was acknowledged before is kept, whether the file comes back or the service is stopped."""
    server = fresh_server()
    api = server.client(validate=False)
    api.post("/contacts", {"email": "before@example.org"}).expect(201)
    log = server.data / "campanero.db-wal"
    time.sleep(1.5)  # it is looked at once a second
    _remove(log)
    assert api.post("/contacts", {"email": "lost@example.org"}).status == 503
    _until(api, 503, "campanero.db-wal was removed")
    if is_put_back:
        (server.data / "put-aside").replace(log)
        _until(api, 200)
        api.post("/contacts", {"email": "after@example.org"}).expect(201)
    server.restart()
    expected = ["before@example.org", *(["after@example.org"] if is_put_back else [])]
    assert sorted(row["channels"][0]["value"] for row in api.all("/contacts")) == sorted(expected)
    assert api.get("/healthz").status == 200
    server.stop()


def test_an_import_beside_an_exchanged_key_brings_back_nobody(fresh_server: FreshServer) -> None:
    """Who was erased is recognised by the key that the service runs with, also in the child that reads a large file."""
    server = fresh_server()
    api = server.client(validate=False)
    person = api.post("/contacts", {"email": "erased@example.org"}).expect(201)["id"]
    api.delete(f"/contacts/{person}?erase=true").expect(200)
    (server.data / "secret.key").write_text("ab" * 32 + "\n")
    rows = "".join(f"p{number}@example.org,{'x' * 2_000}\n" for number in range(400))
    job = done(api, upload(api, f"email,note\nerased@example.org,\n{rows}"))
    assert job["created"] + job["updated"] + job["restored"] >= 400
    (found,) = api.get("/contacts", search="erased@example.org").json
    assert found["subscribed_email"] is False
    server.stop()
