"""The merge language and its limits: tags, filters, roots, and the check of a template's tags before they are parsed.

`merge` compiles templates; everything here needs no Liquid library.
"""

import re
import time
from collections.abc import Iterable
from typing import Any, Literal

from appliance.content.designs import markup
from appliance.core.i18n import gettext, gettext_noop

Context = Literal["html", "text", "header", "url"]

ROOTS = (
    "contact", "event", "data", "brand", "account", "campaign", "unsubscribe_url", "preferences_url", "view_url",
    "first_name", "last_name", "email",
)  # fmt: skip

TAGS = ("if", "unless", "case", "when", "for", "comment", "raw", "output", "content", "illegal", "break", "continue")
FILTERS = (
    "default", "upcase", "downcase", "capitalize", "strip", "truncate", "replace", "date", "money", "round", "size",
    "first", "last", "join", "url_encode", "escape", "newline_to_br",
)  # fmt: skip

MAX_TAGS = 2_000
# The limit for all tags of a template together, because tags take much longer to parse than the text around them.
MAX_TAG_CHARACTERS = 262_144
# The limit for text outside of quotes in all tags: 1,000 characters take up to 5 ms to parse, and 250 KB in the cache.
MAX_TAG_CODE_CHARACTERS = 32_768
# The limits for one tag: the parser searches from each bracket to the end of the tag, and recurses at each operator.
MAX_BRACKETS, MAX_OPERATORS = 20, 100
MAX_OUTPUT_BYTES = 1_048_576
# The limit of lines in a template: each line takes mail servers and mail programs time to parse, also an empty one.
MAX_LINES = 100_000
MAX_FILTERS = 20
# The limit of a rendered subject or sender name.
MAX_HEADER_CHARACTERS = 10_000
# The limit of processor time for all parts of one message together.
MAX_RENDER_SECONDS = 0.05
# The limit for a message that was sent within `MAX_RENDER_SECONDS` and is shown again. The first rendering after its
# parsing takes several times as long as the following ones.
MAX_VIEW_SECONDS = 0.5
# The limit for the URL of a link that is clicked; an ordinary one takes 20 µs. Clicks are answered on one thread.
MAX_LINK_SECONDS = 0.01
# The limit of each cache, in bytes: the largest template takes 14 MB, an ordinary one 0.1 MB.
MAX_CACHED_BYTES = 64 * 1024 * 1024
_BYTES_PER_TEMPLATE, _BYTES_PER_TAG, _BYTES_PER_TAG_CHARACTER = 12_000, 1_500, 200
TOO_SLOW = f"takes longer than {MAX_RENDER_SECONDS * 1000:.0f} ms to render"
_TOO_MUCH_CODE = gettext_noop("the merge tags are too long (maximum is %(limit)s characters outside of quotes)")
_TOO_MANY_LINES = gettext_noop("has too many lines (maximum is %(limit)s)")
_BEGIN = re.compile(r"\{[{%]")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_OPERATOR = re.compile(r"[=!<>]+|\b(?:and|or|contains)\b")
# The two tags for which the library's parser searches the whole rest of the template for the end tag.
_VERBATIM = re.compile(r"-?\s*(raw|doc)\s*-?")


class MergeError(Exception):
    """An error of a template: a message and, if known, the line and column, both from 1.

    `text` is the message with `%(name)s` for each of `values`, marked with `gettext_noop`. `message` is English,
    because errors are cached; `describe` translates it.
    """

    def __init__(self, text: str, line: int | None = None, column: int | None = None, **values: Any) -> None:
        self.text, self.values = text, values
        self.message = text % values
        super().__init__(self.message)
        self.line = line
        self.column = column

    def copy(self) -> "MergeError":
        """Return a copy without a traceback; a raised error would keep its stack frames alive in the cache."""
        return MergeError(self.text, self.line, self.column, **self.values)

    def describe(self) -> str:
        """Return the translated message of a field error, with line and column if they are known."""
        error = gettext(self.text, **self.values)
        if not self.line:
            return error
        return gettext("%(error)s (line %(line)s, column %(column)s)", error=error, line=self.line, column=self.column)


def render_deadline(seconds: float | None = None) -> float:
    """Return the deadline for a rendering that begins now, as processor time of this thread.

    `seconds` is the time limit, by default the limit of a message (`MAX_RENDER_SECONDS`).
    """
    return time.thread_time() + (MAX_RENDER_SECONDS if seconds is None else seconds)


