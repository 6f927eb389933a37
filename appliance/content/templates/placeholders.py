"""Placeholder copy: texts and links that a section or a starter brought along and that nobody has replaced yet.

Nothing is listed here: what counts as a placeholder is what the kinds of sections (`Prop.default`), new sections
(`arranging.BEGINNINGS`) and the starters say themselves.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from appliance.content.designs import document as designs
from appliance.content.designs import document as designs_document
from appliance.content.designs import links, plaintext
from appliance.content.designs.props import Prop
from appliance.content.designs.sections import BY_NAME
from appliance.content.designs.theme import Look
from appliance.content.templates import flow_emails, starters
from appliance.content.templates.arranging import BEGINNINGS

MAX_QUOTED = 60
# Findings and advice about what its author has not finished: pages do not call such an email ready
UNFINISHED = frozenset({"placeholder_content", "placeholder_link", "link_missing", "image_missing"})
# Names that lead to nobody's site (RFC 2606, section 3)
_EXAMPLE_HOSTS = ("example.com", "example.net", "example.org")
_LOREM = re.compile(r"\blorem\s+ipsum\b", re.IGNORECASE)
_TEXT_KINDS = ("line", "text", "rich")


class Placeholder(NamedTuple):
    """One place that still holds placeholder copy: the path of its section or field, and what to say about it."""

    code: str
    message: str
    path: str


class _PlaceholderText(NamedTuple):
    prop: Prop
    words: str


def find(document: Mapping[str, Any]) -> list[Placeholder]:
    """Return what is left to replace in the fields of an email template, at most a text and a link of each section.

    Paths are `design.sections[2]`, `preheader` or `body`.
    """
    found: list[Placeholder] = []
    preheader = document.get("preheader") or ""
    if not _starter_texts().isdisjoint(_paragraphs(preheader)):
        found.append(_text_left("the preview text", preheader, "preheader"))
    body = document.get("body") or ""
    if _LOREM.search(body):
        found.append(_text_left("the message", "Lorem ipsum", "body"))
    if plaintext.is_html(body):
        found += _links_left("the message", (link.href for link in links.of(body)), "body")
    for entry in designs_document.entries(document.get("design")):
        kind = entry.section.kind
        if kind is None:
            continue
        name, path = f"the section “{entry.label}”", f"design.{entry.section.path}"
        texts = list(_texts(kind.props, entry.section.props))
        left = next((words for text in texts for words in _left(kind.name, text)), None)
        if left is not None:
            found.append(_text_left(name, left, path))
        found += _links_left(name, _addresses(kind.props, entry.section.props), path)
    return found


def _text_left(name: str, words: str, path: str) -> Placeholder:
    quoted = words if len(words) <= MAX_QUOTED else words[:MAX_QUOTED].rstrip() + "…"
    return Placeholder("placeholder_content", f"“{quoted}” in {name} is still placeholder text", path)


def _links_left(name: str, addresses: Iterable[str], path: str) -> Iterator[Placeholder]:
    """Yield the first link that leads nowhere or to a placeholder address."""
    left = next((one for one in addresses if _is_placeholder_link(one)), None)
    if left is not None:
        is_example = f"{left[:MAX_QUOTED]} in {name} is still a placeholder link"
        message = f"a link in {name} leads nowhere: its address is only #" if left == "#" else is_example
        yield Placeholder("placeholder_link", message, path)


def _is_placeholder_link(address: str) -> bool:
    if address.strip() == "#":
        return True
    try:
        host = (urlsplit(address if "//" in address else f"//{address}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return host.removeprefix("www.") in _EXAMPLE_HOSTS


def _left(kind: str, text: _PlaceholderText) -> Iterator[str]:
    """Yield the paragraphs of a text that are placeholder copy."""
    for words in _paragraphs(text.words):
        is_sample = text.prop.wording != "label" and words in _samples(kind)
        is_starter = text.prop.wording == "own" and words in _starter_texts()
        if is_sample or is_starter or _LOREM.search(words):
            yield words


def _paragraphs(words: str) -> list[str]:
    """Return the paragraphs of a text without markup, merge tags as they stand."""
    plain = plaintext.from_template(words) if plaintext.is_html(words) else words
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", plain) if part.strip()]


def _texts(props: Iterable[Prop], values: Any) -> Iterator[_PlaceholderText]:
    """Yield the texts of a section as a reader sees them: what it says, else the default of its kind."""
    for prop, value in _values(props, values):
        if prop.kind in _TEXT_KINDS and isinstance(words := value or prop.default, str):
            yield _PlaceholderText(prop, words)


def _addresses(props: Iterable[Prop], values: Any) -> Iterator[str]:
    """Yield the links of a section, those within its texts too."""
    for prop, value in _values(props, values):
        if not isinstance(value, str):
            continue
        if prop.kind == "url":
            yield value.strip()
        elif prop.kind in ("rich", "html"):
            yield from (link.href for link in links.of(value))


def _values(props: Iterable[Prop], values: Any) -> Iterator[tuple[Prop, Any]]:
    """Yield each property with its value, those of entries and groups too."""
    for prop in props:
        value = prop.of(values)
        if prop.kind == "items":
            for one in value if isinstance(value, list) else []:
                yield from _values(prop.fields, one)
        elif prop.kind == "group":
            yield from _values(prop.fields, value) if isinstance(value, dict) else ()
        else:
            yield prop, value


@cache
def _samples(kind: str) -> frozenset[str]:
    """Return what a section of a kind says before anybody wrote anything."""
    begun = [{"type": name, "props": props} for name, props in BEGINNINGS.items()]
    said: list[_PlaceholderText] = list(_texts(BY_NAME[kind].props, {}))
    for section in designs.walk({"sections": begun}):
        if section.kind is not None and section.kind.name == kind:
            said += _texts(section.kind.props, section.props)
    return _joined(text.words for text in said)


@cache
def _starter_texts() -> frozenset[str]:
    """Return the author's own words of all starters, for campaigns and for flows."""
    emails: list[dict[str, Any]] = [one._asdict() for one in starters.made(Look())]
    emails += flow_emails.made(starters.HOME).values()
    said = [one["preheader"] for one in emails]
    for section in (section for one in emails for section in designs.walk(one["design"])):
        if section.kind is not None:
            said += [text.words for text in _texts(section.kind.props, section.props) if text.prop.wording == "own"]
    return _joined(said) - _joined(starters.FIT_TO_SEND)


def _joined(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(words for text in texts for words in _paragraphs(text))
