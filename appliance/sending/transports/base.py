"""The interface of the transports that send email over a provider's HTTP API, and the errors that they share.

A transport only builds requests and reads responses. `HttpWorker` claims a message before its request is
written, and `delivery/http_client.py` says whether a failed request may have been accepted.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from appliance.core.errors import (
    ClientRejected,
    Deferred,
    DeliveryError,
    RateLimited,
    RecipientRejected,
    Uncertain,
)
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.delivery.smtp_client import Envelope
from appliance.settings.config import parse_seconds
from appliance.settings.schema import Email

log = logging.getLogger("campanero.transport")
# Enhanced codes (RFC 3463) by which `bounce_classes` classifies a rejection. A provider suppresses an address after a
# hard bounce or a complaint, and we do so after its second rejection.
INVALID_ADDRESS, SUPPRESSED_BY_PROVIDER, TOO_LARGE, CONTENT = "5.1.3", "5.2.1", "5.3.4", "5.6.0"
# A rejection for a reason that is not the recipient, so it never counts against the address.
_OTHER_REASON = "5.3.5"
# The delay of the next attempt if the quota of the provider is used up, and it does not say until when.
QUOTA_SECONDS = 600.0


class SettingField(NamedTuple):
    """A setting of a transport on the page *Settings, Sending*, without the prefix of its section.

    `label`, `help` and the labels of `choices` (value, label) are marked with `gettext_noop`. Whether the setting is a
    secret or required is declared in `settings/schema.py`.
    """

    name: str
    label: str
    help: str = ""
    placeholder: str = ""
    choices: tuple[tuple[str, str], ...] = ()


class OutgoingEmail(NamedTuple):
    """An email with its envelope, whose bytes are those that SMTP would send, and its Message-ID without brackets."""

    envelope: Envelope
    message_id: str
    is_marketing: bool


class Transport(ABC):
    """An HTTP API that sends email. Implementations have no state and are registered in `TRANSPORTS`.

    Their settings are the section `email.NAME`. `label` is the provider's name, and `fields` are its settings on pages.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    fields: ClassVar[tuple[SettingField, ...]]
    # For how long a repeated request sends a message only once.
    idempotent_seconds: ClassVar[float] = 0

    @abstractmethod
    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return the request that sends an email; repeated calls return the same content."""

    @abstractmethod
    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the provider's id of an accepted email.

        Raises RecipientRejected, SenderRejected (From address or domain), ClientRejected (key, account, URL),
        RateLimited, Deferred (certainly not accepted), or Uncertain (it may have been accepted).
        """

    @abstractmethod
    def build_check(self, settings: Email) -> HttpRequest:
        """Return a request that shows whether the key is accepted, without sending anything."""

    @abstractmethod
    def parse_check(self, response: HttpResponse) -> str:
        """Return what the response to `build_check` says about the account, as a translated sentence.

        Raises DeliveryError if the key is not accepted.
        """

    def prepare_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return the request of `build_request`. Raises RecipientRejected if the email cannot be written as a request.

        Nothing was sent then, and the same bytes would fail again.
        """
        try:
            return self.build_request(email, settings)
        except DeliveryError:
            raise
        except Exception as error:
            log.exception("%s: no request could be built of the email %s", self.name, email.message_id)
            words = str(error) if isinstance(error, ValueError) else type(error).__name__
            raise RecipientRejected(f"the request cannot be built: {words}", enhanced=CONTENT) from None

    async def send(self, email: OutgoingEmail, check: Callable[[], None], settings: Email) -> str:
        """Send an email in one attempt with the settings of a transport, and return the provider's id of it.

        Calls `check` right before anything of the request is written. Raises the errors of `parse_response` and
        `prepare_request`, or ConnectionFailed if nothing of the request was written.
        """
        request = self.prepare_request(email, settings)
        response = await http_client.fetch(request, parse_seconds(settings.request_timeout), check)
        return self.parse_response(response, email)

    async def check(self, settings: Email) -> str:
        """Send the request of `build_check`, and return the sentence of `parse_check`. Raises DeliveryError."""
        try:
            request = self.build_check(settings)
            return self.parse_check(await http_client.fetch(request, parse_seconds(settings.request_timeout)))
        except Uncertain as error:
            # Nothing was sent, so it does not matter whether the request arrived.
            raise Deferred(error.text) from None
        finally:
            await http_client.close_connections()


def describe(response: HttpResponse, code: Any, text: Any) -> str:
    """Return code and text of a provider's error with the HTTP status, for the error text of a message."""
    words = http_client.clean_text(text) or http_client.excerpt(response)
    return " ".join(filter(None, (http_client.clean_text(code, 100), words, f"(HTTP {response.status})")))


def build_error(response: HttpResponse, code: Any = None, text: Any = None, min_wait: float = 0) -> DeliveryError:
    """Return the error of a response that does not accept a message, as far as its HTTP status decides it.

    `min_wait` is the least time in seconds to wait after a RateLimited error. A status of 500 or more is Deferred if
    the provider itself reports it as a JSON object, or if it is 503 (RFC 9110, 15.6.4). Otherwise, and always with 502
    and 504 (15.6.3, 15.6.5), a gateway reports it, which does not know whether the message was accepted.
    """
    status, words = response.status, describe(response, code, text)
    if status == 429:
        return RateLimited(words, max(http_client.parse_retry_after(response), min_wait))
    if status == 413:
        return RecipientRejected(words, enhanced=TOO_LARGE)
    if 200 <= status < 300:
        return Uncertain(words)
    if status >= 500:
        is_own = status == 503 or (status not in (502, 504) and bool(http_client.decode_response(response)))
        return Deferred(words) if is_own else Uncertain(words)
    if status in (408, 425):
        return Deferred(words)
    if status >= 400 and status not in (401, 402, 403, 404, 405, 407):
        return RecipientRejected(words, enhanced=_OTHER_REASON)
    return ClientRejected(words)


def reject(
    kind: type[DeliveryError], response: HttpResponse, code: Any, text: Any, enhanced: str | None = None
) -> DeliveryError:
    """Return an error of the class `kind` whose text is the provider's code and text with the HTTP status."""
    return kind(describe(response, code, text), enhanced=enhanced)


def require_id(response: HttpResponse, value: Any) -> str:
    """Return the provider's id of an accepted message. Raises Uncertain if the response has no valid one."""
    provider_id = http_client.parse_id(value)
    if provider_id is None:
        raise Uncertain(f"accepted, but the response has no valid message id: {describe(response, None, None)}")
    return provider_id


def join_url(base_url: str, default: str, path: str) -> str:
    """Return the URL of a path of the API at `base_url`, or at `default` if that is empty."""
    return f"{(base_url or default).rstrip('/')}{path}"


def json_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers with the content type of a JSON request."""
    return {"Content-Type": "application/json", **headers}
