"""Fixture for the tests of SMS: a server that sends through the test kit's SMS provider and accepts its webhooks."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import SECRET, FakeSms, Sms
from tests.kit.server import Server


class World:
    """A server, its SMS provider, and contacts with phone numbers."""

    def __init__(self, server: Server, api: Client, sms: FakeSms, clock: TestClock) -> None:
        self.server, self.api, self.sms, self.clock = server, api, sms, clock
        self._numbers = itertools.count(1)

    def number(self) -> str:
        """Create a contact with a new phone number and return the number."""
        number = f"+1555010{next(self._numbers):04}"
        self.api.post("/contacts", {"phone": number}).expect(201)
        return number

    def send_sms(self, number: str | None = None, **body: Any) -> tuple[Any, Sms]:
        """Send an SMS and return it once its status is `sent`, with the message that the provider accepted."""
        number = number or self.number()
        message = self.api.post("/messages", {"channel": "sms", "to": number, "body": "Hello", **body}).expect(201)
        row = self.api.wait(f"/messages/{message['id']}", lambda row: row["status"] == "sent")
        [taken] = [message for message in self.sms.to(number) if message.sid == row["provider_id"]]
        return row, taken

    def state(self, message: Any) -> tuple[str, list[str], str | None, bool]:
        """Return status and feedback events of a message, suppression and subscription of its recipient."""
        now = self.api.get(f"/messages/{message['id']}").expect(200)
        channel = self.api.get(f"/contacts/{message['contact_id']}").expect(200)["channels"][0]
        events = sorted(event["event"] for event in now["events"] if event["event"] != "sms_sent")
        return now["status"], events, channel["suppression_reason"], channel["subscribed"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield one server for the module."""
    directory = tmp_path_factory.mktemp("sms")
    clock = TestClock(directory / "clock")
    with FakeSms(directory, clock) as sms:
        environment = {
            **sms.env, "CAMPANERO_SMS__HTTP__SECRET": SECRET, "CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1",
            "CAMPANERO_SMS__PROBE_AFTER": "1s",
        }  # fmt: skip
        with Server(env=environment, clock=clock).set_up() as server:
            yield World(server, server.client(), sms, clock)
            server.stop()
