"""The table of campaigns with live cells, new campaigns, copy, delete, restore and bulk actions."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience import lists
from appliance.audience.segments import store as segments
from appliance.campaigns import audience, content, resends, results, states, store
from appliance.content.templates import store as templates
from appliance.content.templates.validation import TemplateQuery
from appliance.core import clock, errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext, pgettext_noop
from appliance.sending.messages import delivery_status
from appliance.storage.transactions import commit, fetch, scan_for
from ui import formats, view
from ui.forms import Form, lookups
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit
from ui.widgets import tables
from ui.widgets.tables import Chip, Column, Selection

pages = Pages("ui_campaigns")

# The label and the phases of each chip.
CHIPS = {
    "": (pgettext_noop("campaigns", "All"), ()),
    "draft": (pgettext_noop("campaigns", "Drafts"), ("draft",)),
    "asked": (pgettext_noop("campaigns", "Awaiting approval"), ()),
    "scheduled": (pgettext_noop("campaigns", "Scheduled"), ("scheduled",)),
    "sending": (pgettext_noop("campaigns", "Sending"), ("sending", "holding")),
    "paused": (pgettext_noop("campaigns", "Paused"), ("paused",)),
    "completed": (pgettext_noop("campaigns", "Sent"), ("completed",)),
    "cancelled": (pgettext_noop("campaigns", "Cancelled"), ("cancelled",)),
}
_COLUMNS = (
    Column(gettext_noop("Campaign"), "name", ""), Column(gettext_noop("Status")), Column(gettext_noop("Audience")),
    Column(gettext_noop("Sent"), "sent", is_numeric=True),
    Column(gettext_noop("Opens (estimated)"), "opened", is_numeric=True),
    Column(gettext_noop("Clicks"), "clicked", is_numeric=True), Column(gettext_noop("Date"), "updated"),
    Column(gettext_noop("Date created"), "created", is_visible=False),
)  # fmt: skip


def _count_campaigns(number: int) -> str:
    return ngettext("%(num)s campaign", "%(num)s campaigns", number)


@pages.get("/campaigns", strict_slashes=False)
@signed_in("campaigns:read")
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table of campaigns with a chip for each phase.

    Cells of campaigns that are sending refresh themselves.
    """
    table = tables.Table(request, "/campaigns", _count_campaigns, _COLUMNS, "-updated", ("phase",))
    table.chip_name = "phase"
    table.bulk_action_url = "/campaigns/acts" if visit.can("campaigns:write") else ""
    phase = table.state["phase"]

    def read() -> tuple[dict[int, str], dict[int, results.ListResults]]:
        counts, waiting = store.count_by_phase(visit.account_id), store.count_awaiting_approval(visit.account_id)
        for key, (label, phases) in CHIPS.items():
            count = sum(counts.get(phase_name, 0) for phase_name in phases) if phases else sum(counts.values())
            count = waiting if key == "asked" else count
            if count or key in ("", "draft", phase):
                table.chips = [*table.chips, Chip(key, pgettext("campaigns", label), count)]
        table.results = store.list_campaigns(
            visit.account_id, _build_query(table.list_params, phase), table.sort, sums=False
        )
        names = lookups.load_audience_choices(visit.account_id).names
        campaigns = table.results.rows
        return {row.id: lookups.describe_audience(row, names) for row in campaigns}, results.list_results(campaigns)

    audiences, figures = await scan_for(visit.account_id, read)
    needs_approval = visit.account.approval_required
    next_steps = {row.id: describe_next_step(row, needs_approval=needs_approval) for row in table.results.rows}
    return tables.render_table(
        request, "campaigns/index.html", table, audiences=audiences, results=figures, next_steps=next_steps
    )


def describe_next_step(campaign: Any, *, needs_approval: bool = False) -> str:
    """Return the next step of a draft or scheduled campaign as text, such as `Next: add a subject`; empty for others.

    `needs_approval` is whether the account requires approval. It runs no query.
    """
    if campaign.phase == "scheduled" and campaign.local_time:
        return gettext("On the clock of each contact")
    if campaign.phase == "scheduled":
        seconds = (campaign.scheduled_at - clock.now_ms()) / 1000
        return gettext("Starts in %(duration)s", duration=formats.within(seconds)) if seconds > 0 else ""
    if campaign.phase != "draft":
        return ""
    if campaign.asked_at:
        return gettext("Next: approval")
    if campaign.approval_state == "rejected":
        return gettext("Rejected. Next: make changes")
    if campaign.approval_state == "approved" and needs_approval:
        return gettext("Approved. Next: send")
    if not audience.is_set(campaign):
        return gettext("Next: select recipients")
    content_ = campaign.template
    if campaign.channel == "sms":
        return gettext("Next: review and send") if content_.body else gettext("Next: write the text")
    if not content_.subject:
        return gettext("Next: add a subject")
    return gettext("Next: review and send") if content_.body or content_.design else gettext("Next: add content")


