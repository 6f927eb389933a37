"""Twilio's interface, which SignalWire, Telnyx and others speak too: any base address, Basic login, forms."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

from appliance.core import addresses, clock
from appliance.core.errors import DeliveryError, Invalid, Temporary, Uncertain, Unlisted
from appliance.sending.sms import client, codes
from appliance.sending.sms.client import Answer
from appliance.sending.sms.codes import Incoming, Receipt, Received, Told
from appliance.sending.sms.gsm import Accepted, Text
from appliance.sending.sms.providers import shared
from appliance.sending.sms.providers.kind import Provider
from appliance.settings import config, schema

_FORM = "application/x-www-form-urlencoded"
_SID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PAGE, _MAX_PAGES = 100, 10
# What a clock of theirs may be behind the header of theirs that tells it, and their times are cut to the second
_LENIENT_MS = 5_000
_TRIAL = "Sent from your Twilio trial account - "
_MAX_FIELDS = 200
# Whoever speaks as much of the interface as sending takes
_NO_LISTING = (404, 405, 410, 501)
_NOTHING_TO_SAY = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'


class Twilio(Provider):
    """Hands SMS over one by one, looks them up where that ended in doubt, and reads what is told of them."""

    name: ClassVar[str] = "twilio"
    can_look_up: ClassVar[bool] = True
    hooks: ClassVar[tuple[str, ...]] = ("twilio/status", "twilio/message")

    def lacks(self, sms: schema.Sms | None = None) -> list[tuple[str, str]]:
        """Return what is missing or wrong in the settings."""
        here, found = sms.twilio if sms else _here(), []
        if not here.account_sid:
            found.append(("sms.twilio.account_sid", "needed when sms.transport is twilio"))
        elif not _SID.fullmatch(here.account_sid):
            found.append(("sms.twilio.account_sid", "is no account SID: letters, digits and dashes"))
        if not here.auth_token:
            found.append(("sms.twilio.auth_token", "needed when sms.transport is twilio"))
        elif not re.fullmatch(r"[!-~]+", here.auth_token):
            found.append(("sms.twilio.auth_token", "holds what no token holds"))
        if (fault := shared.fault_of_url(here.base_url)) is not None:
            found.append(("sms.twilio.base_url", f"{here.base_url!r} {fault}"))
        elif urlsplit(here.base_url).query:
            found.append(("sms.twilio.base_url", "may have no query"))
        return found

    async def send(self, text: Text) -> Accepted:
        """Hand a message over, once."""
        fields = {"To": text.to, **_sender(text.sender), "Body": text.body}
        if text.callback_url:
            fields["StatusCallback"] = text.callback_url
        headers = {"Content-Type": _FORM, **_login()}
        answer = await client.ask("POST", f"{_account()}/Messages.json", headers, urlencode(fields).encode())
        said = shared.said(answer)
        if not 200 <= answer.status < 300:
            raise _refusal(answer, said)
        sid, status = shared.name(said.get("sid")), shared.STATUSES.get(str(said.get("status")).lower(), "sent")
        if status in ("failed", "undelivered"):
            raise codes.refusal(400, said.get("error_code"), shared.words(said.get("error_message") or "failed"), 1)
        if sid is None:
            raise Uncertain(f"taken, but not said under which name: {shared.plain(answer)}", answer.status)
        return Accepted(sid, status)

    async def find(self, text: Text, since: int) -> tuple[Accepted, ...]:
        """Return each such message that was taken since then, the oldest first.

        By recipient and sender alone: by date a listing knows what has left, not what waits there to leave.
        """
        query = {"To": text.to, "PageSize": str(_PAGE)} | (
            {} if addresses.is_sender_service(text.sender) else {"From": text.sender}
        )
        url: str | None = f"{_account()}/Messages.json?{urlencode(query)}"
        found: list[tuple[int, Accepted]] = []
        for _ in range(_MAX_PAGES):
            answer, said = await _looked_up(url)
            least = since - _LENIENT_MS - _ahead(answer)
            times = [_time(one) for one in said["messages"]]
            found += [
                (at, Accepted(str(one["sid"]), shared.STATUSES.get(str(one.get("status")).lower(), "sent")))
                for at, one in zip(times, said["messages"], strict=True) if at >= least and _is_alike(one, text)
            ]  # fmt: skip
            url = _next(said)
            if url is None or (times and max(times) < least):
                break
        found.reverse()  # theirs come the newest first, and several in a second
        return tuple(one for _, one in sorted(found, key=lambda each: each[0]))

    async def greet(self) -> str:
        """Ask for the last message, as look-ups do, which tells whether it accepts the login."""
        try:
            await _looked_up(f"{_account()}/Messages.json?PageSize=1")
        except Unlisted:
            return "answers, and lists no messages: whether it accepts the login is seen with the first SMS"
        finally:
            await client.close()
        return "answers and accepts the login"

    def advice(self) -> list[str]:
        """Say that the token can be read on the way, where it can."""
        return shared.in_clear("sms.twilio.base_url", _here().base_url)

    def secret(self) -> str:
        """Return the token that signs what is told."""
        return _here().auth_token

    def callback_url(self, message_id: int) -> str:
        """Return where it tells what became of a message."""
        return shared.callback_url("/hooks/twilio/status", message_id, _here().base_url)

    def read(self, hook: str, received: Received) -> Told:
        """Read what it tells: by what a request says, for both kinds may be sent to either door."""
        fields = _believed(received, self.secret())
        sid = shared.name(fields.get("MessageSid") or fields.get("SmsSid"))
        status = (fields.get("MessageStatus") or fields.get("SmsStatus") or "").lower()
        receipts: tuple[Receipt, ...] = ()
        incoming: tuple[Incoming, ...] = ()
        if status == "received" or (not status and "From" in fields and "Body" in fields):
            incoming = (_incoming(fields, sid),)
        elif status in shared.STATUSES:
            if sid is None:
                raise Invalid({"MessageSid": ["can't be blank"]})
            code = shared.words(fields.get("ErrorCode"), 20) or None
            text = shared.words(fields.get("ErrorMessage"))
            receipts = (Receipt(sid, shared.STATUSES[status], shared.message_of(received.url), code, text),)
        return Told(receipts, incoming, "text/xml", _NOTHING_TO_SAY)


def _here() -> schema.Twilio:
    return config.current().sms.twilio


def _account() -> str:
    here = _here()
    return f"{here.base_url.rstrip('/')}/2010-04-01/Accounts/{here.account_sid}"


def _login() -> dict[str, str]:
    here = _here()
    return {"Authorization": "Basic " + base64.b64encode(f"{here.account_sid}:{here.auth_token}".encode()).decode()}


def _sender(sender: str) -> dict[str, str]:
    return {"MessagingServiceSid" if addresses.is_sender_service(sender) else "From": sender}


def _refusal(answer: Answer, said: Mapping[str, Any]) -> DeliveryError:
    found = str(said.get("code"))  # some write it as a text
    code = int(found) if re.fullmatch(r"[0-9]{1,6}", found) else None
    words = shared.words(said.get("message")) or shared.plain(answer)
    if code is None and answer.status == 404:
        code = 20404  # there is no such interface at all
    return codes.refusal(answer.status, code, words, shared.retry_after(answer))


async def _looked_up(url: str | None) -> tuple[Answer, dict[str, Any]]:
    """Ask for a listing; whatever is wrong with the answer, it is not known now."""
    try:
        answer = await client.ask("GET", str(url), _login())
    except Uncertain as error:
        raise Temporary(error.text) from None
    said = shared.said(answer)
    if answer.status in _NO_LISTING and "code" not in said:
        raise Unlisted(f"it lists no messages (HTTP {answer.status})", answer.status)
    if answer.status != 200:
        wrong = _refusal(answer, said)
        raise Temporary(wrong.text, answer.status) if isinstance(wrong, Uncertain) else wrong
    if not _is_listing(said.get("messages")):
        raise Temporary(f"no listing but {shared.plain(answer)}", answer.status)
    return answer, said


def _is_listing(said: Any) -> bool:
    return isinstance(said, list) and all(isinstance(one, dict) and shared.name(one.get("sid")) for one in said)


def _time(one: Mapping[str, Any]) -> int:
    """Return when a message was taken, in ms; one that does not say so is as new as can be."""
    said = str(one.get("date_created") or one.get("date_sent"))
    try:
        return clock.parse(said) if "T" in said[8:11] else int(parsedate_to_datetime(said).timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        return 2**53


def _ahead(answer: Answer) -> int:
    """Return by how many ms our clock is ahead of theirs; one that is behind may have been right when it was sent."""
    try:
        return max(0, clock.now_ms() - int(parsedate_to_datetime(answer.headers.get("date", "")).timestamp() * 1000))
    except (ValueError, TypeError):
        return 0


def _is_alike(one: Mapping[str, Any], text: Text) -> bool:
    """Return whether a message says the same to the same number from the same sender."""
    said = str(one.get("body") or "").removeprefix(_TRIAL)
    sender = one.get("messaging_service_sid") if addresses.is_sender_service(text.sender) else one.get("from")
    is_ours = not str(one.get("direction", "outbound")).startswith("inbound")
    return is_ours and said.split() == text.body.split() and one.get("to") == text.to and sender == text.sender


def _next(said: Mapping[str, Any]) -> str | None:
    """Return the address of the next page, on the same server whatever the page says."""
    path = said.get("next_page_uri")
    if not isinstance(path, str) or not re.fullmatch(r"/[!-~]*", path):
        return None
    parts = urlsplit(_here().base_url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", "")) + path


# -- what is told ------------------------------------------------------------------------------------------------------


def _believed(received: Received, token: str) -> dict[str, str]:
    """Return the fields of a request that is signed; raises NotAllowed for any other."""
    given = received.headers.get("x-twilio-signature", "")
    if not token or not given:
        raise shared.forged()
    if received.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        digest = parse_qs(urlsplit(received.url).query).get("bodySHA256", [""])[0]
        right = hashlib.sha256(received.body).hexdigest()
        if not (
            _is_signed(token, received.url, "", given) and hmac.compare_digest(digest.lower().encode(), right.encode())
        ):
            raise shared.forged()
        try:
            said = shared.told(received.body, dict[str, Any])
        except ValueError:
            raise Invalid({"base": ["is invalid"]}) from None
        return {name: str(value) for name, value in said.items() if isinstance(value, str | int)}
    try:
        pairs = parse_qsl(received.body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError:
        raise shared.forged() from None
    if not any(_is_signed(token, url, content, given) for url, content in _readings(received.url, pairs)):
        raise shared.forged()
    return dict(pairs)


def _readings(url: str, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (address, fields) as somebody may have signed them.

    Twilio signs the address with its query. Others take the address for the path alone, and what we gave them to call
    us back for one more field or for none: that is its own proof, so no other query may be left out.
    """
    found = [(url, _joined(pairs))]
    bare, _, query = url.partition("?")
    if query.startswith("m=") and "&" not in query and shared.message_of(url) is not None:
        found += [(bare, _joined(pairs)), (bare, _joined([*pairs, *parse_qsl(query)]))]
    return found


def _joined(pairs: list[tuple[str, str]]) -> str:
    return "".join(name + value for name, value in sorted(set(pairs)))


def _is_signed(token: str, url: str, content: str, given: str) -> bool:
    """Check a signature; an address may be signed with the port that its scheme has anyway, or without."""
    rights = [
        base64.b64encode(hmac.new(token.encode(), (form + content).encode(), hashlib.sha1).digest())
        for form in _forms(url)
    ]
    return any(hmac.compare_digest(right, given.encode()) for right in rights)


def _forms(url: str) -> list[str]:
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    if parts.port is None:
        return [url, urlunsplit(parts._replace(netloc=f"{parts.netloc}:{usual}"))]
    return [url, urlunsplit(parts._replace(netloc=parts.netloc.rpartition(":")[0]))] if parts.port == usual else [url]


def _incoming(fields: Mapping[str, str], sid: str | None) -> Incoming:
    sender, to = shared.words(fields.get("From"), 64), shared.words(fields.get("To"), 64)
    if not sender:
        raise Invalid({"From": ["can't be blank"]})
    answered = shared.words(fields.get("OptOutType"), 20).upper() or None
    return Incoming(sid, sender, to, shared.body(fields.get("Body", "")), answered)
