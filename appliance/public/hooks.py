"""The door of providers: what they post about mail and SMS is answered once it is on disk (docs/decisions.md#15)."""

from sanic import HTTPResponse, Request
from sanic.exceptions import MethodNotAllowed, PayloadTooLarge
from sanic.response import json

from appliance.core import tokens
from appliance.core.errors import NotFound
from appliance.inbound.conversations import receiving
from appliance.inbound.feedback import hooks, receipts
from appliance.inbound.feedback.providers.shared import Received, Told
from appliance.inbound.feedback.record import InHand
from appliance.sending.messages import links
from appliance.sending.sms import codes as sms
from appliance.settings import config
from appliance.storage.work import commit
from appliance.tracking import unsubscribes

# A receipt or an SMS of 1,600 characters, percent-encoded, with all that a provider says around it
_SMS_BYTES = 65_536


def _only_post(request: Request, is_open: bool) -> None:
    """Raise NotFound where no secret opens a hook, and MethodNotAllowed for all but POST to one that is open."""
    if not is_open:
        raise NotFound
    if request.method != "POST":
        raise MethodNotAllowed("only POST", request.method, ["POST"])


async def take(request: Request, name: str) -> HTTPResponse:
    """Take what a provider of mail tells; whether a hook exists is told before how it is asked."""
    if receipts.door(name) is not None:
        return await _sms(request, name)
    _only_post(request, hooks.is_open(name))
    body = request.body
    told = await hooks.read(name, Received({key.lower(): value for key, value in request.headers.items()}, body))
    # All that can be written is; for the rest it is to come again, and what is known by then counts no second time
    held = [await commit(_write, name, part, body) for part in hooks.parts(told)]
    for waits in filter(None, held):
        raise waits
    return json({"received": len(told.facts) + len(told.left)})


def _write(name: str, told: Told, body: bytes) -> InHand | None:
    written = hooks.write(name, told, body)
    for left in written.left:
        unsubscribes.opt_out(tokens.sign(links.UNSUBSCRIBE, left.message_id), name, None, None)
    return written.held


async def take_of_provider(request: Request, provider: str, name: str) -> HTTPResponse:
    """Take what a provider tells that has several hooks."""
    return await _sms(request, f"{provider}/{name}")


async def _sms(request: Request, hook: str) -> HTTPResponse:
    """Take what a provider of SMS tells: all of a request in one commit."""
    _only_post(request, receipts.is_open(hook))
    if len(request.body) > _SMS_BYTES:
        raise PayloadTooLarge(f"at most {_SMS_BYTES} bytes")
    # What it was called by is signed: under our own address, whatever the Host says, with path and query as they came
    target = request.raw_url.decode("latin-1")
    headers = {key.lower(): value for key, value in request.headers.items()}
    provider, told = receipts.read(
        hook, sms.Received(config.base_url(config.current()) + target, headers, bytes(request.body))
    )
    await commit(_apply, provider, told)
    return HTTPResponse(told.reply, 200, content_type=told.media)


def _apply(provider: str, told: sms.Told) -> None:
    receipts.apply_all(provider, told.receipts)
    for heard in told.incoming:
        receiving.receive(provider, heard)
