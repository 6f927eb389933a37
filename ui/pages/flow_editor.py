"""The page of a flow: its tree, the panel of its trigger or a step, and the changes made there."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.campaigns import content
from appliance.content.templates import store as templates
from appliance.core import clock, errors, validation
from appliance.core.errors import Invalid
from appliance.core.i18n import fold, gettext, gettext_noop, ngettext
from appliance.events import log
from appliance.flows import (
    document,
    drafts,
    entry_caps,
    lifecycle,
    report,
    simulation_sandbox,
    store,
    triggers,
    versions,
)
from appliance.flows.drafts import FlowDraft
from appliance.flows.lifecycle import Blocker
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.base import StepKind
from appliance.flows.store import FlowPatch
from appliance.sending.messages import preview, senders
from appliance.storage.transactions import commit, fetch, render_for
from ui import formats, forms, labels, view
from ui.forms import Form, FormParts, error_sentence, flow_forms, lookups, parse_id
from ui.forms.filter_rows import FilterRows
from ui.forms.flow_forms import StepForm
from ui.guard import signed_in
from ui.pages import approvals, campaign_content
from ui.session import Pages, Visit
from ui.widgets import experiment_words, filter_builder, flow_tree, split_test_words, step_choices
from ui.widgets.filter_builder import BRANCH

pages = Pages("ui_flow_editor", url_prefix="/flows")


# The periods of the figures, with marked labels.
RANGES = (("all", gettext_noop("All time")), ("30d", gettext_noop("30 days")), ("7d", gettext_noop("7 days")))
START = "start"


def load_page(
    visit: Visit, flow_id: int, query: Mapping[str, Any], form: StepForm | None = None, shows: str | None = None
) -> dict[str, Any]:
    """Return the template context of a flow's page.

    `shows` is the open panel (START, the id of a step, or an empty string); with None, the query selects the panel.
    `form` is the posted form of that panel, with its errors or conflicts.
    """
    flow = store.find(visit.account_id, flow_id)
    draft = drafts.build_draft(flow)
    steps = drafts.add_contents(draft.steps)
    span = query.get("range") if query.get("range") in dict(RANGES) else "all"
    figures = report.build_report(flow, span) if flow.version else None  # type: ignore[arg-type]  # one of the three
    numbers = flow_tree.index_report(figures)
    changes = drafts.list_changes(visit.account_id, flow_id) if draft.is_changed else []
    blocked = drafts.list_blockers(draft, visit.actor) if flow.status != "archived" else []
    step_errors: dict[int, list[str]] = {}
    for step_id, blocker in blocked:
        if step_id is not None:
            step_errors.setdefault(step_id, []).append(error_sentence(blocker.message))
    change_kinds = {change.step_id: change.kind for change in changes if change.step_id is not None}
    panel = _selected_panel(query) if shows is None else shows
    step = document.find_step(steps, int(panel)) if panel.isdecimal() else None
    where = document.parse_position(str(query.get("at") or ""))
    kind = str(query.get("add") or "")
    return {
        "flow": flow, "draft": draft,
        "cards": flow_tree.build_cards(draft, steps, numbers, step_errors, change_kinds),
        "report": figures, "numbers": numbers, "span": span, "ranges": RANGES, "changes": changes,
        "start": flow_tree.describe_trigger(visit.account_id, draft.trigger), "lookup": flow_tree.contacts_url,
        "request_hosts": flow_tree.list_request_hosts(steps), "reason_label": flow_tree.reason_label,
        "findings": build_checklist(draft, blocked, steps), "unfinished": list_unfinished(draft, steps),
        "start_lacks": [blocker for step_id,
            blocker in blocked if step_id is None and blocker.field.startswith("trigger")],
        "approval": approvals.load_approval(visit, flow, [blocker.code for _, blocker in blocked]),
        "inside": sum(drafts.count_inside(flow_id).values()), "kind_groups": step_choices.list_menu_groups(),
        "wants_start": False, "form_errors": {},
        "saved": shows is not None, "has_errors": _has_problems(form),
        "has_requests": bool(flow_tree.list_request_steps(draft)),
        "may_edit": visit.can("flows:write") and flow.status != "archived",
        "may_send": visit.can("campaigns:send"), "range_query": "" if span == "all" else span,
        "at": str(where) if where is not None else "", "adding": kind if kind in BY_TYPE and where else "",
        **_load_panel(visit, draft, steps, step, kind if where else "", form, figures),
    }  # fmt: skip


def _has_problems(form: StepForm | None) -> bool:
    """Return whether a posted form has errors or conflicts and so was not saved."""
    return form is not None and bool(form.errors or form.conflicts or (form.where is not None and form.where.conflicts))


def build_checklist(
    draft: FlowDraft, blocked: Sequence[tuple[int | None, Blocker]], steps: Sequence[Any]
) -> list[tuple[str, str, str]]:
    """Return the blockers of a flow as (colour class, sentence, URL of the step or trigger)."""
    titles = {step["id"]: flow_tree.describe_step(draft.flow.account_id, step)[0] for _, step in document.walk(steps)}
    checklist = []
    for step_id, blocker in blocked:
        known = _BLOCKER_SENTENCES.get(blocker.field)
        sentence = gettext(known) if known else error_sentence(blocker.message)
        if step_id is not None:
            sentence = _describe_step_problem(titles[step_id], sentence)
        checklist.append(("bad", sentence, f"/flows/{draft.flow.id}?step={step_id or START}"))
    return checklist


def list_unfinished(draft: FlowDraft, steps: Sequence[Any]) -> list[tuple[str, str, str]]:
    """Return the unfinished content of a flow's emails as (colour class, sentence, URL where it is edited)."""
    flow, rows = draft.flow, []
    for _, step, finding in lifecycle.list_unfinished(flow.account_id, steps):
        title, editor = (
            flow_tree.describe_step(flow.account_id, step)[0],
            f"/flows/{flow.id}/steps/{step['id']}/content",
        )
        path = finding.field.removeprefix("design.")
        href = f"{editor}?path={path}&fix={finding.code}" if path != finding.field else editor
        rows.append(("warn", _describe_step_problem(title, formats.sentence(finding.message)), href))
    return rows


