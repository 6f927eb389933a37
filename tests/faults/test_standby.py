"""A machine that is killed in a send is replaced by one that follows it: nobody is missing, and nobody gets it twice.

2,000 recipients, and 50,000 with `--full`.
"""

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from appliance.ops.standby import place
from tests.conftest import FreshServer
from tests.faults.conftest import Figures
from tests.kit.https_clients import wait_until
from tests.kit.litestream import PROGRAM, Litestream
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.s3_server import S3Server
from tests.kit.server import Server, relay_settings
from tests.kit.smtp import SmtpServer

SECONDS = 6
# What may be held: what left in the seconds that the copy is behind, and the blocks of ids that were open.
HELD_SECONDS, BLOCKS = 3.0, 8 * 256


class Pair:
    """A machine that sends, its Litestream, and one that follows it; lease and replica are in one bucket."""

    def __init__(self, fresh_server: FreshServer, smtp: SmtpServer, s3: S3Server, home: Path) -> None:
        self.home = home
        lease = {"CAMPANERO_LEASE__SECONDS": str(SECONDS), "CAMPANERO_LEASE__STORE": s3.store_url}
        credentials = {name: value for name, value in s3.env.items() if "__S3__" in name}
        self.env = relay_settings(smtp.port) | credentials | lease
        socket = {"CAMPANERO_LITESTREAM__SOCKET": str(home / "one" / "ls.sock")}
        self.first = fresh_server(env=self.env | socket, start=False)
        self.litestream = Litestream(self.first.data / "campanero.db", home / "one", "replica", s3)
        self.second = fresh_server(env=self.env, start=False, set_up=False)
        # Litestream does not start with it.
        self.second.env.pop("AWS_CA_BUNDLE", None)

    def start(self) -> None:
        """Start the first machine and its Litestream, and let the second one follow."""
        self.first.start().set_postal_address()
        self.litestream.start()
        self.second.data.mkdir(mode=0o700)
        shutil.copy(self.first.data / "secret.key", self.second.data)
        self.second.key = self.first.key
        self.second.launch("follow", self.litestream.source, "--litestream", PROGRAM)
        self.second.wait_for_line("standby: ready")

    def promote(self) -> str:
        """Promote the second machine, start it, and return what the command said."""
        words = self.second.cli("promote", timeout=120).stdout
        assert self.second.wait_for_end() == 0
        self.second.start()
        return words


@pytest.fixture
def pair(fresh_server: FreshServer, smtp_server: SmtpServer, s3: S3Server, tmp_path: Path) -> Iterator[Pair]:
    """Yield two machines that are not started."""
    for key in list(s3.objects()):
        s3.remove(key)
    machines = Pair(fresh_server, smtp_server, s3, tmp_path)
    yield machines
    machines.litestream.close()


def read_files(data: Path) -> dict[str, bytes]:
    """Return the attachments and the journal in a data directory, without what was sent, which goes on growing."""
    paths = [path for path in (data / "attachments").rglob("*") if path.is_file()]
    lines = (data / "optouts.jsonl").read_bytes().splitlines(keepends=True)
    refusals = b"".join(line for line in lines if b'"act":"sent"' not in line)
    return {path.relative_to(data).as_posix(): path.read_bytes() for path in paths} | {"optouts.jsonl": refusals}


def addresses(sink: SmtpServer) -> list[str]:
    """Return the recipients of all messages that were accepted."""
    return [message.rcpt_to[0] for message in sink.messages if message.rcpt_to != ["file@crowd.example"]]


def count_messages(machine: Server) -> int:
    """Return how many messages the copy of the database has on a machine that follows another one."""
    database = place.find_database(machine.data)
    if database is None:
        return 0
    handle = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        handle.set_busy_timeout(5_000)
        return int(next(handle.execute("SELECT count(*) FROM message"))[0])
    finally:
        handle.close()


