"""Data and backups of real earlier versions are upgraded and restored, and those of newer ones are left alone.

The files of each version are in `tests/samples/versions/`, made by its `make.py` in a checkout of that version.
"""

import hashlib
import io
import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from appliance.ops.backups.restore import FIRST_SCHEMA_WITH_SENDS
from appliance.storage.migrations import MIGRATIONS
from tests.conftest import FreshServer
from tests.kit.reconciliation import check_sum_of_stats
from tests.kit.sampling import sampled
from tests.kit.server import ROOT, Server
from tests.kit.smtp import SmtpServer
from tests.rules.test_schema import MIGRATED

SAMPLES = Path(__file__).parents[1] / "samples" / "versions"
NAMES = sorted(path.name.split(".")[0] for path in SAMPLES.glob("schema-*.tar.xz"))
JOURNAL = "optouts.jsonl"


def unpack(name: str, directory: Path) -> dict[str, Any]:
    """Unpack the files of a version, and return what is expected of them (`make.py`)."""
    with tarfile.open(SAMPLES / f"{name}.tar.xz") as tar:
        tar.extractall(directory, filter="data")
    facts: dict[str, Any] = json.loads((directory / "facts.json").read_text())
    return facts


def put_data(server: Server, sample: Path, key: str) -> None:
    """Put the data directory of a sample in the place of the server's."""
    shutil.rmtree(server.data, ignore_errors=True)
    shutil.copytree(sample / "data", server.data)
    server.data.chmod(0o700)
    for path in server.data.iterdir():
        path.chmod(0o600)
    server.key = key


def list_sent(smtp_server: SmtpServer) -> list[str]:
    """Return the recipients of the messages so far, sorted."""
    return sorted(recipient for message in smtp_server.messages for recipient in message.to.split(","))


@pytest.mark.parametrize("name", sampled(NAMES, [NAMES[0], NAMES[-1]]))
def test_upgrade_and_restore(name: str, fresh_server: FreshServer, smtp_server: SmtpServer, tmp_path: Path) -> None:
    """A directory of an earlier version goes on where it was, and its backup is restored with what came after it."""
    facts = unpack(name, tmp_path)
    server = fresh_server(relay=smtp_server.port, start=False, set_up=False)
    put_data(server, tmp_path, facts["key"])
    server.start()
    api = server.client(validate=False)
    path = f"/campaigns/{facts['campaign']}"
    stats = api.wait(path, lambda row: row["status"] == "completed")["stats"]
    check_sum_of_stats(stats)
    assert stats["sent"] == 10 and stats["skipped"] == 2
    remaining = sorted(set(facts["contacts"]) - {
        *facts["sent_before"], *facts["sent_after"], facts["opted_out"], facts["suppressed"],
    })  # fmt: skip
    assert list_sent(smtp_server) == remaining
    assert api.get(f"/flows/{facts['flow']}").expect(200)["stats"]["active"] == 3
    server.stop()
    smtp_server.clear()
    if facts["schema"] < len(MIGRATIONS):
        assert (server.data / "backups" / f"before-schema-{len(MIGRATIONS)}.tar.gz").exists()

    output = server.cli("restore", str(tmp_path / "backup.tar.gz"), "--force").stdout
    assert "1 opt outs, 1 suppressions" in output
    knows_all = facts["schema"] >= FIRST_SCHEMA_WITH_SENDS
    known = 6 if knows_all else 2  # An earlier version did not write what it sent to the journal.
    assert f"Sent after this backup, and not sent again: {known} messages; unconfirmed, for you to decide: 0." in output
    assert ("does not name all messages" in output) is not knows_all
    assert f"campaign {facts['campaign']}, Spring: {8 - known} open, 4 sent earlier, {known} sent after" in output
    server.start()
    stats = api.get(path).expect(200)["stats"]
    check_sum_of_stats(stats)
    assert (stats["sent"], stats["pending"]) == (4 + known, 8 - known)
    ids = facts["contacts"]
    assert api.get(f"/contacts/{ids[facts['opted_out']]}").expect(200)["subscribed_email"] is False
    assert [row["address"] for row in api.get("/suppressions").expect(200)] == [facts["suppressed"]]
    api.patch("/account", {"sending_stopped": False}).expect(200)
    assert api.wait(path, lambda row: row["status"] == "completed")["stats"]["sent"] == 10
    assert list_sent(smtp_server) == ([] if knows_all else sorted(facts["sent_after"]))
    assert api.get(f"/flows/{facts['flow']}").expect(200)["stats"]["active"] == 3
    server.stop()


