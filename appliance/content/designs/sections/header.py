"""The header section: a logo or a name, and up to four links."""

from collections.abc import Iterator

from appliance.content.designs.kind import Kind, View, choice, colour, image, items, line, number, url


def text(view: View) -> str:
    """Return the section as plain text: the name, and on the next line the links."""
    name = view.props.wordmark_text or view.props.logo_alt or view.look.company_name
    links = "  ".join(f"{link.text or link.href}: {link.href}" for link in view.props.links if link.href)
    return "\n".join(part for part in (name, links) if part)


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about a logo without alternative text."""
    if logo(view) and not (view.props.logo_alt or view.look.company_name):
        yield "alt_missing", "the logo has no words for those who do not see it"


def logo(view: View) -> str | None:
    """Return the address of the section's logo, or else of the theme's logo unless the section has a name instead.

    None means that no logo is shown.
    """
    return view.props.logo_url or (None if view.props.wordmark_text else view.theme.logo_url)


KIND = Kind(
    "header", "Header", "panel-top",
    (
        image("logo_url", "Logo", help="the brand's, where empty"),
        line("logo_alt", "Words for the logo"),
        number("logo_width", "Logo width", 140, 24, 400),
        line("wordmark_text", "Name instead of a logo"),
        colour("background_color", "Background"),
        items("links", "Links", (line("text", "Text", "Link"), url("href", "Link", aliases=("url",))), maximum=4),
        choice("layout", "Layout", "left", "centered"),
    ),
    text, is_whole=True, padding=(24, 32, 20, 32), advise=advise,
    matches=lambda props: bool({"logo_url", "logo_alt", "wordmark_text"} & props.keys()),
    initial_props={"layout": "left"},
)  # fmt: skip
