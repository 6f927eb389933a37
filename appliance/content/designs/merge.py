"""The merge language: a limited subset of Liquid (docs/decisions.md#11).

Templates of users are compiled only here, never by Jinja. Values are plain data and are never parsed. The context of a
template decides how values are encoded: `html`, `text`, `url` (one address), or `header` (one line).
"""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cachetools import LRUCache, cached

from appliance.content.designs import markup

if TYPE_CHECKING:
    from appliance.content.designs.compiled_template import CompiledTemplate


Context = Literal["html", "text", "header", "url"]

ROOTS = (
    "contact", "event", "data", "brand", "account", "campaign", "unsubscribe_url", "preferences_url", "view_url",
    "first_name", "last_name", "email",
)  # fmt: skip

TAGS = ("if", "unless", "case", "when", "for", "comment", "raw", "output", "content", "illegal", "break", "continue")
FILTERS = (
    "default", "upcase", "downcase", "capitalize", "strip", "truncate", "replace", "date", "money", "round", "size",
    "first", "last", "join", "url_encode", "escape",
)  # fmt: skip

MAX_TAGS = 2_000
# The limit for all tags of a template together, because tags take much longer to parse than the text around them.
MAX_TAG_CHARACTERS = 262_144
# The limit for text outside of quotes in all tags: 1,000 characters take up to 5 ms to parse, and 250 KB in the cache.
MAX_TAG_CODE_CHARACTERS = 32_768
# The limits for one tag: the parser searches from each bracket to the end of the tag, and recurses at each operator.
MAX_BRACKETS, MAX_OPERATORS = 20, 100
MAX_OUTPUT_BYTES = 1_048_576
MAX_FILTERS = 20
# The limit of a rendered subject or sender name.
MAX_HEADER_CHARACTERS = 10_000
# The limit of processor time for all parts of one message together.
MAX_RENDER_SECONDS = 0.05
# The limit of each cache, in bytes: the largest template takes 14 MB, an ordinary one 0.1 MB.
MAX_CACHED_BYTES = 64 * 1024 * 1024
_BYTES_PER_REFUSED, _BYTES_PER_TEMPLATE, _BYTES_PER_TAG, _BYTES_PER_TAG_CHARACTER = 1_000, 12_000, 1_500, 200
TOO_SLOW = f"takes longer than {MAX_RENDER_SECONDS * 1000:.0f} ms to render"
_TOO_MUCH_CODE = "the merge tags are too long (maximum is {} characters outside of quotes)"
_BEGIN = re.compile(r"\{[{%]")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_OPERATOR = re.compile(r"[=!<>]+|\b(?:and|or|contains)\b")
# The two tags for which the library's parser searches the whole rest of the template for the end tag.
_VERBATIM = re.compile(r"-?\s*(raw|doc)\s*-?")
_END_RAW = re.compile(r"\{%-?\s*endraw\s*-?%\}")


