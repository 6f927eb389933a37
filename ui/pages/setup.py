"""The setup pages: a one-time link creates the owner; sender, transport, domain and brand follow and can be skipped."""

from typing import Any
from urllib.parse import urlsplit

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts, audit, settings, users
from appliance.accounts.audit import Actor
from appliance.content import brand
from appliance.core import addresses, clock, errors, i18n, validation
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery.mx_routes import domain_of
from appliance.sending.domains import records, store
from appliance.settings import config
from appliance.storage.transactions import commit, fetch
from ui import forms, session, view
from ui.forms import Form, FormPart, FormParts
from ui.forms.lookups import time_zone_groups
from ui.forms.relay_presets import RELAY_PRESETS
from ui.guard import public_page, render_problem, signed_in
from ui.pages import brand as brand_page
from ui.pages import sending
from ui.session import Pages, Visit

pages = Pages("ui_setup")

# The name of each setup page and its label, in order.
STEPS = (
    ("you", gettext_noop("Your account")), ("sender", gettext_noop("Sender")), ("mail", gettext_noop("Email")),
    ("domain", gettext_noop("Domain")), ("brand", gettext_noop("Brand")),
)  # fmt: skip


@pages.get("/setup/<token:str>")
@public_page
async def show_setup(request: Request, token: str) -> HTTPResponse:
    """Show the form for the first user, if the token of the setup link is valid.

    The query's `language` changes the language, which is the browser's at first.
    """
    if not await fetch(users.is_setup_token, token):
        return await _render_closed(request)
    proposal = propose_account_name("")
    form = Form({
        "language": request.args.get("language") or "", "account_name": proposal, "proposed_name": proposal
    })  # fmt: skip
    return _render_account(request, token, form, 200)


@pages.post("/setup/<token:str>/account-name", name="account_name")
@public_page
async def show_account_name(request: Request, token: str) -> HTTPResponse:
    """Show the field of the account's name again, with a proposal unless the user has entered another name."""
    if not await fetch(users.is_setup_token, token):
        return await _render_closed(request)
    form = Form.from_request(request)
    proposal = propose_account_name(form["email"])
    if form["account_name"] in ("", form["proposed_name"]):
        form.values["account_name"] = proposal
    form.values["proposed_name"] = proposal
    return _render_account(request, token, form, 200)


def propose_account_name(email: str) -> str:
    """Return a name for the account, from the domain of an email address or of this site, or an empty text."""
    host = urlsplit(config.current().base_url).hostname or ""
    return records.name_organisation(email) or records.name_organisation(host) or ""


@pages.post("/setup/<token:str>")
@public_page
async def create_owner(request: Request, token: str) -> HTTPResponse:
    """Create the first account with its owner, both in the chosen language, and sign the owner in."""
    if not await fetch(users.is_setup_token, token):
        return await _render_closed(request)
    form = Form.from_request(request)
    if form["language"] in i18n.LANGUAGES:  # for the account and for the texts of errors
        i18n.set_language(form["language"])
    form.require("name", gettext("Enter your name."))
    form.require("account_name", gettext("Enter the name of your team or company."))
    form.require("email", gettext("Enter your email address."))
    form.values["password"] = form.raw("password")
    form.labels = {"email": gettext("Email"), "password": gettext("Password")}
    try:
        new = await fetch(users.prepare_user, form["email"], form["password"], form["name"])
        if form.errors:
            raise errors.Invalid({})
        by = Actor("setup", request.ctx.client)
        user = await commit(_create_owner, by, new, form["account_name"], form["language"])
    except errors.Invalid as error:
        if error.fields or not form.errors:
            form.add_errors(error)
        return _render_account(request, token, form, 422)
    response = view.redirect(request, "/welcome")
    await session.sign_in(request, response, user)
    return response


def _create_owner(by: Actor, new: users.NewUser, account_name: str, language: str) -> Any:
    """Create the owner and return that user; `language` becomes the user's, or "" lets pages follow the browser."""
    owner = audit.run_and_record(by, "user_add", users.create_first_owner, new, account_name)
    if language in i18n.LANGUAGES:
        users.set_preference(owner.id, users.LANGUAGE_PREFERENCE, language)
    return owner


def _render_account(request: Request, token: str, form: Form, status: int) -> HTTPResponse:
    if form["language"] in i18n.LANGUAGES:
        i18n.set_language(form["language"])
    return view.render(
        request, "setup/you.html", status, form=form, token=token, steps=STEPS, languages=list(i18n.LANGUAGES.items())
    )


