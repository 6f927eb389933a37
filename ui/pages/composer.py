"""The composer of a draft campaign: cards that save themselves, the checklist, sending, scheduling and undo."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import store as contacts
from appliance.campaigns import (
    audience,
    content,
    hold_reasons,
    local_preflight,
    preflight,
    resends,
    send,
    states,
    store,
)
from appliance.campaigns.preflight import PreparedSend
from appliance.content.designs import document as designs
from appliance.content.designs import merge
from appliance.core import clock, errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.sending.messages import senders
from appliance.storage.transactions import commit, fetch, render, render_for, render_send, scan
from ui import formats, forms, labels, view
from ui.forms import Form, FormPart, FormParts, experiment_forms, lookups, repeat_forms, schedule_forms, utm_forms
from ui.guard import signed_in
from ui.pages import approvals
from ui.session import Pages, Visit
from ui.widgets import experiment_views, filter_builder, local_times, repeat_views

pages = Pages("ui_composer", url_prefix="/campaigns")


CARDS = ("to", "from", "content", "experiment", "when")
# The parts of each card's form, for edit conflicts; those of the card with the A/B test depend on its variants.
_CARD_PARTS = {
    "to": lookups.AudienceParts(
        FormPart(gettext_noop("Recipients"), ("who", "list", "segment", "sure"), True),
        FormPart(gettext_noop("Excluded"), ("without",), True),
    ),
    "from": FormParts(
        FormPart(gettext_noop("Subject"), ("subject",)), FormPart(gettext_noop("Preview text"), ("preheader",)),
        FormPart(gettext_noop("From name"), ("from_name",)), FormPart(gettext_noop("From address"), ("from_email",)),
        FormPart(gettext_noop("Reply-to"), ("reply_to",)),
    ),
    "content": FormParts(
        FormPart(gettext_noop("Content"), ("body",)), FormPart(gettext_noop("Tracking"), ("tracking",), True),
        FormPart(gettext_noop("UTM parameters"), ("utm", *utm_forms.FIELDS.values())),
    ),
    "when": FormParts(FormPart(gettext_noop("When"), schedule_forms.FIELDS)),
    "name": FormParts(FormPart(gettext_noop("Name"), ("name",))),
}  # fmt: skip
SENDER_FIELDS = ("subject", "preheader", "from_name", "from_email", "reply_to")


def get_parts(card: str, campaign: Any) -> FormParts:
    """Return the parts of a card's form."""
    return experiment_forms.ExperimentParts(campaign.setup) if card == "experiment" else _CARD_PARTS[card]


def load_draft(visit: Visit, campaign_id: int, exact: bool = True) -> dict[str, Any]:
    """Return the template context that the pages of a draft share. Raises NotFound for an unknown campaign.

    Without `exact`, the counts of a very large audience may be a few seconds old.
    """
    account_id, account = visit.account_id, visit.account
    campaign = store.get(account_id, campaign_id)
    checks = preflight.run_preflight(
        account_id, campaign_id, visit.actor, audience.count_audience if exact else audience.get_cached_counts
    )
    choices = lookups.load_audience_choices(account_id)
    facts, sender = checks.facts, preflight.get_sender(campaign, account)
    rendered = content.render_preview(account_id, campaign_id)
    sms = campaign.channel == "sms"
    message_count = facts["sms"]["parts"] if sms and facts["sms"]["parts"] else facts["sendable"]
    if campaign.repeat is not None and campaign.phase == "draft":
        campaign.scheduled_at = campaign.repeat.find_next(clock.now_ms())  # A draft may have a date that has passed.
    is_later = campaign.scheduled_at is not None and campaign.scheduled_at > clock.now_ms()
    test = experiment_views.build_test(campaign, facts["sendable"], rendered)
    local = local_times.build_local_times(campaign)
    return {
        "campaign": campaign, "sms": sms, "template": campaign.template, "choices": choices, "names": choices.names,
        "audience": lookups.describe_audience(campaign, choices.names), "has_audience": audience.is_set(campaign),
        "included": lookups.describe_included_audience(campaign, choices.names),
        "is_everyone": audience.is_everyone(campaign.trigger.data),
        "segment_warnings": [
            warning
            for segment in choices.segments if segment.id == campaign.trigger.segment_id
            for warning in filter_builder.list_warnings(account_id, segment.filters)
        ],
        "resent": resends.find_resent_campaign(campaign),
        "sums": facts, "excluded_count": audience.count_excluded(campaign),
        "skip_counts": [
            (reason, labels.reason_label(reason, campaign.channel), count)
            for reason, count in facts["skipped"].items()
        ],
        "preflight": checks, "checklist": approvals.build_checklist(
            checks, campaign_id, visit, is_later=is_later, is_asked=campaign.asked_at is not None
        ),
        "unfinished": approvals.filter_unfinished(checks.warnings),
        **describe_render_check(facts), "sender": sender,
        "from_addresses": [] if sms else senders.list_from_addresses(account), "preview": rendered,
        "sections": len(designs.get_sections(campaign.template.design)) if not sms else 0,
        "bare_links": content.list_bare_links(campaign), "test": test, "local": local,
        "calendar": local_times.describe_calendar(account, campaign.channel),
        "held": local_preflight.count_held(campaign, max(campaign.scheduled_at or 0, clock.now_ms())),
        "series": repeat_views.build(campaign),
        "approval": approvals.load_approval(
            visit, campaign, [finding.code for finding in checks.blockers]
        ),
        "is_later": is_later, "speed": hold_reasons.forecast_duration(campaign, message_count, sender["email"]),
        **permissions(visit, campaign),
    }  # fmt: skip


