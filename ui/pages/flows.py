"""The table of flows, new flows, publishing, changes of status, winners of random splits, and bulk actions."""

from collections.abc import Callable
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.agents.kinds.base import describe_version
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext, pgettext_noop
from appliance.flows import drafts, lifecycle, report, split_results, split_tests, starters, store
from appliance.flows.split_tests import ChooseBranch
from appliance.storage.models import Flow
from appliance.storage.transactions import commit, fetch, render, render_for, scan
from appliance.tracking import orders
from ui import formats, view
from ui.forms import Form, parse_int
from ui.guard import ignore_double_submit, signed_in
from ui.pages import approvals, flow_editor
from ui.pages.flow_editor import build_checklist, load_page, step_url
from ui.session import Pages, Visit
from ui.widgets import flow_tree, tables
from ui.widgets.tables import Chip, Column, Selection

pages = Pages("ui_flows", url_prefix="/flows")

CHIPS = {
    "": pgettext_noop("flows", "All"),
    "active": pgettext_noop("flows", "Live"),
    "paused": pgettext_noop("flows", "Paused"),
    "draft": pgettext_noop("flows", "Drafts"),
    "archived": pgettext_noop("flows", "Archived"),
}
_COLUMNS = (
    Column(gettext_noop("Flow"), "name", ""),
    Column(gettext_noop("Status")),
    Column(gettext_noop("Entered"), "entered", is_numeric=True),
    Column(gettext_noop("In the flow"), is_numeric=True),
    Column(gettext_noop("Completed"), is_numeric=True),
    Column(gettext_noop("Sent"), is_numeric=True),
    Column(gettext_noop("Orders"), is_numeric=True),
    Column(gettext_noop("Updated"), "updated"),
    Column(gettext_noop("Created"), "created", is_visible=False),
)


def _count_flows(number: int) -> str:
    return ngettext("%(num)s flow", "%(num)s flows", number)


@pages.get("/", strict_slashes=False)
@signed_in("flows:read")
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table of flows with a chip for each status, and the starters if there are no flows."""
    table = tables.Table(request, "/flows", _count_flows, _COLUMNS, "-updated", ("status",))
    table.chip_name = "status"
    table.bulk_action_url = "/flows/acts" if visit.can("flows:write") else ""
    status = table.state["status"]
    raw = table.list_params | ({"status": status} if status and status in CHIPS else {})

    def read() -> dict[str, Any]:
        counted = store.count_by_status(visit.account_id)
        for key, label in CHIPS.items():
            many = counted.get(key, 0) if key else sum(counted.values())
            if many or key in ("", status):
                table.chips = [*table.chips, Chip(key, pgettext("flows", label), many)]
        table.results = store.list_flows(visit.account_id, validation.read(store.FlowQuery, raw), table.sort)
        rows = list(table.results.rows)
        draft = {row.id: drafts.build_draft(row) for row in rows}
        starts = {row.id: flow_tree.describe_trigger(visit.account_id, draft[row.id].trigger) for row in rows}
        sold = orders.count_by_flow([row.id for row in rows], visit.account.attribution_days)
        return {"stats": report.load_stats(rows), "starts": starts, "orders": sold}

    context = await fetch(read)
    offers = await fetch(_list_starters, visit) if not table.chips[0].number else []
    may_send = visit.can("campaigns:send")
    return tables.render_table(request, "flows/index.html", table, starters=offers, may_send=may_send, **context)


def _list_starters(visit: Visit) -> list[Any]:
    return [*starters.list_starters(visit.account_id)]


@pages.get("/new")
@signed_in("flows:write")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the starters that a new flow can be created from."""
    return view.render(request, "flows/new.html", starters=await fetch(_list_starters, visit))


