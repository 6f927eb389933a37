"""Render a design with its theme and brand to HTML and text with merge tags, and collect advice for its author.

The result depends on the arguments alone, so that preview, test send and send are the same. Merge values are filled in
afterwards (`merge`), so one rendering serves all recipients.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from appliance.content.designs import document, merge, merge_limits, sanitizer
from appliance.content.designs.document import Section
from appliance.content.designs.kind import (
    SCHEMES,
    THEME,
    Finding,
    InnerContent,
    Kind,
    View,
    normalize_address,
    read_values,
)
from appliance.content.designs.markup import Tokens, remove_control_characters
from appliance.content.designs.theme import Look, Theme, is_right_to_left, parse_colour, resolve_theme, wrap_html
from appliance.core import executable, recipient_texts
from appliance.core.i18n import gettext_noop

SECTION_MARK = "cn:"  # begins each comment that marks a section for the canvas; the path of the section follows
_SPACE = re.compile(r"-?\d+(?:\.\d+)?(?:px)?\Z")
# Renderings of documents shorter than the first limit are cached. Documents longer than the second are not rendered; no
# request can contain one, because its body is limited to 2 MiB.
_MAX_CACHED_CHARACTERS, _MAX_CHARACTERS = 200_000, 2_500_000


class Advice(NamedTuple):
    """A piece of advice about a part of a document, and the path of the part."""

    finding: Finding
    path: str

    @property
    def code(self) -> str:
        """Return the code of the advice."""
        return self.finding.code

    @property
    def message(self) -> str:
        """Return the advice in the language of this request; renderings are cached for all languages."""
        return self.finding.message


class RenderedDesign(NamedTuple):
    """A rendered design whose merge tags are still to be filled in.

    `conditions` maps the name of a variable under `show` to the contact filters that decide whether it is true.
    """

    html: str
    text: str
    advice: tuple[Advice, ...]
    conditions: Mapping[str, list[Any]]


@cache
def environment() -> Environment:
    """Return the Jinja environment with the templates of the section kinds."""
    templates = Environment(
        loader=executable.template_loader("appliance/content/designs/sections"), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    templates.filters["px"] = _to_pixels
    return templates


def _to_pixels(values: Any) -> str:
    """Return a number as CSS pixels; a list or tuple of numbers as several, separated by spaces."""
    return " ".join(f"{value:g}px" for value in (values if isinstance(values, list | tuple) else (values,)))


def render_design(
    design: Any, look: Look, locale: str = "en", marked: bool = False, texts_language: str | None = None
) -> RenderedDesign:
    """Render a document; an unreadable or too large document becomes an empty email with advice.

    Raises Unavailable if its HTML cannot be sanitized now, and no other error. Recent renderings of documents shorter
    than `_MAX_CACHED_CHARACTERS` are cached. `marked` adds comments for the canvas that mark where each section begins
    and ends. `texts_language` is the language of the product's texts if it differs from the locale's.
    """
    try:
        text = document.to_canonical_json(design)
    except (RecursionError, TypeError, ValueError):
        # Requests are validated; only a stored document can be nested too deeply or contain a value that is not JSON.
        return _render_empty(Finding("section", gettext_noop("The design cannot be read")), look, locale)
    if len(text) > _MAX_CHARACTERS:
        return _render_empty(Finding("too_large", gettext_noop("The design is too large")), look, locale)
    make = _render_cached if len(text) < _MAX_CACHED_CHARACTERS else _render
    look_text = _replace_surrogates(json.dumps(look, ensure_ascii=False))
    return make(_replace_surrogates(text), look_text, locale, marked, texts_language)


def _replace_surrogates(text: str) -> str:
    """Return a text with each unpaired surrogate replaced with U+FFFD, because emails cannot contain surrogates."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _sanitize_look(look: Look) -> Look:
    """Return the brand with no merge tags in its company name and links, and without links to forbidden schemes."""

    def to_words(value: Any) -> str:
        return re.sub(r"\{(?=[{%])", "{ ", remove_control_characters(value)) if isinstance(value, str) else ""

    links = (
        (to_words(name), normalize_address(to_words(href), SCHEMES, lambda text: False)) for name, href in look.links
    )
    return look._replace(
        company_name=to_words(look.company_name), links=tuple((name, href) for name, href in links if href)
    )


def _render_empty(finding: Finding, look: Look, locale: str) -> RenderedDesign:
    return _render("{}", json.dumps(look), locale)._replace(advice=(Advice(finding, "sections"),))


def _render(
    text: str, look: str, locale: str, marked: bool = False, texts_language: str | None = None
) -> RenderedDesign:
    with sanitizer.limit_refused_parts():
        return _Rendering(text, Look(*json.loads(look)), locale, marked, texts_language).result()


_render_cached = lru_cache(maxsize=64)(_render)


