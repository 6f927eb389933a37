"""The text section: paragraphs and lists of rich text."""

from appliance.content.designs.kind import Kind, View, colour, number, rich
from appliance.core.i18n import gettext_noop


def text(view: View) -> str:
    """Return the rich text as plain text, with the addresses of links in parentheses."""
    return view.plain_text(view.props.content)


KIND = Kind(
    "text", gettext_noop("Text"), "type",
    (
        rich("content", gettext_noop("Text"), "<p>Add your text here.</p>", aliases=("text",)),
        colour("color", gettext_noop("Colour")),
        number("size", gettext_noop("Size"), 16, 10, 40),
        number("line_height", gettext_noop("Line height"), 1.6, 1, 3, unit=""),
    ),
    text, is_in_columns=True,
    matches=lambda props: "content" in props, matches_loosely=lambda props: "text" in props,
    initial_props={"content": gettext_noop("<p>Add your text here.</p>")},
)  # fmt: skip
