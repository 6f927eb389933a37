"""The button section: a filled or outlined button, or a link; with an optional note below."""

from collections.abc import Iterator

from appliance.content.designs import theme
from appliance.content.designs.kind import Kind, View, choice, colour, line, number, url


def text(view: View) -> str:
    """Return the section as plain text: the button's label, its link, and the note."""
    note = f"\n{view.props.note}" if view.props.note else ""
    return f"{view.props.text}:\n{view.props.href or '#'}{note}"


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about a missing link, and a label that is hard to read on the button's colour."""
    if not view.props.href:
        yield "link_missing", "a button leads nowhere"
    if view.props.text_color and view.props.style == "filled":
        ground = view.resolve_colour(view.props.background_color, view.theme.light.brand)
        if theme.contrast_ratio(view.resolve_colour(view.props.text_color, "#ffffff"), ground) < 3:
            yield "contrast", "the words of a button can hardly be read on its colour"


KIND = Kind(
    "button", "Button", "mouse-pointer-click",
    (
        line("text", "Text", "Learn more", aliases=("label",), wording="label"),
        url("href", "Link", aliases=("url",)),
        colour("background_color", "Background"),
        colour("text_color", "Text colour"),
        number("border_radius", "Corners", None, 0, 40),
        line("inner_padding", "Inner space"),
        choice("style", "Style", "filled", "outline", "link"),
        choice("width", "Width", "fit", "full"),
        line("note", "Note below"),
    ),
    text, is_in_columns=True, padding=(12, 32, 20, 32), advise=advise,
    matches=lambda props: "text" in props and "href" in props,
    initial_props={"text": "Learn more"},
)  # fmt: skip
