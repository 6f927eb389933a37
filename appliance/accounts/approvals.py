"""Approval of campaigns and flows before they are sent or started (docs/decisions.md#6).

Campaigns and flows have the same columns for approval: `approval_state`, `approval_note`, `asked_at` and `asked_by`
(time and user of the request for approval), and `edited_by` (the user who made the last change).
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import access, members
from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.core.errors import Conflict, Invalid, NotAllowed
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import LastRead
from appliance.storage.transactions import require_write_transaction

REJECTED = gettext_noop("it was rejected; change it first")
APPROVAL_REQUIRED = gettext_noop("it has to be approved first")
CHANGED_SINCE_READ = gettext_noop("It was changed since it was read. Read it again before you decide.")
OWN_CHANGE = gettext_noop("the last author cannot approve it; another user has to")


class ApproveRequest(Struct):
    """The request body of an approval, with the version that was read."""

    updated_at: LastRead | UnsetType = UNSET


class RejectRequest(Struct):
    """The request body of a rejection, with an optional reason."""

    note: (
        Annotated[str, Meta(max_length=1_000), Meta(description="reason for the rejection, shown to the author")]
        | None
        | UnsetType
    ) = UNSET


def require_unchanged(row: Any, updated_at: int | UnsetType) -> None:
    """Raise Conflict if a campaign or flow was changed after `updated_at`, which is UNSET if the client gave none."""
    if updated_at is not UNSET and updated_at < row.updated_at:
        raise Conflict(gettext(CHANGED_SINCE_READ), updated_at=clock.iso(row.updated_at))


def find_blocker(row: Any, by: Actor) -> str | None:
    """Return why an actor may not send a campaign or start a flow, or None if the actor may.

    The text is English; translate it with `gettext` before it is shown.
    """
    if row.approval_state == "rejected":
        return REJECTED
    if row.approval_state == "approved" or not row.account.approval_required or can_approve(row, by):
        return None
    return OWN_CHANGE if by.can_approve else APPROVAL_REQUIRED


def can_approve(row: Any, by: Actor) -> bool:
    """Return whether an actor may approve a campaign or flow.

    If the account requires approval by another user, the user who requested the approval or made the last change may
    not approve, unless the account has no other approver. An API key counts as the user who created it. A key that no
    user created may always approve if its scopes include approving.
    """
    if not by.can_approve:
        return False
    person = by.person_id
    if person is None or not row.account.approval_by_another or person not in (row.asked_by, row.edited_by):
        return True
    roles = access.list_roles_with(row.account_id, "campaigns:approve")
    return all(user.id == person for user in members.list_active(row.account_id, roles))


def mark_changed(row: Any, person_id: int | None) -> None:
    """Record a change of a campaign or flow, so that a new approval is needed; the caller saves the row.

    `person_id` is the actor's (`Actor.person_id`), so that users cannot approve what a key of theirs changed.
    """
    require_write_transaction()
    row.approval_state, row.edited_by = "pending_review", person_id


def request_approval(row: Any, by: Actor) -> None:
    """Request the approval of a campaign or flow; does nothing if it is approved or an approval is already requested.

    Raises Invalid if the campaign or flow was rejected and not changed since. The caller saves the row.
    """
    require_write_transaction()
    if row.approval_state == "rejected":
        raise Invalid({"base": [gettext(REJECTED)]}, reason="approval_required")
    if row.approval_state != "approved" and row.asked_at is None:
        row.asked_at, row.asked_by, row.approval_note = clock.now_ms(), by.person_id, None


def approve(row: Any, by: Actor) -> None:
    """Approve a campaign or flow; raises NotAllowed if the actor may not approve it. The caller saves the row."""
    require_write_transaction()
    if not can_approve(row, by):
        raise (
            NotAllowed(gettext(OWN_CHANGE))
            if by.can_approve
            else NotAllowed(gettext(APPROVAL_REQUIRED), required_scope="campaigns:approve")
        )
    mark_approved(row)


def mark_approved(row: Any) -> None:
    """Mark a campaign or flow as approved, without a check of permissions; the caller saves the row."""
    row.approval_state, row.approval_note = "approved", None
    row.asked_at = row.asked_by = None


def reject(row: Any, note: str | None) -> None:
    """Reject a campaign or flow with an optional reason, and end the request for approval; the caller saves the row.

    Permissions are not checked. Until the next change (`mark_changed`) it can be neither sent nor submitted for
    approval.
    """
    require_write_transaction()
    row.approval_state, row.approval_note = "rejected", (note or "").strip() or None
    row.asked_at = row.asked_by = None
