"""Who may do what on the pages (docs/decisions.md#2): asked before a page answers, and by pages for their buttons."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.accounts import approving
from appliance.storage.models import User
from ui.session import Visit

SAFE = ("GET", "HEAD", "OPTIONS")
RULERS = ("owner", "admin")
_STARTING = ("activate", "publish", "pause", "archive", "revive", "put-back", "move_on", "take_out")
_DECIDING = ("approve", "reject")  # of campaigns and flows
_SENDING = ("send", "pause", "resume", "cancel", "undo", "retry", "assume", "schedule")
_WRITING = "/template/undo"  # of a campaign: the content comes back, nothing is called back

# For owners and admins; `/inbox/clear` as `account:write` over the API
_RULED = ("/brand", "/settings", "/welcome", "/inbox/clear")
# What everybody decides about themselves
_OWN = ("/logout", "/settings/theme", "/settings/keyboard")
_OWN_PAGES = "/settings/you"
# Forms that are too long for an address and change nothing
_READING = ("/segments/rows", "/segments/check")
# Pages that are a form and nothing to look at, and where that form goes
_FORMS = (
    (re.compile(r"(?!/templates|/contacts/imports)(/.+)/new"), r"\1"),
    (re.compile(r"(?!/templates)(/.+/\d+)/edit"), r"\1"),
    (re.compile(r"(/lists/\d+)/add"), r"\1/people"),
    (re.compile(r"(/contacts/\d+/(?:delete|merge)|/campaigns/\d+/(?:template|html|test)|/welcome(?:/\w+)?)"), r"\1"),
)


def may(role: str, method: str, path: str) -> bool:
    """Return whether a role may do this: everybody looks, and looks after their own sign-in.

    A viewer changes nothing; an author writes and does not send; an editor does not approve; brand, settings and
    emptying the built-in inbox are for owners and admins. An address is the same with a slash at its end, as the
    router takes it.
    """
    path = path.rstrip("/") or "/"
    if method in SAFE:
        return _may_open(role, path)
    if path in (*_OWN, *_READING) or path.startswith(_OWN_PAGES) or role in RULERS:
        return True
    if role == "viewer" or path.startswith(_RULED):
        return False
    if path.startswith(("/campaigns/", "/flows/")) and path.rsplit("/", 1)[-1] in _DECIDING:
        return False
    sends = path.startswith(("/campaigns/", "/outbox/")) and path.rsplit("/", 1)[-1] in _SENDING
    sends = sends and not path.endswith(_WRITING)
    sends = sends or (path.startswith("/contacts/") and path.endswith("/conversation"))
    sends = sends or (path.startswith("/flows/") and path.rsplit("/", 1)[-1] in _STARTING)
    return role == "editor" or (role == "author" and not sends)


def _may_open(role: str, path: str) -> bool:
    """Nobody is let type into a form that would be refused."""
    for pattern, goes in _FORMS:
        if found := pattern.fullmatch(path):
            return may(role, "POST", found.expand(goes))
    return True


# What pages say of approval: who asked, what was answered, and what somebody may do about it.


class Approval(NamedTuple):
    """How the approval of a campaign or flow stands, for one person who looks at it."""

    wanted: bool  # the account asks for it
    state: str
    note: str | None
    asked_at: int | None
    asked_by: str | None
    may_decide: bool
    is_own: bool  # they might, had they not written or asked it themselves
    is_all: bool  # nothing else is missing
    may_ask: bool

    @property
    def waits(self) -> bool:
        """Whether somebody was asked and has not answered."""
        return self.asked_at is not None and self.state == "pending_review"


def approval_of(visit: Visit, row: Any, here: str, codes: Sequence[str]) -> Approval:
    """Return how a campaign or flow stands; `here` is its page, `codes` what keeps it from going out."""
    wanted = bool(row.account.approval_required)
    decides = may(visit.user.role, "POST", f"{here}/approve")
    allowed = decides and approving.allows(row, visit.by)
    who = User.get_or_none(User.id == row.asked_by, User.account == visit.account_id) if row.asked_by else None
    is_all = bool(codes) and set(codes) == {"approval_required"} and row.approval_state != "rejected"
    return Approval(
        wanted, row.approval_state, row.approval_note, row.asked_at, (who.name or who.email) if who else None,
        allowed, decides and not allowed, is_all,
        is_all and row.asked_at is None and may(visit.user.role, "POST", f"{here}/ask"),
    )  # fmt: skip
