"""The links and pictures that lead through us. Where they lead stands with us; nothing a request says changes it."""

from sanic import HTTPResponse, Request

from appliance import clock
from appliance.engagement.hits import Asked
from appliance.errors import Unavailable
from appliance.messages import links
from appliance.messages.link_targets import Found, Wanted
from appliance.public import answers
from appliance.public.counting import Desk

# The smallest picture there is: one pixel that nobody sees
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")
_ENDING = ".gif"
# As much as is kept of what somebody says of themselves
_AGENT, _REFERRER = 400, 500


async def click(request: Request, token: str) -> HTTPResponse:
    """Send the reader on to where the link was written to lead."""
    read = links.read_click(token)
    if read is None:
        return answers.lost()
    try:
        found = await _ask(request, Wanted(*read))
    except Unavailable:
        return answers.unavailable()
    if found is None or found.url is None:
        return answers.lost()
    return HTTPResponse(None, 302, {**answers.HEADERS, "Location": found.url}, content_type="text/plain")


async def seen(request: Request, token: str) -> HTTPResponse:
    """Return the picture, whatever becomes of the count."""
    message_id = links.read_open(token.removesuffix(_ENDING)) if token.endswith(_ENDING) else None
    if message_id is None:
        return answers.lost()
    try:
        await _ask(request, Wanted(message_id, None))
    except Unavailable:
        _desk(request).unrecorded += 1
    return HTTPResponse(PIXEL, 200, answers.HEADERS, content_type="image/gif")


async def _ask(request: Request, wanted: Wanted) -> Found | None:
    headers = request.headers
    is_ahead = "prefetch" in (headers.get("sec-purpose") or headers.get("purpose") or "")
    agent, referrer = headers.get("user-agent"), headers.get("referer")
    asked = Asked(
        wanted.number, "PREFETCH" if is_ahead else request.method, request.ctx.client,
        agent[:_AGENT] if agent else None, referrer[:_REFERRER] if referrer else None, clock.now_ms(),
    )  # fmt: skip
    return await _desk(request).ask(wanted, asked)


def _desk(request: Request) -> Desk:
    """Return the desk of this server; who comes first sets it up."""
    here = request.app.ctx
    if here.desk is None:
        here.desk = Desk()
    found: Desk = here.desk
    return found
