"""The content of a draft campaign: templates, pasted HTML, test sends, and previews for its recipients."""

import re
from collections.abc import Callable
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import users
from appliance.audience.contacts import store as contacts
from appliance.campaigns import audience, content, send, special_preflight, store
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs import links
from appliance.content.templates import starters, template_edits
from appliance.content.templates import store as templates
from appliance.content.templates.validation import TemplateQuery
from appliance.core import errors, validation
from appliance.core.i18n import gettext
from appliance.sending.messages import test_sends
from appliance.storage.models import Campaign, Template
from appliance.storage.transactions import commit, fetch, render, render_for, render_send, scan_for
from ui import formats, labels, view
from ui.forms import Form, list_params, lookups, parse_id, parse_int
from ui.guard import ignore_double_submit, signed_in
from ui.pages import approvals, composer
from ui.session import Pages, Visit
from ui.widgets import experiment_views

pages = Pages("ui_campaign_content", url_prefix="/campaigns")

_MAX_TEMPLATES = 60
# The user preference that has the addresses of the last test, by channel.
_PREFERENCE_KEYS = {"email": "test_emails", "sms": "test_phones"}


@pages.post("/<campaign_id:int>/links/https")
@signed_in("campaigns:write")
async def add_https(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Write `https://` before each address of an SMS that has no scheme, so that its clicks are tracked."""

    def write() -> None:
        campaign = store.get(visit.account_id, campaign_id)
        body = links.add_schemes(campaign.template.body or "")
        patch = validation.read(store.CampaignPatch, {"template_attributes": {"body": body}})
        send.update(visit.account_id, campaign_id, patch, visit.actor)

    try:
        await commit(write)
    except errors.Invalid as error:
        view.flash(request, formats.sentence(next(iter(error.fields.values()))[0]))
    return view.redirect(request, f"/campaigns/{campaign_id}?open=content")


@pages.get("/<campaign_id:int>/template")
@signed_in("campaigns:write")
async def choose_template(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the templates and starters that the campaign's content can be copied from."""
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    url = f"/campaigns/{campaign_id}"
    return await render_template_choice(
        request, visit, campaign.template, campaign.name, url, f"{url}?open=content",
        ((gettext("Campaigns"), "/campaigns"), (campaign.name, url)), "campaign",
    )  # fmt: skip


async def render_template_choice(
    request: Request, visit: Visit, template: Template, name: str, url: str, back: str,
    crumbs: tuple[tuple[str, str], ...], noun: str,
) -> HTTPResponse:  # fmt: skip
    """Show the templates and starters whose content can replace the content of a campaign or flow step.

    `url` is the page of the campaign or step: the choice is posted to `/template` below it. `back` is the URL to
    return to without a choice.
    """
    raw, search = list_params(request, _MAX_TEMPLATES)

    def read() -> dict[str, Any]:
        query = TemplateQuery(**raw, standalone=True, channel="sms" if template.channel == "sms" else "email")
        offered_starters = (
            starters.build_starters(brands.build_look(brands.get(visit.account_id)))
            if template.channel == "email"
            else ()
        )
        return {"page": templates.fetch_page(visit.account_id, query), "starters": offered_starters}

    is_written = bool(template.body or designs.get_sections(template.design))
    return view.render(
        request, "campaigns/template.html", search=search, name=name, page_url=url, back=back, crumbs=crumbs, noun=noun,
        channel=template.channel, is_written=is_written, **await fetch(read),
    )  # fmt: skip


@pages.post("/<campaign_id:int>/template")
@signed_in("campaigns:write")
async def apply_template(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Copy a template or starter into the campaign; the notice offers to restore the previous content."""
    form = Form.from_request(request)
    source: int | str = form["starter"] or parse_id(form["template"])
    try:
        campaign, previous_revision = await commit(_replace, content.apply_template, visit, campaign_id, source)
    except errors.Invalid as error:
        view.flash(request, formats.sentence(next(iter(error.fields.values()))[0]))
        return view.redirect(request, f"/campaigns/{campaign_id}?open=content")
    view.flash(request, gettext("Template applied."), _undo_action(campaign, previous_revision))
    return view.redirect(request, f"/campaigns/{campaign_id}?open=content#card-content")


def _replace(verb: Callable[..., Campaign], visit: Visit, campaign_id: int, source: Any) -> tuple[Campaign, int]:
    """In the write, replace the content of a campaign; return the campaign, and the revision that was replaced."""
    previous_revision = store.get(visit.account_id, campaign_id).template.revision
    return verb(visit.account_id, campaign_id, source, visit.user.id), previous_revision


@pages.post("/<campaign_id:int>/template/undo")
@signed_in("campaigns:write")
async def undo_template(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Restore the content from before a template or HTML replaced it, unless the new content was edited."""
    form = Form.from_request(request)
    seen_revision, at = parse_int(form["revision"], 0) or None, parse_int(form["at"], 0)
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    try:
        prepared = await render(template_edits.prepare_revision, visit.account_id, campaign.template_id, at)
        args = (visit.account_id, campaign.template_id, at, visit.user.id, seen_revision, prepared)
        await commit(template_edits.restore, *args)
        view.flash(request, gettext("Previous content restored."))
    except (errors.Conflict, errors.Invalid):
        view.flash(request, gettext("The content has changed since. Earlier versions are in its history."))
    return view.redirect(request, f"/campaigns/{campaign_id}?open=content")


def _undo_action(campaign: Campaign, previous_revision: int) -> tuple[str, dict[str, str]] | None:
    """Return the undo action of a notice (URL, fields), which restores `previous_revision`; None if nothing changed."""
    now = campaign.template.revision
    if now == previous_revision:
        return None
    return f"/campaigns/{campaign.id}/template/undo", {"revision": str(now), "at": str(previous_revision)}


@pages.get("/<campaign_id:int>/html")
@signed_in("campaigns:write")
async def new_html(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the form in which the HTML of an email is pasted."""
    return await _render_html_form(request, visit, campaign_id, Form(), 200)


@pages.post("/<campaign_id:int>/html")
@signed_in("campaigns:write")
async def paste_html(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Replace the content of the campaign with pasted HTML; the notice offers to restore the previous content."""
    form = Form.from_request(request)
    form.require("html", gettext("Paste the HTML of the email."))
    if form.errors:
        return await _render_html_form(request, visit, campaign_id, form, 422)
    try:
        campaign, previous_revision = await commit(_replace, content.paste_html, visit, campaign_id, form["html"])
    except errors.Invalid as error:
        return await _render_html_form(request, visit, campaign_id, form.add_errors(error, {"body": "html"}), 422)
    view.flash(request, gettext("Content replaced with your HTML."), _undo_action(campaign, previous_revision))
    return view.redirect(request, f"/campaigns/{campaign_id}?open=content")


async def _render_html_form(request: Request, visit: Visit, campaign_id: int, form: Form, status: int) -> HTTPResponse:
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    return view.render(request, "campaigns/html.html", status, form=form, campaign=campaign)


@pages.get("/<campaign_id:int>/test")
@signed_in("campaigns:write")
async def new_test(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the form of a test send: its addresses, and the contact whose values fill in the merge tags."""
    return await _render_test_form(request, visit, campaign_id, None, 200)


@pages.post("/<campaign_id:int>/test")
@signed_in("campaigns:write")
@ignore_double_submit
async def send_test(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Send a test of the campaign, and remember its addresses for the user's next test."""
    form = Form.from_request(request)
    campaign = await fetch(store.get, visit.account_id, campaign_id)
    sms = campaign.channel == "sms"
    # Phone numbers may contain spaces.
    addresses = [
        text.strip() for text in re.split(r"[,;\n]+" if sms else r"[\s,;]+", form["addresses"]) if text.strip()
    ]
    form.require("addresses", gettext("Enter a phone number.") if sms else gettext("Enter an email address."))
    to = lookups.complete_test_phones(visit, addresses) if sms else addresses
    raw: dict[str, Any] = {"phones" if sms else "emails": to}
    if contact_id := parse_id(form["as"]):
        raw["contact_id"] = contact_id
    try:
        if form.errors:
            raise errors.Invalid({})
        body = validation.read(test_sends.TestRequest, raw)
        template_id = _choose_variant_template(campaign, parse_int(form["variant"]))
        prepared = await render_send(test_sends.prepare, visit.account_id, template_id, body)
        args = (visit.account_id, template_id, body, False, prepared)
        result = await commit(test_sends.send, *args, visit.actor.can_read_contacts, visit.can("campaigns:send"))
    except errors.Invalid as error:
        if not form.errors:
            form.add_error("addresses", _address_error(error, addresses, sms))
        return await _render_test_form(request, visit, campaign_id, form, 422)
    await commit(
        users.set_preference,
        visit.user.id,
        _PREFERENCE_KEYS[campaign.channel],
        [recipient_result.to for recipient_result in result.results],
    )
    view.flash(request, describe_sent_tests(result))
    return view.redirect(request, f"/campaigns/{campaign_id}")


def _choose_variant_template(campaign: Campaign, number: int) -> int:
    """Return the id of the template of a variant, or that of the campaign if it has no variant with the number."""
    setup = campaign.setup
    chosen = [row.template_id for row in (setup.variants if setup is not None else ()) if row.number == number]
    return int(chosen[0] if chosen else campaign.template_id)


async def _render_test_form(
    request: Request, visit: Visit, campaign_id: int, form: Form | None, status: int
) -> HTTPResponse:
    raw, search = list_params(request, 6)
    contact_id = parse_id((form["as"] if form else request.args.get("as")) or "")

    def read() -> dict[str, Any]:
        campaign = store.get(visit.account_id, campaign_id)
        if search:
            offered = contacts.find_by_words(visit.account_id, search, 1, 6).rows
        else:
            offered = audience.list_group(visit.account_id, campaign_id, validation.read(audience.GroupQuery, raw)).rows
        selected_contact = contacts.get(visit.account_id, contact_id) if contact_id else None
        other_contacts = [option for option in offered if selected_contact is None or option.id != selected_contact.id]
        return {"campaign": campaign, "people": ([selected_contact] if selected_contact else []) + other_contacts[:6],
                **composer.permissions(visit, campaign)}  # fmt: skip

    context = await fetch(read)
    stored = (visit.user.preferences or {}).get(_PREFERENCE_KEYS[context["campaign"].channel])
    sms = context["campaign"].channel == "sms"
    testers = [] if sms else list(visit.account.test_email_recipients or ())
    default = [] if sms else testers or [visit.user.email]
    form = form or Form({"addresses": ", ".join(stored or default), "as": str(contact_id or ""),
                         "variant": request.args.get("variant") or ""})  # fmt: skip
    return view.render(request, "campaigns/test.html", status, form=form, search=search, testers=testers, **context)


def _address_error(error: errors.Invalid, addresses: list[str], sms: bool) -> str:
    if {"emails", "phones"} & error.fields.keys():
        limit = formats.number(test_sends.MAX_RECIPIENTS)
        if sms:
            return gettext("Enter at most %(limit)s phone numbers.", limit=limit)
        return gettext("Enter at most %(limit)s addresses.", limit=limit)
    paths = (re.match(r"(?:emails|phones)\[(\d+)\]", path) for path in error.fields)
    invalid_addresses = [addresses[int(match[1])] for match in paths if match]
    if invalid_addresses:
        names = formats.join_names(invalid_addresses)
        if sms:
            return gettext("Invalid phone numbers: %(names)s. Use the format +44 7700 900123.", names=names)
        return gettext("Invalid email addresses: %(names)s. Use the format name@example.com.", names=names)
    return formats.sentence(next(iter(error.fields.values()), [error.message])[0])


def describe_sent_tests(tests: test_sends.TestSendResult) -> str:
    """Return sentences about a test: where it was sent, where it was skipped and why, and what is unfinished in it."""
    sent = [result.to for result in tests.results if result.success]
    sentences = [gettext("Sending a test to %(addresses)s.", addresses=formats.join_names(sent))] if sent else []
    for result in tests.results:
        if not result.success:
            reason = formats.uncapitalize(labels.reason_label(result.error, "sms" if result.phone else "email"))
            sentences.append(gettext("%(address)s skipped: %(reason)s.", address=result.to, reason=reason))
    return " ".join([*sentences, *filter(None, [approvals.unfinished_note(tests.warnings)])])


# Recipients and previews.


@pages.get("/<campaign_id:int>/audience")
@signed_in("campaigns:read")
async def show_audience(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the recipients of a campaign, or with `why` the contacts who are left out for that reason."""
    raw, search = list_params(request, 50)
    why = (request.args.get("why") or "")[:64]
    raw |= {"why": why} if why else {}

    def read() -> dict[str, Any]:
        campaign = store.get(visit.account_id, campaign_id)
        sums = audience.count_audience(campaign)
        chips = [("", gettext("Recipients"), sums.sendable)]
        excluded_count = audience.count_excluded(campaign)
        chips += [(audience.LEFT_OUT, gettext("Excluded"), excluded_count)] if excluded_count else []
        chips += [(code, labels.reason_label(code, campaign.channel), count) for code, count in sums.reasons.items()]
        return {
            "campaign": campaign, "page": audience.list_group(visit.account_id, campaign_id, query), "chips": chips,
            "audience": lookups.describe_audience(campaign, lookups.load_audience_choices(visit.account_id).names),
        }  # fmt: skip

    query = validation.read(audience.GroupQuery, raw)
    return view.render(
        request, "campaigns/audience.html", why=why, search=search, **await scan_for(visit.account_id, read)
    )


@pages.get("/<campaign_id:int>/previews")
@signed_in("campaigns:read")
async def show_previews(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the message as each recipient of a campaign gets it, one at a time."""
    raw, search = list_params(request, 8)
    nameless, language = request.args.get("nameless") == "1", (request.args.get("language") or "")[:35]
    raw |= {"nameless": True} if nameless else {}
    query = validation.read(audience.GroupQuery, raw)
    contact_id = parse_id(request.args.get("as"))
    variant = parse_int(request.args.get("variant"))

    def read() -> dict[str, Any]:
        campaign = store.get(visit.account_id, campaign_id)
        counts = special_preflight.count_languages(campaign, visit.account) if campaign.template.translations else []
        tags = [count.language for count in counts if count.language and count.translation == language]
        page = audience.list_group(visit.account_id, campaign_id, query, tags if language else None)
        person = contacts.get(visit.account_id, contact_id) if contact_id else None
        person = person or (page.rows[0] if page.rows else None)
        person_id = person.id if person else None
        rendered = content.render_preview(visit.account_id, campaign_id, person_id, variant=variant)
        next_to = audience.find_neighbours(campaign, person.id) if person else None
        return {
            "campaign": campaign, "page": page, "person": person, "preview": rendered, "neighbours": next_to,
            "test": experiment_views.build_test(campaign, 0, rendered), "variant": variant,
            "translations": _count_by_translation(counts), **composer.permissions(visit, campaign),
        }  # fmt: skip

    width = "phone" if request.args.get("width") == "phone" else ""
    params = {"who": contact_id or "", "search": search, "nameless": "1" if nameless else "", "language": language,
            "width": width, "variant": variant if variant > 1 else "",
            "page": query.page if query.page > 1 else ""}  # fmt: skip

    def build_url(**changed: Any) -> str:
        values = params | changed
        return f"/campaigns/{campaign_id}/previews" + formats.query_string({"as": values.pop("who"), **values})

    return view.render(
        request, "campaigns/previews.html", search=search, nameless=nameless, translation=language, width=width,
        contact_id=contact_id, build_url=build_url, **await render_for(visit.account_id, read),
    )  # fmt: skip


def _count_by_translation(counts: list[special_preflight.LanguageCount]) -> dict[str, int]:
    """Return the number of recipients of each translation, the largest first."""
    numbers: dict[str, int] = {}
    for count in counts:
        if count.translation:
            numbers[count.translation] = numbers.get(count.translation, 0) + count.recipients
    return dict(sorted(numbers.items(), key=lambda item: -item[1]))


@pages.get("/<campaign_id:int>/preview")
@signed_in("campaigns:read")
async def show_preview(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the message as one contact gets it, by default the first of the audience, as a document for a frame.

    `variant` in the query is the number of a variant of its A/B test.
    """
    person, variant = parse_id(request.args.get("as")) or None, parse_int(request.args.get("variant"))
    rendered = await render(content.render_preview, visit.account_id, campaign_id, person, None, variant)
    if rendered["error"]:
        return view.render_email_error(rendered["error"])
    is_empty = rendered["sms"] is not None and not rendered["text"].strip()
    return view.render_email("" if is_empty else rendered["html"])


@pages.get("/<campaign_id:int>/rehearsal")
@signed_in("campaigns:read")
async def show_rehearsal(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the progress of rendering for all recipients, and the contacts without a value for a merge tag."""
    facts = await render(composer.load_render_check, visit.account_id, campaign_id)
    # The number of SMS parts is exact once the message is rendered for all recipients.
    also = ("sms_meter",) if facts["preview"] and facts["preview"]["sms"] else ()
    return view.render(request, "campaigns/rehearsal.html", also=also, **facts)