def permissions(visit: Visit, campaign: Any) -> dict[str, bool]:
    """Return whether the user may change (`may_write`) and send (`may_send`) a campaign, to hide other buttons.

    A scheduled campaign can only be changed by users who may send.
    """
    may_send = visit.can("campaigns:send")
    may_write = visit.can("campaigns:write") and (may_send or campaign.phase == "draft")
    return {"may_write": may_write, "may_send": may_send}


def build_card_forms(campaign: Any, visit: Visit) -> dict[str, Form]:
    """Return the forms with the stored values of each card and of the campaign's name, by card."""
    template = campaign.template
    card_forms = {
        "to": lookups.build_audience_form(campaign),
        "from": Form({name: getattr(template, name) or "" for name in SENDER_FIELDS}),
        "content": Form(
            {
                "body": template.body or "",
                "tracking": "yes" if campaign.tracking else "",
                **utm_forms.build_choice(campaign.utm),
            }
        ),
        "experiment": experiment_forms.build_form(campaign),
        "when": Form(schedule_forms.build_values(campaign, visit)),
        "name": Form({"name": campaign.name}),
    }
    return {card: forms.open_form(form, get_parts(card, campaign)) for card, form in card_forms.items()}


def complete_cards(context: dict[str, Any]) -> dict[str, bool]:
    """Return whether each card is complete, by card; `context` is the result of `load_draft`.

    A card whose content still has placeholders is not complete.
    """
    template = context["template"]
    unfinished_fields = {finding.field.removeprefix("template_attributes.") for finding in context["unfinished"]}
    unfinished_lines = unfinished_fields & {"subject", "preheader"}
    return {
        "to": context["has_audience"] and context["sums"]["sendable"] > 0,
        "from": (bool(template.subject) or context["sms"]) and not unfinished_lines,
        "content": bool((template.body or "").strip() or context["sections"]) and unfinished_fields == unfinished_lines,
        "experiment": True,
        "when": True,
    }


def load_render_check(account_id: int, campaign_id: int) -> dict[str, Any]:
    """Return the template values of the check that renders the message for all recipients.

    They are those of `describe_render_check`, and `campaign`, `people` (the number of recipients) and `preview`, which
    for an SMS is its preview with its size and otherwise None.
    """
    counts = preflight.run_preflight(account_id, campaign_id, count=audience.get_cached_counts).facts
    campaign = store.get(account_id, campaign_id)
    rendered = content.render_preview(account_id, campaign_id) if campaign.channel == "sms" else None
    return {"campaign": campaign, "preview": rendered, "people": counts["sendable"], **describe_render_check(counts)}


