"""Content that another program wrote: its braces are text, and its placeholders become merge tags."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# A brace that would begin a merge tag, and a brace before which a merge tag will stand
_BRACE = re.compile(r"\{(?=[{%]|\Z)")
_BRACE_NAME = "brace"
_BRACE_TAG = f"{{{{ data.{_BRACE_NAME} }}}}"
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")
# A converted text has so many characters, and the texts of a message so many different placeholders.
MAX_CHARACTERS, MAX_PLACEHOLDERS = 1_048_576, 100
# The characters of the longest placeholder, and those that are searched at a time. A search holds the interpreter's
# lock, so that of a whole text would stop the event loop.
MAX_PLACEHOLDER_CHARACTERS, _SEARCHED_CHARACTERS = 128, 16_384


class ForeignContent:
    """A converter of the texts of one message into templates, in which only its placeholders are merge tags.

    `placeholder` matches a placeholder, with the name of its value as the first group; a name that is not in `names`
    is left as text. `tags` are the merge tags of placeholders that stand for something else than a value. Values are
    data: they are escaped where they are filled in, and never parsed as a template. A placeholder has at most
    `MAX_PLACEHOLDER_CHARACTERS`.
    """

    def __init__(
        self,
        placeholder: re.Pattern[str] | None = None,
        names: Iterable[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self._placeholder, self._tags = placeholder, tags or {}
        self._names = frozenset(names)
        self._keys: dict[str, str] = {}
        self._has_braces = False

    @property
    def used_names(self) -> set[str]:
        """Return the names of the values that stand in the converted texts."""
        return set(self._keys)

    def convert(self, text: str) -> str:
        """Return a text as a template. The template of a text with neither braces nor placeholders is the text.

        Raises ValueError if the template has more than `MAX_CHARACTERS`, or if the texts have more than
        `MAX_PLACEHOLDERS`.
        """
        parts: list[str] = []
        size = position = 0
        for match in self._find_placeholders(text):
            tag = self._find_tag(match)
            if tag is not None:
                parts += (self._escape(text[position : match.start()]), tag)
                position = match.end()
                size += len(parts[-2]) + len(tag)
                _check_size(size)
        rest = text[position:]
        # The last brace of the text begins nothing.
        parts.append(self._escape(rest[:-1]) + rest[-1:] if rest.endswith("{") else self._escape(rest))
        _check_size(size + len(parts[-1]))
        return "".join(parts)

    def _find_placeholders(self, text: str) -> Iterator[re.Match[str]]:
        if self._placeholder is None:
            return
        position = 0
        for start in range(0, len(text), _SEARCHED_CHARACTERS):
            end = start + _SEARCHED_CHARACTERS
            for match in self._placeholder.finditer(text, max(start, position), end + MAX_PLACEHOLDER_CHARACTERS):
                if match.start() >= end:
                    break
                position = match.end()
                yield match

    def _find_tag(self, match: re.Match[str]) -> str | None:
        name = match[1]
        if name is None:
            return self._tags.get(match[0])
        if name not in self._names:
            return None
        return f"{{{{ data.{self._keys.get(name) or self._add_key(name)} }}}}"

    def _add_key(self, name: str) -> str:
        if len(self._keys) >= MAX_PLACEHOLDERS:
            raise ValueError(f"has too many placeholders (maximum is {MAX_PLACEHOLDERS})")
        # `first-name` and `first_name` are different names, but would be the same merge variable.
        taken = {_BRACE_NAME, *self._keys.values()}
        key = base = "v_" + _NOT_IN_NAME.sub("_", name)[:60]
        number = 1
        while key in taken:
            number += 1
            key = f"{base}_{number}"
        self._keys[name] = key
        return key

    def _escape(self, text: str) -> str:
        parts: list[str] = []
        size = position = 0
        for match in _BRACE.finditer(text):
            parts += (text[position : match.start()], _BRACE_TAG)
            position = match.end()
            size += len(parts[-2]) + len(_BRACE_TAG)
            _check_size(size)
        if not parts:
            return text
        self._has_braces = True
        return "".join((*parts, text[position:]))

    def get_data(self, values: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the values of the merge tags of the converted texts, as `data` of a message for one recipient."""
        values = values or {}
        data: dict[str, Any] = {self._keys[name]: values.get(name, "") for name in sorted(self._keys)}
        return data | ({_BRACE_NAME: "{"} if self._has_braces else {})

    def fill(self, text: str, values: Mapping[str, str], limit: int) -> str:
        """Return a text with the values of one recipient in place of its placeholders, for a header.

        Raises ValueError as soon as it has more than `limit` characters.
        """
        parts: list[str] = []
        size = position = 0
        for match in self._find_placeholders(text):
            value = values.get(match[1]) if match[1] is not None else None
            if value is not None:
                parts += (text[position : match.start()], value)
                position = match.end()
                size += len(parts[-2]) + len(value)
                _check_size(size, limit)
        _check_size(size + len(text) - position, limit)
        return "".join((*parts, text[position:]))


def _check_size(size: int, limit: int = MAX_CHARACTERS) -> None:
    if size > limit:
        raise ValueError(f"is too long (maximum is {limit} characters)")
