"""The pages in the sidebar and the tab bar, in their order."""

from typing import NamedTuple


class Item(NamedTuple):
    """One line of the navigation."""

    label: str
    href: str
    icon: str
    group: str
    is_here: bool


# Label, address, icon, group; those of the group people stand under Contacts.
_LINES = (
    ("Home", "/", "house", "main"),
    ("Campaigns", "/campaigns", "send", "main"),
    ("Flows", "/flows", "workflow", "main"),
    ("Templates", "/templates", "layout-template", "main"),
    ("Contacts", "/contacts", "users", "main"),
    ("Lists", "/lists", "list", "people"),
    ("Segments", "/segments", "list-filter", "people"),
    ("Forms", "/forms", "user-plus", "people"),
    ("Activity", "/activity", "activity", "main"),
    ("Inbox", "/inbox", "inbox", "main"),
    ("Brand", "/brand", "palette", "workspace"),
    ("Settings", "/settings", "settings", "workspace"),
)
RULERS = ("owner", "admin")
# The tabs of the settings: label, address, whether owners and admins alone see it.
SETTINGS = (
    ("Account", "/settings", False),
    ("Sending", "/settings/sending", False),
    ("Domains", "/settings/domains", False),
    ("Team", "/settings/team", True),
    ("API keys", "/settings/keys", True),
    ("Webhooks", "/settings/webhooks", False),
    ("Audit", "/settings/audit", True),
    ("Consent", "/settings/consent", False),
    ("Data", "/settings/data", False),
    ("Health", "/settings/doctor", False),
    ("You", "/settings/you", False),
)
# What stands in the tab bar of a phone; the rest is under More.
TABS = ("Home", "Campaigns", "Contacts", "Inbox")


def items(path: str) -> list[Item]:
    """Return the navigation with the line of this path marked."""
    return [Item(label, href, icon, group, _is_here(path, href)) for label, href, icon, group in _LINES]


def _is_here(path: str, href: str) -> bool:
    return path == href or (href != "/" and path.startswith(href + "/"))
