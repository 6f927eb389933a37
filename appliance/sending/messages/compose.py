"""Makes one message: content and values in, a mail out; the same for preview and send."""

import json
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache, cached

from appliance.content.designs import document as designs
from appliance.content.designs import links as designs_links
from appliance.content.designs import links as numbered
from appliance.content.designs import merge, places, plaintext, render
from appliance.content.designs.links import Link
from appliance.content.designs.merge import MergeError
from appliance.content.designs.render import Advice
from appliance.content.designs.tags import TAG
from appliance.content.designs.theme import Look
from appliance.core import addresses as core_addresses
from appliance.sending.delivery import mime
from appliance.sending.delivery.mime import Mail
from appliance.sending.messages import links
from appliance.settings import config

if TYPE_CHECKING:
    from appliance.content.designs.compiled import Compiled
    from appliance.sending.messages.body_encoding import Body


# What the law wants in marketing mail: who wrote, from where, and how to hear no more (docs/decisions.md#7).

_END_OF_BODY = re.compile(r"</body\s*>", re.IGNORECASE)
_ADDRESS = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"
# In the column that most letters have; the colour has 4.5:1 on white and on black
_STYLE = "max-width:600px;margin:32px auto 0;padding:0 16px;text-align:center;font:13px/1.5 sans-serif;color:#767676"
_SHOWN_ADDRESS = re.compile(r"\{\{-?\s*brand\.physical_address\s*(?:\||-?\}\})")
_SHOWN_LINK = re.compile(r"\{\{-?\s*unsubscribe_url\s*-?\}\}")
# An address that is asked for before it is shown is still shown to everybody
_ASKED = re.compile(r"\{%-?\s*if\s+brand\.physical_address\s*-?%\}")
_WORD = re.compile(r"\{%-?\s*(\w+)")
_BLOCKS = ("if", "unless", "case", "for", "comment", "raw")


def with_footer(html: str, text: str) -> tuple[str, str]:
    """Append postal address and unsubscribe link where the author left them out."""
    lines = _missing(html, '<a href="{{ unsubscribe_url }}" style="color:inherit">Unsubscribe</a>')
    if lines:
        block = f'<p style="{_STYLE}">{"<br>".join(lines)}</p>'
        ends = list(_END_OF_BODY.finditer(html))
        html = f"{html[: ends[-1].start()]}{block}{html[ends[-1].start() :]}" if ends else f"{html}\n{block}"
    lines = _missing(text, "Unsubscribe: {{ unsubscribe_url }}")
    if lines:
        text = text.rstrip() + "\n\n-- \n" + "\n".join(lines) + "\n"
    return html, text


def is_signed(html: str) -> bool:
    """Return whether every reader of a template sees the postal address and the unsubscribe link."""
    return not _missing(html, "")


def _missing(source: str, unsubscribe: str) -> list[str]:
    """Return the lines that a template lacks; what only some people see is lacking to the others."""
    lines = ((_SHOWN_ADDRESS, True, _ADDRESS), (_SHOWN_LINK, False, unsubscribe))
    return [line for shown, may_be_asked, line in lines if not _says(source, shown, may_be_asked)]


def _says(source: str, shown: re.Pattern[str], may_be_asked: bool) -> bool:
    """Return whether every reader sees a value: comments do not count, nor what stands within conditions and loops."""
    if not shown.search(source):
        return False
    return shown.search(places.without_comments(_for_everybody(source, may_be_asked))) is not None


def _for_everybody(source: str, may_be_asked: bool) -> str:
    """Return a template without what stands within conditions and loops, and without their tags."""
    kept: list[str] = []
    inside: list[str] = []
    position = 0
    for found in TAG.finditer(source):
        word = _WORD.match(found[0])
        if word is None:
            continue
        if all(one == "asked" for one in inside):
            kept.append(source[position : found.start()])
        position = found.end()
        _step(inside, word[1], found[0], may_be_asked)
    if not inside:
        kept.append(source[position:])
    return "".join(kept)


def _step(inside: list[str], word: str, tag: str, may_be_asked: bool) -> None:
    """Follow one tag into a block or out of it."""
    here = inside[-1] if inside else ""
    if here in ("comment", "raw"):
        if word == f"end{here}":
            inside.pop()
    elif word in _BLOCKS:
        inside.append("asked" if may_be_asked and _ASKED.fullmatch(tag) else word)
    elif word.startswith("end") and inside:
        inside.pop()
    elif here == "asked":
        inside[-1] = "if"  # what stands behind `else` is for the others


