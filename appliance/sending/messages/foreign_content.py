"""Content that another program wrote: its braces are text, and its placeholders become merge tags."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# A brace that would begin a merge tag, and a brace before which a merge tag will stand
_BRACE = re.compile(r"\{(?=[{%]|\Z)")
_BRACE_NAME = "brace"
_BRACE_TAG = f"{{{{ data.{_BRACE_NAME} }}}}"
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")


class ForeignContent:
    """A converter of the texts of one message into templates, in which only its placeholders are merge tags.

    `placeholder` matches a placeholder, with the name of its value as the first group; a name that is not in `names`
    is left as text. `tags` are the merge tags of placeholders that stand for something else than a value. Values are
    data: they are escaped where they are filled in, and never parsed as a template.
    """

    def __init__(
        self,
        placeholder: re.Pattern[str] | None = None,
        names: Iterable[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self._placeholder, self._tags = placeholder, tags or {}
        self._keys: dict[str, str] = {}
        taken = {_BRACE_NAME}
        for name in names:
            # `first-name` and `first_name` are different names, but would be the same merge variable.
            key = base = "v_" + _NOT_IN_NAME.sub("_", name)[:60]
            number = 1
            while key in taken:
                number += 1
                key = f"{base}_{number}"
            taken.add(key)
            self._keys[name] = key
        self.used_names: set[str] = set()
        self._has_braces = False

    def convert(self, text: str) -> str:
        """Return a text as a template. The template of a text with neither braces nor placeholders is the text."""
        parts: list[str] = []
        position = 0
        for match in self._placeholder.finditer(text) if self._placeholder is not None else ():
            tag = self._find_tag(match)
            if tag is not None:
                parts += (self._escape(text[position : match.start()]), tag)
                position = match.end()
        rest = text[position:]
        # The last brace of the text begins nothing.
        parts.append(self._escape(rest[:-1]) + rest[-1:] if rest.endswith("{") else self._escape(rest))
        return "".join(parts)

    def _find_tag(self, match: re.Match[str]) -> str | None:
        name = match[1]
        if name is None:
            return self._tags.get(match[0])
        key = self._keys.get(name)
        if key is None:
            return None
        self.used_names.add(name)
        return f"{{{{ data.{key} }}}}"

    def _escape(self, text: str) -> str:
        escaped, count = _BRACE.subn(_BRACE_TAG.replace("\\", r"\\"), text)
        self._has_braces = self._has_braces or count > 0
        return escaped

    def get_data(self, values: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the values of the merge tags of the converted texts, as `data` of a message for one recipient."""
        values = values or {}
        data: dict[str, Any] = {self._keys[name]: values.get(name, "") for name in sorted(self.used_names)}
        return data | ({_BRACE_NAME: "{"} if self._has_braces else {})

    def fill(self, text: str, values: Mapping[str, str]) -> str:
        """Return a text with the values of one recipient in place of its placeholders, for a header."""
        if self._placeholder is None:
            return text

        def replace(match: re.Match[str]) -> str:
            return values.get(match[1], match[0]) if match[1] is not None else match[0]

        return self._placeholder.sub(replace, text)
