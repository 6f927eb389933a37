"""The rows of a filter while they are being written, in any form: what fits, whom they mean, how many."""

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.segments import counting
from appliance.core import errors
from appliance.storage.work import call
from ui import filter_look, filter_people, view
from ui.filter_look import BRANCH, SEGMENT, Look
from ui.filter_people import Check
from ui.filters import PREFIX, Rows
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_segment_rows", url_prefix="/segments")


def _prefix(said: str | None) -> str:
    return said if said and said.isalnum() and said.isascii() and len(said) < 20 else PREFIX


@pages.post("/rows", name="rows")
@signed_in
async def rows(request: Request, visit: Visit) -> HTTPResponse:
    """The rows of any form as they are now: what a button of theirs did, what fits the chosen field, who is meant.

    Nothing is kept: the form around them does that. On the page of a segment what is held against them follows.
    """
    form = Form.of(request)
    found = Rows.posted(form.lists, _prefix(form["rows"]))
    found.act(form.lists)
    place = BRANCH if form[f"{found.prefix}.place"] == BRANCH else SEGMENT
    shown = await filter_look.shown(visit.account_id, found, place)
    panels = form["panels"] == "yes"
    sample = await call(filter_people.sample, visit.account_id, shown) if panels else None
    answer = await checked(visit, form, found) if panels else None
    return view.fragment(request, "segments/_rows.html", shown=shown, sample=sample, checked=answer)


@pages.get("/count/<asker:str>", name="count")
@signed_in
async def count(request: Request, visit: Visit, asker: str) -> HTTPResponse:
    """How far a count has come; once it is done the answer asks no more."""
    found = Rows([], _prefix(request.args.get("prefix")))
    found.asker = asker[:40]
    under_way = counting.latest(visit.account_id, found.asker)
    note = "" if under_way else "Change a rule to count again."
    shown = Look(found, tally=under_way, note=note)
    ended = under_way is not None and under_way.is_done and request.args.get("panels") == "yes"
    sample = await call(filter_people.sample, visit.account_id, shown) if ended else None
    return view.fragment(request, "segments/_count.html", shown=shown, sample=sample)


@pages.post("/check", name="check")
@signed_in
async def check(request: Request, visit: Visit) -> HTTPResponse:
    """One person held against the rules as they stand in the form, or whom a search finds."""
    form = Form.of(request)
    found = Rows.posted(form.lists)
    return view.fragment(request, "segments/_check.html", checked=await checked(visit, form, found))


async def checked(visit: Visit, form: Form, found: Rows) -> Check:
    """Return the person whom a form names held against its rows."""
    person = next(iter(form.ids("pick") + form.ids("person")), None)
    try:
        return await call(filter_people.check, visit.account_id, found, form["who"], person)
    except errors.Invalid:
        # The rows say what is wrong with them
        return Check(form["who"], [])
