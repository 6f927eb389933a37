"""Send SMS through Twilio, and through providers with a compatible API at another `base_url`."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

from appliance.core import addresses, clock
from appliance.core.errors import Deferred, DeliveryError, Invalid, LookupUnsupported, Uncertain
from appliance.core.i18n import gettext_noop
from appliance.sending.delivery import http_client
from appliance.sending.delivery.http_client import HttpResponse
from appliance.sending.sms import error_codes
from appliance.sending.sms.error_codes import HookContents, HookRequest, IncomingSms, Receipt
from appliance.sending.sms.providers import base
from appliance.sending.sms.providers.base import Provider
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.settings import config, schema

_FORM = "application/x-www-form-urlencoded"
_SID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PAGE_SIZE, _MAX_PAGES = 100, 10
# A provider's times of messages are in whole seconds and may be earlier than its Date header.
_CLOCK_TOLERANCE_MS = 5_000
_TRIAL_PREFIX = "Sent from your Twilio trial account - "
_MAX_FIELDS = 200
# The HTTP statuses with which compatible providers that implement only sending respond to a listing.
_NO_LISTING_STATUSES = (404, 405, 410, 501)
_EMPTY_TWIML = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'


class Twilio(Provider):
    """A provider with the API of Twilio, which can also look up uncertain SMS."""

    name: ClassVar[str] = "twilio"
    can_look_up: ClassVar[bool] = True
    hooks: ClassVar[tuple[str, ...]] = ("twilio/status", "twilio/message")

    def find_setting_faults(self, sms: schema.Sms | None = None) -> list[tuple[str, str]]:
        """Return (setting, fault) of each missing or invalid setting of `sms.twilio`, by default the current ones."""
        twilio_settings, faults = sms.twilio if sms else _settings(), []
        if not twilio_settings.account_sid:
            faults.append(("sms.twilio.account_sid", "needed when sms.transport is twilio"))
        elif not _SID.fullmatch(twilio_settings.account_sid):
            faults.append(("sms.twilio.account_sid", "must be an account SID of letters, digits and dashes"))
        if not twilio_settings.auth_token:
            faults.append(("sms.twilio.auth_token", "needed when sms.transport is twilio"))
        elif not re.fullmatch(r"[!-~]+", twilio_settings.auth_token):
            faults.append(("sms.twilio.auth_token", "must consist of ASCII characters without spaces"))
        if (fault := http_client.find_url_fault(twilio_settings.base_url)) is not None:
            faults.append(("sms.twilio.base_url", f"{twilio_settings.base_url!r} {fault}"))
        elif urlsplit(twilio_settings.base_url).query:
            faults.append(("sms.twilio.base_url", "may have no query"))
        return faults

    async def send(self, text: OutgoingSms) -> AcceptedSms:
        """Send an SMS in one attempt; return the id that the provider gave it. Raises the errors of `Provider.send`."""
        fields = {"To": text.to, **_sender_field(text.sender), "Body": text.body}
        if text.callback_url:
            fields["StatusCallback"] = text.callback_url
        headers = {"Content-Type": _FORM, **_login_header()}
        url, content = f"{_account_url()}/Messages.json", urlencode(fields).encode()
        response = await base.fetch("POST", url, headers, content, text.check)
        details = http_client.decode_response(response)
        if not 200 <= response.status < 300:
            raise _error_of(response, details)
        sid, status = (
            http_client.parse_id(details.get("sid")),
            base.STATUS_OF_PROVIDER.get(str(details.get("status")).lower(), "sent"),
        )
        if status in ("failed", "undelivered"):
            raise error_codes.build_response_error(
                400, details.get("error_code"), http_client.clean_text(details.get("error_message") or "failed"), 1
            )
        if sid is None:
            raise Uncertain(
                f"accepted, but the response has no valid message id: {http_client.excerpt(response)}", response.status
            )
        return AcceptedSms(sid, status)

    async def find_accepted(self, text: OutgoingSms, since: int) -> tuple[AcceptedSms, ...]:
        """Return the SMS that the provider accepted at `since` or later with the recipient, sender and body of `text`.

        They are in order of acceptance. At most `_MAX_PAGES` pages of the provider's listing are read. The listing is
        requested by recipient and sender, because a filter by date would leave out SMS that are still queued at the
        provider. Raises Deferred if the listing cannot be read now, LookupUnsupported if the provider has none, or the
        error of the response.
        """
        query = {"To": text.to, "PageSize": str(_PAGE_SIZE)} | (
            {} if addresses.is_messaging_service(text.sender) else {"From": text.sender}
        )
        url: str | None = f"{_account_url()}/Messages.json?{urlencode(query)}"
        matches: list[tuple[int, AcceptedSms]] = []
        for _ in range(_MAX_PAGES):
            response, listing = await _fetch_listing(url)
            oldest_ms = since - _CLOCK_TOLERANCE_MS - _clock_skew(response)
            times = [_message_time(message) for message in listing["messages"]]
            for accepted_at, message in zip(times, listing["messages"], strict=True):
                if accepted_at >= oldest_ms and _is_same_message(message, text):
                    status = base.STATUS_OF_PROVIDER.get(str(message.get("status")).lower(), "sent")
                    matches.append((accepted_at, AcceptedSms(str(message["sid"]), status)))
            url = _next_page_url(listing)
            if url is None or (times and max(times) < oldest_ms):
                break
        # The listing has the newest SMS first. Sorting keeps the reversed order of SMS accepted in the same second.
        matches.reverse()
        return tuple(message for _, message in sorted(matches, key=lambda match: match[0]))

    async def check_login(self) -> str:
        """Check the login by requesting a listing with one message; return a phrase such as `accepts the login`.

        Closes the idle connections of this event loop. Raises DeliveryError.
        """
        try:
            await _fetch_listing(f"{_account_url()}/Messages.json?PageSize=1")
        except LookupUnsupported:
            return gettext_noop(
                "answers, and lists no messages: whether it accepts the login is seen with the first SMS"
            )
        finally:
            await http_client.close_connections()
        return gettext_noop("answers and accepts the login")

    def list_warnings(self) -> list[str]:
        """Return a warning if the login is sent to a public URL without encryption."""
        return http_client.unencrypted_warnings("sms.twilio.base_url", _settings().base_url)

    def get_webhook_secret(self) -> str:
        """Return the auth token, which signs webhook requests."""
        return _settings().auth_token

    def build_callback_url(self, message_id: int) -> str:
        """Return the URL where the provider posts receipts of a message, or an empty string if it cannot reach us."""
        return base.build_callback_url("/hooks/twilio/status", message_id, _settings().base_url)

    def parse_hook(self, hook: str, received: HookRequest) -> HookContents:
        """Verify and parse a webhook request; a receipt and an incoming SMS are accepted at either URL.

        Raises NotAllowed if the signature is invalid, Invalid if the content is invalid.
        """
        fields = _verified_fields(received, self.get_webhook_secret())
        sid = http_client.parse_id(fields.get("MessageSid") or fields.get("SmsSid"))
        status = (fields.get("MessageStatus") or fields.get("SmsStatus") or "").lower()
        receipts: tuple[Receipt, ...] = ()
        incoming: tuple[IncomingSms, ...] = ()
        if status == "received" or (not status and "From" in fields and "Body" in fields):
            incoming = (_to_incoming(fields, sid),)
        elif status in base.STATUS_OF_PROVIDER:
            if sid is None:
                raise Invalid({"MessageSid": ["can't be blank"]})
            code = http_client.clean_text(fields.get("ErrorCode"), 20) or None
            text = http_client.clean_text(fields.get("ErrorMessage"))
            receipts = (
                Receipt(sid, base.STATUS_OF_PROVIDER[status], base.message_id_of_url(received.url), code, text),
            )
        return HookContents(receipts, incoming, "text/xml", _EMPTY_TWIML)


def _settings() -> schema.Twilio:
    return config.current().sms.twilio


def _account_url() -> str:
    twilio_settings = _settings()
    return f"{twilio_settings.base_url.rstrip('/')}/2010-04-01/Accounts/{twilio_settings.account_sid}"


def _login_header() -> dict[str, str]:
    twilio_settings = _settings()
    return {
        "Authorization": "Basic "
        + base64.b64encode(f"{twilio_settings.account_sid}:{twilio_settings.auth_token}".encode()).decode()
    }


def _sender_field(sender: str) -> dict[str, str]:
    return {"MessagingServiceSid" if addresses.is_messaging_service(sender) else "From": sender}


def _error_of(response: HttpResponse, details: Mapping[str, Any]) -> DeliveryError:
    raw_code = str(details.get("code"))  # some providers send it as a string
    code = int(raw_code) if re.fullmatch(r"[0-9]{1,6}", raw_code) else None
    text = http_client.clean_text(details.get("message")) or http_client.excerpt(response)
    if code is None and response.status == 404:
        code = 20404  # the URL is not the API of the provider
    return error_codes.build_response_error(response.status, code, text, http_client.parse_retry_after(response))


async def _fetch_listing(url: str | None) -> tuple[HttpResponse, dict[str, Any]]:
    """Fetch a page of the provider's listing of messages, and return (response, its decoded JSON object).

    Raises Deferred if there is no usable listing now, LookupUnsupported if the provider lists no messages, or the error
    of the response.
    """
    try:
        response = await base.fetch("GET", str(url), _login_header())
    except Uncertain as error:
        raise Deferred(error.text) from None
    listing = http_client.decode_response(response)
    if response.status in _NO_LISTING_STATUSES and "code" not in listing:
        raise LookupUnsupported(f"it lists no messages (HTTP {response.status})", response.status)
    if response.status != 200:
        rejection = _error_of(response, listing)
        raise Deferred(rejection.text, response.status) if isinstance(rejection, Uncertain) else rejection
    if not _is_listing(listing.get("messages")):
        raise Deferred(f"the response is not a list of messages: {http_client.excerpt(response)}", response.status)
    return response, listing


def _is_listing(messages: Any) -> bool:
    return isinstance(messages, list) and all(
        isinstance(message, dict) and http_client.parse_id(message.get("sid")) for message in messages
    )


def _message_time(message: Mapping[str, Any]) -> int:
    """Return when a message in a listing was accepted, in milliseconds since 1970 UTC.

    A message without a valid time counts as new: its time is 2^53.
    """
    date = str(message.get("date_created") or message.get("date_sent"))
    try:
        moment = clock.parse(date) if "T" in date[8:11] else clock.parse_http_date(date)
    except (ValueError, OverflowError):
        moment = None
    return 2**53 if moment is None else moment


def _clock_skew(response: HttpResponse) -> int:
    """Return how many milliseconds our clock is ahead of the Date header of a response, at least 0.

    The result is 0 if the provider's clock is ahead of ours, or the header is missing or invalid.
    """
    now = clock.now_ms()
    theirs = clock.parse_http_date(response.headers.get("date", ""))
    return 0 if theirs is None else max(0, now - theirs)


def _is_same_message(message: Mapping[str, Any], text: OutgoingSms) -> bool:
    """Return whether a message in a listing has the body, recipient and sender of an SMS; white space is ignored."""
    body = str(message.get("body") or "").removeprefix(_TRIAL_PREFIX)
    sender = (
        message.get("messaging_service_sid") if addresses.is_messaging_service(text.sender) else message.get("from")
    )
    is_outbound = not str(message.get("direction", "outbound")).startswith("inbound")
    return is_outbound and body.split() == text.body.split() and message.get("to") == text.to and sender == text.sender


def _next_page_url(listing: Mapping[str, Any]) -> str | None:
    """Return the URL of a listing's next page, always on the server of `base_url`, or None on the last page."""
    path = listing.get("next_page_uri")
    if not isinstance(path, str) or not re.fullmatch(r"/[!-~]*", path):
        return None
    parts = urlsplit(_settings().base_url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", "")) + path


# Webhook requests: their signatures and fields.


def _verified_fields(received: HookRequest, token: str) -> dict[str, str]:
    """Verify the signature of a webhook request and return its fields, from a form or a JSON object.

    `token` is the auth token. Raises NotAllowed if the signature is invalid, Invalid if the JSON is invalid.
    """
    signature = received.headers.get("x-twilio-signature", "")
    if not token or not signature:
        raise base.invalid_signature()
    if received.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        body_hash = parse_qs(urlsplit(received.url).query).get("bodySHA256", [""])[0]
        expected_hash = hashlib.sha256(received.body).hexdigest()
        if not (
            _is_signed(token, received.url, "", signature)
            and hmac.compare_digest(body_hash.lower().encode(), expected_hash.encode())
        ):
            raise base.invalid_signature()
        try:
            values = base.decode_hook(received.body, dict[str, Any])
        except ValueError:
            raise Invalid({"base": ["is invalid"]}) from None
        return {name: str(value) for name, value in values.items() if isinstance(value, str | int)}
    try:
        pairs = parse_qsl(received.body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError:
        raise base.invalid_signature() from None
    if not any(
        _is_signed(token, url, content, signature) for url, content in _possible_signed_contents(received.url, pairs)
    ):
        raise base.invalid_signature()
    return dict(pairs)


def _possible_signed_contents(url: str, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return each (URL, joined fields) that a provider may have signed for a request to a URL.

    Twilio signs the URL with its query string. Some compatible providers sign the URL without it, and either add the
    token of our callback URL to the fields or leave it out. A query may be left out only if it is a valid token,
    because we have signed the token ourselves.
    """
    contents = [(url, _join_fields(pairs))]
    path, _, query = url.partition("?")
    if query.startswith("m=") and "&" not in query and base.message_id_of_url(url) is not None:
        contents += [(path, _join_fields(pairs)), (path, _join_fields([*pairs, *parse_qsl(query)]))]
    return contents


def _join_fields(pairs: list[tuple[str, str]]) -> str:
    return "".join(name + value for name, value in sorted(set(pairs)))


def _is_signed(token: str, url: str, content: str, signature: str) -> bool:
    """Return whether a signature is valid for a URL and its joined fields, with or without the URL's default port."""
    valid_signatures = [
        base64.b64encode(hmac.new(token.encode(), (form + content).encode(), hashlib.sha1).digest())
        for form in _url_forms(url)
    ]
    return any(hmac.compare_digest(valid_signature, signature.encode()) for valid_signature in valid_signatures)


def _url_forms(url: str) -> list[str]:
    parts = urlsplit(url)
    default_port = {"http": 80, "https": 443}.get(parts.scheme)
    if parts.port is None:
        return [url, urlunsplit(parts._replace(netloc=f"{parts.netloc}:{default_port}"))]
    return (
        [url, urlunsplit(parts._replace(netloc=parts.netloc.rpartition(":")[0]))]
        if parts.port == default_port
        else [url]
    )


def _to_incoming(fields: Mapping[str, str], sid: str | None) -> IncomingSms:
    sender, to = http_client.clean_text(fields.get("From"), 64), http_client.clean_text(fields.get("To"), 64)
    if not sender:
        raise Invalid({"From": ["can't be blank"]})
    answered_keyword = http_client.clean_text(fields.get("OptOutType"), 20).upper() or None
    return IncomingSms(sid, sender, to, base.clean_body(fields.get("Body", "")), answered_keyword)
