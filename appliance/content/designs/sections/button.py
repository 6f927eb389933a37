"""The button section: a filled or outlined button, or a link; with an optional note below."""

from collections.abc import Iterator

from appliance.content.designs import theme
from appliance.content.designs.kind import Finding, Kind, View, choice, colour, line, number, url
from appliance.core.i18n import gettext_noop


def text(view: View) -> str:
    """Return the section as plain text: the button's label, its link, and the note."""
    note = f"\n{view.props.note}" if view.props.note else ""
    return f"{view.props.text}:\n{view.props.href or '#'}{note}"


def advise(view: View) -> Iterator[Finding]:
    """Advise about a missing link, and a label that is hard to read on the button's colour."""
    if not view.props.href:
        yield Finding("link_missing", gettext_noop("A button has no link"))
    if view.props.text_color and view.props.style == "filled":
        ground = view.resolve_colour(view.props.background_color, view.theme.light.brand)
        if theme.contrast_ratio(view.resolve_colour(view.props.text_color, "#ffffff"), ground) < 3:
            yield Finding("contrast", gettext_noop("The text of a button is hard to read on its background colour"))


KIND = Kind(
    "button", gettext_noop("Button"), "mouse-pointer-click",
    (
        line("text", gettext_noop("Text"), "Learn more", aliases=("label",), wording="label"),
        url("href", gettext_noop("Link"), aliases=("url",)),
        colour("background_color", gettext_noop("Background")),
        colour("text_color", gettext_noop("Text colour")),
        number("border_radius", gettext_noop("Corner radius"), None, 0, 40),
        line("inner_padding", gettext_noop("Padding"), is_translatable=False),
        choice("style", gettext_noop("Style"), "filled", "outline", "link"),
        choice("width", gettext_noop("Width"), "fit", "full"),
        line("note", gettext_noop("Text below the button")),
    ),
    text, is_in_columns=True, padding=(12, 32, 20, 32), advise=advise,
    matches=lambda props: "text" in props and "href" in props,
    initial_props={"text": gettext_noop("Learn more")},
)  # fmt: skip
