"""Makes one message: content and values in, a mail out; the same for preview and send."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from appliance import addresses
from appliance.delivery.mime import Mail
from appliance.designs import merge, plaintext
from appliance.designs.merge import Compiled
from appliance.messages import links

_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_END_OF_BODY = re.compile(r"</body\s*>", re.IGNORECASE)
_START_OF_BODY = re.compile(r"<body[^>]*>", re.IGNORECASE)

_ADDRESS_HTML = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"
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


def compile_source(source: Source) -> Content:
    """Compile a message once; raises MergeError."""
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
    tags = _TAG.findall(html)
    numbered = iter(range(len(tags)))
    text = plaintext.from_html(_TAG.sub(lambda _: f"\ue000{next(numbered)}\ue001", html))
    return re.sub("\ue000(\\d+)\ue001", lambda found: tags[int(found[1])], text)


def _signed(html: str, text: str) -> tuple[str, str]:
    """Append postal address and unsubscribe link where the author left them out (decisions, section 7)."""
    if "unsubscribe_url" in html:
        missing_html = "" if "brand.physical_address" in html else _ADDRESS_HTML
    else:
        missing_html = f'{_ADDRESS_HTML}<br><a href="{{{{ unsubscribe_url }}}}">Unsubscribe</a>'
    if missing_html:
        block = f'<p style="{_STYLE}">{missing_html}</p>'
        place = _END_OF_BODY.search(html)
        html = html + "\n" + block if place is None else html[: place.start()] + block + html[place.start() :]
    lines = [] if "brand.physical_address" in text else [_ADDRESS_HTML]
    if "unsubscribe_url" not in text:
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
    body = _START_OF_BODY.search(html)
    if body is not None:
        return html[: body.end()] + preheader + html[body.end() :]
    if re.search(r"<html[\s>]", html, re.IGNORECASE):
        return html
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
        reply_to=sender.reply_to,
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
