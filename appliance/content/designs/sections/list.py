"""The list section: items with bullets, numbers, check marks, or a character for each item."""

from appliance.content.designs.kind import Kind, View, choice, items, line, rich
from appliance.core.i18n import gettext_noop

_SIGNS = {"bullet": "•", "check": "✓", "icon": "•"}


def marker(view: View, number: int, icon: str | None) -> str:
    """Return the marker of a list item: its number, its own character (`icon`), or the character of the style."""
    if view.props.style == "number":
        return f"{number}."
    return icon or _SIGNS[view.props.style] if view.props.style == "icon" else _SIGNS[view.props.style]


def text(view: View) -> str:
    """Return the items as plain text, each with "-" or its number, and with its text on the lines below its title."""
    lines = []
    for number, item in enumerate(view.props.items, 1):
        marker = f"{number}. " if view.props.style == "number" else "- "
        item_text = view.plain_text(item.text).replace("\n", f"\n{' ' * len(marker)}")
        separator = f"\n{' ' * len(marker)}" if item.title and item_text else ""
        lines.append(f"{marker}{item.title or ''}{separator}{item_text}")
    return "\n".join(lines)


KIND = Kind(
    "list", gettext_noop("List"), "list",
    (
        items("items", gettext_noop("Items"), (
            line("icon", gettext_noop("Symbol"), help=gettext_noop("An emoji or another character."),
                 is_translatable=False),
            line("title", gettext_noop("Title"), wording="title"),
            rich("text", gettext_noop("Text"), aliases=("content",)),
        ), maximum=12),
        choice("style", gettext_noop("Style"), "bullet", "number", "check", "icon"),
    ),
    text, is_in_columns=True, padding=(8, 32, 12, 32),
    matches=lambda props: "items" in props,
    initial_props={"items": [
        {"title": gettext_noop("First item")}, {"title": gettext_noop("Second item")},
        {"title": gettext_noop("Third item")},
    ]},
)  # fmt: skip
