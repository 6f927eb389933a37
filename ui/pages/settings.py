"""Settings: the account, and how these pages look."""

import re
from functools import partial
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts, audit
from appliance.core import errors, fields
from appliance.sending.delivery.providers import direct
from appliance.sending.messages import warm_up
from appliance.storage.work import call, commit
from appliance.tracking import words
from ui import countries, guard, session, together, view
from ui.forms import Form, local_path
from ui.guard import signed_in
from ui.pages.welcome import zones
from ui.session import Pages, Visit
from ui.together import Part, Parts

pages = Pages("ui_settings", url_prefix="/settings")
_SWITCHES = ("approval_required", "approval_by_another")
_RULES = ("block_on_missing_variable", "transactional_allowed")
_FIELDS = ("name", "time_zone", "locale", "country_code", "email_from_name", "email_from_email", "email_reply_to")
_PARTS = Parts(
    Part("Name", ("name",)), Part("Time zone", ("time_zone",)), Part("Language for recipients", ("locale",)),
    Part("Country", ("country_code",)), Part("Name people see", ("email_from_name",)),
    Part("Address people see", ("email_from_email",)), Part("Answers go to", ("email_reply_to",)),
    Part("Tests go to", ("test_email_recipients",)),
    Part("Campaigns and flows need approval", ("approval_required",), True),
    Part("By somebody else than who wrote it", ("approval_by_another",), True),
    Part("Every merge tag needs a value", ("block_on_missing_variable",), True),
    Part("Allow messages without consent", ("transactional_allowed",), True),
)  # fmt: skip


@pages.get("/", name="show", strict_slashes=False)
@signed_in
async def show(request: Request, visit: Visit) -> HTTPResponse:
    """The account's form, and how mail leaves."""
    return await _page(request, visit, together.opened(_kept(visit.account), _PARTS), 200)


@pages.post("/", name="save", strict_slashes=False)
@signed_in
@together.meeting
async def save(request: Request, visit: Visit) -> HTTPResponse:
    """Keep name, time zone, sender, who gets tests, and what is asked for before something goes out."""
    form = Form.of(request)
    together.meet(form, _PARTS, _kept(await call(accounts.get, visit.account_id)))
    if form.met:
        return await _page(request, visit, form, 409)
    form.need("name", "An account needs a name.")
    try:
        if form.errors:
            raise errors.Invalid({})
        raw: dict[str, Any] = {name: form.text(name) for name in _FIELDS if name in form.values}
        if form["asks"] == "approval":
            # A box that is not ticked is not sent; that it was there is
            raw |= {name: form[name] == "yes" for name in _SWITCHES}
        if form["rules"] == "asked":
            raw |= {name: form[name] == "yes" for name in _RULES}
        testers = re.split(r"[\s,;]+", form["test_email_recipients"])
        if "test_email_recipients" in form.values:
            raw["test_email_recipients"] = [one for one in testers if one]
        asked = fields.read(accounts.AccountWrite, raw)
        told = audit.changed(asked)
        write = partial(audit.noting, visit.by, "account_update", accounts.update, visit.account_id, asked, data=told)
        await commit(together.still, form, _PARTS, lambda: _kept(accounts.get(visit.account_id)), write)
    except errors.Invalid as refused:
        names = {path: "test_email_recipients" for path in refused.fields if path.startswith("test_email_recipients")}
        return await _page(request, visit, form.take(refused, names) if refused.fields else form, 422)
    view.say(request, "Saved.")
    return view.go(request, "/settings")


@pages.post("/stop", name="stop")
@signed_in
async def stop(request: Request, visit: Visit) -> HTTPResponse:
    """Stop all sending of the account, or let it go on."""
    form = Form.of(request)
    stopped = form["stop"] == "1"
    asked = {"sending_stopped": stopped, "stop_reason": form["stop_reason"][:255] if stopped else None}
    changes = fields.read(accounts.AccountWrite, asked)
    args = (accounts.update, visit.account_id, changes)
    await commit(audit.noting, visit.by, "account_update", *args, data=audit.changed(changes))
    view.say(request, "Stopped. Nothing more leaves." if stopped else "Going on.")
    return view.go(request, "/settings")


@pages.post("/theme", name="theme")
@signed_in
async def theme(request: Request, visit: Visit) -> HTTPResponse:
    """Choose light, dark or what the system says, and come back to the same page."""
    return _remember(request, "theme", session.THEMES)


@pages.post("/keyboard", name="keyboard")
@signed_in
async def keyboard(request: Request, visit: Visit) -> HTTPResponse:
    """Switch the single keys on or off in this browser, and come back to the same page."""
    return _remember(request, "keys", ("on", "off"))


def _kept(account: Any) -> Form:
    """Return the form that shows what is kept of an account."""
    form = Form({name: getattr(account, name) or "" for name in _FIELDS})
    form.values |= {name: "yes" if getattr(account, name) else "" for name in (*_SWITCHES, *_RULES)}
    form.values["test_email_recipients"] = ", ".join(account.test_email_recipients)
    return form


def _remember(request: Request, name: str, offered: tuple[str, ...]) -> HTTPResponse:
    chosen = Form.of(request)[name]
    back = local_path(guard.referer(request))
    answer = view.go(request, back)
    if chosen in offered:
        session.keep(request, answer, name, chosen)
    return answer


def _languages(form: Form) -> list[tuple[str, str]]:
    """Return the languages that recipients may read, and the account's own where it names another one."""
    known = list(words.NAMES.items())
    locale = form["locale"]
    if locale and locale not in words.NAMES:
        known.append((locale, f"{words.NAMES[words.language(locale)]} ({locale})"))
    return known


async def _page(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    config = request.app.ctx.config
    is_direct = config.email.transport == "direct"
    return view.page(
        request, "settings/show.html", status, form=form, zones=zones(), languages=_languages(form),
        countries=countries.choices("No country"), email=config.email, config=config,
        greets_as=direct.name() if is_direct else None, steps=len(warm_up.CAPS),
        beginning=await call(warm_up.days, visit.account_id) if is_direct and config.email.direct.warm_up else (),
    )  # fmt: skip
