"""What people may do, by their role (docs/decisions.md#2).

A viewer looks; an author writes and does not send; an editor sends and does not approve; owners and admins do it all,
and keep keys, people and the audit.
"""

from appliance.accounts.keys import SCOPES

ROLES = ("owner", "admin", "editor", "author", "viewer")
# The scope of what no key may do: keys, people, audit
RULE = "rule"
# The scope of what people do about themselves alone: every role has it, and no key
SELF = "self"

_READING = frozenset(scope for scope in SCOPES if scope.endswith(":read")) | {SELF}
_AUTHOR = _READING | {f"{area}:write" for area in ("contacts", "templates", "events", "campaigns", "flows")}
_EDITOR = (SCOPES | {SELF}) - {"campaigns:approve", "account:write", "domains:write"}
_REACH = {
    "owner": SCOPES | {RULE, SELF},
    "admin": SCOPES | {RULE, SELF},
    "editor": _EDITOR,
    "author": _AUTHOR,
    "viewer": _READING,
}


def scopes(role: str) -> frozenset[str]:
    """Return what a role reaches over the API; a role that is not known reaches nothing."""
    return _REACH.get(role, frozenset())


def approves(role: str) -> bool:
    """Return whether a role may approve of campaigns and flows."""
    return "campaigns:approve" in scopes(role)


def starts(role: str) -> bool:
    """Return whether a role may let things go out, or stop them: an author and a viewer may not."""
    return "campaigns:send" in scopes(role)
