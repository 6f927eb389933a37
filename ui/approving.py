"""What pages say of approval: who asked, what was answered, and what somebody may do about it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.account import approving
from appliance.tables import User
from ui.rights import may
from ui.session import Visit


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


def of(visit: Visit, row: Any, here: str, codes: Sequence[str]) -> Approval:
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
