"""`campanero doctor`: one line for each check, exit code 1 if one fails; and counts that do not add up."""

import re
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.fake_sms import FakeSms
from tests.kit.server import Server, free_port
from tests.kit.smtp import SmtpServer
from tests.ui.test_roles import FORM, session_cookie

CONTENT = {"subject": "s", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}


def run_doctor(server: Server, expect: int) -> dict[str, tuple[str, str]]:
    """Run the doctor and return (level, text) by check; the last line of a check counts."""
    result = server.cli("doctor", expect=expect)
    lines = [re.fullmatch(r"(ok|note|warn|fail) +([^:]+): (.+)", line) for line in result.stdout.splitlines()]
    assert lines and all(lines) and result.stderr == "", result.stdout + result.stderr
    return {match[2]: (match[1], match[3]) for match in lines if match}


def send_campaign(server: Server) -> str:
    """Send a campaign to one contact and return its path."""
    api = server.client()
    list_id = api.post("/lists", {"name": "One"}).expect(201)["id"]
    api.post("/contacts", {"email": "a@example.org", "list_ids": [list_id]}).expect(201)
    campaign = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait(path, lambda row: row["status"] == "completed")
    return path


def change_database(server: Server, sql: str) -> None:
    """Execute SQL on the database while the service does not know."""
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.execute(sql).fetchall()
    connection.close()