def _build_query(raw: dict[str, Any], phase: str) -> store.CampaignQuery:
    if phase == "asked":
        return validation.read(store.CampaignQuery, raw | {"asked": True})
    return validation.read(store.CampaignQuery, raw | ({"phase": phase} if phase in CHIPS and phase else {}))


@pages.get("/campaigns/new")
@signed_in("campaigns:write")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form for a new campaign, with the channel, template, and list or segment of the query."""
    channel = "sms" if request.args.get("channel") == "sms" else "email"
    values = {name: request.args.get(name) or "" for name in ("template", "list_id", "segment_id")}
    form = Form({**values, "channel": channel}, {name: [value] for name, value in values.items()})
    return await _render_new(request, visit, form, 200)


@pages.post("/campaigns", strict_slashes=False)
@signed_in("campaigns:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a draft campaign, with a copy of the template if one is chosen."""
    form = Form.from_request(request)
    try:
        created = await commit(_create_draft, visit.account_id, form, visit.user.id)
    except errors.Invalid as error:
        return await _render_new(request, visit, form.add_errors(error), 422)
    return view.redirect(request, f"/campaigns/{created.id}")


async def _render_new(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    sms = form["channel"] == "sms"
    query = TemplateQuery(limit=100, standalone=True, channel="sms" if sms else "email")
    choices = (await fetch(templates.fetch_page, visit.account_id, query)).rows
    audience_name = await fetch(_name_audience, visit.account_id, form)
    return view.render(
        request, "campaigns/new.html", status, form=form, templates=choices, sms=sms, audience_name=audience_name
    )


def _name_audience(account_id: int, form: Form) -> str:
    """Return the name of the list or segment that the new campaign goes to, or an empty string."""
    for list_id in form.ids("list_id")[:1]:
        return str(lists.get(account_id, list_id).name)
    for segment_id in form.ids("segment_id")[:1]:
        return str(segments.get(account_id, segment_id).name)
    return ""


def _create_draft(account_id: int, form: Form, user_id: int) -> Any:
    template_id = next(iter(form.ids("template")), 0 if form["template"] else None)
    source = templates.get(account_id, template_id) if template_id is not None else None
    channel = source.channel if source is not None else "sms" if form["channel"] == "sms" else "email"
    untitled = gettext("Untitled SMS") if channel == "sms" else gettext("Untitled email")
    name = form["name"] or (source.name if source is not None else "") or untitled
    raw: dict[str, Any] = {"name": name, "channel": channel}
    for list_id in form.ids("list_id")[:1]:
        raw["trigger_attributes"] = {"data": {"contact_list_ids": [list_id]}}
    for segment_id in form.ids("segment_id")[:1]:
        raw["trigger_attributes"] = {"segment_id": segment_id}
    created = store.create(account_id, validation.read(store.CampaignCreate, raw), user_id)
    return created if source is None else content.apply_template(account_id, created.id, source.id, user_id)


# Parts that refresh themselves: campaign cells, and the queue in the sidebar.

# The largest page size of a table.
_MAX_LIVE_ROWS = 100


@pages.get("/live/campaigns")
@signed_in("campaigns:read")
async def show_live_rows(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table cells of the campaigns in the query; the response polls again for campaigns still being sent."""
    if not view.is_partial(request):
        return view.redirect(request, "/campaigns")
    raw_ids = (request.args.get("ids") or "").split(",")[:_MAX_LIVE_ROWS]
    ids = [int(text) for text in raw_ids if text.isdecimal() and len(text) < 16]
    return view.render(request, "live/campaigns.html", rows=await fetch(store.get_many, visit.account_id, ids))


@pages.get("/live/queue")
@signed_in()
async def show_queue(request: Request, visit: Visit) -> HTTPResponse:
    """Show the state of the queue in one line, for the sidebar."""
    if not view.is_partial(request):
        return view.redirect(request, "/outbox")
    return view.render(
        request, "live/queue.html", queue_summary=await fetch(delivery_status.get_summary, visit.account_id)
    )


# Copy, resend, delete and restore.

# The largest number of rows in one bulk action.
_MAX_IDS = 1000


@pages.post("/campaigns/<campaign_id:int>/duplicate")
@signed_in("campaigns:write")
async def duplicate(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Create a copy of a campaign as a draft, and redirect to it."""
    created = await commit(store.duplicate, visit.account_id, campaign_id, visit.actor)
    view.flash(request, gettext("Campaign duplicated. This is the copy."))
    return view.redirect(request, f"/campaigns/{created.id}")


@pages.post("/campaigns/<campaign_id:int>/not-opened")
@signed_in("campaigns:write")
async def resend_to_non_openers(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Create a copy of a campaign as a draft, limited to a new segment of the recipients who did not open it."""
    try:
        await fetch(resends.check_resend, visit.account_id, campaign_id)
        created = await commit(resends.create_resend_to_non_openers, visit.account_id, campaign_id, visit.actor)
    except errors.Invalid as error:
        reason = formats.uncapitalize(formats.sentence(error.fields["base"][0]))
        view.flash(request, gettext("Cannot be resent: %(reason)s", reason=reason))
        return view.redirect(request, f"/campaigns/{campaign_id}")
    view.flash(request, gettext("Draft created for the contacts who did not open it. A new subject often helps."))
    return view.redirect(request, f"/campaigns/{created.id}?open=from")


@pages.post("/campaigns/<campaign_id:int>/delete")
@signed_in("campaigns:write")
async def delete(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Delete a campaign; its queued messages are not sent. For a draft the notice offers to undo it."""
    args = (visit.actor, "campaign_delete", states.delete, visit.account_id, campaign_id)
    deleted = await commit(audit.run_and_record, *args, visit.actor)
    _flash_deleted(request, [deleted])
    return view.redirect(request, "/campaigns")


@pages.post("/campaigns/restore")
@signed_in("campaigns:write")
async def restore(request: Request, visit: Visit) -> HTTPResponse:
    """Restore the deleted drafts whose ids the notice's undo button sends."""
    ids = [
        int(id_)
        for id_ in Form.from_request(request)["back"].split(",")[:_MAX_IDS]
        if id_.isdecimal() and len(id_) < 16
    ]
    restored = [await commit(states.restore, visit.account_id, id_) for id_ in ids]
    message = (
        gettext("“%(name)s” restored.", name=restored[0].name)
        if len(restored) == 1
        else ngettext("%(num)s campaign restored.", "%(num)s campaigns restored.", len(restored))
    )
    view.flash(request, message)
    return view.redirect(request, f"/campaigns/{restored[0].id}" if len(restored) == 1 else "/campaigns")


@pages.post("/campaigns/acts")
@signed_in("campaigns:write")
async def run_bulk_action(request: Request, visit: Visit) -> HTTPResponse:
    """Copy or delete the selected campaigns. To delete a campaign that is not a draft, the user must first confirm."""
    form = Form.from_request(request)
    selection = Selection.from_request(request, form)
    return_url = selection.table_url("/campaigns")
    rows = await fetch(_selected_campaigns, visit.account_id, selection)
    if not rows:
        view.flash(request, gettext("No campaigns selected."))
    elif form["act"] == "duplicate":
        for row in reversed(rows):
            await commit(store.duplicate, visit.account_id, row.id, visit.actor)
        view.flash(
            request, ngettext("%(num)s copy created as a draft.", "%(num)s copies created as drafts.", len(rows))
        )
        return_url = "/campaigns?phase=draft"
    elif form["act"] == "delete" and any(row.phase != "draft" for row in rows):
        return view.render(request, "campaigns/delete.html", rows=rows, chosen=selection, back=return_url)
    elif form["act"] in ("delete", "delete_sure"):
        for row in rows:
            states.check_end(
                row, visit.actor
            )  # raises an error, so that either all selected campaigns are deleted or none
        args = (audit.run_and_record, visit.actor, "campaign_delete", states.delete, visit.account_id)
        _flash_deleted(request, [await commit(*args, row.id, visit.actor) for row in rows])
    return view.redirect(request, return_url)


def _selected_campaigns(account_id: int, selection: Selection) -> list[Any]:
    """Return the campaigns ticked, except deleted ones; with `selection.is_all`, all that match the table's filters.

    At most `_MAX_IDS` are returned.
    """
    if selection.is_all:
        raw: dict[str, Any] = {name: value for name, value in selection.state.items() if name in ("search", "phase")}
        if raw.get("phase") == "asked":
            raw |= {"phase": "", "asked": True}
        query = validation.read(store.CampaignQuery, raw)
        return list(store.select_matching(account_id, query).limit(_MAX_IDS))
    campaigns = []
    for id_ in selection.ids[:_MAX_IDS]:
        try:
            campaigns.append(store.get(account_id, id_))
        except errors.NotFound:
            continue
    return campaigns


def _flash_deleted(request: Request, deleted: list[Any]) -> None:
    """Flash what was deleted; if all campaigns were drafts, the notice offers to undo it."""
    message = (
        gettext("“%(name)s” deleted.", name=deleted[0].name)
        if len(deleted) == 1
        else ngettext("%(num)s campaign deleted.", "%(num)s campaigns deleted.", len(deleted))
    )
    drafts = [str(campaign.id) for campaign in deleted if not campaign.started_at]
    undo = ("/campaigns/restore", {"back": ",".join(drafts)}) if len(drafts) == len(deleted) else None
    view.flash(request, message, undo)
