"""The heading section."""

from appliance.content.designs.kind import Kind, View, choice, colour, line, number
from appliance.core.i18n import gettext_noop


def text(view: View) -> str:
    """Return the heading as plain text; a heading of level 1 is underlined."""
    heading = (view.props.text or "").strip()
    return f"{heading}\n{'=' * min(len(heading), 40)}" if view.props.level == "1" and heading else heading


KIND = Kind(
    "heading", gettext_noop("Heading"), "heading",
    (
        line("text", gettext_noop("Text"), "Heading", wording="title"),
        choice("level", gettext_noop("Level"), "1", "2", "3", default="2"),
        colour("color", gettext_noop("Colour")),
        number("size", gettext_noop("Size"), None, 12, 60),
    ),
    text, is_in_columns=True, padding=(20, 32, 4, 32),
    matches=lambda props: "text" in props and "level" in props,
    initial_props={"text": gettext_noop("Heading"), "level": "2"},
)  # fmt: skip
