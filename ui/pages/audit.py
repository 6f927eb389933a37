"""The page of the audit log, with filters and a CSV download."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, audit
from appliance.accounts.audit import AuditQuery
from appliance.core import validation
from appliance.exports import records
from appliance.storage.transactions import fetch
from ui import view
from ui.forms import parse_int
from ui.guard import signed_in
from ui.pages.activity import parse_day
from ui.session import Pages, Visit

pages = Pages("ui_audit", url_prefix="/settings/audit")


_ACTION_LABELS = {
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
_ACTOR_LABELS = {
    "system": "The service", "cli": "The command line", "setup": "The set-up link", "recipient": "A recipient",
}  # fmt: skip
_NOUNS = {"user": "person of the team", "key": "API key", "act": "act", "run": "way through a flow"}


def action_label(action: str) -> str:
    """Return the label of an action; an unknown action is labelled with its name."""
    return _ACTION_LABELS.get(action) or action.replace("_", " ").capitalize()


def actor_label(actor: str, names: dict[str, str]) -> str:
    """Return the label of an actor such as `user:3`; `names` maps actors to names."""
    kind, _, number = actor.partition(":")
    name = names.get(actor) or _ACTOR_LABELS.get(actor)
    if name:
        return f"Key {name}" if kind == "key" else name
    return f"{_NOUNS.get(kind, kind).capitalize()} {number}".strip()


def subject_label(text: str, names: dict[str, str]) -> str:
    """Return the label of the subject of an action, such as `campaign 3`, or its name if `names` has it."""
    kind, _, number = text.partition(":")
    return names.get(text) or f"{_NOUNS.get(kind, kind.replace('_', ' '))} {number}".strip()


def format_details(data: dict[str, Any]) -> str:
    """Return the details of an entry on one line, as `name: value` pairs; empty lists are left out."""
    return ", ".join(f"{name.replace('_', ' ')}: {_format_value(value)}" for name, value in data.items() if value != [])


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return format_details(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


# The fields of `AuditQuery` by the name of the filter in the URL.
_FILTERS = {"actor": "actor", "action": "action", "subject": "subject", "from": "created_after", "to": "created_before"}
_BOM = "\ufeff"


@pages.get("/", strict_slashes=False)
@signed_in(access.ADMIN_SCOPE)
async def show_log(request: Request, visit: Visit) -> HTTPResponse:
    """Show the entries of the audit log that match the filters, newest first."""
    query = _read_query(request)

    def read() -> dict[str, Any]:
        return {
            "page": audit.fetch_page(visit.account_id, _build_query(query, parse_int(request.args.get("page")))),
            "names": audit.fetch_actor_names(visit.account_id), "actors": audit.fetch_actors(visit.account_id),
            "actions": sorted((action_label(action), action) for action in audit.fetch_actions(visit.account_id)),
        }  # fmt: skip

    return view.render(
        request, "settings/audit.html", also=("export",), filters=query, action_label=action_label,
        actor_label=actor_label, subject_label=subject_label, format_details=format_details,
        is_filtered=any(query.values()), **await fetch(read),
    )  # fmt: skip


@pages.get("/audit.csv")
@signed_in(access.ADMIN_SCOPE)
async def download_log(request: Request, visit: Visit) -> HTTPResponse | None:
    """Download the filtered audit log as CSV; the download is recorded in the log."""
    query = _read_query(request)
    lines = records.write_audit_csv(visit.account_id, _build_query(query, 1))
    rows = (await fetch(audit.fetch_page, visit.account_id, _build_query(query, 1))).total
    narrowed = [name for name, value in query.items() if value]
    await audit.record_export(visit.actor, visit.account_id, "audit.csv", narrowed, rows)
    return await view.stream_file(request, "audit.csv", "text/csv; charset=utf-8", _prepend_bom(lines))


def _prepend_bom(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines, the first one after the byte order mark by which spreadsheets recognise UTF-8."""
    mark = _BOM
    for line in lines:
        yield mark + line
        mark = ""


def _read_query(request: Request) -> dict[str, str]:
    """Return the filters of a request by their names in the URL; invalid days are dropped."""
    filters = {name: (request.args.get(name) or "").strip()[:120] for name in _FILTERS}
    for name in ("from", "to"):
        if parse_day(filters[name]) is None:
            filters[name] = ""
    return filters


def _build_query(filters: dict[str, str], page: int) -> AuditQuery:
    raw: dict[str, Any] = {_FILTERS[name]: value for name, value in filters.items() if value}
    if last := parse_day(filters["to"]):
        raw["created_before"] = (last + timedelta(days=1)).isoformat()  # the filter includes the whole last day
    return validation.read(AuditQuery, {**raw, "page": page, "limit": 50}, loose=True)