def describe_render_check(counts: dict[str, Any]) -> dict[str, Any]:
    """Return the progress of rendering for all recipients (`rehearsal`), and its `render_problems`.

    Each problem, an error or an empty merge tag, is (sentence, reason, [(contact id, name)]). `counts` are the facts
    of the preflight.
    """
    rehearsal = counts.get("rehearsal")
    if rehearsal is None:
        return {"rehearsal": None, "render_problems": []}
    phrases = [
        (_describe_missing_value(item["name"], item["count"]), "", item["contact_ids"])
        for item in rehearsal["lacking"]
        if item["count"]
    ]
    if rehearsal["failed"]:
        text = ngettext(
            "Cannot be personalised for %(num)s contact, who will be skipped.",
            "Cannot be personalised for %(num)s contacts, who will be skipped.",
            rehearsal["failed"],
        )
        reason = formats.sentence(rehearsal["failures"][0]["error"])
        phrases.insert(0, (text, reason, [item["contact_id"] for item in rehearsal["failures"]]))
    ids = list(dict.fromkeys(number for _, _, contact_ids in phrases for number in contact_ids))
    names = {contact.id: formats.contact_name(contact) for contact in contacts.fetch_by_ids(ids)}
    trouble = [
        (text, reason, [(item, names[item]) for item in contact_ids if item in names])
        for text, reason, contact_ids in phrases
    ]
    return {"rehearsal": rehearsal, "render_problems": trouble}


def _describe_missing_value(tag: str, count: int) -> str:
    label = merge.tag_label(tag)
    return ngettext("%(tag)s is empty for %(num)s contact.", "%(tag)s is empty for %(num)s contacts.", count, tag=label)


# Blocks that depend on the values of the cards and are rendered after each save.
_FOLLOWING_BLOCKS = ("side", "saved", "title_line", "ready", "approval", "card_notice")
_FOLLOWING_CARDS = {"to": ("card_content", "card_experiment"), "from": ("card_experiment",)}


async def render_composer(
    request: Request, visit: Visit, campaign_id: int, form: Form | None = None, card: str = "",
    notice: dict[str, Any] | None = None,
) -> HTTPResponse:  # fmt: skip
    """Render the composer, or, for a partial request, a card that was saved and the blocks that depend on the card.

    `form` is the posted form of `card`, if it has errors or conflicts; without `form` the stored values are shown.
    `notice` is shown after a partial request.
    """
    context = await render_for(visit.account_id, load_draft, visit, campaign_id, exact=False)
    card_forms = build_card_forms(context["campaign"], visit)
    if form is not None:
        card_forms[card] = form
    complete = complete_cards(context)
    first = next((name for name in CARDS if not complete[name]), "")
    # The size of an SMS and of the groups of a test depend on the recipients; variants show the texts of the campaign.
    also = (*_FOLLOWING_BLOCKS, *_FOLLOWING_CARDS.get(card, ()))
    posted = Form.from_request(request) if card == "experiment" else Form()
    setup = context["campaign"].setup
    return view.render(
        request, "campaigns/compose.html", 422 if form and form.errors else 409 if form and form.conflicts else 200,
        also=also, forms=card_forms, complete=complete, utm_choices=utm_forms.CHOICES,
        repeat_forms=repeat_forms, hours=schedule_forms.list_hours(),
        opened=(card in CARDS and card) or request.args.get("open") or first,
        has_errors=bool(form and card in CARDS and (form.errors or form.conflicts)), card_notice=notice,
        shown={row.id: experiment_forms.list_shown(row, posted) for row in (setup.variants if setup else ())},
        **context,
    )  # fmt: skip


