"""Render the pages for recipients in the style and language of the account, and show the web version of messages."""

import re
import secrets
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, StrictUndefined
from sanic import HTTPResponse, Request

from appliance.audience.consent import Evidence
from appliance.content import brand as brands
from appliance.content import media
from appliance.content.brand import PageStyle
from appliance.content.designs.merge_limits import MergeError
from appliance.core import crypto, executable, i18n, recipient_texts
from appliance.core.errors import RateLimitExceeded, Unavailable
from appliance.sending.messages import links
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage.models import Message
from appliance.storage.transactions import fetch_public, render_view

_PAGE_POLICY = (
    "default-src 'none'; style-src 'self' 'nonce-{nonce}'; img-src 'self'; form-action 'self'{leads}; "
    "base-uri 'none'; frame-ancestors {frames}"
)
PAGE_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_TAG_PATTERN = re.compile(r"<[^<>]+>")


@cache
def get_environment() -> Environment:
    """Return the Jinja environment with the templates of the pages for recipients."""
    jinja_environment = Environment(
        loader=executable.template_loader("appliance/public/html"), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    jinja_environment.globals["MEDIA"] = media.URL_PATH
    return jinja_environment


def render_page(
    name: str,
    style: PageStyle | None,
    status: int = 200,
    /,
    language: str = "en",
    leads: str = "",
    frames: str = "'none'",
    **values: Any,
) -> HTTPResponse:
    """Render the template `name` with the style of an account, or without a style in the given language.

    `leads` is the origin that the page's form may redirect to. `frames` are the origins that may embed the page,
    separated by spaces.
    """
    nonce = secrets.token_urlsafe(16)
    language = style.language if style is not None else language
    look = brands.build_css(style) if style is not None else ""
    body = get_environment().get_template(name).render(
        style=style, language=language, say=recipient_texts.get_translator(language), look=look, nonce=nonce, **values
    )  # fmt: skip
    policy = _PAGE_POLICY.format(nonce=nonce, leads=leads and f" {leads}", frames=frames)
    headers = {**PAGE_HEADERS, "Content-Security-Policy": policy}
    return HTTPResponse(body, status, headers, content_type="text/html; charset=utf-8")


def render_plain_text(language: str, *phrases: str, **values: Any) -> str:
    """Return page texts by their keys, without HTML tags and filled in with `values`, as consent evidence."""
    texts = recipient_texts.get_texts(language)
    return " ".join(_TAG_PATTERN.sub("", texts[phrase]).format(**values) for phrase in phrases)


def build_evidence(request: Request, source: str, text: str | None) -> Evidence:
    """Return the consent evidence of a recipient's action on a page, with the IP address and user agent.

    `text` is the text of the page beside the button.
    """
    return Evidence(source, "recipient", request.ctx.client, request.headers.get("user-agent"), text)


def detect_language(request: Request) -> str:
    """Return the browser's first language if the pages have texts in it, else English."""
    return recipient_texts.language_of_locale(read_browser_language(request) or "en")


def read_browser_language(request: Request) -> str | None:
    """Return the language that the browser prefers (RFC 9110, section 12.5.4), or None."""
    preferred = (request.headers.get("accept-language") or "").partition(",")[0].partition(";")[0]
    return i18n.normalize_language_tag(preferred[:35])


def read_form(request: Request) -> Mapping[str, list[str]]:
    """Return the values of each field of a submitted HTML form; empty for any other body."""
    posted = request.form
    return {name: posted.getlist(name) for name in posted} if posted else {}


def not_found_page(status: int = 404, language: str = "en") -> HTTPResponse:
    """Return the error page for invalid links and invalid requests."""
    return render_page("note.html", None, status, language, heading="lost_heading", lead="lost_lead")


def unavailable_page(language: str = "en") -> HTTPResponse:
    """Return the error page (503) for a temporary failure that changed nothing."""
    response = render_page("note.html", None, 503, language, heading="later_heading", lead="later_lead")
    response.headers["Retry-After"] = "5"
    return response


# The web version of a message may have inline styles and images from anywhere, but no scripts.
_MESSAGE_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox allow-top-navigation-by-user-activation; "
    "default-src 'none'; style-src 'unsafe-inline'; img-src * data:; base-uri 'none'; frame-ancestors 'none'"
)


async def show_message(request: Request, token: str) -> HTTPResponse:
    """Show the web version of a message.

    The response is the page "not found" if the link is invalid or the message cannot be rendered, and the page for
    temporary failures if the message cannot be read, or if many messages of the account are being rendered.
    """
    try:
        message = await fetch_public(find_message, token)
        if message is None:
            return not_found_page(language=detect_language(request))
        html = await render_view(message.account_id, render_message, message)
    except MergeError:
        return not_found_page(language=detect_language(request))
    except (RateLimitExceeded, Unavailable):
        return unavailable_page(detect_language(request))
    headers = {**PAGE_HEADERS, "Content-Security-Policy": _MESSAGE_POLICY}
    return HTTPResponse(html, 200, headers, content_type="text/html; charset=utf-8")


def find_message(token: str) -> Message | None:
    """Return the message that the token of a web version link names, or None for an invalid token.

    None is also returned for a message of a campaign or flow whose contact was deleted.
    """
    message_id = crypto.read_token(links.VIEW, token)
    message = Message.get_or_none(Message.id == message_id) if message_id is not None else None
    if message is None or ((message.campaign_id or message.run_id) is not None and message.contact_id is None):
        return None
    return message


def render_message(message: Message) -> str:
    """Return the HTML of a message as it was sent. Raises MergeError if the message cannot be rendered."""
    return MessagePreparer().fill_again(message).html