async def _render_closed(request: Request) -> HTTPResponse:
    if await fetch(users.has_users):
        # Once there are users, no setup link works (docs/threats.md#t13).
        return view.render(request, "setup/done.html", 404)
    return render_problem(request, 404, "not_found")


# The setup pages after the owner is created.

_BRAND_FIELDS = ("company_name", "physical_address")
_SENDER_PARTS = FormParts(
    FormPart(gettext_noop("Company"), ("company_name",)),
    FormPart(gettext_noop("Postal address"), ("physical_address",)),
    FormPart(gettext_noop("From name"), ("email_from_name",)),
    FormPart(gettext_noop("From address"), ("email_from_email",)),
    FormPart(gettext_noop("Time zone"), ("time_zone",)),
)
_ACCOUNT_FIELDS = ("time_zone", "email_from_name", "email_from_email")


@pages.get("/welcome", strict_slashes=False)
@signed_in("account:write")
async def show_sender(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form of company, postal address and sender, with the known values filled in."""
    form = forms.open_form(await fetch(_build_sender_form, visit.account_id), _SENDER_PARTS)
    is_new = not form["company_name"]
    form.values["company_name"] = form["company_name"] or visit.account.name
    form.values["email_from_name"] = form["email_from_name"] or visit.account.name
    form.values["email_from_email"] = form["email_from_email"] or visit.user.email
    # On the first visit the script proposes the browser's time zone.
    return _render_screen(request, "sender", form, zones=time_zone_groups(form["time_zone"]), is_new=is_new)


def _build_sender_form(account_id: int) -> Form:
    look, account = brand.get(account_id), accounts.get(account_id)
    return Form({
        **{name: getattr(look, name) or "" for name in _BRAND_FIELDS},
        **{name: getattr(account, name) or "" for name in _ACCOUNT_FIELDS},
    })  # fmt: skip


@pages.post("/welcome", strict_slashes=False)
@signed_in("account:write")
@forms.retry_on_change
async def save_sender(request: Request, visit: Visit) -> HTTPResponse:
    """Save the form of company, postal address, time zone and sender."""
    form = Form.from_request(request)
    forms.merge_form(form, _SENDER_PARTS, await fetch(_build_sender_form, visit.account_id))
    if form.conflicts:
        return _render_screen(request, "sender", form, 409, zones=time_zone_groups(form["time_zone"]), is_new=False)
    try:
        await _write_sender(visit, form)
    except errors.Invalid as error:
        return _render_screen(
            request, "sender", form.add_errors(error), 422, zones=time_zone_groups(form["time_zone"]), is_new=False
        )
    return view.redirect(request, "/welcome/mail")


async def _write_sender(visit: Visit, form: Form) -> None:
    """Write the sender's details to the account and the brand in one transaction. Raises Invalid for invalid values."""
    about = validation.read(
        accounts.AccountWrite, {name: form.text(name) for name in _ACCOUNT_FIELDS if name in form.values}
    )
    if "time_zone" in form.values:
        # Phone numbers without a country code are those of the country whose time zone was chosen.
        country = clock.country_of_time_zone(form["time_zone"])
        if country in addresses.phone_countries() and not visit.account.country_code:
            about = msgspec.structs.replace(about, country_code=country)
    brand_values = {name: form.text(name) for name in _BRAND_FIELDS if name in form.values}

    def write() -> None:
        audit.update_and_record(visit.actor, "account_update", accounts.get, accounts.update, visit.account_id, about)
        audit.update_and_record(
            visit.actor, "brand_update", brand.get, brand.update, visit.account_id,
            validation.read(brand.BrandWrite, brand_values),
        )  # fmt: skip

    await commit(forms.write_if_unchanged, form, _SENDER_PARTS, lambda: _build_sender_form(visit.account_id), write)


@pages.get("/welcome/mail")
@signed_in("account:write")
async def show_transport(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form of the email transport; the query's `preset` and `port` fill in a well-known relay."""
    form = forms.open_form(sending.build_transport_form(), sending.FORM_PARTS)
    sending.fill_preset(form, request.args.get("preset") or "", request.args.get("port") or "")
    return _render_transport(request, form)


@pages.post("/welcome/mail")
@signed_in("account:write")
@forms.retry_on_change
async def save_transport(request: Request, visit: Visit) -> HTTPResponse:
    """Save the form of the email transport, and redirect to the next setup page."""
    form = Form.from_request(request)
    forms.merge_form(form, sending.FORM_PARTS, sending.build_transport_form())
    if form.conflicts:
        return _render_transport(request, form, 409)
    try:
        await sending.save_settings(request, visit, form, sending.EMAIL_SETTINGS)
    except errors.Invalid as error:
        return _render_transport(request, sending.add_transport_errors(form, error), 422)
    return view.redirect(request, await sending.find_missing_connection() or "/welcome/domain")


@pages.post("/welcome/mail/test")
@signed_in("account:write")
async def test_transport(request: Request, visit: Visit) -> HTTPResponse:
    """Test the relay or HTTP API with the settings of the form; nothing is saved or sent."""
    form = Form.from_request(request)
    test_result = await sending.check_transport(visit, form)
    return _render_transport(request, form, 422 if form.errors else 200, test_result=test_result)


def _render_transport(request: Request, form: Form, status: int = 200, test_result: Any = None) -> HTTPResponse:
    layers = config.get_loaded().sources
    locked = {name: layers[name] for name in sending.EMAIL_SETTINGS if not settings.can_set(name)}
    stored = {name for name in sending.SECRETS if config.get_value(config.current(), name)}
    return _render_screen(
        request,
        "mail",
        form,
        status,
        locked=locked,
        stored=stored,
        relays=RELAY_PRESETS,
        test_result=test_result,
        apis=sending.list_apis(),
        consents=sending.list_consents(),
    )


@pages.get("/welcome/domain")
@signed_in("domains:write")
async def show_domain(request: Request, visit: Visit) -> HTTPResponse:
    """Show the sending domains and their states, and the form for a new domain."""
    form = Form({"name": domain_of(visit.account.email_from_email or visit.user.email)})
    return await _render_domain(request, visit, form)


@pages.post("/welcome/domain")
@signed_in("domains:write")
async def save_domain(request: Request, visit: Visit) -> HTTPResponse:
    """Add a sending domain, and stay at this step, which leads to its DNS records and to the next step."""
    form = Form.from_request(request)
    if await sending.add_domain(request, visit, form) is None:
        return await _render_domain(request, visit, form, 422)
    return view.redirect(request, "/welcome/domain")


async def _render_domain(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    query = validation.read(store.DomainQuery, {"limit": 5})
    rows = [
        (row, *sending.domain_badge(row)) for row in (await fetch(store.list_domains, visit.account_id, query)).rows
    ]
    return _render_screen(request, "domain", form, status, rows=rows, display_domain=records.display_domain)


@pages.get("/welcome/brand")
@signed_in("account:write")
async def show_brand(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form of logo and colours, with a sample email."""
    form = forms.open_form(await fetch(_load_brand_form, visit.account_id), brand_page.BRAND_PARTS)
    form.values |= {name: request.args[name][0] for name in brand_page.COLOURS if request.args.get(name)}
    return await _render_brand(request, visit, form)


@pages.post("/welcome/brand")
@signed_in("account:write")
@forms.retry_on_change
async def save_brand(request: Request, visit: Visit) -> HTTPResponse:
    """Save the form of the brand, and redirect to Home with its setup checklist."""
    form = Form.from_request(request)
    forms.merge_form(form, brand_page.BRAND_PARTS, await fetch(_load_brand_form, visit.account_id))
    if form.conflicts:
        return await _render_brand(request, visit, form, 409)
    try:
        args = (
            audit.update_and_record,
            visit.actor,
            "brand_update",
            brand.get,
            brand.update,
            visit.account_id,
            brand_page.read_form(form),
        )
        await commit(
            forms.write_if_unchanged,
            form,
            brand_page.BRAND_PARTS,
            lambda: _load_brand_form(visit.account_id),
            *args,
        )
    except errors.Invalid as error:
        return await _render_brand(request, visit, brand_page.add_errors(form, error), 422)
    view.flash(
        request, gettext("Set-up is complete. Send yourself a first email."),
        link=("/campaigns/new", gettext("New email")),
    )  # fmt: skip
    return view.redirect(request, "/")


def _load_brand_form(account_id: int) -> Form:
    return brand_page.build_form(brand.get(account_id))


async def _render_brand(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    return _render_screen(request, "brand", form, status, **await brand_page.build_context(visit.account_id, form))


def _render_screen(request: Request, step: str, form: Form, status: int = 200, **more: Any) -> HTTPResponse:
    at = [key for key, _ in STEPS].index(step)
    return view.render(request, f"setup/{step}.html", status, form=form, steps=STEPS, step=step, at=at, **more)
