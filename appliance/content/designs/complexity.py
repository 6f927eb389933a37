"""Find HTML that would take the parser long to read: a few kilobytes can become millions of elements.

The parser that sanitizes HTML follows the HTML standard, as browsers do (section 13.2). Its time is quadratic in the
depth of elements, and in the attributes of one element. It also repeats the formatting elements that a block leaves
open (`<p><b></p><p>`) in each later block.
"""

import re
from collections import Counter

# The tags, comments and instructions as the standard's tokenizer reads them; what is not closed extends to the end.
_ATTRIBUTE = (
    r"[^\t\n\f\r />][^\t\n\f\r />=]*+(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+"
    r"(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\t\n\f\r >\"'][^\t\n\f\r >]*+)?)?"
)
_TOKEN = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|(?P<data><!\[CDATA\[)|<(?:[!?]|/(?![a-zA-Z]))[^>]*+"
    rf"|<(?P<end>/?)(?P<name>[a-zA-Z][^\t\n\f\r />]*+)(?:[\t\n\f\r /]++|{_ATTRIBUTE})*+",
    re.DOTALL,
)
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_VOID = frozenset({"br", "hr", "img", "meta", "link", "col", "wbr"})
# Elements that end where the next one begins, unless another element is open in them.
_ITEMS = {"li": ("li",), "dt": ("dt", "dd"), "dd": ("dt", "dd")}
_LISTS = frozenset({"ul", "ol", "dl"})
_ROWS = frozenset({"tr", "tbody", "thead", "tfoot", "colgroup"})
_CELLS = frozenset({"td", "th", "caption"})
# Elements in which the parts of an outer table neither begin nor end.
_TABLE_SCOPE = frozenset({"table", "template", "svg", "math"})
_FORMATTING = frozenset({
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
})  # fmt: skip
# Elements whose content is text without tags, except in the elements of `_UNCERTAIN`.
_TEXT_ONLY = frozenset({
    "title", "textarea", "style", "script", "noscript", "xmp", "iframe", "noembed", "noframes", "plaintext",
})  # fmt: skip
_UNCERTAIN = frozenset({"svg", "math", "select"})
# Elements of a drawing that contain no HTML and end with it.
_SHAPES = frozenset({
    "g", "defs", "symbol", "use", "path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan",
    "lineargradient", "radialgradient", "stop", "clippath", "mask",
})  # fmt: skip
# More than any email needs.
_MAX_DEPTH = 250
_MAX_ATTRIBUTES = 200
# The limit for the sum of the depths of all elements and of the characters that may be repeated.
_MAX_WORK = 2_000_000


def is_too_complex(html: str) -> bool:
    """Return whether an element has too many attributes, elements are nested too deeply, or too many are repeated."""
    elements = _OpenElements()
    position = 0
    while (token := _TOKEN.search(html, position)) is not None:
        start, position = token.span()
        name = (token["name"] or "").lower()
        # An attribute has at least one character, so a shorter tag cannot have too many of them.
        if name and position - start > _MAX_ATTRIBUTES:
            attributes = _ATTRIBUTES.finditer(html, token.end("name"), position)
            if sum(1 for _ in attributes) > _MAX_ATTRIBUTES:
                return True
        if token["end"]:
            elements.end(name)
        elif name:
            elements.start(name, position - start)
        is_text_only = bool(token["data"]) or (name in _TEXT_ONLY and not token["end"])
        if is_text_only and not _UNCERTAIN.isdisjoint(elements.names):
            # Whether a text or tags follow is uncertain: all may be start tags, each in the one before it, or all the
            # attributes of one of them.
            elements.work += html.count("<", position) ** 2 // 2 + (len(html) - position) ** 2 // 500
        elif token["data"]:
            position = html.find(">", position) + 1 or len(html)
        elif is_text_only:
            end = re.compile(rf"(?i)</{name}(?=[\t\n\f\r />])").search(html, position)
            position = end.start() if end else len(html)
        if elements.work > _MAX_WORK or elements.unclosed > _MAX_DEPTH:
            return True
    return False


class _OpenElements:
    """The elements that are open at a position of the HTML: all that the parser has, and maybe more.

    An end tag ends an element only if the parser certainly ends it. `unclosed` is the number of elements without an end
    tag, wherever their end tags are. `work` estimates the time of parsing so far, in elements.
    """

    def __init__(self) -> None:
        self.unclosed = self.work = 0
        self._unclosed_names = Counter[str]()
        self.names = [""]  # the outermost first, in the document itself
        # For each open element, the characters of the start tags of formatting elements that are repeated in it.
        self._formatting = [0]
        # For each open element, the name and characters of formatting elements that ended in it without an end tag: a
        # table ends `<table><b><tr></table>`, but the next block repeats the `b`.
        self._left_open: list[list[tuple[str, int]]] = [[]]
        self._lengths = [0]  # of the start tags
        # The index of the innermost `svg` if only `_SHAPES` have followed it, so that its end tag certainly ends it.
        self._drawing: int | None = None

    def start(self, name: str, length: int) -> None:
        """Open an element with a start tag of this length."""
        if name not in _SHAPES:
            self._drawing = len(self.names) if name == "svg" else None
        formatting = self._formatting[-1]
        self.work += len(self.names) + (0 if name in _FORMATTING else formatting)
        if name in _VOID:
            return
        if name not in ("p", "li", "dt", "dd", "tr", "td", "th", "tbody", "thead", "tfoot"):
            self._unclosed_names[name] += 1
            self.unclosed += 1
        if name == "p" and _UNCERTAIN.isdisjoint(self.names):
            return  # Each `p` ends the one before it.
        if name in _ITEMS and self.names[-1] in _ITEMS[name]:
            return
        if name in _ROWS or name in _CELLS:
            table = self._find_table()
            if table is not None:
                self._cut(table + 1)
                if name in _ROWS:
                    return
                formatting = 0
        self.names.append(name if name != "table" or "select" not in self.names else "")
        self._formatting.append(formatting + (length if name in _FORMATTING else 0))
        self._lengths.append(length)
        self._left_open.append([])

    def end(self, name: str) -> None:
        """End the innermost open element with this name, if the parser certainly ends it."""
        if self._unclosed_names[name]:
            self._unclosed_names[name] -= 1
            self.unclosed -= 1
        drawing, self._drawing = self._drawing, self._drawing if name in _SHAPES else None
        if name == "svg" and drawing is not None:
            self._cut(drawing)
        elif name in _FORMATTING and self._end_left_open(name):
            return
        elif self.names[-1] == name:
            self._cut(len(self.names) - 1, has_end_tag=True)
        elif name in _LISTS and self.names[-2:-1] == [name] and self.names[-1] in _ITEMS:
            self._cut(len(self.names) - 2)
        elif name == "table" or name in _CELLS:
            table = self._find_table()
            if table is not None and name == "table":
                self._cut(table)
            elif table is not None and self.names[table + 1 : table + 2] == [name]:
                self._cut(table + 1)

    def _find_table(self) -> int | None:
        """Return the index of the innermost open table, or None if another element encloses the position in it."""
        for index in range(len(self.names) - 1, -1, -1):
            self.work += 1
            if self.names[index] in _TABLE_SCOPE:
                return index if self.names[index] == "table" else None
        return None

    def _end_left_open(self, name: str) -> bool:
        """End the last formatting element with this name that ended without an end tag in the innermost open element.

        Returns whether there is one.
        """
        left_open = self._left_open[-1]
        index = next((index for index in range(len(left_open) - 1, -1, -1) if left_open[index][0] == name), None)
        if index is None:
            return False
        self.work += len(left_open) - index
        self._formatting[-1] -= left_open.pop(index)[1]
        return True

    def _cut(self, count: int, has_end_tag: bool = False) -> None:
        """End all but the first `count` elements. `has_end_tag` is for a single element with its own end tag."""
        left_open: list[tuple[str, int]] = []
        for index in range(count, len(self.names)):
            name = self.names[index]
            if name in _CELLS and self.names[index - 1] == "table":
                break  # The end of a cell also ends the formatting elements in it.
            if name in _FORMATTING and not has_end_tag:
                left_open.append((name, self._lengths[index]))
            left_open += self._left_open[index]
        del self.names[count:], self._formatting[count:], self._lengths[count:], self._left_open[count:]
        self._left_open[-1] += left_open
        self._formatting[-1] += sum(length for _, length in left_open)
