"""Approval of campaigns and flows by another user, and confirmation of unfinished content.

The checklist of a campaign is here too: the findings of its preflight, grouped by their effect on sending.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import approvals, audit, members
from appliance.agents.kinds.base import describe_version
from appliance.campaigns import preflight, send
from appliance.campaigns import store as campaigns
from appliance.campaigns.preflight import Preflight
from appliance.content.templates.placeholders import UNFINISHED_CODES
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.flows import lifecycle, store
from appliance.storage.models import Flow
from appliance.storage.transactions import commit, fetch, render_send
from ui import formats, view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_approvals")

_REQUESTED = gettext_noop("Approval requested. Owners and admins see the request on their home page.")
_APPROVED = gettext_noop("Approved.")
CONTENT_CHANGED = gettext_noop("The content has changed since you opened this page. Review it again.")
_NO_NOTE = gettext_noop("Enter what should be changed. Nothing was rejected.")
_REJECTED = gettext_noop("Rejected. It has to be changed before it can be approved.")


@pages.post("/campaigns/<campaign_id:int>/ask")
@signed_in("campaigns:write")
async def request_campaign(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Request approval of a campaign."""
    prepared = await render_send(preflight.prepare_send, visit.account_id, campaign_id)
    args = (
        visit.actor,
        "campaign_ask_approval",
        send.request_approval,
        visit.account_id,
        campaign_id,
        visit.actor,
        prepared,
    )
    return await _apply(request, f"/campaigns/{campaign_id}", _REQUESTED, audit.run_and_record, *args)


