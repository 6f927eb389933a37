"""Emails inside a page, served as separate documents for a frame with the content security policy of `guard`."""

import re

from markupsafe import escape
from sanic.response import HTTPResponse

from appliance.content.designs import links
from appliance.settings import config
from ui.guard import email_policy

# Without a ">" the pattern matches up to the end, so that a text with many "<head " is read only once.
_HEAD_TAG = re.compile(r"<head(?:\s[^>]*)?(>|\Z)", re.IGNORECASE)
_BASE_TAG = '<base target="_blank">'
_NOTE = (
    '<!doctype html><html lang="en"><head><title>Note</title><style>body{{font:15px system-ui,sans-serif;color:#5c6068;'
    "display:grid;place-items:center;min-height:80vh;text-align:center}}</style></head><body><p>{}</p></body></html>"
)


def render_html(html: str) -> HTTPResponse:
    """Return the HTML of an email as a document whose links open in a new window; for an empty email return a note.

    The tracking pixel is removed, so that displaying the email is not counted as an open.
    """
    if not html.strip():
        return _build_response(_NOTE.format("Nothing written yet."))
    html = links.remove_pixel(html, config.base_url(config.current()))
    head = _HEAD_TAG.search(html)
    if head and head[1]:
        return _build_response(html[: head.end()] + _BASE_TAG + html[head.end() :])
    if "<" not in html:
        html = "".join(f"<p>{escape(part)}</p>" for part in html.split("\n\n"))
    return _build_response(
        f'<!doctype html><html><head><meta charset="utf-8">{_BASE_TAG}</head><body>{html}</body></html>'
    )


def sms_html(body: str) -> str:
    """Return the text of an SMS as HTML, or an empty string if it is blank."""
    style = "white-space:pre-wrap;overflow-wrap:anywhere;margin:16px;font:16px/1.5 sans-serif"
    html = f'<p dir="auto" style="{style}">{escape(body)}</p>'
    return html if body.strip() else ""


def render_error(why: str) -> HTTPResponse:
    """Return a document with the reason why an email cannot be shown."""
    return _build_response(_NOTE.format(f"This cannot be shown yet: {escape(why)}."))


def _build_response(html: str) -> HTTPResponse:
    headers = {"content-security-policy": email_policy(), "referrer-policy": "no-referrer"}
    return HTTPResponse(html, 200, headers, "text/html; charset=utf-8")