def digest(directory: Path) -> dict[str, str]:
    """Return the hash of each file below a directory, by path. The lock and the log of a database do not count."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith(("-wal", "-shm", ".lock"))
    }


def make_newer_database(data: Path) -> None:
    """Make the database one of the next schema."""
    with closing(sqlite3.connect(data / "campanero.db")) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


def make_newer_journal(data: Path) -> None:
    """Make the journal one of the next format."""
    path = data / JOURNAL
    path.write_bytes(path.read_bytes().replace(b'{"journal"', b'{"format":2,"journal"', 1))


def make_newer_backup(path: Path) -> None:
    """Make a backup one of the next schema. Its checksums are not read before its manifest."""
    with tarfile.open(path) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]  # all are files
    name = next(iter(members))
    manifest = json.loads(members[name])
    members[name] = json.dumps(manifest | {"schema": len(MIGRATIONS) + 1, "version": "9.9.9"}).encode()
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("part", ["database", "journal"])
def test_newer_data_is_left_alone(part: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    """Each command says in one line that a newer program is needed, and changes no file."""
    facts = unpack(NAMES[-1], tmp_path)
    server = fresh_server(start=False, set_up=False)
    put_data(server, tmp_path, facts["key"])
    {"database": make_newer_database, "journal": make_newer_journal}[part](server.data)
    before = digest(server.data)
    serve = ("serve", "--listen", f"127.0.0.1:{server.port}")
    commands = {
        "database": [serve, ("key", "create", "x"), ("status",)],
        "journal": [serve, ("key", "create", "x"), ("backup", str(tmp_path / "new.tar.gz")),
                    ("restore", str(tmp_path / "backup.tar.gz"), "--force")],
    }[part]  # fmt: skip
    for command in commands:
        result = server.cli(*command, expect=1)
        [line] = result.stderr.strip().splitlines()
        assert "use the newer program" in line or "use a newer version" in line, (command, line)
        assert digest(server.data) == before, command
    if part == "journal":
        assert "has format 2" in server.cli("doctor", expect=None).stdout


def test_a_newer_backup_is_left_alone(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A backup of a newer schema is refused with the version that can restore it, and the data stays as it is."""
    facts = unpack(NAMES[-1], tmp_path)
    server = fresh_server(start=False, set_up=False)
    put_data(server, tmp_path, facts["key"])
    make_newer_backup(tmp_path / "backup.tar.gz")
    before = digest(server.data)
    [line] = server.cli("restore", str(tmp_path / "backup.tar.gz"), "--force", expect=1).stderr.strip().splitlines()
    assert f"has schema {len(MIGRATIONS) + 1}, this program knows {len(MIGRATIONS)}: use 9.9.9 or newer" in line
    assert digest(server.data) == before


def test_lines_of_a_newer_version_are_kept(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A journal with kinds of lines that this version does not know is applied as far as it is known, and kept."""
    facts = unpack(NAMES[-1], tmp_path)
    server = fresh_server(start=False, set_up=False)
    put_data(server, tmp_path, facts["key"])
    newer = b'{"at":4102444800000,"account":1,"act":"of_a_newer_version"}\n'
    with (server.data / JOURNAL).open("ab") as file:
        file.write(newer * 2)
    output = server.cli("restore", str(tmp_path / "backup.tar.gz"), "--force").stdout
    assert f"warning: lines of a newer version in {server.data / JOURNAL} were kept, but not applied: 2" in output
    assert "damaged" not in output and "1 opt outs" in output
    server.start().client().get("/account").expect(200)
    server.stop()
    assert (server.data / JOURNAL).read_bytes().count(newer) == 2


def test_the_newest_schema_has_a_sample() -> None:
    """A release with a new schema needs its files: run `tests/samples/versions/make.py` in a checkout of it."""
    assert NAMES[-1] <= f"schema-{len(MIGRATIONS):02d}" and len(NAMES) > 3


def migrate_database(path: Path) -> Path:
    """Create or migrate a database in another process."""
    subprocess.run([sys.executable, "-c", MIGRATED, str(path)], cwd=ROOT, check=True, timeout=60)
    return path


@pytest.fixture(scope="module")
def present_schema(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, ...]]:
    """The tables, columns and indexes of a new database."""
    return list_schema(migrate_database(tmp_path_factory.mktemp("new") / "campanero.db"))


@pytest.mark.parametrize("name", NAMES)
def test_an_upgrade_ends_with_the_present_schema(
    name: str, present_schema: set[tuple[str, ...]], tmp_path: Path
) -> None:
    """The migrations give a database of an earlier version all tables, columns and indexes of a new one."""
    unpack(name, tmp_path)
    assert list_schema(migrate_database(tmp_path / "data" / "campanero.db")) == present_schema


def list_schema(path: Path) -> set[tuple[str, ...]]:
    """Return (table, column) and (table, index) of all tables of a database."""
    sql = (
        "SELECT t.name, 'column', c.name FROM sqlite_schema t, pragma_table_xinfo(t.name) c WHERE t.type = 'table' "
        "UNION ALL SELECT tbl_name, 'index', name FROM sqlite_schema WHERE type = 'index'"
    )
    with closing(apsw.Connection(str(path))) as connection:
        return {tuple(map(str, row)) for row in connection.execute(sql).fetchall()}
