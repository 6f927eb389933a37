"""The header section: a logo or a name, and up to four links."""

from collections.abc import Iterator

from appliance.content.designs.kind import Finding, Kind, View, choice, colour, image, items, line, number, url
from appliance.core.i18n import gettext_noop


def text(view: View) -> str:
    """Return the section as plain text: the name, and on the next line the links."""
    name = view.props.wordmark_text or view.props.logo_alt or view.look.company_name
    links = "  ".join(f"{link.text or link.href}: {link.href}" for link in view.props.links if link.href)
    return "\n".join(part for part in (name, links) if part)


def advise(view: View) -> Iterator[Finding]:
    """Advise about a logo without alternative text."""
    if logo(view) and not (view.props.logo_alt or view.look.company_name):
        yield Finding("alt_missing", gettext_noop("The logo has no alt text"))


def logo(view: View) -> str | None:
    """Return the address of the section's logo, or else of the theme's logo unless the section has a name instead.

    None means that no logo is shown.
    """
    return view.props.logo_url or (None if view.props.wordmark_text else view.theme.logo_url)


KIND = Kind(
    "header", gettext_noop("Header"), "panel-top",
    (
        image("logo_url", gettext_noop("Logo"), help=gettext_noop("Leave empty to use the logo of your brand.")),
        line("logo_alt", gettext_noop("Logo alt text")),
        number("logo_width", gettext_noop("Logo width"), 140, 24, 400),
        line("wordmark_text", gettext_noop("Text instead of a logo")),
        colour("background_color", gettext_noop("Background")),
        items("links", gettext_noop("Links"), (
            line("text", gettext_noop("Text"), "Link"), url("href", gettext_noop("Link"), aliases=("url",)),
        ), maximum=4),
        choice("layout", gettext_noop("Layout"), "left", "centered"),
    ),
    text, is_whole=True, padding=(24, 32, 20, 32), advise=advise,
    matches=lambda props: bool({"logo_url", "logo_alt", "wordmark_text"} & props.keys()),
    initial_props={"layout": "left"},
)  # fmt: skip
