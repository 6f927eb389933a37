"""Approval: what has to be looked at before it goes out, and who may say that it is good (docs/decisions.md#6).

Campaigns and flows keep it alike: `approval_state`, `approval_note`, who asked and when, and who changed them last.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import roles
from appliance.accounts.acting import By
from appliance.core import clock
from appliance.core.errors import Invalid, NotAllowed
from appliance.storage.models import User
from appliance.storage.work import writing

RULERS = tuple(role for role in roles.ROLES if roles.approves(role))
REJECTED = "it was rejected: change it first"
WANTED = "somebody has to approve it first"
OWN = "whoever wrote it last does not approve of it: somebody else has to"


class Reject(Struct):
    """Why a campaign or flow may not go out as it is."""

    note: Annotated[str, Meta(max_length=1_000)] | None | UnsetType = UNSET


def lacks(row: Any, by: By) -> str | None:
    """Return what keeps a campaign or flow from going out by somebody's hand, or None."""
    if row.approval_state == "rejected":
        return REJECTED
    if row.approval_state == "approved" or not row.account.approval_required or allows(row, by):
        return None
    return OWN if by.approves else WANTED


def allows(row: Any, by: By) -> bool:
    """Return whether somebody may approve of a campaign or flow.

    Where an account wants somebody else to look, whoever asked or changed it last may not, unless nobody else may. What
    a key says is said by whoever made it; what a program wrote by itself is nobody's, and its key is trusted with it.
    """
    if not by.approves:
        return False
    person = by.person_id
    if person is None or not row.account.approval_by_another or person not in (row.asked_by, row.edited_by):
        return True
    others = User.select().where(
        User.account == row.account_id, User.role.in_(RULERS), User.disabled_at.is_null(), User.id != person
    )
    return not others.exists()


def touched(row: Any, user_id: int | None) -> None:
    """Note that content or audience changed: it has to be approved anew. The caller saves it."""
    writing()
    row.approval_state, row.edited_by = "pending_review", user_id


def ask(row: Any, by: By) -> None:
    """Let a campaign or flow wait for approval; raises Invalid for one that was rejected and not changed since."""
    writing()
    if row.approval_state == "rejected":
        raise Invalid({"base": [REJECTED]}, reason="approval_required")
    if row.approval_state != "approved" and row.asked_at is None:
        row.asked_at, row.asked_by, row.approval_note = clock.now_ms(), by.user_id, None


def approve(row: Any, by: By) -> None:
    """Approve of a campaign or flow as it is; raises NotAllowed for who may not. The caller saves it."""
    writing()
    if not allows(row, by):
        raise NotAllowed(OWN) if by.approves else NotAllowed(WANTED, required_scope="campaigns:approve")
    passed(row)


def passed(row: Any) -> None:
    """Note that nothing is left to be approved; the caller saves it."""
    row.approval_state, row.approval_note = "approved", None
    row.asked_at = row.asked_by = None


def reject(row: Any, note: str | None) -> None:
    """Keep a campaign or flow from going out as it is, and say why; the caller saves it."""
    writing()
    row.approval_state, row.approval_note = "rejected", (note or "").strip() or None
    row.asked_at = row.asked_by = None
