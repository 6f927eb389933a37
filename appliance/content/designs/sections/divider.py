"""The divider section: a horizontal line."""

from appliance.content.designs.kind import Kind, View, choice, colour, line, number


def text(view: View) -> str:
    """Return the section as plain text: a row of dashes."""
    return "-" * 24


KIND = Kind(
    "divider", "Divider", "minus",
    (
        colour("color", "Colour"),
        number("width", "Width", 100, 5, 100, unit="%"),
        line("padding", "Space around"),
        number("thickness", "Thickness", 1, 1, 12),
        choice("style", "Style", "solid", "dashed"),
    ),
    text, is_in_columns=True, padding=(16, 32, 16, 32),
    matches_loosely=lambda props: bool({"color", "thickness"} & props.keys()),
)  # fmt: skip
