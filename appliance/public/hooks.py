"""The door of mail services: what they post about our mail is answered once it is on disk (decisions, section 15)."""

from typing import Any

from sanic import HTTPResponse, Request, Sanic
from sanic.response import json

from appliance import tokens
from appliance.db.work import commit
from appliance.engagement import unsubscribes
from appliance.feedback import hooks
from appliance.feedback.providers.shared import Received, Told
from appliance.feedback.record import InHand
from appliance.messages import links

PATH = "/hooks/"


def owns(path: str) -> bool:
    """Say whether a path is a hook, so that its errors are JSON."""
    return path.startswith(PATH)


def mount(app: "Sanic[Any, Any]") -> None:
    """Add the hooks to the server."""
    app.add_route(_hook, f"{PATH}<name:str>", methods=["POST"], name="hooks")


async def _hook(request: Request, name: str) -> HTTPResponse:
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
