"""Texts with merge tags: splitting, protecting and masking the tags, and converting between HTML and plain text.

MJML is XML and emails are HTML; neither knows Liquid, so a quote inside a merge tag would be escaped and a `<` would
begin an element. Therefore every merge tag is replaced with a token while a document is rendered, and restored at the
end.
"""

import re
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from html import escape, unescape
from itertools import pairwise
from typing import Any, NamedTuple

# Control characters, which no email needs and XML forbids.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
# The beginnings of merge tags, each with its end.
_ENDS = {"{{": "}}", "{%": "%}"}
_BEGIN = re.compile(r"\{[{%]")
_NAME = re.compile(r"\{%-?\s*(\w+)")
_RAW = re.compile(r"\{%-?\s*raw\s*-?%\}")
END_RAW = re.compile(r"\{%-?\s*endraw\s*-?%\}")


class MergeTag(NamedTuple):
    """A merge tag: its range, and its name, which is empty for an output.

    A whole comment, from `{% comment %}` to its `{% endcomment %}`, is one tag, because nothing of it is shown.
    """

    start: int
    end: int
    name: str


def find_tags(text: str) -> list[MergeTag]:
    """Return the merge tags of a text as the renderer's lexer finds them, in linear time for any text.

    The content of a `raw` block is literal text and contains no tags. A comment that is not closed is only its tags.
    """
    tags: list[MergeTag] = []
    depth = first = 0
    for tag in iterate_tags(text):
        tags.append(tag)
        if tag.name == "comment":
            # The first tag of the outermost comment that is open.
            first = first if depth else len(tags) - 1
            depth += 1
        elif tag.name == "endcomment" and depth:
            depth -= 1
            if not depth:
                tags[first:] = [MergeTag(tags[first].start, tag.end, "comment")]
    return tags


def iterate_tags(text: str) -> Iterator[MergeTag]:
    """Yield the merge tags of a text in order as `find_tags` does, but instead of comments the tags in them."""
    position = 0
    ends = dict(_ENDS)
    has_end_raw = True
    while ends and (match := _BEGIN.search(text, position)) is not None:
        start, position = match.span()
        if match[0] not in ends:
            continue
        end = text.find(ends[match[0]], position)
        if end < 0:
            # If one tag does not end, no later tag of the same kind does.
            del ends[match[0]]
            continue
        position = end + 2
        name = _NAME.match(text, start, end)
        yield MergeTag(start, position, name[1] if name else "")
        if has_end_raw and name and name[1] == "raw" and _RAW.fullmatch(text, start, position):
            end_tag = END_RAW.search(text, position)
            if end_tag is None:
                has_end_raw = False
            else:
                position = end_tag.end()
                yield MergeTag(end_tag.start(), position, "endraw")


def split_tags(text: str) -> list[str]:
    """Split a text at its merge tags (`find_tags`), which are the parts with odd index."""
    parts: list[str] = []
    cut = 0
    for tag in find_tags(text):
        parts += (text[cut : tag.start], text[tag.start : tag.end])
        cut = tag.end
    return [*parts, text[cut:]]


def remove_control_characters(text: str) -> str:
    """Return a text without control characters; tabs and line ends stay."""
    return _CONTROL.sub("", text)


class _TokenContent(NamedTuple):
    """What a token stands for in the source, in a template of HTML, and in a template of plain text.

    `end` is the name of a merge tag that ends a raw block or comment without a beginning, else empty.
    """

    source: str
    html: str
    text: str
    end: str = ""


_TOKEN_KEY = secrets.token_bytes(32)


