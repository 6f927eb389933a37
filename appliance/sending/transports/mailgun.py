"""Send email over the API of Mailgun, which takes our MIME bytes.

Sources: Mailgun, "Messages: send an email in MIME format" and "API response codes"
(https://documentation.mailgun.com/docs/mailgun/api-reference/send/mailgun/messages,
https://documentation.mailgun.com/docs/mailgun/quickstart-guide/responses).
"""

import base64
import hashlib
import re
from typing import ClassVar
from urllib.parse import quote

from appliance.core.errors import ClientRejected, DeliveryError, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpRequest, HttpResponse
from appliance.sending.transports import base
from appliance.sending.transports.base import OutgoingEmail, SettingField, Transport
from appliance.settings.schema import Email

_SERVERS = {"us": "https://api.mailgun.net", "eu": "https://api.eu.mailgun.net"}
_INVALID_ADDRESS = re.compile(r"(?<!reply.)\bto\b.{0,80}not a valid address", re.IGNORECASE)
_SENDER = re.compile(r"\bfrom\b.{0,80}(?:not a valid address|missing)|sender.{0,80}not allowed", re.IGNORECASE)


class Mailgun(Transport):
    """The HTTP API of Mailgun."""

    name: ClassVar[str] = "mailgun"
    label: ClassVar[str] = "Mailgun"
    fields: ClassVar[tuple[SettingField, ...]] = (
        SettingField(
            "domain", gettext_noop("Domain"), gettext_noop("The domain as Mailgun lists it."), "mg.example.com"
        ),
        SettingField(
            "region", gettext_noop("Region"), choices=(("us", gettext_noop("US")), ("eu", gettext_noop("EU")))
        ),
        SettingField("api_key", gettext_noop("API key"), gettext_noop("An API key or a sending key of the domain.")),
    )

    def build_request(self, email: OutgoingEmail, settings: Email) -> HttpRequest:
        """Return a form with the recipient and the message; Mailgun must not rewrite links, which breaks DKIM."""
        content = email.envelope.content
        boundary = f"campanero-{hashlib.sha256(content).hexdigest()[:32]}"
        fields = (("to", email.envelope.rcpt_to), ("o:tracking", "no"))
        head = "".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields
        )
        file = 'Content-Disposition: form-data; name="message"; filename="message.eml"\r\nContent-Type: message/rfc822'
        form = b"".join((f"{head}--{boundary}\r\n{file}\r\n\r\n".encode(), content, f"\r\n--{boundary}--\r\n".encode()))
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", **_login(settings)}
        path = f"/v3/{quote(settings.mailgun.domain, safe='')}/messages.mime"
        return HttpRequest("POST", _build_url(settings, path), headers, form)

    def parse_response(self, response: HttpResponse, email: OutgoingEmail) -> str:
        """Return the `id` in the response, which is the Message-ID, without its angle brackets."""
        if response.status != 200:
            raise _error_of(response)
        return base.require_id(response, str(http_client.decode_response(response).get("id") or "").strip("<>"))

    def build_check(self, settings: Email) -> HttpRequest:
        """Return a request for the details of the domain, which sends nothing."""
        path = f"/v4/domains/{quote(settings.mailgun.domain, safe='')}"
        return HttpRequest("GET", _build_url(settings, path), _login(settings))

    def parse_check(self, response: HttpResponse) -> str:
        """Return a sentence that the key is accepted and the domain verified; raise ClientRejected if it is not."""
        domain = http_client.decode_response(response).get("domain")
        if response.status != 200 or not isinstance(domain, dict):
            raise _error_of(response)
        state = http_client.clean_text(domain.get("state"), 40)
        if state != "active":
            raise ClientRejected(f"{http_client.clean_text(domain.get('name'), 255)}: {state}")
        return gettext("It accepts the key, and the domain is verified.")


def _build_url(settings: Email, path: str) -> str:
    return base.join_url(settings.mailgun.base_url, _SERVERS[settings.mailgun.region], path)


def _login(settings: Email) -> dict[str, str]:
    login = base64.b64encode(f"api:{settings.mailgun.api_key}".encode()).decode()
    return {"Authorization": f"Basic {login}"}


def _error_of(response: HttpResponse) -> DeliveryError:
    text = http_client.decode_response(response).get("message")
    if response.status == 400 and _INVALID_ADDRESS.search(str(text)):
        return base.reject(RecipientRejected, response, None, text, base.INVALID_ADDRESS)
    if response.status == 400 and _SENDER.search(str(text)):
        return base.reject(SenderRejected, response, None, text)
    return base.build_error(response, None, text)
