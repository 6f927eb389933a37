"""Direct delivery beside a relay: what it cannot deliver now, the relay takes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.direct.conftest import StartDirect, post
from tests.kit.mail_network import MailNetwork
from tests.kit.server import Server, relay_settings
from tests.kit.smtp import SmtpServer

DIRECT = {"key": "direct", "name": "Direct", "kind": "direct"}


@pytest.fixture
def relay() -> Iterator[SmtpServer]:
    """A relay that takes all email."""
    with SmtpServer() as running:
        yield running


def start_beside_relay(direct: StartDirect, relay: SmtpServer, **settings: Any) -> Server:
    """Start a service that delivers directly first, and with a relay what that cannot take."""
    several = {
        "CAMPANERO_EMAIL__TRANSPORTS": json.dumps([DIRECT]),
        "CAMPANERO_EMAIL__ROUTES": json.dumps([{"shares": {"direct": 1, "default": 0}}]),
    }
    return direct(env=relay_settings(relay.port) | several, **settings)


def test_a_throttled_operator_is_relieved_for_all_its_domains(
    direct: StartDirect, world: MailNetwork, relay: SmtpServer
) -> None:
    """While the servers of several domains ask for a lower rate, the relay takes the email to each of them."""
    mx = world.mail("mx.host.example", "one.example", "two.example")
    well = world.mail("mx.well.example", "well.example")
    mx.rules.reject("rcpt", code=421, text="4.7.28 too many messages")
    api = start_beside_relay(direct, relay, slow_down="60s").client()
    addresses = [f"{name}@{domain}" for name in ("ana", "bo") for domain in ("one.example", "two.example")]
    rows = [api.wait(post(api, address), lambda row: row["status"] == "sent", 30) for address in addresses]
    other = api.wait(post(api, "cy@well.example"), lambda row: row["status"] == "sent", 30)

    assert [(row["provider"], row["attempts"]) for row in rows] == [("relay", 1)] * 4
    assert [message.to for message in relay.messages] == addresses
    assert other["provider"] == "direct" and len(well.messages) == 1
