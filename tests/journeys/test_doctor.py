"""`campanero doctor`: a line for each check, exit 1 if one fails, beside a running service too; and the books' page."""

import re
from collections.abc import Callable

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.fake_sms import FakeSms
from tests.kit.server import Server, free_port
from tests.kit.smtp import SmtpServer
from tests.ui.test_roles import FORM, signed_in

CONTENT = {"subject": "s", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}


def levels(server: Server, expect: int) -> dict[str, tuple[str, str]]:
    """Run it, and answer level and words of each check (the last line of each)."""
    done = server.cli("doctor", expect=expect)
    lines = [re.fullmatch(r"(ok|warn|fail) +([^:]+): (.+)", line) for line in done.stdout.splitlines()]
    assert lines and all(lines) and done.stderr == "", done.stdout + done.stderr
    return {found[2]: (found[1], found[3]) for found in lines if found}


def sent(server: Server) -> str:
    """Send a campaign to one person and answer its path."""
    api = server.client()
    group = api.post("/lists", {"name": "One"}).expect(201)["id"]
    api.post("/contacts", {"email": "a@example.org", "list_ids": [group]}).expect(201)
    made = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT}).expect(201)
    path = f"/campaigns/{made['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    api.wait(path, lambda row: row["status"] == "completed")
    return path


def database(server: Server, sql: str) -> None:
    """Do something to the database behind the service's back."""
    here = apsw.Connection(str(server.data / "campanero.db"))
    here.execute(sql).fetchall()
    here.close()


def test_all_is_well(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Beside a running service and without one, every check is ok but for what a test installation lacks."""
    server = fresh_server(relay=smtp_server.port)
    sent(server)
    running = levels(server, 0)
    server.stop()
    ended = levels(server, 0)

    for found in (running, ended):
        # Mail leaves through a relay here, from no domain of ours and with links of this machine
        assert {name: level for name, (level, _) in found.items() if level != "ok"} == {
            "links": "warn", "domains": "warn"
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
        } <= set(found)
    assert "runs as process" in running["service"][1] and ended["service"][1] == "not running"
    assert "1 campaign balances" in running["ledger"][1]


def _readable(server: Server) -> None:
    (server.data / "secret.key").chmod(0o644)


def _keyless(server: Server) -> None:
    (server.data / "secret.key").unlink()


def _damaged(server: Server) -> None:
    database(server, "PRAGMA wal_checkpoint(TRUNCATE)")
    path = server.data / "campanero.db"
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xff" * (4096 * 3)
    path.write_bytes(content)


def _newer(server: Server) -> None:
    database(server, "PRAGMA user_version = 999")


def _unbalanced(server: Server) -> None:
    database(server, "UPDATE campaign SET audience_count = audience_count + 1")


def _unreachable(server: Server) -> None:
    server.env["CAMPANERO_EMAIL__RELAY__PORT"] = str(free_port())


def _misconfigured(server: Server) -> None:
    server.env["CAMPANERO_EMAIL__CONNECTIONS"] = "0"


@pytest.mark.parametrize(
    ("harm", "check", "words"),
    [
        (_readable, "data directory", "secret.key"), (_keyless, "key file", "put back"),
        (_damaged, "database", "malformed|damaged|disk image"), (_newer, "schema", "newer"),
        (_unbalanced, "ledger", "2 people were written down, 1 have a row"), (_unreachable, "email transport", "relay"),
        (_misconfigured, "configuration", "email.connections"),
    ],
)  # fmt: skip
def test_what_is_not_well_fails(
    harm: Callable[[Server], None], check: str, words: str, fresh_server: FreshServer, smtp_server: SmtpServer
) -> None:
    """Each is told in its line, and the exit code is 1; nothing is repaired behind anybody's back."""
    server = fresh_server(relay=smtp_server.port)
    sent(server)
    server.stop()
    harm(server)
    level, said = levels(server, 1)[check]

    assert level == "fail" and re.search(words, said)
    assert check != "key file" or not (server.data / "secret.key").exists()


def test_what_was_done_on_purpose_is_a_warning(fresh_server: FreshServer) -> None:
    """The file STOP and the switch stop sending, and that is said."""
    server = fresh_server()
    (server.data / "STOP").touch()
    assert levels(server, 0)["sending"][0] == "warn"
    (server.data / "STOP").unlink()
    server.client().patch("/account", {"sending_stopped": True}).expect(200)

    assert levels(server, 0)["sending"][0] == "warn"


def test_nothing_is_made_by_looking(fresh_server: FreshServer) -> None:
    """Where there is no installation yet, none appears."""
    server = fresh_server(start=False, set_up=False)

    assert "does not exist" in levels(server, 1)["data directory"][1]
    assert not server.data.exists()


def test_the_page_of_a_campaign_says_it(fresh_server: FreshServer) -> None:
    """A campaign whose books do not balance says so, with the numbers."""
    server = fresh_server()
    path = sent(server)
    cookie = signed_in(server, "owner@example.com")
    client = server.client()
    before = client.request("GET", path, headers=FORM | {"Cookie": cookie})
    server.kill()
    _unbalanced(server)
    server.start()
    after = client.request("GET", path, headers=FORM | {"Cookie": cookie})

    assert before.status == after.status == 200
    assert "do not balance" not in before.text
    assert "2 people were written down, 1 have a row" in after.text


def test_the_way_out_of_sms(fresh_server: FreshServer, fake_sms: FakeSms) -> None:
    """A provider that accepts the login is ok and tells where it calls; one that does not, or is not there, fails."""
    server = fresh_server(env=fake_sms.env)
    found = levels(server, 0)
    assert found["SMS transport"] == ("ok", "twilio: answers and accepts the login")
    assert found["SMS callbacks"][0] == "ok" and f"{server.url}/hooks/twilio/message" in found["SMS callbacks"][1]
    server.env["CAMPANERO_SMS__TWILIO__AUTH_TOKEN"] = "wrong"
    level, words = levels(server, 1)["SMS transport"]
    assert level == "fail" and "20003" in words and "wrong" not in words
    server.env |= fake_sms.env_http | {"CAMPANERO_SMS__HTTP__URL": f"http://127.0.0.1:{free_port()}"}
    assert "cannot be reached" in levels(server, 1)["SMS transport"][1]
    assert fake_sms.accepted == []
