"""Direct delivery beside a relay: what it cannot deliver now, the relay takes."""

import json
import time
from typing import Any

from tests.direct.conftest import StartDirect, post
from tests.kit import exposition
from tests.kit.mail_network import MailNetwork
from tests.kit.server import Server, relay_settings
from tests.kit.smtp import SmtpServer

DIRECT = {"key": "direct", "name": "Direct", "kind": "direct"}


def start_beside_relay(direct: StartDirect, relay: SmtpServer, **settings: Any) -> Server:
    """Start a service that delivers directly first, and with a relay what that cannot take."""
    several = {
        "CAMPANERO_EMAIL__TRANSPORTS": json.dumps([DIRECT]),
        "CAMPANERO_EMAIL__ROUTES": json.dumps([{"shares": {"direct": 1, "default": 0}}]),
    }
    return direct(env=relay_settings(relay.port) | several, **settings)


def test_a_throttled_operator_is_relieved_for_all_its_domains(
    direct: StartDirect, world: MailNetwork, smtp_server: SmtpServer
) -> None:
    """While the servers of several domains ask for a lower rate, the relay takes the email to each of them."""
    mx = world.mail("mx.host.example", "one.example", "two.example")
    well = world.mail("mx.well.example", "well.example")
    mx.rules.reject("rcpt", code=421, text="4.7.28 too many messages")
    api = start_beside_relay(direct, smtp_server, slow_down="60s").client()
    addresses = [f"{name}@{domain}" for name in ("ana", "bo") for domain in ("one.example", "two.example")]
    rows = [api.wait(post(api, address), lambda row: row["status"] == "sent", 30) for address in addresses]
    other = api.wait(post(api, "cy@well.example"), lambda row: row["status"] == "sent", 30)

    assert [(row["provider"], row["attempts"]) for row in rows] == [("relay", 1)] * 4
    assert [message.to for message in smtp_server.messages] == addresses
    assert other["provider"] == "direct" and len(well.messages) == 1


def test_messages_to_slow_servers_are_not_put_off_in_a_loop(
    direct: StartDirect, world: MailNetwork, smtp_server: SmtpServer
) -> None:
    """Direct delivery is not closed for servers that reply slowly, so messages that are too many for them wait.

    Otherwise each would be chosen for it, connected, claimed and put off again without a delay.
    """
    domains = [f"slow{number}.example" for number in range(8)]
    for domain in domains:
        world.mail(f"mx.{domain}", domain).rules.delay("mail", 300)
    server = start_beside_relay(direct, smtp_server, connections="2", command_timeout="5s", retry_after="300")
    api = server.client()
    for number in range(4):
        for domain in domains:
            post(api, f"p{number}@{domain}")
    # A transaction is slow after a tenth of the timeout
    time.sleep(7)
    samples = exposition.parse(api.get("/metrics").text)
    # Each of the 32 messages is put off for a minute, or deferred for five: 36 times in all, and 194 times in a loop
    assert samples["campanero_sends_total"].value(result="deferred") < 64
    server.kill()