class MergeError(Exception):
    """An error of a template: a message and, if known, the line and column, both from 1."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column

    def copy(self) -> "MergeError":
        """Return a copy without a traceback; a raised error would keep its stack frames alive in the cache."""
        return MergeError(self.message, self.line, self.column)

    def describe(self) -> str:
        """Return the message of a field error, with line and column if they are known."""
        position = f" (line {self.line}, column {self.column})" if self.line else ""
        return f"{self.message}{position}"


def render_deadline() -> float:
    """Return the deadline for rendering a message that begins now, as processor time of this thread in seconds."""
    return time.thread_time() + MAX_RENDER_SECONDS


def scan_tags(source: str) -> int:
    """Check the tags of a template in one pass, and return the approximate size of the compiled template in bytes.

    Raises MergeError for an unclosed tag, and past a limit of tags, characters, brackets or operators. The check is
    needed because the library's parser searches for the end of an unclosed tag repeatedly, so that a few kilobytes
    would take seconds. A template that passes is parsed in linear time.
    """
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
            raise MergeError(f"expected '{closing}'", *line_and_column(source, begin))
        count += 1
        if count > MAX_TAGS:
            raise MergeError(f"more than {MAX_TAGS} tags")
        characters += len(tag_text)
        if characters > MAX_TAG_CHARACTERS:
            raise MergeError(f"the merge tags are too long (maximum is {MAX_TAG_CHARACTERS} characters in all)")
        code += len(tag_text) if len(tag_text) <= MAX_BRACKETS else _check_tag(tag_text, source, begin)
        if code > MAX_TAG_CODE_CHARACTERS:
            raise MergeError(_TOO_MUCH_CODE.format(MAX_TAG_CODE_CHARACTERS))
        position = end + 2
        if closing == "%}" and (verbatim := _VERBATIM.fullmatch(tag_text)):
            position = _end_of_raw(source, begin, position, verbatim[1])


def _end_of_raw(source: str, begin: int, position: int, tag: str) -> int:
    """Return the index after a `raw` block whose start tag, beginning at `begin`, ends at `position`.

    Raises MergeError if the block is unclosed, and for the tag `doc`, which is not allowed. The content is literal text
    and is not scanned.
    """
    if tag == "doc":
        raise MergeError("unexpected tag 'doc'", *line_and_column(source, begin))
    end = _END_RAW.search(source, position)
    if end is None:
        raise MergeError("expected 'endraw'", *line_and_column(source, begin))
    return end.end()


def find_code_error(texts: Iterable[str], maximum: int = MAX_TAG_CODE_CHARACTERS) -> str | None:
    """Return an error message if the merge tags of some texts are too long together, else None.

    Text in quotes does not count. The tags are not parsed.
    """
    code = 0
    for text in texts:
        position = 0
        while match := _BEGIN.search(text, position):
            end = text.find("}}" if match[0] == "{{" else "%}", match.end())
            if end < 0:
                break  # parsing it raises an error
            code += len(_QUOTED.sub('""', text[match.end() : end]))
            position = end + 2
            if code > maximum:
                return _TOO_MUCH_CODE.format(maximum)
    return None


def _check_tag(tag_text: str, source: str, begin: int) -> int:
    """Return the number of characters in a tag outside of quotes.

    Raises MergeError for too many brackets or operators.
    """
    unquoted = _QUOTED.sub('""', tag_text)
    if unquoted.count("(") + unquoted.count("[") > MAX_BRACKETS:
        raise MergeError(f"more than {MAX_BRACKETS} brackets in one tag", *line_and_column(source, begin))
    if len(unquoted) > MAX_OPERATORS and len(_OPERATOR.findall(unquoted)) > MAX_OPERATORS:
        raise MergeError(f"more than {MAX_OPERATORS} conditions in one tag", *line_and_column(source, begin))
    return len(unquoted)


class RefusedTemplate(NamedTuple):
    """The error of a template that cannot be compiled, cached like a template; `size` is in bytes, approximately."""

    error: MergeError
    size: int


def _size(parsed: "CompiledTemplate | RefusedTemplate") -> int:
    return parsed.size


@cached(LRUCache(MAX_CACHED_BYTES, getsizeof=_size), lock=threading.Lock(), info=True)
def parse_template(source: str | None, context: Context) -> "CompiledTemplate | RefusedTemplate":
    """Return a compiled template, or its error if it cannot be compiled; both are cached."""
    from appliance.content.designs.compiled_template import CompiledTemplate

    try:
        return CompiledTemplate(source or "", context)
    except MergeError as error:
        return RefusedTemplate(error.copy(), _BYTES_PER_REFUSED + 2 * len(source or ""))


def compile_template(source: str | None, context: Context) -> "CompiledTemplate":
    """Return the compiled template from the cache or compile it; raises MergeError."""
    parsed = parse_template(source, context)
    if isinstance(parsed, RefusedTemplate):
        raise parsed.error.copy()
    return parsed


def find_error(source: str | None, context: Context) -> str | None:
    """Return the message of a field error for an invalid template, or None if the template is valid."""
    if not source or ("{{" not in source and "{%" not in source):
        return None
    try:
        compile_template(source, context)
    except MergeError as error:
        return error.describe()
    return None


def find_unknown_roots(names: list[str]) -> list[str]:
    """Return the variables whose root, the first part of the name, is not in `ROOTS`; they render as empty text."""
    return [name for name in names if name.split(".")[0] not in ROOTS]


def line_and_column(source: str, index: int) -> tuple[int, int]:
    """Return the line and column, both from 1, of an index in a text."""
    before = source[: max(index, 0)]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def iterate_strings(value: Any) -> Iterator[str]:
    """Yield every string in nested dicts and lists, in order, without the keys."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


# Texts with merge tags for lists and titles, which have no contact whose values could be filled in.

_BLOCK_TAG = re.compile(r"\{%-?\s*([a-z]+)")
_OUTPUT_PATH = re.compile(r"\{\{-?\s*([A-Za-z][A-Za-z0-9_.]*)")
# Lists and titles show at most this much of a text.
MAX_READABLE_CHARACTERS = 2_000


def tag_label(name: str) -> str:
    """Return the label of a merge tag: "First name" for `contact.first_name`."""
    return name.rpartition(".")[2].replace("_", " ").capitalize()


