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
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from appliance.content.designs import colours, document, merge, props, shell
from appliance.content.designs.document import Section
from appliance.content.designs.kind import Inner, Kind, View
from appliance.content.designs.tags import Tokens, clean
from appliance.content.designs.theme import THEME, Look, Theme, resolve
from appliance.core import assets

MARK = "cn:"  # begins the comments of a marked rendering; a path follows
_SPACE = re.compile(r"-?\d+(?:\.\d+)?(?:px)?\Z")
# Documents of up to so many characters are kept rendered; those of more than that not at all: a request has 2 MiB
_KEPT, _LARGEST = 200_000, 2_500_000


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
def environment() -> Environment:
    """Return the one template environment of sections."""
    found = Environment(
        loader=assets.template_loader("appliance/content/designs/sections"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    found.filters["px"] = _px
    return found


def _px(values: Any) -> str:
    """Write a number, or several, as pixels."""
    return " ".join(f"{one:g}px" for one in (values if isinstance(values, list | tuple) else (values,)))


def render(design: Any, look: Look, locale: str = "en", marked: bool = False) -> Rendered:
    """Render a document; the last ones are kept, so asking twice is free. Never raises, whatever the document is.

    `marked`, for a canvas alone, tells in comments which section stands where.
    """
    try:
        text = document.canonical(design)
    except (RecursionError, TypeError, ValueError):
        # No request comes with such a one: nested beyond reason, or no JSON
        return _without(Advice("section", "the document cannot be read", "sections"), look, locale)
    if len(text) > _LARGEST:
        return _without(Advice("too_large", "the document is larger than any request", "sections"), look, locale)
    make = _drawn if len(text) < _KEPT else _draw
    return make(_whole(text), _whole(json.dumps(look, ensure_ascii=False)), locale, marked)


def _whole(text: str) -> str:
    """Return a text without halves of characters, which no mail can carry."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _said(look: Look) -> Look:
    """Return what of a brand is only ever words, so that no merge tag is read in it."""

    def words(value: Any) -> str:
        return re.sub(r"\{(?=[{%])", "{ ", clean(value)) if isinstance(value, str) else ""

    links = ((words(name), props.address(words(href), props.SCHEMES, lambda text: False)) for name, href in look.links)
    return look._replace(
        company_name=words(look.company_name), links=tuple((name, href) for name, href in links if href)
    )


def _without(advice: Advice, look: Look, locale: str) -> Rendered:
    return _draw("{}", json.dumps(look), locale)._replace(advice=(advice,))


def _draw(text: str, look: str, locale: str, marked: bool = False) -> Rendered:
    return _Run(text, Look(*json.loads(look)), locale, marked).result()


_drawn = lru_cache(maxsize=64)(_draw)


class _Run:
    """One rendering."""

    def __init__(self, text: str, look: Look, locale: str, marked: bool = False) -> None:
        raw = json.loads(text)
        raw = raw if isinstance(raw, dict) else {}
        self.tokens = Tokens()
        self.document = self.tokens.protect(raw)
        self.advice: list[Advice] = []
        self.conditions: dict[str, list[Any]] = {}
        self.look, self.locale, self.marked = _said(look), locale, marked
        self.theme = self._themed(raw, theme_of(raw, look))
        self.level = self.shown = self.size = 0

    def _themed(self, raw: dict[str, Any], theme: Theme) -> Theme:
        """Return a theme whose logo leads somewhere, its merge tags protected."""
        self._advise_theme(raw.get("theme"))
        found = theme.logo_url
        logo = props.address(self.tokens.protect(found), ("http", "https"), self.tokens.starts) if found else None
        return theme._replace(logo_url=logo)

    def _advise_theme(self, own: Any) -> None:
        """Return which colours of the document's theme are none, for those of the brand are shown instead."""
        for prop in THEME:
            value = prop.of(own)
            usable = value in (None, "") or (isinstance(value, str) and colours.known(value) is not None)
            if prop.kind == "colour" and not usable:
                words = f"{prop.label}: {str(value)[:60]!r} is no colour"
                self.advice.append(Advice("section", words, f"theme.{prop.name}"))

    def result(self) -> Rendered:
        parts, texts = [], []
        for index, raw in enumerate(document.sections(self.document)):
            if isinstance(raw, dict) and self._has_room(f"sections[{index}]"):
                mjml, text = self._section(document.section(raw, f"sections[{index}]"))
                self.size += len(mjml)
                parts.append(mjml)
                texts.append(text)
        html = shell.wrap_html(self._within("rows", "\n".join(parts)), self.theme, self.locale)
        text = re.sub(r"\n{3,}", "\n\n", "".join(texts)).strip() + "\n"
        return Rendered(self.tokens.restore(html), self.tokens.restore(text), tuple(self.advice), dict(self.conditions))

    def _has_room(self, path: str) -> bool:
        """Return whether a further section fits into a message; the first that does not is told."""
        self.shown += 1
        if self.shown <= document.MAX_IN_ALL and self.size <= merge.MAX_OUTPUT:
            return True
        if not any(one.code == "too_large" for one in self.advice):
            self.advice.append(Advice("too_large", "no message has room for this section and those after it", path))
        return False

    def _unknown(self, found: Section, words: str) -> None:
        kind = (found.type or "unknown")[:60]
        self.advice.append(Advice("unknown_section", f"a section of the kind {kind!r} cannot {words}", found.path))

    def _section(self, found: Section) -> tuple[str, str]:
        """Return a section as MJML that stands in the body, and as text."""
        if found.kind is None:
            self._unknown(found, "be shown")
            return self._within(found.path, ""), ""
        view = self._view(found, found.kind, self.theme.width)
        content = self._content(found.kind, view)
        mjml = self._template("_section").render(v=view, whole=found.kind.whole, content=content)
        mjml, text = self._shown(found, mjml, found.kind.text(view))
        return self._within(found.path, mjml), text

    def _within(self, mark: str, mjml: str) -> str:
        """Put comments around what a canvas has to find again."""
        begin, end = self.tokens.keep(f"<!--{MARK}{mark}-->"), self.tokens.keep(f"<!--/{MARK}-->")
        return f"<mj-raw>{begin}</mj-raw>{mjml}<mj-raw>{end}</mj-raw>" if self.marked else mjml

    def _content(self, kind: Kind, view: View) -> str:
        module = import_module(f"appliance.content.designs.sections.{kind.name}")
        return str(self._template(kind.name).render(v=view, t=view.theme, kind=module))

    def _template(self, name: str) -> Any:
        return environment().get_template(f"{name}.mjml")

    def _shown(self, found: Section, mjml: str, text: str) -> tuple[str, str]:
        """Put the conditions of a section around it, and space below its text that is not there without it."""
        text = f"{text.strip()}\n\n" if text.strip() else ""
        filters = found.props.get("show_if")
        if not isinstance(filters, list) or not filters:
            return mjml, text
        plain = self.tokens.unprotect(filters)
        name = "s" + hashlib.blake2b(document.canonical(plain).encode(), digest_size=6).hexdigest()
        self.conditions[name] = plain
        begin, end = self.tokens.keep(f"{{% if show.{name} %}}"), self.tokens.keep("{% endif %}")
        return f"<mj-raw>{begin}</mj-raw>{mjml}<mj-raw>{end}</mj-raw>", f"{begin}{text}{end}" if text else ""

    def _view(self, found: Section, kind: Kind, width: float) -> View:
        def note(code: str, words: str) -> None:
            self.advice.append(Advice(code, words, found.path))

        layer = {"header": self.look.header, "footer": self.look.footer}.get(kind.name) or {}
        values = found.props
        if isinstance(layer, Mapping) and layer:
            # What the section does not say, the brand does
            said = {name: one for name, one in values.items() if one is not None}
            values = {**self.tokens.protect(dict(layer)), **said}
        read = props.read_all(kind.all_props(), values, lambda words: note("section", words), self.tokens.starts)
        view = View(read, self.theme, self.look, self._keep, note, self._inner, width, self.level > 0)
        # Reading what goes in costs more than writing what comes out
        self.size += 2 * sum(map(len, document.strings({**found.props, "columns": None})))
        view.tagged = self.tokens.has
        view.path, view.rtl = found.path, shell.is_right_to_left(self.locale)
        view.padding = self._padding(found, kind)
        # A property of that name is the section's own colour where the section is whole, else that of a thing in it
        own = getattr(read, "background_color", None) if kind.whole else None
        ground = own or found.styles.get("background_color")
        ground = ground.strip() if isinstance(ground, str) else ""
        view.on_page = ground.lower() == "theme:bg" or (kind.on_page and not ground)
        if ground and not view.on_page:
            view.background = self.theme.colour(ground, "") or None
            if view.background is None:
                note("section", f"Background: {ground[:60]!r} is no colour")
        coloured = view.background is not None or view.on_page
        view.boxed = view.nested and (coloured or bool(found.styles.get("padding")))
        if view.boxed and not found.styles.get("padding"):
            view.padding = (12, 16, 12, 16)
        view.classes = [f"h-{read.hide_on}"] if read.hide_on in ("phone", "desktop") else []
        if not view.nested and min(view.padding[1], view.padding[3]) > 20:
            view.classes.append("c-pad")
        for code, words in kind.advise(view):
            note(code, words)
        return view

    def _keep(self, html: str) -> str:
        self.size += len(html)
        return self.tokens.keep(html)

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
            here = f"{path}[{index}]"
            if not isinstance(one, dict) or not self._has_room(here):
                continue
            found = document.section(one, here)
            if found.kind is None or not found.kind.in_columns or self.level > document.MAX_LEVELS:
                self._unknown(found, "stand in a column")
                parts.append(self._within(here, ""))
                continue
            mjml, text = self._nested(found, found.kind, width)
            parts.append(self._within(here, mjml))
            texts.append(text)
        self.level -= 1
        return Inner(self._within(path, "\n".join(parts)), "".join(texts).strip())

    def _nested(self, found: Section, kind: Kind, width: float) -> tuple[str, str]:
        """Return a section within a column: rows, in a cell of their own if it has colour, space or conditions."""
        view = self._view(found, kind, width)
        mjml = self._content(kind, view)
        if mjml.strip() and (view.boxed or view.classes):
            colour = f"background-color:{view.ground};" if view.background or view.on_page else ""
            surface = ' class="c-page"' if view.on_page else ""
            space = " ".join(f"{one}px" for one in view.padding) if view.boxed else "0"
            begin = self._keep(
                f'<tr class="{" ".join(view.classes)}"><td{surface} style="{colour}padding:{space}">'
                '<table border="0" cellpadding="0" cellspacing="0" role="presentation" width="100%">'
            )
            end = self._keep("</table></td></tr>")
            mjml = f"<mj-raw>{begin}</mj-raw>{mjml}<mj-raw>{end}</mj-raw>"
        return self._shown(found, mjml, kind.text(view))


def theme_of(design: Mapping[str, Any], look: Look) -> Theme:
    """Return the theme that a document is rendered with."""
    own = design.get("theme")
    return resolve(own if isinstance(own, dict) else {}, look)
