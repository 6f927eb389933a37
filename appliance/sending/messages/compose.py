"""Compile the content of an email or SMS and fill it with the values of one recipient, for previews and sends alike."""

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
from appliance.content.designs import markup, merge, merge_limits, render, sanitizer
from appliance.content.designs.compiled_template import CompiledTemplate
from appliance.content.designs.links import Link
from appliance.content.designs.merge_limits import MergeError
from appliance.content.designs.render import Advice
from appliance.content.designs.theme import Look
from appliance.content.designs.utm import LinkTagger
from appliance.core import recipient_texts
from appliance.core.errors import Unavailable
from appliance.core.i18n import DEFAULT_LANGUAGE, gettext
from appliance.core.limited_process import WouldWait
from appliance.sending.delivery import mime
from appliance.sending.messages import links
from appliance.sending.sms import segments as gsm
from appliance.sending.sms.segments import MAX_CHARACTERS, MAX_PARTS, SegmentCount
from appliance.settings import config

# The compliance footer contains what the law requires in marketing email: sender, postal address and unsubscribe link
# (docs/decisions.md#7).

_END_OF_BODY = re.compile(r"</body\s*>", re.IGNORECASE)
_FOOTER_ADDRESS = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"
_FOOTER_HTML_ADDRESS = _FOOTER_ADDRESS.replace("physical_address }}", "physical_address | newline_to_br }}")

# The footer is as wide as most emails; its colour has a contrast of 4.5:1 on white and on black.
_FOOTER_STYLE = (
    "max-width:600px;margin:32px auto 0;padding:0 16px;text-align:center;font:13px/1.5 sans-serif;color:#767676"
)

_ADDRESS_TAG = re.compile(r"\{\{-?\s*brand\.physical_address\s*(?:\||-?\}\})")
_UNSUBSCRIBE_TAG = re.compile(r"\{\{-?\s*unsubscribe_url\s*-?\}\}")
# A postal address inside this condition counts as always shown.
_ADDRESS_CONDITION = re.compile(r"\{%-?\s*if\s+brand\.physical_address\s*-?%\}")
# A design without any of these words in its JSON has no unsubscribe link: they are in sections of the kind, in those
# that are recognised as footers by their properties, and in merge tags.
_FOOTER_WORDS = ("footer", "unsubscribe", "company_name", '"address"')
_BLOCK_TAGS = ("if", "unless", "case", "for", "raw")


def add_footer(html: str, text: str, locale: str = "en", texts: str | None = None) -> tuple[str, str]:
    """Return (HTML, text) of a template with postal address and unsubscribe link added where they are missing.

    `texts` is the language of the link's label if it differs from the locale's.
    """
    label = recipient_texts.get_texts(texts or recipient_texts.language_of_locale(locale))["leave_title"]
    lang = recipient_texts.get_lang_attribute(texts)
    lines = _find_missing_lines(
        html, _FOOTER_HTML_ADDRESS, f'<a href="{{{{ unsubscribe_url }}}}" style="color:inherit"{lang}>{label}</a>'
    )
    if lines:
        block = f'<p style="{_FOOTER_STYLE}">{"<br>".join(lines)}</p>'
        ends = list(_END_OF_BODY.finditer(html))
        html = f"{html[: ends[-1].start()]}{block}{html[ends[-1].start() :]}" if ends else f"{html}\n{block}"
    lines = _find_missing_lines(text, _FOOTER_ADDRESS, f"{label}: {{{{ unsubscribe_url }}}}")
    if lines:
        text = text.rstrip() + "\n\n-- \n" + "\n".join(lines) + "\n"
    return html, text


def has_footer(html: str) -> bool:
    """Return whether every recipient of a template sees the postal address and the unsubscribe link."""
    return not _find_missing_lines(html, "", "")


def _may_have_footer(design: str, look: str) -> bool:
    """Return whether a design may have an unsubscribe link; if not, it need not be rendered to add a footer to it.

    `design` and `look` are the JSON of both.
    """
    return any(word in text.lower() for text in (design, look) for word in _FOOTER_WORDS)


