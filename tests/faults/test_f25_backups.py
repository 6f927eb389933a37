"""A backup in the middle of a send is of one moment; restored, it sends nothing and knows who left since."""

import hashlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import tarfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.faults.conftest import Figures, Relayed
from tests.faults.test_f21_changes import FORM, links, members
from tests.faults.trouble import sending, silence
from tests.kit.books import balance, identity
from tests.kit.recipients import completed, crowd
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer


def unpacked(source: Path, into: Path) -> Path:
    """Unpack a backup as somebody without our program would."""
    with tarfile.open(source) as tar:
        tar.extractall(into, filter="data")
    return into


def asked(database: Path, sql: str) -> list[Any]:
    """Ask a database that nobody has open."""
    with closing(sqlite3.connect(database)) as here:
        return here.execute(sql).fetchall()


def test_a_backup_in_the_middle_of_a_send(
    relayed: Relayed, smtp_server: SmtpServer, tmp_path: Path, full: bool, figures: Figures
) -> None:
    """The books balance inside it; restored, nothing leaves, who left since stays out, and who is let get one."""
    count, leaving, erased = (5_000, 100, 10) if full else (300, 30, 5)
    server = relayed()
    api = server.client(validate=False, keep_alive=True)
    path = sending(server, smtp_server, count, count // 2)
    (tmp_path / "copies").mkdir()
    kept = tmp_path / "copies" / "half.tar.gz"
    begun = time.monotonic()
    said = server.cli("backup", str(kept)).stdout
    took = time.monotonic() - begun
    assert "verified" in said and "secret.key" in said
    completed(api, path, timeout=300)
    balance(api, path, smtp_server.messages)
    figures.note(size=count, backup_seconds=f"{took:.2f}", bytes=kept.stat().st_size)

    inside = unpacked(kept, tmp_path / "inside")
    assert asked(inside / "campanero.db", "PRAGMA integrity_check") == [("ok",)]
    _is_balanced(inside / "campanero.db", count)
    assert not (inside / "secret.key").exists() and (kept.stat().st_mode & 0o077) == 0

    click = links(smtp_server)
    gone = sorted(click)[: leaving + erased]
    people = members(api, api.get("/lists").expect(200)[0]["id"])
    for who in gone[:leaving]:
        assert api.request("POST", click[who], b"List-Unsubscribe=One-Click", FORM).status == 200
    for who in gone[leaving:]:
        api.delete(f"/contacts/{people[who]}?erase=true").expect(200)
    smtp_server.forget()
    server.stop()
    refused = server.cli("restore", str(kept), expect=1).stderr
    assert "--force" in refused
    told = server.cli("restore", str(kept), "--force").stdout
    assert f"{leaving} opt outs" in told and f"{erased} erased" in told and " open, " in told

    api = server.start().client(validate=False, keep_alive=True)
    silence(smtp_server, 2)
    account = api.get("/account").expect(200)
    assert (account["sending_stopped"], account["stop_reason"]) == (True, "restored")
    stats = api.get(path).expect(200)["stats"]
    identity(stats)
    assert stats["pending"] > 0
    for who in gone[:leaving]:
        assert api.get(f"/contacts/{people[who]}").expect(200)["subscribed_email"] is False
    assert all(api.get(f"/contacts/{people[who]}").status == 404 for who in gone[leaving:])
    api.patch("/account", {"sending_stopped": False}).expect(200)
    completed(api, path, timeout=300)
    stats = api.get(path).expect(200)["stats"]
    identity(stats)
    assert not {one.to for one in smtp_server.messages} & set(gone)
    assert len(smtp_server.messages) > 0


def _is_balanced(database: Path, count: int) -> None:
    """Hold the identity of P2 inside of a backup."""
    found = dict(asked(database, "SELECT status, count(*) FROM message GROUP BY status"))
    assert sum(found.values()) == count and 0 < found["sent"] < count, found


def test_it_costs_a_send_little(server: Server) -> None:
    """A backup is of a moment whatever is written meanwhile: it does not begin anew with each write."""
    api = server.client(validate=False, keep_alive=True)
    crowd(api, 2_000, "busy")
    target = server.data.parent / "busy.tar.gz"
    done = subprocess.Popen(
        [*server._command("backup", str(target))], env=server.env, cwd=server.home, stdout=subprocess.PIPE
    )
    wrote = 0
    while done.poll() is None:
        api.post("/contacts", {"first_name": "written meanwhile"}).expect(201)
        wrote += 1
    done.communicate()
    assert done.returncode == 0 and wrote > 5


def test_what_is_no_backup(server: Server, fresh_server: FreshServer, tmp_path: Path) -> None:
    """Nothing is overwritten, and what is cut short, changed, foreign or holds more is refused with its reason."""
    target = tmp_path / "one.tar.gz"
    server.cli("backup", str(target))
    assert "already exists" in server.cli("backup", str(target), expect=1).stderr
    assert "not a directory" in server.cli("backup", str(tmp_path / "no" / "one.tar.gz"), expect=1).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["one.tar.gz"]
    other = fresh_server(start=False, set_up=False).set_up(account="Elsewhere")
    whole = target.read_bytes()
    faulty = {
        "cut short": whole[: len(whole) // 2], "nothing": b"", "text": b"hello" * 1000,
        "other archive": _archive({"campanero.db": b"x"}), "more": _more(whole, "huey.db", b"cos\nsystem\n"),
        "up": _more(whole, "imports/../../up", b"x"), "changed": _changed(whole),
    }  # fmt: skip
    for name, content in faulty.items():
        bad = tmp_path / f"{name}.tar.gz"
        bad.write_bytes(content)
        refused = other.cli("restore", str(bad), "--force", expect=1)
        assert str(bad) in refused.stderr, (name, refused.stderr)
        assert not (other.data / ".restoring").exists() and not (other.home / "up").exists()
    assert "another installation" in other.cli("restore", str(target), "--force", expect=1).stderr
    other.start()
    other.stop()


def _archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def _files(whole: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        return {one.name: file.read() for one in tar if (file := tar.extractfile(one)) is not None}


def _more(whole: bytes, name: str, content: bytes) -> bytes:
    files = _files(whole)
    sums = files.pop("SHA256SUMS") + f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode()
    return _archive({**files, name: content, "SHA256SUMS": sums})


def _changed(whole: bytes) -> bytes:
    files = _files(whole)
    database = bytearray(files["campanero.db"])
    database[-100] ^= 0xFF
    return _archive({**files, "campanero.db": bytes(database)})


def test_with_its_key_it_moves_to_another_machine(server: Server, fresh_server: FreshServer, tmp_path: Path) -> None:
    """A directory that is not there yet is made of it; without the key nothing is."""
    api = server.client()
    one = api.post("/contacts", {"email": "moves@example.org"}).expect(201)["id"]
    bare, whole = tmp_path / "bare.tar.gz", tmp_path / "whole.tar.gz"
    server.cli("backup", str(bare))
    server.cli("backup", str(whole), "--with-key")
    other = fresh_server(start=False, set_up=False)
    assert "key is missing" in other.cli("restore", str(bare), expect=1).stderr
    assert not (other.data / "campanero.db").exists() and not (other.data / "secret.key").exists()
    other.cli("restore", str(whole))
    other.start()
    moved = other.client(server.key)
    assert moved.get(f"/contacts/{one}").expect(200)["channels"][0]["value"] == "moves@example.org"
    assert moved.get("/account").expect(200)["stop_reason"] == "restored"
    assert "another service runs" in other.cli("restore", str(whole), "--force", expect=1).stderr
    other.stop()


@pytest.mark.parametrize("turn", range(6))
def test_a_restoration_that_is_killed(fresh_server: FreshServer, tmp_path: Path, turn: int) -> None:
    """Killed at any moment, what was there or what is restored stands whole; begun again, it comes to its end."""
    here = fresh_server()
    api = here.client(validate=False)
    crowd(api, 800, "then")
    kept = tmp_path / "then.tar.gz"
    here.cli("backup", str(kept))
    crowd(api, 200, "now")
    here.stop()
    doing = subprocess.Popen([*here._command("restore", str(kept), "--force")], env=here.env, cwd=here.home,
                             stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip
    assert doing.stdout is not None
    for _ in range(turn % 3 + 1):  # it says what it does, line by line
        doing.stdout.readline()
    time.sleep(0.02 * turn)
    os.killpg(doing.pid, signal.SIGKILL)
    doing.wait()
    doing.stdout.close()
    here.start()
    found = api.get("/account").expect(200)["counts"]["contacts"]
    stopped = api.get("/account").expect(200)["stop_reason"]
    assert (found, stopped) in ((1000, None), (800, "restored"))
    here.stop()
    here.cli("restore", str(kept), "--force")
    here.start()
    assert api.get("/account").expect(200)["counts"]["contacts"] == 800
    here.stop()


def test_refusals_are_in_the_journal_first(fresh_server: FreshServer) -> None:
    """What was acknowledged stands there after a kill, by its hash alone; opting in, and what fails, does not."""
    server = fresh_server()
    api = server.client(validate=False)
    one = api.post("/contacts", {"email": "leaves@example.org"}).expect(201)["id"]
    api.post("/suppressions", {"address": "never@example.org"}).expect(201)
    api.post("/suppressions", {"address": "no address"}).expect(422)
    api.patch(f"/contacts/{one}", {"subscribed_email": False}).expect(200)
    api.delete(f"/contacts/{one}?erase=true").expect(200)
    server.kill()
    text = (server.data / "optouts.jsonl").read_text()
    acts = [line.get("act") for line in map(json.loads, text.splitlines())]
    assert acts[0] is None and acts[1:3] == ["suppressed", "opt_out"] and "erased" in acts
    assert "example.org" not in text and (server.data / "optouts.jsonl").stat().st_mode & 0o077 == 0


def test_a_torn_line_loses_no_other(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A power cut in the middle of a line of the journal costs that line, which nobody was told of."""
    server = fresh_server()
    api = server.client(validate=False)
    people = [api.post("/contacts", {"email": f"p{n}@example.org"}).expect(201)["id"] for n in range(2)]
    kept = tmp_path / "kept.tar.gz"
    server.cli("backup", str(kept))
    api.patch(f"/contacts/{people[0]}", {"subscribed_email": False}).expect(200)
    server.stop()
    with (server.data / "optouts.jsonl").open("ab") as file:
        file.write(b'{"at":17,"account":1,"act":"opt_')
    server.start()
    api.patch(f"/contacts/{people[1]}", {"subscribed_email": False}).expect(200)
    server.stop()
    assert "2 opt outs" in server.cli("restore", str(kept), "--force").stdout


def test_what_can_no_longer_be_read_is_kept_as_it_is(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A damaged database stands in no backup's way: its files are put aside, byte for byte, and the journal holds."""
    server = fresh_server()
    api = server.client(validate=False)
    one = api.post("/contacts", {"email": "leaves@example.org"}).expect(201)["id"]
    kept = tmp_path / "kept.tar.gz"
    server.cli("backup", str(kept))
    api.patch(f"/contacts/{one}", {"subscribed_email": False}).expect(200)
    server.stop()
    database = server.data / "campanero.db"
    database.write_bytes(b"not a database any more" * 1000)
    told = server.cli("restore", str(kept), "--force").stdout
    assert "1 opt outs" in told
    (aside,) = (server.data / "backups").glob("before-restore-*/campanero.db")
    assert aside.read_bytes() == b"not a database any more" * 1000
    server.start()
    assert api.get(f"/contacts/{one}").expect(200)["subscribed_email"] is False
    server.stop()