def test_the_second_machine_ends_the_send(pair: Pair, smtp_server: SmtpServer, full: bool, figures: Figures) -> None:
    """The first machine is killed in a send; the promoted one sends the rest, and holds what may have left."""
    count = 50_000 if full else 2_000
    pair.start()
    api = pair.first.client(validate=False)
    file = {"filename": "a.txt", "content": "YQ=="}
    mail = {"to": "file@crowd.example", "subject": "s", "body": "b", "attachments": [file]}
    api.post("/messages", mail).expect(201)
    api.post("/suppressions", {"address": "gone@crowd.example"}).expect(201)
    # What the kill may cost is the last seconds, so these must be there before the send
    wait_until(lambda: any(path.is_file() for path in pair.second.data.rglob("attachments/*/*")))
    gate = smtp_server.rules.hold("body")
    path = send_campaign(api, create_list(api, count))
    gate.wait_reached()
    # A campaign of the last second before the kill would not be in the copy.
    wait_until(lambda: count_messages(pair.second) > count, seconds=60)
    gate.release()
    began = time.monotonic()
    smtp_server.wait_for(count // 3, timeout=300)
    rate = count / 3 / (time.monotonic() - began)
    pair.first.kill()
    pair.litestream.kill()
    sent_before = set(addresses(smtp_server))
    files = read_files(pair.first.data)

    words = pair.promote()
    held = int(re.search(r"held until you decide: (\d+)", words)[1])  # type: ignore[index]  # always there
    other = pair.second.client(validate=False)
    wait_until_completed(other, path, timeout=600)
    sent = addresses(smtp_server)
    stats = other.get(path).expect(200)["stats"]
    figures.note(size=count, held=held, copies=len(sent) - len(set(sent)), rate=round(rate), before=len(sent_before))
    assert len(sent) == len(set(sent)), "a message was sent twice"
    assert stats["uncertain"] == held and stats["pending"] == 0, stats
    missing = count - len(set(sent))
    assert missing <= held <= HELD_SECONDS * rate + BLOCKS
    assert f"campaign {path.rsplit('/', 1)[1]}," in words
    assert files and read_files(pair.second.data) == files


def count_mirrored(machine: Server) -> int:
    """Return how many messages the journal that a following machine has names as sent."""
    path = machine.data / "standby" / "files" / "optouts.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    return sum(len(json.loads(line)["ids"]) for line in lines if b'"act":"sent"' in line)


def test_the_report_leaves_out_what_the_journal_names_as_sent(pair: Pair, smtp_server: SmtpServer) -> None:
    """The journal may be ahead of the database: what it names is sent, so it is neither held nor told as held."""
    smtp_server.rules.delay("body", 0.3, times=1_000)
    pair.start()
    api = pair.first.client(validate=False)
    path = send_campaign(api, create_list(api, 600))
    smtp_server.wait_for(20)
    pair.litestream.kill()
    ahead = len(smtp_server.messages) + 30
    wait_until(lambda: count_mirrored(pair.second) >= ahead)
    pair.first.kill()
    held = int(re.search(r"held until you decide: (\d+)", pair.promote())[1])  # type: ignore[index]  # always there
    stats = wait_until_completed(pair.second.client(validate=False), path)["stats"]
    assert stats["uncertain"] == held < 600 - ahead and stats["pending"] == 0


@pytest.mark.full
def test_without_a_lease_the_other_machine_must_be_silent(pair: Pair) -> None:
    """While changes of the other machine arrive, the flag does not promote this one; once it is off, it does."""
    for machine in (pair.first, pair.second):
        del machine.env["CAMPANERO_LEASE__STORE"]
    pair.start()
    refused = pair.second.cli("promote", "--old-machine-is-off", timeout=120, expect=1)
    assert "the other machine is not off: a change of it has just arrived" in refused.stderr
    pair.first.kill()
    pair.litestream.kill()
    promoted = pair.second.cli("promote", "--old-machine-is-off", timeout=120)
    assert "Promoted, without a lease." in promoted.stdout
    assert pair.second.wait_for_end() == 0
    pair.second.start()


@pytest.mark.full
def test_kills_of_follow_and_promote(pair: Pair, s3: S3Server) -> None:
    """After kills, both commands go on when they are repeated, and the service starts only once promoted."""
    pair.start()
    assert "follows another machine" in pair.second.cli("user", "add", "--email", "a@b.example", expect=1).stderr
    assert "ok    standby: follows" in pair.second.cli("doctor").stdout
    pair.second.kill()
    assert "campanero follow is not running" in pair.second.cli("doctor", expect=1).stdout
    pair.second.launch("follow", pair.litestream.source, "--litestream", PROGRAM)
    pair.second.wait_for_line("standby: ready")
    person = Server(env=pair.env, data=pair.second.data)
    try:
        person.launch("promote")
        person.wait_for_line("the lease was taken, epoch 2")
        person.kill()
        pair.first.wait_for_line("lease: sending stopped: another machine")
        person.launch("promote")
        person.wait_for_line("checking the database")
        person.kill()
    finally:
        if person.process is not None:
            person.kill()
    if (pair.second.data / "standby").exists():
        pair.second.wait_for_end()
        assert "the lease was taken before" in pair.second.cli("promote", timeout=120).stdout
    pair.second.start()
    assert not (pair.second.data / "standby").exists()
    pair.second.wait_for_line("lease: held epoch=2")