def find_line_error(source: str) -> str | None:
    """Return an error message if a template has more than `MAX_LINES` lines, else None."""
    ends = source.count("\n") + source.count("\r") - source.count("\r\n")
    return gettext(_TOO_MANY_LINES, limit=MAX_LINES) if ends >= MAX_LINES else None


def scan_tags(source: str) -> int:
    """Check the tags of a template in one pass, and return the approximate size of the compiled template in bytes.

    Raises MergeError for an unclosed tag, and past a limit of tags, characters, brackets or operators. The check is
    needed because the library's parser searches for the end of an unclosed tag repeatedly, so that a few kilobytes
    would take seconds. A template that passes is parsed in linear time. Raises MergeError also for too many lines.
    """
    if find_line_error(source):
        raise MergeError(_TOO_MANY_LINES, limit=MAX_LINES)
    count = position = characters = code = 0
    while True:
        match = _BEGIN.search(source, position)
        if match is None:
            return _BYTES_PER_TEMPLATE + 2 * len(source) + count * _BYTES_PER_TAG + code * _BYTES_PER_TAG_CHARACTER
        begin = match.start()
        closing = "}}" if source[begin + 1] == "{" else "%}"
        end = source.find(closing, begin + 2)
        tag_text = source[begin + 2 : end if end >= 0 else begin + 200]
        if end < 0 or "{{" in tag_text or "{%" in tag_text:
            raise MergeError(gettext_noop("expected '%(closing)s'"), *line_and_column(source, begin), closing=closing)
        count += 1
        if count > MAX_TAGS:
            raise MergeError(gettext_noop("more than %(limit)s tags"), limit=MAX_TAGS)
        characters += len(tag_text)
        if characters > MAX_TAG_CHARACTERS:
            raise MergeError(
                gettext_noop("the merge tags are too long (maximum is %(limit)s characters in all)"),
                limit=MAX_TAG_CHARACTERS,
            )
        code += len(tag_text) if len(tag_text) <= MAX_BRACKETS else _check_tag(tag_text, source, begin)
        if code > MAX_TAG_CODE_CHARACTERS:
            raise MergeError(_TOO_MUCH_CODE, limit=MAX_TAG_CODE_CHARACTERS)
        position = end + 2
        if closing == "%}" and (verbatim := _VERBATIM.fullmatch(tag_text)):
            position = _end_of_raw(source, begin, position, verbatim[1])


def _end_of_raw(source: str, begin: int, position: int, tag: str) -> int:
    """Return the index after a `raw` block whose start tag, beginning at `begin`, ends at `position`.

    Raises MergeError if the block is unclosed, and for the tag `doc`, which is not allowed. The content is literal text
    and is not scanned.
    """
    if tag == "doc":
        raise MergeError(gettext_noop("unexpected tag 'doc'"), *line_and_column(source, begin))
    end = markup.END_RAW.search(source, position)
    if end is None:
        raise MergeError(gettext_noop("expected 'endraw'"), *line_and_column(source, begin))
    return end.end()


def find_code_error(texts: Iterable[str], maximum: int = MAX_TAG_CODE_CHARACTERS) -> str | None:
    """Return an error message if the merge tags of some texts are too long together, else None.

    Text in quotes does not count. The tags are not parsed.
    """
    code = 0
    for text in texts:
        for tag in markup.iterate_tags(text):
            code += len(_QUOTED.sub('""', text[tag.start + 2 : tag.end - 2]))
            if code > maximum:
                return gettext(_TOO_MUCH_CODE, limit=maximum)
    return None


def _check_tag(tag_text: str, source: str, begin: int) -> int:
    """Return the number of characters in a tag outside of quotes.

    Raises MergeError for too many brackets or operators.
    """
    unquoted = _QUOTED.sub('""', tag_text)
    if unquoted.count("(") + unquoted.count("[") > MAX_BRACKETS:
        raise MergeError(
            gettext_noop("more than %(limit)s brackets in one tag"), *line_and_column(source, begin), limit=MAX_BRACKETS
        )
    if len(unquoted) > MAX_OPERATORS and len(_OPERATOR.findall(unquoted)) > MAX_OPERATORS:
        raise MergeError(
            gettext_noop("more than %(limit)s conditions in one tag"),
            *line_and_column(source, begin),
            limit=MAX_OPERATORS,
        )
    return len(unquoted)


def line_and_column(source: str, index: int) -> tuple[int, int]:
    """Return the line and column, both from 1, of an index in a text."""
    before = source[: max(index, 0)]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
