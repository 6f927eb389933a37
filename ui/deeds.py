"""What people and keys did, in the words of a person."""

from typing import Any

_SAID = {
    "account_add": "Made the account",
    "account_update": "Changed the account",
    "backup": "Made a backup",
    "brand_update": "Changed the brand",
    "campaign_ask_approval": "Asked for approval of a campaign",
    "campaign_approve": "Approved a campaign",
    "campaign_assume": "Counted messages of a campaign as sent",
    "campaign_cancel": "Stopped a campaign for good",
    "campaign_delete": "Deleted a campaign",
    "campaign_move": "Moved a campaign to another state",
    "campaign_pause": "Paused a campaign",
    "campaign_reject": "Rejected a campaign",
    "campaign_resume": "Let a campaign go on",
    "campaign_retry": "Sent messages of a campaign again",
    "campaign_send": "Sent a campaign",
    "campaign_unsend": "Took a campaign back",
    "capture_clear": "Emptied the inbox",
    "contact_delete": "Deleted a person",
    "contact_erase": "Erased a person",
    "contact_merge": "Merged two people",
    "contacts_bulk": "Changed many people at once",
    "domain_add": "Added a sending domain",
    "domain_delete": "Deleted a sending domain",
    "domain_failed": "Lost a sending domain",
    "domain_key_active": "Put a new key of a domain to use",
    "domain_rotate_key": "Gave a domain a new key",
    "domain_verified": "Verified a sending domain",
    "erase": "Erased themselves",
    "erase_requested": "Asked to be erased",
    "export": "Exported a file",
    "flow_activate": "Made a flow live",
    "flow_ask_approval": "Asked for approval of a flow",
    "flow_approve": "Approved a flow",
    "flow_archive": "Put a flow aside",
    "flow_delete": "Deleted a flow",
    "flow_enroll": "Let people into a flow",
    "flow_pause": "Paused a flow",
    "flow_publish": "Published changes of a flow",
    "flow_put_back": "Put a flow back where it stood",
    "flow_reject": "Rejected a flow",
    "flow_revive": "Made a flow a draft again",
    "form_add": "Made a form",
    "form_delete": "Deleted a form",
    "form_update": "Changed a form",
    "import_cancel": "Stopped an import",
    "import_create": "Imported a file",
    "import_undo": "Took an import back",
    "key_create": "Made an API key",
    "key_revoke": "Revoked an API key",
    "list_delete": "Deleted a list",
    "login": "Signed in",
    "login_failed": "Failed to sign in",
    "logout": "Signed out",
    "message_assume": "Counted a message as sent",
    "message_assume_sent": "Counted a message as sent",
    "message_cancel": "Took a message back",
    "message_retry": "Sent a message again",
    "messages_retry": "Sent messages again",
    "otp_off": "Switched a second factor off",
    "otp_on": "Switched a second factor on",
    "password_reset_asked": "Asked for a new password",
    "password_reset_done": "Chose a new password by mail",
    "segment_delete": "Deleted a segment",
    "sending_started": "Let mail leave again",
    "sending_stopped": "Stopped all mail",
    "session_end": "Ended a sign-in",
    "settings_update": "Changed how mail and SMS leave",
    "suppression_add": "Kept an address from getting mail",
    "suppression_lift": "Let an address get mail again",
    "template_delete": "Deleted a template",
    "user_add": "Added a person to the team",
    "user_disable": "Let a person sign in no more",
    "user_enable": "Let a person sign in again",
    "user_name": "Changed a name in the team",
    "user_password": "Changed a password",
    "user_role": "Changed a role",
    "webhook_add": "Added a webhook",
    "webhook_delete": "Deleted a webhook",
    "webhook_rotate_secret": "Gave a webhook a new secret",
    "webhook_update": "Changed a webhook",
}
_ACTORS = {
    "system": "The service", "cli": "The command line", "setup": "The set-up link", "recipient": "A recipient",
}  # fmt: skip
_NOUNS = {"user": "person of the team", "key": "API key", "act": "act", "run": "way through a flow"}


def said(action: str) -> str:
    """Return what was done; a name that is not known here is written as it is."""
    return _SAID.get(action) or action.replace("_", " ").capitalize()


def who(actor: str, names: dict[str, str]) -> str:
    """Return who did it."""
    kind, _, number = actor.partition(":")
    name = names.get(actor) or _ACTORS.get(actor)
    if name:
        return f"Key {name}" if kind == "key" else name
    return f"{_NOUNS.get(kind, kind).capitalize()} {number}".strip()


def subject(text: str, names: dict[str, str]) -> str:
    """Return what it was done to, as `campaign 3`; a person of the team and a key by their names."""
    kind, _, number = text.partition(":")
    return names.get(text) or f"{_NOUNS.get(kind, kind.replace('_', ' '))} {number}".strip()


def facts(data: dict[str, Any]) -> str:
    """Return what else is known of it on one line."""
    return ", ".join(f"{name.replace('_', ' ')}: {_value(value)}" for name, value in data.items() if value != [])


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return facts(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
