"""Rendering of designs: document, theme and brand to HTML and text with merge tags, and advice.

A pure function, the same for preview, test and send. Values are filled in afterwards (`merge`), so that one rendering
serves all recipients.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from appliance.content.designs import document, merge
from appliance.content.designs.document import Section
from appliance.content.designs.kind import SCHEMES, THEME, InnerContent, Kind, View, normalize_address, read_values
from appliance.content.designs.markup import Tokens, remove_control_characters
from appliance.content.designs.theme import Look, Theme, is_right_to_left, parse_colour, resolve_theme, wrap_html
from appliance.core import executable

SECTION_MARK = "cn:"  # begins the comments of a marked rendering; a path follows
_SPACE = re.compile(r"-?\d+(?:\.\d+)?(?:px)?\Z")
# Renderings of documents up to the first size are cached; larger ones than the second are refused: a request has 2 MiB.
_MAX_CACHED_CHARACTERS, _MAX_CHARACTERS = 200_000, 2_500_000


class Advice(NamedTuple):
    """Advice about a part of a document: a code, a message, and a path."""

    code: str
    message: str
    path: str


class RenderedDesign(NamedTuple):
    """A rendered design with merge tags; `conditions` holds filters by the name of the variable that shows a part."""

    html: str
    text: str
    advice: tuple[Advice, ...]
    conditions: Mapping[str, list[Any]]


@cache
def environment() -> Environment:
    """Return the template environment of sections."""
    templates = Environment(
        loader=executable.template_loader("appliance/content/designs/sections"), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    templates.filters["px"] = _to_pixels
    return templates


def _to_pixels(values: Any) -> str:
    """Return a number or several as pixels."""
    return " ".join(f"{value:g}px" for value in (values if isinstance(values, list | tuple) else (values,)))


def render_design(design: Any, look: Look, locale: str = "en", marked: bool = False) -> RenderedDesign:
    """Render a document; recent renderings are cached. Never raises for any document.

    `marked` adds comments for the editor's canvas that mark where each section begins and ends.
    """
    try:
        text = document.to_canonical_json(design)
    except (RecursionError, TypeError, ValueError):
        # Requests are validated, so only stored documents can be nested too deeply or not be JSON.
        return _render_empty(Advice("section", "the document cannot be read", "sections"), look, locale)
    if len(text) > _MAX_CHARACTERS:
        return _render_empty(Advice("too_large", "the document is larger than any request", "sections"), look, locale)
    make = _render_cached if len(text) < _MAX_CACHED_CHARACTERS else _render
    return make(_replace_surrogates(text), _replace_surrogates(json.dumps(look, ensure_ascii=False)), locale, marked)


def _replace_surrogates(text: str) -> str:
    """Return a text without halves of surrogate pairs, which no email can carry."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _sanitize_look(look: Look) -> Look:
    """Return the brand with its texts cleared of merge tags and its links validated."""

    def to_words(value: Any) -> str:
        return re.sub(r"\{(?=[{%])", "{ ", remove_control_characters(value)) if isinstance(value, str) else ""

    links = (
        (to_words(name), normalize_address(to_words(href), SCHEMES, lambda text: False)) for name, href in look.links
    )
    return look._replace(
        company_name=to_words(look.company_name), links=tuple((name, href) for name, href in links if href)
    )


def _render_empty(advice: Advice, look: Look, locale: str) -> RenderedDesign:
    return _render("{}", json.dumps(look), locale)._replace(advice=(advice,))


def _render(text: str, look: str, locale: str, marked: bool = False) -> RenderedDesign:
    return _Rendering(text, Look(*json.loads(look)), locale, marked).result()


_render_cached = lru_cache(maxsize=64)(_render)


