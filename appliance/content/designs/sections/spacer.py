"""The spacer section: empty space of a given height."""

from appliance.content.designs.kind import Kind, View, number
from appliance.core.i18n import gettext_noop


def text(view: View) -> str:
    """Return an empty string, because sections are separated by blank lines already."""
    return ""


KIND = Kind(
    "spacer", gettext_noop("Spacer"), "move-vertical", (number("height", gettext_noop("Height"), 24, 1, 200),),
    text, is_in_columns=True, padding=(0, 0, 0, 0), matches_loosely=lambda props: "height" in props,
)  # fmt: skip
