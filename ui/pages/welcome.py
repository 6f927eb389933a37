"""The screens after the first: who is writing, how mail leaves, the domain, the brand; each can be left for later."""

from typing import Any
from zoneinfo import available_timezones

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts, audit, settings
from appliance.content import brand
from appliance.core import errors, fields
from appliance.sending.delivery.groups import domain_of
from appliance.sending.domains import records, store
from appliance.settings import config
from appliance.storage.work import call, commit
from ui import looks, together, view
from ui.forms import Form
from ui.guard import signed_in
from ui.pages import domains, sending
from ui.pages.setup import STEPS
from ui.relays import RELAYS
from ui.session import Pages, Visit
from ui.together import Part, Parts

pages = Pages("ui_welcome", url_prefix="/welcome")
_BRAND = ("company_name", "physical_address")
_PARTS = Parts(
    Part("Company", ("company_name",)), Part("Postal address", ("physical_address",)),
    Part("Name people see", ("email_from_name",)), Part("Address people see", ("email_from_email",)),
    Part("Time zone", ("time_zone",)),
)  # fmt: skip
_ACCOUNT = ("time_zone", "email_from_name", "email_from_email")


@pages.get("/", name="sender", strict_slashes=False)
@signed_in
async def sender(request: Request, visit: Visit) -> HTTPResponse:
    """Ask who is writing; what is known already is filled in."""
    form = together.opened(await call(_kept, visit.account_id), _PARTS)
    is_new = not form["company_name"]
    form.values["company_name"] = form["company_name"] or visit.account.name
    form.values["email_from_name"] = form["email_from_name"] or visit.account.name
    form.values["email_from_email"] = form["email_from_email"] or visit.user.email
    # Who comes for the first time is offered the zone of their browser
    return _screen(request, "sender", form, zones=zones(), is_new=is_new)


def _kept(account_id: int) -> Form:
    look, account = brand.get(account_id), accounts.get(account_id)
    return Form({
        **{name: getattr(look, name) or "" for name in _BRAND},
        **{name: getattr(account, name) or "" for name in _ACCOUNT},
    })  # fmt: skip


@pages.post("/", name="sender_save", strict_slashes=False)
@signed_in
@together.meeting
async def sender_save(request: Request, visit: Visit) -> HTTPResponse:
    """Keep company, postal address, time zone and sender."""
    form = Form.of(request)
    together.meet(form, _PARTS, await call(_kept, visit.account_id))
    if form.met:
        return _screen(request, "sender", form, 409, zones=zones(), is_new=False)
    try:
        await _save_sender(visit, form)
    except errors.Invalid as refused:
        return _screen(request, "sender", form.take(refused), 422, zones=zones(), is_new=False)
    return view.go(request, "/welcome/mail")


async def _save_sender(visit: Visit, form: Form) -> None:
    """Write the sender's details, all or nothing; raises Invalid."""
    about = fields.read(accounts.AccountWrite, {name: form.text(name) for name in _ACCOUNT if name in form.values})
    look = {name: form.text(name) for name in _BRAND if name in form.values}

    def both() -> None:
        audit.noting(visit.by, "account_update", accounts.update, visit.account_id, about, data=audit.changed(about))
        audit.noting(visit.by, "brand_update", brand.update, visit.account_id, fields.read(brand.BrandWrite, look))

    await commit(together.still, form, _PARTS, lambda: _kept(visit.account_id), both)


def zones() -> list[tuple[str, str]]:
    """Return the time zones of this machine as choices, the plain one first."""
    named = sorted(zone for zone in available_timezones() if "/" in zone and not zone.startswith(("Etc/", "SystemV/")))
    return [("UTC", "UTC"), *((zone, zone.replace("_", " ")) for zone in named)]


@pages.get("/mail", name="mail")
@signed_in
async def mail(request: Request, visit: Visit) -> HTTPResponse:
    """Ask how mail leaves; a preset fills in its server."""
    form = together.opened(sending.present(sending.EMAIL), sending.PARTS)
    sending.fill_preset(form, request.args.get("preset") or "")
    return _mail(request, form)


