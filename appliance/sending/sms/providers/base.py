"""The interface of SMS providers, and the functions that they share."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from appliance.core import clock, crypto
from appliance.core.errors import LookupUnsupported, NotAllowed, NotFound
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.sms.error_codes import HookContents, HookRequest
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.settings import config
from appliance.settings.config import parse_seconds
from appliance.settings.schema import Sms

T = TypeVar("T")

# The statuses of providers as our statuses (`error_codes.STATUSES`). All that come before delivery mean only that the
# provider accepted the SMS.
STATUS_OF_PROVIDER = {
    "accepted": "sent", "scheduled": "sent", "queued": "sent", "sending": "sent", "sent": "sent",
    "delivered": "delivered", "read": "delivered", "undelivered": "undelivered", "bounced": "undelivered",
    "failed": "failed", "canceled": "failed", "cancelled": "failed", "rejected": "failed", "expired": "undelivered",
}  # fmt: skip
_PURPOSE = "sms receipt"
_MAX_BODY_CHARACTERS = 20_000


async def fetch(
    method: str, url: str, headers: Mapping[str, str], content: bytes = b"",
    before_write: Callable[[], None] | None = None,
) -> HttpResponse:  # fmt: skip
    """Send one request within `sms.request_timeout`, and return the response (`http_client.fetch`)."""
    limit = parse_seconds(config.current().sms.request_timeout)
    return await http_client.fetch(HttpRequest(method, url, headers, content), limit, before_write)


def invalid_signature() -> NotAllowed:
    """Return the error to raise for a webhook request without a valid signature, whatever is wrong with it."""
    return NotAllowed("the signature of this request is missing, wrong or too old")


def clean_body(body: str) -> str:
    """Return the text of an incoming SMS without control characters, truncated to `_MAX_BODY_CHARACTERS`.

    Line breaks are kept.
    """
    return http_client.CONTROL_CHARACTERS.sub("", body)[:_MAX_BODY_CHARACTERS]


def decode_hook(body: bytes, type_: type[T]) -> T:
    """Decode the JSON of a webhook request into `type_`. Raises ValueError if that fails.

    Incomplete characters are replaced, because a text may have been cut in the middle of an emoji. Otherwise the
    request would be rejected, and an opt-out in it lost.
    """
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        repaired = json.dumps(json.loads(body.decode("utf-8", "replace")), ensure_ascii=False)
        return msgspec.json.decode(repaired.encode("utf-8", "replace"), type=type_)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def build_callback_url(path: str, message_id: int, provider_url: str) -> str:
    """Return our URL with the path `path`, to which the provider sends receipts of a message.

    The result is an empty string if `provider_url` is public and our `base_url` is not, because the provider could not
    reach us.
    """
    base = config.base_url(config.current())
    if not http_client.is_public_url(base) and http_client.is_public_url(provider_url):
        return ""
    return f"{base}{path}?m={crypto.sign_token(_PURPOSE, message_id)}"


def message_id_of_url(url: str) -> int | None:
    """Return the message id in a URL of `build_callback_url`, or None if it contains no valid token."""
    tokens = parse_qs(urlsplit(url).query).get("m", [""])
    return crypto.read_token(_PURPOSE, tokens[0])


def signing_time() -> float:
    """Return the time that signatures contain and are checked against, in seconds since 1970 UTC."""
    return clock.now()


# The interface of a provider.


class Provider(ABC):
    """The interface of an SMS provider. Implementations have no state and are registered in `PROVIDERS`."""

    name: ClassVar[str]
    can_look_up: ClassVar[bool] = False  # whether `find_accepted` works
    is_idempotent: ClassVar[bool] = False  # whether a message that is sent repeatedly is accepted only once
    chooses_sender: ClassVar[bool] = False  # whether it chooses a sender for a message without one
    hooks: ClassVar[tuple[str, ...]] = ()  # the paths of its webhooks under /hooks/, such as "twilio/status"

    @abstractmethod
    def find_setting_faults(self, sms: Sms | None = None) -> list[tuple[str, str]]:
        """Return (setting, fault) of each missing or invalid setting of this provider.

        `sms` are the settings to check, by default the current ones.
        """

    @abstractmethod
    async def send(self, text: OutgoingSms) -> AcceptedSms:
        """Send an SMS in one attempt; return the id that the provider gave it, and its first status.

        Calls `text.check` right before anything of the request is written. Raises RecipientRejected, ClientRejected
        (login), SenderRejected (sender, registration), RateLimited (with the seconds to wait), Deferred,
        ConnectionFailed (nothing of the request was written), or Uncertain (the SMS may have been accepted). In these
        errors, `enhanced` is the equivalent status code of RFC 3463 or None, `smtp` is the HTTP status, and the text
        begins with the provider's error code if there is one.
        """

    async def find_accepted(self, text: OutgoingSms, since: int) -> tuple[AcceptedSms, ...]:
        """Return the SMS that the provider accepted at `since` or later with the recipient, sender and body of `text`.

        They are in order of acceptance; `retries.settle_lookup` decides whether one of them is this message. `since` is
        in milliseconds since 1970 UTC. Raises LookupUnsupported if the provider lists no messages, or another
        DeliveryError if the lookup fails now.
        """
        raise LookupUnsupported("it lists no messages")

    async def check_login(self) -> str:
        """Check the login without sending an SMS, and return the result as a predicate, such as `accepts the login`.

        Raises DeliveryError if the login is rejected or the provider cannot be reached.
        """
        return "needs no login"

    def list_warnings(self) -> list[str]:
        """Return warnings about current settings that are valid but not recommended, by default none."""
        return []

    def get_webhook_secret(self) -> str:
        """Return the secret with which webhook requests are signed; if it is empty, the webhooks respond with 404."""
        return ""

    def parse_hook(self, hook: str, received: HookRequest) -> HookContents:
        """Verify and parse a request to the webhook with the path `hook` (one of `hooks`).

        Raises NotAllowed if the signature is invalid or too old, Invalid if the content is invalid, and NotFound if the
        provider has no webhooks.
        """
        raise NotFound

    def build_callback_url(self, message_id: int) -> str:
        """Return the URL where the provider posts receipts of a message, or an empty string if it sends none."""
        return ""
