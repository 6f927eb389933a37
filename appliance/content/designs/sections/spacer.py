"""The spacer section: empty space of a given height."""

from appliance.content.designs.kind import Kind, View, number


def text(view: View) -> str:
    """Return an empty string, because sections are separated by blank lines already."""
    return ""


KIND = Kind(
    "spacer", "Space", "move-vertical", (number("height", "Height", 24, 1, 200),), text, is_in_columns=True,
    padding=(0, 0, 0, 0), matches_loosely=lambda props: "height" in props,
)  # fmt: skip
