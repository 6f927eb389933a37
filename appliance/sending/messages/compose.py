"""Compose an email or the text of an SMS from content and values, with the same code for previews and sends."""

import json
import re
import threading
from collections.abc import Mapping, Sequence
from html import escape
from typing import Annotated, Any, Literal, NamedTuple

from cachetools import LRUCache, cached
from msgspec import Meta, Struct

from appliance.content.designs import document as designs
from appliance.content.designs import links as designs_links
from appliance.content.designs import markup, merge, merge_limits, render
from appliance.content.designs.compiled_template import CompiledTemplate
from appliance.content.designs.links import Link
from appliance.content.designs.markup import MERGE_TAG
from appliance.content.designs.merge_limits import MergeError
from appliance.content.designs.render import Advice
from appliance.content.designs.theme import Look
from appliance.core import clock
from appliance.sending.delivery import mime
from appliance.sending.messages import links
from appliance.sending.messages.ledger import Claim
from appliance.sending.sms import segments as gsm
from appliance.sending.sms.segments import MAX_CHARACTERS, MAX_PARTS, SegmentCount
from appliance.settings import config
from appliance.storage.database import scalar

# The compliance footer has what the law requires in marketing email: sender, postal address and opt-out
# (docs/decisions.md#7).

_END_OF_BODY = re.compile(r"</body\s*>", re.IGNORECASE)
_FOOTER_ADDRESS = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"

# The footer is as wide as the column of most emails; its colour has a contrast of 4.5:1 on white and on black.
_FOOTER_STYLE = (
    "max-width:600px;margin:32px auto 0;padding:0 16px;text-align:center;font:13px/1.5 sans-serif;color:#767676"
)

_ADDRESS_TAG = re.compile(r"\{\{-?\s*brand\.physical_address\s*(?:\||-?\}\})")
_UNSUBSCRIBE_TAG = re.compile(r"\{\{-?\s*unsubscribe_url\s*-?\}\}")
# A postal address within a condition on itself counts as always shown.
_ADDRESS_CONDITION = re.compile(r"\{%-?\s*if\s+brand\.physical_address\s*-?%\}")
_TAG_NAME = re.compile(r"\{%-?\s*(\w+)")
_BLOCK_TAGS = ("if", "unless", "case", "for", "comment", "raw")


def add_footer(html: str, text: str) -> tuple[str, str]:
    """Append postal address and unsubscribe link where the author left them out."""
    lines = _find_missing_lines(html, '<a href="{{ unsubscribe_url }}" style="color:inherit">Unsubscribe</a>')
    if lines:
        block = f'<p style="{_FOOTER_STYLE}">{"<br>".join(lines)}</p>'
        ends = list(_END_OF_BODY.finditer(html))
        html = f"{html[: ends[-1].start()]}{block}{html[ends[-1].start() :]}" if ends else f"{html}\n{block}"
    lines = _find_missing_lines(text, "Unsubscribe: {{ unsubscribe_url }}")
    if lines:
        text = text.rstrip() + "\n\n-- \n" + "\n".join(lines) + "\n"
    return html, text


def has_footer(html: str) -> bool:
    """Return whether every recipient of a template sees the postal address and the unsubscribe link."""
    return not _find_missing_lines(html, "")


def _find_missing_lines(source: str, unsubscribe: str) -> list[str]:
    """Return the lines that a template lacks; a line that only some recipients see counts as lacking."""
    lines = ((_ADDRESS_TAG, True, _FOOTER_ADDRESS), (_UNSUBSCRIBE_TAG, False, unsubscribe))
    return [
        line for pattern, allows_condition, line in lines if not _is_always_shown(source, pattern, allows_condition)
    ]


def _is_always_shown(source: str, pattern: re.Pattern[str], allows_condition: bool) -> bool:
    """Return whether every recipient sees a value: comments, conditions and loops do not count."""
    if not pattern.search(source):
        return False
    return pattern.search(markup.mask_comments(_strip_conditionals(source, allows_condition))) is not None


