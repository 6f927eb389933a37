"""Addresses that get no mail, whoever has them: looked up, added by hand, and lifted with a reason."""

from typing import Any
from zoneinfo import ZoneInfo

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import suppress, timeline
from appliance.audience.contacts.suppress import SuppressionQuery, SuppressionWrite
from appliance.core import clock, errors, fields
from appliance.storage.work import call, commit
from ui import people, rights, tables, view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit
from ui.tables import Chip, Column, Table

pages = Pages("ui_suppressions", url_prefix="/contacts/suppressions")
_COLUMNS = (Column("Address"), Column("Why"), Column("Since"), Column("Until"))


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table, searched as one types."""
    table = Table(request, "/contacts/suppressions", ("address", "addresses"), _COLUMNS, filters=("reason",))
    table.chip_name = "reason"
    counts = await call(suppress.counts, visit.account_id)
    table.chips = [Chip("", "All", sum(counts.values()))]
    table.chips += [Chip(one, label, counts[one]) for one, label in words.SUPPRESSIONS.items() if one in counts]
    reason = table.state["reason"]
    raw = table.raw | ({"reason": reason} if reason in words.SUPPRESSIONS else {})
    table.found = await call(suppress.page, visit.account_id, fields.read(SuppressionQuery, raw))
    return tables.answer(
        request, "suppressions/index.html", table, kinds=words.SUPPRESSIONS,
        may_write=rights.may(visit.user.role, "POST", "/contacts/suppressions"),
    )  # fmt: skip


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty form."""
    return _form(request, Form({"address": (request.args.get("like") or "").strip()[:254], "reason": "manual"}), 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Keep an address from getting mail."""
    form = Form.of(request)
    address = form["address"] if "@" in form["address"] else people.written_phone(visit, form["address"])
    raw: dict[str, Any] = {"address": address, "reason": form["reason"], "note": form.text("note")}
    form.need("address", "Write an address or a phone number.")
    if form["until"]:
        end = form.moment("until", "", ZoneInfo(visit.account.time_zone))
        raw["expires_at"] = clock.iso(end)
    try:
        if form.errors:
            return _form(request, form, 422)
        asked = fields.read(SuppressionWrite, raw)
        added = await commit(_suppressed, visit, asked)
    except errors.Invalid as refused:
        return _form(request, form.take(refused, {"expires_at": "until"}), 422)
    view.say(request, "Nothing is sent to this address any more." if added.created else "This was here already.")
    return view.go(request, f"/contacts/suppressions/{added.suppression.id}")


@pages.get("/<suppression_id:int>", name="show")
@signed_in
async def show(request: Request, visit: Visit, suppression_id: int) -> HTTPResponse:
    """One address: why, since when, on whose word, and what was agreed and refused before."""
    return await _show(request, visit, suppression_id, Form(), 200)


@pages.post("/<suppression_id:int>/lift", name="lift")
@signed_in
async def lift(request: Request, visit: Visit, suppression_id: int) -> HTTPResponse:
    """Take a suppression off, for a reason that is kept."""
    form = Form.of(request)
    try:
        args = (suppress.lift, visit.account_id, suppression_id, form["reason"][:1000], people.evidence(visit))
        gone = await commit(audit.noting, visit.by, "suppression_lift", *args)
    except errors.Invalid as refused:
        return await _show(request, visit, suppression_id, form.take(refused), 422)
    left = gone.reason in ("complaint", "erased")
    view.say(
        request,
        "Lifted. They are still unsubscribed from campaigns." if left else "Lifted. This address may get mail again.",
    )
    return view.go(request, "/contacts/suppressions")


def _suppressed(visit: Visit, asked: SuppressionWrite) -> suppress.Added:
    added = suppress.write(visit.account_id, asked, people.evidence(visit))
    audit.note(visit.by, visit.account_id, "suppression_add", f"suppression:{added.suppression.id}")
    return added


def _form(request: Request, form: Form, status: int) -> HTTPResponse:
    kinds = [(name, label) for name, label in words.SUPPRESSIONS.items() if name not in ("erased", "stop_keyword")]
    return view.page(request, "suppressions/form.html", status, form=form, kinds=kinds)


async def _show(request: Request, visit: Visit, suppression_id: int, form: Form, status: int) -> HTTPResponse:
    row = await call(suppress.get, visit.account_id, suppression_id)
    known = await call(suppress.history, row)
    names = await call(timeline.actors, visit.account_id, list(known.rows))
    return view.page(request, "suppressions/show.html", status, row=row, known=known, actors=names, form=form)
