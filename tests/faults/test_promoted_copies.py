"""The promotion of a copy that somebody with access to the replica has changed: it is not encrypted or signed."""

import json
import shutil
from pathlib import Path

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.server import Server

TRIGGER = "CREATE TRIGGER go AFTER UPDATE ON account BEGIN UPDATE account SET sending_stopped = 0; END"
# SQLite reads the types of its schema in any case.
IN_CAPITALS = "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET type = upper(type) WHERE name = 'go'"


def _follow(fresh_server: FreshServer, tmp_path: Path, sql: str) -> Server:
    """Return a machine with the copy of another one, after it was changed by SQL."""
    first = fresh_server()
    first.stop()
    second = fresh_server(
        env={"CAMPANERO_LEASE__STORE": tmp_path.as_uri(), "CAMPANERO_LEASE__SECONDS": "6"}, start=False, set_up=False
    )
    restore = second.data / "standby" / "1"
    restore.mkdir(mode=0o700, parents=True)
    second.data.chmod(0o700)
    shutil.copy(first.data / "secret.key", second.data)
    shutil.copy(first.data / "campanero.db", restore)
    (restore / "campanero.db-txid").write_text("0000000000000001")
    (second.data / "standby" / "source.json").write_text('{"source": "file:///replica"}')
    connection = apsw.Connection(str(restore / "campanero.db"))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute(sql)
    connection.close()
    return second


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (TRIGGER, "triggers or views that are not ours: go"),
        (f"{TRIGGER}; {IN_CAPITALS}", "triggers or views that are not ours: go"),
        ("CREATE VIEW go AS SELECT 1", "triggers or views that are not ours: go"),
    ],
    ids=["trigger", "trigger in capitals", "view"],
)
def test_a_copy_with_foreign_objects_is_not_promoted(
    sql: str, words: str, fresh_server: FreshServer, tmp_path: Path
) -> None:
    """It is refused before the lease is taken, so the other machine goes on sending (docs/threats.md#t46)."""
    second = _follow(fresh_server, tmp_path, sql)
    assert words in second.cli("promote", expect=1).stderr
    assert not (tmp_path / "lease.json").exists()
    assert not (second.data / "campanero.db").exists()


def test_a_copy_without_a_column_is_not_promoted(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A copy with another schema than its version has is refused."""
    second = _follow(fresh_server, tmp_path, "ALTER TABLE contact DROP COLUMN source")
    assert "it lacks contact.source" in second.cli("promote", expect=1).stderr
    assert not (second.data / "campanero.db").exists()


def test_an_unchanged_copy_is_promoted(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A copy as Litestream restores it is promoted, and the service starts with it.

    What Litestream knew of a former database of this machine goes: with it, it would copy nothing to a new replica.
    """
    second = _follow(fresh_server, tmp_path, "SELECT 1")
    former = second.data / ".campanero.db-litestream" / "ltx" / "0"
    former.mkdir(parents=True)
    (former / "0000000000000007-0000000000000007.ltx").write_bytes(b"of the database before")
    words = second.cli("promote", "--old-machine-is-off", expect=1).stderr
    assert "a lease is set up, which stops the other machine: leave out --old-machine-is-off" in words
    assert "Promoted, epoch 1" in second.cli("promote").stdout
    assert not (second.data / ".campanero.db-litestream").exists()
    second.start()


def test_without_a_lease_a_person_answers_for_the_other_machine(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Such a copy is promoted only if somebody says that the other machine is off, which the audit log records."""
    second = _follow(fresh_server, tmp_path, "SELECT 1")
    del second.env["CAMPANERO_LEASE__STORE"]
    assert "will not start again: --old-machine-is-off" in second.cli("promote", expect=1).stderr
    assert (second.data / "standby").exists()
    words = second.cli("promote", "--old-machine-is-off").stdout
    assert "Promoted, without a lease." in words and "disable its service before" in words
    connection = apsw.Connection(str(second.data / "campanero.db"))
    [[data]] = connection.execute("SELECT data FROM audit WHERE action = 'promote'").fetchall()
    connection.close()
    assert json.loads(data) == {"old_machine_is_off": True, "held": 0}
