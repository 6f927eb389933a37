"""The heading section."""

from appliance.content.designs.kind import Kind, View, choice, colour, line, number


def text(view: View) -> str:
    """Return the heading as plain text; a heading of level 1 is underlined."""
    heading = (view.props.text or "").strip()
    return f"{heading}\n{'=' * min(len(heading), 40)}" if view.props.level == "1" and heading else heading


KIND = Kind(
    "heading", "Heading", "heading",
    (
        line("text", "Text", "Heading", wording="title"),
        choice("level", "Level", "1", "2", "3", default="2"),
        colour("color", "Colour"),
        number("size", "Size", None, 12, 60),
    ),
    text, is_in_columns=True, padding=(20, 32, 4, 32),
    matches=lambda props: "text" in props and "level" in props,
    initial_props={"text": "Heading", "level": "2"},
)  # fmt: skip
