"""Mail inside a page: always by src=, in a frame with a policy of its own."""

import re

from markupsafe import escape
from sanic.response import HTTPResponse

from appliance.content.designs import links
from appliance.settings import config
from ui.guard import mail_policy

_HEAD = re.compile(r"<head(\s[^>]*)?>", re.IGNORECASE)
_NEW_WINDOW = '<base target="_blank">'
_NOTE = (
    '<!doctype html><html lang="en"><head><title>Note</title><style>body{{font:15px system-ui,sans-serif;color:#5c6068;'
    "display:grid;place-items:center;min-height:80vh;text-align:center}}</style></head><body><p>{}</p></body></html>"
)


def frame(html: str) -> HTTPResponse:
    """Return the HTML of a mail as a document of its own; its links open in a new window."""
    if not html.strip():
        return _document(_NOTE.format("Nothing written yet."))
    html = links.without_picture(html, config.base_url(config.current()))
    if _HEAD.search(html):
        return _document(_HEAD.sub(lambda found: found[0] + _NEW_WINDOW, html, count=1))
    if "<" not in html:
        html = "".join(f"<p>{escape(part)}</p>" for part in html.split("\n\n"))
    return _document(f'<!doctype html><html><head><meta charset="utf-8">{_NEW_WINDOW}</head><body>{html}</body></html>')


def text(body: str) -> str:
    """Return the text of an SMS as HTML."""
    style = "white-space:pre-wrap;overflow-wrap:anywhere;margin:16px;font:16px/1.5 sans-serif"
    shown = f'<p dir="auto" style="{style}">{escape(body)}</p>'
    return shown if body.strip() else ""


def broken(why: str) -> HTTPResponse:
    """Return why a mail cannot be shown."""
    return _document(_NOTE.format(f"This cannot be shown yet: {escape(why)}."))


def _document(html: str) -> HTTPResponse:
    headers = {"content-security-policy": mail_policy(), "referrer-policy": "no-referrer"}
    return HTTPResponse(html, 200, headers, "text/html; charset=utf-8")
