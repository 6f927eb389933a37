"""Kills at the write of the journal in a send: after a restore of an older backup nobody gets a message twice (P11).

strace kills the service when it writes the journal, before the write; or when it syncs the commit of the same
transaction, after the write. A line that was written in part is damaged.
"""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.conftest import StartRelayed
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import check_sum_of_stats
from tests.kit.sampling import every_nth
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

COUNT = 120
# Where the service is killed: the system call, the file, and which of its calls.
PLACES = [
    ("write", "optouts.jsonl", 2), ("write", "optouts.jsonl", 3), ("fdatasync", "campanero.db-wal", 8),
    ("fdatasync", "campanero.db-wal", 11), ("fdatasync", "campanero.db-wal", 14),
]  # fmt: skip


def kill_at(server: Server, call: str, file: Path, number: int) -> "subprocess.Popen[str]":
    """Kill the server at its n-th system call with a file; skip the test if strace cannot do that."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    command = ["strace", "-f", "-P", str(file), "-e", f"inject={call}:signal=SIGKILL:when={number}", "-o", "/dev/null"]
    process = subprocess.Popen([*command, "-p", str(server.pid)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    if "attached" not in line:
        process.wait(10)
        pytest.skip(f"strace may not watch the server: {line.strip()}")
    return process


@pytest.mark.parametrize(("call", "name", "number"), every_nth(PLACES, 2))
def test_a_kill_at_the_journal(
    relayed: StartRelayed, smtp_server: SmtpServer, tmp_path: Path, call: str, name: str, number: int
) -> None:
    """Whoever got the campaign does not get it again, and whoever may not have got it is unconfirmed."""
    server = relayed(in_doubt="hold", is_synced=True)
    api = server.client(validate=False)
    gate = smtp_server.rules.hold("connect")
    path = send_campaign(api, create_list(api, COUNT))
    gate.wait_reached()
    server.cli("backup", str(tmp_path / "copy.tar.gz"))
    api.post("/suppressions", {"address": "nobody@example.org"}).expect(201)  # the journal exists
    strace = kill_at(server, call, server.data / name, number)
    smtp_server.rules.delay("body", 0.02)
    gate.release()
    strace.wait(60)
    assert strace.stderr is not None
    strace.stderr.close()
    server.kill()
    sent = Counter(message.to for message in smtp_server.messages)
    assert 0 < len(sent) < COUNT
    journal = server.data / "optouts.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"act":"sent","at":17,"account":1,"ids":[')

    output = server.cli("restore", str(tmp_path / "copy.tar.gz"), "--force").stdout
    assert "damaged lines" in output and "not sent again" in output
    smtp_server.rules.clear()
    server.start()
    api.patch("/account", {"sending_stopped": False}).expect(200)
    stats = wait_until_completed(api, path)["stats"]
    check_sum_of_stats(stats)
    sent = Counter(message.to for message in smtp_server.messages)
    assert set(sent.values()) == {1}
    missing = COUNT - len(sent)
    assert missing <= stats["uncertain"] <= 8 and stats["sent"] + stats["uncertain"] == COUNT
    server.stop()