def _find_missing_lines(source: str, address: str, unsubscribe: str) -> list[str]:
    """Return the lines of the footer that a template lacks, out of its two lines `address` and `unsubscribe`.

    A line that only some recipients see counts as missing.
    """
    lines = ((_ADDRESS_TAG, True, address), (_UNSUBSCRIBE_TAG, False, unsubscribe))
    return [
        line for pattern, allows_condition, line in lines if not _is_always_shown(source, pattern, allows_condition)
    ]


def _is_always_shown(source: str, pattern: re.Pattern[str], allows_condition: bool) -> bool:
    """Return whether a tag that matches `pattern` is in a template outside of comments, conditions and loops.

    With `allows_condition`, it may be inside `{% if brand.physical_address %}`.
    """
    if not pattern.search(source):
        return False
    return pattern.search(markup.mask_comments(_strip_conditionals(source, allows_condition))) is not None


def _strip_conditionals(source: str, allows_condition: bool) -> str:
    """Return a template without conditions, loops, `raw` blocks, comments and their content.

    With `allows_condition`, the content of `{% if brand.physical_address %}` is kept.
    """
    parts: list[str] = []
    inside: list[str] = []
    position = 0
    for tag in markup.find_tags(source):
        if not tag.name:
            continue
        if all(block == "address_condition" for block in inside):
            parts.append(source[position : tag.start])
        position = tag.end
        _follow_tag(inside, tag.name, source[tag.start : tag.end], allows_condition)
    if not inside:
        parts.append(source[position:])
    return "".join(parts)


def _follow_tag(inside: list[str], word: str, tag: str, allows_condition: bool) -> None:
    """Update `inside`, the names of the open blocks, for the tag `tag` with the name `word`."""
    block = inside[-1] if inside else ""
    if word in _BLOCK_TAGS:
        inside.append("address_condition" if allows_condition and _ADDRESS_CONDITION.fullmatch(tag) else word)
    elif word.startswith("end") and inside:
        inside.pop()
    elif block == "address_condition":
        inside[-1] = "if"  # The part after `else` is shown if there is no address.


_END_OF_HEAD = re.compile(r"</head\s*>", re.IGNORECASE)
_START_OF_BODY = re.compile(r"<body[^<>]*>", re.IGNORECASE)
_START_OF_HTML = re.compile(r"<html[^<>]*>", re.IGNORECASE)


class MessageSource(NamedTuple):
    """The content of an email before it is compiled, which is also the key of the cache of compiled emails."""

    subject: str
    body: str
    text: str | None = None
    preheader: str | None = None
    from_name: str | None = None
    marketing: bool = False
    locale: str = "en"
    design: str | None = None  # a design with sections, as canonical JSON; then the body is the text part
    look: str = ""  # the `Look` of the brand, as JSON
    marked: bool = False  # whether HTML comments surround its sections, for the editor's canvas
    texts: str | None = None  # the language of the product's texts if it is not that of `locale`


class CompiledMessage(NamedTuple):
    """A compiled email, which `fill` fills for each recipient, from any thread.

    `conditions` are the filters of sections that only some contacts see, by key. The merge variable `show.<key>` is
    true if the contact matches (`section_conditions.get_show_values`).
    """

    subject: CompiledTemplate
    html: CompiledTemplate
    text: CompiledTemplate
    from_name: CompiledTemplate
    advice: tuple[Advice, ...] = ()
    conditions: Mapping[str, list[Any]] = {}
    links: tuple[Link, ...] = ()

    def variables(self) -> list[str]:
        """Return the sorted names of all merge variables, without the conditions of sections (`show.<key>`)."""
        parts = (self.subject, self.html, self.text, self.from_name)
        return sorted({name for part in parts for name in part.variables if name.partition(".")[0] != "show"})


class Sender(NamedTuple):
    """The sender of an email: From address, From name, and Reply-To address."""

    email: str
    name: str | None
    reply_to: str | None


class NotCompiled(Unavailable):
    """An email that must be compiled on another thread first (`limited_process.forbid_waiting`)."""

    def __init__(self, source: MessageSource, error: Unavailable) -> None:
        super().__init__(error.message, error.code, error.retry_after)
        self.source = source


class FilledMessage(NamedTuple):
    """An email with the values of one recipient."""

    subject: str
    html: str
    text: str
    from_name: str | None


