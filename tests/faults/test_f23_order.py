"""F23, the half that needs no power cut: what is acknowledged was brought to disk first, seen from outside (P1, P3)."""

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

from tests.faults.conftest import Figures, Relayed
from tests.kit.books import balance
from tests.kit.recipients import completed, crowd, draft, send
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

_CALLS = "trace=fdatasync,fsync,write,writev,sendto,sendmsg"
_BEGUN = re.compile(r"^(\d+) +f(?:data)?sync\(\d+<[^>]*campanero\.db-wal>(.*)")
_ENDED = re.compile(r"^(\d+) +<\.\.\. f(?:data)?sync resumed>.*= 0")
_SAID = re.compile(r"^\d+ +(?:write|writev|sendto|sendmsg)\(")


@dataclass
class Trace:
    """What the calls of a process were, in their order, as a word of letters: S a finished sync, or what was said."""

    file: Path

    def word(self, **signs: str) -> str:
        """Return an S for each sync of the log that ended, and a sign's letter for each text that was written."""
        found, open_in = "", set()
        for line in self.file.read_text(errors="replace").splitlines():
            if begun := _BEGUN.match(line):
                if "unfinished" in begun[2]:
                    open_in.add(begun[1])
                else:
                    found += "S"
            elif (ended := _ENDED.match(line)) and ended[1] in open_in:
                open_in.discard(ended[1])
                found += "S"
            elif _SAID.match(line):
                found += next((letter for letter, text in signs.items() if text in line), "")
        return found


@contextmanager
def traced(server: Server, file: Path) -> Iterator[Trace]:
    """Watch the calls of a running server; skips where that is not allowed."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    command = ["strace", "-f", "-y", "-s", "400", "-e", _CALLS, "-o", str(file), "-p", str(server.pid)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.readline()
    if "attached" not in said:
        process.wait(10)
        pytest.skip(f"strace may not watch the server: {said.strip()}")
    try:
        yield Trace(file)
    finally:
        process.terminate()
        process.wait(10)


def test_what_is_answered_is_on_disk(
    relayed: Relayed, smtp_server: SmtpServer, tmp_path: Path, figures: Figures
) -> None:
    """The log is synced before each answer to a message, a send and an opt-out; a read syncs nothing."""
    server = relayed()
    api = server.client(validate=False)
    group = crowd(api, 1)
    completed(api, send(api, group))
    link = re.search("<(.+)>", smtp_server.messages[0].header("List-Unsubscribe") or "")
    assert link
    smtp_server.rules.hold("connect")
    path = draft(api, group)
    letter = {"to": "a@b.example", "subject": "s", "body": "b", "from_email": "ana@bakery.example"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with traced(server, tmp_path / "calls") as trace:
        for _ in range(20):
            api.post("/messages", letter).expect(201)
        api.post(f"{path}/send").expect(200)
        assert api.request("POST", urlsplit(link[1]).path, b"List-Unsubscribe=One-Click", form).status == 200
        for _ in range(20):
            api.get(path).expect(200)
        time.sleep(0.2)
    word = trace.word(A="HTTP/1.1 20")
    answers = word.split("A")
    figures.note(answers=22, syncs=word.count("S"))
    smtp_server.rules.clear()

    assert word.count("A") == 42
    assert all("S" in before for before in answers[:22]), word
    assert sum("S" in before for before in answers[22:42]) <= 5, word


def test_a_message_is_marked_on_disk_before_it_leaves(
    relayed: Relayed, smtp_server: SmtpServer, tmp_path: Path, figures: Figures
) -> None:
    """Over one connection, the log is synced between any two messages: what became of one, and the mark of the next."""
    server = relayed(connections="1")
    api = server.client(validate=False)
    group = crowd(api, 100)
    smtp_server.rules.hold("connect")
    path = send(api, group)
    smtp_server.wait_for_phase("connect")
    with traced(server, tmp_path / "calls") as trace:
        smtp_server.rules.clear()
        completed(api, path)
    word = trace.word(M="Message-ID: <")
    figures.books(balance(api, path, smtp_server.messages), syncs=word.count("S"))

    assert word.count("M") == 100
    assert all("S" in between for between in word.split("M")[:100]), word
