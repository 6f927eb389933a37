"""Find placeholders: default texts and links of an email that its author has not replaced.

They are derived from section kinds (`Prop.default`), from new sections (`Kind.initial_props`) and from the starters, so
that no separate list has to be maintained.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from appliance.content.designs import document as designs
from appliance.content.designs import links, markup
from appliance.content.designs.kind import Prop
from appliance.content.designs.sections import KINDS, build_initial_props
from appliance.content.designs.theme import Look
from appliance.content.templates.starters import FALLBACK_URL, SENDABLE_TEXTS, build_flow_emails, build_starters
from appliance.core import i18n
from appliance.core.i18n import gettext, gettext_noop

MAX_QUOTED_CHARACTERS = 60
# The preflight codes of unfinished content. An email with one of these findings is not shown as ready.
UNFINISHED_CODES = frozenset({"placeholder_content", "placeholder_link", "link_missing", "image_missing"})
# Domains for documentation (RFC 2606, section 3).
_EXAMPLE_HOSTS = ("example.com", "example.net", "example.org")
_LOREM = re.compile(r"\blorem\s+ipsum\b", re.IGNORECASE)
_TEXT_KINDS = ("line", "text", "rich")


class Placeholder(NamedTuple):
    """A placeholder: its preflight code, a message for the author, and the path of its section or field."""

    code: str
    message: str
    path: str


class _PlaceholderText(NamedTuple):
    prop: Prop
    text: str


def find_placeholders(document: Mapping[str, Any]) -> list[Placeholder]:
    """Return the placeholders of an email template's fields; of each section at most one text and one link.

    Placeholder texts are known in all languages of the interface. `document` has the keys of
    `revisions.CONTENT_FIELDS`. Paths are `design.sections[2]`, `subject`, `preheader` or `body`.
    """
    placeholders: list[Placeholder] = []
    known_texts = load_known_texts()
    subject = document.get("subject") or ""
    if subject in known_texts.subjects:
        placeholders.append(_text_placeholder(subject, "subject"))
    preheader = document.get("preheader") or ""
    if not known_texts.starters.isdisjoint(_split_paragraphs(preheader)):
        placeholders.append(_text_placeholder(preheader, "preheader"))
    body = document.get("body") or ""
    if _LOREM.search(body):
        placeholders.append(_text_placeholder("Lorem ipsum", "body"))
    if markup.is_html(body):
        placeholders += _find_link_placeholder((link.href for link in links.find_links(body)), "body")
    for entry in designs.list_entries(document.get("design")):
        kind = entry.section.kind
        if kind is None:
            continue
        path = f"design.{entry.section.path}"
        texts = list(_iterate_texts(kind.props, entry.section.props))
        placeholder_text = next(
            (paragraph for text in texts for paragraph in _find_text_placeholders(kind.name, text)), None
        )
        if placeholder_text is not None:
            placeholders.append(_text_placeholder(placeholder_text, path, entry.label))
        placeholders += _find_link_placeholder(_iterate_addresses(kind.props, entry.section.props), path, entry.label)
    return placeholders


def has_placeholder_text(kind: str, text: str) -> bool:
    """Return whether any paragraph of a section's text is a placeholder; `kind` is the name of the section's kind.

    Unlike in `find_placeholders`, unchanged labels such as "Learn more" count, too.
    """
    known_texts = load_known_texts()
    return any(
        paragraph in known_texts.initial[kind] or paragraph in known_texts.starters or _LOREM.search(paragraph)
        for paragraph in _split_paragraphs(text)
    )


def has_placeholder_link(text: str) -> bool:
    """Return whether an address, or any link in HTML, is a placeholder."""
    addresses = (link.href for link in links.find_links(text)) if markup.is_html(text) else (text,)
    return any(_is_placeholder_link(address) for address in addresses)


# The messages about placeholder texts by path of the field; `_SECTION_MESSAGE` is that of all sections.
_TEXT_MESSAGES = {
    "subject": gettext_noop("“%(text)s” in the subject is still placeholder text"),
    "preheader": gettext_noop("“%(text)s” in the preview text is still placeholder text"),
    "body": gettext_noop("“%(text)s” in the message is still placeholder text"),
}
_SECTION_MESSAGE = gettext_noop("“%(text)s” in the section “%(section)s” is still placeholder text")


def _text_placeholder(text: str, path: str, section: str = "") -> Placeholder:
    quoted = text if len(text) <= MAX_QUOTED_CHARACTERS else text[:MAX_QUOTED_CHARACTERS].rstrip() + "…"
    message = gettext(_TEXT_MESSAGES.get(path, _SECTION_MESSAGE), text=quoted, section=section)
    return Placeholder("placeholder_content", message, path)


def _find_link_placeholder(addresses: Iterable[str], path: str, section: str = "") -> Iterator[Placeholder]:
    """Yield a placeholder for the first address that is `#` or a link to an example domain, if there is one."""
    address = next((address for address in addresses if _is_placeholder_link(address)), None)
    if address is None:
        return
    if address == "#" and section:
        message = gettext("A link in the section “%(section)s” has no address, only #", section=section)
    elif address == "#":
        message = gettext("A link in the message has no address, only #")
    elif section:
        message = gettext(
            "%(address)s in the section “%(section)s” is still a placeholder link",
            address=address[:MAX_QUOTED_CHARACTERS], section=section,
        )  # fmt: skip
    else:
        message = gettext(
            "%(address)s in the message is still a placeholder link", address=address[:MAX_QUOTED_CHARACTERS]
        )
    yield Placeholder("placeholder_link", message, path)


def _is_placeholder_link(address: str) -> bool:
    if address.strip() == "#":
        return True
    try:
        host = (urlsplit(address if "//" in address else f"//{address}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return host.removeprefix("www.") in _EXAMPLE_HOSTS


def _find_text_placeholders(kind: str, text: _PlaceholderText) -> Iterator[str]:
    """Yield the paragraphs of a section's text that are placeholders; `kind` is the name of the section's kind."""
    known_texts = load_known_texts()
    for paragraph in _split_paragraphs(text.text):
        is_known = paragraph in known_texts.initial[kind] or paragraph in known_texts.starters
        if (is_known and text.prop.wording != "label") or _LOREM.search(paragraph):
            yield paragraph


def _split_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text or HTML, without markup and with single spaces; merge tags are unchanged."""
    plain = markup.html_template_to_text(text) if markup.is_html(text) else text
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", plain) if part.strip()]


