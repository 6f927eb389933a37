"""Finds placeholders: default texts and links of an email that its author has not replaced.

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
from appliance.content.designs.sections import BY_NAME, KINDS
from appliance.content.designs.theme import Look
from appliance.content.templates.starters import FALLBACK_URL, SENDABLE_TEXTS, build_flow_emails, build_starters
from appliance.core import i18n
from appliance.core.i18n import DEFAULT_LANGUAGE, gettext, gettext_noop
from appliance.core.recipient_texts import language_of_locale

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


def find_placeholders(document: Mapping[str, Any], locale: str = DEFAULT_LANGUAGE) -> list[Placeholder]:
    """Return the placeholders of an email template's fields; of each section at most one text and one link.

    Placeholder texts are known in English and in the language of `locale`, that of the account. `document` has the keys
    of `revisions.CONTENT_FIELDS`. Paths are `design.sections[2]`, `subject`, `preheader` or `body`.
    """
    placeholders: list[Placeholder] = []
    language = language_of_locale(locale)
    subject = document.get("subject") or ""
    if subject in _starter_subjects(language):
        placeholders.append(_text_placeholder(subject, "subject"))
    preheader = document.get("preheader") or ""
    if not _starter_texts(language).isdisjoint(_split_paragraphs(preheader)):
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
            (paragraph for text in texts for paragraph in _find_text_placeholders(kind.name, text, language)), None
        )
        if placeholder_text is not None:
            placeholders.append(_text_placeholder(placeholder_text, path, entry.label))
        placeholders += _find_link_placeholder(_iterate_addresses(kind.props, entry.section.props), path, entry.label)
    return placeholders


def has_placeholder_text(kind: str, text: str, locale: str) -> bool:
    """Return whether any paragraph of a section's text is a placeholder; `kind` is the name of the section's kind.

    Unlike in `find_placeholders`, unchanged labels such as "Learn more" count, too.
    """
    language = language_of_locale(locale)
    known_texts = _initial_texts(kind, language) | _starter_texts(language)
    return any(paragraph in known_texts or _LOREM.search(paragraph) for paragraph in _split_paragraphs(text))


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


def _find_text_placeholders(kind: str, text: _PlaceholderText, language: str) -> Iterator[str]:
    """Yield the paragraphs of a section's text that are placeholders; `kind` is the name of the section's kind."""
    for paragraph in _split_paragraphs(text.text):
        is_initial = text.prop.wording != "label" and paragraph in _initial_texts(kind, language)
        is_starter = text.prop.wording != "label" and paragraph in _starter_texts(language)
        if is_initial or is_starter or _LOREM.search(paragraph):
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


@cache
def _initial_texts(kind: str, language: str) -> frozenset[str]:
    """Return the paragraphs that a new section of a kind contains, and the default texts of the kind.

    They are in English and in `language`.
    """
    with i18n.use_language(language):
        translated = [known.build_initial_props() for known in KINDS]
    begun = [{"type": known.name, "props": props} for known, props in zip(KINDS, translated, strict=True)]
    begun += [{"type": known.name, "props": known.initial_props} for known in KINDS]
    section_texts: list[_PlaceholderText] = list(_iterate_texts(BY_NAME[kind].props, {}))
    for section in designs.walk_sections({"sections": begun}):
        if section.kind is not None and section.kind.name == kind:
            section_texts += _iterate_texts(section.kind.props, section.props)
    return _to_paragraphs(text.text for text in section_texts)


@cache
def _starter_texts(language: str) -> frozenset[str]:
    """Return the paragraphs of ready-made emails that authors are expected to replace, in English and in `language`.

    Texts with the wording `title` (`Prop.wording`) are among them only if they are from starters, not from flow emails.
    """
    languages = {DEFAULT_LANGUAGE, language}
    campaign_emails = [starter._asdict() for each in languages for starter in build_starters(Look(locale=each))]
    flow_emails = [email for each in languages for email in build_flow_emails(FALLBACK_URL, each).values()]
    texts = [email["preheader"] for email in campaign_emails + flow_emails]
    for emails, wordings in ((campaign_emails, ("own", "title")), (flow_emails, ("own",))):
        for section in (section for email in emails for section in designs.walk_sections(email["design"])):
            if section.kind is not None:
                values = _iterate_texts(section.kind.props, section.props)
                texts += [text.text for text in values if text.prop.wording in wordings]
    return _to_paragraphs(texts) - _to_paragraphs(_sendable_texts(language))


@cache
def _starter_subjects(language: str) -> frozenset[str]:
    """Return the subjects of starters that authors are expected to replace, in English and in `language`."""
    starters = [starter for each in (DEFAULT_LANGUAGE, language) for starter in build_starters(Look(locale=each))]
    return frozenset(starter.subject for starter in starters) - _sendable_texts(language)


def _sendable_texts(language: str) -> frozenset[str]:
    """Return `SENDABLE_TEXTS` in English and in `language`."""
    with i18n.use_language(language):
        return frozenset(SENDABLE_TEXTS) | frozenset(gettext(text) for text in SENDABLE_TEXTS)


def _to_paragraphs(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(paragraph for text in texts for paragraph in _split_paragraphs(text))
