"""The contacts in a flow: the list of runs, the path of one contact, the buttons that act on runs, and its requests."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.flows import drafts, request_list, runs, step_names, store
from appliance.flows.runs import RunAction, RunSelection
from appliance.storage.transactions import commit, fetch
from ui import formats, view
from ui.forms import Form, lookups, parse_id, parse_int, safe_path
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.widgets import flow_tree

pages = Pages("ui_flow_runs", url_prefix="/flows")

# The filters of the runs, as `RunQuery` names them.
_RUN_FILTERS = ("status", "step", "outcome", "message", "reason", "since", "contact_id")
_RUN_STATES = {
    "live": gettext_noop("In the flow"),
    "completed": gettext_noop("Completed"),
    "exited": gettext_noop("Exited early"),
    "ignored": gettext_noop("Did not enter"),
}
# The headings of runs that are filtered by the outcome of a step, by its message, or by their status.
_OUTCOME_HEADINGS = {
    "waiting": gettext_noop("Contacts waiting in %(step)s"),
    "went_on": gettext_noop("Contacts that continued after %(step)s"),
    "on": gettext_noop("Contacts that continued after %(step)s"),
    "skipped": gettext_noop("Contacts that skipped %(step)s"),
    "exited": gettext_noop("Contacts that exited at %(step)s"),
}
_MESSAGE_HEADINGS = {
    "any": gettext_noop("Recipients of %(step)s"),
    "pending": gettext_noop("Contacts for whom %(step)s is queued"),
    "accepted": gettext_noop("Contacts that were sent %(step)s"),
    "opened": gettext_noop("Contacts that opened %(step)s"),
    "clicked": gettext_noop("Contacts that clicked in %(step)s"),
    "skipped": gettext_noop("Contacts who did not receive %(step)s"),
}
_STATUS_HEADINGS = {
    "live": gettext_noop("Contacts in the flow now"),
    "completed": gettext_noop("Contacts that completed the flow"),
    "exited": gettext_noop("Contacts that exited early"),
    "ignored": gettext_noop("Contacts that did not enter"),
}
_ALL_CONTACTS = gettext_noop("All contacts of the flow")


@pages.get("/<flow_id:int>/people")
@signed_in("flows:read")
async def list_runs(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show the runs of a flow that match the filters, or without filters all runs; test runs are left out."""
    stored: dict[str, str] = {name: str(request.args[name][0]) for name in _RUN_FILTERS if request.args.get(name)}
    raw: dict[str, Any] = {
        **_parse_run_filters(stored),
        "test": False,
        "page": parse_int(request.args.get("page")),
        "limit": 50,
    }
    try:
        query = validation.read(runs.RunQuery, raw)
        context = await fetch(_load_runs, visit, flow_id, query, stored)
    except errors.Invalid:
        return view.redirect(request, f"/flows/{flow_id}/people")
    return view.render(request, "flows/people.html", filters=stored, **context)


def _parse_run_filters(stored: dict[str, str]) -> dict[str, Any]:
    filters: dict[str, Any] = {name: parse_id(stored[name]) for name in ("step", "contact_id") if name in stored}
    return {**stored, **filters}


def _load_runs(visit: Visit, flow_id: int, query: runs.RunQuery, stored: dict[str, str]) -> dict[str, Any]:
    page = runs.list_runs(visit.account_id, flow_id, query)
    draft = drafts.load_draft(visit.account_id, flow_id)
    titles = flow_tree.step_titles(draft)
    step, branch_labels = stored.get("step", ""), step_names.name_branches_by_id(draft.steps)
    return {
        "flow": draft.flow, "page": page, "titles": titles, "heading": _runs_heading(stored, titles, branch_labels),
        "contacts_by_id": lookups.contacts_by_id({row.contact_id for row in page.rows if row.contact_id}),
        "waiting": stored.get("outcome") == "waiting" and step.isdecimal(),
        "may_send": visit.can("campaigns:send"), "states": _translate_states(), "reason_label": flow_tree.reason_label,
    }  # fmt: skip


def _translate_states() -> dict[str, str]:
    return {status: gettext(label) for status, label in _RUN_STATES.items()}


def _runs_heading(stored: dict[str, str], titles: dict[int, str], labels: dict[int, dict[str, str]]) -> str:
    """Return the heading for runs filtered by `stored`.

    `titles` are the titles of steps by id, and `labels` those of their branches by id and key.
    """
    step, where = stored.get("step", ""), ""
    if step.isdecimal():
        where = gettext("“%(text)s”", text=titles.get(int(step), gettext("a deleted step")))
    if stored.get("message") in _MESSAGE_HEADINGS:
        message = stored["message"]
        heading = gettext(_MESSAGE_HEADINGS[message], step=where)
    elif stored.get("outcome") in _OUTCOME_HEADINGS:
        outcome = stored["outcome"]
        heading = gettext(_OUTCOME_HEADINGS[outcome], step=where)
    elif stored.get("outcome") and where:
        branch = labels.get(int(step), {}).get(stored["outcome"], gettext("removed branch"))
        heading = gettext("Contacts that took “%(branch)s” in %(step)s", branch=branch, step=where)
    elif where:
        heading = gettext("Contacts that entered %(step)s", step=where)
    else:
        heading = gettext(_STATUS_HEADINGS.get(stored.get("status", ""), _ALL_CONTACTS))
    if not stored.get("reason"):
        return heading
    reason = formats.uncapitalize(flow_tree.reason_label(stored["reason"]))
    return gettext("%(heading)s: %(reason)s", heading=heading, reason=reason)


