"""The way out of SMS: whether its provider accepts us, and can call us."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from appliance.core.errors import DeliveryError
from appliance.ops.doctor.findings import Line
from appliance.sending.sms.providers import PROVIDERS
from appliance.sending.sms.providers.kind import Provider
from appliance.settings import config

_ANSWER_SECONDS = 15
_ANY_MESSAGE = 1


def way_out(_: Path) -> Iterator[Line]:
    """Check that SMS can leave, and that what becomes of them and what people write can come in."""
    name = config.current().sms.transport
    if name == "capture":
        yield Line("ok", "SMS way out", "capture: what is sent stays in the built-in inbox")
        return
    provider = PROVIDERS[name]
    try:
        words = asyncio.run(asyncio.wait_for(provider.greet(), _ANSWER_SECONDS))
    except (DeliveryError, TimeoutError) as error:
        yield Line("fail", "SMS way out", f"{name}: {error or 'no answer'}")
    else:
        yield Line("ok", "SMS way out", f"{name}: {words}")
    for words in provider.advice():
        yield Line("warn", "SMS way out", words)
    yield _way_in(provider)


def _way_in(provider: Provider) -> Line:
    base = config.base_url(config.current())
    door = f"{base}/hooks/{provider.hooks[-1]}"
    if not provider.callback_url(_ANY_MESSAGE):
        words = f"the provider cannot call {base}: nobody hears what becomes of SMS, nor of a STOP"
        return Line("warn", "SMS way in", words, 'base_url = "https://mail.example.com"')
    return Line("ok", "SMS way in", f"have the provider send what people write to {door}")
