"""A message read in the browser."""

from sanic import HTTPResponse, Request

from appliance.content.designs.merge import MergeError
from appliance.core import tokens
from appliance.core.errors import Unavailable
from appliance.public import answers
from appliance.sending.messages import links
from appliance.sending.messages.prepare import Workshop
from appliance.storage.models import Message
from appliance.storage.work import call

# It has its own inline styles and pictures, and nothing in it runs
_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox allow-top-navigation-by-user-activation; "
    "default-src 'none'; style-src 'unsafe-inline'; img-src * data:; base-uri 'none'; frame-ancestors 'none'"
)


async def show(request: Request, token: str) -> HTTPResponse:
    """Return the message of a link."""
    try:
        found = await call(html, token)
    except MergeError:
        return answers.lost()
    except Unavailable:
        return answers.unavailable()
    if found is None:
        return answers.lost()
    headers = {**answers.HEADERS, "Content-Security-Policy": _POLICY}
    return HTTPResponse(found, 200, headers, content_type="text/html; charset=utf-8")


def html(token: str) -> str | None:
    """Return the HTML of a message as its recipient got it, or None for a link that is not ours.

    Whose contact is gone has nothing left to be shown. Raises MergeError for one that never rendered.
    """
    number = tokens.read(links.VIEW, token)
    message = Message.get_or_none(Message.id == number) if number is not None else None
    if message is None or ((message.campaign_id or message.run_id) is not None and message.contact_id is None):
        return None
    return Workshop().view(message).html
