"""Start, stop, kill and the command line, as the operating contract says (docs/decisions.md#17)."""

import json
import os
import signal
import socket
import stat
import time
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit.patience import soon
from tests.kit.server import PASSWORD, Server
from tests.kit.smtp import SmtpServer


def queue(server: Server, count: int) -> str:
    """Send a campaign to that many people and answer its path."""
    api = server.client(keep_alive=True)
    group = api.post("/lists", {"name": "Crowd"}).expect(201)["id"]
    for index in range(count):
        api.post("/contacts", {"email": f"c{index}@example.org", "list_ids": [group]}).expect(201)
    made = api.post("/campaigns", {"name": "Crowd"}).json
    content = {"subject": "s", "body": "<p>b</p>", "from_email": "a@bakery.example"}
    body = {"trigger_attributes": {"contact_list_id": group}, "template_attributes": content}
    api.post(f"/campaigns/{made['id']}/send", body).expect(200)
    return f"/campaigns/{made['id']}"


def test_the_data_directory_is_private(server: Server) -> None:
    """Directory 0700, files 0600, no key in clear anywhere in it."""
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    files = [path for path in server.data.rglob("*") if path.is_file()]
    assert files and all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in files)
    assert server.key is not None
    assert not any(server.key.encode() in path.read_bytes() for path in files)
    assert server.key not in server.output


def test_a_second_service_on_the_directory_is_refused(server: Server) -> None:
    """Exit 1 within two seconds, one clear line, the first unharmed (P10)."""
    begun = time.monotonic()
    refused = server.cli("serve", "--listen", "127.0.0.1:1", expect=1)

    assert time.monotonic() - begun < soon(2)
    assert "another service runs on" in refused.stderr and len(refused.stderr.strip().splitlines()) == 1
    assert server.client().get("/lists").status == 200


