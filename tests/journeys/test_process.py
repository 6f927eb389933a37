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
from tests.kit.server import PASSWORD, Server
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout


def send_campaign(server: Server, count: int) -> str:
    """Send a campaign to `count` contacts and return its path."""
    api = server.client(keep_alive=True)
    list_id = api.post("/lists", {"name": "Crowd"}).expect(201)["id"]
    for index in range(count):
        api.post("/contacts", {"email": f"c{index}@example.org", "list_ids": [list_id]}).expect(201)
    campaign = api.post("/campaigns", {"name": "Crowd"}).json
    content = {"subject": "s", "body": "<p>b</p>", "from_email": "a@bakery.example"}
    body = {"trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content}
    api.post(f"/campaigns/{campaign['id']}/send", body).expect(200)
    return f"/campaigns/{campaign['id']}"


def test_the_data_directory_is_private(server: Server) -> None:
    """The directory has mode 0700, files have 0600, and no file contains the API key."""
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    files = [path for path in server.data.rglob("*") if path.is_file()]
    assert files and all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in files)
    assert server.key is not None
    assert not any(server.key.encode() in path.read_bytes() for path in files)
    assert server.key not in server.output


def test_a_second_service_on_the_directory_is_rejected(server: Server) -> None:
    """It exits with 1 and one line within two seconds, and the first service keeps running (P10)."""
    started = time.monotonic()
    result = server.cli("serve", "--listen", "127.0.0.1:1", expect=1)

    assert time.monotonic() - started < extend_timeout(2)
    assert "another service runs on" in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert server.client().get("/lists").status == 200


