"""Where a flow may go from where it is (docs/decisions.md#12), and what an edit does to one that is live."""

from typing import Any, cast

from appliance import clock
from appliance.account import approving
from appliance.account.acting import By
from appliance.db.work import after_commit, writing
from appliance.errors import Invalid, Unavailable
from appliance.flows import readiness, triggers, version_snapshot
from appliance.tables import Flow, Trigger
from appliance.transitions import Action, Standing, refusal, taken
from appliance.work import wake_ups

ALLOWED = {
    "draft": ("active", "archived"),
    "active": ("paused", "archived"),
    "paused": ("active", "archived"),
    "archived": ("draft",),
}
ACTIONS = {
    "activate": Action("activated", "active", ("draft", "paused")),
    "pause": Action("paused", "paused", ("active",)),
    "archive": Action("archived", "archived", ("draft", "active", "paused")),
}
# What to do instead, by action and status
_INSTEAD = {("activate", "archived"): "Make it a draft first: PATCH its `status`."}


def move(flow: Flow, to: str, by: By) -> None:
    """Move a flow to a status; raises Invalid (`invalid_transition`, or what is missing). The caller saves it."""
    if to == "active":
        activate(flow, by)
    elif to == "paused":
        pause(flow)
    elif to == "archived":
        archive(flow, take_out=False)
    else:
        revive(flow)


def revive(flow: Flow) -> None:
    """Make a flow that was put aside a draft again; the caller saves it."""
    writing()
    refuse(flow, "draft")
    flow.status, flow.paused_at = "draft", None


def put_back(flow: Flow, to: str, by: By) -> None:
    """Take back that a flow was paused, went on, or was put aside: it stands where it stood. The caller saves it.

    Raises Invalid where it has moved on since, was never live, or cannot be live any more.
    """
    writing()
    since = flow.paused_at
    if flow.status == "archived":
        revive(flow)
        if to == "paused" and flow.version:
            flow.status, flow.paused_at = "paused", since
            return
    if to != flow.status:
        move(flow, to, by)


def refuse(flow: Flow, to: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a flow may go there."""
    if to in ALLOWED[flow.status]:
        return
    raise Invalid(
        {"status": [f"cannot change from {flow.status} to {to}"]},
        reason="invalid_transition",
        **cast(Any, {"from": flow.status, "to": to, "allowed": list(ALLOWED[flow.status])}),
    )


def _require(flow: Flow, action: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a flow takes an action now."""
    if flow.status not in ACTIONS[action].needs:
        instead = _INSTEAD.get((action, flow.status), "")
        standing = Standing(flow.status, list(ALLOWED[flow.status]), taken(ACTIONS, flow.status))
        raise refusal("flow", standing, action, ACTIONS[action], instead)


def activate(flow: Flow, by: By, skip_overdue_seconds: int | None = None) -> None:
    """Let a flow take people in, and those who are inside go on; raises Invalid with all that is missing.

    Messages that were due longer ago than so many seconds are dropped. The caller saves the flow.
    """
    writing()
    _require(flow, "activate")
    if flow.closing is not None:
        raise Unavailable("those who were inside are still being taken out", "unavailable", retry_after=2)
    trigger = Trigger.get(Trigger.flow == flow.id)
    # With a test key nobody but tests can be taken in, whatever was live before
    flow.test = by.test
    readiness.refuse(readiness.blockers(flow, trigger, by))
    now = clock.now_ms()
    flow.drop_before = None if skip_overdue_seconds is None else now - skip_overdue_seconds * 1000
    approving.passed(flow)
    flow.status, flow.paused_at = "active", None
    version_snapshot.publish(flow)
    triggers.opened(flow.id)
    after_commit(lambda: wake_ups.ring("flows"))


def pause(flow: Flow) -> None:
    """Let nobody in and keep everybody where they are; the caller saves the flow."""
    writing()
    _require(flow, "pause")
    flow.status, flow.paused_at = "paused", clock.now_ms()


def archive(flow: Flow, take_out: bool) -> None:
    """Put a flow aside; those inside stay where they are, or leave. The caller saves the flow."""
    writing()
    flow.status, flow.paused_at = "archived", flow.paused_at or clock.now_ms()
    if take_out:
        flow.closing = "flow_archived"


def ask(flow: Flow, by: By) -> None:
    """Let a flow wait for somebody to approve of it; raises Invalid with what is missing else. The caller saves it."""
    writing()
    trigger = Trigger.get(Trigger.flow == flow.id)
    readiness.refuse(readiness.blockers(flow, trigger, By(approves=True)))
    approving.ask(flow, by)


def approve(flow: Flow, by: By) -> None:
    """Let a flow go live as it is; raises NotAllowed for who may not say so. The caller saves it."""
    writing()
    approving.approve(flow, by)


def reject(flow: Flow, note: str | None) -> None:
    """Keep a flow from going live as it is, and pause one that is live; the caller saves it."""
    writing()
    approving.reject(flow, note)
    if flow.status == "active":
        pause(flow)


def edited(flow: Flow, by: By) -> None:
    """Do what a change of content or audience means; the caller saves the flow.

    A live flow goes on with the new version for new runs. Where somebody has to approve of that first it is paused.
    """
    writing()
    if flow.status != "active":
        flow.approval_state = "pending_review"
        return
    if not approves(flow, by):
        flow.approval_state = "pending_review"
        pause(flow)
        return
    trigger = Trigger.get(Trigger.flow == flow.id)
    readiness.refuse(readiness.blockers(flow, trigger, By(approves=True)))
    approving.passed(flow)
    version_snapshot.publish(flow)


def approves(flow: Flow, by: By) -> bool:
    """Return whether what somebody does needs nobody else's approval."""
    return not flow.account.approval_required or approving.allows(flow, by)
