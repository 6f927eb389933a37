"""Trying a flow: with one person, kept as a test, and with everybody who met its start of late. Nothing is sent."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import requests as contact_requests
from appliance.audience.contacts import store as contacts
from appliance.core import clock, errors, fields
from appliance.flows import bulk_simulation, document, draft_edits, scripts, simulate, store, version_snapshot
from appliance.flows.bulk_simulation import Crowd, CrowdRequest, rehearse
from appliance.flows.requests import FlowPatch
from appliance.flows.simulation_request import MAX_SCRIPTS, SCRIPTS
from appliance.flows.timeline import Simulated
from appliance.storage.work import call, commit, render
from ui import flow_forms, flow_tree, flow_try, mail, view
from ui.flow_try import Wish
from ui.forms import Form, number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_flow_try", url_prefix="/flows")
DAYS = 90
_FIELDS = ("first_name", "email", "data", "event", "day", "hour", "name")


@pages.get("/<flow_id:int>/try", name="show")
@signed_in
async def show(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """What would happen to one person: the way lit up, moment for moment, with every message as they would get it."""
    return await _show(request, visit, flow_id, flow_try.wish(request.args), Form(), 200)


async def _show(request: Request, visit: Visit, flow_id: int, wish: Wish, form: Form, status: int) -> HTTPResponse:
    drawn = await call(draft_edits.of, visit.account_id, flow_id)
    shown = flow_forms.StepForm(dict.fromkeys(_FIELDS, ""))
    shown.values |= wish.values | form.values
    shown.errors = form.errors
    found: Simulated | None = None
    try:
        asked = flow_try.asked(drawn, wish, visit.zone)
        found = await rehearse(simulate.sketched, drawn, asked)
    except errors.Invalid as refused:
        flow_forms.take(shown, refused)
        status = 422 if status == 200 else status
    kept = await rehearse(scripts.results, drawn.flow, True, range(MAX_SCRIPTS), drawn)
    more = await call(_drawn, visit, drawn, wish, found)
    return view.page(
        request, "flows/try.html", status, form=shown, wish=wish, found=found, scripts=kept,
        may=visit.user.role != "viewer", **more,
    )  # fmt: skip


def _drawn(visit: Visit, drawn: Any, wish: Wish, found: Simulated | None) -> dict[str, Any]:
    said = draft_edits.said(drawn.steps)
    cards = flow_tree.cards(drawn, said, flow_tree.figures(None), {}, {})
    titles = {step["id"]: flow_tree.said(visit.account_id, step)[0] for _, step in document.walk(said)}
    raw: dict[str, Any] = {"limit": 8} | ({"search": wish.values["q"]} if wish.values.get("q") else {})
    near = list(contacts.page(visit.account_id, fields.read(contact_requests.ContactQuery, raw)).rows)
    number_of = wish.values.get("contact", "")
    if number_of.isdecimal() and all(str(one.id) != number_of for one in near):
        near = [one for one in contacts.by_ids([int(number_of[:18])]) if one.account_id == visit.account_id] + near
    return {
        "flow": drawn.flow, "drawn": drawn, "near": near, "start": flow_tree.start_words(visit.account_id, drawn.start),
        "cards": flow_try.lit(cards, found) if found is not None else cards, "icons": flow_tree.looks(),
        "offers": flow_try.offers(found, wish) if found is not None else {},
        "expected": flow_try.expected(found, titles) if found is not None else [],
        "messages": flow_try.messages(found) if found is not None else [],
    }  # fmt: skip


@pages.get("/<flow_id:int>/try/message", name="message")
@signed_in
async def message(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """One message of a rehearsal as the person would get it."""
    drawn = await call(draft_edits.of, visit.account_id, flow_id)
    try:
        asked = flow_try.asked(drawn, flow_try.wish(request.args), visit.zone)
        found = await rehearse(simulate.sketched, drawn, asked)
    except errors.Invalid:
        return mail.broken("the rehearsal cannot be played")
    shown = flow_try.messages(found)
    at = number(request.args.get("n"), 1)
    if at > len(shown) or (one := shown[at - 1].message) is None:
        return mail.broken("it is not sent any more")
    return mail.frame(one.html or mail.text(one.text or ""))


@pages.post("/<flow_id:int>/try", name="keep")
@signed_in
async def keep(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Keep a rehearsal as a test of the flow, with what is expected of it."""
    form = Form.of(request)
    wish = flow_try.wish(form.values)
    drawn = await call(draft_edits.of, visit.account_id, flow_id)
    form.need("name", "Give the test a name, for example Clicks at once.")
    try:
        if form.errors:
            raise errors.Invalid({})
        asked = flow_try.asked(drawn, wish, visit.zone)
        found = await rehearse(simulate.sketched, drawn, asked)
        wanted = [one for key, _, one in flow_try.expected(found, {}) if key in form.all("expect")]
        script = {**fields.given(asked), "name": form["name"][:255], "expect": wanted}
        await _put(visit, flow_id, [*_kept(drawn.flow), _plain(script)])
    except errors.Invalid as refused:
        if refused.fields:
            form.take(refused)
        return await _show(request, visit, flow_id, wish, form, 422)
    view.say(request, "Kept. It is played whenever the flow is changed.")
    return view.go(request, f"/flows/{flow_id}/try{wish.link()}")


