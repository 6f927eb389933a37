"""A fake SMS provider in the configuration of this process, and helpers that call it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.core import clock, crypto
from appliance.core.errors import DeliveryError
from appliance.sending.delivery import http_client
from appliance.sending.sms.providers import PROVIDERS
from appliance.sending.sms.segments import OutgoingSms
from appliance.settings import config
from tests.kit.fake_sms import NUMBER, SECRET, SID, TOKEN, FakeSms

TWILIO, HTTP = PROVIDERS["twilio"], PROVIDERS["http"]
TO = "+15551230001"


@pytest.fixture
def fake(shared_fake_sms: FakeSms, tmp_path: Path) -> Iterator[FakeSms]:
    """Yield the provider of the module, reset to accept everything and set in the configuration of this process."""
    shared_fake_sms.clear_rules()
    crypto.create_key(tmp_path)
    configure_sms(shared_fake_sms)
    yield shared_fake_sms
    config._current, crypto._key = None, b""
    clock.use_offset_file(None)


def configure_sms(fake: FakeSms, **more: Any) -> None:
    """Configure this process to send SMS through the fake provider."""
    options = {
        "sms.transport": "twilio", "sms.twilio.base_url": fake.url, "sms.twilio.account_sid": SID,
        "sms.twilio.auth_token": TOKEN, "sms.http.url": f"{fake.url}/send", "sms.http.secret": SECRET,
    }  # fmt: skip
    config.set_current(
        config.load(options | {name.replace("__", "."): value for name, value in more.items()}, {}).config
    )


def build_sms(number: int = 1, body: str = "Hello €", to: str = TO, sender: str = NUMBER) -> OutgoingSms:
    """Return an outgoing SMS."""
    return OutgoingSms(number, to, sender, body, f"http://127.0.0.1:8080/hooks?m={number}")


def run_calls(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Await the calls in turn over the same connections, and return each result or the DeliveryError raised."""

    async def all_of_them() -> list[Any]:
        results: list[Any] = []
        for call in calls:
            try:
                results.append(await call())
            except DeliveryError as error:
                results.append(error)
        await http_client.close_connections()
        return results

    return asyncio.run(all_of_them())


def send_all(*texts: OutgoingSms, by: Any = TWILIO) -> list[Any]:
    """Send the messages in turn through a provider."""
    return run_calls(*(lambda sms=sms: by.send(sms) for sms in texts))
