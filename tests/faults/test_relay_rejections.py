"""A relay that rejects us: a wrong password, an expired certificate, a host name that does not resolve."""

from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.faults.conftest import Figures
from tests.kit.certificates import expired, self_signed
from tests.kit.client import Client
from tests.kit.recipients import NO_RATE_LIMITS, create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

SHORT_TIMEOUTS = {
    "CAMPANERO_EMAIL__PROBE_AFTER": "1s",
    "CAMPANERO_EMAIL__CONNECT_TIMEOUT": "2s",
    "CAMPANERO_EMAIL__COMMAND_TIMEOUT": "2s",
}
RELAY = "CAMPANERO_EMAIL__RELAY__"


def wait_for_transport_pause(api: Client, path: str) -> str:
    """Wait until the campaign is paused for its transport, check that no attempt is counted, and return the reason."""
    row = api.wait(path, lambda row: row["status"] == "paused", timeout=60)
    assert row["pause_reason"] == "transport"
    assert (row["stats"]["pending"], row["stats"]["failed"]) == (row["stats"]["audience"], 0)
    assert {message["attempts"] for message in api.all("/messages", campaign_id=row["id"])} == {0}
    return str(row["data"]["pause_detail"])


def check_resume(server: Server, path: str, sink: SmtpServer, figures: Figures, refusals: int) -> None:
    """Resume the campaign and check that each recipient gets the mail once."""
    api = server.client()
    api.post(f"{path}/resume").expect(200)
    wait_until_completed(api, path)
    books = reconcile(api, path, sink.messages)
    figures.books(books, refusals=refusals)
    assert (books.accepted, books.copies, books.missing) == (60, 0, 0)


def test_a_wrong_relay_password_pauses_the_campaign(fresh_server: FreshServer, figures: Figures) -> None:
    """About twenty failed logins pause the campaign; with the right password it can be resumed."""
    with SmtpServer(users={"ana": "right"}) as sink:
        env = NO_RATE_LIMITS | SHORT_TIMEOUTS | {f"{RELAY}USERNAME": "ana", f"{RELAY}PASSWORD": "wrong"}
        server = fresh_server(relay=sink.port, env=env)
        path = send_campaign(server.client(), create_list(server.client(), 60))
        reason = wait_for_transport_pause(server.client(), path)
        logins = len(sink.phases("auth"))
        server.stop()
        server.env[f"{RELAY}PASSWORD"] = "right"
        server.start()
        check_resume(server, path, sink, figures, logins)

        assert "535" in reason and "wrong" not in reason
        assert 20 <= logins <= 24


@pytest.mark.full
def test_an_expired_relay_certificate_pauses_the_campaign(
    fresh_server: FreshServer, tmp_path: Path, figures: Figures
) -> None:
    """Neither password nor message goes to a server with an expired certificate; after a renewal it can be resumed."""
    valid_pair, trusted = self_signed(), tmp_path / "trusted.pem"
    expired_pair = expired(valid_pair)
    trusted.write_bytes(expired_pair.certificate)
    login = {f"{RELAY}USERNAME": "ana", f"{RELAY}PASSWORD": "right"}
    env = NO_RATE_LIMITS | SHORT_TIMEOUTS | login | {f"{RELAY}TLS": "starttls", "SSL_CERT_FILE": str(trusted)}
    with SmtpServer(starttls=True, certificate=expired_pair, users={"ana": "right"}) as sink:
        server = fresh_server(relay=sink.port, env=env)
        path = send_campaign(server.client(), create_list(server.client(), 60))
        reason = wait_for_transport_pause(server.client(), path)
        handshakes = len(sink.phases("starttls"))
        assert not sink.phases("auth") and not sink.phases("mail")
        port = sink.port
    trusted.write_bytes(valid_pair.certificate)
    with SmtpServer(port=port, starttls=True, certificate=valid_pair, users={"ana": "right"}) as sink:
        check_resume(server, path, sink, figures, handshakes)

        assert "expired" in reason
        assert all(message.tls and message.user == "ana" for message in sink.messages)


def test_an_unresolvable_relay_is_probed(fresh_server: FreshServer, smtp_server: SmtpServer, figures: Figures) -> None:
    """A relay host that does not resolve counts no attempt and pauses nothing; once it resolves, sending resumes."""
    env = NO_RATE_LIMITS | SHORT_TIMEOUTS | {f"{RELAY}HOST": "relay.nowhere.invalid"}
    server = fresh_server(relay=smtp_server.port, env=env)
    api = server.client()
    path = send_campaign(api, create_list(api, 60))
    api.wait("/messages", lambda rows: any(row["error"] for row in rows), limit=100)
    row = api.get(path).expect(200)
    assert (row["status"], row["stats"]["pending"]) == ("active", 60)
    server.stop()
    server.env[f"{RELAY}HOST"] = "127.0.0.1"
    api = server.start().client()
    wait_until_completed(api, path)
    figures.books(reconcile(api, path, smtp_server.messages))

    assert {message["attempts"] for message in api.all("/messages")} == {1}