def _describe_step_problem(title: str, sentence: str) -> str:
    return gettext("%(step)s: %(problem)s", step=title, problem=formats.uncapitalize(sentence))


_BLOCKER_SENTENCES = {
    "trigger.event": gettext_noop("Select a trigger."),
    "trigger.segment_id": gettext_noop("Select the segment of the trigger."),
    "trigger.contact_list_id": gettext_noop("This list follows a segment. Use the segment as the trigger instead."),
    "trigger.data.path": gettext_noop("Enter the custom field with the date of the trigger."),
    "steps": gettext_noop("Add a first step."),
}


def _selected_panel(query: Mapping[str, Any]) -> str:
    panel = str(query.get("step") or "")
    return panel if panel.isdecimal() and len(panel) < 10 else START


def _load_panel(
    visit: Visit, draft: FlowDraft, steps: list[Any], step: Any, kind: str, form: StepForm | None, names: Any
) -> dict[str, Any]:
    """Return the template context of the panel beside the tree: for a step, a new step of `kind`, or the trigger."""
    page: dict[str, Any] = {
        "step": step, "chosen": step["id"] if step else START, "kind": None, "figures": None, "title": "",
        "places": [], "below": 0, "waiting": 0, "above": 0, "sibling": (0, 0),
        "starts": flow_forms.list_trigger_groups(visit.account_id, draft.trigger.event or ""),
        "goal_label": flow_forms.describe_event(draft.goal) if draft.goal else "",
        "goals": flow_forms.list_goal_groups(visit.account_id, draft.goal or ""),
        "events": flow_forms.list_client_events(visit.account_id), "units": flow_forms.UNITS,
        "frequencies": [(value, gettext(label)) for value, label in flow_forms.FREQUENCIES],
        "sides": [(value, gettext(label)) for value, label in flow_forms.SIDES],
        "revision": 0, "sms_preview": None,
        "sms_sender": senders.find_default_sms(visit.account), "filter_view": None, "split_test": None,
        "split_sample": "",
        "may_choose": visit.can("campaigns:send"), "holdout_words": None,
        "holdout_events": flow_forms.list_goal_groups(visit.account_id, draft.trigger.data.get("holdout_event") or ""),
        "waiting_entries": entry_caps.count_waiting(draft.flow.id, clock.now_ms()),
        "conditions": len(draft.trigger.data.get("where") or []), "where": None, "pick_segments": [], "usual": "",
    }  # fmt: skip
    if kind in BY_TYPE:
        page |= {"kind": BY_TYPE[kind], "form": form or flow_forms.build_step_form({"type": kind, "duration": 86_400})}
    elif step is not None:
        page["sms_preview"] = _preview_sms(visit, step) if step["type"] == "sms" else None
        page |= {
            "kind": BY_TYPE[step["type"]], "form": form or _open_step_form(step),
            **flow_tree.build_position(draft, steps, step),
            "title": flow_tree.describe_step(visit.account_id, step)[0],
            "revision": versions.list_step_templates([step])[0].revision if step.get("template_id") else 0,
            "figures": next((figures for figures in names.steps if figures.id == step["id"]), None) if names else None,
        }  # fmt: skip
        page["split_sample"] = split_test_words.describe_needed(visit.account_id, draft.flow.id, step, form)
        if page["figures"] is not None and page["figures"].test is not None:
            page["split_test"] = split_test_words.describe(page["figures"].test)
    else:
        page["form"] = form or forms.open_form(
            flow_forms.build_trigger_form(draft.trigger, draft.goal), flow_forms.TRIGGER_PARTS
        )
        if names is not None and names.holdout is not None:
            page["holdout_words"] = experiment_words.describe_flow_holdout(names.holdout)
        page["where"] = (form and form.where) or forms.open_form(
            flow_forms.build_conditions_form(draft.trigger), flow_forms.CONDITION_PARTS
        )
        stored = segments.fetch_page(visit.account_id, SegmentQuery(limit=100)).rows
        page["pick_segments"] = sorted(((str(row.id), row.name) for row in stored), key=lambda item: fold(item[1]))
        plain = draft.trigger._replace(data={})
        is_once = triggers.get_frequency(plain) == "once"
        page["usual"] = gettext("Once (default)") if is_once else gettext("Every time (default)")
        usual = "once" if is_once else "every_time"  # offered a second time only if it is the stored choice
        stored_choice = page["form"]["often"]
        page["frequencies"] = [row for row in page["frequencies"] if row[0] != usual or usual == stored_choice]
    page["tone"] = flow_tree.TONES.get(page["kind"].icon, "good") if page["kind"] else "good"
    page |= step_choices.load_choices(visit.account_id, draft, steps, step, page["kind"], page["form"])
    page |= _load_rules(visit, draft, step, page["kind"], page["form"])
    return page


