"""A list of points: dots, numbers, ticks, or signs of the author's own."""

from appliance.content.designs.kind import Kind, View
from appliance.content.designs.props import choice, items, line, rich

_SIGNS = {"bullet": "•", "check": "✓", "icon": "•"}


def sign(view: View, number: int, icon: str | None) -> str:
    """Return what stands before a point."""
    if view.p.style == "number":
        return f"{number}."
    return icon or _SIGNS[view.p.style] if view.p.style == "icon" else _SIGNS[view.p.style]


def text(view: View) -> str:
    """Write a line for each point, with what it says below its title."""
    lines = []
    for number, one in enumerate(view.p.items, 1):
        before = f"{number}. " if view.p.style == "number" else "- "
        words = view.plain(one.text).replace("\n", f"\n{' ' * len(before)}")
        between = f"\n{' ' * len(before)}" if one.title and words else ""
        lines.append(f"{before}{one.title or ''}{between}{words}")
    return "\n".join(lines)


KIND = Kind(
    "list", "List", "list",
    (
        items("items", "Points", (
            line("icon", "Sign", help="an emoji or another character"),
            line("title", "Title", wording="title"),
            rich("text", "Text", aliases=("content",)),
        ), most=12),
        choice("style", "Style", "bullet", "number", "check", "icon"),
    ),
    text, in_columns=True, padding=(8, 32, 12, 32),
    inferred=lambda props: "items" in props,
)  # fmt: skip