@pages.post("/campaigns/<campaign_id:int>/approve")
@signed_in("campaigns:approve")
async def approve_campaign(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Approve a campaign."""
    shown_version = Form.from_request(request)["shown"]

    def approve() -> None:
        require_current(campaigns.get(visit.account_id, campaign_id), shown_version)
        args = (send.approve_campaign, visit.account_id, campaign_id, visit.actor)
        audit.run_and_record(visit.actor, "campaign_approve", *args)

    return await _apply(request, f"/campaigns/{campaign_id}", _APPROVED, approve)


@pages.post("/campaigns/<campaign_id:int>/reject")
@signed_in("campaigns:approve")
async def reject_campaign(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Reject a campaign, with the note of the form."""
    await fetch(campaigns.get, visit.account_id, campaign_id)
    if not (note := _read_note(request)):
        return _require_note(request, f"/campaigns/{campaign_id}")
    args = (
        visit.actor,
        "campaign_reject",
        send.reject_campaign,
        visit.account_id,
        campaign_id,
        note,
    )
    return await _apply(request, f"/campaigns/{campaign_id}", _REJECTED, audit.run_and_record, *args)


@pages.post("/flows/<flow_id:int>/ask")
@signed_in("flows:write")
async def request_flow(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Request approval of a flow."""
    args = (
        visit.actor,
        "flow_ask_approval",
        store.apply_action,
        visit.account_id,
        flow_id,
        lifecycle.request_approval,
        visit.actor,
    )
    return await _apply(request, f"/flows/{flow_id}", _REQUESTED, audit.run_and_record, *args)


@pages.post("/flows/<flow_id:int>/approve")
@signed_in("campaigns:approve")
async def approve_flow(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Approve a flow."""
    shown_version = Form.from_request(request)["shown"]

    def approve() -> None:
        require_current(store.get(visit.account_id, flow_id), shown_version)
        args = (store.apply_action, visit.account_id, flow_id, lifecycle.approve, visit.actor)
        audit.run_and_record(visit.actor, "flow_approve", *args)

    return await _apply(request, f"/flows/{flow_id}", _APPROVED, approve)


@pages.post("/flows/<flow_id:int>/reject")
@signed_in("campaigns:approve")
async def reject_flow(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Reject a flow, with the note of the form."""
    await fetch(store.get, visit.account_id, flow_id)
    if not (note := _read_note(request)):
        return _require_note(request, f"/flows/{flow_id}")
    args = (
        visit.actor,
        "flow_reject",
        store.apply_action,
        visit.account_id,
        flow_id,
        lifecycle.reject,
        note,
    )
    return await _apply(request, f"/flows/{flow_id}", _REJECTED, audit.run_and_record, *args)


def _read_note(request: Request) -> str | None:
    text = validation.read(approvals.RejectRequest, {"note": Form.from_request(request)["note"][:1000]})
    return text.note or None


def _require_note(request: Request, current: str) -> HTTPResponse:
    """Return a redirect to the page of the campaign or flow, which says that a note is needed."""
    view.flash(request, gettext(_NO_NOTE))
    return view.redirect(request, current)


async def _apply(request: Request, current: str, text: str, verb: Callable[..., Any], *args: Any) -> HTTPResponse:
    """Run an approval action, flash `text`, and redirect to the page of the campaign or flow.

    If the action raises Invalid, the notice says instead that content or status has changed or that something is
    missing.
    """
    try:
        await commit(verb, *args)
    except errors.Invalid as error:
        if error.reason == CHANGED_REASON:
            text = CONTENT_CHANGED
        elif error.reason not in ("campaign_locked", "approval_required", None):
            text = gettext_noop("Something else is missing. See the checklist.")
        else:
            text = gettext_noop("The status changed in the meantime. This page shows the current status.")
    view.flash(request, gettext(text))
    return view.redirect(request, current)


# An approval and a send are decisions about what the page showed. An edit between the request and the decision would
# otherwise be approved unseen.

CHANGED_REASON = "content_changed"


def require_current(row: Any, version: str) -> None:
    """Raise Invalid with the reason `content_changed` unless a campaign or flow is as a page showed it."""
    if not is_current(row, version):
        raise errors.Invalid({"base": [gettext(CONTENT_CHANGED)]}, reason=CHANGED_REASON)


def is_current(row: Any, version: str) -> bool:
    """Return whether a campaign or flow is as a page showed it; `version` is empty if the form has none."""
    return not version or version == describe_version(row)


class Approval(NamedTuple):
    """The approval state of a campaign or flow, as one user sees it."""

    version: str  # what the page shows (`describe_version`)
    is_required: bool  # the account requires approval
    state: str
    note: str | None
    requested_at: int | None
    requested_by: str | None
    can_decide: bool
    is_own: bool  # the user may approve, but not this campaign or flow, as its author or requester
    is_only_blocker: bool  # nothing else prevents the send
    can_request: bool
    is_draft: bool
    decided_at: int | None  # when it was approved or rejected; None if the audit log does not say
    decided_by: str | None  # the name of the user or API key

    @property
    def is_approved(self) -> bool:
        """Return whether a draft is approved; its next change ends the approval."""
        return self.is_required and self.is_draft and self.state == "approved"

    @property
    def is_pending(self) -> bool:
        """Return whether approval was requested and not decided yet."""
        return self.requested_at is not None and self.state == "pending_review"


def load_approval(visit: Visit, row: Any, codes: Sequence[str]) -> Approval:
    """Return the approval state of a campaign or flow for the visiting user; `codes` are the codes of its blockers."""
    is_required = bool(row.account.approval_required)
    decides = visit.can("campaigns:approve")
    allowed = decides and approvals.can_approve(row, visit.actor)
    requester = members.find(visit.account_id, row.asked_by) if row.asked_by else None
    is_all = bool(codes) and set(codes) == {"approval_required"} and row.approval_state != "rejected"
    is_draft = (row.status if isinstance(row, Flow) else row.phase) == "draft"
    is_decided = (
        row.approval_state == "rejected" or row.approval_note or (is_draft and row.approval_state == "approved")
    )
    decision = _find_decision(row) if is_decided else None
    return Approval(
        describe_version(row), is_required, row.approval_state, row.approval_note, row.asked_at,
        (requester.name or requester.email) if requester else None,
        allowed, decides and not allowed, is_all,
        is_all and row.asked_at is None and visit.can("flows:write" if isinstance(row, Flow) else "campaigns:write"),
        is_draft, decision.created_at if decision else None,
        audit.fetch_actor_names(row.account_id).get(decision.actor) if decision else None,
    )  # fmt: skip


# The actions that decide about a campaign or flow. A send or start by a user who may approve counts as approval.
_DECIDING_ACTIONS = {
    "campaign": ("campaign_approve", "campaign_reject", "campaign_send"),
    "flow": ("flow_approve", "flow_reject", "flow_activate"),
}


def _find_decision(row: Any) -> Any:
    """Return the entry of the audit log that approved or rejected a campaign or flow, or None."""
    noun = "flow" if isinstance(row, Flow) else "campaign"
    entry = audit.find_latest(row.account_id, f"{noun}:{row.id}", _DECIDING_ACTIONS[noun], row.created_at)
    action = "approve" if row.approval_state == "approved" else "reject"
    return entry if entry is not None and entry.action == f"{noun}_{action}" else None


# Unfinished content of an email, which the user must confirm before sending.

CONFIRM_SENTENCE = gettext_noop("Confirm that you want to send it as it is.")


def filter_unfinished(findings: Sequence[Any]) -> list[Any]:
    """Return the preflight findings about unfinished content (`UNFINISHED_CODES`)."""
    return [finding for finding in findings if finding.code in UNFINISHED_CODES]


def check_confirmed(form: Form, unfinished: Sequence[Any]) -> bool:
    """Return whether there is no unfinished content or the form confirms it; otherwise add an error to the form."""
    if unfinished and form["unfinished"] != "yes":
        form.add_error("unfinished", gettext(CONFIRM_SENTENCE))
        return False
    return True


def unfinished_note(unfinished: Sequence[Any]) -> str:
    """Return a sentence about unfinished content for the notice after a test send; empty if there is none."""
    if len(unfinished) == 1:
        return formats.sentence(unfinished[0].message)
    count = len(unfinished)
    return ngettext("%(num)s item is unfinished.", "%(num)s items are unfinished.", count) if count else ""


# Codes of findings that the checklist leaves out, since the render check shows them with the contacts concerned.
_RENDER_CHECK_CODES = ("missing_value", "render_error")
# The card that fixes a finding, by the start of the finding's field. `_FIX_PAGES` has other pages, by the code of the
# finding.
_CARD_BY_FIELD = (
    ("trigger_attributes", "to"), ("confirm_send_to_all", "to"), ("template_attributes.body", "content"),
    ("template_attributes.design", "content"), ("template_attributes", "from"), ("experiment", "experiment"),
    ("scheduled_at", "when"),
)  # fmt: skip
# Sentences by the code of a finding. Any other finding is shown with its message.
_FINDING_SENTENCES = {
    "base_url_http": gettext_noop(
        "Mailbox providers require https for one-click unsubscribe. Ask your administrator to set it up."
    ),
    "opt_out_hint_missing": gettext_noop(
        "The text does not say how to opt out. Add “Reply STOP to opt out”, or set an opt-out text in the settings."
    ),
}
_FIX_PAGES = {
    "postal_address": "/brand", "not_tested": "/campaigns/{}/test", "parts_per_day": "/settings",
    "base_url_http": "/docs/guides/https", "approval_required": "/campaigns/{}#approval",
}  # fmt: skip


class FindingGroup(NamedTuple):
    """The preflight findings that have the same effect on sending.

    `rows` are (colour class, sentence, URL); the URL is empty if the user may not open the page.
    """

    title: str
    explanation: str
    count_label: str
    rows: list[tuple[str, str, str]]


class Checklist(NamedTuple):
    """The preflight findings in groups, the most severe first; `summary` has the number of findings in each group."""

    groups: list[FindingGroup]
    summary: str


# Warnings that prevent a send on pages, which have no button for it then. The API sends to nobody.
_PREVENTING_CODES = ("no_recipients",)
# Titles and explanations of the groups. Only findings of the first group prevent a send, and only those of the second
# need a confirmation.
_REQUIRED = gettext_noop("Required"), gettext_noop("Fix these before you send.")
_AWAITED = gettext_noop("Waiting for approval"), gettext_noop("Nothing else is missing here.")
_UNFINISHED = (
    gettext_noop("Unfinished content"),
    gettext_noop("Replace it, or confirm when you send that you want to keep it."),
)
_RECOMMENDED = gettext_noop("Recommended"), gettext_noop("You can send without these.")


def build_checklist(
    preflight_result: Preflight, campaign_id: int, visit: Visit, *, is_later: bool, is_asked: bool = False
) -> Checklist:
    """Return the checklist of a campaign, with links to the pages that the user may open.

    `is_later` says that the campaign is scheduled, so its audience may have recipients then; `is_asked`, that its
    approval was requested.
    """
    preventing = () if is_later else _PREVENTING_CODES
    warnings = [finding for finding in preflight_result.warnings if finding.code not in _RENDER_CHECK_CODES]
    unfinished = [finding for finding in warnings if finding.code in UNFINISHED_CODES]
    required = [*preflight_result.blockers, *(finding for finding in warnings if finding.code in preventing)]
    recommended = [finding for finding in warnings if finding.code not in (*UNFINISHED_CODES, *preventing)]
    awaited = [finding for finding in required if is_asked and finding.code == "approval_required"]
    required = [finding for finding in required if finding not in awaited]
    groups = []
    kinds: tuple[tuple[str, tuple[str, str], Callable[[int], str], list[Any]], ...] = (
        (
            "bad",
            _REQUIRED,
            lambda many: ngettext("%(num)s required", "%(num)s required", many),
            required,
        ),
        ("muted", _AWAITED, lambda _: gettext("Waiting for approval"), awaited),
        ("warn", _UNFINISHED, lambda many: ngettext("%(num)s unfinished", "%(num)s unfinished", many), unfinished),
        ("muted", _RECOMMENDED, lambda many: ngettext("%(num)s recommended", "%(num)s recommended", many), recommended),
    )
    for tone, (title, explanation), count, findings in kinds:
        rows = []
        for finding in findings:
            href = fix_url(finding, campaign_id, "sms" in preflight_result.facts)
            rows.append((tone, finding_sentence(finding), href if visit.can_open(href) else ""))
        if rows:
            groups.append(FindingGroup(gettext(title), gettext(explanation), count(len(rows)), rows))
    return Checklist(groups, ", ".join(group.count_label for group in groups))


def finding_sentence(finding: Any) -> str:
    """Return a preflight finding as a sentence."""
    if finding.code in _FINDING_SENTENCES and not finding.field.startswith("experiment."):
        return gettext(_FINDING_SENTENCES[finding.code])
    return formats.sentence(finding.message)


# The path of a finding about all translations; that of one language follows after a dot.
_TRANSLATIONS = "template_attributes.translations"
# The path of a finding about a variant of an A/B test.
_VARIANT_PATH = re.compile(r"experiment\.variants\[(\d)\]\.")


def fix_url(finding: Any, campaign_id: int, is_sms: bool = False) -> str:
    """Return the URL of the page or card that fixes a finding of an email or SMS campaign, or an empty string."""
    if finding.code in _FIX_PAGES:
        return _FIX_PAGES[finding.code].format(campaign_id)
    if finding.code.startswith("domain_"):
        return "/settings/domains"
    if finding.code == "sender_not_ready":
        if is_sms:
            return "/settings/sending"
        # An email's sender lacks a verified domain for its From address, or the brand lacks the postal address.
        return "/settings/domains" if finding.field.startswith("template") else "/brand"
    if variant := _VARIANT_PATH.match(finding.field):
        path = finding.field[variant.end() :].partition("design.")[2]
        if path:
            return f"/campaigns/{campaign_id}/variants/{int(variant[1]) + 1}/content?path={path}&fix={finding.code}"
        return f"/campaigns/{campaign_id}?open=experiment#card-experiment"
    if finding.field.startswith(_TRANSLATIONS):
        return f"/campaigns/{campaign_id}/translations{finding.field.removeprefix(_TRANSLATIONS).replace('.', '/')}"
    if ".design." in finding.field:
        path = finding.field.partition(".design.")[2]
        return f"/campaigns/{campaign_id}/content?path={path}&fix={finding.code}"
    match = next((card for start, card in _CARD_BY_FIELD if finding.field.startswith(start)), None)
    return f"/campaigns/{campaign_id}?open={match}#card-{match}" if match else ""
