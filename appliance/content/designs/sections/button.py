"""A button, a link drawn as one, or a plain link; with a note below."""

from collections.abc import Iterator

from appliance.content.designs import colours
from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import choice, colour, line, number, url


def text(view: View) -> str:
    """Write what the button says and where it leads, on lines of their own."""
    note = f"\n{view.p.note}" if view.p.note else ""
    return f"{view.p.text}:\n{view.p.href or '#'}{note}"


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about colours that cannot be read, and a button that leads nowhere."""
    if not view.p.href:
        yield "link_missing", "a button leads nowhere"
    if view.p.text_color and view.p.style == "filled":
        ground = view.shade(view.p.background_color, view.theme.light.brand)
        if colours.contrast(view.shade(view.p.text_color, "#ffffff"), ground) < 3:
            yield "contrast", "the words of a button can hardly be read on its colour"


KIND = Kind(
    "button", "Button", "button",
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
    text, in_columns=True, padding=(12, 32, 20, 32), advise=advise,
    inferred=lambda props: "text" in props and "href" in props,
)  # fmt: skip