@pages.post("/mail", name="mail_save")
@signed_in
async def mail_save(request: Request, visit: Visit) -> HTTPResponse:
    """Keep how mail leaves, and go on."""
    form = Form.of(request)
    together.meet(form, sending.PARTS, sending.present(sending.EMAIL))
    if form.met:
        return _mail(request, form, 409)
    try:
        await sending.keep(request, visit, form, sending.EMAIL)
    except errors.Invalid as refused:
        return _mail(request, sending.noted(form, refused), 422)
    return view.go(request, "/welcome/domain")


@pages.post("/mail/test", name="mail_test")
@signed_in
async def mail_test(request: Request, visit: Visit) -> HTTPResponse:
    """Ask the server that the form names; nothing is saved and nothing is sent."""
    form = Form.of(request)
    answer = await sending.tried(visit, form)
    return _mail(request, form, 422 if form.errors else 200, answer=answer)


def _mail(request: Request, form: Form, status: int = 200, answer: Any = None) -> HTTPResponse:
    layers = config.layers().sources
    locked = {name: layers[name] for name in sending.EMAIL if not settings.may_set(name)}
    stored = {name for name in sending.EMAIL if config.value_of(config.current(), name)}
    return _screen(request, "mail", form, status, locked=locked, stored=stored, relays=RELAYS, answer=answer)


@pages.get("/domain", name="domain")
@signed_in
async def domain(request: Request, visit: Visit) -> HTTPResponse:
    """The domains there are and how they stand, or a form for the first."""
    form = Form({"name": domain_of(visit.account.email_from_email or visit.user.email)})
    return await _domain(request, visit, form)


@pages.post("/domain", name="domain_save")
@signed_in
async def domain_save(request: Request, visit: Visit) -> HTTPResponse:
    """Add the domain and show its records."""
    form = Form.of(request)
    made = await domains.add(request, visit, form)
    if made is None:
        return await _domain(request, visit, form, 422)
    view.say(request, "Enter these records where you manage the domain; they are looked for by themselves.")
    return view.go(request, f"/settings/domains/{made.id}")


async def _domain(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    asked = fields.read(store.DomainQuery, {"limit": 5})
    rows = [(row, *domains.state(row)) for row in (await call(store.page, visit.account_id, asked)).rows]
    return _screen(request, "domain", form, status, rows=rows, shown=records.show_domain)


@pages.get("/brand", name="brand")
@signed_in
async def look(request: Request, visit: Visit) -> HTTPResponse:
    """Logo and colours, with a letter that shows them."""
    form = together.opened(await call(_kept_look, visit.account_id), looks.PARTS)
    form.values |= {name: request.args[name][0] for name in looks.COLOURS if request.args.get(name)}
    return await _look(request, visit, form)


@pages.post("/brand", name="brand_save")
@signed_in
@together.meeting
async def look_save(request: Request, visit: Visit) -> HTTPResponse:
    """Keep colours and type; then the checklist says how to go on."""
    form = Form.of(request)
    together.meet(form, looks.PARTS, await call(_kept_look, visit.account_id))
    if form.met:
        return await _look(request, visit, form, 409)
    try:
        args = (audit.noting, visit.by, "brand_update", brand.update, visit.account_id, looks.write_of(form))
        await commit(together.still, form, looks.PARTS, lambda: _kept_look(visit.account_id), *args)
    except errors.Invalid as refused:
        return await _look(request, visit, looks.noted(form, refused), 422)
    view.say(request, "All set. Send yourself a first email.")
    return view.go(request, "/")


def _kept_look(account_id: int) -> Form:
    return looks.form_of(brand.get(account_id))


async def _look(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    return _screen(request, "brand", form, status, **await looks.shown(visit.account_id, form))


def _screen(request: Request, step: str, form: Form, status: int = 200, **more: Any) -> HTTPResponse:
    at = [key for key, _ in STEPS].index(step)
    return view.page(request, f"setup/{step}.html", status, form=form, steps=STEPS, step=step, at=at, **more)