def test_a_sound_installation_passes(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """With and without a running service all checks are ok, except links, domains and backups of a new installation."""
    server = fresh_server(relay=smtp_server.port)
    send_campaign(server)
    running = run_doctor(server, 0)
    server.stop()
    stopped = run_doctor(server, 0)

    for checks in (running, stopped):
        # The links lead to this machine, and no sending domain is verified
        assert {name: level for name, (level, _) in checks.items() if level != "ok"} == {
            "links": "warn", "domains": "warn", "backups": "note", "copies": "note", "inbound.listen": "note"
        }  # fmt: skip
        assert {
            "data directory",
            "key file",
            "database",
            "schema",
            "disk",
            "sending",
            "email transport",
            "ledger",
        } <= set(checks)
    assert "runs as process" in running["service"][1] and stopped["service"][1] == "not running"
    assert "recipient totals add up for 1 campaign" in running["ledger"][1]


def _make_key_readable(server: Server) -> None:
    (server.data / "secret.key").chmod(0o644)


def _delete_key(server: Server) -> None:
    (server.data / "secret.key").unlink()


def _damage_pages(server: Server) -> None:
    change_database(server, "PRAGMA wal_checkpoint(TRUNCATE)")
    path = server.data / "campanero.db"
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xff" * (4096 * 3)
    path.write_bytes(content)


def _set_newer_schema(server: Server) -> None:
    change_database(server, "PRAGMA user_version = 999")


def _change_audience_count(server: Server) -> None:
    change_database(server, "UPDATE campaign SET audience_count = audience_count + 1")


def _set_closed_port(server: Server) -> None:
    server.env["CAMPANERO_EMAIL__RELAY__PORT"] = str(free_port())


def _set_invalid_setting(server: Server) -> None:
    server.env["CAMPANERO_EMAIL__CONNECTIONS"] = "0"


@pytest.mark.parametrize(
    ("damage", "check", "pattern"),
    [
        (_make_key_readable, "data directory", "secret.key"), (_delete_key, "key file", "put back"),
        (_damage_pages, "database", "malformed|damaged|disk image"), (_set_newer_schema, "schema", "newer"),
        (_change_audience_count, "ledger", "the counter of recipients is 2, but 1 have a message"),
        (_set_closed_port, "email transport", "relay"),
        (_set_invalid_setting, "configuration", "email.connections"),
    ],
)  # fmt: skip
def test_each_fault_fails_its_check(
    damage: Callable[[Server], None], check: str, pattern: str, fresh_server: FreshServer, smtp_server: SmtpServer
) -> None:
    """Each fault fails its check with a text, the exit code is 1, and nothing is repaired."""
    server = fresh_server(relay=smtp_server.port)
    send_campaign(server)
    server.stop()
    damage(server)
    level, text = run_doctor(server, 1)[check]

    assert level == "fail" and re.search(pattern, text)
    assert check != "key file" or not (server.data / "secret.key").exists()


def test_a_directory_without_an_installation(tmp_path: Path) -> None:
    """Before the first start nothing is missing: the doctor says how to start, also beside the configuration."""
    server = Server(data=tmp_path / "new")
    for name in (None, "campanero.toml"):
        server.data.mkdir(mode=0o700, exist_ok=True)
        if name is not None:
            (server.data / name).touch(0o600)
        checks = run_doctor(server, 1)
        assert checks.keys() == {"configuration", "data directory"}
        assert "has no installation yet: run campanero serve" in checks["data directory"][1]
    # Files of an installation without its key: that one has to be put back.
    (server.data / "optouts.jsonl").touch(0o600)
    assert "put back" in run_doctor(server, 1)["key file"][1]


def test_a_key_file_may_be_a_link(fresh_server: FreshServer) -> None:
    """A link to the key file is judged by the permissions of its target."""
    server = fresh_server()
    server.stop()
    key, target = server.data / "secret.key", server.home / "elsewhere.key"
    key.rename(target)
    key.symlink_to(target)
    assert run_doctor(server, 0)["data directory"][0] == run_doctor(server, 0)["key file"][0] == "ok"
    target.chmod(0o644)
    assert "other users can read" in run_doctor(server, 1)["data directory"][1]
    target.unlink()
    checks = run_doctor(server, 1)
    assert checks["data directory"][0] == "ok" and "is missing" in checks["key file"][1]


def test_a_deliberate_stop_is_a_warning(fresh_server: FreshServer) -> None:
    """The STOP file and the stop switch are warnings."""
    server = fresh_server()
    (server.data / "STOP").touch()
    assert run_doctor(server, 0)["sending"][0] == "warn"
    (server.data / "STOP").unlink()
    server.client().patch("/account", {"sending_stopped": True}).expect(200)

    assert run_doctor(server, 0)["sending"][0] == "warn"


def test_the_doctor_creates_nothing(fresh_server: FreshServer) -> None:
    """Without an installation the doctor fails and creates no data directory."""
    server = fresh_server(start=False, set_up=False)

    assert "does not exist" in run_doctor(server, 1)["data directory"][1]
    assert not server.data.exists()


def test_the_campaign_page_shows_wrong_counts(fresh_server: FreshServer) -> None:
    """The page of a campaign whose counts do not add up says so, with the numbers."""
    server = fresh_server()
    path = send_campaign(server)
    cookie = session_cookie(server, "owner@example.com")
    client = server.client()
    before = client.request("GET", path, headers=FORM | {"Cookie": cookie})
    server.kill()
    _change_audience_count(server)
    server.start()
    after = client.request("GET", path, headers=FORM | {"Cookie": cookie})

    assert before.status == after.status == 200
    assert "differ from its messages" not in before.text
    assert "the counter of recipients is 2, but 1 have a message" in after.text


def test_the_sms_transport_check(fresh_server: FreshServer, fake_sms: FakeSms) -> None:
    """The check is ok if the provider accepts the login, and fails for a wrong login or an unreachable provider."""
    server = fresh_server(env=fake_sms.env)
    checks = run_doctor(server, 0)
    assert checks["SMS transport"] == ("ok", "twilio: answers and accepts the login")
    assert checks["SMS callbacks"][0] == "ok" and f"{server.url}/hooks/twilio/message" in checks["SMS callbacks"][1]
    server.env["CAMPANERO_SMS__TWILIO__AUTH_TOKEN"] = "wrong"
    level, text = run_doctor(server, 1)["SMS transport"]
    assert level == "fail" and "20003" in text and "wrong" not in text
    server.env |= fake_sms.env_http | {"CAMPANERO_SMS__HTTP__URL": f"http://127.0.0.1:{free_port()}"}
    assert "cannot be reached" in run_doctor(server, 1)["SMS transport"][1]
    assert fake_sms.accepted == []