class Tokens:
    """The tokens of one document, each of which replaces a merge tag or a piece of HTML until it is restored.

    A parser may decode `&#123;` to a brace, and may drop, move or join parts of a document. Other text could then
    become a merge tag, or other tags the content of a raw block or comment (docs/threats.md, T03). Therefore
    `restore_html` and `restore_text` write every brace outside of tokens as literal text, and leave out the tags of raw
    blocks, whose content is then literal text too. `restore_html` also leaves out comments.
    """

    def __init__(self, document: str | None = None) -> None:
        """Make tokens for a document; equal texts get equal tokens, so that results for parts of it can be cached."""
        # The prefix cannot be predicted, so that no author can write a token: it is random, or a keyed hash of the
        # document, which changes when an author writes anything. The output contains no token.
        text = secrets.token_bytes(8) if document is None else document.encode("utf-8", "surrogatepass")
        self._word = f"q{blake2b(text, digest_size=8, key=_TOKEN_KEY).hexdigest()}"
        self._contents: list[_TokenContent] = []
        # The names of the tags that would end the raw blocks and comments that are not closed.
        self._missing_ends: set[str] = set()

    # Compiled when the first text needs them: most documents are short texts without tokens and braces.

    @cached_property
    def _find(self) -> re.Pattern[str]:
        return re.compile(rf"{self._word}x(\d+)z")

    @cached_property
    def _braces(self) -> re.Pattern[str]:
        """Match braces that begin a merge tag, or would together with the text of the next token or after the end."""
        return re.compile(rf"\{{(?:[{{%]*\{{)?(?=[{{%]|{self._word}x\d+z|\Z)")

    def keep(self, text: str) -> str:
        """Return a new token that stands for a text, which may contain earlier tokens."""
        return self._keep(_TokenContent(text, text, text))

    def keep_html(self, html: str) -> str:
        """Return a new token that stands for HTML in which only earlier tokens are merge tags."""
        return self.keep(self.escape_braces(html))

    def _keep(self, content: _TokenContent) -> str:
        self._contents.append(content)
        return f"{self._word}x{len(self._contents) - 1}z"

    def protect(self, value: Any) -> Any:
        """Return a value with the merge tags in its strings replaced with tokens, and without control characters.

        The value may be a string or nested dicts and lists; other values stay unchanged.
        """
        if isinstance(value, str):
            value = remove_control_characters(value)
            return self._protect_text(value) if "{" in value else value
        if isinstance(value, dict):
            return {key: self.protect(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.protect(entry) for entry in value]
        return value

    def _protect_text(self, text: str) -> str:
        parts: list[str] = []
        cut = 0
        is_in_raw = False
        for tag, next_tag in pairwise((*find_tags(text), MergeTag(len(text), len(text), ""))):
            tag_text, next_text = text[tag.start : tag.end], text[next_tag.start : next_tag.end]
            is_raw = bool(_RAW.fullmatch(tag_text) and END_RAW.fullmatch(next_text))
            is_comment = tag.name == "comment" and tag_text.find("%}") < len(tag_text) - 2
            is_block_tag = is_raw or is_in_raw or is_comment
            if not is_block_tag and tag.name in ("raw", "comment"):
                self._missing_ends.add(f"end{tag.name}")
            content = _TokenContent(
                tag_text,
                "" if is_block_tag else tag_text,
                "" if is_raw or is_in_raw else tag_text,
                tag.name if not is_block_tag and tag.name in ("endraw", "endcomment") else "",
            )
            parts += (text[cut : tag.start], self._keep(content))
            cut, is_in_raw = tag.end, is_raw
        return "".join((*parts, text[cut:]))

    def unprotect(self, value: Any) -> Any:
        """Return a part of a protected document with its tokens replaced with the original texts."""
        if isinstance(value, str):
            return self.restore(value)
        if isinstance(value, dict):
            return {key: self.unprotect(entry) for key, entry in value.items()}
        return [self.unprotect(entry) for entry in value] if isinstance(value, list) else value

    def starts(self, text: str) -> bool:
        """Return whether a text begins with a token."""
        return text.startswith(self._word) and self._find.match(text) is not None

    def has(self, text: str) -> bool:
        """Return whether a text contains a token."""
        return self._word in text and self._find.search(text) is not None

    def escape_braces(self, html: str) -> str:
        """Return HTML in which character references replace the braces that would begin a merge tag; tokens stay."""
        return self._braces.sub(lambda match: match[0].replace("{", "&#123;"), html) if "{" in html else html

    def separate_braces(self, css: str) -> str:
        """Return style rules in which a space follows each brace that would begin a merge tag; tokens stay."""
        return self._braces.sub(lambda match: match[0].replace("{", "{ "), css) if "{" in css else css

    def restore(self, text: str) -> str:
        """Return a text with its tokens replaced with the original texts."""
        return self._replace(text, lambda content: content.source)

    def restore_html(self, html: str) -> str:
        """Return HTML as a template, in which only the tokens become merge tags."""
        return self._replace(
            self.escape_braces(html), lambda content: "" if self._is_stray_end(content) else content.html
        )

    def restore_text(self, text: str) -> str:
        """Return plain text as a template, in which only the tokens become merge tags."""
        literal = text
        if "{" in text:
            literal = self._braces.sub(lambda match: f"{{% raw %}}{match[0]}{{% endraw %}}", text)
        return self._replace(literal, lambda content: "" if self._is_stray_end(content) else content.text)

    def _is_stray_end(self, content: _TokenContent) -> bool:
        """Return whether a tag would end a raw block or comment of another text.

        Without the tag the template is invalid, because that block is not closed.
        """
        return content.end in self._missing_ends

    def _replace(self, text: str, read: Callable[[_TokenContent], str], before: int | None = None) -> str:
        """Return a text with its tokens replaced by what `read` returns for their contents, also within these.

        Tokens with a number from `before` on are left unchanged, because a content can contain only earlier tokens.
        """
        if self._word not in text:
            return text
        count = len(self._contents) if before is None else before

        def resolve(match: re.Match[str]) -> str:
            if len(match[1]) >= 10 or (number := int(match[1])) >= count:
                return match[0]
            replacement = read(self._contents[number])
            return self._replace(replacement, read, number) if self._word in replacement else replacement

        return self._find.sub(resolve, text)


# Finding the positions of elements and attributes in HTML with merge tags, in one pass over the source.

# The character that masks merge tags. It is not a letter, quote or white space, so it cannot end an attribute's value.
MASK = "\ue000"
_ELEMENT = re.compile(r"<([a-zA-Z][a-zA-Z0-9:-]*)")
_ATTRIBUTE = re.compile(r"[\s/]*(?:(>)|([^\s/>=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]*)))?|=)")
# A start tag without merge tags. A tag that does not match may or may not contain one.
_UNMARKED = re.compile(rf"<[^<>\"'{MASK}]*(?:\"[^\"<>{MASK}]*\"[^<>\"'{MASK}]*|'[^'<>{MASK}]*'[^<>\"'{MASK}]*)*>")
# A comment that is not closed extends to the end of the text. Without that alternative, each further `<!--` would be
# searched to the end again.
_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)


