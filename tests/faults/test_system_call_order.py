"""The order of system calls: data is synced to disk before it is acknowledged or sent, as strace shows (P1, P3)."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.recipients import create_campaign, create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

_CALLS = "trace=fdatasync,fsync,write,writev,sendto,sendmsg"
_SYNC_STARTED = re.compile(r"^(\d+) +f(?:data)?sync\(\d+<[^>]*campanero\.db-wal>(.*)")
_SYNC_ENDED = re.compile(r"^(\d+) +<\.\.\. f(?:data)?sync resumed>.*= 0")
_WRITE = re.compile(r"^\d+ +(?:write|writev|sendto|sendmsg)\(")


@dataclass
class Trace:
    """The system calls of a process in order, as a word of letters: S for a finished sync, others for written texts."""

    file: Path

    def word(self, **signs: str) -> str:
        """Return an S for each finished sync of the log, and a sign's letter for each write with its text."""
        letters, pending_threads = "", set()
        for line in self.file.read_text(errors="replace").splitlines():
            if started := _SYNC_STARTED.match(line):
                if "unfinished" in started[2]:
                    pending_threads.add(started[1])
                else:
                    letters += "S"
            elif (ended := _SYNC_ENDED.match(line)) and ended[1] in pending_threads:
                pending_threads.discard(ended[1])
                letters += "S"
            elif _WRITE.match(line):
                letters += next((letter for letter, text in signs.items() if text in line), "")
        return letters


@contextmanager
def traced(server: Server, file: Path) -> Iterator[Trace]:
    """Trace the system calls of a running server; skip the test if that is not possible."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    command = ["strace", "-f", "-y", "-s", "400", "-e", _CALLS, "-o", str(file), "-p", str(server.pid)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    if "attached" not in line:
        process.wait(10)
        pytest.skip(f"strace may not watch the server: {line.strip()}")
    try:
        yield Trace(file)
    finally:
        process.terminate()
        process.wait(10)


def test_responses_come_after_a_sync(
    relayed: StartRelayed, smtp_server: SmtpServer, tmp_path: Path, figures: Figures
) -> None:
    """The log is synced before each response to a message, a send and an opt-out, and rarely for reads."""
    server = relayed(is_synced=True)
    api = server.client(validate=False)
    list_id = create_list(api, 1)
    wait_until_completed(api, send_campaign(api, list_id))
    link = re.search("<(.+)>", smtp_server.messages[0].header("List-Unsubscribe") or "")
    assert link
    smtp_server.rules.hold("connect")
    path = create_campaign(api, list_id)
    message = {"to": "a@b.example", "subject": "s", "body": "b", "from_email": "ana@bakery.example"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with traced(server, tmp_path / "calls") as trace:
        for _ in range(20):
            api.post("/messages", message).expect(201)
        api.post(f"{path}/send").expect(200)
        assert api.request("POST", urlsplit(link[1]).path, b"List-Unsubscribe=One-Click", form).status == 200
        for _ in range(20):
            api.get(path).expect(200)
        time.sleep(0.2)
    word = trace.word(A="HTTP/1.1 20")
    parts = word.split("A")
    figures.note(answers=22, syncs=word.count("S"))
    smtp_server.rules.clear()

    assert word.count("A") == 42
    assert all("S" in before for before in parts[:22]), word
    assert sum("S" in before for before in parts[22:42]) <= 5, word


def test_claims_are_synced_before_the_message_leaves(
    relayed: StartRelayed, smtp_server: SmtpServer, tmp_path: Path, figures: Figures
) -> None:
    """On one connection the log is synced between two messages: the outcome of one and the claim of the next."""
    server = relayed(connections="1", is_synced=True)
    api = server.client(validate=False)
    list_id = create_list(api, 100)
    smtp_server.rules.hold("connect")
    path = send_campaign(api, list_id)
    smtp_server.wait_for_phase("connect")
    with traced(server, tmp_path / "calls") as trace:
        smtp_server.rules.clear()
        wait_until_completed(api, path)
    word = trace.word(M="Message-ID: <")
    figures.books(reconcile(api, path, smtp_server.messages), syncs=word.count("S"))

    assert word.count("M") == 100
    assert all("S" in between for between in word.split("M")[:100]), word