def _strip_conditionals(source: str, allows_condition: bool) -> str:
    """Return a template without its conditions and loops and what they contain."""
    parts: list[str] = []
    inside: list[str] = []
    position = 0
    for tag in MERGE_TAG.finditer(source):
        word = _TAG_NAME.match(tag[0])
        if word is None:
            continue
        if all(block == "address_condition" for block in inside):
            parts.append(source[position : tag.start()])
        position = tag.end()
        _follow_tag(inside, word[1], tag[0], allows_condition)
    if not inside:
        parts.append(source[position:])
    return "".join(parts)


def _follow_tag(inside: list[str], word: str, tag: str, allows_condition: bool) -> None:
    """Update the list of open blocks by one tag."""
    block = inside[-1] if inside else ""
    if block in ("comment", "raw"):
        if word == f"end{block}":
            inside.pop()
    elif word in _BLOCK_TAGS:
        inside.append("address_condition" if allows_condition and _ADDRESS_CONDITION.fullmatch(tag) else word)
    elif word.startswith("end") and inside:
        inside.pop()
    elif block == "address_condition":
        inside[-1] = "if"  # the part after `else` is for the other recipients


_END_OF_HEAD = re.compile(r"</head\s*>", re.IGNORECASE)
_START_OF_BODY = re.compile(r"<body[^<>]*>", re.IGNORECASE)
_START_OF_HTML = re.compile(r"<html[^<>]*>", re.IGNORECASE)


class MessageSource(NamedTuple):
    """The content of a message before it is compiled."""

    subject: str
    body: str
    text: str | None = None
    preheader: str | None = None
    from_name: str | None = None
    marketing: bool = False
    locale: str = "en"
    design: str | None = None  # a document with sections, as canonical JSON: then the body is the text part
    look: str = ""  # the visible part of the brand, as JSON
    marked: bool = False  # with comments around its sections, for the editor's canvas


class CompiledMessage(NamedTuple):
    """A compiled message; filled once for each recipient, from any thread.

    `conditions` are filters, by the name under which `show` tells whether they hold (`merge_tags.get_show_values`).
    """

    subject: CompiledTemplate
    html: CompiledTemplate
    text: CompiledTemplate
    from_name: CompiledTemplate
    advice: tuple[Advice, ...] = ()
    conditions: Mapping[str, list[Any]] = {}
    links: tuple[Link, ...] = ()

    def variables(self) -> list[str]:
        """Return every merge variable in it that a contact or a caller fills."""
        parts = (self.subject, self.html, self.text, self.from_name)
        return sorted({name for part in parts for name in part.variables if name.partition(".")[0] != "show"})


class Sender(NamedTuple):
    """The sender of a message, and the address for replies."""

    email: str
    name: str | None
    reply_to: str | None


class FilledMessage(NamedTuple):
    """A message as one recipient gets it."""

    subject: str
    html: str
    text: str
    from_name: str | None


def build_source(
    document: Mapping[str, Any], look: Look, locale: str = "en", marketing: bool = False, text: str | None = None
) -> MessageSource:
    """Return the source of a message from a template's fields; all messages are built here."""
    design = document.get("design")
    return MessageSource(
        subject=document["subject"] or "", body=document["body"] or "", text=text,
        preheader=document["preheader"], from_name=document["from_name"], marketing=marketing, locale=locale,
        design=designs.to_canonical_json(design) if designs.get_sections(design) else None,
        look=json.dumps(look, ensure_ascii=False),
    )  # fmt: skip


def _get_compiled_size(compiled: "CompiledMessage | merge.RefusedTemplate") -> int:
    if isinstance(compiled, merge.RefusedTemplate):
        return compiled.size
    return sum(part.size for part in (compiled.subject, compiled.html, compiled.text, compiled.from_name))


def compile_message(source: MessageSource) -> CompiledMessage:
    """Compile a message; raises MergeError. The latest are cached."""
    compiled = try_compile(source)
    if isinstance(compiled, merge.RefusedTemplate):
        raise compiled.error.copy()
    return compiled


class PreparedMessage(NamedTuple):
    """A message that was compiled outside of the write transaction, where compiling would keep other writers waiting.

    The write compiles it anew only if its source has changed by then.
    """

    source: MessageSource | None = None
    compiled: "CompiledMessage | merge.RefusedTemplate | None" = None

    def compile(self, source: MessageSource) -> "CompiledMessage":
        """Return the compiled message of a source; raises MergeError."""
        compiled = self.compiled if source == self.source else None
        if isinstance(compiled, merge.RefusedTemplate):
            raise compiled.error.copy()
        return compiled or compile_message(source)


