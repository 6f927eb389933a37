"""What a design may be made of, as data: for scripts that write documents, and for the editor."""

from typing import Any

from appliance.content.designs import document
from appliance.content.designs.kind import COMMON, STYLES
from appliance.content.designs.sections import BY_NAME
from appliance.content.designs.theme import THEME

# As a palette shows them: what a mail begins with first
_ORDER = (
    "header", "hero", "heading", "text", "image", "split", "button", "list", "quote", "columns", "product",
    "product_grid", "gallery", "coupon", "video", "divider", "spacer", "social", "html", "footer",
)  # fmt: skip


def spec() -> dict[str, Any]:
    """Return kinds with their properties, theme, what all sections share, and limits."""
    first = [name for name in _ORDER if name in BY_NAME]
    return {
        "kinds": [BY_NAME[name].spec() for name in (*first, *(one for one in BY_NAME if one not in first))],
        "theme": [one.spec() for one in THEME],
        "common": [one.spec() for one in COMMON],
        "styles": [one.spec() for one in STYLES],
        "colours": ["#rrggbb", "a CSS name", "theme:brand", "theme:text", "theme:bg"],
        "limits": {
            "sections": document.MAX_SECTIONS, "column_sections": document.MAX_COLUMN_SECTIONS,
            "column_levels": document.MAX_LEVELS, "sections_in_all": document.MAX_IN_ALL,
        },
    }  # fmt: skip