def _iterate_texts(props: Iterable[Prop], values: Any) -> Iterator[_PlaceholderText]:
    """Yield the texts of a section's properties, with the default of the property where none is set."""
    for prop, value in _iterate_values(props, values):
        if prop.kind in _TEXT_KINDS and isinstance(property_text := value or prop.default, str):
            yield _PlaceholderText(prop, property_text)


def _iterate_addresses(props: Iterable[Prop], values: Any) -> Iterator[str]:
    """Yield the addresses that a section's properties link to, including links inside of rich text and HTML."""
    for prop, value in _iterate_values(props, values):
        if not isinstance(value, str):
            continue
        if prop.kind == "url":
            yield value.strip()
        elif prop.kind in ("rich", "html"):
            yield from (link.href for link in links.find_links(value))


def _iterate_values(props: Iterable[Prop], values: Any) -> Iterator[tuple[Prop, Any]]:
    """Yield each property with its value; for lists and groups, the properties inside of them."""
    for prop in props:
        value = prop.get_value(values)
        if prop.kind == "items":
            for entry in value if isinstance(value, list) else []:
                yield from _iterate_values(prop.fields, entry)
        elif prop.kind == "group":
            yield from _iterate_values(prop.fields, value) if isinstance(value, dict) else ()
        else:
            yield prop, value


class _KnownTexts(NamedTuple):
    """Texts that authors are expected to replace, in all languages of the interface; subjects as they are written.

    `initial` has the paragraphs of new sections by kind, and `starters` the paragraphs of ready-made emails.
    """

    initial: Mapping[str, frozenset[str]]
    starters: frozenset[str]
    subjects: frozenset[str]


@cache
def load_known_texts() -> _KnownTexts:
    """Return the known texts, computed once for all languages, in half a second with compiled catalogues.

    Call it before a write transaction that finds placeholders, so that the writer thread does not compute them.
    """
    parts = i18n.build_for_each_language(_build_known_texts)
    initial = {kind.name: frozenset().union(*(part.initial[kind.name] for part in parts)) for kind in KINDS}
    sendable = frozenset().union(*i18n.build_for_each_language(_sendable_texts))
    starters = frozenset().union(*(part.starters for part in parts)) - _to_paragraphs(sendable)
    return _KnownTexts(initial, starters, frozenset().union(*(part.subjects for part in parts)) - sendable)


def _build_known_texts() -> _KnownTexts:
    """Return the known texts in the current language, with those that may be sent unchanged."""
    locale = i18n.get_language_tag()
    campaign_emails = [starter.email for starter in build_starters(Look(locale=locale))]
    flow_emails = [*build_flow_emails(FALLBACK_URL, locale).values()]
    texts = [email.preheader for email in campaign_emails + flow_emails]
    # Texts with the wording `title` (`Prop.wording`) are only placeholders if they are from starters.
    for emails, wordings in ((campaign_emails, ("own", "title")), (flow_emails, ("own",))):
        for section in (section for email in emails for section in designs.walk_sections(email.design)):
            if section.kind is not None:
                values = _iterate_texts(section.kind.props, section.props)
                texts += [text.text for text in values if text.prop.wording in wordings]
    subjects = frozenset(email.subject for email in campaign_emails)
    return _KnownTexts(_build_initial_texts(), _to_paragraphs(texts), subjects)


def _build_initial_texts() -> dict[str, frozenset[str]]:
    """Return the paragraphs that a new section contains, and its default texts, by kind, in the current language."""
    begun = [{"type": kind.name, "props": build_initial_props(kind)} for kind in KINDS]
    texts = {kind.name: [text.text for text in _iterate_texts(kind.props, {})] for kind in KINDS}
    for section in designs.walk_sections({"sections": begun}):
        if section.kind is not None:
            texts[section.kind.name] += [text.text for text in _iterate_texts(section.kind.props, section.props)]
    return {kind: _to_paragraphs(kind_texts) for kind, kind_texts in texts.items()}


def _sendable_texts() -> frozenset[str]:
    """Return `SENDABLE_TEXTS` in the current language."""
    return frozenset(gettext(text) for text in SENDABLE_TEXTS)


def _to_paragraphs(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(paragraph for text in texts for paragraph in _split_paragraphs(text))