_END_OF_HEAD = re.compile(r"</head\s*>", re.IGNORECASE)
_START_OF_BODY = re.compile(r"<body[^<>]*>", re.IGNORECASE)
_START_OF_HTML = re.compile(r"<html[^<>]*>", re.IGNORECASE)


class Source(NamedTuple):
    """What a message is made from, before anything is filled in."""

    subject: str
    body: str
    text: str | None = None
    preheader: str | None = None
    from_name: str | None = None
    marketing: bool = False
    locale: str = "en"
    design: str | None = None  # a document with sections, as canonical JSON: then the body is the text part
    look: str = ""  # what of the brand shows, as JSON
    marked: bool = False  # for a canvas, with comments around its sections


class Content(NamedTuple):
    """A compiled message; filled once for each recipient, from any thread.

    `conditions` are filters by the name under which `show` says whether they hold (`values.shown`).
    """

    subject: "Compiled"
    html: "Compiled"
    text: "Compiled"
    from_name: "Compiled"
    advice: tuple[Advice, ...] = ()
    conditions: Mapping[str, list[Any]] = {}
    links: tuple[Link, ...] = ()

    def variables(self) -> list[str]:
        """Return every merge variable in it, those that a person or a caller fills."""
        parts = (self.subject, self.html, self.text, self.from_name)
        return sorted({name for part in parts for name in part.variables if name.partition(".")[0] != "show"})


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


class Parts:
    """The bodies of a content, encoded once for all who get it; used by one thread."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._bodies: tuple[Body, Body] | None = None

    def mail(
        self, values: Mapping[str, Any], sender: Sender, message_id: int, recipient: str, date: float,
        headers: tuple[tuple[str, str], ...], shared: bytes = b"",
    ) -> Mail:  # fmt: skip
        """Make the mail of one person; raises MergeError, and ValueError for an address that no header can hold."""
        content = self._content
        address = core_addresses.ascii_form(sender.email) or sender.email
        if self._bodies is None:
            from appliance.sending.messages.body_encoding import Body

            # Not before somebody gets it: of a message to one person only one of its two forms is ever made
            self._bodies = Body(content.html), Body(content.text)
        html, text = self._bodies
        until = merge.deadline()
        return Mail(
            message_id=links.internet_message_id(message_id, address.rpartition("@")[2]),
            date=date,
            sender=(content.from_name.render(values, until) or sender.name, address),
            recipient=recipient,
            subject=content.subject.render(values, until),
            text=text.fill(values, until),
            html=html.fill(values, until),
            reply_to=core_addresses.ascii_form(sender.reply_to) or sender.reply_to if sender.reply_to else None,
            headers=headers,
            shared=shared,
            # Of what was filled just now
            is_single_spaced=text.is_single_spaced and html.is_single_spaced,
        )


def source_of(
    document: Mapping[str, Any], look: Look, locale: str = "en", marketing: bool = False, text: str | None = None
) -> Source:
    """Return what a template's fields are as a message: the one place that turns them into one."""
    design = document.get("design")
    return Source(
        subject=document["subject"] or "", body=document["body"] or "", text=text,
        preheader=document["preheader"], from_name=document["from_name"], marketing=marketing, locale=locale,
        design=designs.canonical(design) if designs.sections(design) else None,
        look=json.dumps(look, ensure_ascii=False),
    )  # fmt: skip


def _content_size(made: "Content | merge.Refused") -> int:
    if isinstance(made, merge.Refused):
        return made.size
    return sum(part.size for part in (made.subject, made.html, made.text, made.from_name))


def compile_source(source: Source) -> Content:
    """Compile a message; raises MergeError. The latest are cached."""
    made = attempt(source)
    if isinstance(made, merge.Refused):
        raise made.error.again()
    return made


@cached(LRUCache(merge.MAX_CACHED_BYTES, getsizeof=_content_size), lock=threading.Lock(), info=True)
def attempt(source: Source) -> "Content | merge.Refused":
    """Compile a message; return what it is or why it cannot be compiled. The latest are cached, refused ones too."""
    try:
        return _content(source)
    except MergeError as error:
        return merge.Refused(error.again(), sum(2 * len(text) for text in source if isinstance(text, str)))


def _content(source: Source) -> Content:
    advice: tuple[Advice, ...] = ()
    conditions: Mapping[str, list[Any]] = {}
    if source.design is None:
        html, text = _written(source)
    else:
        design, look = json.loads(source.design), Look(*json.loads(source.look))
        rendered = render.render(design, look, source.locale, source.marked)
        # A canvas shows the sections of its document alone
        if source.marketing and not source.marked and not is_signed(rendered.html):
            rendered = render.render(designs.with_footer(design), look, source.locale)
        html, advice, conditions = rendered.html, rendered.advice, rendered.conditions
        text = source.text or _beside(source.body) or rendered.text
    if source.marketing:
        html, text = with_footer(html, text)
    html = _document(html, source)
    return Content(
        merge.compile_template(source.subject, "header"),
        merge.compile_template(html, "html"),
        merge.compile_template(text, "text"),
        merge.compile_template(source.from_name, "header"),
        advice, conditions, numbered.of(html, text),
    )  # fmt: skip


