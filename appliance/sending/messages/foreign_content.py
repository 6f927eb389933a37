"""Content that another program wrote: its braces are text, and its placeholders become merge tags."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

# A brace that would begin a merge tag, and a brace before which a merge tag will stand
_BRACE = re.compile(r"\{(?=[{%]|\Z)")
_BRACE_NAME = "brace"
_BRACE_TAG = f"{{{{ data.{_BRACE_NAME} }}}}"
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")
# The maximum numbers of characters of a converted text, and of different placeholders in the texts of a message.
MAX_CHARACTERS, MAX_PLACEHOLDERS = 1_048_576, 100
# The characters of the longest placeholder, and those that are searched at a time. A search holds the interpreter's
# lock, so that of a whole text would stop the event loop.
MAX_PLACEHOLDER_CHARACTERS, _SEARCHED_CHARACTERS = 128, 16_384
_MARK = re.compile(rb"[^\0]")


class Placeholder(NamedTuple):
    """A placeholder in a text: its position (`start`, `end`), its text, and the name of the value to fill in.

    `name` is None for a placeholder that becomes one of the merge tags of `ForeignContent` instead.
    """

    start: int
    end: int
    text: str
    name: str | None


class PlaceholderNames:
    """Placeholders that are the names of their values, of up to `MAX_PLACEHOLDER_CHARACTERS` each.

    Where several names begin, the longest counts. A text is searched in a time that does not depend on the names, which
    a pattern of all names does not promise: it would compare each of them with each position of the text. The result
    for a text is kept, because the messages of a request often share their texts.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._marks: dict[str, bytes] = {}

    def find(self, text: str) -> Iterator[Placeholder]:
        """Yield the placeholders in a text, which do not overlap, from left to right."""
        marks = self._marks.get(text)
        if marks is None:
            marks = self._marks[text] = _build_automaton(self._names).mark(text)
        position = 0
        while match := _MARK.search(marks, position):
            start, position = match.start(), match.start() + marks[match.start()]
            yield Placeholder(start, position, text[start:position], text[start:position])


class _Automaton(NamedTuple):
    """An automaton that finds names in a text (Aho and Corasick, 1975).

    It reads the text from its end, so that it finds where names begin. Each list has one entry for each state:
    `following` maps the next character to the next state, `fallbacks` is the state to continue with if no character
    matches, and `lengths` is the length of the longest name that begins at the last character read (0 for none).
    """

    following: list[dict[str, int]]
    fallbacks: list[int]
    lengths: list[int]

    def mark(self, text: str) -> bytes:
        """Return for each character of a text the length of the longest name that begins there, 0 for none."""
        marks, state = bytearray(len(text)), 0
        for index in range(len(text) - 1, -1, -1):
            char = text[index]
            while state and char not in self.following[state]:
                state = self.fallbacks[state]
            state = self.following[state].get(char, 0)
            marks[index] = self.lengths[state]
        return bytes(marks)


@functools.lru_cache(maxsize=1)  # the texts of a message are searched one after the other
def _build_automaton(names: frozenset[str]) -> _Automaton:
    """Return the automaton that finds names. Its size, and the time to build it, grow with the names' total length."""
    automaton = _Automaton([{}], [0], [0])
    for name in names:
        state = 0
        for char in reversed(name):
            if char not in automaton.following[state]:
                automaton.following[state][char] = len(automaton.following)
                automaton.following.append({})
                automaton.fallbacks.append(0)
                automaton.lengths.append(0)
            state = automaton.following[state][char]
        automaton.lengths[state] = len(name)
    states = list(automaton.following[0].values())
    for state in states:  # breadth first: the list grows behind
        for char, child in automaton.following[state].items():
            shorter = automaton.fallbacks[state]
            while shorter and char not in automaton.following[shorter]:
                shorter = automaton.fallbacks[shorter]
            automaton.fallbacks[child] = automaton.following[shorter].get(char, 0)
            automaton.lengths[child] = automaton.lengths[child] or automaton.lengths[automaton.fallbacks[child]]
            states.append(child)
    return automaton


class ForeignContent:
    """A converter of the texts of one message into templates, in which only its placeholders are merge tags.

    `placeholder` finds placeholders, as a pattern with the name of the value as its first group or as the names
    themselves; a name that is not in `names` is left as text. `tags` are the merge tags of placeholders that stand for
    something else than a value. Values are data: they are escaped where they are filled in, and never parsed as a
    template. A placeholder has at most `MAX_PLACEHOLDER_CHARACTERS`.
    """

    def __init__(
        self,
        placeholder: re.Pattern[str] | PlaceholderNames | None = None,
        names: Iterable[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self._placeholder, self._tags = placeholder, tags or {}
        self._names = frozenset(names)
        self._keys: dict[str, str] = {}
        self._has_braces = False

    @property
    def used_names(self) -> set[str]:
        """Return the names of the values that appear in the converted texts."""
        return set(self._keys)

    def convert(self, text: str) -> str:
        """Return a text as a template. The template of a text with neither braces nor placeholders is the text.

        Raises ValueError if the template has more than `MAX_CHARACTERS`, or if the texts have more than
        `MAX_PLACEHOLDERS`.
        """
        parts: list[str] = []
        size = position = 0
        for placeholder in self._find_placeholders(text):
            tag = self._find_tag(placeholder)
            if tag is not None:
                parts += (self._escape(text[position : placeholder.start]), tag)
                position = placeholder.end
                size += len(parts[-2]) + len(tag)
                _check_size(size)
        rest = text[position:]
        # The last brace of the text begins nothing.
        parts.append(self._escape(rest[:-1]) + rest[-1:] if rest.endswith("{") else self._escape(rest))
        _check_size(size + len(parts[-1]))
        return "".join(parts)

    def _find_placeholders(self, text: str) -> Iterator[Placeholder]:
        if isinstance(self._placeholder, PlaceholderNames):
            yield from self._placeholder.find(text)
        if not isinstance(self._placeholder, re.Pattern):
            return
        position = 0
        for start in range(0, len(text), _SEARCHED_CHARACTERS):
            end = start + _SEARCHED_CHARACTERS
            for match in self._placeholder.finditer(text, max(start, position), end + MAX_PLACEHOLDER_CHARACTERS):
                if match.start() >= end:
                    break
                position = match.end()
                yield Placeholder(match.start(), position, match[0], match[1])

    def _find_tag(self, placeholder: Placeholder) -> str | None:
        name = placeholder.name
        if name is None:
            return self._tags.get(placeholder.text)
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
        for placeholder in self._find_placeholders(text):
            value = values.get(placeholder.name) if placeholder.name is not None else None
            if value is not None:
                parts += (text[position : placeholder.start], value)
                position = placeholder.end
                size += len(parts[-2]) + len(value)
                _check_size(size, limit)
        _check_size(size + len(text) - position, limit)
        return "".join((*parts, text[position:]))


def _check_size(size: int, limit: int = MAX_CHARACTERS) -> None:
    if size > limit:
        raise ValueError(f"is too long (maximum is {limit} characters)")
