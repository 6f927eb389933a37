"""Paragraphs with limited HTML."""

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import colour, number, rich


def text(view: View) -> str:
    """Write paragraphs and lists without their markup, links beside their words."""
    return view.plain(view.p.content)


KIND = Kind(
    "text", "Text", "text",
    (
        rich("content", "Text", "<p>Write something here.</p>", aliases=("text",)),
        colour("color", "Colour"),
        number("size", "Size", 16, 10, 40),
        number("line_height", "Line height", 1.6, 1, 3, unit=""),
    ),
    text, in_columns=True,
    inferred=lambda props: "content" in props, inferred_late=lambda props: "text" in props,
)  # fmt: skip
