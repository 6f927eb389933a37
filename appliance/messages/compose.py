"""Makes one message: content and values in, a mail out; the same for preview and send."""

import re
import secrets
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from appliance import addresses
from appliance.delivery.mime import Mail
from appliance.designs import merge, plaintext
from appliance.designs.merge import Compiled
from appliance.messages import links

_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_END_OF_BODY = re.compile(r"</body\s*>", re.IGNORECASE)
_START_OF_BODY = re.compile(r"<body[^<>]*>", re.IGNORECASE)
_END_OF_HEAD = re.compile(r"</head\s*>", re.IGNORECASE)
_START_OF_HTML = re.compile(r"<html[^<>]*>", re.IGNORECASE)

_ADDRESS = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"
_STYLE = "margin:32px 0 0;font:13px/1.5 sans-serif;color:#666666"


class Source(NamedTuple):
    """What a message is made from, before anything is filled in."""

    subject: str
    body: str
    text: str | None = None
    preheader: str | None = None
    from_name: str | None = None
    marketing: bool = False
    locale: str = "en"


class Content(NamedTuple):
    """A compiled message; filled once for each recipient, from any thread."""

    subject: Compiled
    html: Compiled
    text: Compiled
    from_name: Compiled

    def variables(self) -> list[str]:
        """Answer every merge variable in it."""
        return sorted({name for part in self for name in part.variables})


class Sender(NamedTuple):
    """From whom a message is, and where answers go."""

    email: str
    name: str | None
    reply_to: str | None


class Filled(NamedTuple):
    """A message as one person gets it."""

    subject: str
    html: str
    text: str
    from_name: str | None


@lru_cache(maxsize=32)
def compile_source(source: Source) -> Content:
    """Compile a message once; raises MergeError. The last ones are kept, so asking twice is free."""
    merge.scan(source.body)
    html = source.body if plaintext.is_html(source.body) else plaintext.to_html(source.body)
    if source.text:
        text = source.text
    elif plaintext.is_html(source.body):
        text = _keeping_tags(html)
    else:
        text = source.body
    if source.marketing:
        html, text = _signed(html, text)
    html = _document(html, source)
    return Content(
        merge.compile_template(source.subject, "header"),
        merge.compile_template(html, "html"),
        merge.compile_template(text, "text"),
        merge.compile_template(source.from_name, "header"),
    )


def _keeping_tags(html: str) -> str:
    """Write HTML as text with its merge tags intact, whatever they hold."""
    merge.scan(html)
    tags = _TAG.findall(html)
    # A mark that cannot stand in the document already
    name = secrets.token_hex(8)
    numbered = iter(range(len(tags)))
    text = plaintext.from_html(_TAG.sub(lambda _: f"\ue000{name}.{next(numbered)}\ue001", html))
    return re.sub(f"\ue000{name}\\.(\\d+)\ue001", lambda found: tags[int(found[1])], text)


def _says(source: str, name: str, context: merge.Context) -> bool:
    """Say whether a template shows a value where a reader sees it: comments do not count."""
    return name in merge.compile_template(_without_comments(source), context).variables


def _without_comments(html: str) -> str:
    parts, position = [], 0
    while (begin := html.find("<!--", position)) >= 0:
        parts.append(html[position:begin])
        end = html.find("-->", begin + 4)
        if end < 0:
            return "".join(parts)
        position = end + 3
    return "".join([*parts, html[position:]])


def _signed(html: str, text: str) -> tuple[str, str]:
    """Append postal address and unsubscribe link where the author left them out (decisions, section 7)."""
    lines = [] if _says(html, "brand.physical_address", "html") else [_ADDRESS]
    if not _says(html, "unsubscribe_url", "html"):
        lines.append('<a href="{{ unsubscribe_url }}">Unsubscribe</a>')
    if lines:
        block = f'<p style="{_STYLE}">{"<br>".join(lines)}</p>'
        place = _END_OF_BODY.search(html)
        html = html + "\n" + block if place is None else html[: place.start()] + block + html[place.start() :]
    lines = [] if _says(text, "brand.physical_address", "text") else [_ADDRESS]
    if not _says(text, "unsubscribe_url", "text"):
        lines.append("Unsubscribe: {{ unsubscribe_url }}")
    if lines:
        text = text.rstrip() + "\n\n-- \n" + "\n".join(lines) + "\n"
    return html, text


def _document(html: str, source: Source) -> str:
    """Make a whole document of a fragment, and put the preheader where inboxes look for it."""
    preheader = ""
    if source.preheader:
        preheader = (
            '<div style="display:none;max-height:0;overflow:hidden;opacity:0" aria-hidden="true">'
            f"{plaintext.escape(source.preheader)}{'&#847;&zwnj;&nbsp;' * 40}</div>"
        )
    start = _START_OF_BODY.search(html) or _END_OF_HEAD.search(html) or _START_OF_HTML.search(html)
    if start is not None:
        return html[: start.end()] + preheader + html[start.end() :]
    return (
        f'<!doctype html>\n<html lang="{source.locale}">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>\n'
        f'<body style="margin:0;padding:16px;font:16px/1.5 sans-serif">{preheader}\n{html}\n</body>\n</html>\n'
    )


def fill(content: Content, values: Mapping[str, Any]) -> Filled:
    """Fill a message for one person; raises MergeError."""
    return Filled(
        content.subject.render(values),
        content.html.render(values),
        content.text.render(values),
        content.from_name.render(values) or None,
    )


def mail(
    filled: Filled, sender: Sender, message_id: int, recipient: str, date: float, headers: tuple[tuple[str, str], ...]
) -> Mail:
    """Make the mail of a filled message; raises ValueError for an address that cannot stand in a header."""
    address = addresses.ascii_form(sender.email) or sender.email
    return Mail(
        message_id=links.internet_message_id(message_id, address.rpartition("@")[2]),
        date=date,
        sender=(filled.from_name or sender.name, address),
        recipient=recipient,
        subject=filled.subject,
        text=filled.text,
        html=filled.html,
        reply_to=addresses.ascii_form(sender.reply_to) or sender.reply_to if sender.reply_to else None,
        headers=headers,
    )


def marketing_headers(message_id: int, campaign_id: int | None, list_name: str, list_id: str, domain: str,
                      account_id: int) -> tuple[tuple[str, str], ...]:  # fmt: skip
    """Answer the headers of marketing mail: RFC 8058 (one-click), RFC 2919 (List-Id), Feedback-ID."""
    from appliance.delivery.mime import mailbox

    headers = (
        ("List-Unsubscribe", f"<{links.unsubscribe(message_id)}>"),
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
        ("List-Id", mailbox(list_name, f"{list_id}.{domain}")),
        ("Feedback-ID", f"c{campaign_id or 0}:a{account_id}:{'campaign' if campaign_id else 'flow'}:campanero"),
    )
    return headers + ((("Precedence", "bulk"),) if campaign_id else (("Auto-Submitted", "auto-generated"),))