def build_source(
    document: Mapping[str, Any], look: Look, locale: str = "en", marketing: bool = False, text: str | None = None
) -> MessageSource:
    """Return the source of an email from the fields of a template.

    `marketing` adds the compliance footer. `text` is the text part, by default made from body or design.
    """
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
    """Return the compiled email of a source, from the cache if possible; raises MergeError if it does not compile.

    Raises Unavailable if its HTML cannot be sanitized now: NotCompiled on a thread that must not wait for that.
    """
    try:
        compiled = try_compile(source)
    except WouldWait as error:
        raise NotCompiled(source, error) from None
    if isinstance(compiled, merge.RefusedTemplate):
        raise compiled.error.copy()
    return compiled


class PreparedMessage(NamedTuple):
    """An email that was compiled before a write transaction, because compiling in it would keep other writers waiting.

    `compiled` is the message or its error. The transaction compiles again only if the source has changed meanwhile.
    """

    source: MessageSource | None = None
    compiled: "CompiledMessage | merge.RefusedTemplate | None" = None

    def compile(self, source: MessageSource) -> "CompiledMessage":
        """Return the compiled email of a source, from this object if it was prepared from the same source.

        Raises MergeError if the email does not compile.
        """
        compiled = self.compiled if source == self.source else None
        if isinstance(compiled, merge.RefusedTemplate):
            raise compiled.error.copy()
        return compiled or compile_message(source)


NOT_PREPARED = PreparedMessage()


def prepare_message(source: MessageSource) -> PreparedMessage:
    """Compile an email for a later write transaction; an error is kept, and raised by `PreparedMessage.compile`.

    Raises Unavailable.
    """
    return PreparedMessage(source, try_compile(source))


@cached(LRUCache(merge_limits.MAX_CACHED_BYTES, getsizeof=_get_compiled_size), lock=threading.Lock(), info=True)
def try_compile(source: MessageSource) -> "CompiledMessage | merge.RefusedTemplate":
    """Return the compiled email of a source, or its error; both are cached. Raises Unavailable."""
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
        # A canvas shows only the sections of its document.
        needs_footer = source.marketing and not source.marked
        if needs_footer and not _may_have_footer(source.design, source.look):
            design, needs_footer = designs.add_footer(design), False
        rendered = render.render_design(design, look, source.locale, source.marked, source.texts)
        if needs_footer and not has_footer(rendered.html):
            rendered = render.render_design(
                designs.add_footer(design), look, source.locale, texts_language=source.texts
            )
        html, advice, conditions = rendered.html, rendered.advice, rendered.conditions
        text = source.text or _get_text_part(source.body) or rendered.text
    if source.marketing:
        html, text = add_footer(html, text, source.locale, source.texts)
    if source.preheader:
        # Alone, so that it cannot begin a merge tag or block that ends in the body.
        merge.compile_template(source.preheader, "text")
    html = _wrap_document(html, source)
    return CompiledMessage(
        merge.compile_template(source.subject, "header", source.locale),
        merge.compile_template(html, "html", source.locale),
        merge.compile_template(text, "text", source.locale),
        merge.compile_template(source.from_name, "header"),
        advice, conditions, designs_links.find_links(html, text),
    )  # fmt: skip


def track_links(content: CompiledMessage, addresses: tuple[str, ...], base: str) -> CompiledMessage:
    """Return an email with tracked links and a tracking pixel.

    `addresses` are the URLs to track, in the order of their link numbers. The tracked links lead through `base`, the
    base URL of the account.
    """
    html, text = _rewrite_links(content.html.source, content.text.source, addresses, base)
    return content._replace(
        html=merge.compile_template(html, "html", content.html.language),
        text=merge.compile_template(text, "text", content.text.language),
    )


def tag_links(content: CompiledMessage, tagger: LinkTagger | None) -> CompiledMessage:
    """Return an email with UTM parameters in its links, before they are tracked; without a tagger the same email."""
    if tagger is None:
        return content
    html, text = _tag_links(content.html.source, content.text.source, tagger)
    return content._replace(
        html=merge.compile_template(html, "html", content.html.language),
        text=merge.compile_template(text, "text", content.text.language),
        links=designs_links.find_links(html, text),
    )


