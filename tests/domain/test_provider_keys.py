"""The forms in which a user may copy the public key of a provider that signs its webhooks."""

import asyncio
import json
import time

import pytest

from appliance.core.errors import NotAllowed
from appliance.inbound.providers import PROVIDERS
from appliance.inbound.providers.base import HookPayload, HookRequest
from tests.kit.email_providers import Postal, SendGrid


async def _fetch(url: str) -> bytes:
    raise AssertionError(url)


def _read(postal: Postal, key: str) -> HookPayload:
    body = json.dumps({"event": "MessageSent", "timestamp": time.time(), "payload": {}}).encode()
    headers = {"x-postal-signature-256": postal.sign(body)}
    return asyncio.run(PROVIDERS["postal"].read(HookRequest(headers, body), key, _fetch))


@pytest.mark.usefixtures("home")
def test_the_key_of_postal_may_be_pem_base64_or_a_key_set() -> None:
    """The key is accepted as PEM, as its base64 like in a DKIM record, and as the contents of jwks.json."""
    postal = Postal()
    for key in (postal.pem, "".join(postal.pem.splitlines()[1:-1]), postal.key_set, f"  {postal.key_set}\n"):
        assert _read(postal, key) == HookPayload()


@pytest.mark.usefixtures("home")
def test_no_other_key_of_postal_is_accepted() -> None:
    """The key of another server, a key of another kind and nonsense are rejected."""
    postal, other = Postal(), Postal()
    elliptic = SendGrid().verification_key
    for key in (other.pem, other.key_set, elliptic, "nonsense", "{", '{"keys": []}', '{"keys": [{"kty": "RSA"}]}',
                '{"keys": [{"kty": "RSA", "n": "AQ", "e": "AQ"}]}'):  # fmt: skip
        with pytest.raises(NotAllowed):
            _read(postal, key)