@lru_cache(maxsize=2_048)
def make_readable(text: str) -> str:
    """Return a text with each merge tag replaced by its default, else by its name in brackets: `Hi [First name]`.

    Conditions show their first branch, also in a text that cannot be compiled. White space is collapsed if the text has
    tags; at most `MAX_READABLE_CHARACTERS` are read.
    """
    text = text[:MAX_READABLE_CHARACTERS]
    if "{{" not in text and "{%" not in text:
        return text
    try:
        compiled = compile_template(text, "text")
        values: dict[str, Any] = {}
        for name, default in compiled.defaults:
            if not default:
                _put_value(values, name, f"[{tag_label(name)}]")
        return " ".join(compiled.render(values).split())
    except MergeError:
        return " ".join("".join(_first_branches(markup.split_tags(text))).split())


def _put_value(values: dict[str, Any], name: str, text: str) -> None:
    """Set the text at a dotted path; if a name is both a value and the beginning of a path, the path wins."""
    *parents, last = name.split(".")
    for parent in parents:
        if not isinstance(values.get(parent), dict):
            values[parent] = {}
        values = values[parent]
    values.setdefault(last, text)


def _first_branches(parts: list[str]) -> Iterator[str]:
    """Yield the texts between tags and the bracketed names of outputs, only from the first branch of each condition.

    The tags are the parts with odd index (`markup.split_tags`).
    """
    depth = skipped = 0
    for index, part in enumerate(parts):
        block = _BLOCK_TAG.match(part) if index % 2 else None
        if block is None:
            if not skipped:
                yield _bracketed_name(part) if index % 2 else part.replace("{{", "").replace("{%", "")
        elif block[1].startswith("end"):
            skipped = 0 if skipped == depth else skipped
            depth -= 1
        elif block[1] in ("else", "elsif"):
            skipped = skipped or depth
        else:
            depth += 1


def _bracketed_name(tag: str) -> str:
    match = _OUTPUT_PATH.match(tag)
    return f"[{tag_label(match[1])}]" if match else ""


# The variables of a template, with default and sample values.

# The fields of a template that may contain variables, besides the design, and their contexts.
VARIABLE_FIELDS: dict[str, Context] = {"subject": "header", "preheader": "text", "from_name": "header", "body": "html"}
# The roots of variables whose values the service provides. No contact can lack them, and no API client must send them.
_PROVIDED_ROOTS = ("brand", "account", "campaign", "unsubscribe_url", "preferences_url", "view_url", "show")
_SAMPLES = {
    "first_name": "Anna", "last_name": "Example", "email": "anna@example.org", "phone": "+15550100",
    "country_code": "US", "company": "Acme", "company_name": "Acme", "city": "Lisbon", "name": "Anna Example",
    "url": "https://example.org", "price": "24.00", "total": "48.00", "amount": "24.00", "code": "WELCOME10",
    "date": "2030-01-31", "order_id": "1001", "quantity": "2",
}  # fmt: skip


def find_variables(document: Mapping[str, Any], channel: str = "email") -> dict[str, dict[str, Any]]:
    """Return the variables of a template by name, each with the keys `default`, `sample` and `required`.

    Variables that the service provides are left out. The default is None if no use has one or the uses have different
    ones. A variable is required if a use has no default. A text that cannot be parsed has no variables. For the channel
    `sms`, only the body is read.
    """
    defaults: dict[str, set[str | None]] = {}
    for context, text in _collect_texts(document) if channel == "email" else [_body(document)]:
        if "{" not in text:
            continue
        try:
            compiled = compile_template(text, context)
        except MergeError:
            continue
        for name, default in compiled.defaults:
            defaults.setdefault(name, set()).add(default)
    return {
        name: _describe_variable(name, default)
        for name, default in sorted(defaults.items())
        if name.partition(".")[0] not in _PROVIDED_ROOTS
    }


def _body(document: Mapping[str, Any]) -> tuple[Context, str]:
    """Return the context and text of an SMS body."""
    return "text", document.get("body") or ""


def _collect_texts(document: Mapping[str, Any]) -> list[tuple[Context, str]]:
    texts: list[tuple[Context, str]] = [
        (context, text) for name, context in VARIABLE_FIELDS.items() if isinstance(text := document.get(name), str)
    ]
    return texts + [("html", text) for text in iterate_strings(document.get("design"))]


def _describe_variable(name: str, all_defaults: set[str | None]) -> dict[str, Any]:
    defaults = all_defaults - {""}
    default = next(iter(defaults)) if len(defaults) == 1 else None
    return {"default": default, "sample": default or sample_value(name), "required": None in all_defaults}


def find_sample(name: str) -> str | None:
    """Return the sample value of a well-known variable such as `first_name`, or None."""
    return _SAMPLES.get(name.rpartition(".")[2])


def sample_value(name: str) -> str:
    """Return a sample value for a variable.

    It is the sample of a well-known name that the last part of the variable's name equals or contains, else that last
    part.
    """
    last = name.rpartition(".")[2]
    return _SAMPLES.get(last) or next((value for key, value in _SAMPLES.items() if key in last), last.replace("_", " "))