NOT_PREPARED = PreparedMessage()


def prepare_message(source: MessageSource) -> PreparedMessage:
    """Compile a message for a later write, which raises the error if there is one."""
    return PreparedMessage(source, try_compile(source))


@cached(LRUCache(merge_limits.MAX_CACHED_BYTES, getsizeof=_get_compiled_size), lock=threading.Lock(), info=True)
def try_compile(source: MessageSource) -> "CompiledMessage | merge.RefusedTemplate":
    """Compile a message and return it, or the error. The latest are cached, errors too."""
    try:
        return _compile(source)
    except MergeError as error:
        return merge.RefusedTemplate(error.copy(), sum(2 * len(text) for text in source if isinstance(text, str)))


def _compile(source: MessageSource) -> CompiledMessage:
    advice: tuple[Advice, ...] = ()
    conditions: Mapping[str, list[Any]] = {}
    if source.design is None:
        html, text = _render_body(source)
    else:
        design, look = json.loads(source.design), Look(*json.loads(source.look))
        rendered = render.render_design(design, look, source.locale, source.marked)
        # A canvas shows only the sections of its document.
        if source.marketing and not source.marked and not has_footer(rendered.html):
            rendered = render.render_design(designs.add_footer(design), look, source.locale)
        html, advice, conditions = rendered.html, rendered.advice, rendered.conditions
        text = source.text or _get_text_part(source.body) or rendered.text
    if source.marketing:
        html, text = add_footer(html, text)
    html = _wrap_document(html, source)
    return CompiledMessage(
        merge.compile_template(source.subject, "header"),
        merge.compile_template(html, "html"),
        merge.compile_template(text, "text"),
        merge.compile_template(source.from_name, "header"),
        advice, conditions, designs_links.find_links(html, text),
    )  # fmt: skip


def track_links(content: CompiledMessage, addresses: tuple[str, ...], base: str) -> CompiledMessage:
    """Return a message whose numbered links lead through the tracking host, and whose opens are counted."""
    html, text = _rewrite_links(content.html.source, content.text.source, addresses, base)
    return content._replace(html=merge.compile_template(html, "html"), text=merge.compile_template(text, "text"))


def track_all_links(content: CompiledMessage) -> CompiledMessage:
    """Return a draft with tracked links, numbered as they will be once it is sent."""
    return track_links(content, tuple(link.href for link in content.links), config.base_url(config.current()))


def _get_texts_size(texts: tuple[str, str]) -> int:
    return 1_000 + 2 * sum(map(len, texts))


@cached(LRUCache(merge_limits.MAX_CACHED_BYTES, getsizeof=_get_texts_size), lock=threading.Lock())
def _rewrite_links(html: str, text: str, addresses: tuple[str, ...], base: str) -> tuple[str, str]:
    return designs_links.rewrite_links(html, text, addresses, base)


def _render_body(source: MessageSource) -> tuple[str, str]:
    """Return HTML and text of a body without sections: pasted HTML, or paragraphs."""
    merge_limits.scan_tags(source.body)
    if not markup.is_html(source.body):
        return markup.text_to_html(source.body), source.text or source.body
    from appliance.content.designs import sanitizer

    return sanitizer.clean_document(source.body, source.locale), source.text or markup.html_template_to_text(
        source.body
    )


def _get_text_part(body: str) -> str:
    """Return the text part of a message with sections."""
    merge_limits.scan_tags(body)
    return markup.html_template_to_text(body) if markup.is_html(body) else body


def _wrap_document(html: str, source: MessageSource) -> str:
    """Return a fragment as a whole document, with the preheader where inboxes look for it."""
    preheader = ""
    if source.preheader:
        preheader = (
            '<div style="display:none;max-height:0;overflow:hidden;opacity:0" aria-hidden="true">'
            f"{markup.escape_text(source.preheader)}{markup.PREVIEW_FILLER * 40}</div>"
        )
    start = _START_OF_BODY.search(html) or _END_OF_HEAD.search(html) or _START_OF_HTML.search(html)
    if start is not None:
        return html[: start.end()] + preheader + html[start.end() :]
    return (
        f'<!doctype html>\n<html lang="{source.locale}">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>\n'
        f'<body style="margin:0;padding:16px;font:16px/1.5 sans-serif">{preheader}\n{html}\n</body>\n</html>\n'
    )


