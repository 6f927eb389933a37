"""The merge language: a limited subset of Liquid (docs/decisions.md#11).

Templates of users are compiled only here, never by Jinja. Values are plain data and are never parsed. The context of a
template decides how values are encoded: `html`, `text`, `url` (one address), or `header` (one line).
"""

import re
import threading
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache, cached

from appliance.content.designs import markup
from appliance.content.designs.merge_limits import MAX_CACHED_BYTES, ROOTS, Context, MergeError, find_line_error
from appliance.core.i18n import DEFAULT_LANGUAGE, get_language, translate

if TYPE_CHECKING:
    from appliance.content.designs.compiled_template import CompiledTemplate


# The approximate size of a refused template in the cache, without its source.
_BYTES_PER_REFUSED = 1_000
# The filters whose results differ by language.
_LOCALIZED_FILTER = re.compile(r"\|\s{0,100}(?:date|money)\b")


class RefusedTemplate(NamedTuple):
    """The error of a template that cannot be compiled, cached like a template; `size` is in bytes, approximately."""

    error: MergeError
    size: int


def _size(parsed: "CompiledTemplate | RefusedTemplate") -> int:
    return parsed.size


@cached(LRUCache(MAX_CACHED_BYTES, getsizeof=_size), lock=threading.Lock(), info=True)
def parse_template(
    source: str | None, context: Context, language: str = DEFAULT_LANGUAGE
) -> "CompiledTemplate | RefusedTemplate":
    """Return a compiled template, or its error if it cannot be compiled; both are cached."""
    from appliance.content.designs.compiled_template import CompiledTemplate

    try:
        return CompiledTemplate(source or "", context, language)
    except MergeError as error:
        return RefusedTemplate(error.copy(), _BYTES_PER_REFUSED + 2 * len(source or ""))


def compile_template(source: str | None, context: Context, language: str = DEFAULT_LANGUAGE) -> "CompiledTemplate":
    """Return the compiled template from the cache, or compile it; raises MergeError if it cannot be compiled.

    Dates and amounts are written in `language`. Templates without them are the same in all languages.
    """
    has_language = source is not None and _LOCALIZED_FILTER.search(source) is not None
    parsed = parse_template(source, context, language if has_language else DEFAULT_LANGUAGE)
    if isinstance(parsed, RefusedTemplate):
        raise parsed.error.copy()
    return parsed


def find_error(source: str | None, context: Context) -> str | None:
    """Return the message of a field error for an invalid template, or None if the template is valid."""
    if not source:
        return None
    if "{{" not in source and "{%" not in source:
        return find_line_error(source)
    try:
        compile_template(source, context)
    except MergeError as error:
        return error.describe()
    return None


def find_unknown_variables(names: list[str]) -> list[str]:
    """Return the variables whose root, the first part of the name, is not in `ROOTS`; they render as empty text."""
    return [name for name in names if name.split(".")[0] not in ROOTS]


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
    """Return the label of a merge tag in the current language: "First name" for `contact.first_name`."""
    return translate(name.rpartition(".")[2].replace("_", " ").capitalize())


def make_readable(text: str) -> str:
    """Return a text with each merge tag replaced with its default, else with its name in brackets: `Hi [First name]`.

    Conditions show their first branch, even in a text that cannot be compiled. White space is collapsed if the text has
    tags; at most `MAX_READABLE_CHARACTERS` are read.
    """
    text = text[:MAX_READABLE_CHARACTERS]
    return _replace_tags(text, get_language()) if "{{" in text or "{%" in text else text


@lru_cache(maxsize=2_048)
def _replace_tags(text: str, language: str) -> str:
    """Return a text without merge tags; `language` is the current language, which the labels depend on."""
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
    """Set `text` at a dotted path in `values`; if a name is both a value and the beginning of a path, the path wins."""
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
        elif block[1] == "comment":
            continue
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

    Variables that the service provides are left out. The default is None if no use of the variable has a default, or
    the uses have different defaults. A variable is required if one of its uses has no default. A text that cannot be
    parsed has no variables. For the channel `sms`, only the body is read. Translations are read too.
    """
    defaults: dict[str, set[str | None]] = {}
    for context, text in _collect_texts(document) if channel == "email" else _collect_bodies(document):
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


def _collect_bodies(document: Mapping[str, Any]) -> list[tuple[Context, str]]:
    """Return the context and text of an SMS body, and of its translations."""
    bodies = [document.get("body") or ""]
    bodies += (text for name, text in _iterate_translations(document) if name == "body")
    return [("text", body) for body in bodies]


def _iterate_translations(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (text id, translation) of a template's translations into all languages."""
    for texts in (document.get("translations") or {}).values():
        for name, translation in texts.items():
            yield name, translation["text"]


def _collect_texts(document: Mapping[str, Any]) -> list[tuple[Context, str]]:
    texts: list[tuple[Context, str]] = [
        (context, text) for name, context in VARIABLE_FIELDS.items() if isinstance(text := document.get(name), str)
    ]
    texts += (("html", text) for text in iterate_strings(document.get("design")))
    return texts + [(VARIABLE_FIELDS.get(name, "html"), text) for name, text in _iterate_translations(document)]


def _describe_variable(name: str, all_defaults: set[str | None]) -> dict[str, Any]:
    defaults = all_defaults - {""}
    default = next(iter(defaults)) if len(defaults) == 1 else None
    return {"default": default, "sample": default or sample_value(name), "required": None in all_defaults}


def find_sample(name: str) -> str | None:
    """Return the sample value of a well-known variable such as `first_name`, or None."""
    return _SAMPLES.get(name.rpartition(".")[2])


def sample_value(name: str) -> str:
    """Return a sample value for a variable.

    The last part of the variable's name decides: the result is the sample of a well-known name that it equals or
    contains, else the last part itself.
    """
    last = name.rpartition(".")[2]
    return _SAMPLES.get(last) or next((value for key, value in _SAMPLES.items() if key in last), last.replace("_", " "))