class Attribute(NamedTuple):
    """An attribute: its name in lower case, and the range of its value without quotes."""

    name: str
    start: int
    end: int


class Element(NamedTuple):
    """A start tag: its name in lower case, its range, and the attributes that have a value."""

    name: str
    start: int
    end: int
    attributes: tuple[Attribute, ...]

    def value(self, name: str) -> Attribute | None:
        """Return the first attribute with a name, or None."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)


def mask_tags(html: str, tags: Sequence[MergeTag] | None = None) -> str:
    """Return HTML in which `MASK` replaces each character of merge tags, so that indexes stay the same.

    `tags` are the merge tags of the HTML, if the caller knows them already (`find_tags`).
    """
    parts: list[str] = []
    cut = 0
    for tag in find_tags(html) if tags is None else tags:
        parts += (html[cut : tag.start], MASK * (tag.end - tag.start))
        cut = tag.end
    return "".join((*parts, html[cut:]))


def tags_between(tags: Sequence[MergeTag], start: int, end: int) -> Sequence[MergeTag]:
    """Return the merge tags that begin at or after `start` and before `end`; `tags` must be sorted by position."""
    first = bisect_left(tags, start, key=_start_of)
    return tags[first : bisect_left(tags, end, lo=first, key=_start_of)]


def _start_of(tag: MergeTag) -> int:
    return tag.start


def mask_comments(html: str) -> str:
    """Return HTML in which spaces replace each character of comments, so that indexes stay the same."""
    return _COMMENT.sub(lambda match: " " * len(match[0]), html)


def iterate_elements(html: str, names: re.Pattern[str] = _ELEMENT, only_marked: bool = False) -> Iterator[Element]:
    """Yield the start tags of HTML with masked merge tags, including those in comments, which Outlook reads.

    `names` matches the beginnings of the elements to find. `only_marked` skips start tags without merge tags,
    which is faster.
    """
    position = 0
    while (match := names.search(html, position)) is not None:
        unmarked = _UNMARKED.match(html, match.start()) if only_marked else None
        if unmarked is not None:
            position = unmarked.end()
            continue
        attributes, position = [], match.end()
        while (attribute := _ATTRIBUTE.match(html, position)) is not None:
            position = attribute.end()
            if attribute[1]:
                break
            value = next((number for number in (3, 4, 5) if attribute[number] is not None), None)
            if value is not None:
                attributes.append(Attribute(attribute[2].lower(), attribute.start(value), attribute.end(value)))
        yield Element(match[1].lower(), match.start(), position, tuple(attributes))


# Conversion of HTML to plain text.

_BLOCKS = {
    "p", "div", "section", "article", "header", "footer", "table", "tr", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6",
    "blockquote", "pre", "hr", "figure",
}  # fmt: skip
_HIDDEN = {"head", "style", "script", "title", "template"}
_MAX_TAG_CHARACTERS = 4_000
# Invisible characters that follow a hidden preview text, so that inboxes do not show the beginning of the email after
# it.
PREVIEW_FILLER = "&#847;&zwnj;&nbsp;"
# The maximum length of the HTML that is read for a preview text, and of the preview text.
MAX_PREVIEW_SOURCE_CHARACTERS, MAX_PREVIEW_CHARACTERS = 100_000, 140
_HTML_TAG = re.compile(r"<(/?)([a-zA-Z!?][a-zA-Z0-9]*+)([^<>]*+)>")
_TAG_ATTRIBUTE = re.compile(r"([a-zA-Z-]{1,40})\s{0,9}=\s{0,9}(\"[^\"]*\"|'[^']*'|[^\s\"'>]+)")


class _TextWriter:
    """A writer of the plain text of an HTML document; it receives the document's tags and texts in order.

    `keeps_links` adds the addresses of links, and brackets around alternative texts of pictures.
    """

    def __init__(self, keeps_links: bool = True) -> None:
        self.parts: list[str] = []
        self.keeps_links = keeps_links
        self.hidden = 0
        self.link: tuple[str, int] | None = None
        self.numbers: list[int | None] = []

    def open(self, tag: str, attributes: str) -> None:
        if tag in _HIDDEN:
            self.hidden += 1
        elif tag == "br":
            self.parts.append("\n")
        elif tag == "hr":
            self.parts.append("\n\n----\n\n" if self.keeps_links else "\n")
        elif tag in _BLOCKS:
            self.parts.append("\n\n" if tag not in ("tr", "div") else "\n")
            if tag in ("ul", "ol"):
                self.numbers.append(1 if tag == "ol" else None)
        elif tag == "li":
            self._item()
        elif tag == "a":
            # Links cannot be nested, so an open link has ended here without an end tag.
            self.link = (get_attribute(attributes, "href"), len(self.parts))
        elif tag == "img":
            alt = get_attribute(attributes, "alt")
            brackets = f"[{alt}]" if self.keeps_links else alt
            self.parts.append(brackets if alt else "")
        elif tag in ("td", "th"):
            self.parts.append(" ")

    def _item(self) -> None:
        number = self.numbers[-1] if self.numbers else None
        self.parts.append("\n- " if number is None else f"\n{number}. ")
        if number is not None:
            self.numbers[-1] = number + 1

    def close(self, tag: str) -> None:
        if tag in _HIDDEN:
            self.hidden = max(0, self.hidden - 1)
        elif tag == "a" and self.link is not None:
            (href, start), self.link = self.link, None
            link_text = "".join(self.parts[start:]).strip()
            if self.keeps_links and href and not href.startswith("#") and href.removeprefix("mailto:") != link_text:
                self.parts.append(f" ({href})" if link_text else href)
        elif tag in _BLOCKS and tag != "hr":
            if tag in ("ul", "ol") and self.numbers:
                self.numbers.pop()
            self.parts.append("\n\n" if tag not in ("tr", "div") else "\n")

    def text(self, content: str) -> None:
        if not self.hidden and content:
            self.parts.append(re.sub(r"\s+", " ", unescape(content)))


def get_attribute(attributes: str, name: str) -> str:
    """Return the value of an attribute, or an empty string; `attributes` is the start tag's text after the tag name."""
    for match in _TAG_ATTRIBUTE.finditer(attributes[:_MAX_TAG_CHARACTERS]):
        if match[1].lower() == name:
            return unescape(match[2].strip("\"'")).strip()
    return ""


