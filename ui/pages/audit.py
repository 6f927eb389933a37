"""The page of the audit log, with filters and a CSV download."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, audit
from appliance.accounts.audit import AuditQuery
from appliance.core import validation
from appliance.core.i18n import fold, gettext, gettext_noop, pgettext, pgettext_noop
from appliance.exports import records
from appliance.flows.condition_limits import SLOW_CONDITIONS
from appliance.sending.transports import TRANSPORTS
from appliance.storage.models import Audit
from appliance.storage.transactions import fetch
from ui import view
from ui.forms import parse_day, parse_int
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_audit", url_prefix="/settings/audit")


_ACTION_LABELS = {
    "account_add": gettext_noop("Created the account"),
    "account_address": gettext_noop("Changed the public address"),
    "account_address_remove": gettext_noop("Removed a former public address"),
    "account_update": gettext_noop("Changed account settings"),
    "agents_resume": gettext_noop("Let all agents go on"),
    "agents_stop": gettext_noop("Stopped all agents"),
    "app_connect": gettext_noop("Connected an app"),
    "app_disconnect": gettext_noop("Disconnected an app"),
    "backup": gettext_noop("Created a backup"),
    "brand_update": gettext_noop("Changed the brand"),
    "campaign_approve": gettext_noop("Approved a campaign"),
    "campaign_ask_approval": gettext_noop("Requested approval of a campaign"),
    "campaign_assume": gettext_noop("Marked campaign messages as sent"),
    "campaign_create": gettext_noop("Drafted a campaign"),
    "campaign_update": gettext_noop("Changed a draft of a campaign"),
    "campaign_cancel": gettext_noop("Cancelled a campaign"),
    "campaign_delete": gettext_noop("Deleted a campaign"),
    "campaign_move": gettext_noop("Changed the status of a campaign"),
    "campaign_pause": gettext_noop("Paused a campaign"),
    "campaign_reject": gettext_noop("Rejected a campaign"),
    "campaign_resume": gettext_noop("Resumed a campaign"),
    "campaign_retry": gettext_noop("Resent campaign messages"),
    "campaign_send": gettext_noop("Sent a campaign"),
    "campaign_unsend": gettext_noop("Moved a campaign back to draft"),
    "campaign_winner": gettext_noop("Chose the winner of an A/B test"),
    "flow_winner": gettext_noop("Chose the winner of a test in a flow"),
    "capture_clear": gettext_noop("Emptied the test inbox"),
    "contact_delete": gettext_noop("Deleted a contact"),
    "contact_erase": gettext_noop("Deleted a contact permanently (GDPR)"),
    "contact_merge": gettext_noop("Merged two contacts"),
    "copies_late": gettext_noop("Reported that copies on another machine are too old"),
    "copies_recovered": gettext_noop("Reported that copies on another machine work again"),
    "copies_recovery_set": gettext_noop("Set a recovery passphrase for copies"),
    "copy_proof_failed": gettext_noop("Reported that a copy could not be restored for a test"),
    "copy_proof_recovered": gettext_noop("Reported that copies can be restored again"),
    "copy_proof_requested": gettext_noop("Started a test restore of a copy"),
    "copy_requested": gettext_noop("Started a copy on another machine"),
    "contacts_bulk": gettext_noop("Changed contacts in bulk"),
    "domain_add": gettext_noop("Added a sending domain"),
    "domain_delete": gettext_noop("Deleted a sending domain"),
    "domain_failed": gettext_noop("Sending domain failed verification"),
    "domain_key_active": gettext_noop("Started to use a new DKIM key"),
    "domain_rotate_key": gettext_noop("Created a new DKIM key"),
    "domain_verified": gettext_noop("Verified a sending domain"),
    "erase": gettext_noop("Deleted their own data (GDPR)"),
    "erase_requested": gettext_noop("Requested data deletion (GDPR)"),
    "export": gettext_noop("Exported a file"),
    "flow_activate": gettext_noop("Started a flow"),
    "flow_approve": gettext_noop("Approved a flow"),
    "flow_archive": gettext_noop("Archived a flow"),
    "flow_ask_approval": gettext_noop("Requested approval of a flow"),
    "flow_create": gettext_noop("Drafted a flow"),
    "flow_replay": gettext_noop("Replayed a flow"),
    "flow_replay_cancel": gettext_noop("Cancelled a replay of a flow"),
    "flow_update": gettext_noop("Changed a draft of a flow"),
    "flow_delete": gettext_noop("Deleted a flow"),
    "flow_enroll": gettext_noop("Added contacts to a flow"),
    "flow_pause": gettext_noop("Paused a flow"),
    "flow_publish": gettext_noop("Published changes of a flow"),
    "flow_put_back": gettext_noop("Restored the previous status of a flow"),
    "flow_reject": gettext_noop("Rejected a flow"),
    "flow_revive": gettext_noop("Reopened a flow as draft"),
    "flow_run_move_on": gettext_noop("Skipped a contact’s wait in a flow"),
    "flow_run_take_out": gettext_noop("Removed a contact from a flow"),
    "flow_requests_retry": gettext_noop("Retried HTTP requests of a flow"),
    "flow_runs_move_on": gettext_noop("Skipped the wait of contacts in a flow"),
    "flow_runs_take_out": gettext_noop("Removed contacts from a flow"),
    "form_add": gettext_noop("Created a form"),
    "form_delete": gettext_noop("Deleted a form"),
    "form_update": gettext_noop("Changed a form"),
    "identity_link": gettext_noop("Linked an account for signing in"),
    "identity_unlink": gettext_noop("Unlinked an account for signing in"),
    "import_cancel": gettext_noop("Cancelled an import"),
    "import_create": gettext_noop("Imported a file"),
    "import_undo": gettext_noop("Undid an import"),
    "key_create": gettext_noop("Created an API key"),
    "key_revoke": gettext_noop("Revoked an API key"),
    "list_delete": gettext_noop("Deleted a list"),
    "login": gettext_noop("Signed in"),
    "login_failed": gettext_noop("Failed to sign in"),
    "logout": gettext_noop("Signed out"),
    "message_assume": gettext_noop("Marked a message as sent"),
    "message_assume_sent": gettext_noop("Marked a message as sent"),
    "message_cancel": gettext_noop("Cancelled a message"),
    "message_retry": gettext_noop("Resent a message"),
    "messages_retry": gettext_noop("Resent messages"),
    "otp_off": gettext_noop("Turned off two-factor authentication"),
    "otp_on": gettext_noop("Turned on two-factor authentication"),
    "password_reset_asked": gettext_noop("Asked for a password reset"),
    "password_reset_done": gettext_noop("Reset their password by email"),
    "picture_upload": gettext_noop("Uploaded an image"),
    "proposal_approve": gettext_noop("Approved a proposal"),
    "proposal_create": gettext_noop("Made a proposal"),
    "proposal_return": gettext_noop("Returned a proposal"),
    "proposal_withdraw": gettext_noop("Withdrew a proposal"),
    "provider_add": gettext_noop("Added a sign-in provider"),
    "provider_delete": gettext_noop("Removed a sign-in provider"),
    "provider_update": gettext_noop("Changed a sign-in provider"),
    "segment_create": gettext_noop("Created a segment"),
    "segment_update": gettext_noop("Changed a segment"),
    "segment_delete": gettext_noop("Deleted a segment"),
    "sending_started": gettext_noop("Resumed sending"),
    "sending_stopped": gettext_noop("Stopped all sending"),
    "session_end": gettext_noop("Ended a session"),
    "settings_update": gettext_noop("Changed sending settings"),
    "sign_in_update": gettext_noop("Changed how people sign in"),
    "suppression_add": gettext_noop("Added an address to the suppression list"),
    "suppression_lift": gettext_noop("Removed an address from the suppression list"),
    "template_create": gettext_noop("Created a template"),
    "template_test": gettext_noop("Sent a test email"),
    "template_update": gettext_noop("Changed a template"),
    "template_delete": gettext_noop("Deleted a template"),
    "role_create": gettext_noop("Created a role"),
    "role_delete": gettext_noop("Deleted a role"),
    "role_update": gettext_noop("Changed a role"),
    "user_add": gettext_noop("Added a team member"),
    "user_disable": gettext_noop("Deactivated a user"),
    "user_enable": gettext_noop("Reactivated a user"),
    "user_invite": gettext_noop("Invited a team member"),
    "user_invite_resend": gettext_noop("Sent an invitation again"),
    "user_invite_revoke": gettext_noop("Revoked an invitation"),
    "user_join": gettext_noop("Joined by the domain of their address"),
    "user_language": gettext_noop("Changed their language"),
    "user_name": gettext_noop("Changed a user’s name"),
    "user_password": gettext_noop("Changed a password"),
    "user_role": gettext_noop("Changed a user’s role"),
    "webhook_add": gettext_noop("Added a webhook"),
    "webhook_delete": gettext_noop("Deleted a webhook"),
    "webhook_rotate_secret": gettext_noop("Rotated the secret of a webhook"),
    "webhook_update": gettext_noop("Changed a webhook"),
}
_ACTOR_LABELS = {
    "system": gettext_noop("Campanero"), "cli": gettext_noop("Command line"), "setup": gettext_noop("Set-up link"),
    "recipient": gettext_noop("Recipient"),
}  # fmt: skip
# The label of an actor or subject by its kind; `%(id)s` is its number.
_SUBJECT_LABELS = {
    "account": gettext_noop("Account %(id)s"), "brand": gettext_noop("Brand"),
    "act": gettext_noop("Bulk action %(id)s"),
    "campaign": gettext_noop("Campaign %(id)s"), "contact": gettext_noop("Contact %(id)s"),
    "domain": gettext_noop("Sending domain %(id)s"), "flow": gettext_noop("Flow %(id)s"),
    "form": gettext_noop("Form %(id)s"), "import": gettext_noop("Import %(id)s"),
    "invitation": gettext_noop("Invitation %(id)s"), "key": gettext_noop("API key %(id)s"),
    "list": gettext_noop("List %(id)s"),
    "picture": gettext_noop("Image %(id)s"), "proposal": gettext_noop("Proposal %(id)s"),
    "message": gettext_noop("Message %(id)s"), "provider": gettext_noop("Sign-in provider %(id)s"),
    "role": gettext_noop("Role %(id)s"), "run": gettext_noop("Journey %(id)s"),
    "segment": gettext_noop("Segment %(id)s"), "suppression": gettext_noop("Suppression %(id)s"),
    "template": gettext_noop("Template %(id)s"), "user": gettext_noop("User %(id)s"),
    "webhook": gettext_noop("Webhook %(id)s"),
}  # fmt: skip

# The labels of the fields of the settings, as on their pages
_FIELD_LABELS = {
    "time_zone": gettext_noop("Time zone"), "locale": gettext_noop("Language for recipients"),
    "country_code": gettext_noop("Default phone country"), "email_from_name": gettext_noop("From name"),
    "email_from_email": gettext_noop("From address"), "email_reply_to": gettext_noop("Reply-to address"),
    "test_email_recipients": gettext_noop("Test email recipients"),
    "approval_required": gettext_noop("Require approval for campaigns and flows"),
    "approval_by_another": gettext_noop("Require a different approver"),
    "block_on_missing_variable": gettext_noop("Require a value for every merge tag"),
    "transactional_allowed": gettext_noop("Allow transactional messages"),
    "frequency_cap": gettext_noop("Frequency cap"), "control_share": gettext_noop("Control group"),
    "attribution_days": gettext_noop("Attribution window"),
    "utm": gettext_noop("UTM parameters"),
    "marketing_calendar": gettext_noop("Allowed times for marketing email"),
    "sms_opt_out_hint": gettext_noop("Opt-out text"),
    "sms_opt_out_hints": gettext_noop("Opt-out in other languages"), "privacy_ip": gettext_noop("IP addresses"),
    "sms_quiet_hours": gettext_noop("Quiet hours"), "sms_from": gettext_noop("SMS sender"),
    "company_name": gettext_noop("Company name"), "physical_address": gettext_noop("Postal address"),
    "company_description": gettext_noop("Company description"), "industry": gettext_noop("Industry"),
    "tone": gettext_noop("Tone of voice"), "example_copy": gettext_noop("Sample copy"), "logo": gettext_noop("Logo"),
    "links": gettext_noop("Links"), "brand_color": gettext_noop("Brand colour"),
    "text_color": gettext_noop("Text colour"), "bg_color": gettext_noop("Background colour"),
    "font_heading": gettext_noop("Font of headings"), "font_body": gettext_noop("Font of text"),
}  # fmt: skip
# How a user signed in, by the kind of the session
_SIGN_INS = {"browser": gettext_noop("Signed in with a browser"), "token": gettext_noop("Signed in through the API")}
# Details whose values are codes that `_DETAIL_WORDS` contains, too
_CODED_DETAILS = frozenset(("kind", "role", "scope", "before", "status"))
# Details that only programs need; what an entry is about is its subject.
_HIDDEN_DETAILS = frozenset(
    ("session_id", "flow_id", "domain_id", "merged_contact_id", "selector", "selectors", "resource")
)
# The names and values of details; others are shown as they are recorded, without underscores and dots.
_DETAIL_WORDS = {
    "name": pgettext_noop("audit", "name"),
    "changed": pgettext_noop("audit", "changed"),
    "role": pgettext_noop("audit", "role"),
    "language": pgettext_noop("audit", "language"),
    "kind": pgettext_noop("audit", "kind"),
    "file": pgettext_noop("audit", "file"),
    "rows": pgettext_noop("audit", "rows"),
    "filters": pgettext_noop("audit", "filters"),
    "reason": pgettext_noop("audit", "reason"),
    "status": pgettext_noop("audit", "status"),
    "email": pgettext_noop("audit", "email"),
    "host": pgettext_noop("audit", "host"),
    "url": pgettext_noop("audit", "address"),
    "sending_stopped": pgettext_noop("audit", "sending stopped"),
    "stop_reason": pgettext_noop("audit", "reason of the stop"),
    "contact_data": pgettext_noop("audit", "contact data"),
    "scope": pgettext_noop("audit", "access"),
    "full": pgettext_noop("audit", "full access"),
    "for_tests": pgettext_noop("audit", "test key"),
    "invited_by": pgettext_noop("audit", "invited by"),
    "email.transport": pgettext_noop("audit", "email sending method"),
    "email.transports": pgettext_noop("audit", "further transports"),
    "email.routes": pgettext_noop("audit", "rules for transports"),
    "email.relay.host": pgettext_noop("audit", "SMTP server"),
    "email.relay.port": pgettext_noop("audit", "SMTP port"),
    "email.relay.tls": pgettext_noop("audit", "SMTP encryption"),
    "email.relay.username": pgettext_noop("audit", "SMTP username"),
    "email.relay.password": pgettext_noop("audit", "SMTP password"),
    "email.allow_unverified_domains": pgettext_noop("audit", "allowed sending domains"),
    "email.rate_per_hour": pgettext_noop("audit", "maximum emails per hour"),
    "sms.transport": pgettext_noop("audit", "SMS provider"),
    "sms.twilio.account_sid": pgettext_noop("audit", "Twilio account SID"),
    "sms.twilio.auth_token": pgettext_noop("audit", "Twilio auth token"),
    "sms.twilio.from": pgettext_noop("audit", "SMS sender"),
    "sms.http.url": pgettext_noop("audit", "SMS URL"),
    "sms.http.secret": pgettext_noop("audit", "SMS secret"),
    "contacts": pgettext_noop("audit", "contacts"),
    "count": pgettext_noop("audit", "count"),
    "before": pgettext_noop("audit", "before"),
    "runs": pgettext_noop("audit", "contacts"),
    "enrolled": pgettext_noop("audit", "contacts"),
    "enabled": pgettext_noop("audit", "turned on"),
    "dry_run": pgettext_noop("audit", "only checked"),
    "test": pgettext_noop("audit", "in test mode"),
    "provider": pgettext_noop("audit", "provider"),
    "domains": pgettext_noop("audit", "domains"),
    "trust_mfa": pgettext_noop("audit", "second factor of the provider is enough"),
    "password": pgettext_noop("audit", "passwords allowed"),
    "client_id": pgettext_noop("audit", "client ID"),
    "client_secret": pgettext_noop("audit", "client secret"),
    SLOW_CONDITIONS: pgettext_noop("audit", "conditions take too long"),
    "author": pgettext_noop("audit", "author"),
    "editor": pgettext_noop("audit", "editor"),
    "viewer": pgettext_noop("audit", "viewer"),
    "owner": pgettext_noop("audit", "owner"),
    "admin": pgettext_noop("audit", "admin"),
}


# The settings of HTTP APIs of email, as (provider, setting).
_API_SETTINGS = {
    f"email.{transport.name}.{field.name}": (transport.label, field.label)
    for transport in TRANSPORTS.values()
    for field in transport.fields
}


def action_label(action: str) -> str:
    """Return the label of an action; an unknown action is labelled with its name."""
    if action in _ACTION_LABELS:
        return gettext(_ACTION_LABELS[action])
    return action.replace("_", " ").capitalize()


def entry_label(entry: Audit) -> str:
    """Return the label of the action of an entry; the label of a sign-in says how the user signed in."""
    if entry.action == "login" and (label := _SIGN_INS.get(str(entry.data.get("kind")))):
        return gettext(label)
    return action_label(entry.action)


def actor_label(actor: str, names: dict[str, str]) -> str:
    """Return the label of an actor such as `user:3`; `names` maps actors to names."""
    kind, _, number = actor.partition(":")
    if name := names.get(actor):
        return gettext("API key %(id)s", id=name) if kind == "key" else name
    if actor in _ACTOR_LABELS:
        return gettext(_ACTOR_LABELS[actor])
    return _numbered_label(kind, number)


def subject_label(text: str, names: dict[str, str]) -> str:
    """Return the label of the subject of an action, such as `Campaign 3`, or its name if `names` has it."""
    kind, _, number = text.partition(":")
    return names.get(text) or _numbered_label(kind, number)


def _numbered_label(kind: str, number: str) -> str:
    """Return the label of an object of a kind; an unknown kind is labelled with its name."""
    if kind in _SUBJECT_LABELS:
        return gettext(_SUBJECT_LABELS[kind], id=number)
    return f"{kind.replace('_', ' ').capitalize()} {number}".strip()


def format_details(data: dict[str, Any], names: dict[str, str]) -> str:
    """Return the details of an entry on one line, as `name: value` pairs.

    Empty lists, values that only programs need, and the name of the subject, which `subject_name` returns, are left
    out. `names` maps actors to names, as in `actor_label`.
    """
    is_session = "session_id" in data
    pairs = [
        gettext("%(label)s: %(value)s", label=_detail_word(name), value=_format_value(value, names, name))
        for name, value in data.items()
        if value != [] and name not in _HIDDEN_DETAILS and name != "name" and not (is_session and name == "kind")
    ]
    text = ", ".join(pairs)
    return text[:1].upper() + text[1:]


def subject_name(row: Audit, names: dict[str, str]) -> str:
    """Return the name that the subject of an entry has, or had when it was recorded; else its label."""
    return str(row.data.get("name") or "") or subject_label(row.subject or "", names)


def _detail_word(name: str) -> str:
    if name in _FIELD_LABELS:
        return gettext(_FIELD_LABELS[name])
    if name in _API_SETTINGS:
        provider, setting = _API_SETTINGS[name]
        return gettext("%(label)s: %(value)s", label=provider, value=gettext(setting))
    return pgettext("audit", _DETAIL_WORDS[name]) if name in _DETAIL_WORDS else name.replace("_", " ").replace(".", " ")


def _format_value(value: Any, names: dict[str, str], name: str) -> str:
    if isinstance(value, list):
        return ", ".join(_detail_word(entry) if name == "changed" else str(entry) for entry in value)
    if isinstance(value, dict):
        return format_details(value, names)
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if name == "invited_by":
        return actor_label(str(value), names)
    if name in _CODED_DETAILS or value == SLOW_CONDITIONS:
        return _detail_word(str(value))
    if name == "language" and value == "browser":
        return gettext("browser language")
    return gettext("none") if value is None else str(value)


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
            "actions": sorted(
                ((action_label(action), action) for action in audit.fetch_actions(visit.account_id)),
                key=lambda option: fold(option[0]),
            ),
        }  # fmt: skip

    return view.render(
        request, "settings/audit.html", also=("export",), filters=query, entry_label=entry_label,
        actor_label=actor_label, subject_label=subject_label, subject_name=subject_name,
        format_details=format_details,
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