@pages.post("/<campaign_id:int>/to")
@signed_in("campaigns:write")
@forms.retry_on_change
async def save_audience(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Save the card with the audience."""
    form, campaign = await merge_card(request, visit, campaign_id, "to")
    audience = lookups.read_audience_form(form, campaign.trigger.data)
    return await save_card(request, visit, campaign_id, form, "to", {"trigger_attributes": audience})


@pages.post("/<campaign_id:int>/from")
@signed_in("campaigns:write")
@forms.retry_on_change
async def save_sender(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Save the card with subject, preview text and sender."""
    form, _ = await merge_card(request, visit, campaign_id, "from")
    values = {name: form.text(name) for name in SENDER_FIELDS if name in form.values}
    return await save_card(request, visit, campaign_id, form, "from", {"template_attributes": values})


@pages.post("/<campaign_id:int>/content")
@signed_in("campaigns:write")
@forms.retry_on_change
async def save_content(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Save the card with the content and the tracking choice."""
    form, _ = await merge_card(request, visit, campaign_id, "content")
    params: dict[str, Any] = {}
    if "body" in form.values:
        params["template_attributes"] = {"body": form.text("body")}
    if form["checkboxes"] == "tracking":
        # A browser omits an unchecked checkbox; the hidden field shows that the form had it.
        params["tracking"] = form["tracking"] == "yes"
    if "utm" in form.values:
        params["utm"] = utm_forms.read_choice(form)
    return await save_card(request, visit, campaign_id, form, "content", params, utm_forms.FIELDS)


@pages.post("/<campaign_id:int>/when")
@signed_in("campaigns:write")
@forms.retry_on_change
async def save_schedule(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Save the card with the sending time; a time in the past is an error."""
    form, campaign = await merge_card(request, visit, campaign_id, "when")
    raw = schedule_forms.read_card(form, campaign, visit)
    if form.errors:
        return await render_composer(request, visit, campaign_id, form, "when")
    return await save_card(request, visit, campaign_id, form, "when", raw, repeat_forms.ERROR_FIELDS)


@pages.post("/<campaign_id:int>/name")
@signed_in("campaigns:write")
@forms.retry_on_change
async def rename(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Rename the campaign; an empty name is ignored."""
    form, _ = await merge_card(request, visit, campaign_id, "name")
    if not form["name"]:
        return view.redirect(request, f"/campaigns/{campaign_id}")
    return await save_card(request, visit, campaign_id, form, "name", {"name": form["name"]})


async def merge_card(request: Request, visit: Visit, campaign_id: int, card: str) -> tuple[Form, Any]:
    """Return the posted form of a card, merged with the stored values, and the campaign."""
    form = Form.from_request(request)
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    names = (await fetch(lookups.load_audience_choices, visit.account_id)).names if card == "to" else {}
    parts = get_parts(card, campaign)
    forms.merge_form(form, parts, build_card_forms(campaign, visit)[card], dict.fromkeys(parts.all_keys(form), names))
    return form, campaign


async def save_card(
    request: Request, visit: Visit, campaign_id: int, form: Form, card: str, raw: dict[str, Any],
    error_fields: dict[str, str] | None = None, notice: dict[str, Any] | None = None,
) -> HTTPResponse:  # fmt: skip
    """Save the changes `raw` of a campaign from the merged form of a card; render the card again if they have errors.

    `error_fields` maps error paths to fields. `notice` is shown when it is saved.
    """
    if form.conflicts:
        return await render_composer(request, visit, campaign_id, form, card)

    campaign = await fetch(store.get, visit.account_id, campaign_id)

    def load_stored() -> Form:
        return build_card_forms(store.get(visit.account_id, campaign_id), visit)[card]

    try:
        patch = validation.read(store.CampaignPatch, raw)
        prepared = await render(store.prepare, visit.account_id, campaign_id, patch.template_attributes)
        args = (send.update, visit.account_id, campaign_id, patch, visit.actor, prepared)
        await commit(forms.write_if_unchanged, form, get_parts(card, campaign), load_stored, *args)
    except errors.Invalid as error:
        if error.reason == "campaign_locked":
            # The campaign was sent meanwhile, in another window or by a colleague.
            view.flash(request, gettext("This campaign was sent in the meantime, so your last change was not saved."))
            return view.redirect(request, f"/campaigns/{campaign_id}")
        return await render_composer(request, visit, campaign_id, form.add_errors(error, error_fields), card)
    if view.is_partial(request):
        return await render_composer(request, visit, campaign_id, None, card, notice)
    if notice is not None:
        view.flash(request, notice["text"], notice["undo"])
    return view.redirect(request, f"/campaigns/{campaign_id}{f'?open={card}' if card in CARDS else ''}")


# Send, schedule and undo.

HOLD_SECONDS = 15
_CHANGED_STATUS = gettext_noop("The status changed in the meantime. This page shows the current status.")
# Above this number of recipients the user must type the number to send.
CONFIRM_BY_TYPING_OVER = 1000


@pages.get("/<campaign_id:int>/send")
@signed_in("campaigns:read")
async def review(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the numbers of a send, which the user must confirm.

    With `now=yes` in the query, the review is for sending at once, even if the campaign has a time.
    """
    now = "yes" if request.args.get("now") == "yes" else ""
    return await _render_review(request, visit, campaign_id, Form({"now": now}), 200)


@pages.post("/<campaign_id:int>/send")
@signed_in("campaigns:send")
async def send_or_schedule(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Send or schedule the campaign for exactly the number of recipients that the review showed.

    If the number has changed, or a confirmation is missing, show the review again with the error.
    """
    form = Form.from_request(request)
    unfinished = approvals.filter_unfinished(
        (await render(preflight.run_preflight, visit.account_id, campaign_id, visit.actor)).warnings
    )
    try:
        prepared = await render_send(preflight.prepare_send, visit.account_id, campaign_id)
        campaign = await commit(_send, visit, campaign_id, form, unfinished, prepared)
    except errors.Invalid as error:
        if not form.errors:
            form.add_errors(error)
        return await _render_review(request, visit, campaign_id, form, 422)
    if campaign.phase == "scheduled":
        view.flash(request, _describe_schedule(campaign), (f"/campaigns/{campaign_id}/undo", {}))
    return view.redirect(request, f"/campaigns/{campaign_id}")


@pages.get("/<campaign_id:int>/reschedule")
@signed_in("campaigns:send")
async def ask_new_time(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the form that changes the time of a scheduled campaign."""
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    if campaign.phase != "scheduled" or campaign.repeat is not None:
        return view.redirect(request, f"/campaigns/{campaign_id}")
    form = build_card_forms(campaign, visit)["when"]
    return _render_new_time(request, campaign, form, 200)


@pages.post("/<campaign_id:int>/reschedule")
@signed_in("campaigns:send")
async def reschedule(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Change the time of a scheduled campaign, which stays scheduled; a time in the past is an error."""
    form = Form.from_request(request)
    form.require("day", gettext("Select a date."))
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    if campaign.repeat is not None:
        return view.redirect(request, f"/campaigns/{campaign_id}")
    times = schedule_forms.read_times(form, visit, schedule_forms.build_values(campaign, visit)["when"])
    if campaign.phase == "scheduled" and form.errors:
        return _render_new_time(request, campaign, form, 422)
    prepared = await render_send(preflight.prepare_send, visit.account_id, campaign_id)

    def move() -> bool:
        if store.get(visit.account_id, campaign_id).phase != "scheduled":
            return False
        body = validation.read(store.SendRequest, {"hold_seconds": 0, **times})
        _go_live(visit, campaign_id, body, prepared)
        return True

    if await commit(move):
        view.flash(request, _describe_schedule(await fetch(store.get_row, visit.account_id, campaign_id)))
    else:
        view.flash(request, gettext(_CHANGED_STATUS))
    return view.redirect(request, f"/campaigns/{campaign_id}")


def _render_new_time(request: Request, campaign: Any, form: Form, status: int) -> HTTPResponse:
    local_text = local_times.describe_time(campaign) if campaign.local_time else ""
    return view.render(
        request, "campaigns/reschedule.html", status, campaign=campaign, form=form, local_text=local_text,
        hours=schedule_forms.list_hours(),
    )  # fmt: skip


def _describe_schedule(campaign: Any) -> str:
    if campaign.local_time is not None:
        return gettext(
            "Scheduled for %(time)s on the clock of each contact. The audience is recalculated when it starts.",
            time=local_times.describe_time(campaign),
        )
    time = formats.when(campaign.scheduled_at)
    return gettext("Scheduled for %(time)s. The audience is recalculated at that time.", time=time)


@pages.post("/<campaign_id:int>/undo")
@signed_in("campaigns:send")
async def undo_send(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Return a campaign to draft during the hold of HOLD_SECONDS, or cancel its schedule."""
    previous = await fetch(store.get, visit.account_id, campaign_id)
    try:
        await commit(
            audit.run_and_record, visit.actor, "campaign_unsend", states.return_to_draft, visit.account_id, campaign_id
        )
    except errors.Invalid as error:
        if error.reason != "invalid_transition":
            raise
        # The page was stale: show the present state instead of an error.
        view.flash(request, gettext(_CHANGED_STATUS))
    else:
        if previous.phase == "scheduled":
            when = formats.when(previous.scheduled_at)
            again = (f"/campaigns/{campaign_id}/schedule", {"at": str(previous.scheduled_at)})
            text = gettext("Unscheduled. The campaign is a draft again and keeps its time, %(time)s.", time=when)
            view.flash(request, text, again)
        else:
            view.flash(request, gettext("Nothing was sent. The campaign is a draft again."))
    return view.redirect(request, f"/campaigns/{campaign_id}")


@pages.post("/<campaign_id:int>/schedule")
@signed_in("campaigns:send")
async def schedule_again(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Restore a cancelled schedule, if the draft still has the same time and this time is in the future."""
    form = Form.from_request(request)

    def restore_schedule() -> bool:
        campaign = store.get(visit.account_id, campaign_id)
        is_unchanged = str(campaign.scheduled_at) == form["at"] and campaign.scheduled_at > clock.now_ms()
        if campaign.phase != "draft" or not is_unchanged:
            return False
        _go_live(visit, campaign_id, store.SendRequest(hold_seconds=0), prepared)
        return True

    try:
        prepared = await render_send(preflight.prepare_send, visit.account_id, campaign_id)
        is_armed = await commit(restore_schedule)
        message = gettext_noop("Scheduled again.") if is_armed else _CHANGED_STATUS
    except errors.Invalid:
        message = gettext_noop("The campaign could not be scheduled again. See the checklist.")
    view.flash(request, gettext(message))
    return view.redirect(request, f"/campaigns/{campaign_id}")


async def render_scheduled(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Render the page of a scheduled campaign."""
    facts = await render_for(visit.account_id, load_draft, visit, campaign_id)
    return view.render(request, "campaigns/scheduled.html", **facts)


def _send(visit: Visit, campaign_id: int, form: Form, unfinished_now: list[Any], prepared: PreparedSend) -> Any:
    campaign = store.get(visit.account_id, campaign_id)
    now = audience.count_audience(campaign).sendable
    if form["expected"] != str(now):
        text = ngettext(
            "The audience has changed since you opened this page. It now has %(num)s contact.",
            "The audience has changed since you opened this page. It now has %(num)s contacts.",
            now,
        )
        form.add_error("base", text)
    elif now > CONFIRM_BY_TYPING_OVER and "".join(filter(str.isdecimal, form["typed"])) != str(now):
        form.add_error("typed", gettext("Type %(number)s, the number of recipients.", number=formats.number(now)))
    if not approvals.is_current(campaign, form["shown"]):
        form.add_error("base", gettext(approvals.CONTENT_CHANGED))
    approvals.check_confirmed(form, unfinished_now)
    if form.errors:
        raise errors.Invalid({})
    if form["now"] == "yes":
        if campaign.phase not in ("draft", "scheduled"):
            return campaign  # It has started meanwhile; its page shows its status.
        return _go_live(visit, campaign_id, store.SendRequest(hold_seconds=HOLD_SECONDS, scheduled_at=None), prepared)
    later = campaign.scheduled_at is not None and campaign.scheduled_at > clock.now_ms()
    body = store.SendRequest(hold_seconds=0 if later else HOLD_SECONDS)
    return _go_live(visit, campaign_id, body, prepared)


def _go_live(visit: Visit, campaign_id: int, body: store.SendRequest, prepared: PreparedSend) -> Any:
    args = (visit.account_id, campaign_id, body, visit.actor, None, prepared)
    return audit.run_and_record(visit.actor, "campaign_send", send.go_live, *args)


async def _render_review(request: Request, visit: Visit, campaign_id: int, form: Form, status: int) -> HTTPResponse:
    facts = await render_for(visit.account_id, load_draft, visit, campaign_id)
    is_now = form["now"] == "yes"
    if facts["campaign"].phase not in (("draft", "scheduled") if is_now else ("draft",)):
        return view.redirect(request, f"/campaigns/{campaign_id}")
    if is_now:
        held = await scan(local_preflight.count_held, facts["campaign"], clock.now_ms())
        facts |= {"is_later": False, "local": None, "held": held}
    first = await scan(_list_first_recipients, visit.account_id, campaign_id)
    return view.render(
        request,
        "campaigns/send.html",
        status,
        form=form,
        first=first,
        type_over=CONFIRM_BY_TYPING_OVER,
        hold=HOLD_SECONDS,
        **facts,
    )


def _list_first_recipients(account_id: int, campaign_id: int) -> list[tuple[int, str]]:
    row = contacts.fetch_by_ids(audience.sample_recipients(store.get(account_id, campaign_id)))
    return [(contact.id, formats.contact_name(contact)) for contact in row]