def fill(content: CompiledMessage, values: Mapping[str, Any]) -> FilledMessage:
    """Fill a message for one recipient; raises MergeError, also if all of it together takes too long."""
    until = merge_limits.render_deadline()
    return FilledMessage(
        content.subject.render(values, until),
        content.html.render(values, until),
        content.text.render(values, until),
        content.from_name.render(values, until) or None,
    )


def measure_lengths(document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, int]:
    """Return the lengths of subject and preview text, in characters, for one recipient; raises MergeError."""
    texts = {name: document.get(name) or "" for name in ("subject", "preheader")}
    return {name: len(merge.compile_template(text, "header").render(values)) for name, text in texts.items()}


def build_marketing_headers(message_id: int, campaign_id: int | None, list_name: str, list_id: str, domain: str,
                      account_id: int, host: str | None = None) -> tuple[tuple[str, str], ...]:  # fmt: skip
    """Return the headers of marketing email: its own, and those that it shares with its campaign."""
    stop = build_unsubscribe_header(links.build_unsubscribe_url(message_id), message_id, host)
    return (stop, *build_list_headers(campaign_id, list_name, list_id, domain, account_id))


def build_unsubscribe_header(link: str, message_id: int = 0, host: str | None = None) -> tuple[str, str]:
    """Return the List-Unsubscribe header (RFC 8058, section 3), with a mailto address if `host` receives email."""
    mail = f",\r\n <mailto:{links.build_unsubscribe_address(message_id, host)}>" if host is not None else ""
    return "List-Unsubscribe", f"<{link}>{mail}"


def build_list_headers(
    campaign_id: int | None, list_name: str, list_id: str, domain: str, account_id: int
) -> tuple[tuple[str, str], ...]:
    """Return the headers that all marketing email of a source shares.

    RFC 8058 (one-click), RFC 2919 (List-Id), Feedback-ID, and headers against automatic replies (RFC 3834, section 5).
    """
    headers = (
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
        ("List-Id", mime.format_mailbox(list_name, f"{list_id}.{domain}")),
        ("Feedback-ID", f"c{campaign_id or 0}:a{account_id}:{'campaign' if campaign_id else 'flow'}:campanero"),
        ("X-Auto-Response-Suppress", "All"),  # for servers that send vacation notices despite Precedence
    )
    return headers + ((("Precedence", "bulk"),) if campaign_id else (("Auto-Submitted", "auto-generated"),))


# The text of an SMS is filled for one recipient and followed by the opt-out hint, for previews and sends alike. It is
# written in the merge language, without escaping of values. Its links are numbered like the links of email, and lead
# through the tracking host if clicks are counted, which also shortens long addresses.


class SmsText(NamedTuple):
    """An SMS as one recipient gets it."""

    body: str
    size: SegmentCount
    has_opt_out_hint: bool

    def find_problem(self) -> str | None:
        """Return why the SMS cannot be sent, or None."""
        if not self.body.strip():
            return "it says nothing"
        if self.size.characters > MAX_CHARACTERS:
            return f"it is too long (maximum is {MAX_CHARACTERS} characters)"
        if self.size.parts > MAX_PARTS:
            return f"it takes {self.size.parts} parts (maximum is {MAX_PARTS})"
        return None


class ForcingCharacter(Struct):
    """The first character that GSM-7 lacks, and its name."""

    character: Annotated[str, Meta(description="character")]
    name: Annotated[str, Meta(description="Unicode name of the character")]


class SmsPreview(Struct):
    """A preview of an SMS: its cost, its alphabet, and the character that forces UCS-2.

    `left` is the number of units that still fit into the last part; `problem` is why it cannot be sent.
    """

    body: Annotated[str, Meta(description="text as it would arrive")]
    segments: int
    alphabet: Annotated[Literal["GSM-7", "UCS-2"], Meta(description="alphabet of the SMS")]
    characters: Annotated[int, Meta(description="number of characters")]
    units: Annotated[int, Meta(description="number of units of the alphabet")]
    left: Annotated[int, Meta(description="number of units left in the last part")]
    forcing: (
        Annotated[
            ForcingCharacter, Meta(description="character that requires the larger alphabet; null if there is none")
        ]
        | None
    )
    problem: Annotated[str, Meta(description="problem; null if there is none")] | None


