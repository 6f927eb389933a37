"""Recipients of a campaign: filters, export, saving as a segment or list, and decisions about undelivered messages."""

import re
from collections.abc import Callable
from itertools import chain
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, audit
from appliance.audience import bulk_actions, lists
from appliance.audience.segments import store as segments
from appliance.campaigns import audience, experiment_results, recipients, report, results, store, variants
from appliance.campaigns.variants import Setup
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.exports import records
from appliance.sending.messages import ledger, retries
from appliance.sending.messages.retries import MessageSelection
from appliance.storage.transactions import commit, fetch, scan
from ui import formats, labels, view
from ui.forms import Form, lookups, parse_int
from ui.guard import signed_in
from ui.pages import bulk_actions as bulk_action_pages
from ui.pages import campaign_report
from ui.session import Pages, Visit
from ui.widgets import experiment_views

pages = Pages("ui_recipients", url_prefix="/campaigns")

# The byte order mark, without which spreadsheets do not recognise UTF-8.
_BOM = "\ufeff"
# The filters of the recipients by their names in the URL.
_FILTERS = (
    "status", "opened", "clicked", "link", "domain", "country", "problem", "accepted", "unsubscribed", "replied",
    "pending", "variant",
)  # fmt: skip
# The label of each filter with a fixed value; those of `status` are the labels of the statuses.
_FILTER_LABELS = {
    ("opened", "people"): gettext_noop("Opened"), ("opened", "never"): gettext_noop("Did not open"),
    ("opened", "machines"): gettext_noop("Automated opens only"),
    ("clicked", "people"): gettext_noop("Clicked"), ("clicked", "never"): gettext_noop("Did not click"),
    ("clicked", "machines"): gettext_noop("Automated clicks only"),
    ("accepted", "true"): gettext_noop("Sent"), ("accepted", "false"): gettext_noop("Not sent"),
    ("unsubscribed", "true"): gettext_noop("Unsubscribed"),
    ("unsubscribed", "false"): gettext_noop("Did not unsubscribe"),
    ("replied", "true"): gettext_noop("Replied"), ("replied", "false"): gettext_noop("Did not reply"),
    ("pending", "true"): gettext_noop("Queued"), ("pending", "false"): gettext_noop("Not queued"),
}  # fmt: skip
# The filter and the value of each chip.
_CHIPS: tuple[tuple[str, str], ...] = (
    ("accepted", "true"), ("opened", "people"), ("opened", "never"), ("clicked", "people"), ("clicked", "never"),
    ("replied", "true"), ("unsubscribed", "true"), ("pending", "true"),
    *(("status", name) for name in ("bounced", "complained", "failed", "skipped", "uncertain", "cancelled")),
)  # fmt: skip