def track_all_links(content: CompiledMessage, base_url: str) -> CompiledMessage:
    """Return an email with all its links tracked, numbered as when it is sent; for drafts."""
    return track_links(content, tuple(link.href for link in content.links), base_url)


def _get_texts_size(texts: tuple[str, str]) -> int:
    return 1_000 + 2 * sum(map(len, texts))


@cached(LRUCache(merge_limits.MAX_CACHED_BYTES, getsizeof=_get_texts_size), lock=threading.Lock())
def _rewrite_links(html: str, text: str, addresses: tuple[str, ...], base: str) -> tuple[str, str]:
    return designs_links.rewrite_links(html, text, addresses, base)


@cached(LRUCache(merge_limits.MAX_CACHED_BYTES, getsizeof=_get_texts_size), lock=threading.Lock())
def _tag_links(html: str, text: str, tagger: LinkTagger) -> tuple[str, str]:
    return tagger.tag_message(html, text)


def _render_body(source: MessageSource) -> tuple[str, str]:
    """Return (HTML, text) of an email without a design, whose body is HTML or plain text.

    Raises MergeError if a merge tag of the body is invalid.
    """
    merge_limits.scan_tags(source.body)
    if not source.body and source.text:
        merge_limits.scan_tags(source.text)
        return markup.text_to_html(source.text), source.text
    if not markup.is_html(source.body):
        return markup.text_to_html(source.body), source.text or source.body
    html = sanitizer.clean_document(source.body, source.locale)
    return html, source.text or markup.html_template_to_text(source.body)


def _get_text_part(body: str) -> str:
    """Return the text part that the body of an email with a design contains, empty if there is none.

    Raises MergeError if a merge tag of the body is invalid.
    """
    merge_limits.scan_tags(body)
    return markup.html_template_to_text(body) if markup.is_html(body) else body


def _wrap_document(html: str, source: MessageSource) -> str:
    """Return HTML as a whole document, with the preheader at the start of its body, where inboxes look for it."""
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


def fill(content: CompiledMessage, values: Mapping[str, Any], until: float | None = None) -> FilledMessage:
    """Return an email with the values of one recipient.

    `until` is the deadline in processor time of this thread, by default `merge_limits.render_deadline()`. Raise
    MergeError if a value cannot be filled in, or if all parts together take too long.
    """
    until = merge_limits.render_deadline() if until is None else until
    return FilledMessage(
        content.subject.render(values, until),
        content.html.render(values, until),
        content.text.render(values, until),
        content.from_name.render(values, until) or None,
    )


def measure_lengths(document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, int]:
    """Return the lengths in characters of `subject` and `preheader`, filled for one recipient.

    Raises MergeError if they cannot be compiled or filled.
    """
    texts = {name: document.get(name) or "" for name in ("subject", "preheader")}
    return {name: len(merge.compile_template(text, "header").render(values)) for name, text in texts.items()}


def build_marketing_headers(
    base_url: str, message_id: int, campaign_id: int | None, list_name: str, list_id: str, domain: str, account_id: int,
    host: str | None = None,
) -> tuple[tuple[str, str], ...]:  # fmt: skip
    """Return the headers of a marketing email, from `build_unsubscribe_header` and `build_list_headers`.

    `base_url` is that of the account. `list_id` and `domain` form the List-Id. `host` is the domain that receives
    unsubscribe emails (None: no such domain).
    """
    stop = build_unsubscribe_header(links.build_unsubscribe_url(base_url, message_id), message_id, host)
    return (stop, *build_list_headers(campaign_id, list_name, list_id, domain, account_id))


def build_unsubscribe_header(link: str, message_id: int = 0, host: str | None = None) -> tuple[str, str]:
    """Return the List-Unsubscribe header (RFC 2369 and 8058) as (name, value).

    It contains the URL `link` and, if `host` is given, a mailto address at this host with a signed `message_id`.
    """
    mail = f",\r\n <mailto:{links.build_unsubscribe_address(message_id, host)}>" if host is not None else ""
    return "List-Unsubscribe", f"<{link}>{mail}"


