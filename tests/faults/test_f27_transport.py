"""The relay will not have us: a wrong password, a certificate that ran out, a name that leads nowhere."""

from pathlib import Path

from tests.conftest import FreshServer
from tests.faults.conftest import Figures
from tests.kit.books import balance
from tests.kit.certificates import expired, self_signed
from tests.kit.client import Client
from tests.kit.recipients import UNLIMITED, completed, crowd, send
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

SOON = {
    "CAMPANERO_EMAIL__PROBE_AFTER": "1s",
    "CAMPANERO_EMAIL__CONNECT_TIMEOUT": "2s",
    "CAMPANERO_EMAIL__COMMAND_TIMEOUT": "2s",
}
RELAY = "CAMPANERO_EMAIL__RELAY__"


def paused_for_us(api: Client, path: str) -> str:
    """Wait until the campaign is paused for its transport, check that nobody is blamed, and return the words."""
    row = api.wait(path, lambda row: row["status"] == "paused", timeout=60)
    assert row["pause_reason"] == "transport"
    assert (row["stats"]["pending"], row["stats"]["failed"]) == (row["stats"]["audience"], 0)
    assert {one["attempts"] for one in api.all("/messages", campaign_id=row["id"])} == {0}
    return str(row["data"]["pause_detail"])


def goes_on(server: Server, path: str, sink: SmtpServer, figures: Figures, refused: int) -> None:
    """Resume by hand, and check that everybody gets their mail, once."""
    api = server.client()
    api.post(f"{path}/resume").expect(200)
    completed(api, path)
    books = balance(api, path, sink.messages)
    figures.books(books, refusals=refused)
    assert (books.accepted, books.copies, books.missing) == (60, 0, 0)


def test_a_wrong_password_pauses_and_blames_nobody(fresh_server: FreshServer, figures: Figures) -> None:
    """Twenty refused logins pause the campaign; with the right password a person lets it go on."""
    with SmtpServer(users={"ana": "right"}) as sink:
        env = UNLIMITED | SOON | {f"{RELAY}USERNAME": "ana", f"{RELAY}PASSWORD": "wrong"}
        server = fresh_server(relay=sink.port, env=env)
        path = send(server.client(), crowd(server.client(), 60))
        words = paused_for_us(server.client(), path)
        refused = len(sink.phases("auth"))
        server.stop()
        server.env[f"{RELAY}PASSWORD"] = "right"
        server.start()
        goes_on(server, path, sink, figures, refused)

        assert "535" in words and "wrong" not in words
        assert 20 <= refused <= 24


def test_a_certificate_that_ran_out_pauses_and_sends_nothing(
    fresh_server: FreshServer, tmp_path: Path, figures: Figures
) -> None:
    """Neither password nor message is said to a server whose certificate is over; renewed, a person lets it go on."""
    good, trusted = self_signed(), tmp_path / "trusted.pem"
    old = expired(good)
    trusted.write_bytes(old.certificate)
    env = UNLIMITED | SOON | {f"{RELAY}TLS": "starttls", f"{RELAY}USERNAME": "ana", f"{RELAY}PASSWORD": "right",
                              "SSL_CERT_FILE": str(trusted)}  # fmt: skip
    with SmtpServer(starttls=True, certificate=old, users={"ana": "right"}) as sink:
        server = fresh_server(relay=sink.port, env=env)
        path = send(server.client(), crowd(server.client(), 60))
        words = paused_for_us(server.client(), path)
        refused = len(sink.phases("starttls"))
        assert not sink.phases("auth") and not sink.phases("mail")
        port = sink.port
    trusted.write_bytes(good.certificate)
    with SmtpServer(port=port, starttls=True, certificate=good, users={"ana": "right"}) as sink:
        goes_on(server, path, sink, figures, refused)

        assert "expired" in words
        assert all(message.tls and message.user == "ana" for message in sink.messages)


def test_a_name_that_leads_nowhere_is_probed(
    fresh_server: FreshServer, smtp_server: SmtpServer, figures: Figures
) -> None:
    """A relay that cannot be found costs nobody an attempt and pauses nothing; found, all goes by itself."""
    env = UNLIMITED | SOON | {f"{RELAY}HOST": "relay.nowhere.invalid"}
    server = fresh_server(relay=smtp_server.port, env=env)
    api = server.client()
    path = send(api, crowd(api, 60))
    api.wait("/messages", lambda rows: any(row["error"] for row in rows), limit=100)
    row = api.get(path).expect(200)
    assert (row["status"], row["stats"]["pending"]) == ("active", 60)
    server.stop()
    server.env[f"{RELAY}HOST"] = "127.0.0.1"
    api = server.start().client()
    completed(api, path)
    figures.books(balance(api, path, smtp_server.messages))

    assert {one["attempts"] for one in api.all("/messages")} == {1}