class _Rendering:
    """The state of one rendering."""

    def __init__(self, text: str, look: Look, locale: str, marked: bool = False) -> None:
        raw = json.loads(text)
        raw = raw if isinstance(raw, dict) else {}
        self.tokens = Tokens()
        self.document = self.tokens.protect(raw)
        self.advice: list[Advice] = []
        self.conditions: dict[str, list[Any]] = {}
        self.look, self.locale, self.marked = _sanitize_look(look), locale, marked
        self.theme = self._resolve_logo(raw, document_theme(raw, look))
        self.level = self.shown = self.size = 0

    def _resolve_logo(self, raw: dict[str, Any], theme: Theme) -> Theme:
        """Return the theme with a valid logo address whose merge tags are protected."""
        self._advise_theme(raw.get("theme"))
        url = theme.logo_url
        logo = normalize_address(self.tokens.protect(url), ("http", "https"), self.tokens.starts) if url else None
        return theme._replace(logo_url=logo)

    def _advise_theme(self, values: Any) -> None:
        """Advise about invalid theme colours, which are replaced by those of the brand."""
        for prop in THEME:
            value = prop.get_value(values)
            usable = value in (None, "") or (isinstance(value, str) and parse_colour(value) is not None)
            if prop.kind == "colour" and not usable:
                message = f"{prop.label}: {str(value)[:60]!r} is no colour"
                self.advice.append(Advice("section", message, f"theme.{prop.name}"))

    def result(self) -> RenderedDesign:
        parts, texts = [], []
        for index, raw in enumerate(document.get_sections(self.document)):
            if isinstance(raw, dict) and self._has_room(f"sections[{index}]"):
                mjml, text = self._render_section(document.read_section(raw, f"sections[{index}]"))
                self.size += len(mjml)
                parts.append(mjml)
                texts.append(text)
        html = wrap_html(self._wrap_mark("rows", "\n".join(parts)), self.theme, self.locale)
        text = re.sub(r"\n{3,}", "\n\n", "".join(texts)).strip() + "\n"
        return RenderedDesign(
            self.tokens.restore(html), self.tokens.restore(text), tuple(self.advice), dict(self.conditions)
        )

    def _has_room(self, path: str) -> bool:
        """Return whether the message has room for another section; advise about the first that has none."""
        self.shown += 1
        if self.shown <= document.MAX_TOTAL_SECTIONS and self.size <= merge.MAX_OUTPUT_BYTES:
            return True
        if not any(advice.code == "too_large" for advice in self.advice):
            self.advice.append(Advice("too_large", "no message has room for this section and those after it", path))
        return False

    def _render_unknown(self, section: Section, action: str) -> None:
        kind = (section.type or "unknown")[:60]
        self.advice.append(Advice("unknown_section", f"a section of the kind {kind!r} cannot {action}", section.path))

    def _render_section(self, section: Section) -> tuple[str, str]:
        """Return a section as MJML for the body, and as text."""
        if section.kind is None:
            self._render_unknown(section, "be shown")
            return self._wrap_mark(section.path, ""), ""
        view = self._build_view(section, section.kind, self.theme.width)
        content = self._render_content(section.kind, view)
        mjml = self._render_template("_section").render(v=view, whole=section.kind.is_whole, content=content)
        mjml, text = self._wrap_conditions(section, mjml, section.kind.text(view))
        return self._wrap_mark(section.path, mjml), text

    def _wrap_mark(self, mark: str, mjml: str) -> str:
        """Wrap MJML in the comments by which the canvas finds it."""
        begin, end = self.tokens.keep(f"<!--{SECTION_MARK}{mark}-->"), self.tokens.keep(f"<!--/{SECTION_MARK}-->")
        return f"<mj-raw>{begin}</mj-raw>{mjml}<mj-raw>{end}</mj-raw>" if self.marked else mjml

    def _render_content(self, kind: Kind, view: View) -> str:
        module = import_module(f"appliance.content.designs.sections.{kind.name}")
        return str(self._render_template(kind.name).render(v=view, t=view.theme, kind=module))

    def _render_template(self, name: str) -> Any:
        return environment().get_template(f"{name}.mjml")

    def _wrap_conditions(self, section: Section, mjml: str, text: str) -> tuple[str, str]:
        """Wrap a section in its conditions; the space after its text is within the condition."""
        text = f"{text.strip()}\n\n" if text.strip() else ""
        filters = section.props.get("show_if")
        if not isinstance(filters, list) or not filters:
            return mjml, text
        plain = self.tokens.unprotect(filters)
        name = "s" + hashlib.blake2b(document.to_canonical_json(plain).encode(), digest_size=6).hexdigest()
        self.conditions[name] = plain
        begin, end = self.tokens.keep(f"{{% if show.{name} %}}"), self.tokens.keep("{% endif %}")
        return f"<mj-raw>{begin}</mj-raw>{mjml}<mj-raw>{end}</mj-raw>", f"{begin}{text}{end}" if text else ""

    def _build_view(self, section: Section, kind: Kind, width: float) -> View:
        def note(code: str, message: str) -> None:
            self.advice.append(Advice(code, message, section.path))

        layer = {"header": self.look.header, "footer": self.look.footer}.get(kind.name) or {}
        values = section.props
        if isinstance(layer, Mapping) and layer:
            # The brand provides what the section does not set.
            own_values = {name: value for name, value in values.items() if value is not None}
            values = {**self.tokens.protect(dict(layer)), **own_values}
        props = read_values(kind.all_props(), values, lambda words: note("section", words), self.tokens.starts)
        view = View(props, self.theme, self.look, self._keep_html, self._render_inner, width, self.level > 0)
        # Reading the source costs more than writing the output.
        self.size += 2 * sum(map(len, merge.iterate_strings({**section.props, "columns": None})))
        view.has_tags = self.tokens.has
        view.path, view.is_rtl = section.path, is_right_to_left(self.locale)
        view.padding = self._resolve_padding(section, kind)
        # In whole sections a property of this name is the colour of the section, in others that of an element.
        own_background = getattr(props, "background_color", None) if kind.is_whole else None
        ground = own_background or section.styles.get("background_color")
        ground = ground.strip() if isinstance(ground, str) else ""
        view.is_on_page = ground.lower() == "theme:bg" or (kind.is_on_page and not ground)
        if ground and not view.is_on_page:
            view.background = self.theme.colour(ground, "") or None
            if view.background is None:
                note("section", f"Background: {ground[:60]!r} is no colour")
        coloured = view.background is not None or view.is_on_page
        view.is_boxed = view.is_nested and (coloured or bool(section.styles.get("padding")))
        if view.is_boxed and not section.styles.get("padding"):
            view.padding = (12, 16, 12, 16)
        view.classes = [f"h-{props.hide_on}"] if props.hide_on in ("phone", "desktop") else []
        if not view.is_nested and min(view.padding[1], view.padding[3]) > 20:
            view.classes.append("c-pad")
        for code, message in kind.advise(view):
            note(code, message)
        return view

    def _keep_html(self, html: str) -> str:
        self.size += len(html)
        return self.tokens.keep(html)

    def _resolve_padding(self, section: Section, kind: Kind) -> tuple[int, int, int, int]:
        """Return the padding in pixels as CSS orders it: top, right, bottom, left."""
        raw = section.styles.get("padding")
        if raw is None or raw == "":
            return kind.padding
        sizes_text = str(raw).split() if not isinstance(raw, list | dict | bool) else []
        if not 1 <= len(sizes_text) <= 4 or not all(_SPACE.match(word) for word in sizes_text):
            self.advice.append(Advice("section", f"Padding: {str(raw)[:60]!r} cannot be used here", section.path))
            return kind.padding
        sizes = [max(0, min(96, round(float(word.removesuffix("px"))))) for word in sizes_text]
        top, right, bottom, left = (sizes * 4)[:4] if len(sizes) < 3 else [*sizes, sizes[1]][:4]
        return top, right, bottom, left

    def _render_inner(self, raw: list[Any], width: float, path: str) -> InnerContent:
        """Render the sections of a column."""
        self.level += 1
        parts, texts = [], []
        for index, raw_section in enumerate(raw):
            item_path = f"{path}[{index}]"
            if not isinstance(raw_section, dict) or not self._has_room(item_path):
                continue
            section = document.read_section(raw_section, item_path)
            if section.kind is None or not section.kind.is_in_columns or self.level > document.MAX_COLUMN_LEVELS:
                self._render_unknown(section, "stand in a column")
                parts.append(self._wrap_mark(item_path, ""))
                continue
            mjml, text = self._render_nested(section, section.kind, width)
            parts.append(self._wrap_mark(item_path, mjml))
            texts.append(text)
        self.level -= 1
        return InnerContent(self._wrap_mark(path, "\n".join(parts)), "".join(texts).strip())

    def _render_nested(self, section: Section, kind: Kind, width: float) -> tuple[str, str]:
        """Return a section within a column as rows, in a separate cell if it has a colour, padding or conditions."""
        view = self._build_view(section, kind, width)
        mjml = self._render_content(kind, view)
        if mjml.strip() and (view.is_boxed or view.classes):
            colour = f"background-color:{view.background_colour};" if view.background or view.is_on_page else ""
            surface = ' class="c-page"' if view.is_on_page else ""
            space = " ".join(f"{pixels}px" for pixels in view.padding) if view.is_boxed else "0"
            begin = self._keep_html(
                f'<tr class="{" ".join(view.classes)}"><td{surface} style="{colour}padding:{space}">'
                '<table border="0" cellpadding="0" cellspacing="0" role="presentation" width="100%">'
            )
            end = self._keep_html("</table></td></tr>")
            mjml = f"<mj-raw>{begin}</mj-raw>{mjml}<mj-raw>{end}</mj-raw>"
        return self._wrap_conditions(section, mjml, kind.text(view))


def document_theme(design: Mapping[str, Any], look: Look) -> Theme:
    """Return the theme of a document."""
    theme = design.get("theme")
    return resolve_theme(theme if isinstance(theme, dict) else {}, look)