class _Rendering:
    """One rendering of a document: its protected merge tags, and the advice, conditions and size so far."""

    def __init__(
        self, text: str, look: Look, locale: str, marked: bool = False, texts_language: str | None = None
    ) -> None:
        raw = json.loads(text)
        raw = raw if isinstance(raw, dict) else {}
        # The footer of the product has no merge tags. So the other parts need not be sanitized again after it is added.
        self.tokens = Tokens(document.to_canonical_json([document.remove_added_footer(raw), *look]))
        self.document = self.tokens.protect(raw)
        self.advice: list[Advice] = []
        self.conditions: dict[str, list[Any]] = {}
        self.look, self.locale, self.marked = _sanitize_look(look), locale, marked
        self.texts_language = texts_language
        self.theme = self._resolve_logo(raw, document_theme(raw, look))
        self.level = self.section_count = self.size = 0

    def _resolve_logo(self, raw: dict[str, Any], theme: Theme) -> Theme:
        """Return the theme with the logo's address validated and the address's merge tags replaced with tokens.

        Also advises about invalid theme colours.
        """
        self._advise_theme(raw.get("theme"))
        url = theme.logo_url
        logo = normalize_address(self.tokens.protect(url), ("http", "https"), self.tokens.starts) if url else None
        return theme._replace(logo_url=logo)

    def _advise_theme(self, values: Any) -> None:
        """Add advice about each invalid colour of the document's theme; the brand's colour is used instead."""
        for prop in THEME:
            value = prop.get_value(values)
            usable = value in (None, "") or (isinstance(value, str) and parse_colour(value) is not None)
            if prop.kind == "colour" and not usable:
                self._advise_colour(prop.label, value, f"theme.{prop.name}")

    def _advise_colour(self, label: str, value: Any, path: str) -> None:
        text = gettext_noop("%(property)s: “%(value)s” is not a valid colour")
        self.advice.append(Advice(Finding("section", text, {"property": label, "value": str(value)[:60]}), path))

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
            self.tokens.restore_html(html), self.tokens.restore_text(text), tuple(self.advice), dict(self.conditions)
        )

    def _has_room(self, path: str) -> bool:
        """Count a section, and return whether the message is still within the limits of sections and size.

        Advice is added about the first section that does not fit.
        """
        self.section_count += 1
        if self.section_count <= document.MAX_TOTAL_SECTIONS and self.size <= merge_limits.MAX_OUTPUT_BYTES:
            return True
        if not any(advice.code == "too_large" for advice in self.advice):
            text = gettext_noop("The email is too large: this section and those after it are left out")
            self.advice.append(Advice(Finding("too_large", text), path))
        return False

    def _render_unknown(self, section: Section, text: str) -> None:
        values = {"type": (section.type or "unknown")[:60]}
        self.advice.append(Advice(Finding("unknown_section", text, values), section.path))

    def _render_section(self, section: Section) -> tuple[str, str]:
        """Return a top-level section as MJML and as text; a section of an unknown kind is empty, with advice."""
        if section.kind is None:
            self._render_unknown(section, gettext_noop("A section of type “%(type)s” cannot be shown"))
            return self._wrap_mark(section.path, ""), ""
        view = self._build_view(section, section.kind, self.theme.width)
        content = self._render_content(section.kind, view)
        mjml = self._render_template("_section").render(v=view, whole=section.kind.is_whole, content=content)
        mjml, text = self._wrap_conditions(section, mjml, section.kind.text(view))
        return self._wrap_mark(section.path, mjml), text

    def _wrap_mark(self, mark: str, mjml: str) -> str:
        """Return MJML between comments by which the canvas finds the part; unchanged MJML unless `marked` is set.

        `mark` is the path of a section or column, or `rows` for the whole email.
        """
        begin, end = self.tokens.keep(f"<!--{SECTION_MARK}{mark}-->"), self.tokens.keep(f"<!--/{SECTION_MARK}-->")
        return f"<mj-raw>{begin}</mj-raw>{mjml}<mj-raw>{end}</mj-raw>" if self.marked else mjml

    def _render_content(self, kind: Kind, view: View) -> str:
        module = import_module(f"appliance.content.designs.sections.{kind.name}")
        return str(self._render_template(kind.name).render(v=view, t=view.theme, kind=module))

    def _render_template(self, name: str) -> Any:
        return environment().get_template(f"{name}.mjml")

    def _wrap_conditions(self, section: Section, mjml: str, text: str) -> tuple[str, str]:
        """Return the MJML and the text of a section, inside a condition if the section has filters (`show_if`).

        The blank line after the text is inside the condition too, so that a hidden section leaves no gap.
        """
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
        def note(finding: Finding) -> None:
            self.advice.append(Advice(finding, section.path))

        texts = recipient_texts.get_texts(self.texts_language or recipient_texts.language_of_locale(self.locale))
        layer = {"header": self.look.header, "footer": self.look.footer}.get(kind.name) or {}
        values = section.props
        if isinstance(layer, Mapping) and layer:
            # The header or footer of the brand provides the values that the section does not set.
            own_values = {name: value for name, value in values.items() if value is not None}
            values = {**self.tokens.protect(dict(layer)), **own_values}
        if kind.name == "footer" and values.get("unsubscribe_text") is None:
            values = {**values, "unsubscribe_text": texts["leave_title"]}
        if kind.name == "coupon" and values.get("expires_text") is None:
            values = {**values, "expires_text": texts["coupon_until"]}
        props = read_values(kind.all_props(), values, note, self.tokens.starts)
        view = View(props, self.theme, self.look, self._keep_html, self._render_inner, width, self.level > 0)
        # The texts of the source count twice, because reading them takes longer than writing the output.
        self.size += 2 * sum(map(len, merge.iterate_strings({**section.props, "columns": None})))
        view.has_tags, view.protect = self.tokens.has, self.tokens.protect
        view.path, view.is_rtl, view.texts = section.path, is_right_to_left(self.locale), texts
        view.locale = self.locale
        view.texts_lang = recipient_texts.get_lang_attribute(self.texts_language)
        view.padding = self._resolve_padding(section, kind)
        # In kinds with `is_whole`, this property is the background of the section; in others, that of an element.
        own_background = getattr(props, "background_color", None) if kind.is_whole else None
        ground = own_background or section.styles.get("background_color")
        ground = ground.strip() if isinstance(ground, str) else ""
        view.is_on_page = ground.lower() == "theme:bg" or (kind.is_on_page and not ground)
        if ground and not view.is_on_page:
            view.background = self.theme.colour(ground, "") or None
            if view.background is None:
                self._advise_colour(gettext_noop("Background"), ground, section.path)
        coloured = view.background is not None or view.is_on_page
        view.is_boxed = view.is_nested and (coloured or bool(section.styles.get("padding")))
        if view.is_boxed and not section.styles.get("padding"):
            view.padding = (12, 16, 12, 16)
        view.classes = [f"h-{props.hide_on}"] if props.hide_on in ("phone", "desktop") else []
        if not view.is_nested and min(view.padding[1], view.padding[3]) > 20:
            view.classes.append("c-pad")
        for finding in kind.advise(view):
            note(finding)
        return view

    def _keep_html(self, html: str) -> str:
        self.size += len(html)
        return self.tokens.keep_html(html)

    def _resolve_padding(self, section: Section, kind: Kind) -> tuple[int, int, int, int]:
        """Return the padding in pixels, in the order of CSS: top, right, bottom, left.

        One to four sizes are read as in CSS, and each is clamped to 0 to 96. For an invalid padding, advice is added
        and the padding of the kind is used.
        """
        raw = section.styles.get("padding")
        if raw is None or raw == "":
            return kind.padding
        sizes_text = str(raw).split() if not isinstance(raw, list | dict | bool) else []
        if not 1 <= len(sizes_text) <= 4 or not all(_SPACE.match(word) for word in sizes_text):
            text = gettext_noop("%(property)s: “%(value)s” cannot be used here")
            values = {"property": gettext_noop("Padding"), "value": str(raw)[:60]}
            self.advice.append(Advice(Finding("section", text, values), section.path))
            return kind.padding
        sizes = [max(0, min(96, round(float(word.removesuffix("px"))))) for word in sizes_text]
        top, right, bottom, left = (sizes * 4)[:4] if len(sizes) < 3 else [*sizes, sizes[1]][:4]
        return top, right, bottom, left

    def _render_inner(self, raw: list[Any], width: float, path: str) -> InnerContent:
        """Render the sections `raw` of a column that is `width` pixels wide; `path` is the path of the list.

        A section that columns cannot contain is left out, with advice.
        """
        self.level += 1
        parts, texts = [], []
        for index, raw_section in enumerate(raw):
            item_path = f"{path}[{index}]"
            if not isinstance(raw_section, dict) or not self._has_room(item_path):
                continue
            section = document.read_section(raw_section, item_path)
            if section.kind is None or not section.kind.is_in_columns or self.level > document.MAX_COLUMN_LEVELS:
                self._render_unknown(section, gettext_noop("A section of type “%(type)s” cannot be inside a column"))
                parts.append(self._wrap_mark(item_path, ""))
                continue
            mjml, text = self._render_nested(section, section.kind, width)
            parts.append(self._wrap_mark(item_path, mjml))
            texts.append(text)
        self.level -= 1
        return InnerContent(self._wrap_mark(path, "\n".join(parts)), "".join(texts).strip())

    def _render_nested(self, section: Section, kind: Kind, width: float) -> tuple[str, str]:
        """Return a section in a column as MJML and as text.

        A section with a background or padding, or one that is hidden on phones or desktops, gets its own table row.
        """
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
    """Return the resolved theme of a document: its own values, else those of the brand, else the defaults."""
    theme = design.get("theme")
    return resolve_theme(theme if isinstance(theme, dict) else {}, look)
