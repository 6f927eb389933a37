"""A server of one's own that takes SMS as signed JSON, and tells what becomes of them and what people write."""

from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from appliance.core import crypto
from appliance.core.errors import DeliveryError, Invalid
from appliance.sending.sms import client, codes
from appliance.sending.sms.client import Answer
from appliance.sending.sms.codes import Incoming, Receipt, Received, Told
from appliance.sending.sms.gsm import Accepted, Text
from appliance.sending.sms.providers import shared
from appliance.sending.sms.providers.kind import Provider
from appliance.settings import config, schema

_OLDEST_SECONDS = 300


class _Said(Struct, frozen=True):
    """What is told: of a message of ours, or a message of somebody's; what the other kind has may be null."""

    type: Literal["status", "message"]
    id: str | int | None = None
    status: str | None = None
    from_: str | int | None = field(default=None, name="from")
    to: str | int | None = None
    body: str | None = None
    error: Any = None
    answered: str | None = None  # the keyword that it has acted on and answered itself


class Http(Provider):
    """Posts each SMS to the address of the settings."""

    name: ClassVar[str] = "http"
    chooses_sender: ClassVar[bool] = True
    hooks: ClassVar[tuple[str, ...]] = ("sms",)

    def lacks(self, sms: schema.Sms | None = None) -> list[tuple[str, str]]:
        """Return what is missing or wrong in the settings."""
        here, found = sms.http if sms else _here(), []
        if not here.url:
            found.append(("sms.http.url", "needed when sms.transport is http"))
        elif (fault := shared.fault_of_url(here.url)) is not None:
            found.append(("sms.http.url", f"{here.url!r} {fault}"))
        if not here.secret:
            found.append(("sms.http.secret", "needed when sms.transport is http: it signs what is sent"))
        return found

    async def send(self, text: Text) -> Accepted:
        """Hand a message over, once; each attempt has the same `webhook-id`, by which a repeat can be told."""
        here = _here()
        said = {
            "id": text.id, "to": text.to, "from": text.sender or None, "body": text.body,
            "callback_url": text.callback_url,
        }  # fmt: skip
        body, name, sent = msgspec.json.encode(said), f"sms_{text.id}", str(int(shared.now()))
        headers = {
            "Content-Type": "application/json", "webhook-id": name, "webhook-timestamp": sent,
            "webhook-signature": crypto.signature(here.secret, name, sent, body),
        }  # fmt: skip
        answer = await client.ask("POST", here.url, headers, body)
        if not 200 <= answer.status < 300:
            raise _refusal(answer)
        found = shared.said(answer)
        # It took it under our name for it if it says no other
        return Accepted(shared.name(found.get("id")) or str(text.id), _first(found))

    async def greet(self) -> str:
        """Open a connection; to ask for anything would be to send an SMS."""
        await client.reach(_here().url)
        return f"{urlsplit(_here().url).netloc} can be reached; whether it takes SMS is seen with the first"

    def advice(self) -> list[str]:
        """Say that every text can be read on the way, where it can."""
        return shared.in_clear("sms.http.url", _here().url)

    def secret(self) -> str:
        """Return the secret that signs both ways."""
        return _here().secret

    def callback_url(self, message_id: int) -> str:
        """Return where it tells what became of a message."""
        return shared.callback_url("/hooks/sms", message_id, _here().url)

    def read(self, hook: str, received: Received) -> Told:
        """Read what it tells."""
        name, sent = received.headers.get("webhook-id", ""), received.headers.get("webhook-timestamp", "")
        given = received.headers.get("webhook-signature", "")
        if not self.secret() or not name or not crypto.is_signed(self.secret(), name, sent, received.body, given):
            raise shared.forged()
        if not (sent.isascii() and sent.isdecimal() and len(sent) <= 12):
            raise shared.forged()
        if abs(shared.now() - int(sent)) > _OLDEST_SECONDS:
            raise shared.forged()
        try:
            said = shared.told(received.body, _Said)
        except ValueError:
            raise Invalid({"base": ["is invalid"]}) from None
        if said.type == "message":
            return Told(incoming=(_incoming(said, name),))
        return Told((_receipt(said, shared.message_of(received.url)),))


def _here() -> schema.HttpSms:
    return config.current().sms.http


def _first(said: dict[str, Any]) -> str:
    status = shared.STATUSES.get(str(said.get("status")).lower(), "sent")
    return status if status == "delivered" else "sent"


def _refusal(answer: Answer) -> DeliveryError:
    """Read why it was not taken: a code or a class, and words, wherever they stand."""
    said = shared.said(answer)
    code, text = _fault(said.get("error") if said.get("error") is not None else said)
    return codes.refusal(answer.status, code, text or shared.plain(answer), shared.retry_after(answer))


def _fault(said: Any) -> tuple[str | None, str]:
    """Read what is wrong: a code, words, or both in an object; answer (code, words)."""
    if isinstance(said, dict):
        code = shared.words(said.get("code"), 20) or None
        return code, shared.words(said.get("message") or said.get("text"))
    text = shared.words(said)
    first = text.partition(" ")[0].strip(":,")
    if first.isdecimal() or (first and codes.meaning(first) is not codes.meaning(None)):
        return first[:20], text[len(first) :].lstrip(" :,")
    return None, text


def _receipt(said: _Said, message_id: int | None) -> Receipt:
    sid, status = shared.name(said.id), shared.STATUSES.get((said.status or "").lower())
    wrong = {}
    if sid is None and message_id is None:
        wrong["id"] = ["can't be blank" if said.id in (None, "") else "is invalid"]
    if status is None:
        wrong["status"] = ["is not included in the list"]
    if wrong or status is None:
        raise Invalid(wrong)
    code, text = _fault(said.error)
    return Receipt(sid or str(message_id), status, message_id, code, text)


def _incoming(said: _Said, name: str) -> Incoming:
    sender, to = shared.words(said.from_, 64), shared.words(said.to, 64)
    if not sender:
        raise Invalid({"from": ["can't be blank"]})
    # One that has no name of its own counts once under that of the request
    return Incoming(
        shared.name(said.id) or name, sender, to, shared.body(said.body or ""),
        shared.words(said.answered, 20).upper() or None,
    )  # fmt: skip
