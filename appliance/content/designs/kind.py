"""A kind of section: what it is called, what it is made of, how it looks and how it reads as text."""

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from appliance.content.designs import cleaning, colours, plaintext, shell
from appliance.content.designs.props import Prop, choice, line
from appliance.content.designs.theme import Look, Theme

# What every section has besides (docs/decisions.md#11)
COMMON = (
    choice("align", "Alignment", "left", "center", "right", default=None),
    choice("hide_on", "Hide on", "none", "phone", "desktop"),
    Prop(name="show_if", kind="filters", label="Show only to", help="the filters of a segment"),
    line("name", "Name in the outline"),
)
STYLES = (
    Prop(name="background_color", kind="colour", label="Background"),
    Prop(name="padding", kind="line", label="Padding", help="one to four pixel values, 0 to 96"),
)


_SPACES = re.compile(r"\d{1,3}(?:\.\d+)?(?:px)?(?:\s+\d{1,3}(?:\.\d+)?(?:px)?){0,3}\Z")
_PARAGRAPH = re.compile(r"<(p|ul|ol|li|a)\b((?:\s[^>]*)?)>")
_RICH = {
    "p": "margin:0 0 14px", "ul": "margin:0 0 14px;padding:0 0 0 22px", "ol": "margin:0 0 14px;padding:0 0 0 24px",
    "li": "margin:0 0 6px", "a": "text-decoration:underline",
}  # fmt: skip


class View:
    """A section as its kind sees it: `p` has every property, read; colours and spaces are resolved.

    `keep` stands in for HTML that MJML may not touch, and answers the word for it; `inner` renders sections within.
    """

    def __init__(
        self, p: SimpleNamespace, theme: Theme, look: Look, keep: Callable[[str], str],
        note: Callable[[str, str], None], inner: "Callable[[list[Any], float, str], Inner]", width: float, nested: bool,
    ) -> None:  # fmt: skip
        self.p, self.theme, self.look, self.keep, self.note, self.inner = p, theme, look, keep, note, inner
        self.width, self.nested = width, nested
        self.rtl = False
        # On the colour of the page instead of that of the sections, in light and in dark
        self.on_page = False
        # Its background and padding stand around it already
        self.boxed = False
        self.padding: tuple[int, int, int, int] = (0, 0, 0, 0)
        self.background: str | None = None
        self.classes: list[str] = []
        self.path = ""
        # Says whether a text has merge tags
        self.tagged: Callable[[str], bool] = lambda text: False
        # What a kind made of this section, so that its text need not make it again
        self.made: Any = None

    @property
    def cell(self) -> str:
        """Return the space around a cell: that of the section, which only stands around it within a column."""
        if not self.nested or self.boxed:
            return "0"
        top, _, bottom, _ = self.padding
        return f"{min(top, 10)}px 0 {min(bottom, 10)}px"

    @property
    def ground(self) -> str:
        """Return the colour that words of this section stand on."""
        return self.background or (self.theme.light.page if self.on_page else self.theme.light.card)

    @property
    def surface(self) -> str:
        """Return the class that lets dark mode change what words of this section stand on."""
        return self.tint("page" if self.on_page else "card")

    @property
    def words(self) -> str:
        """Return the colour of ordinary words here."""
        return colours.readable_on(self.ground, self.theme.light.text)

    @property
    def soft(self) -> str:
        """Return the colour of words that step back."""
        if self.background is None:
            return self.theme.light.muted
        return colours.lifted(colours.mix(self.words, self.ground, 0.3), self.ground)

    @property
    def room(self) -> float:
        """Return how wide the content of this section may be, in pixels."""
        around = 0 if self.nested and not self.boxed else self.padding[1] + self.padding[3]
        return max(self.width - around, 40)

    def align_or(self, other: str) -> str:
        """Return the alignment, or the one given, where left is the side that words begin on."""
        return str(self.p.align or (self.start if other == "left" else other))

    @property
    def start(self) -> str:
        """Return the side that words begin on."""
        return "right" if self.rtl else "left"

    def table(self, mjml: str) -> str:
        """Return the content of a column as a table of HTML, to stand in a cell."""
        return shell.table(mjml, self.theme, "rtl" if self.rtl else "ltr")

    def shade(self, value: str | None, fallback: str) -> str:
        """Resolve a colour of the document."""
        return self.theme.colour(value, fallback)

    def on(self, background: str) -> str:
        """Return a colour for words on a background."""
        return colours.readable_on(background)

    def tint(self, name: str, value: Any = None) -> str:
        """Return the class that lets dark mode change a colour: none where the author chose one."""
        return f"c-{name}" if value is None and self.background is None else ""

    def spaces(self, value: str | None, other: str) -> str:
        """Return one to four sizes as CSS writes them, or the ones given."""
        if value is None or not _SPACES.match(str(value).strip()):
            return other
        return " ".join(f"{min(96.0, float(word.removesuffix('px'))):g}px" for word in str(value).split())

    def rich(self, html: str | None) -> str:
        """Clean limited HTML, with the spaces and links that mail programs need told."""
        if not html:
            return ""
        made = cleaning.text(html if plaintext.is_html(html) else plaintext.to_html(html))
        made = _PARAGRAPH.sub(self._styled, made)
        # The last one ends where the section's own space begins
        last = made.rfind("margin:0 0 14px")
        if last >= 0 and not made[last:].partition(">")[2].partition("</")[2].partition(">")[2].strip():
            made = f"{made[:last]}margin:0{made[last + 15 :]}"
        return made

    def inline(self, html: str | None) -> str:
        """Clean limited HTML for a place where words already stand: a single paragraph without its own space."""
        made = self.rich(html)
        inner = made.removeprefix('<p style="margin:0">').removesuffix("</p>")
        return made if "<p" in inner else inner

    def _styled(self, found: "re.Match[str]") -> str:
        tag, attributes = found[1], found[2]
        style = _RICH[tag] + (f";color:{self.link}" if tag == "a" else "")
        if ' style="' in attributes:
            own = attributes.replace(' style="', f' style="{style};', 1)
            return f"<{tag}{own}>"
        target = ' target="_blank"' if tag == "a" else ""
        return f'<{tag}{attributes} style="{style}"{target}>'

    @property
    def accent(self) -> str:
        """Return the brand's colour, or another where the ground hides it."""
        brand = self.theme.light.brand
        return brand if colours.contrast(brand, self.ground) >= 1.6 else self.words

    @property
    def link(self) -> str:
        """Return the colour of links in ordinary words."""
        return colours.lifted(self.theme.light.brand, self.ground)

    def plain(self, html: str | None) -> str:
        """Return limited HTML as text."""
        if not html:
            return ""
        return plaintext.from_html(html if plaintext.is_html(html) else plaintext.to_html(html)).strip()


