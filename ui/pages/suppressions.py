"""The pages of the suppression list: search, add and lift suppressions."""

from typing import Any
from zoneinfo import ZoneInfo

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience import suppressions
from appliance.audience.contacts import timeline
from appliance.audience.suppressions import SuppressionQuery, SuppressionWrite
from appliance.core import clock, errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext
from appliance.storage.transactions import commit, fetch
from ui import labels, view
from ui.forms import Form, lookups
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit
from ui.widgets import tables
from ui.widgets.tables import Chip, Column, Table

pages = Pages("ui_suppressions", url_prefix="/contacts/suppressions")

_COLUMNS = (
    Column(gettext_noop("Address")), Column(gettext_noop("Reason")), Column(gettext_noop("Added")),
    Column(gettext_noop("Expires")),
)  # fmt: skip


def _count_addresses(number: int) -> str:
    return ngettext("%(num)s address", "%(num)s addresses", number)


@pages.get("/", name="index", strict_slashes=False)
@signed_in("contacts:read")
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table of suppressed addresses."""
    table = Table(request, "/contacts/suppressions", _count_addresses, _COLUMNS, filters=("reason",))
    table.chip_name = "reason"
    counts = await fetch(suppressions.count_by_reason, visit.account_id)
    reasons = labels.list_suppressions()
    table.chips = [
        Chip("", pgettext("addresses", "All"), sum(counts.values())),
        *(Chip(reason, label, counts[reason]) for reason, label in reasons.items() if reason in counts),
    ]
    reason = table.state["reason"]
    raw = table.list_params | ({"reason": reason} if reason in reasons else {})
    table.results = await fetch(suppressions.fetch_page, visit.account_id, validation.read(SuppressionQuery, raw))
    return tables.render_table(
        request, "suppressions/index.html", table, kinds=reasons, may_write=visit.can("contacts:write")
    )


@pages.get("/new", name="new")
@signed_in("contacts:write")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form for a new suppression, with the address of the query filled in."""
    return _render_form(
        request, Form({"address": (request.args.get("like") or "").strip()[:254], "reason": "manual"}), 200
    )


@pages.post("/", name="create", strict_slashes=False)
@signed_in("contacts:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Suppress an address; an expiry date is optional."""
    form = Form.from_request(request)
    address = form["address"] if "@" in form["address"] else lookups.complete_phone(visit, form["address"])
    raw: dict[str, Any] = {"address": address, "reason": form["reason"], "note": form.text("note")}
    form.require("address", gettext("Enter an email address or a phone number."))
    if form["until"]:
        end = form.moment("until", "", ZoneInfo(visit.account.time_zone))
        raw["expires_at"] = clock.iso(end)
    try:
        if form.errors:
            return _render_form(request, form, 422)
        body = validation.read(SuppressionWrite, raw)
        added = await commit(_add_suppression, visit, body)
    except errors.Invalid as error:
        return _render_form(request, form.add_errors(error, {"expires_at": "until"}), 422)
    view.flash(
        request, gettext("Address suppressed.") if added.created else gettext("This address is already suppressed.")
    )
    return view.redirect(request, f"/contacts/suppressions/{added.suppression.id}")


@pages.get("/<suppression_id:int>", name="show")
@signed_in("contacts:read")
async def show(request: Request, visit: Visit, suppression_id: int) -> HTTPResponse:
    """Show a suppression: its reason, dates and origin, and the consent history of the address."""
    return await _render_suppression(request, visit, suppression_id, Form(), 200)


@pages.post("/<suppression_id:int>/lift", name="lift")
@signed_in("contacts:write")
async def lift(request: Request, visit: Visit, suppression_id: int) -> HTTPResponse:
    """Lift a suppression; the reason that the form gives is recorded as evidence."""
    form = Form.from_request(request)
    try:
        args = (suppressions.lift, visit.account_id, suppression_id, form["reason"][:1000], visit.evidence())
        suppression = await commit(audit.run_and_record, visit.actor, "suppression_lift", *args)
    except errors.Invalid as error:
        return await _render_suppression(request, visit, suppression_id, form.add_errors(error), 422)
    stays_unsubscribed = suppression.reason in ("complaint", "erased")
    view.flash(
        request,
        gettext("Removed from the suppression list. The contact is still unsubscribed.")
        if stays_unsubscribed
        else gettext("Removed from the suppression list. Messages are sent to this address again."),
    )
    return view.redirect(request, "/contacts/suppressions")


def _add_suppression(visit: Visit, body: SuppressionWrite) -> suppressions.Added:
    added = suppressions.create(visit.account_id, body, visit.evidence())
    audit.record(visit.actor, visit.account_id, "suppression_add", f"suppression:{added.suppression.id}")
    return added


def _render_form(request: Request, form: Form, status: int) -> HTTPResponse:
    kinds = [item for item in labels.list_suppressions().items() if item[0] not in ("erased", "stop_keyword")]
    return view.render(request, "suppressions/form.html", status, form=form, kinds=kinds)


async def _render_suppression(
    request: Request, visit: Visit, suppression_id: int, form: Form, status: int
) -> HTTPResponse:
    row = await fetch(suppressions.get, visit.account_id, suppression_id)
    history = await fetch(suppressions.fetch_history, row)
    names = await fetch(timeline.fetch_actor_names, visit.account_id, list(history.rows))
    return view.render(request, "suppressions/show.html", status, row=row, history=history, actors=names, form=form)