def _load_rules(visit: Visit, draft: FlowDraft, step: Any, kind: StepKind | None, form: StepForm) -> dict[str, Any]:
    """Return the template context of the filters of a form, if it has any; `kind` is None for a trigger."""
    if kind is not None:
        form.values["shown"] = flow_forms.get_layout(form)
        if not flow_forms.shows_rules(form, kind.type):
            return {}
    has_event = kind is not None and any(field.type == "awaited_event" for field in kind.fields)
    filters = draft.trigger.data.get("where") if kind is None else step.get("filters") if step else []
    rows = form.rows or (FilterRows.from_filters(filters) if filters else FilterRows.blank())
    rows.event = (form["event_name"] if has_event else "") or draft.trigger.event or ""
    rows.awaits_event = has_event
    return {"filter_view": filter_builder.build_view(visit.account_id, rows, BRANCH)}


def _open_step_form(step: dict[str, Any]) -> StepForm:
    return forms.open_form(flow_forms.build_stored_step_form(step), flow_forms.step_parts(step["type"]))


def _preview_sms(visit: Visit, step: Any) -> Any:
    """Return the preview of an SMS step for a sample contact, or None if the step cannot be rendered."""
    body = (step.get("content") or {}).get("body") or ""
    values = preview.PreviewRequest(document={}, body=body, channel="sms", transactional=bool(step["transactional"]))
    try:
        return preview.render_preview(visit.account_id, values).sms
    except Invalid:
        return None