@pages.post("/", strict_slashes=False)
@signed_in("flows:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a draft flow, from a starter if the form names one."""
    form = Form.from_request(request)
    raw = {"starter": form["starter"]} if form["starter"] else {"name": form["name"] or gettext(store.DEFAULT_NAME)}
    body, draft = await render(store.prepare_create, visit.account_id, validation.read(store.FlowCreate, raw))
    created = await commit(store.create, visit.account_id, body, draft, visit.actor)
    return view.redirect(request, f"/flows/{created.id}")


@pages.get("/<flow_id:int>")
@signed_in("flows:read")
async def show(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show the tree of a flow, with the panel of the step that the query selects."""
    page = await render_for(visit.account_id, load_page, visit, flow_id, request.args)
    return view.render(request, "flows/show.html", also=("tree",), **page)


@pages.post("/<flow_id:int>")
@signed_in("flows:write")
async def update(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Rename a flow."""
    form = Form.from_request(request)
    name = form["name"][:255]
    await fetch(store.get, visit.account_id, flow_id)
    if not name:
        view.flash(request, gettext("Enter a name for the flow."))
    else:
        patch = validation.read(store.FlowPatch, {"name": name})
        draft = await render(store.parse_request, visit.account_id, patch, flow_id)
        await commit(store.update, visit.account_id, flow_id, patch, draft, visit.actor)
    return view.redirect(request, f"/flows/{flow_id}")


@pages.get("/<flow_id:int>/publish")
@signed_in("flows:read")
async def review(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show the unpublished changes of a flow, and the number of contacts inside the flow."""
    return await _render_review(request, visit, flow_id, Form({"time": "keep"}), 200)


@pages.post("/<flow_id:int>/publish")
@signed_in("campaigns:send")
async def publish(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Publish the changes of a flow; if chosen, contacts waiting in a changed step are rescheduled."""
    form = Form.from_request(request)
    changes = await fetch(drafts.list_changes, visit.account_id, flow_id)
    if not approvals.check_confirmed(form, await fetch(_list_unfinished, visit, flow_id)):
        return await _render_review(request, visit, flow_id, form, 422)
    try:
        messages = await render(drafts.prepare_messages, visit.account_id, flow_id)
        args = (drafts.publish, visit.account_id, flow_id, visit.actor, messages)
        await commit(_run_if_shown, visit, flow_id, form["shown"], "flow_publish", *args)
    except errors.Invalid as error:
        if error.reason == approvals.CHANGED_REASON:
            form.add_error("base", gettext(approvals.CONTENT_CHANGED))
        return await _render_review(request, visit, flow_id, form, 422)
    if form["time"] == "new":
        for change in changes:
            last_run_id: int | None = 0
            while change.seconds is not None and change.step_id is not None and last_run_id is not None:
                last_run_id = await commit(drafts.retime_runs, flow_id, change.step_id, change.seconds, last_run_id)
    view.flash(request, gettext("Published. New entrants follow the updated flow."))
    return view.redirect(request, f"/flows/{flow_id}")


async def _render_review(request: Request, visit: Visit, flow_id: int, form: Form, status: int) -> HTTPResponse:
    def read() -> dict[str, Any]:
        draft = drafts.load_draft(visit.account_id, flow_id)
        return {
            "flow": draft.flow, "changes": drafts.list_changes(visit.account_id, flow_id),
            "shown": describe_version(draft.flow),
            "inside": sum(drafts.count_inside(flow_id).values()),
            "findings": build_checklist(draft, drafts.list_blockers(draft, visit.actor),
                drafts.add_contents(draft.steps)),
            "unfinished": flow_editor.list_unfinished(draft, drafts.add_contents(draft.steps)),
        }  # fmt: skip

    return view.render(request, "flows/publish.html", status, form=form, **await fetch(read))


def _list_unfinished(visit: Visit, flow_id: int) -> list[Any]:
    """Return the unfinished content of a flow that must be confirmed; empty if the flow has blockers."""
    draft = drafts.load_draft(visit.account_id, flow_id)
    return (
        []
        if drafts.list_blockers(draft, visit.actor)
        else flow_editor.list_unfinished(draft, drafts.add_contents(draft.steps))
    )


@pages.post("/<flow_id:int>/discard")
@signed_in("flows:write")
async def discard(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Discard the unpublished changes of a flow."""
    await commit(drafts.discard, visit.account_id, flow_id, visit.actor)
    view.flash(request, gettext("Changes discarded. The live version is unchanged."))
    return view.redirect(request, f"/flows/{flow_id}")


@pages.post("/<flow_id:int>/activate")
@signed_in("campaigns:send")
async def activate(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Activate a flow with its changes, or resume a paused flow.

    A paused flow can skip messages that are overdue by more than the form's number of hours.
    """
    form = Form.from_request(request)
    skip = parse_int(form["skip"], 0) * 3600 if form["overdue"] == "skip" else None
    flow = await fetch(store.get, visit.account_id, flow_id)
    if not await fetch(approvals.is_current, flow, form["shown"]):
        return _render_changed(request, flow_id)
    if not approvals.check_confirmed(form, await fetch(_list_unfinished, visit, flow_id)):
        page = await render_for(visit.account_id, load_page, visit, flow_id, request.args)
        page |= {"wants_start": True, "form_errors": form.errors}
        return view.render(request, "flows/show.html", 422, **page)
    try:
        messages = await render(drafts.prepare_messages, visit.account_id, flow_id)
        args = (drafts.activate, visit.account_id, flow_id, visit.actor, skip, messages)
        await commit(_run_if_shown, visit, flow_id, form["shown"], "flow_activate", *args)
    except errors.Invalid as error:
        if error.reason == approvals.CHANGED_REASON:
            return _render_changed(request, flow_id)
        if error.reason == "invalid_transition":
            view.flash(request, gettext("The status of this flow has changed since you opened the page."))
            return view.redirect(request, f"/flows/{flow_id}")
        page = await render_for(visit.account_id, load_page, visit, flow_id, request.args) | {"wants_start": True}
        return view.render(request, "flows/show.html", 422, **page)
    view.flash(request, gettext("Flow resumed.") if flow.status == "paused" else gettext("The flow is live."))
    return view.redirect(request, f"/flows/{flow_id}")


def _run_if_shown(visit: Visit, flow_id: int, shown: str, action: str, verb: Callable[..., Any], *args: Any) -> None:
    approvals.require_current(store.get(visit.account_id, flow_id), shown)
    audit.run_and_record(visit.actor, action, verb, *args)


def _render_changed(request: Request, flow_id: int) -> HTTPResponse:
    """Redirect to the current state of a flow that has changed since the page was shown, with a notice."""
    view.flash(request, gettext(approvals.CONTENT_CHANGED))
    return view.redirect(request, f"/flows/{flow_id}")


def _add_action(name: str, done: str, verb: Any) -> None:
    """Register the POST route of a button that changes the status of a flow; `done` is the notice, for `gettext`.

    `verb` takes the posted form and returns the arguments for `store.apply_action`.
    """

    @pages.post(f"/<flow_id:int>/{name}", name=name)
    @signed_in("campaigns:send")
    async def act(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
        try:
            args = (store.apply_action, visit.account_id, flow_id, *verb(Form.from_request(request)))
            await commit(audit.run_and_record, visit.actor, f"flow_{name}", *args)
        except errors.Invalid as error:
            if error.reason != "invalid_transition":
                raise
            view.flash(request, gettext("The status of this flow has changed since you opened the page."))
        else:
            view.flash(request, gettext(done))
        return view.redirect(request, f"/flows/{flow_id}")


_add_action("pause", gettext_noop("Flow paused. Contacts in it stay at their step."), lambda _: (lifecycle.pause,))
_add_action("revive", gettext_noop("Reopened as a draft."), lambda _: (lifecycle.restore_draft,))


# Bulk actions.
# The largest number of rows in one bulk action.
_MAX_IDS = 500
_ALLOWED_STATUSES = {"pause": ("active",), "continue": ("paused",), "archive": ("draft", "active", "paused")}
# The message if none of the selected flows allows an action.
_NOT_ALLOWED = {
    "pause": gettext_noop("Only live flows can be paused."),
    "continue": gettext_noop("Only paused flows can be resumed."),
    "archive": gettext_noop("These flows are archived already."),
}


@pages.post("/acts")
@signed_in("flows:write")
async def run_bulk_action(request: Request, visit: Visit) -> HTTPResponse:
    """Copy, pause, resume, archive or delete the selected flows.

    Deletion, and archiving of flows with contacts inside, is confirmed first. Raises NotAllowed if the user may not
    change the status of flows.
    """
    form = Form.from_request(request)
    selection = Selection.from_request(request, form)
    name, return_url = form["act"], selection.table_url("/flows")
    if name in _ALLOWED_STATUSES and not visit.can("campaigns:send"):
        raise errors.NotAllowed(gettext("your role cannot start, pause or archive flows"))
    rows = await fetch(_selected_flows, visit.account_id, selection)
    if not rows:
        view.flash(request, gettext("No flows selected."))
    elif name == "duplicate":
        return await _duplicate_flows(request, visit, rows)
    elif name in ("archive", "delete"):
        inside = await fetch(_count_live_runs, rows)
        if form["expected"] != str(len(rows)) and (name == "delete" or inside):
            return view.render(
                request, "flows/sure.html", rows=rows, act=name, inside=inside, back=return_url,
                fields=[("act", name), *selection.fields],
            )  # fmt: skip
        await (
            _delete_flows(request, visit, rows)
            if name == "delete"
            else _change_status(request, visit, rows, name, form)
        )
    elif name in _ALLOWED_STATUSES:
        await _change_status(request, visit, rows, name, form)
    return view.redirect(request, return_url)


async def _duplicate_flows(request: Request, visit: Visit, rows: list[Flow]) -> HTTPResponse:
    created = [await commit(drafts.duplicate_flow, visit.account_id, row.id, visit.actor) for row in reversed(rows)]
    if len(created) == 1:
        view.flash(request, gettext("Flow duplicated as a draft."))
        return view.redirect(request, f"/flows/{created[0].id}")
    view.flash(
        request, ngettext("%(num)s flow duplicated as a draft.", "%(num)s flows duplicated as drafts.", len(created))
    )
    return view.redirect(request, "/flows?status=draft")


async def _change_status(request: Request, visit: Visit, rows: list[Flow], name: str, form: Form) -> None:
    """Change the status of flows; the notice names the flows that failed and offers to undo the changes."""
    moved, failed = [], []
    takes_out = form["inside"] == "out"
    for row in rows:
        if row.status not in _ALLOWED_STATUSES[name]:
            continue
        try:
            args = (store.apply_action, visit.account_id, row.id, *await _status_change(row, name, takes_out, visit))
            await commit(audit.run_and_record, visit.actor, f"flow_{name}", *args)
            moved.append(row)
        except errors.Invalid:
            failed.append(row.name)
    failed_note = (
        gettext("Not ready, because something is missing: %(names)s.", names=formats.join_names(failed))
        if failed
        else ""
    )
    if not moved:
        view.flash(request, failed_note or gettext(_NOT_ALLOWED[name]))
        return
    # Contacts who were removed from a flow do not return, so that this cannot be undone.
    undo = None if takes_out else ("/flows/put-back", {"stood": " ".join(f"{row.id}:{row.status}" for row in moved)})
    done = _describe_done(name, moved[0].name, len(moved))
    view.flash(request, f"{done} {failed_note}".strip(), undo)


def _describe_done(name: str, flow_name: str, number: int) -> str:
    """Return the notice of a bulk action that changed the status of flows; `flow_name` is the first of them."""
    if number == 1:
        messages = {
            "pause": gettext_noop("“%(name)s” is paused. Contacts in it stay at their step."),
            "archive": gettext_noop("“%(name)s” is archived. No more contacts can enter."),
            "continue": gettext_noop("“%(name)s” is live again."),
        }
        return gettext(messages[name], name=flow_name)
    if name == "pause":
        return ngettext(
            "%(num)s flow is paused. Contacts in it stay at their step.",
            "%(num)s flows are paused. Contacts in them stay at their step.",
            number,
        )
    if name == "archive":
        return ngettext(
            "%(num)s flow is archived. No more contacts can enter.",
            "%(num)s flows are archived. No more contacts can enter.",
            number,
        )
    return ngettext("%(num)s flow is live again.", "%(num)s flows are live again.", number)


async def _status_change(row: Flow, name: str, takes_out: bool, visit: Visit) -> tuple[Any, ...]:
    """Return the function of `lifecycle` that changes a flow's status, and its arguments after the flow."""
    if name == "pause":
        return (lifecycle.pause,)
    if name == "archive":
        return lifecycle.archive, takes_out
    return lifecycle.activate, visit.actor, None, await render(store.prepare_messages, visit.account_id, row.id)


async def _delete_flows(request: Request, visit: Visit, rows: list[Flow]) -> None:
    if any(row.version for row in rows) and not visit.can("campaigns:send"):
        raise errors.NotAllowed(gettext("your role cannot delete flows that were live"))
    args = (audit.run_and_record, visit.actor, "flow_delete", store.delete, visit.account_id)
    deleted = [await commit(*args, row.id) for row in rows]
    if len(deleted) == 1:
        view.flash(request, gettext("“%(name)s” deleted.", name=deleted[0].name))
    else:
        view.flash(request, ngettext("%(num)s flow deleted.", "%(num)s flows deleted.", len(deleted)))


def _selected_flows(account_id: int, selection: Selection) -> list[Flow]:
    """Return the selected flows that are not deleted, or all that match the table's filters, at most `_MAX_IDS`."""
    raw: dict[str, Any] = {}
    if selection.is_all:
        raw = {name: value for name, value in selection.state.items() if name in ("search", "status")}
    query = store.select_flows(account_id, validation.read(store.FlowQuery, raw))
    if not selection.is_all:
        query = query.where(Flow.id.in_(selection.ids[:_MAX_IDS]))
    return list(query.order_by(Flow.id.desc()).limit(_MAX_IDS))


def _count_live_runs(rows: list[Flow]) -> int:
    return sum(sum(drafts.count_inside(row.id).values()) for row in rows)


@pages.post("/<flow_id:int>/archive")
@signed_in("campaigns:send")
async def archive(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Archive a flow; the notice offers to undo it."""
    row = await fetch(store.get, visit.account_id, flow_id)
    await _change_status(request, visit, [row], "archive", Form.from_request(request))
    return view.redirect(request, f"/flows/{flow_id}")


@pages.post("/put-back")
@signed_in("campaigns:send")
async def undo_status_change(request: Request, visit: Visit) -> HTTPResponse:
    """Restore the earlier statuses of flows, which the form names as `<id>:<status>`."""
    previous_statuses = [pair.partition(":")[::2] for pair in Form.from_request(request)["stood"].split()[:_MAX_IDS]]
    restored, failed_count = [], 0
    for flow_id, status in previous_statuses:
        if not flow_id.isdecimal() or len(flow_id) > 18 or status not in lifecycle.TRANSITIONS:
            continue
        try:
            is_active = status == "active"
            messages = await render(store.prepare_messages, visit.account_id, int(flow_id)) if is_active else {}
            args = (
                store.apply_action,
                visit.account_id,
                int(flow_id),
                lifecycle.undo_status_change,
                status,
                visit.actor,
                messages,
            )
            restored.append(await commit(audit.run_and_record, visit.actor, "flow_put_back", *args))
        except errors.Invalid:
            failed_count += 1
    if len(restored) == 1:
        message = gettext("“%(name)s” restored.", name=restored[0].name)
    else:
        message = ngettext("%(num)s flow restored.", "%(num)s flows restored.", len(restored))
    if failed_count:
        lost = ngettext(
            "%(num)s flow could not be restored, because it changed meanwhile or is incomplete.",
            "%(num)s flows could not be restored, because they changed meanwhile or are incomplete.",
            failed_count,
        )
        message = f"{message} {lost}"
    view.flash(request, message)
    return view.redirect(request, f"/flows/{restored[0].id}" if len(previous_statuses) == 1 and restored else "/flows")


@pages.post("/<flow_id:int>/delete")
@signed_in("flows:write")
async def delete(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Delete a flow; its contacts leave it, and messages that were sent are kept."""
    await _delete_flows(request, visit, [await fetch(store.get, visit.account_id, flow_id)])
    return view.redirect(request, "/flows")


@pages.post("/<flow_id:int>/steps/<step_id:int>/winner")
@signed_in("campaigns:send")
async def choose_winner(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Choose the branch that all contacts take who come to a random split, or go on with its test without a branch."""
    choice = ChooseBranch(step_id, Form.from_request(request)["branch"] or None)
    decision = await scan(split_results.find_decision, visit.account_id, flow_id, choice)
    try:
        await commit(split_tests.choose, visit.account_id, flow_id, choice, decision, visit.actor)
    except errors.Invalid:
        raise errors.NotFound from None  # The branch has been removed since the page was shown.
    return view.redirect(request, step_url(flow_id, step_id))
