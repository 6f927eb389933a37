"""The divider section: a horizontal line."""

from appliance.content.designs.kind import Kind, View, choice, colour, line, number
from appliance.core.i18n import gettext_noop


def text(view: View) -> str:
    """Return the section as plain text: a row of dashes."""
    return "-" * 24


KIND = Kind(
    "divider", gettext_noop("Divider"), "minus",
    (
        colour("color", gettext_noop("Colour")),
        number("width", gettext_noop("Width"), 100, 5, 100, unit="%"),
        line("padding", gettext_noop("Padding"), is_translatable=False),
        number("thickness", gettext_noop("Thickness"), 1, 1, 12),
        choice("style", gettext_noop("Style"), "solid", "dashed"),
    ),
    text, is_in_columns=True, padding=(16, 32, 16, 32),
    matches_loosely=lambda props: bool({"color", "thickness"} & props.keys()),
)  # fmt: skip