@pages.get("/<flow_id:int>/people/<run_id:int>")
@signed_in("flows:read")
async def show_run(request: Request, visit: Visit, flow_id: int, run_id: int) -> HTTPResponse:
    """Show the path of one contact through a flow."""

    def read() -> dict[str, Any]:
        run = runs.get_run(visit.account_id, flow_id, run_id)
        flow = store.find(visit.account_id, flow_id)
        contacts_by_id = lookups.contacts_by_id({run.contact_id}) if run.contact_id else {}
        return {
            "flow": flow, "run": run, "contact": contacts_by_id.get(run.contact_id),
            "history": runs.list_visited_steps(run),
            "may_send": visit.can("campaigns:send"), "states": _translate_states(),
            "icons": flow_tree.step_icons(), "reason_label": flow_tree.reason_label,
        }  # fmt: skip

    return view.render(request, "flows/run.html", **await fetch(read))


def _add_run_action(act: RunAction) -> None:
    """Register the POST route of a button that acts on the selected runs, or on all that wait in a step."""

    @pages.post(f"/<flow_id:int>/people/{act}", name=act)
    @signed_in("campaigns:send")
    async def move(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
        form = Form.from_request(request)
        step = parse_int(form["step"], 0)
        params = RunSelection(run_ids=form.ids("run_ids")) if not form["all"] else RunSelection(step=step)
        ids = await fetch(runs.resolve_runs, visit.account_id, flow_id, params)
        changed = 0
        for start in range(0, len(ids), runs.ACTION_BATCH_SIZE):
            group = ids[start : start + runs.ACTION_BATCH_SIZE]
            changed += len(await commit(runs.act_on_runs, flow_id, group, act))
        if changed:
            await commit(runs.audit_bulk_action, visit.account_id, flow_id, act, changed, visit.actor)
        view.flash(request, _describe_moved(act, changed, len(ids)) if ids else gettext("No contacts selected."))
        return_path = safe_path(form["back"])
        return view.redirect(
            request, return_path if return_path.startswith(f"/flows/{flow_id}/people") else f"/flows/{flow_id}/people"
        )


def _describe_moved(act: RunAction, changed: int, selected: int) -> str:
    """Return the notice of a button that acted on `changed` of the selected runs."""
    if act == "move_on":
        notice = ngettext("Wait skipped for %(num)s contact.", "Wait skipped for %(num)s contacts.", changed)
    else:
        notice = ngettext("%(num)s contact removed from the flow.", "%(num)s contacts removed from the flow.", changed)
    if changed == selected:
        return notice
    missing = ngettext(
        "%(num)s contact is no longer in the flow.", "%(num)s contacts are no longer in the flow.", selected - changed
    )
    return f"{notice} {missing}"


_add_run_action("move_on")
_add_run_action("take_out")


@pages.get("/<flow_id:int>/requests")
@signed_in("flows:read")
async def list_requests(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show the HTTP requests of a flow that are still to be made, the next first, and where to find the failed ones."""
    number = max(1, parse_int(request.args.get("page"), 1))

    def read() -> dict[str, Any]:
        page = request_list.list_pending(visit.account_id, flow_id, number)
        draft = drafts.load_draft(visit.account_id, flow_id)
        titles = flow_tree.step_titles(draft)
        return {
            "flow": draft.flow, "page": page, "titles": titles, "reason_label": flow_tree.reason_label,
            "contacts_by_id": lookups.contacts_by_id({row.contact_id for row in page.rows if row.contact_id}),
            "request_steps": [(step_id, titles[step_id]) for step_id in flow_tree.list_request_steps(draft)],
            "may_send": visit.can("campaigns:send"),
        }  # fmt: skip

    return view.render(request, "flows/requests.html", **await fetch(read))


@pages.post("/<flow_id:int>/requests/retry")
@signed_in("campaigns:send")
async def retry_requests(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Make the selected requests at once."""
    await fetch(store.get, visit.account_id, flow_id)
    ids = Form.from_request(request).ids("request_ids")
    changed = await commit(request_list.retry_now, visit.account_id, flow_id, ids, visit.actor) if ids else 0
    text = ngettext("%(num)s request is made now.", "%(num)s requests are made now.", changed)
    if not ids:
        text = gettext("No requests selected.")
    elif not changed:
        text = gettext("These requests have been made already.")
    view.flash(request, text)
    return view.redirect(request, f"/flows/{flow_id}/requests")
