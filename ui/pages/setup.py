"""First run: the one-time link makes the first person, then a page says who is writing."""

from zoneinfo import available_timezones

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance import brand, errors, fields
from appliance.account import accounts, onboarding, users
from appliance.db.work import call, commit
from ui import session, view
from ui.forms import Form
from ui.guard import open_page, problem, signed_in
from ui.session import Visit

pages = Blueprint("ui_setup")
_BRAND = ("company_name", "physical_address")
_ACCOUNT = ("time_zone", "email_from_name", "email_from_email")


@pages.get("/setup/<token:str>", name="setup")
@open_page
async def you(request: Request, token: str) -> HTTPResponse:
    """Show the first screen to whoever holds the link; a used link says so."""
    if not await call(onboarding.check_setup, token):
        return await _closed(request)
    return view.page(request, "setup/you.html", form=Form(), token=token)


@pages.post("/setup/<token:str>", name="setup_save")
@open_page
async def you_save(request: Request, token: str) -> HTTPResponse:
    """Make the first person and their account, and sign them in."""
    if not await call(onboarding.check_setup, token):
        return await _closed(request)
    form = Form.of(request)
    form.need("name", "Write the name your colleagues know you by.")
    form.need("account_name", "Write the name of your team or company.")
    form.values["password"] = form.exact("password")
    try:
        new = await call(users.prepare, form["email"], form["password"], form["name"])
        if form.errors:
            raise errors.Invalid({})
        user = await commit(users.set_up, new, form["account_name"])
    except errors.Invalid as refused:
        if refused.fields or not form.errors:
            form.take(refused)
        return view.page(request, "setup/you.html", 422, form=form, token=token)
    answer = view.go(request, "/welcome")
    await session.begin(request, answer, user.id)
    return answer


@pages.get("/welcome", name="welcome")
@signed_in
async def sender(request: Request, visit: Visit) -> HTTPResponse:
    """Ask who is writing; what is known already is filled in."""
    look = await call(brand.get, visit.account_id)
    form = Form({
        **{name: getattr(look, name) or "" for name in _BRAND},
        **{name: getattr(visit.account, name) or "" for name in _ACCOUNT},
    })  # fmt: skip
    form.values["company_name"] = form["company_name"] or visit.account.name
    form.values["email_from_name"] = form["email_from_name"] or visit.account.name
    form.values["email_from_email"] = form["email_from_email"] or visit.user.email
    return view.page(request, "setup/sender.html", form=form, zones=zones())


@pages.post("/welcome", name="welcome_save")
@signed_in
async def sender_save(request: Request, visit: Visit) -> HTTPResponse:
    """Keep company, postal address, time zone and sender."""
    form = Form.of(request)
    try:
        await save_sender(visit, form)
    except errors.Invalid as refused:
        return view.page(request, "setup/sender.html", 422, form=form.take(refused), zones=zones())
    view.say(request, "Saved. You can change all of it later.")
    return view.go(request, "/")


async def save_sender(visit: Visit, form: Form) -> None:
    """Write the sender's details, all or nothing; raises Invalid."""
    about = fields.read(accounts.AccountWrite, {name: form.text(name) for name in _ACCOUNT if name in form.values})
    look = {name: form.text(name) for name in _BRAND if name in form.values}

    def both() -> None:
        accounts.update(visit.account_id, about)
        brand.update(visit.account_id, fields.read(brand.BrandWrite, look))

    await commit(both)


def zones() -> list[tuple[str, str]]:
    """Answer the time zones of this machine as choices, the plain one first."""
    named = sorted(zone for zone in available_timezones() if "/" in zone and not zone.startswith(("Etc/", "SystemV/")))
    return [("UTC", "UTC"), *((zone, zone.replace("_", " ")) for zone in named)]


async def _closed(request: Request) -> HTTPResponse:
    if await call(users.has_users):
        return view.page(request, "setup/done.html", 410)
    return problem(request, 404, "not_found")
