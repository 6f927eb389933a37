"""What happened, as people read it."""

# Event: icon, tone, sentence.
_EVENTS = {
    "contact_add": ("user-plus", "good", "Added"),
    "contact_update": ("pencil", "", "Changed"),
    "contact_delete": ("trash-2", "", "Deleted"),
    "list_add": ("list", "", "Joined a list"),
    "list_remove": ("list", "", "Left a list"),
    "opt_in": ("circle-check", "good", "Agreed to receive messages"),
    "opt_out": ("ban", "warn", "Unsubscribed"),
    "double_opt_in_requested": ("mail", "hold", "Was asked to confirm"),
    "double_opt_in_confirmed": ("circle-check", "good", "Confirmed the address"),
    "form_submitted": ("pencil", "info", "Filled in a form"),
    "erase_requested": ("trash-2", "warn", "Asked to be erased"),
    "email_sent": ("send", "info", "Email handed over"),
    "email_delivered": ("mail", "good", "Email delivered"),
    "email_opened": ("mail-open", "info", "Opened an email"),
    "email_clicked": ("mouse-pointer-click", "info", "Clicked a link"),
    "email_soft_bounced": ("circle-alert", "warn", "Could not be delivered for now"),
    "email_bounced": ("circle-alert", "bad", "Bounced"),
    "email_complained": ("circle-alert", "bad", "Called it spam"),
    "email_failed": ("circle-alert", "bad", "Email refused"),
    "email_skipped": ("ban", "warn", "Email skipped"),
    "email_replied": ("reply", "good", "Replied"),
    "sms_sent": ("send", "info", "SMS handed over"),
    "sms_delivered": ("check", "good", "SMS delivered"),
    "sms_clicked": ("mouse-pointer-click", "info", "Clicked a link in an SMS"),
    "sms_failed": ("circle-alert", "bad", "SMS not delivered"),
    "sms_skipped": ("ban", "warn", "SMS skipped"),
    "message": ("reply", "good", "Wrote an SMS"),
    "keyword": ("reply", "good", "Sent a keyword"),
    "campaign_started": ("send", "info", "Campaign started"),
    "campaign_paused": ("pause", "warn", "Campaign paused"),
    "campaign_completed": ("circle-check", "good", "Campaign done"),
    "contact_merge": ("users", "", "Became one with another contact"),
    "tag_add": ("plus", "", "Got a tag"),
    "tag_remove": ("x", "", "Lost a tag"),
    "segment_enter": ("users", "", "Came into a segment"),
    "segment_exit": ("users", "", "Left a segment"),
    "date_reached": ("clock", "info", "A date came round"),
    "flow_enter": ("play", "info", "Entered a flow"),
    "flow_goal": ("circle-check", "good", "Reached the goal of a flow"),
    "flow_exit": ("log-out", "", "Left a flow"),
    "domain_verified": ("circle-check", "good", "Sending domain verified"),
    "domain_failed": ("circle-alert", "bad", "Sending domain failed"),
    "webhook_disabled": ("circle-alert", "bad", "Webhook switched off"),
}


def event(name: str) -> tuple[str, str, str]:
    """Return icon, tone and words of an event; one we do not know shows its own name."""
    return _EVENTS.get(name) or ("zap", "hold", name.replace("_", " ").capitalize())


def is_ours(name: str) -> bool:
    """Return whether an event is one that the service itself writes."""
    return name in _EVENTS