def _feed(html: str, writer: _TextWriter) -> None:
    """Send the tags and texts of an HTML document to the writer.

    The time is linear for any input, which Python's HTML parser does not guarantee.
    """
    position = 0
    while True:
        begin = html.find("<", position)
        writer.text(html[position : begin if begin >= 0 else len(html)])
        if begin < 0:
            return
        if html.startswith("<!--", begin):
            end = html.find("-->", begin + 4)
            if end < 0:
                return
            position = end + 3
            continue
        match = _HTML_TAG.match(html, begin)
        if match is None:
            writer.text("<")
            position = begin + 1
            continue
        position = match.end()
        tag = match[2].lower()
        if match[1]:
            writer.close(tag)
        else:
            writer.open(tag, match[3])


def html_to_text(html: str, keeps_links: bool = True) -> str:
    """Return HTML as plain text that ends in a line end, with the addresses of links in parentheses if `keeps_links`.

    The HTML must not contain merge tags; `html_template_to_text` is for templates.
    """
    writer = _TextWriter(keeps_links)
    _feed(html, writer)
    text = "".join(writer.parts).replace("\xa0", " ")
    text = re.sub(r"[ \t]+", " ", text)
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def extract_preview_text(html: str) -> str:
    """Return the preview text of an email: its first words, up to `MAX_PREVIEW_CHARACTERS`.

    A hidden preview text ends at its filler (`PREVIEW_FILLER`), so the words of the body do not follow it.
    """
    writer = _TextWriter(keeps_links=False)
    _feed(html.partition(PREVIEW_FILLER)[0][:MAX_PREVIEW_SOURCE_CHARACTERS], writer)
    preview = " ".join("".join(writer.parts).replace("\u200c", " ").split())
    return preview if len(preview) <= MAX_PREVIEW_CHARACTERS else preview[:MAX_PREVIEW_CHARACTERS].rstrip()


