"""Pages and forms of another account of the same person.

A browser session has one account open, for all tabs. A link may lead to a page of another account of the person, which
offers to open it; other users get the same 404 as for a page that does not exist. A form says which account it was made
for, because another one may have been opened in another tab since; then it is refused.
"""

import re
from typing import Any

from sanic import Request

from appliance.accounts import members
from appliance.storage import models
from appliance.storage.models import TeamMember
from ui.session import Visit

# The field of forms and the header of scripts that name the account of their page.
FIELD, HEADER = "open_account", "x-account"
# The tables of the objects whose id follows in the path. An id is given once in the installation.
_TABLES: dict[str, Any] = {
    "activity/answers": models.Incoming, "campaigns": models.Campaign, "contacts": models.Contact,
    "contacts/acts": models.BulkAction, "contacts/imports": models.Import, "contacts/suppressions": models.Suppression,
    "flows": models.Flow, "forms": models.Form, "inbox": models.CapturedMessage, "lists": models.ContactList,
    "outbox": models.Message, "proposals": models.Proposal, "segments": models.Segment,
    "settings/apps": models.AppGrant, "settings/domains": models.SendingDomain, "settings/keys": models.ApiKey,
    "settings/sign-in": models.SignInProvider,
    "settings/roles": models.Role,
    "settings/team/invitations": models.Invitation, "settings/webhooks": models.Webhook, "templates": models.Template,
    "templates/media": models.Media, "templates/pictures": models.Media,
}  # fmt: skip
_OBJECT_PATH = re.compile(r"/([a-z/]+)/([0-9]{1,18})(?:/|$)")
# A tag with any attributes, whose quoted values may contain ">".
_FORM_TAG = re.compile(r"""<form\b(?:[^<>"']|"[^"]*"|'[^']*')*+>""")
_ACTION = re.compile(r"""(?<=\saction=")[^"]*""")


def _parse_object(path: str) -> tuple[Any, int] | None:
    """Return the table and the id of the object that a path leads to, or None for a page without an object."""
    match = _OBJECT_PATH.match(path)
    table = _TABLES.get(match[1]) if match else None
    return (table, int(match[2])) if match and table is not None else None


def _find_account_id(path: str) -> int | None:
    """Return the id of the account that has the object of a path, or None."""
    target = _parse_object(path)
    if target is None:
        return None
    table, number = target
    row = table.select(table.account).where(table.id == number).first()
    return int(row.account_id) if row is not None else None


def find_account_of_page(visit: Visit, path: str) -> TeamMember | None:
    """Return the user's membership in another account that has the object of a path, or None."""
    account_id = _find_account_id(path)
    others = [row for row in members.list_of(visit.user.id) if row.account_id != visit.account_id]
    return next((row for row in others if row.account_id == account_id), None)


def is_page_of(account_id: int, path: str) -> bool:
    """Return whether the object of a path is in an account."""
    return _find_account_id(path) == account_id


def is_shared_page(path: str) -> bool:
    """Return whether each account has a page at a path: a list or a settings page, and not a page of one object."""
    return not any(part.isdecimal() for part in path.split("/"))


def find_wrong_account(request: Request, visit: Visit, is_personal: bool) -> tuple[bool, TeamMember | None]:
    """Return whether a write is not for the open account, and the user's membership in the named one (None if unknown).

    A write about an object need not name its account, because an object belongs to one account; nor need one that
    `is_personal`, such as a new password. Any other write must name it if the user has several accounts.
    """
    stated = request.headers.get(HEADER) or request.args.get(FIELD)
    if not stated and request.body:
        form: Any = request.get_form(keep_blank_values=True)
        stated = form.get(FIELD) if form else None
    if not stated:
        is_bound = is_personal or _parse_object(request.path) is not None
        return visit.has_several_accounts and not is_bound, None
    if stated == str(visit.account_id):
        return False, None
    return True, next((row for row in visit.memberships if str(row.account_id) == stated), None)


def name_account(body: str, visit: Visit) -> str:
    """Return the HTML of a page in which each form that writes has a field with the id of the open account.

    The form of an upload has the id in its URL, too, because its body is not read before the account was checked.
    """
    field = f'<input type="hidden" name="{FIELD}" value="{visit.account_id}">'

    def complete(match: re.Match[str]) -> str:
        tag = match[0]
        if 'method="post"' not in tag and "hx-post=" not in tag:
            return tag
        if 'enctype="multipart/form-data"' in tag:
            tag = _ACTION.sub(lambda url: f"{url[0]}{'&amp;' if '?' in url[0] else '?'}{FIELD}={visit.account_id}", tag)
        return tag + field

    return _FORM_TAG.sub(complete, body)
