"""The replay of a flow against past events: start, progress, result, and the file of its contacts."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, audit
from appliance.core import errors, validation
from appliance.core.i18n import gettext, ngettext
from appliance.exports import records, streaming
from appliance.flows import drafts, replays
from appliance.flows.replays import ReplayRequest
from appliance.storage.transactions import commit, fetch, render
from ui import view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.widgets import replay_words

pages = Pages("ui_flow_replay", url_prefix="/flows")

# The numbers of days that the page offers.
_DAYS = (7, 30, 90)
_FIELDS = ("days", "order_event", "sms_price")


def _list_days() -> list[tuple[int, str]]:
    return [(days, ngettext("Last %(num)s day", "Last %(num)s days", days)) for days in _DAYS]


@pages.get("/<flow_id:int>/replay", name="show")
@signed_in("flows:read")
async def show_replay(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show the last replay of a flow: its progress, or its result. Raises NotAllowed as `_require_access`."""
    _require_access(visit)
    return await _render(request, visit, flow_id, Form(), 200)


def _require_access(visit: Visit) -> None:
    """Raise NotAllowed for a user who must not see who contacts are, as the API does.

    The conditions of a replay compare values that are masked for this user.
    """
    if not visit.can(access.FULL_SCOPE):
        raise errors.NotAllowed("")


async def _render(request: Request, visit: Visit, flow_id: int, form: Form, status: int) -> HTTPResponse:
    draft = await fetch(drafts.load_draft, visit.account_id, flow_id)

    def read() -> dict[str, Any]:
        try:
            row = replays.get(visit.account_id, flow_id)
        except errors.NotFound:
            return {"replay": None, "result": None}
        result = replays.read_result(row)
        words = {} if result is None else replay_words.summarize(visit.account_id, result, row.days)
        return {"replay": row, "result": result, "percent": round(100 * replays.get_progress(row)), **words}

    values = await fetch(read)
    row = values["replay"]
    form.values = {
        "days": str(row.days if row is not None else replays.DEFAULT_DAYS),
        "order_event": (row.order_event if row is not None else replays.choose_order_event(draft.goal)) or "",
        "sms_price": "" if row is None or row.sms_price is None else f"{row.sms_price:g}",
    } | form.values
    return view.render(
        request, "flows/replay.html", status, flow=draft.flow, draft=draft, form=form, replay_options=_list_days(),
        may_replay=visit.can("flows:write"), error=replay_words.describe_error(row.error) if row is not None else "",
        **values,
    )  # fmt: skip


@pages.post("/<flow_id:int>/replay", name="start")
@signed_in("flows:write")
async def start_replay(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Start a replay of a flow with its unpublished changes. Raises NotAllowed as `_require_access`."""
    _require_access(visit)
    form = Form.from_request(request)
    raw: dict[str, Any] = {"days": _parse_number(form["days"] or str(replays.DEFAULT_DAYS))}
    if form["order_event"]:
        raw["order_event"] = form["order_event"]
    if form["sms_price"]:
        raw["sms_price"] = _parse_number(form["sms_price"].replace(",", "."))
    try:
        body = validation.read(ReplayRequest, raw)
        prepared = await render(replays.prepare, visit.account_id, flow_id, body)
        await commit(replays.start, prepared, visit.actor.name)
    except errors.Invalid as error:
        own = {name: error.fields[name] for name in _FIELDS if name in error.fields}
        if own:
            form.add_errors(errors.Invalid(own))
        else:
            form.errors["base"] = gettext("Choose a trigger and add a step before you replay this flow.")
        return await _render(request, visit, flow_id, form, 422)
    except errors.Conflict:
        view.flash(request, gettext("A replay of this flow is running already."))
    return view.redirect(request, f"/flows/{flow_id}/replay")


def _parse_number(text: str) -> Any:
    """Return a typed number, or the text itself, which is then an error of its field."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


@pages.post("/<flow_id:int>/replay/cancel", name="cancel")
@signed_in("flows:write")
async def cancel_replay(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Cancel the replay of a flow that waits or runs. Raises NotAllowed as `_require_access`."""
    _require_access(visit)
    await commit(replays.cancel, visit.account_id, flow_id)
    return view.redirect(request, f"/flows/{flow_id}/replay")


@pages.get("/<flow_id:int>/replay/file", name="file")
@signed_in(access.EXPORT_SCOPE)
async def download_people(request: Request, visit: Visit, flow_id: int) -> HTTPResponse | None:
    """Send the CSV file of the messages that each contact would have got; the download is recorded in the audit log."""
    people = await fetch(replays.get_people, visit.account_id, flow_id)
    name = f"flow-{flow_id}-replay.csv"
    await audit.record_export(visit.actor, visit.account_id, name, (), len(people))
    pieces = (lines.encode() for lines in records.write_replay_csv(visit.account_id, people))
    chunks = streaming.track_progress(visit.account_id, name, len(people), pieces)
    return await view.stream_file(request, name, "text/csv; charset=utf-8", chunks)