def compile_sms(body: str | None, addresses: Sequence[str] | None = None) -> CompiledTemplate:
    """Compile the text of an SMS; raises MergeError. Links to `addresses` are tracked, numbered by their position."""
    source = body or ""
    if addresses:
        merge_limits.scan_tags(source)
        source = designs_links.rewrite_links("", source, addresses, config.base_url(config.current()))[1]
    return merge.compile_template(source, "text")


def find_sms_links(body: str | None) -> tuple[Link, ...]:
    """Return the links of an SMS, each address once; raises MergeError."""
    merge_limits.scan_tags(body or "")
    return designs_links.find_links("", body or "")


def fill_sms(
    body: CompiledTemplate, values: Mapping[str, Any], hint: str | None = None, is_due: bool = True
) -> SmsText:
    """Fill an SMS for one recipient; raises MergeError.

    The opt-out hint, in the merge language too, is appended if it is due and not in the text already.
    """
    until = merge_limits.render_deadline()
    text, has_hint = body.render(values, until), False
    hint_text = merge.compile_template(hint, "text").render(values, until).strip() if hint else ""
    if hint_text and text.strip():
        has_hint = _normalize_words(hint_text) in _normalize_words(text)
        if is_due and not has_hint:
            separator = "\n" if "\n" in text.strip() else " "
            text, has_hint = f"{text.rstrip()}{separator}{hint_text}", True
    if config.current().sms.plain_quotes:
        text = gsm.replace_typography(text)
    return SmsText(text, gsm.count_segments(text), has_hint)


def _normalize_words(text: str) -> str:
    return " ".join(text.casefold().split())


def describe_sms(sms: SmsText) -> SmsPreview:
    """Return the preview of an SMS."""
    counted = sms.size
    forcing = (
        None
        if counted.forcing_character is None
        else ForcingCharacter(counted.forcing_character, gsm.character_name(counted.forcing_character))
    )
    return SmsPreview(
        sms.body, counted.parts, counted.alphabet, counted.characters, counted.units, counted.remaining_units, forcing,
        sms.find_problem(),
    )  # fmt: skip


def render_sms_page(body: str) -> str:
    """Return an SMS as an HTML page."""
    return (
        '<!doctype html>\n<html><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>\n'
        f'<body style="margin:16px;font:16px/1.5 sans-serif">'
        f'<p dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere">{escape(body)}</p></body>'
        "</html>\n"
    )


def build_link_tokens(message_id: int = 0) -> dict[str, Any]:
    """Return the values for tracked links of a message; without one, links of that length that lead nowhere."""
    return {designs_links.TRACK_ROOT: {"click": links.build_click_token(message_id)}}


# A marketing SMS has the opt-out hint each time, or the first time and then once in thirty days.

_HINT_INTERVAL_MS = 30 * 86_400_000


def is_hint_due(claim: Claim, sent_at: int | None = None) -> bool:
    """Return whether a message must have the opt-out hint; with `sent_at`, whether it had to when it was sent."""
    if config.current().sms.opt_out_hint == "always":
        return True
    last = scalar(
        "SELECT opt_out_hint_sent_at FROM channel WHERE account_id = ? AND kind = 'phone' AND key = ?",
        (claim.account_id, claim.recipient_key),
    )
    if last is None or (sent_at is not None and last == sent_at):
        return True
    # The time is that of the first attempt, so that a retry has the same text.
    return is_hint_interval_over(last, claim.first_attempt_at or clock.now_ms())


def is_hint_interval_over(opt_out_hint_sent_at: int | None, now: int) -> bool:
    """Return whether the opt-out hint is due again for a number at a time (ms)."""
    return (
        config.current().sms.opt_out_hint == "always"
        or opt_out_hint_sent_at is None
        or int(opt_out_hint_sent_at) <= now - _HINT_INTERVAL_MS
    )
