"""A provider of the kit in the settings of this process, and short words for asking it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.core import clock, crypto
from appliance.core.errors import DeliveryError
from appliance.sending.sms.providers import PROVIDERS, base
from appliance.sending.sms.segments import OutgoingSms
from appliance.settings import config
from tests.kit.fake_sms import NUMBER, SECRET, SID, TOKEN, FakeSms

TWILIO, HTTP = PROVIDERS["twilio"], PROVIDERS["http"]
TO = "+15551230001"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeSms]:
    """One provider for the module; each test begins with one that behaves well."""
    with FakeSms(tmp_path_factory.mktemp("sms")) as running:
        yield running


@pytest.fixture
def fake(provider: FakeSms, tmp_path: Path) -> Iterator[FakeSms]:
    """The provider, in the settings of this process."""
    provider.behave()
    crypto.create_key(tmp_path)
    use(provider)
    yield provider
    config._current, crypto._key = None, b""
    clock.use_offset_file(None)


def use(fake: FakeSms, **more: Any) -> None:
    """Set this process up to send through it."""
    options = {
        "sms.transport": "twilio", "sms.twilio.base_url": fake.url, "sms.twilio.account_sid": SID,
        "sms.twilio.auth_token": TOKEN, "sms.http.url": f"{fake.url}/send", "sms.http.secret": SECRET,
    }  # fmt: skip
    config.set_current(
        config.load(options | {name.replace("__", "."): value for name, value in more.items()}, {}).config
    )


def text(number: int = 1, body: str = "Hello €", to: str = TO, sender: str = NUMBER) -> OutgoingSms:
    """Write an SMS."""
    return OutgoingSms(number, to, sender, body, f"http://127.0.0.1:8080/hooks?m={number}")


def run(*asked: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Ask one after the other over the same connections; answer what came or was raised."""

    async def all_of_them() -> list[Any]:
        found: list[Any] = []
        for one in asked:
            try:
                found.append(await one())
            except DeliveryError as error:
                found.append(error)
        await base.close_connections()
        return found

    return asyncio.run(all_of_them())


def sent(*texts: OutgoingSms, by: Any = TWILIO) -> list[Any]:
    """Hand over, one after the other."""
    return run(*(lambda one=one: by.send(one) for one in texts))
