"""A design made a mail: document, theme and brand in; a template of HTML, a template of text and advice out.

A pure function, the same for preview, test and send. Values are filled in afterwards (`merge`), so that one rendering
serves every recipient.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from appliance.designs import document, props, shell
from appliance.designs.document import Section
from appliance.designs.kind import COMMON, Inner, Kind, View
from appliance.designs.tags import Tokens
from appliance.designs.theme import Look, Theme, resolve

_SPACE = re.compile(r"-?\d+(?:\.\d+)?(?:px)?\Z")
_HERE = Path(__file__).parent


class Advice(NamedTuple):
    """Something worth a second look: a code, words, and the path in the document."""

    code: str
    message: str
    path: str


class Rendered(NamedTuple):
    """A mail with its merge tags in place; `conditions` are filters by the name that shows or hides a part."""

    html: str
    text: str
    advice: tuple[Advice, ...]
    conditions: Mapping[str, list[Any]]


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_HERE / "sections"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    found.filters["px"] = _px
    return found


def _px(values: Any) -> str:
    """Write a number, or several, as pixels."""
    return " ".join(f"{one:g}px" for one in (values if isinstance(values, list | tuple) else (values,)))


def render(design: Mapping[str, Any], look: Look, locale: str = "en") -> Rendered:
    """Render a document; the last ones are kept, so asking twice is free. Never raises for what a document holds."""
    return _render(document.canonical(design), json.dumps(look, ensure_ascii=False), locale)


@lru_cache(maxsize=64)
def _render(text: str, look: str, locale: str) -> Rendered:
    return _Run(text, Look(*json.loads(look)), locale).result()


class _Run:
    """One rendering."""

    def __init__(self, text: str, look: Look, locale: str) -> None:
        raw = json.loads(text)
        raw = raw if isinstance(raw, dict) else {}
        self.tokens = Tokens(text.encode())
        own = raw.get("theme")
        self.theme = resolve(own if isinstance(own, dict) else {}, look)
        self.look, self.locale = look, locale
        self.document = self.tokens.protect(raw)
        self.advice: list[Advice] = []
        self.conditions: dict[str, list[Any]] = {}
        self.level = 0

    def result(self) -> Rendered:
        parts, texts = [], []
        for index, raw in enumerate(document.sections(self.document)):
            if isinstance(raw, dict):
                mjml, text = self._section(document.section(raw, f"sections[{index}]"))
                parts.append(mjml)
                texts.append(text)
        html = shell.html("\n".join(parts), self.theme, self.locale)
        text = re.sub(r"\n{3,}", "\n\n", "\n\n".join(part.strip() for part in texts if part.strip())) + "\n"
        return Rendered(self.tokens.restore(html), self.tokens.restore(text), tuple(self.advice), dict(self.conditions))

    def _section(self, found: Section) -> tuple[str, str]:
        """Answer a section as MJML that stands in the body, and as text."""
        if found.kind is None:
            words = f"a section of the kind {found.type or 'unknown'!r} cannot be shown"
            self.advice.append(Advice("unknown_section", words, found.path))
            return "", ""
        view = self._view(found, found.kind, self.theme.width)
        content = Markup(self._content(found.kind, view))  # noqa: S704 - made by our own templates, which escape
        mjml = self._template("_section").render(v=view, whole=found.kind.whole, content=content)
        return self._shown(found, mjml, found.kind.text(view))

    def _content(self, kind: Kind, view: View) -> str:
        module = import_module(f"appliance.designs.sections.{kind.name}")
        return str(self._template(kind.name).render(v=view, t=view.theme, kind=module))

    def _template(self, name: str) -> Any:
        return _environment().get_template(f"{name}.mjml")

    def _shown(self, found: Section, mjml: str, text: str) -> tuple[str, str]:
        """Put the conditions of a section around it."""
        filters = found.props.get("show_if")
        if not isinstance(filters, list) or not filters:
            return mjml, text
        plain = json.loads(self.tokens.restore(json.dumps(filters)))
        name = "s" + hashlib.blake2b(document.canonical(plain).encode(), digest_size=6).hexdigest()
        self.conditions[name] = plain
        begin, end = self.tokens.keep(f"{{% if show.{name} %}}"), self.tokens.keep("{% endif %}")
        return f"<mj-raw>{begin}</mj-raw>{mjml}<mj-raw>{end}</mj-raw>", f"{begin}{text}{end}"

    def _view(self, found: Section, kind: Kind, width: float) -> View:
        def note(code: str, words: str) -> None:
            self.advice.append(Advice(code, words, found.path))

        layer = {"header": self.look.header, "footer": self.look.footer}.get(kind.name) or {}
        values = {**self.tokens.protect(dict(layer)), **found.props}
        read = props.read_all((*kind.props, *COMMON), values, lambda words: note("section", words), self.tokens.starts)
        view = View(read, self.theme, self.look, self._keep, note, self._inner, width, self.level > 0)
        view.path = found.path
        view.padding = self._padding(found, kind)
        ground = found.styles.get("background_color")
        if isinstance(ground, str) and ground:
            view.background = self.theme.colour(ground, "") or None
            if view.background is None:
                note("section", f"Background: {ground[:60]!r} is no colour")
        view.classes = [f"h-{read.hide_on}"] if read.hide_on in ("phone", "desktop") else []
        for code, words in kind.advise(view):
            note(code, words)
        return view

    def _keep(self, html: str) -> Markup:
        return Markup(self.tokens.keep(html))  # noqa: S704 - a word of ours, nothing else

    def _padding(self, found: Section, kind: Kind) -> tuple[int, int, int, int]:
        """Read one to four pixel values as CSS does: top, right, bottom, left."""
        raw = found.styles.get("padding")
        if raw is None or raw == "":
            return kind.padding
        words = str(raw).split() if not isinstance(raw, list | dict | bool) else []
        if not 1 <= len(words) <= 4 or not all(_SPACE.match(word) for word in words):
            self.advice.append(Advice("section", f"Padding: {str(raw)[:60]!r} cannot be used here", found.path))
            return kind.padding
        sizes = [max(0, min(96, round(float(word.removesuffix("px"))))) for word in words]
        top, right, bottom, left = (sizes * 4)[:4] if len(sizes) < 3 else [*sizes, sizes[1]][:4]
        return top, right, bottom, left

    def _inner(self, raw: list[Any], width: float, path: str) -> Inner:
        """Render sections within a column of a width."""
        self.level += 1
        parts, texts = [], []
        for index, one in enumerate(raw):
            found = document.section(one, f"{path}[{index}]") if isinstance(one, dict) else None
            if found is None or found.kind is None or not found.kind.in_columns or self.level > document.MOST_LEVELS:
                if found is not None:
                    words = f"a section of the kind {found.type or 'unknown'!r} cannot stand in a column"
                    self.advice.append(Advice("unknown_section", words, found.path))
                continue
            view = self._view(found, found.kind, width)
            parts.append(self._content(found.kind, view))
            texts.append(found.kind.text(view))
        self.level -= 1
        return Inner("\n".join(parts), "\n\n".join(text for text in texts if text.strip()))


def theme_of(design: Mapping[str, Any], look: Look) -> Theme:
    """Answer the theme that a document is rendered with."""
    own = design.get("theme")
    return resolve(own if isinstance(own, dict) else {}, look)
