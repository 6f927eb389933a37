"""Messages that were queued for direct delivery are delivered directly, also after another transport was chosen."""

import json
from collections import Counter

from tests.direct.conftest import StartDirect, post, send_to
from tests.kit.clock import TestClock
from tests.kit.mail_network import MailNetwork
from tests.kit.recipients import wait_until_completed
from tests.kit.server import relay_settings
from tests.kit.smtp import SmtpServer


def test_after_a_change_of_transport_each_server_gets_only_its_own(direct: StartDirect, world: MailNetwork) -> None:
    """A server never gets the envelope of a message to another server, and all arrive, also where TLS fails."""
    servers = {name: world.mail(f"mx.{name}", name) for name in ("one.example", "two.example", "three.example")}
    servers["clear.example"] = world.mail("mx.clear.example", "clear.example", starttls=True)
    servers["clear.example"].rules.reply_raw("starttls", b"220 go\r\n250 nonsense instead of a handshake\r\n")
    server = direct()
    api = server.client()
    stop_file = server.data / "STOP"
    stop_file.touch()
    addresses = [f"p{number}@{name}" for number in range(20) for name in servers]
    path = send_to(api, *addresses)
    server.stop()
    server.env["CAMPANERO_EMAIL__TRANSPORT"] = "capture"
    stop_file.unlink()
    server.start()
    campaign = wait_until_completed(api, path)
    received = Counter(message.to for smtp in servers.values() for message in smtp.messages)

    assert campaign["stats"]["sent"] == len(addresses) and received == Counter(addresses)
    for name, smtp in servers.items():
        assert [entry.line for entry in smtp.phases("rcpt") if not entry.line.endswith(f"@{name}>")] == []


def test_the_warm_up_goes_on_after_a_change_of_transport(
    direct: StartDirect, world: MailNetwork, clock: TestClock
) -> None:
    """Messages that are still delivered directly keep to the quota of the day."""
    mx = world.mail("mx.people.example", "people.example")
    clock.advance(86_400 - (clock.now() + 43_200) % 86_400)  # noon, so that midnight does not come during the test
    server = direct(clock=clock, direct__warm_up="true")
    api = server.client()
    stop_file = server.data / "STOP"
    stop_file.touch()
    path = send_to(api, *[f"p{number}@people.example" for number in range(60)])
    server.stop()
    server.env["CAMPANERO_EMAIL__TRANSPORT"] = "capture"
    stop_file.unlink()
    server.start()
    mx.wait_for(50)
    campaign = api.wait(path, lambda row: row["stats"]["sent"] == 50)

    assert campaign["waiting"]["reason"] == "warm_up" and len(mx.messages) == 50


def test_messages_of_a_deleted_direct_transport_go_to_the_default_one(direct: StartDirect, world: MailNetwork) -> None:
    """What direct delivery as a further transport could not deliver yet leaves with the default relay afterwards."""
    mx = world.mail("mx.people.example", "people.example")
    mx.rules.reject("rcpt", code=450, text="4.2.0 try again later")
    with SmtpServer() as relay:
        further = [{"key": "direct", "name": "Direct", "kind": "direct"}]
        several = {
            "CAMPANERO_EMAIL__TRANSPORTS": json.dumps(further),
            "CAMPANERO_EMAIL__ROUTES": json.dumps([{"shares": {"direct": 1}}]),
        }
        server = direct(env=relay_settings(relay.port) | several, retry_after="2")
        path = post(server.client(), "bo@people.example")
        server.client().wait(path, lambda row: row["attempts"] == 1)
        assert not relay.messages
        server.stop()
        for name in several:
            del server.env[name]
        server.start()
        row = server.client().wait(path, lambda row: row["status"] == "sent")
        assert row["provider"] == "relay" and [message.to for message in relay.messages] == ["bo@people.example"]
