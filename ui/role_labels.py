"""The names of roles, and their rights in plain words."""

from appliance.accounts import access, roles
from appliance.accounts.access import EXPORT_SCOPE
from appliance.core.i18n import gettext, gettext_noop, pgettext

BUILT_IN = {
    "owner": (gettext_noop("Owner"), gettext_noop("Full access, including managing owners.")),
    "admin": (gettext_noop("Admin"), gettext_noop("Full access, except managing owners.")),
    "editor": (gettext_noop("Editor"), gettext_noop("Creates and sends content. Cannot change settings or brand.")),
    "author": (gettext_noop("Author"), gettext_noop("Creates content. Cannot send it.")),
    "viewer": (gettext_noop("Viewer"), gettext_noop("Sees everything and changes nothing.")),
}
# The areas of rights in the order of the form.
AREAS = (
    ("contacts", gettext_noop("Contacts, lists, segments")), ("campaigns", gettext_noop("Campaigns")),
    ("flows", gettext_noop("Flows")), ("templates", gettext_noop("Templates and images")),
    ("events", gettext_noop("Events")), ("messages", gettext_noop("Messages")),
    ("domains", gettext_noop("Sending domains")), ("account", gettext_noop("Account, brand, webhooks")),
)  # fmt: skip


def list_options(account_id: int) -> dict[str, tuple[str, str]]:
    """Return the label and help of each role that an account has, by the role as users store it."""
    options = {role: (gettext(label), gettext(help_text)) for role, (label, help_text) in BUILT_IN.items()}
    return options | {str(row.id): (row.name, describe_rights(row.scopes)) for row in roles.list_all(account_id)}


def describe_role(role: str) -> str:
    """Return the name of a role in the language of the page."""
    return gettext(BUILT_IN[role][0]) if role in BUILT_IN else roles.describe_role(role)


def list_rights() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the rights that an own role can have, as (label of the area, [(scope, label of the action)])."""
    actions = _list_actions()
    return [
        (gettext(label), [
            (scope, word) for act, word in actions.items() if (scope := f"{area}:{act}") in access.OWN_ROLE_SCOPES
        ])
        for area, label in AREAS
    ]  # fmt: skip


def describe_rights(scopes: list[str]) -> str:
    """Return scopes as text, such as `Contacts, lists, segments: see, edit; Flows: see`."""
    granted = access.complete_scopes(frozenset(scopes))
    parts = [
        gettext("%(label)s: %(value)s", label=label, value=", ".join(words))
        for label, acts in list_rights()
        if (words := [word for scope, word in acts if scope in granted])
    ]
    return "; ".join(parts)


def _list_actions() -> dict[str, str]:
    """Return the label of each action of a scope, in the order of the form."""
    return {
        "read": pgettext("right", "see"), "write": pgettext("right", "edit"),
        EXPORT_SCOPE.partition(":")[2]: pgettext("right", "export"), "send": pgettext("right", "send"),
        "approve": pgettext("right", "approve"),
    }  # fmt: skip