def build_list_headers(
    campaign_id: int | None, list_name: str, list_id: str, domain: str, account_id: int
) -> tuple[tuple[str, str], ...]:
    """Return the headers that all marketing emails of a campaign or flow share; `campaign_id` is None for a flow.

    They are List-Unsubscribe-Post (RFC 8058, one-click), List-Id (RFC 2919), Feedback-ID, and headers against automatic
    replies (RFC 3834, section 5).
    """
    headers = (
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
        ("List-Id", mime.format_mailbox(list_name, f"{list_id}.{domain}")),
        ("Feedback-ID", f"c{campaign_id or 0}:a{account_id}:{'campaign' if campaign_id else 'flow'}:campanero"),
        ("X-Auto-Response-Suppress", "All"),  # For servers that send vacation notices in spite of Precedence.
    )
    return headers + ((("Precedence", "bulk"),) if campaign_id else (("Auto-Submitted", "auto-generated"),))


# The text of an SMS is filled for one recipient and followed by the opt-out hint, in previews and sends alike. Values
# are not escaped. Its links are numbered like those of emails, and lead through the service if clicks are counted,
# which also shortens long URLs.


class SmsText(NamedTuple):
    """An SMS with the values of one recipient, its number of parts, and whether it contains the opt-out hint."""

    body: str
    size: SegmentCount
    has_opt_out_hint: bool

    def find_problem(self) -> str | None:
        """Return why the text cannot be sent (it is empty or too long), or None."""
        if not self.body.strip():
            return gettext("the text is empty")
        if self.size.characters > MAX_CHARACTERS:
            return gettext("the text is too long (maximum is %(limit)s characters)", limit=MAX_CHARACTERS)
        if self.size.parts > MAX_PARTS:
            return gettext(
                "the text takes %(parts)s parts (maximum is %(limit)s)", parts=self.size.parts, limit=MAX_PARTS
            )
        return None


class ForcingCharacter(Struct):
    """The first character of a text that is not in the GSM-7 alphabet, and its Unicode name."""

    character: Annotated[str, Meta(description="character")]
    name: Annotated[str, Meta(description="Unicode name of the character")]


class SmsPreview(Struct):
    """A preview of an SMS: its number of parts, its alphabet, and the character that forces UCS-2.

    `left` is the number of units that still fit into the last part. `problem` says why the SMS cannot be sent.
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


def compile_sms(
    body: str | None, addresses: Sequence[str] | None = None, language: str = DEFAULT_LANGUAGE, base_url: str = ""
) -> CompiledTemplate:
    """Compile the text of an SMS, which is in `language`; raises MergeError if a merge tag is invalid.

    `addresses` are the URLs to track, in the order of their link numbers; they need `base_url`, that of the account.
    Without addresses, links are left as they are.
    """
    source = body or ""
    if addresses:
        assert base_url, "tracked links begin with the base URL of the account"
        merge_limits.scan_tags(source)
        source = designs_links.rewrite_links("", source, addresses, base_url)[1]
    return merge.compile_template(source, "text", language)


def find_sms_links(body: str | None) -> tuple[Link, ...]:
    """Return the links of an SMS, each URL once; raises MergeError if a merge tag is invalid."""
    merge_limits.scan_tags(body or "")
    return designs_links.find_links("", body or "")


def fill_sms(
    body: CompiledTemplate, values: Mapping[str, Any], hint: str | None = None, is_due: bool = True
) -> SmsText:
    """Return an SMS with the values of one recipient; raises MergeError if a value cannot be filled in.

    The opt-out hint, which may have merge tags, is appended if `is_due`, unless the text contains it or is empty.
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
    """Return the preview of a filled SMS."""
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
    """Return the text of an SMS as an HTML page, escaped."""
    return (
        '<!doctype html>\n<html><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>\n'
        f'<body style="margin:16px;font:16px/1.5 sans-serif">'
        f'<p dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere">{escape(body)}</p></body>'
        "</html>\n"
    )


def build_link_tokens(message_id: int = 0) -> dict[str, Any]:
    """Return the merge values for tracked links of an SMS: {`TRACK_ROOT`: {"click": token}}.

    With message id 0, links have the same length as when sent but lead nowhere.
    """
    return {designs_links.TRACK_ROOT: {"click": links.build_click_token(message_id)}}