@pages.get("/<campaign_id:int>/people", name="people")
@signed_in("campaigns:read")
async def list_recipients(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the recipients of a campaign that match the filters, with the state of their messages."""
    filters = _read_filters(request)
    try:
        query = _parse_filters(filters, parse_int(request.args.get("page")))
    except errors.Invalid:
        return view.redirect(request, f"/campaigns/{campaign_id}/people")
    return await _render_recipients(request, visit, campaign_id, filters, query, None)


async def _render_recipients(
    request: Request, visit: Visit, campaign_id: int, filters: dict[str, str], query: recipients.RecipientQuery,
    list_form: Form | None,
) -> HTTPResponse:  # fmt: skip
    """Render the recipients; `list_form` is the posted form of a list that could not be saved, with its errors."""
    page = await scan(recipients.list_recipients, visit.account_id, campaign_id, query)
    contacts_by_id = await fetch(lookups.contacts_by_id, {row.contact_id for row in page.rows if row.contact_id})
    activity = await fetch(_load_activity, page.rows)
    text = await fetch(_describe_filters, visit.account_id, campaign_id, filters) if filters else ""
    return await campaign_report.render_tab(
        request, visit, campaign_id, "people", 422 if list_form else 200, list_form=list_form, page=page,
        contacts_by_id=contacts_by_id, activity=activity, filters=filters, filters_text=text, chips=_list_chips,
        can_save_segment=audience.build_recipient_filters(campaign_id, query) is not None,
        form=Form({"name": _suggest_name(text)}),
    )  # fmt: skip


_REACTION_LABELS = {
    "replied": gettext_noop("Replied"), "unsubscribed": gettext_noop("Unsubscribed"),
    "complained": gettext_noop("Marked as spam"), "bounced": gettext_noop("Bounced"),
}  # fmt: skip


def _load_activity(messages: list[Any]) -> dict[int, list[tuple[str, int]]]:
    """Return what each recipient did, by message id, as (label, time in ms) in order of time.

    The first open is left out if there is a click, because every click counts as an open.
    """
    reactions = recipients.load_reactions([row.id for row in messages])
    activity = {}
    for row in messages:
        engaged = (gettext("Clicked"), row.clicked_at) if row.clicked_at else (gettext("Opened"), row.opened_at)
        done = [(gettext(_REACTION_LABELS[kind]), at) for kind, at in reactions.get(row.id, ())]
        activity[row.id] = sorted([engaged, *done] if engaged[1] else done, key=lambda pair: pair[1])
    return activity


@pages.get("/<campaign_id:int>/export", name="export")
@signed_in(access.EXPORT_SCOPE)
async def export_recipients(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse | None:
    """Download the filtered recipients as CSV; the download is recorded in the audit log."""
    try:
        query = _parse_filters(_read_filters(request), 1)
    except errors.Invalid:
        return view.redirect(request, f"/campaigns/{campaign_id}/people")
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    message_ids = await scan(recipients.list_message_ids, visit.account_id, campaign_id, query)
    lines = records.write_recipients_csv(message_ids)
    name = f"campaign-{campaign.id}-recipients.csv"
    await audit.record_export(visit.actor, visit.account_id, name, _read_filters(request), len(message_ids))
    return await view.stream_file(request, name, "text/csv; charset=utf-8", chain((_BOM,), lines))


@pages.post("/<campaign_id:int>/segment", name="segment")
@signed_in("campaigns:write")
async def save_as_segment(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Save the filters as a segment, which will include contacts who match later.

    Raises Invalid if a segment cannot have the filters.
    """
    form = Form.from_request(request)
    await fetch(store.get, visit.account_id, campaign_id)
    filters = {name: form[name] for name in _FILTERS if form[name]}
    segment_filters = audience.build_recipient_filters(campaign_id, _parse_filters(filters, 1))
    if segment_filters is None:
        raise errors.Invalid({"base": [gettext("These filters cannot be saved as a segment.")]})
    body = validation.read(
        segments.SegmentCreate, {"name": form["name"] or gettext("Recipients"), "filters": segment_filters}
    )
    created = await commit(segments.create, visit.account_id, body)
    view.flash(request, gettext("Segment “%(name)s” created.", name=created.name))
    return view.redirect(request, f"/segments/{created.id}")


@pages.post("/<campaign_id:int>/list", name="list")
@signed_in("campaigns:write")
async def save_as_list(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Save the filtered recipients as a new list, as a job if there are many; the notice offers to undo it."""
    form = Form.from_request(request)
    form.require("name", gettext("Enter a name."))
    filters = {name: form[name] for name in _FILTERS if form[name]}
    query = _parse_filters(filters, 1)
    contact_ids = await scan(recipients.list_contact_ids, visit.account_id, campaign_id, query)
    try:
        if form.errors:
            raise errors.Invalid({})
        list_request = validation.read(lists.ListCreate, {"name": form["name"]})
        created = await commit(lists.create, visit.account_id, list_request)
    except errors.Invalid as error:
        return await _render_recipients(request, visit, campaign_id, filters, query, form.add_errors(error))
    args = (visit.account_id, visit.user.id, "list_add", {"contact_list_id": created.id}, contact_ids, visit.evidence())
    await bulk_action_pages.run_or_follow(request, visit, await commit(bulk_actions.start, *args))
    return view.redirect(request, f"/lists/{created.id}")


@pages.get("/<campaign_id:int>/decide", name="decide")
@signed_in("campaigns:read")
async def list_unresolved(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the messages of a campaign that need a decision: uncertain ones, or with `status=failed` failed ones."""
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    status = "failed" if request.args.get("status") == "failed" else "uncertain"
    raw = {"page": parse_int(request.args.get("page")), "limit": 50, "campaign_id": campaign_id, "status": status}
    page = await fetch(ledger.list_messages, visit.account_id, validation.read(ledger.MessageQuery, raw))
    contacts_by_id = await fetch(lookups.contacts_by_id, {row.contact_id for row in page.rows if row.contact_id})
    return view.render(
        request, "campaigns/decide.html", campaign=campaign, page=page, status=status, contacts_by_id=contacts_by_id
    )


def _add_decision(
    name: str, verb: Callable[[int, MessageSelection, str], tuple[int, int]], describe: Callable[[int], str]
) -> None:
    """Register the POST route `name` for a decision about uncertain or failed messages, selected or all.

    `verb` decides one batch in a transaction, and returns how many messages it decided and the id to continue after, or
    0 at the end. `describe` returns the notice for a number of contacts.
    """

    @pages.post(f"/<campaign_id:int>/{name}", name=name)
    @signed_in("campaigns:send")
    async def act(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
        campaign, form = await fetch(store.get, visit.account_id, campaign_id), Form.from_request(request)
        message_ids = form.ids("message")
        for key in form.getlist("problem"):
            message_ids += await fetch(report.list_affected_messages, campaign, key)
        decided = 0
        # Batches, because a statement takes a limited number of parameters and a transaction should be short.
        batches = (
            [None] if form["all"] else [tuple(message_ids[at : at + 500]) for at in range(0, len(message_ids), 500)]
        )
        for ids in batches:
            selection, has_more = MessageSelection(form["status"], ids=ids), True
            while has_more:
                count, last_id = await commit(verb, campaign.id, selection, visit.actor_id)
                decided, selection, has_more = decided + count, selection._replace(after_id=last_id), last_id > 0
        if decided:
            args = (f"campaign_{name}", f"campaign:{campaign.id}", {"messages": decided})
            await commit(audit.record, visit.actor, visit.account_id, *args)
        view.flash(request, describe(decided) if decided else gettext("No messages are left to review."))
        return view.redirect(request, f"/campaigns/{campaign_id}/problems")


def _describe_resent(count: int) -> str:
    return ngettext("Sending again to %(num)s contact.", "Sending again to %(num)s contacts.", count)


def _describe_assumed(count: int) -> str:
    return ngettext("%(num)s message marked as sent.", "%(num)s messages marked as sent.", count)


_add_decision("retry", retries.retry_selection, _describe_resent)
_add_decision("assume", retries.assume_sent_selection, _describe_assumed)


def _read_filters(request: Request) -> dict[str, str]:
    return {name: request.args.get(name) for name in _FILTERS if request.args.get(name)}


def _parse_filters(filters: dict[str, str], page: int) -> recipients.RecipientQuery:
    """Parse the filters of a URL. Raises Invalid for an invalid value."""
    truth = {"true": True, "false": False}

    def is_number(name: str, value: str) -> bool:
        return name in ("link", "variant") and re.fullmatch(r"-?[0-9]{1,8}", value) is not None

    typed = {name: int(value) if is_number(name, value) else truth.get(value, value) for name, value in filters.items()}
    return validation.read(recipients.RecipientQuery, {**typed, "page": page, "limit": 50})


def _list_chips(campaign: Any, figures: Any) -> list[tuple[str, str, str, int]]:
    """Return the filter chips as (filter, value, label, count)."""
    stats, opened, clicked = campaign.stats, figures.opens.people.count, figures.clicks.people.count
    delivered = stats["accepted"] - stats["bounced"]
    counts = {
        ("accepted", "true"): stats["accepted"], ("pending", "true"): stats["pending"],
        ("unsubscribed", "true"): figures.unsubscribes.count,
        ("replied", "true"): len(recipients.list_replied(campaign)),
    }  # fmt: skip
    if campaign.tracking:
        counts |= {
            ("clicked", "people"): clicked,
            ("clicked", "never"): results.count_unengaged(campaign.id, "clicked", delivered, clicked),
        }
        if campaign.channel == "email":
            counts |= {
                ("opened", "people"): opened,
                ("opened", "never"): results.count_unengaged(campaign.id, "opened", delivered, opened),
            }
    counts |= {("status", name): stats[name] for name in ledger.FINAL_STATUSES}
    chips = [(name, value, _fixed_label(name, value), counts.get((name, value), 0)) for name, value in _CHIPS]
    return [*chips, *_list_variant_chips(campaign)]


def _list_variant_chips(campaign: Any) -> list[tuple[str, str, str, int]]:
    """Return a chip for each variant of an A/B test, the contacts who wait for the winner, and the holdout group."""
    if campaign.setup is None:
        return []
    result = experiment_results.get_result(campaign.account_id, campaign.id)
    counts = {row.number: row.recipients for row in result.variants if len(result.variants) > 1}
    counts |= {0: result.waiting, -1: result.held_out}
    return [
        ("variant", str(number), _describe_variant(campaign.setup, number), count) for number, count in counts.items()
    ]


def _describe_variant(setup: Setup | None, number: int) -> str:
    if number == 0:
        return gettext("Waiting for the winner")
    if number < 0:
        return gettext("Holdout group")
    row = next((row for row in setup.variants if row.number == number), None) if setup is not None else None
    return gettext("Unknown") if row is None else experiment_views.get_title(row)


def _fixed_label(name: str, value: str) -> str:
    """Return the label of a filter that has a fixed set of values, or an empty string for other filters."""
    if name == "status":
        return labels.status_label(value)
    return gettext(_FILTER_LABELS[name, value]) if (name, value) in _FILTER_LABELS else ""


def _suggest_name(text: str) -> str:
    return formats.sentence(text).rstrip(".") if text else ""


def _describe_filters(account_id: int, campaign_id: int, filters: dict[str, str]) -> str:
    """Return the filters as text for the page's heading, joined by commas."""
    return ", ".join(_describe_filter(account_id, campaign_id, name, value) for name, value in filters.items())


def _describe_filter(account_id: int, campaign_id: int, name: str, value: str) -> str:
    if name == "link":
        links = results.build_report(account_id, campaign_id).links
        urls = {str(result.number): result.words or result.url for result in links}
        return gettext("Clicked %(link)s", link=urls.get(value, value))
    if name == "problem":
        for problem in report.list_problems(store.get(account_id, campaign_id)):
            if problem["key"] == value:
                return problem["text"] or labels.reason_label(problem["reason"])
        return gettext("Resolved problem")
    if name == "domain":
        return gettext("Mailbox provider: %(name)s", name=formats.unicode_domains(value))
    if name == "variant":
        return _describe_variant(variants.find(campaign_id), int(value))
    if name == "country":
        return gettext("Country: %(name)s", name=gettext("Unknown") if value == recipients.UNKNOWN else value)
    return _fixed_label(name, value)
