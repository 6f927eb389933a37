"""A heading."""

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import choice, colour, line, number


def text(view: View) -> str:
    """Write the heading as text readers know it: set off, underlined if it is the first level."""
    words = (view.p.text or "").strip()
    return f"{words}\n{'=' * min(len(words), 40)}" if view.p.level == "1" and words else words


KIND = Kind(
    "heading", "Heading", "heading",
    (
        line("text", "Text", "Heading", wording="title"),
        choice("level", "Level", "1", "2", "3", default="2"),
        colour("color", "Colour"),
        number("size", "Size", None, 12, 60),
    ),
    text, in_columns=True, padding=(20, 32, 4, 32),
    inferred=lambda props: "text" in props and "level" in props,
)  # fmt: skip