@pages.post("/<flow_id:int>/try/forget", name="forget")
@signed_in
async def forget(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Forget a test; the message offers to bring it back by playing it again."""
    form = Form.of(request)
    flow = await call(store.get, visit.account_id, flow_id)
    at, kept = number(form["at"], 0), _kept(flow)
    if 0 < at <= len(kept) and kept[at - 1].get("name") == form["name"]:
        await _put(visit, flow_id, [one for index, one in enumerate(kept, 1) if index != at])
        view.say(request, f"The test “{form['name']}” is gone.")
    return view.go(request, f"/flows/{flow_id}/try")


def _kept(flow: Any) -> list[Any]:
    found = flow.data.get(SCRIPTS)
    return list(found) if isinstance(found, list) else []


def _plain(script: dict[str, Any]) -> dict[str, Any]:
    """Return a script as it is kept: moments as text, nothing that was not said."""
    made = {key: value for key, value in script.items() if value not in (None, [], {})}
    if isinstance(made.get("start_at"), int):
        made["start_at"] = clock.iso(made["start_at"])
    made["events"] = [fields.given(one) for one in script.get("events") or []]
    if "contact" in made:
        made["contact"] = fields.given(made["contact"])
    return made


async def _put(visit: Visit, flow_id: int, kept: list[Any]) -> None:
    flow = await call(store.get, visit.account_id, flow_id)
    asked = fields.read(FlowPatch, {"data": {**flow.data, SCRIPTS: kept}})
    draft = await render(store.read, visit.account_id, asked, flow_id)
    await commit(store.update, visit.account_id, flow_id, asked, draft, visit.by)


@pages.get("/<flow_id:int>/crowd", name="crowd")
@signed_in
async def everybody(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """How many of those who met the start of late would take which way."""
    drawn = await call(draft_edits.of, visit.account_id, flow_id)
    form, found = Form(), None
    try:
        found = await rehearse(_crowd, visit.account_id, drawn)
    except errors.Invalid as refused:
        form.take(refused)

    def read() -> dict[str, Any]:
        cards = flow_tree.cards(drawn, draft_edits.said(drawn.steps), flow_tree.figures(None), {}, {})
        if found is not None:
            cards = flow_try.counted(drawn, cards, found.steps, found.rehearsed)
        return {"cards": cards, "start": flow_tree.start_words(visit.account_id, drawn.start)}

    return view.page(
        request, "flows/crowd.html", flow=drawn.flow, drawn=drawn, form=form, found=found, days=DAYS,
        **await call(read),
    )  # fmt: skip


def _crowd(account_id: int, drawn: Any) -> Crowd:
    asked = CrowdRequest(days=DAYS)
    if drawn.is_changed:
        asked.steps = document.shown(drawn.steps, version_snapshot.words_of(version_snapshot.of_steps(drawn.steps)))
    return bulk_simulation.simulate_all(account_id, drawn.flow.id, asked)