def test_stopping_in_the_middle_leaves_nothing_in_doubt(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """SIGTERM: open transactions finish, exit 0; the rest goes on after the next start, each once."""
    smtp_server.rules.delay("body", 0.3)
    server = fresh_server(cold=True, relay=smtp_server.port)
    path = queue(server, 40)
    smtp_server.wait_for(6)
    server.stop(expect=0)
    at_stop = len(smtp_server.messages)
    smtp_server.rules.clear()
    api = server.restart().client()
    done = api.wait(path, lambda row: row["status"] == "completed")

    assert at_stop < 40
    assert "being sent when" not in server.output
    assert sorted(message.to for message in smtp_server.messages) == sorted(f"c{n}@example.org" for n in range(40))
    assert done["stats"]["sent"] == 40


@pytest.mark.parametrize("mode", ["resend", "hold"])
def test_a_kill_forgets_nobody_and_copies_at_most_what_was_in_hand(
    fresh_server: FreshServer, smtp_server: SmtpServer, mode: str
) -> None:
    """kill -9 in the middle: nobody missing, at most one copy more per connection, same Message-ID (P2, P3)."""
    smtp_server.rules.delay("body", 0.05)
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__IN_DOUBT": mode})
    path = queue(server, 60)
    smtp_server.wait_for(15)
    server.kill()
    smtp_server.rules.clear()
    api = server.restart().client()
    done = api.wait(path, lambda row: row["status"] == "completed")
    copies: dict[str, set[str | None]] = {}
    for message in smtp_server.messages:
        copies.setdefault(message.to, set()).add(message.header("Message-ID"))
    extra = len(smtp_server.messages) - len(copies)

    assert all(len(numbers) == 1 for numbers in copies.values())
    assert done["stats"]["sent"] + done["stats"]["uncertain"] == 60
    if mode == "resend":
        assert set(copies) == {f"c{n}@example.org" for n in range(60)}
        assert extra <= 4 and done["stats"]["uncertain"] == 0
    else:
        assert extra == 0 and done["stats"]["uncertain"] <= 4
        assert len(copies) >= done["stats"]["sent"]


def test_accepted_means_on_disk(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """What was answered with 201 survives a kill right after the answer (P1)."""
    gate = smtp_server.rules.hold("connect")
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    body = {"subject": "s", "body": "b", "from_email": "a@bakery.example"}
    numbers = [api.post("/messages", body | {"to": f"d{index}@example.org"}).expect(201)["id"] for index in range(10)]
    server.kill()
    gate.release()
    api = server.restart().client()
    for number in numbers:
        api.wait(f"/messages/{number}", lambda row: row["status"] == "sent")

    assert {message.to for message in smtp_server.messages} == {f"d{index}@example.org" for index in range(10)}


def test_set_up_by_the_command_line_happens_once(fresh_server: FreshServer) -> None:
    """Nothing secret is printed; a second time is refused; a short password is refused."""
    server = fresh_server(cold=True, start=False, set_up=False)
    short = server.cli("setup", "--email", "a@example.org", stdin="short\n", expect=1)
    done = server.cli("setup", "--email", "Ana@Example.org", "--name", "Bakery", stdin=PASSWORD + "\n")
    again = server.cli("setup", "--email", "b@example.org", stdin=PASSWORD + "\n", expect=1)

    assert "too short" in short.stderr
    assert (done.stdout, done.stderr) == ("", "")
    assert "already set up" in again.stderr


def test_people_keys_and_accounts_by_the_command_line(server: Server) -> None:
    """Also beside a running service; only the asked-for thing is printed."""
    second = server.cli("account", "add", "Second").stdout.strip()
    server.cli(
        "user", "add", "--email", "x@example.org", "--role", "viewer", "--account", second, stdin=PASSWORD + "\n"
    )
    key = server.cli("key", "create", "script", "--scope", "contacts:read", "--account", second)

    assert second.isdecimal()
    assert key.stdout.strip().startswith("camp_live_") and len(key.stdout.strip()) == len("camp_live_") + 36
    assert server.client(key.stdout.strip()).get("/contacts").status == 200
    for words, fault in (
        (("user", "add", "--email", "x@example.org"), "taken"),
        (("user", "add", "--email", "y@example.org", "--role", "king"), "role"),
        (("key", "create", "k", "--scope", "everything"), "Unknown scope"),
        (("key", "create", "k", "--account", "99"), "account"),
    ):
        assert fault in server.cli(*words, stdin=PASSWORD + "\n", expect=1).stderr


def test_wrong_command_lines_exit_2(fresh_server: FreshServer) -> None:
    """A command line that cannot be read is told from one that cannot be done."""
    server = fresh_server(cold=True, start=False, set_up=False)
    for words in (("dance",), ("setup",), ("key",), ("serve", "--nope")):
        server.cli(*words, expect=2)


def test_configuration_faults_are_told_at_once(fresh_server: FreshServer) -> None:
    """Each faulty setting is named; the service does not start."""
    server = fresh_server(cold=True, start=False, set_up=False, config='listen = "nowhere"\n[email]\nconnections = 0\n')
    for command in ("check", "serve"):
        wrong = server.cli(command, expect=1).stderr
        assert "email.connections" in wrong and len(wrong.strip().splitlines()) == 1
    unknown = fresh_server(start=False, set_up=False, config="[email]\ntransprt = 1\n")
    assert "email.transprt" in unknown.cli("check", expect=1).stderr


def test_check_shows_where_each_setting_comes_from(fresh_server: FreshServer) -> None:
    """Option, environment, file and default are named; secrets are masked."""
    server = fresh_server(
        start=False, set_up=False, config='[email]\nconnections = 7\n[email.relay]\npassword = "hush-hush"\n',
        env={"CAMPANERO_EMAIL__RATE_PER_SECOND": "5", "CAMPANERO_NONSENSE": "1"},
    )  # fmt: skip
    shown = server.cli("check")

    assert "email.connections = 7  # file" in shown.stdout
    assert "email.rate_per_second = 5.0  # environment" in shown.stdout
    assert "email.relay.password = ***  # file" in shown.stdout and "hush" not in shown.stdout
    assert 'log.level = "info"  # default' in shown.stdout
    assert "CAMPANERO_NONSENSE" in shown.stderr


def test_version_and_document(fresh_server: FreshServer) -> None:
    """`version --json` names what is inside; `openapi` prints the document."""
    server = fresh_server(cold=True, start=False, set_up=False)
    version = json.loads(server.cli("version", "--json").stdout)

    assert tuple(map(int, version["components"]["sqlite"].split("."))) >= (3, 51, 3)
    assert server.cli("openapi").stdout.startswith("openapi: 3.1")


def test_the_test_clock_is_refused_off_loopback(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Nobody moves the time of an installation that people can reach."""
    env = {"CAMPANERO_TEST_CLOCK": str(tmp_path / "clock"), "CAMPANERO_BASE_URL": "https://mail.example.org"}
    server = fresh_server(start=False, set_up=False, env=env)

    assert "CAMPANERO_TEST_CLOCK" in server.cli("serve", expect=1).stderr


def test_a_newer_database_is_refused(fresh_server: FreshServer) -> None:
    """An older program does not touch what a newer one wrote (P12)."""
    import apsw

    server = fresh_server(cold=True, start=False)
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.execute("PRAGMA user_version = 999").fetchall()
    connection.close()

    assert "newer" in server.cli("serve", expect=1).stderr


def test_the_pace_is_kept(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """`email.rate_per_second` bounds all connections together."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__RATE_PER_SECOND": "10"})
    path = queue(server, 25)
    server.client().wait(path, lambda row: row["status"] == "completed")
    times = sorted(message.time for message in smtp_server.messages)

    assert len(times) == 25
    assert times[-1] - times[0] >= 2.0


def test_a_listener_that_cannot_listen_is_said(fresh_server: FreshServer, tmp_path: Path) -> None:
    """With its port taken, or a certificate that is none, the service does not start and says why."""
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("no certificate")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        for more, words in (
            ({"CAMPANERO_INBOUND__TLS_CERTIFICATE": str(rubbish)}, f"{rubbish} is not a certificate"),
            ({}, f"inbound.listen: {listen}"),
        ):
            env = {"CAMPANERO_INBOUND__LISTEN": listen, **more}
            server = fresh_server(start=False, set_up=False, env=env)
            with pytest.raises(AssertionError, match="ended"):
                server.start()
            assert words in server.output and "Traceback" not in server.output


def test_a_signal_right_after_the_start_is_heard(fresh_server: FreshServer) -> None:
    """Whoever waits for the word that it is ready may end it at once, each time."""
    server = fresh_server(relay=9)
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
        server.stop(sign=sign)
        server.start()


def test_who_asks_while_it_stops_is_told_when_to_come_back(
    fresh_server: FreshServer, smtp_server: SmtpServer
) -> None:  # fmt: skip
    """On a connection that was open: 503 with all that an error has, and an end of the connection."""
    smtp_server.rules.delay("body", 3)
    server = fresh_server(relay=smtp_server.port)
    api = server.client(keep_alive=True)
    queue(server, 4)
    api.wait("/messages", lambda rows: any(row["status"] == "sending" for row in rows))
    os.kill(server.pid, signal.SIGTERM)
    end = time.monotonic() + 10
    while (answer := api.get("/lists")).status == 200 and time.monotonic() < end:
        pass
    said = answer.expect(503)
    assert said["code"] == "unavailable" and said["hint"].endswith("#unavailable")
    assert (answer.headers["Retry-After"], answer.headers["X-Request-Id"]) == ("5", said["request_id"])
    server.stop()