@pytest.mark.full
def test_stopping_leaves_no_uncertain_message(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """SIGTERM lets open transactions finish; after the next start the rest is sent, each message once."""
    smtp_server.rules.delay("body", 0.3)
    server = fresh_server(cold=True, relay=smtp_server.port)
    path = send_campaign(server, 40)
    smtp_server.wait_for(6)
    server.stop(expect=0)
    at_stop = len(smtp_server.messages)
    smtp_server.rules.clear()
    api = server.restart().client()
    completed = api.wait(path, lambda row: row["status"] == "completed")

    assert at_stop < 40
    assert "being sent when" not in server.output
    assert sorted(message.to for message in smtp_server.messages) == sorted(f"c{n}@example.org" for n in range(40))
    assert completed["stats"]["sent"] == 40


@pytest.mark.parametrize("mode", ["resend", "hold"])
def test_a_kill_loses_no_message_and_makes_few_copies(
    fresh_server: FreshServer, smtp_server: SmtpServer, mode: str
) -> None:
    """A kill loses no message, and each connection makes at most two copies with the same Message-ID (P2, P3)."""
    smtp_server.rules.delay("body", 0.05)
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__IN_DOUBT": mode})
    path = send_campaign(server, 60)
    smtp_server.wait_for(15)
    server.kill()
    smtp_server.rules.clear()
    api = server.restart().client()
    completed = api.wait(path, lambda row: row["status"] == "completed")
    copies: dict[str, set[str | None]] = {}
    for message in smtp_server.messages:
        copies.setdefault(message.to, set()).add(message.header("Message-ID"))
    extra = len(smtp_server.messages) - len(copies)

    assert all(len(numbers) == 1 for numbers in copies.values())
    assert completed["stats"]["sent"] + completed["stats"]["uncertain"] == 60
    if mode == "resend":
        assert set(copies) == {f"c{n}@example.org" for n in range(60)}
        assert extra <= 8 and completed["stats"]["uncertain"] == 0
    else:
        assert extra == 0 and completed["stats"]["uncertain"] <= 8
        assert len(copies) >= completed["stats"]["sent"]


def test_accepted_messages_survive_a_kill(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Messages that were accepted with 201 are sent after a kill right after the response (P1)."""
    gate = smtp_server.rules.hold("connect")
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    body = {"subject": "s", "body": "b", "from_email": "a@bakery.example"}
    message_ids = [
        api.post("/messages", body | {"to": f"d{index}@example.org"}).expect(201)["id"] for index in range(10)
    ]
    server.kill()
    gate.release()
    api = server.restart().client()
    for message_id in message_ids:
        api.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent")

    assert {message.to for message in smtp_server.messages} == {f"d{index}@example.org" for index in range(10)}


def test_the_setup_command(fresh_server: FreshServer) -> None:
    """It prints nothing; a second set-up and a short password are rejected."""
    server = fresh_server(start=False, set_up=False)
    short = server.cli("setup", "--email", "a@example.org", stdin="short\n", expect=1)
    result = server.cli("setup", "--email", "Ana@Example.org", "--name", "Bakery", stdin=PASSWORD + "\n")
    second = server.cli("setup", "--email", "b@example.org", stdin=PASSWORD + "\n", expect=1)

    assert "too short" in short.stderr
    assert (result.stdout, result.stderr) == ("", "")
    assert "already set up" in second.stderr


@pytest.mark.parametrize(
    ("email", "name"),
    [("ana@mail.juniper-salt.co.uk", "Juniper Salt"), ("ana@bäckerei.example", "Bäckerei"), ("ana@gmail.com", "ana")],
)
def test_the_account_is_named_after_its_owner(email: str, name: str, fresh_server: FreshServer) -> None:
    """Without a name, set-up names the account after the domain of its owner, or after the owner."""
    server = fresh_server(start=False, set_up=False)
    server.cli("setup", "--email", email, stdin=PASSWORD + "\n")
    server.key = server.new_key()
    assert server.start().client().get("/account").expect(200)["name"] == name


def test_user_key_and_account_commands(server: Server) -> None:
    """They work beside a running service and print only the created id or key; invalid arguments fail."""
    second = server.cli("account", "add", "Second").stdout.strip()
    server.cli(
        "user", "add", "--email", "x@example.org", "--role", "viewer", "--account", second, stdin=PASSWORD + "\n"
    )
    key = server.cli("key", "create", "script", "--scope", "contacts:read", "--account", second)

    assert second.isdecimal()
    assert key.stdout.strip().startswith("camp_live_") and len(key.stdout.strip()) == len("camp_live_") + 36
    assert server.client(key.stdout.strip()).get("/contacts").status == 200
    for command, message in (
        (("user", "add", "--email", "x@example.org", "--account", second), "taken"),
        (("user", "add", "--email", "y@example.org", "--role", "king"), "role"),
        (("key", "create", "k", "--scope", "everything"), "Unknown scope"),
        (("key", "create", "k", "--account", "99"), "account"),
    ):
        assert message in server.cli(*command, stdin=PASSWORD + "\n", expect=1).stderr
    joined = server.cli("user", "add", "--email", "x@example.org", "--role", "viewer")
    assert joined.stdout == "x@example.org has a user already, who joins the account and keeps the password.\n"


def test_usage_errors_exit_with_2(fresh_server: FreshServer) -> None:
    """Invalid command lines exit with 2."""
    server = fresh_server(start=False, set_up=False)
    for command in (("dance",), ("setup",), ("key",), ("serve", "--nope")):
        server.cli(*command, expect=2)


def test_configuration_errors_prevent_the_start(fresh_server: FreshServer) -> None:
    """`check` and `serve` name each invalid setting and exit with 1."""
    server = fresh_server(start=False, set_up=False, config='listen = "nowhere"\n[email]\nconnections = 0\n')
    for command in ("check", "serve"):
        error = server.cli(command, expect=1).stderr
        assert "email.connections" in error and len(error.strip().splitlines()) == 1
    unknown = fresh_server(start=False, set_up=False, config="[email]\ntransprt = 1\n")
    assert "email.transprt" in unknown.cli("check", expect=1).stderr


def test_check_shows_where_each_setting_comes_from(fresh_server: FreshServer) -> None:
    """`check` shows each setting with its source and masks secrets."""
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


def test_version_and_openapi_commands(fresh_server: FreshServer) -> None:
    """`version --json` lists the components; `openapi` prints the document."""
    server = fresh_server(cold=True, start=False, set_up=False)
    version = json.loads(server.cli("version", "--json").stdout)

    assert tuple(map(int, version["components"]["sqlite"].split("."))) >= (3, 51, 3)
    assert server.cli("openapi").stdout.startswith("openapi: 3.1")


def test_the_test_clock_is_rejected_off_loopback(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The service does not start with a test clock and a public base URL."""
    env = {"CAMPANERO_TEST_CLOCK": str(tmp_path / "clock"), "CAMPANERO_BASE_URL": "https://mail.example.org"}
    server = fresh_server(start=False, set_up=False, env=env)

    assert "CAMPANERO_TEST_CLOCK" in server.cli("serve", expect=1).stderr


def test_a_newer_database_is_rejected(fresh_server: FreshServer) -> None:
    """A database with a newer schema version is not opened (P12)."""
    import apsw

    server = fresh_server(start=False)
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.execute("PRAGMA user_version = 999").fetchall()
    connection.close()

    assert "newer" in server.cli("serve", expect=1).stderr


def test_the_rate_limit(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """`email.rate_per_second` limits all connections together."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__RATE_PER_SECOND": "10"})
    path = send_campaign(server, 25)
    server.client().wait(path, lambda row: row["status"] == "completed")
    times = sorted(message.time for message in smtp_server.messages)

    assert len(times) == 25
    assert times[-1] - times[0] >= 2.0


def test_an_unusable_inbound_listener_prevents_the_start(fresh_server: FreshServer, tmp_path: Path) -> None:
    """With its port in use, or an invalid certificate, the service ends with the reason."""
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("no certificate")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        for settings, message in (
            ({"CAMPANERO_INBOUND__TLS_CERTIFICATE": str(rubbish)}, f"{rubbish} is not a certificate"),
            ({}, f"inbound.listen: {listen}"),
        ):
            env = {"CAMPANERO_INBOUND__LISTEN": listen, **settings}
            server = fresh_server(start=False, set_up=False, env=env)
            with pytest.raises(AssertionError, match="ended"):
                server.start()
            assert message in server.output and "Traceback" not in server.output


def test_a_signal_right_after_the_start(fresh_server: FreshServer) -> None:
    """A signal right after the ready line stops the service cleanly, each time."""
    server = fresh_server(relay=9)
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
        server.stop(sign=sign)
        server.start()


def test_requests_during_a_stop_get_503(
    fresh_server: FreshServer, smtp_server: SmtpServer
) -> None:  # fmt: skip
    """A request on an open connection gets a 503 with all error fields and Retry-After."""
    smtp_server.rules.delay("body", 3)
    server = fresh_server(relay=smtp_server.port)
    api = server.client(keep_alive=True)
    send_campaign(server, 4)
    api.wait("/messages", lambda rows: any(row["status"] == "sending" for row in rows))
    os.kill(server.pid, signal.SIGTERM)
    end = time.monotonic() + 10
    while (response := api.get("/lists")).status == 200 and time.monotonic() < end:
        pass
    error = response.expect(503)
    assert error["code"] == "unavailable" and error["hint"].endswith("#unavailable")
    assert (response.headers["Retry-After"], response.headers["X-Request-Id"]) == ("5", error["request_id"])
    server.stop()