def html_template_to_text(html: str, keeps_links: bool = True) -> str:
    """Return HTML as plain text with merge tags unchanged.

    `keeps_links` adds the addresses of links, and brackets around alternative texts of pictures.
    """
    if "{" not in html:
        return html_to_text(remove_control_characters(html), keeps_links)
    tokens = Tokens()
    return tokens.restore_text(html_to_text(tokens.protect(html), keeps_links))


def find_comments(html: str) -> list[str]:
    """Return the closed comments of an HTML document, including the conditional ones for Outlook."""
    return [match[0] for match in _COMMENT.finditer(html) if match[1]]


def remove_comments(html: str) -> str:
    """Return HTML without its comments; one that is not closed stays."""
    return _COMMENT.sub(lambda match: "" if match[1] else match[0], html)


def is_html(body: str) -> bool:
    """Return whether a body contains an HTML tag; a body without one is plain text (docs/decisions.md#11)."""
    # The pattern stops at the next "<", which keeps the search linear for any input.
    return re.search(r"<[a-zA-Z!/][^<>]*>", body) is not None


def escape_text(text: str) -> str:
    """Escape `&`, `<` and `>` in a text outside of its merge tags."""
    parts = split_tags(text)
    return "".join(
        part if index % 2 else part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        for index, part in enumerate(parts)
    )


def text_to_html(text: str) -> str:
    """Return plain text as HTML paragraphs, with line breaks and with merge tags unchanged."""
    return _to_paragraphs(escape_text(text))


def plain_text_to_html(text: str) -> str:
    """Return plain text as HTML paragraphs, with line breaks; what looks like a merge tag is escaped like any text."""
    return _to_paragraphs(escape(text, quote=False))


def _to_paragraphs(escaped: str) -> str:
    paragraphs = re.split(r"\n[ \t]*\n", escaped.replace("\r\n", "\n").strip("\n"))
    return "\n".join(f"<p>{paragraph.replace(chr(10), '<br>' + chr(10))}</p>" for paragraph in paragraphs)
