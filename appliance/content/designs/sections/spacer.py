"""Empty space."""

from appliance.content.designs.kind import Kind, View, number


def text(view: View) -> str:
    """Return no text: paragraphs are separated anyway."""
    return ""


KIND = Kind(
    "spacer", "Space", "space", (number("height", "Height", 24, 1, 200),), text, is_in_columns=True,
    padding=(0, 0, 0, 0), matches_loosely=lambda props: "height" in props,
)  # fmt: skip
