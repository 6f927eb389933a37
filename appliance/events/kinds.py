"""Names of events: those the service writes itself, and those a client may send (docs/decisions.md#13)."""

import re
from typing import NamedTuple


class Kind(NamedTuple):
    """An event the service writes: its group and how a person reads it."""

    name: str
    group: str
    words: str


KINDS = tuple(
    Kind(name, group, words)
    for group, names in (
        ("contact", {
            "contact_add": "was added", "contact_update": "was changed", "contact_delete": "was deleted",
            "contact_merge": "was merged", "tag_add": "got a tag", "tag_remove": "lost a tag",
        }),
        ("audience", {
            "list_add": "joined a list", "list_remove": "left a list",
            "segment_enter": "entered a segment", "segment_exit": "left a segment",
        }),
        ("consent", {
            "opt_in": "opted in", "opt_out": "opted out", "double_opt_in_requested": "was asked to confirm",
            "double_opt_in_confirmed": "confirmed", "form_submitted": "filled in a form",
            "erase_requested": "asked to be erased",
        }),
        ("email", {
            "email_sent": "email handed over", "email_delivered": "email delivered", "email_opened": "opened an email",
            "email_clicked": "clicked a link", "email_soft_bounced": "email came back for now",
            "email_bounced": "email came back", "email_complained": "complained", "email_failed": "email failed",
            "email_skipped": "email skipped", "email_replied": "replied",
        }),
        ("sms", {
            "sms_sent": "SMS handed over", "sms_delivered": "SMS delivered", "sms_failed": "SMS failed",
            "sms_skipped": "SMS skipped", "sms_clicked": "clicked a link in an SMS",
            "message": "wrote an SMS", "keyword": "sent a keyword",
        }),
        ("flow", {
            "flow_enter": "entered a flow", "flow_exit": "left a flow", "flow_goal": "reached a goal",
            "date_reached": "a date was reached",
        }),
        ("campaign", {
            "campaign_started": "campaign started", "campaign_paused": "campaign paused",
            "campaign_completed": "campaign completed", "domain_verified": "domain verified",
            "domain_failed": "domain failed", "webhook_disabled": "webhook switched off",
        }),
    )
    for name, words in names.items()
)  # fmt: skip

RESERVED = frozenset(kind.name for kind in KINDS)
BY_NAME = {kind.name: kind for kind in KINDS}
_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,63}")


def fault(name: str) -> str | None:
    """Return what is wrong with an event name that a client sends, or None."""
    if name in RESERVED:
        return "is reserved"
    return None if _PATTERN.fullmatch(name) else "is invalid"


def words(name: str) -> str:
    """Say an event in words; names of clients are shown as they are."""
    kind = BY_NAME.get(name)
    return kind.words if kind else name.replace("_", " ")
