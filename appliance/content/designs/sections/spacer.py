"""Empty space."""

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import number


def text(view: View) -> str:
    """Write nothing: paragraphs are apart anyway."""
    return ""


KIND = Kind(
    "spacer", "Space", "space", (number("height", "Height", 24, 1, 200),), text, in_columns=True,
    padding=(0, 0, 0, 0), inferred_late=lambda props: "height" in props,
)  # fmt: skip