class Inner(NamedTuple):
    """Sections within a column: the content of the column as MJML, and as text."""

    mjml: str
    text: str


class Kind(NamedTuple):
    """A kind of section.

    Its template is `sections/<name>.mjml`: the content of one column, or whole `mj-section`s where `whole` is set.
    """

    name: str
    label: str
    icon: str
    props: tuple[Prop, ...]
    text: Callable[[View], str]
    whole: bool = False
    in_columns: bool = False
    on_page: bool = False
    padding: tuple[int, int, int, int] = (12, 32, 12, 32)
    # Looks at a section and advises: (code, words)
    advise: Callable[[View], Iterator[tuple[str, str]]] = lambda view: iter(())
    inferred: Callable[[dict[str, Any]], bool] = lambda props: False
    # Recognised by less, after all that are recognised by more
    inferred_late: Callable[[dict[str, Any]], bool] = lambda props: False

    def all_props(self) -> tuple[Prop, ...]:
        """Return its own properties and those that every kind has; its own are stronger (the name of a product)."""
        own = {one.name for one in self.props}
        return (*self.props, *(one for one in COMMON if one.name not in own))

    def spec(self) -> dict[str, Any]:
        """Return the declaration as `/templates/spec` shows it."""
        return {
            "type": self.name, "label": self.label, "icon": self.icon, "in_columns": self.in_columns,
            "props": [one.spec() for one in self.all_props()], "styles": [one.spec() for one in STYLES],
            "defaults": {one.name: one.default for one in self.all_props() if one.default is not None},
            "padding": list(self.padding),
        }  # fmt: skip
