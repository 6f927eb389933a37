"""The text section: paragraphs and lists of rich text."""

from appliance.content.designs.kind import Kind, View, colour, number, rich


def text(view: View) -> str:
    """Return the rich text as plain text, with the addresses of links in parentheses."""
    return view.plain_text(view.props.content)


KIND = Kind(
    "text", "Text", "type",
    (
        rich("content", "Text", "<p>Write something here.</p>", aliases=("text",)),
        colour("color", "Colour"),
        number("size", "Size", 16, 10, 40),
        number("line_height", "Line height", 1.6, 1, 3, unit=""),
    ),
    text, is_in_columns=True,
    matches=lambda props: "content" in props, matches_loosely=lambda props: "text" in props,
    initial_props={"content": "<p>Write something here.</p>"},
)  # fmt: skip
