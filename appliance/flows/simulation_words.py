"""The words in which a rehearsal speaks."""

from collections.abc import Sequence

from appliance import clock
from appliance.designs.readable import readable
from appliance.flows.timeline import Rendered
from appliance.flows.why import Reason, spoken

_ENDS = {
    "completed": "the last step is done", "goal": "the goal is reached", "exit_step": "a step says so",
    "contact_deleted": "the contact is gone", "failed": "a step failed",
}  # fmt: skip
_SKIPPED = {
    "unsubscribed": "they have unsubscribed", "no_channel": "they have no such address",
    "no_consent": "they never opted in", "frequency_cap": "they have had as many as the account allows",
    "render_error": "it cannot be made", "invalid_address": "their address is none",
    "country_not_allowed": "SMS do not go to their country",
    "sender_not_allowed": "nobody who may write to their country sends it",
    "transactional_disabled": "service messages are switched off",
    "not_verified": "they have not confirmed their address", "quiet_hours_expired": "the quiet hours lasted too long",
}  # fmt: skip


def because(reasons: Sequence[Reason], yes: bool) -> str:
    """Return why a branch went as it did, by the filters that decided: what is asked, and what was found."""
    decisive = [one for one in reasons if one.decided]
    told = [f"somebody {_asked(one)} (found: {one.found})" for one in decisive[:3]]
    if len(decisive) > 3:
        told.append(f"{len(decisive) - 3} more")
    return f"because this is {' and '.join(told)}" if yes else f"because this is not {' nor '.join(told)}"


def _asked(one: Reason) -> str:
    """Return what a filter asks; a group without the brackets that it has within a sentence."""
    return one.sentence.removeprefix("(").removesuffix(")") if one.rows else one.sentence


def skipped(reason: str | None) -> str:
    """Return why a step was skipped, or a message did not leave."""
    reason = reason or "skipped"
    if reason.startswith("suppressed_"):
        return f"their address is suppressed ({reason.removeprefix('suppressed_').replace('_', ' ')})"
    return _SKIPPED.get(reason, reason.replace("_", " "))


def ended(status: str, reason: str | None) -> str:
    """Return why a run ended."""
    found = _ENDS.get(reason or status)
    return found or (reason or status).replace("_", " ")


def message(shown: Rendered, zone: str) -> str:
    """Return what became of a message."""
    name = _named(shown)
    if shown.status == "skipped":
        return f"{name} is skipped, {skipped(shown.skip_reason)}"
    if shown.status in ("queued", "held"):
        until = f" until {spoken(clock.parse(shown.leaves_at), zone)}" if shown.leaves_at else ""
        return f"{name} waits{until}"
    return f"{name} goes to {shown.to}"


def _named(shown: Rendered) -> str:
    if shown.channel == "email":
        return f"Email “{readable(shown.subject)}”" if shown.subject else "Email"
    return f"SMS of {shown.segments} parts" if (shown.segments or 0) > 1 else "SMS"
