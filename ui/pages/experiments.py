"""The A/B test of a campaign: its card in the composer, the content of its variants, and choosing the winner."""

from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.filters import personal
from appliance.campaigns import experiment, experiment_results, send, store, variants
from appliance.content.templates import store as templates
from appliance.core import errors, validation
from appliance.core.i18n import gettext
from appliance.storage.models import Campaign, Template
from appliance.storage.transactions import commit, fetch, require_write_transaction, scan
from ui import forms, view
from ui.forms import Form, experiment_forms, parse_id
from ui.guard import signed_in
from ui.pages import composer, editor
from ui.session import Pages, Visit
from ui.widgets import experiment_words

pages = Pages("ui_experiments", url_prefix="/campaigns")

# Orders come days after a message, whereas a test is mostly decided by clicks.
_NEW_HOLDOUT = {"holdout": 0.1, "event": experiment_forms.DEFAULT_EVENT, "decide_after_minutes": 7 * 24 * 60}


@pages.post("/<campaign_id:int>/experiment")
@signed_in("campaigns:write")
@forms.retry_on_change
async def save(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Save the card of the A/B test, and carry out its button `act`, such as `start`, `add`, `copy:12`, `remove:12`.

    If a text or a variant is removed, the notice offers to undo it.
    """
    form, campaign = await composer.merge_card(request, visit, campaign_id, "experiment")
    raw: dict[str, Any] | None = experiment_forms.read_form(form, campaign)
    act, _, variant_id = form["act"].partition(":")
    undone, notice = campaign.setup, None
    if not form.errors and not form.conflicts:
        raw, text = _apply_action(act, parse_id(variant_id), raw or {}, campaign)
        text = text or _describe_dropped(raw, campaign)
        if text:
            back = msgspec.json.encode(experiment_forms.serialize_setup(undone)).decode()
            notice = {"text": text, "undo": (f"/campaigns/{campaign_id}/experiment/undo", {"back": back})}
    if form.errors:
        return await composer.render_composer(request, visit, campaign_id, form, "experiment")
    opened = _list_opened(form, campaign)
    error_fields = experiment_forms.map_errors(campaign.setup)
    response = await composer.save_card(
        request, visit, campaign_id, form, "experiment", {"experiment": raw}, error_fields, notice
    )
    if opened and response.status < 400 and not form.errors:
        for number in opened:
            await commit(variants.start_content, visit.account_id, campaign_id, number, visit.user.id)
        return await composer.render_composer(request, visit, campaign_id, None, "experiment", notice)
    return response


def _apply_action(
    act: str, variant_id: int, raw: dict[str, Any], campaign: Campaign
) -> tuple[dict[str, Any] | None, str]:
    """Return the request of the form changed by a button, and the text of a notice, which is empty without an undo."""
    setup = campaign.setup
    if act == "start" and (setup is None or not variants.is_test(setup)):
        return raw | {"variants": [*raw.get("variants", [{}])[:1], {}]}, ""
    if act == "control" and setup is None:
        return _NEW_HOLDOUT, ""
    if setup is None:
        return None, ""
    raw = {"variants": [{"id": row.id} for row in setup.variants]} | raw
    if act == "off":
        holdout = raw.get("holdout", setup.experiment.holdout)
        if len(setup.variants) < 2:
            return None, gettext("Holdout group removed.")
        holdout_only = raw | {"variants": raw["variants"][:1], "uneven": False}
        return holdout_only if holdout else None, gettext("A/B test removed.")
    source = next((row for row in setup.variants if row.id == variant_id), None)
    if act == "add":
        raw["variants"] = [*raw["variants"], {}]
    elif act == "copy" and source is not None:
        new = experiment_forms.serialize_variant(source) | {
            name: value for name, value in _find_raw(raw, source.id).items() if name != "id"
        }
        new["name"] = experiment_forms.find_next_name(setup, source)
        raw["variants"] = [*raw["variants"], {name: value for name, value in new.items() if name != "translations"}]
    elif act == "remove" and source is not None:
        raw["variants"] = [variant for variant in raw["variants"] if variant["id"] != source.id]
        return raw, gettext("%(name)s removed.", name=variants.get_name(source))
    if len(setup.variants) < 2 and not raw.get("holdout", setup.experiment.holdout):
        return None, gettext("Holdout group removed.")
    return raw, ""


def _find_raw(raw: dict[str, Any], variant_id: int) -> dict[str, Any]:
    return next((dict(variant) for variant in raw["variants"] if variant["id"] == variant_id), {})


def _describe_dropped(raw: dict[str, Any] | None, campaign: Campaign) -> str:
    """Return the notice about the first variant that loses its own content, because its box was unticked, else ""."""
    setup = campaign.setup
    posted = {variant.get("id"): variant for variant in (raw or {}).get("variants", [])}
    for row in setup.variants if setup is not None else ():
        change = posted.get(row.id, {})
        if "design" in change and change["design"] is None and variants.has_own_content(row):
            return gettext("%(name)s has the content of A again.", name=variants.get_name(row))
    return ""


def _list_opened(form: Form, campaign: Campaign) -> list[int]:
    """Return the numbers of the variants whose box for own content was ticked, and that have none yet."""
    setup = campaign.setup
    if setup is None or campaign.channel != "email":
        return []
    return [
        row.number for row in setup.variants
        if row.number > 1 and "content" in form.getlist(f"differs_{row.id}") and not variants.has_own_content(row)
    ]  # fmt: skip


@pages.post("/<campaign_id:int>/experiment/undo")
@signed_in("campaigns:write")
async def undo(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Restore the A/B test of a draft as it was before a variant, its content or the whole test was removed."""
    form = Form.from_request(request)
    try:
        stored = msgspec.json.decode(form["back"] or "null", type=dict[str, Any] | None)
        if stored is not None:
            msgspec.convert(stored["variants"], list[dict[str, Any]])
            personal.require_allowed(stored)
        await commit(_restore, visit, campaign_id, stored)
        view.flash(request, gettext("A/B test restored."))
    except (errors.Invalid, msgspec.DecodeError, KeyError, TypeError, ValueError):
        # Also for a field `back` that was edited, such as one with another number of variants.
        view.flash(request, gettext("The A/B test has changed since, so it could not be restored."))
    return view.redirect(request, f"/campaigns/{campaign_id}?open=experiment#card-experiment")


def _restore(visit: Visit, campaign_id: int, stored: dict[str, Any] | None) -> None:
    require_write_transaction()
    campaign = store.get(visit.account_id, campaign_id)
    raw = experiment_forms.restore_request(stored, campaign.setup)
    patch = validation.read(store.CampaignPatch, {"experiment": raw})
    restored = send.update(visit.account_id, campaign_id, patch, visit.actor)
    for row, variant in zip(restored.setup.variants if stored else (), (stored or {}).get("variants", ()), strict=True):
        if row.number > 1 and (translations := variant.get("translations")):
            templates.write(row.template, {"translations": translations}, visit.user.id)


@pages.get("/<campaign_id:int>/variants/<number:int>/content")
@signed_in("campaigns:read")
async def edit_content(request: Request, visit: Visit, campaign_id: int, number: int) -> HTTPResponse:
    """Show the editor with the own content of a variant; redirect to the composer for an SMS or a deleted variant."""

    def load() -> Template | None:
        campaign = store.get(visit.account_id, campaign_id)
        rows = campaign.setup.variants if campaign.setup is not None and campaign.channel == "email" else ()
        row = next((row for row in rows if row.number == number > 1), None)
        return templates.get(visit.account_id, row.template_id) if row is not None else None

    template = await fetch(load)
    if template is None:
        return view.redirect(request, f"/campaigns/{campaign_id}?open=experiment#card-experiment")
    return await editor.render_editor(request, visit, template)


# The winner, chosen by a person.


@pages.get("/<campaign_id:int>/experiment/winner")
@signed_in("campaigns:send")
async def confirm_winner(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Ask whether the variant of the query is sent to all recipients who wait."""
    return await _render_winner(request, visit, campaign_id, Form({"variant": request.args.get("variant") or ""}), 200)


@pages.post("/<campaign_id:int>/experiment/winner")
@signed_in("campaigns:send")
async def choose_winner(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Send a variant to all recipients who wait."""
    form = Form.from_request(request)
    number = parse_id(form["variant"])
    decision = await scan(experiment.find_decision, visit.account_id, campaign_id)
    args = (experiment.choose_winner, visit.account_id, campaign_id, number, visit.actor, decision)
    try:
        campaign = await commit(audit.run_and_record, visit.actor, "campaign_winner", *args)
    except errors.Unavailable:
        form.add_error("base", gettext("The recipient list is still being built. Try again in a few seconds."))
        return await _render_winner(request, visit, campaign_id, form, 503)
    except errors.Invalid:
        # The page was stale: the test is over, or the campaign was cancelled.
        view.flash(request, gettext("The test has ended in the meantime. This page shows the current status."))
        return view.redirect(request, f"/campaigns/{campaign_id}")
    name = variants.get_name(variants.get_variant(campaign.setup, number))
    view.flash(request, gettext("%(name)s is being sent to the contacts who were waiting.", name=name))
    return view.redirect(request, f"/campaigns/{campaign_id}")


async def _render_winner(request: Request, visit: Visit, campaign_id: int, form: Form, status: int) -> HTTPResponse:
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    if campaign.setup is None:
        return view.redirect(request, f"/campaigns/{campaign_id}")
    result = await scan(experiment_results.get_result, visit.account_id, campaign_id)
    number = parse_id(form["variant"])
    row = next((variant for variant in result.variants if variant.number == number), None)
    if row is None or result.state != "testing":
        return view.redirect(request, f"/campaigns/{campaign_id}")
    return view.render(
        request, "campaigns/winner.html", status, campaign=campaign, result=result, row=row, form=form,
        words=experiment_words.describe(result, campaign),
    )  # fmt: skip
