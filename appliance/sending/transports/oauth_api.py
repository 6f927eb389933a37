"""The base class of the HTTP APIs of mailboxes, which take access tokens, and send to the addresses in a header."""

from collections.abc import Callable
from typing import ClassVar

from appliance.core.errors import Deferred, Uncertain
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.delivery.oauth import tokens
from appliance.sending.transports.base import OutgoingEmail, Transport
from appliance.settings.config import parse_seconds
from appliance.settings.schema import Email

_UNAUTHORIZED = 401
_SIGNATURE = b"dkim-signature"


class OAuthApi(Transport):
    """An HTTP API that is called with an access token; its name is that of a provider in `sending/delivery/oauth`.

    `build_request` and `build_check` leave the access token out, because only `send` and `check` may ask for one.
    """

    name: ClassVar[str]

    async def send(self, email: OutgoingEmail, check: Callable[[], None], settings: Email) -> str:
        """Send an email with an access token; if the token is rejected, repeat the request once with a new one.

        A response of 401 accepts nothing (RFC 9110, section 15.5.2). Raises also the errors of `get_access_token`.
        """
        request = self.prepare_request(email, settings)
        timeout = parse_seconds(settings.request_timeout)
        response = await http_client.fetch(await self._authorize(request, settings), timeout, check)
        if response.status == _UNAUTHORIZED:
            tokens.discard(self.name, "api", settings)
            response = await http_client.fetch(await self._authorize(request, settings), timeout, check)
        return self.parse_response(response, email)

    async def _authorize(self, request: HttpRequest, settings: Email, *, is_check: bool = False) -> HttpRequest:
        token = await tokens.get_access_token(self.name, "api", settings, is_check=is_check)
        return with_token(request, token)

    async def check(self, settings: Email) -> str:
        """Request a new access token, send the request of `build_check`, and return the sentence of `parse_check`.

        Raises DeliveryError.
        """
        timeout = parse_seconds(settings.request_timeout)
        try:
            request = await self._authorize(self.build_check(settings), settings, is_check=True)
            response: HttpResponse = await http_client.fetch(request, timeout)
        except Uncertain as error:
            raise Deferred(error.text) from None  # nothing was sent
        finally:
            await http_client.close_connections()
        return self.parse_check(response)


def with_token(request: HttpRequest, token: str) -> HttpRequest:
    """Return a request with an access token (RFC 6750, section 2.1)."""
    return request._replace(headers={**request.headers, "Authorization": f"Bearer {token}"})


def address_to_recipient(email: OutgoingEmail) -> bytes:
    """Return the bytes of an email for an API that sends to the addresses in its header.

    A message to one person, which is what almost all are, is returned as it is. In a copy for a recipient of `cc` or
    `bcc`, `To` names only this recipient and `Cc` is left out, because the others have messages of their own; our DKIM
    signature, which covers these fields, is left out too, as the provider signs.
    """
    content, recipient = email.envelope.content, email.envelope.rcpt_to
    head, separator, body = content.partition(b"\r\n\r\n")
    fields = _split_fields(head)
    recipients = [value for name, value in fields if name in (b"to", b"cc", b"bcc")]
    if len(recipients) == 1 and _names_only(recipients[0], recipient):
        return content
    remaining = [value for name, value in fields if name not in (b"to", b"cc", b"bcc", _SIGNATURE)]
    return b"\r\n".join([*remaining, f"To: {recipient}".encode()]) + separator + body


def _split_fields(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return (name in lower case, whole field) of each field of a header, folded lines included (RFC 5322, 2.2.3)."""
    fields: list[bytes] = []
    for line in head.split(b"\r\n"):
        if line[:1] in (b" ", b"\t") and fields:
            fields[-1] += b"\r\n" + line
        else:
            fields.append(line)
    return [(field.partition(b":")[0].strip().lower(), field) for field in fields]


def _names_only(field: bytes, recipient: str) -> bool:
    value = field.partition(b":")[2].replace(b"\r\n", b"").strip()
    return value in (recipient.encode(), f"<{recipient}>".encode()) or (
        value.endswith(f"<{recipient}>".encode()) and value.count(b"@") == recipient.count("@") and b"," not in value
    )