def tracked(content: Content, addresses: tuple[str, ...], base: str) -> Content:
    """Return a content whose links lead through us and whose opens are told, for its addresses by their numbers."""
    html, text = _tracked(content.html.source, content.text.source, addresses, base)
    return content._replace(html=merge.compile_template(html, "html"), text=merge.compile_template(text, "text"))


def tracked_all(content: Content) -> Content:
    """Return a draft's content as `tracked` makes it once it is sent: all its links by their numbers."""
    return tracked(content, tuple(link.href for link in content.links), config.base_url(config.current()))


def _texts_size(texts: tuple[str, str]) -> int:
    return 1_000 + 2 * sum(map(len, texts))


@cached(LRUCache(merge.MAX_CACHED_BYTES, getsizeof=_texts_size), lock=threading.Lock())
def _tracked(html: str, text: str, addresses: tuple[str, ...], base: str) -> tuple[str, str]:
    return designs_links.rewritten(html, text, addresses, base)


def _written(source: Source) -> tuple[str, str]:
    """Return HTML and text of a body without sections: pasted HTML, or paragraphs."""
    merge.scan(source.body)
    if not plaintext.is_html(source.body):
        return plaintext.to_html(source.body), source.text or source.body
    from appliance.content.designs import pasted

    return pasted.clean(source.body, source.locale), source.text or plaintext.from_template(source.body)


def _beside(body: str) -> str:
    """Return the text part that stands beside sections."""
    merge.scan(body)
    return plaintext.from_template(body) if plaintext.is_html(body) else body


def _document(html: str, source: Source) -> str:
    """Make a whole document of a fragment, and put the preheader where inboxes look for it."""
    preheader = ""
    if source.preheader:
        preheader = (
            '<div style="display:none;max-height:0;overflow:hidden;opacity:0" aria-hidden="true">'
            f"{plaintext.escape(source.preheader)}{plaintext.FILLER * 40}</div>"
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
    """Fill a message for one person; raises MergeError, also where all of it together takes too long."""
    until = merge.deadline()
    return Filled(
        content.subject.render(values, until),
        content.html.render(values, until),
        content.text.render(values, until),
        content.from_name.render(values, until) or None,
    )


def lengths(document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, int]:
    """Return how many characters of subject and preview text one person gets; raises MergeError."""
    texts = {name: document.get(name) or "" for name in ("subject", "preheader")}
    return {name: len(merge.compile_template(text, "header").render(values)) for name, text in texts.items()}


def marketing_headers(message_id: int, campaign_id: int | None, list_name: str, list_id: str, domain: str,
                      account_id: int, host: str | None = None) -> tuple[tuple[str, str], ...]:  # fmt: skip
    """Return the headers of marketing mail: its own, and those it shares with all of its campaign."""
    stop = unsubscribe_header(links.unsubscribe(message_id), message_id, host)
    return (stop, *list_headers(campaign_id, list_name, list_id, domain, account_id))


def unsubscribe_header(link: str, message_id: int = 0, host: str | None = None) -> tuple[str, str]:
    """Return the way out of each message (RFC 8058, section 3), by mail too where a host of ours takes that."""
    mail = f",\r\n <mailto:{links.leave_address(message_id, host)}>" if host is not None else ""
    return "List-Unsubscribe", f"<{link}>{mail}"


def list_headers(
    campaign_id: int | None, list_name: str, list_id: str, domain: str, account_id: int
) -> tuple[tuple[str, str], ...]:
    """Return what all marketing mail of a source says: RFC 8058 (one-click), RFC 2919 (List-Id), Feedback-ID, and that
    nobody's machine shall answer (RFC 3834, section 5)."""
    headers = (
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
        ("List-Id", mime.mailbox(list_name, f"{list_id}.{domain}")),
        ("Feedback-ID", f"c{campaign_id or 0}:a{account_id}:{'campaign' if campaign_id else 'flow'}:campanero"),
        ("X-Auto-Response-Suppress", "All"),  # no holiday notes, from servers that do not go by Precedence
    )
    return headers + ((("Precedence", "bulk"),) if campaign_id else (("Auto-Submitted", "auto-generated"),))
