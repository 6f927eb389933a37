"""A backup during a send is consistent; after a restore nothing is sent again, and later opt-outs are kept."""

import hashlib
import io
import json
import os
import re
import shutil
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
from tests.faults.conftest import Figures, StartRelayed
from tests.faults.test_changes_in_a_send import FORM, contact_ids, unsubscribe_paths
from tests.faults.trouble import count_late_messages, start_sending
from tests.kit.recipients import create_list, wait_until_completed
from tests.kit.reconciliation import check_sum_of_stats, reconcile
from tests.kit.sampling import every_nth
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer


def unpack(source: Path, into: Path) -> Path:
    """Unpack a backup with a plain tar library."""
    with tarfile.open(source) as tar:
        tar.extractall(into, filter="data")
    return into


def query(database: Path, sql: str) -> list[Any]:
    """Return all rows of a query on a closed database."""
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


def test_a_backup_during_a_send(
    relayed: StartRelayed, smtp_server: SmtpServer, tmp_path: Path, full: bool, figures: Figures
) -> None:
    """Its counts add up; after a restore nothing leaves, what was sent since is sent, and later opt-outs hold."""
    count, leaving, erased = (5_000, 100, 10) if full else (300, 30, 5)
    server = relayed()
    api = server.client(validate=False, keep_alive=True)
    path = start_sending(server, smtp_server, count, count // 2)
    (tmp_path / "copies").mkdir()
    copy = tmp_path / "copies" / "half.tar.gz"
    started = time.monotonic()
    output = server.cli("backup", str(copy)).stdout
    seconds = time.monotonic() - started
    assert "verified" in output and "secret.key" in output
    wait_until_completed(api, path, timeout=300)
    reconcile(api, path, smtp_server.messages)
    figures.note(size=count, backup_seconds=f"{seconds:.2f}", bytes=copy.stat().st_size)

    inside = unpack(copy, tmp_path / "inside")
    assert query(inside / "campanero.db", "PRAGMA integrity_check") == [("ok",)]
    _check_counts(inside / "campanero.db", count)
    assert not (inside / "secret.key").exists() and (copy.stat().st_mode & 0o077) == 0

    paths = unsubscribe_paths(smtp_server)
    leaving_addresses = sorted(paths)[: leaving + erased]
    ids = contact_ids(api, api.get("/lists").expect(200)[0]["id"])
    for recipient in leaving_addresses[:leaving]:
        assert api.request("POST", paths[recipient], b"List-Unsubscribe=One-Click", FORM).status == 200
    for recipient in leaving_addresses[leaving:]:
        api.delete(f"/contacts/{ids[recipient]}?erase=true").expect(200)
    smtp_server.clear()
    server.stop()
    error = server.cli("restore", str(copy), expect=1).stderr
    assert "--force" in error
    report = server.cli("restore", str(copy), "--force").stdout
    assert f"{leaving} opt outs" in report and f"{erased} erased" in report and " open, " in report

    api = server.start().client(validate=False, keep_alive=True)
    count_late_messages(smtp_server, 2)
    account = api.get("/account").expect(200)
    assert (account["sending_stopped"], account["stop_reason"]) == (True, "restored")
    stats = api.get(path).expect(200)["stats"]
    check_sum_of_stats(stats)
    # The journal names all that was sent after the backup.
    assert (stats["pending"], stats["sent"]) == (0, count)
    for recipient in leaving_addresses[:leaving]:
        assert api.get(f"/contacts/{ids[recipient]}").expect(200)["subscribed_email"] is False
    assert all(api.get(f"/contacts/{ids[recipient]}").status == 404 for recipient in leaving_addresses[leaving:])
    api.patch("/account", {"sending_stopped": False}).expect(200)
    wait_until_completed(api, path, timeout=300)
    stats = api.get(path).expect(200)["stats"]
    check_sum_of_stats(stats)
    assert (stats["sent"], len(smtp_server.messages)) == (count, 0)


def _check_counts(database: Path, count: int) -> None:
    """Check that the messages in a backup add up to the audience (P2)."""
    counts = dict(query(database, "SELECT status, count(*) FROM message GROUP BY status"))
    assert sum(counts.values()) == count and 0 < counts["sent"] < count, counts


def test_writes_do_not_restart_a_backup(server: Server) -> None:
    """A backup completes while other requests keep writing."""
    api = server.client(validate=False, keep_alive=True)
    create_list(api, 2_000, "busy")
    target = server.data.parent / "busy.tar.gz"
    process = subprocess.Popen(
        [*server._command("backup", str(target))], env=server.env, cwd=server.home, stdout=subprocess.PIPE
    )
    write_count = 0
    while process.poll() is None:
        api.post("/contacts", {"first_name": "written meanwhile"}).expect(201)
        write_count += 1
    process.communicate()
    assert process.returncode == 0 and write_count > 5


def test_invalid_backups_are_rejected(server: Server, fresh_server: FreshServer, tmp_path: Path) -> None:
    """A backup overwrites nothing, and a truncated, changed or foreign archive is rejected with its name."""
    target = tmp_path / "one.tar.gz"
    server.cli("backup", str(target))
    assert "already exists" in server.cli("backup", str(target), expect=1).stderr
    assert "not a directory" in server.cli("backup", str(tmp_path / "no" / "one.tar.gz"), expect=1).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["one.tar.gz"]
    other = fresh_server(start=False, set_up=False).set_up(account="Elsewhere")
    archive = target.read_bytes()
    faulty = {
        "cut short": archive[: len(archive) // 2], "nothing": b"", "text": b"hello" * 1000,
        "other archive": _archive({"campanero.db": b"x"}),
        "more": _with_extra_file(archive, "huey.db", b"cos\nsystem\n"),
        "up": _with_extra_file(archive, "imports/../../up", b"x"), "changed": _changed(archive),
    }  # fmt: skip
    for name, content in faulty.items():
        bad = tmp_path / f"{name}.tar.gz"
        bad.write_bytes(content)
        result = other.cli("restore", str(bad), "--force", expect=1)
        assert str(bad) in result.stderr, (name, result.stderr)
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
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}


def _with_extra_file(whole: bytes, name: str, content: bytes) -> bytes:
    files = _files(whole)
    sums = files.pop("SHA256SUMS") + f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode()
    signature = files.pop("SHA256SUMS.hmac")
    return _archive({**files, name: content, "SHA256SUMS": sums, "SHA256SUMS.hmac": signature})


def _changed(whole: bytes) -> bytes:
    files = _files(whole)
    database = bytearray(files["campanero.db"])
    database[-100] ^= 0xFF
    return _archive({**files, "campanero.db": bytes(database)})


def test_a_backup_with_its_key_moves_to_another_machine(
    server: Server, fresh_server: FreshServer, tmp_path: Path
) -> None:
    """A backup with the key creates a new data directory; one without the key is rejected there."""
    api = server.client()
    contact_id = api.post("/contacts", {"email": "moves@example.org"}).expect(201)["id"]
    without_key, with_key = tmp_path / "bare.tar.gz", tmp_path / "whole.tar.gz"
    server.cli("backup", str(without_key))
    server.cli("backup", str(with_key), "--with-key")
    other = fresh_server(start=False, set_up=False)
    assert "key is missing" in other.cli("restore", str(without_key), expect=1).stderr
    assert not (other.data / "campanero.db").exists() and not (other.data / "secret.key").exists()
    other.cli("restore", str(with_key))
    other.start()
    moved = other.client(server.key)
    assert moved.get(f"/contacts/{contact_id}").expect(200)["channels"][0]["value"] == "moves@example.org"
    assert moved.get("/account").expect(200)["stop_reason"] == "restored"
    assert "another service runs" in other.cli("restore", str(with_key), "--force", expect=1).stderr
    other.stop()


@pytest.mark.parametrize("turn", every_nth(range(6), 2))
def test_a_killed_restore(fresh_server: FreshServer, tmp_path: Path, turn: int) -> None:
    """After a kill either the old or the restored state is complete, and a second restore succeeds."""
    server = fresh_server()
    api = server.client(validate=False)
    create_list(api, 800, "then")
    copy = tmp_path / "then.tar.gz"
    server.cli("backup", str(copy))
    create_list(api, 200, "now")
    server.stop()
    process = server.begin("restore", str(copy), "--force")
    assert process.stdout is not None
    for _ in range(turn % 3 + 1):  # it reports its progress line by line
        process.stdout.readline()
    time.sleep(0.02 * turn)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    server.start()
    assert not (server.data / ".restoring").exists(), "what was unpacked takes no space after the next start"
    contact_count = api.get("/account").expect(200)["counts"]["contacts"]
    stopped = api.get("/account").expect(200)["stop_reason"]
    assert (contact_count, stopped) in ((1000, None), (800, "restored"))
    server.stop()
    server.cli("restore", str(copy), "--force")
    server.start()
    assert api.get("/account").expect(200)["counts"]["contacts"] == 800
    server.stop()


def test_opt_outs_are_in_the_journal(fresh_server: FreshServer) -> None:
    """After a kill the journal has each opt-out, suppression and erasure, by hash, and no failed request."""
    server = fresh_server()
    api = server.client(validate=False)
    contact_id = api.post("/contacts", {"email": "leaves@example.org"}).expect(201)["id"]
    api.post("/suppressions", {"address": "never@example.org"}).expect(201)
    api.post("/suppressions", {"address": "no address"}).expect(422)
    api.patch(f"/contacts/{contact_id}", {"subscribed_email": False}).expect(200)
    api.delete(f"/contacts/{contact_id}?erase=true").expect(200)
    server.kill()
    text = (server.data / "optouts.jsonl").read_text()
    acts = [line.get("act") for line in map(json.loads, text.splitlines())]
    assert acts[0] is None and acts[1:3] == ["suppressed", "opt_out"] and "erased" in acts
    assert "example.org" not in text and (server.data / "optouts.jsonl").stat().st_mode & 0o077 == 0


def test_a_torn_journal_line_loses_no_other(fresh_server: FreshServer, tmp_path: Path) -> None:
    """After a power cut in the middle of a journal line, the other lines are still applied."""
    server = fresh_server()
    api = server.client(validate=False)
    ids = [api.post("/contacts", {"email": f"p{n}@example.org"}).expect(201)["id"] for n in range(2)]
    copy = tmp_path / "kept.tar.gz"
    server.cli("backup", str(copy))
    api.patch(f"/contacts/{ids[0]}", {"subscribed_email": False}).expect(200)
    server.stop()
    with (server.data / "optouts.jsonl").open("ab") as file:
        file.write(b'{"at":17,"account":1,"act":"opt_')
    server.start()
    api.patch(f"/contacts/{ids[1]}", {"subscribed_email": False}).expect(200)
    server.stop()
    output = server.cli("restore", str(copy), "--force").stdout
    assert "2 opt outs" in output and f"warning: damaged lines in {server.data / 'optouts.jsonl'}" in output
    # The line may have named messages that were sent
    assert "The journal does not name all messages" in output


def test_the_journal_of_another_installation_is_refused(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Its erasures name contacts by their ids, which are other people here: neither restore nor start uses it."""
    other = fresh_server(set_up=False, start=False).set_up("other@example.org").start()
    stranger = other.client().post("/contacts", {"email": "stranger@example.org"}).expect(201)["id"]
    other.client().delete(f"/contacts/{stranger}?erase=true").expect(200)
    other.stop()
    server = fresh_server()
    api = server.client()
    assert api.post("/contacts", {"email": "ours@example.org"}).expect(201)["id"] == stranger
    copy, path = tmp_path / "kept.tar.gz", server.data / "optouts.jsonl"
    server.cli("backup", str(copy))
    server.stop()
    shutil.copyfile(other.data / "optouts.jsonl", path)
    words = f"campanero: {path} is the journal of another installation: move it away"
    assert server.cli("restore", str(copy), "--force", expect=1).stderr.startswith(words)
    assert server.cli("serve", expect=1).stderr.startswith(words)
    assert path.read_bytes() == (other.data / "optouts.jsonl").read_bytes()
    path.unlink()
    server.cli("restore", str(copy), "--force")
    server.start()
    assert api.get(f"/contacts/{stranger}").expect(200)["channels"][0]["value"] == "ours@example.org"


def _journal_line(**changes: Any) -> bytes:
    """Return a valid journal line with changes; None removes a key."""
    line = {"at": int(time.time() * 1000), "account": 1, "act": "opt_out", "kind": "email", "hash": "0" * 40,
            "by": "recipient", **changes}  # fmt: skip
    return json.dumps({key: value for key, value in line.items() if value is not None}).encode() + b"\n"


DAMAGED_LINES = [
    b'{"act":"opt_out"}\n', b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"17\n", b"{}\n",
    *(_journal_line(**changes) for changes in (
        {"at": "x"}, {"at": -1}, {"at": 10**18}, {"account": 2**64}, {"account": "1"}, {"act": []},
        {"kind": 1}, {"hash": "zz"}, {"hash": "00"}, {"hash": None}, {"by": None},
        {"act": "suppressed"}, {"act": "suppressed", "reason": "x"},
        {"act": "suppressed", "reason": "manual", "expires_at": "never"},
        {"act": "list_left"}, {"act": "list_left", "list": 2**63}, {"act": "tracking", "tracking": "all"},
        {"act": "erased"}, {"act": "erased", "contact": "x"},
    )),
]  # fmt: skip


@pytest.mark.parametrize("is_same_journal", [True, False])
def test_damaged_journal_lines_are_skipped_and_reported(
    fresh_server: FreshServer, tmp_path: Path, is_same_journal: bool
) -> None:
    """A restore skips lines of wrong types, counts them in a warning that names the file, and applies all others."""
    server = fresh_server()
    api = server.client(validate=False)
    list_id = api.post("/lists", {"name": "News"}).expect(201)["id"]
    ids = [
        api.post("/contacts", {"email": f"p{n}@example.org", "list_ids": [list_id]}).expect(201)["id"] for n in range(3)
    ]
    copy, path = tmp_path / "kept.tar.gz", server.data / "optouts.jsonl"
    server.cli("backup", str(copy))
    api.patch(f"/contacts/{ids[0]}", {"subscribed_email": False}).expect(200)
    api.post("/suppressions", {"address": "p1@example.org", "expires_at": "2099-01-01T00:00:00Z"}).expect(201)
    api.delete(f"/contacts/{ids[2]}?erase=true").expect(200)
    server.stop()
    lines = path.read_bytes().splitlines(keepends=True)
    if not is_same_journal:
        lines[0] = b'{"journal":"of-another-installation"}\n'
    hashed = json.loads(next(line for line in lines if b"opt_out" in line))["hash"]
    choices = [
        _journal_line(act="list_left", hash=hashed, list=list_id),
        _journal_line(act="tracking", hash=hashed, tracking="none"), _journal_line(account=99),
        _journal_line(act="of_a_newer_version"),
    ]  # fmt: skip
    path.write_bytes(b"".join([lines[0], *DAMAGED_LINES, *lines[1:], b"\n", *choices]))
    output = server.cli("restore", str(copy), "--force").stdout

    assert re.findall(rf"damaged lines in {path} were skipped.*: (\d+)", output) == [str(len(DAMAGED_LINES))], output
    assert f"lines of a newer version in {path} were kept, but not applied: 1" in output
    server.start()
    contacts = [api.get(f"/contacts/{contact_id}") for contact_id in ids]
    assert contacts[0].expect(200)["subscribed_email"] is False and contacts[0].json["tracking"] == "none"
    assert [row["id"] for row in api.all("/contacts", list_id=list_id)] == [ids[1]] and contacts[2].status == 404
    assert {row["reason"] for row in api.all("/suppressions")} == {"manual", "erased"}
    server.stop()


def test_a_restore_keeps_the_damaged_database(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A restore over a damaged database keeps its bytes in `backups` and applies the journal."""
    server = fresh_server()
    api = server.client(validate=False)
    contact_id = api.post("/contacts", {"email": "leaves@example.org"}).expect(201)["id"]
    copy = tmp_path / "kept.tar.gz"
    server.cli("backup", str(copy))
    api.patch(f"/contacts/{contact_id}", {"subscribed_email": False}).expect(200)
    server.stop()
    database = server.data / "campanero.db"
    database.write_bytes(b"not a database any more" * 1000)
    report = server.cli("restore", str(copy), "--force").stdout
    assert "1 opt outs" in report
    (aside,) = (server.data / "backups").glob("before-restore-*/campanero.db")
    assert aside.read_bytes() == b"not a database any more" * 1000
    server.start()
    assert api.get(f"/contacts/{contact_id}").expect(200)["subscribed_email"] is False
    server.stop()
