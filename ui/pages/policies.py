"""What is noticed of people, and how often they are written to."""

from functools import partial
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts, audit
from appliance.core import errors, fields
from appliance.storage.work import call, commit
from ui import together, view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.together import Part, Parts

pages = Pages("ui_policies", url_prefix="/settings")
IPS = (
    ("truncated", "The first part", "Enough for a country, not for a person."),
    ("full", "The whole address", "Needs a reason that your privacy notice names."),
    ("none", "Nothing", "No address is kept with what people do."),
)


_PARTS = Parts(
    Part("What is kept of an address", ("privacy_ip",)), Part("Not too often", ("cap_messages", "cap_days")),
    Part("Quiet hours", ("quiet_from", "quiet_to")), Part("Words that say how to stop", ("sms_opt_out_hint",)),
)  # fmt: skip


@pages.get("/consent", name="consent")
@signed_in
async def consent(request: Request, visit: Visit) -> HTTPResponse:
    """The form with what holds now."""
    return _consent(request, together.opened(_kept(visit.account), _PARTS))


def _consent(request: Request, form: Form, status: int = 200) -> HTTPResponse:
    return view.page(request, "settings/consent.html", status, form=form, ips=IPS)


def _kept(account: Any) -> Form:
    """Return the form that shows what is kept of an account."""
    cap, quiet = account.frequency_cap or {}, account.sms_quiet_hours or {}
    return Form({
        "privacy_ip": account.privacy_ip, "cap_messages": str(cap.get("messages", "")),
        "cap_days": str(cap.get("days", "")), "quiet_from": quiet.get("from", ""), "quiet_to": quiet.get("to", ""),
        "sms_opt_out_hint": account.sms_opt_out_hint or "",
    })  # fmt: skip


@pages.post("/consent", name="keep_consent")
@signed_in
@together.meeting
async def keep_consent(request: Request, visit: Visit) -> HTTPResponse:
    """Keep it."""
    form = Form.of(request)
    together.meet(form, _PARTS, _kept(await call(accounts.get, visit.account_id)))
    if form.met:
        return _consent(request, form, 409)
    raw = {
        "privacy_ip": form["privacy_ip"], "sms_opt_out_hint": form.text("sms_opt_out_hint"),
        "frequency_cap": _pair(form, "cap_messages", "messages", "cap_days", "days", whole=True),
        "sms_quiet_hours": _pair(form, "quiet_from", "from", "quiet_to", "to"),
    }  # fmt: skip
    try:
        if form.errors:
            raise errors.Invalid({})
        asked = fields.read(accounts.AccountWrite, raw)
        told = audit.changed(asked)
        write = partial(audit.noting, visit.by, "account_update", accounts.update, visit.account_id, asked, data=told)
        await commit(together.still, form, _PARTS, lambda: _kept(accounts.get(visit.account_id)), write)
    except errors.Invalid as refused:
        names = {"messages": "cap_messages", "days": "cap_days", "from": "quiet_from", "to": "quiet_to",
                 "sms_quiet_hours": "quiet_to"}  # fmt: skip
        return _consent(request, form.take(refused, names) if refused.fields else form, 422)
    view.say(request, "Saved.")
    return view.go(request, "/settings/consent")


def _pair(form: Form, first: str, one: str, second: str, other: str, whole: bool = False) -> dict[str, Any] | None:
    """Return two fields that are filled in together or not at all."""
    if not form[first] and not form[second]:
        return None
    for name in (first, second):
        form.need(name, "Fill in both, or neither.")
    values = (form[first], form[second])
    if whole:
        for name in (first, second):
            if form[name] and not (form[name].isdecimal() and len(form[name]) < 9):
                form.wrong(name, "Write a number.")
        return {one: int(values[0]), other: int(values[1])} if not form.errors else None
    return {one: values[0], other: values[1]}