async def render_panel(
    request: Request, visit: Visit, flow_id: int, shows: str, form: StepForm | None = None, status: int = 200
) -> HTTPResponse:
    """Render the page of a flow, or, for a partial request, its panel and the blocks that depend on the panel.

    `shows` selects the panel and `form` has its posted values, as for `load_page`.
    """
    page = await render_for(visit.account_id, load_page, visit, flow_id, request.args, form, shows)
    also = ("tree", "state", "acts", "banner", "go_live_form")
    return view.render(request, "flows/show.html", status, also=also, has_unsaved=form is not None, **page)


def step_url(flow_id: int, shows: int | str) -> str:
    """Return the URL of a flow's page with the panel of a step, or of the trigger (START), open."""
    return f"/flows/{flow_id}?step={shows}"


async def render_saved(request: Request, visit: Visit, flow_id: int, shows: str) -> HTTPResponse:
    """Render a panel after it was saved; for a request that is not partial, redirect to the panel."""
    if view.is_partial(request):
        return await render_panel(request, visit, flow_id, shows)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, step_url(flow_id, shows))


@pages.post("/<flow_id:int>/trigger")
@signed_in("flows:write")
@forms.retry_on_change
async def save_trigger(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Save the trigger of a flow and its goal."""
    form = StepForm.from_request(request)
    draft = await fetch(drafts.load_draft, visit.account_id, flow_id)
    names = await fetch(flow_forms.load_trigger_names, visit.account_id)
    forms.merge_form(form, flow_forms.TRIGGER_PARTS, flow_forms.build_trigger_form(draft.trigger, draft.goal), names)
    if form.conflicts:
        return await render_panel(request, visit, flow_id, START, form, 409)

    def load_stored() -> Form:
        stored_draft = drafts.load_draft(visit.account_id, flow_id)
        return flow_forms.build_trigger_form(stored_draft.trigger, stored_draft.goal)

    try:
        write = (_write_trigger, visit, flow_id, form)
        await commit(forms.write_if_unchanged, form, flow_forms.TRIGGER_PARTS, load_stored, *write)
    except errors.Invalid as error:
        return await render_panel(request, visit, flow_id, START, flow_forms.add_errors(form, error), 422)
    return await render_saved(request, visit, flow_id, START)


@pages.post("/<flow_id:int>/conditions")
@signed_in("flows:write")
@forms.retry_on_change
async def save_conditions(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Save the conditions of a flow's trigger; only show them again if a button of the rows was pressed."""
    form = StepForm.from_request(request)
    draft = await fetch(drafts.load_draft, visit.account_id, flow_id)
    start = forms.open_form(flow_forms.build_trigger_form(draft.trigger, draft.goal), flow_forms.TRIGGER_PARTS)
    rows, start.where = FilterRows.from_form(form.lists), form
    start.rows = rows
    if rows.apply_action(form.lists):
        return await render_panel(request, visit, flow_id, START, start)
    stored_form, stored = (
        flow_forms.build_conditions_form(draft.trigger),
        FilterRows.from_filters(draft.trigger.data.get("where") or []),
    )
    form.values["rules"] = flow_forms.serialize_rules(rows)
    descriptions = await fetch(flow_forms.describe_rules, visit.account_id, rows, stored)
    forms.merge_form(
        form,
        flow_forms.CONDITION_PARTS,
        stored_form,
        dict.fromkeys(flow_forms.CONDITION_PARTS.all_keys(stored_form), descriptions),
    )
    if form.conflicts:
        return await render_panel(request, visit, flow_id, START, start, 409)
    rows = start.rows = stored if form["rules"] == stored_form["rules"] else rows

    def load_stored() -> Form:
        return flow_forms.build_conditions_form(drafts.load_draft(visit.account_id, flow_id).trigger)

    try:
        write = (_write_conditions, visit, flow_id, rows.to_filters())
        await commit(forms.write_if_unchanged, form, flow_forms.CONDITION_PARTS, load_stored, *write)
    except errors.Invalid as error:
        rows.add_errors(error, "trigger.data.where")
        return await render_panel(request, visit, flow_id, START, start, 422)
    return await render_saved(request, visit, flow_id, START)


def _write_conditions(visit: Visit, flow_id: int, where: list[Any]) -> None:
    data = drafts.load_draft(visit.account_id, flow_id).trigger.data
    drafts.change_trigger(visit.account_id, flow_id, {"data": {**data, "where": where}}, visit.actor)


def _write_trigger(visit: Visit, flow_id: int, form: StepForm) -> None:
    goal = flow_forms.read_goal(form)
    raw = flow_forms.read_trigger(form, drafts.load_draft(visit.account_id, flow_id).trigger)
    validation.read(FlowPatch, {"goal": goal})
    drafts.change_trigger(visit.account_id, flow_id, raw, visit.actor)
    drafts.change_goal(visit.account_id, flow_id, goal, visit.actor)


@pages.get("/<flow_id:int>/met")
@signed_in("flows:read")
async def show_recent_matches(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Show the contacts that the trigger would have admitted recently, and why it would have refused others."""

    def read() -> dict[str, Any]:
        draft = drafts.load_draft(visit.account_id, flow_id)
        channels = sorted(
            {step["type"] for _, step in document.walk(draft.steps)
             if step["type"] in ("email", "sms") and not step.get("transactional")}
        )  # fmt: skip
        recent = simulation_sandbox.find_recent_contacts(draft.flow, draft.trigger, channels=channels)
        inside = None
        if draft.trigger.segment_id is not None:
            inside = simulation_sandbox.count_segment(visit.account_id, draft.trigger.segment_id)
        return {
            "flow": draft.flow, "draft": draft, "lookback": recent, "inside_segment": inside,
            "start": flow_tree.describe_trigger(visit.account_id, draft.trigger),
            "start_event": flow_forms.describe_event(draft.trigger.event),
            "is_unknown_event": not labels.is_built_in_event(draft.trigger.event)
            and not log.is_recorded(visit.account_id, draft.trigger.event),
            "contacts_by_id": lookups.contacts_by_id({match.contact_id for match in recent.contacts}),
        }  # fmt: skip

    return view.render(request, "flows/met.html", **await fetch(read))


# Steps: add, change, move, copy and remove.

# The steps before the last removal in each flow, by flow id, for undo. They are lost on a restart.
_MAX_REMOVED = 50
_steps_before_removal: "OrderedDict[int, list[Any]]" = OrderedDict()
# The types of steps that are added without a form first, and their initial values.
_DEFAULT_STEPS: dict[str, dict[str, Any]] = {
    "email": {}, "sms": {}, "wait": {"duration": 86_400}, "wait_until": {"until": "time"}, "unsubscribe": {},
    "exit": {}, "random_split": {"branches": [{"share": 50}, {"share": 50}]},
}  # fmt: skip


@pages.post("/<flow_id:int>/steps")
@signed_in("flows:write")
async def add_step(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Add a step to a flow: at once if its type needs no input, otherwise once its form is filled in.

    Raises NotFound for an unknown type or position.
    """
    form = StepForm.from_request(request)
    kind, where = form["kind"], document.parse_position(form["at"])
    if kind not in BY_TYPE or where is None:
        raise errors.NotFound
    raw: dict[str, Any] = dict(_DEFAULT_STEPS.get(kind, {}))
    if kind not in _DEFAULT_STEPS or "ready" in form.values:
        if "ready" not in form.values:
            return view.redirect(request, f"/flows/{flow_id}?at={where}&add={kind}")
        try:
            raw = _read_new_step(form, kind)
        except errors.Invalid as error:
            return await _render_new_step(request, visit, flow_id, form, error)
        if raw is None:
            return await _render_new_step(request, visit, flow_id, form, None)
    try:
        step = await commit(drafts.add_step, visit.account_id, flow_id, where, kind, raw, visit.actor)
    except errors.Invalid as error:
        if "ready" not in form.values:
            raise
        return await _render_new_step(request, visit, flow_id, form, error)
    return view.redirect(request, step_url(flow_id, step))


async def _render_new_step(
    request: Request, visit: Visit, flow_id: int, form: StepForm, error: errors.Invalid | None
) -> HTTPResponse:
    query = {"at": form["at"], "add": form["kind"]}
    if error is not None:
        _add_step_errors(form, error)
    page = await render_for(visit.account_id, load_page, visit, flow_id, query, form, "")
    return view.render(request, "flows/show.html", 422 if error else 200, **page)


@pages.get("/<flow_id:int>/steps/<step_id:int>/template")
@signed_in("flows:write")
async def choose_template(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Show the templates and starters that the content of a step can be copied from."""
    flow = await fetch(store.get, visit.account_id, flow_id)
    template = await fetch(templates.get_step_template, visit.account_id, flow_id, step_id)
    crumbs = ((gettext("Flows"), "/flows"), (flow.name, f"/flows/{flow_id}"))
    return await campaign_content.render_template_choice(
        request, visit, template, flow.name, f"/flows/{flow_id}/steps/{step_id}", step_url(flow_id, step_id), crumbs,
        "flow",
    )  # fmt: skip


@pages.post("/<flow_id:int>/steps/<step_id:int>/template")
@signed_in("flows:write")
async def apply_template(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Copy a template or starter into a step of a flow."""
    form = Form.from_request(request)
    source: int | str = form["starter"] or parse_id(form["template"])
    args = (visit.account_id, flow_id, step_id, source, visit.user.id)
    try:
        await commit(content.apply_template_to_step, *args)
        view.flash(request, gettext("Template copied into this step. The previous content is in its version history."))
    except errors.Invalid as error:
        view.flash(request, formats.sentence(next(iter(error.fields.values()))[0]))
    return view.redirect(request, step_url(flow_id, step_id))


@pages.post("/<flow_id:int>/steps/<step_id:int>")
@signed_in("flows:write")
@forms.retry_on_change
async def save_step(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Save the form of a step; only show it again if a button of its rows was pressed or it needs other fields."""
    form, args = StepForm.from_request(request), (visit.account_id, flow_id, step_id)
    step = await fetch(flow_forms.load_step, *args)
    kind, parts, shows = step["type"], flow_forms.step_parts(step["type"]), str(step_id)
    if flow_forms.is_layout_changed(form):
        flow_forms.add_missing_values(form, kind)
        return await render_panel(request, visit, flow_id, shows, form)
    if flow_forms.shows_rules(form, kind):
        form.rows = FilterRows.from_form(form.lists)
        if form.rows.apply_action(form.lists):
            return await render_panel(request, visit, flow_id, shows, form)
    await fetch(_merge_step, visit.account_id, form, parts, step)
    if form.conflicts:
        return await render_panel(request, visit, flow_id, shows, form, 409)
    try:
        raw = flow_forms.read_step(form, kind) | ({"filters": form.rows.to_filters() or None} if form.rows else {})
        write = (drafts.change_step, *args, raw, visit.actor)
        await commit(
            forms.write_if_unchanged,
            form,
            parts,
            lambda: flow_forms.build_stored_step_form(flow_forms.load_step(*args)),
            *write,
        )
    except errors.Invalid as error:
        _add_step_errors(form, error)
        return await render_panel(request, visit, flow_id, shows, form, 422)
    return await render_saved(request, visit, flow_id, shows)


def _merge_step(account_id: int, form: StepForm, parts: FormParts, step: dict[str, Any]) -> None:
    """Merge the posted form of a step with the stored step; its filter rows are compared as one value."""
    stored_form, names = (
        flow_forms.build_stored_step_form(step),
        dict(flow_forms.load_step_names(account_id, step)),
    )
    if form.rows is None:
        return forms.merge_form(form, parts, stored_form, names)
    stored = FilterRows.from_filters(step.get("filters") or [])
    form.values["rules"] = flow_forms.serialize_rules(form.rows)
    forms.merge_form(
        form,
        parts,
        stored_form,
        names | dict.fromkeys(parts.all_keys(stored_form), flow_forms.describe_rules(account_id, form.rows, stored)),
    )
    if form["rules"] == stored_form["rules"]:
        form.rows = stored
    return None


def _add_step_errors(form: StepForm, error: errors.Invalid) -> None:
    """Add the errors about filters to their rows, and all others to the fields of the form."""
    rules = {path: messages for path, messages in error.fields.items() if path.startswith("filters")}
    other_errors = {path: messages for path, messages in error.fields.items() if path not in rules}
    if rules.get("filters") in ([gettext_noop("can't be blank")], [gettext("can't be blank")]):
        rules = {"filters": [gettext("Add a condition.")]}
    if rules and form.rows is not None:
        form.rows.add_errors(errors.Invalid(rules))
    if other_errors or not rules:
        flow_forms.add_errors(form, errors.Invalid(other_errors, reason=error.reason) if other_errors else error)


def _read_new_step(form: StepForm, kind: str) -> Any:
    """Return the properties of a new step from its form, or None if the form has to be shown again with other fields.

    It is None if a button of its filter rows was pressed, or a choice was changed that needs other fields.
    """
    if flow_forms.is_layout_changed(form):
        flow_forms.add_missing_values(form, kind)
        return None
    raw = flow_forms.read_step(form, kind)
    if flow_forms.shows_rules(form, kind):
        rows = form.rows = FilterRows.from_form(form.lists)
        if rows.apply_action(form.lists):
            return None
        raw["filters"] = rows.to_filters() or None
    return raw


@pages.post("/<flow_id:int>/steps/<step_id:int>/move")
@signed_in("flows:write")
async def move_step(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Move a step one place up or down, or to the form's position. Raises NotFound for an invalid position."""
    form = StepForm.from_request(request)
    where: Any = {"up": -1, "down": 1}.get(form["to"]) or document.parse_position(form["to"])
    if where is None:
        raise errors.NotFound
    await commit(drafts.move_step, visit.account_id, flow_id, step_id, where, visit.actor)
    return await _render_after(request, visit, flow_id, str(step_id))


@pages.post("/<flow_id:int>/steps/<step_id:int>/duplicate")
@signed_in("flows:write")
async def duplicate_step(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Add a copy of a step of a flow after it."""
    created = await commit(drafts.duplicate_step, visit.account_id, flow_id, step_id, visit.actor)
    return await _render_after(request, visit, flow_id, str(created))


@pages.post("/<flow_id:int>/steps/<step_id:int>/remove")
@signed_in("flows:write")
async def remove_step(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Remove a step and its branches; the notice offers to undo it."""
    previous_steps = await commit(drafts.delete_step, visit.account_id, flow_id, step_id, visit.actor)
    _steps_before_removal[flow_id] = previous_steps
    _steps_before_removal.move_to_end(flow_id)
    while len(_steps_before_removal) > _MAX_REMOVED:
        _steps_before_removal.popitem(last=False)
    deleted = document.find_step(previous_steps, step_id) or {"type": "exit"}
    below = len(document.list_descendants(deleted))
    label = gettext(BY_TYPE[deleted["type"]].label)
    notice = gettext("Step removed: %(step)s.", step=label)
    if below:
        notice = ngettext(
            "Step removed: %(step)s, with %(num)s step in its branches.",
            "Step removed: %(step)s, with %(num)s steps in its branches.",
            below, step=label,
        )  # fmt: skip
    view.flash(request, notice, (f"/flows/{flow_id}/undo", {"step": str(step_id)}))
    location = document.locate_step(previous_steps, step_id)
    near: int | str = location.parent["id"] if location and location.parent else START
    if location and location.at:
        near = location.siblings[location.at - 1]["id"]
    return view.redirect(request, step_url(flow_id, near))


@pages.post("/<flow_id:int>/undo")
@signed_in("flows:write")
async def undo_remove_step(request: Request, visit: Visit, flow_id: int) -> HTTPResponse:
    """Restore the steps that a flow had before the last removal."""
    await fetch(store.find, visit.account_id, flow_id)
    previous_steps = _steps_before_removal.pop(flow_id, None)
    shows: str = StepForm.from_request(request)["step"] or START
    if previous_steps is None or not shows.isdecimal():
        view.flash(request, gettext("This step can no longer be restored."))
        return view.redirect(request, f"/flows/{flow_id}")
    await commit(drafts.restore_steps, visit.account_id, flow_id, previous_steps, visit.actor)
    return view.redirect(request, step_url(flow_id, shows))


async def _render_after(request: Request, visit: Visit, flow_id: int, shows: str) -> HTTPResponse:
    if view.is_partial(request):
        return await render_panel(request, visit, flow_id, shows)
    return view.redirect(request, step_url(flow_id, shows))
