"""What the page of a flow needs: its tree, what is chosen in it, and the form of that."""

from collections.abc import Mapping, Sequence
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.core.errors import Invalid
from appliance.flows import document, draft_edits, people, publishing, report, states, tree, triggers, version_snapshot
from appliance.flows.draft_edits import Sketch
from appliance.flows.states import Blocker
from appliance.flows.steps import BY_TYPE, KINDS
from appliance.sending.messages import sample_render
from appliance.storage.work import call
from ui import filter_look, flow_forms, flow_together, flow_tree, rights, together, view, words
from ui import people as named
from ui.filter_look import BRANCH
from ui.filters import Rows
from ui.flow_forms import StepForm
from ui.session import Visit

RANGES = (("all", "All time"), ("30d", "30 days"), ("7d", "7 days"))
START = "start"


def facts(
    visit: Visit, flow_id: int, query: Mapping[str, Any], form: StepForm | None = None, shows: str | None = None
) -> dict[str, Any]:
    """Return all that the page of a flow shows; `shows` is what stands beside the tree, `form` what was typed there."""
    flow = people.flow_of(visit.account_id, flow_id)
    drawn = draft_edits.seen(flow)
    said = draft_edits.said(drawn.steps)
    span = query.get("range") if query.get("range") in dict(RANGES) else "all"
    known = report.of(flow, span) if flow.version else None  # type: ignore[arg-type]  # one of the three
    numbers = flow_tree.figures(known)
    changes = publishing.differences(visit.account_id, flow_id) if drawn.is_changed else []
    blocked = draft_edits.blockers(drawn, visit.by) if flow.status != "archived" else []
    lacks: dict[int, list[str]] = {}
    for step_id, one in blocked:
        if step_id is not None:
            lacks.setdefault(step_id, []).append(words.sentence(one.message))
    marks = {one.step_id: one.what for one in changes if one.step_id is not None}
    chosen = _chosen(query) if shows is None else shows
    step = tree.find(said, int(chosen)) if chosen.isdecimal() else None
    where = tree.spot(str(query.get("at") or ""))
    kind = str(query.get("add") or "")
    return {
        "flow": flow, "drawn": drawn, "cards": flow_tree.cards(drawn, said, numbers, lacks, marks),
        "known": known, "numbers": numbers, "span": span, "ranges": RANGES, "changes": changes,
        "start": flow_tree.start_words(visit.account_id, drawn.start), "lookup": flow_tree.page_of,
        "findings": findings(drawn, blocked, said), "unfinished": unfinished(drawn, said),
        "start_lacks": [one for step_id, one in blocked if step_id is None and one.field.startswith("trigger")],
        "approval": rights.approval_of(visit, flow, f"/flows/{flow_id}", [one.code for _, one in blocked]),
        "inside": sum(publishing.inside(flow_id).values()), "kinds": KINDS, "wants_start": False, "form_errors": {},
        "saved": shows is not None, "wrong": _is_wrong(form),
        "may_edit": visit.user.role != "viewer" and flow.status != "archived",
        "may_send": visit.user.role in ("owner", "admin", "editor"), "range_query": "" if span == "all" else span,
        "at": str(where) if where is not None else "", "adding": kind if kind in BY_TYPE and where else "",
        **_panel(visit, drawn, said, step, kind if where else "", form, known),
    }  # fmt: skip


def _is_wrong(form: StepForm | None) -> bool:
    """Return whether what was sent is not saved: something is wrong with it, or others saved meanwhile."""
    return form is not None and bool(form.errors or form.met or (form.where is not None and form.where.met))


def findings(
    drawn: Sketch, blocked: Sequence[tuple[int | None, Blocker]], said: Sequence[Any]
) -> list[tuple[str, str, str]]:
    """Return what keeps a flow from going live as a checklist, each line leading to where it is mended."""
    titles = {step["id"]: flow_tree.said(drawn.flow.account_id, step)[0] for _, step in document.walk(said)}
    found = []
    for step_id, one in blocked:
        words_of = _BLOCKED.get(one.field) or words.sentence(one.message)
        if step_id is not None:
            words_of = f"{titles[step_id]}: {words.inside(words_of)}"
        found.append(("bad", words_of, f"/flows/{drawn.flow.id}?step={step_id or START}"))
    return found


def unfinished(drawn: Sketch, said: Sequence[Any]) -> list[tuple[str, str, str]]:
    """Return what is unfinished in the emails of a flow as a checklist, each line leading to its section."""
    flow, rows = drawn.flow, []
    for _, step, one in states.unfinished(flow.account_id, said):
        title, here = flow_tree.said(flow.account_id, step)[0], f"/flows/{flow.id}/steps/{step['id']}/content"
        path = one.field.removeprefix("design.")
        href = f"{here}?path={path}" if path != one.field else here
        rows.append(("warn", f"{title}: {words.inside(words.sentence(one.message))}", href))
    return rows


_BLOCKED = {
    "trigger.event": "Choose what starts it.", "trigger.segment_id": "Choose the segment that starts it.",
    "trigger.data.path": "Say where the date stands that starts it.", "steps": "Add a first step.",
}  # fmt: skip


def _chosen(query: Mapping[str, Any]) -> str:
    asked = str(query.get("step") or "")
    return asked if asked.isdecimal() and len(asked) < 10 else START


def _panel(
    visit: Visit, drawn: Sketch, said: list[Any], step: Any, kind: str, form: StepForm | None, known: Any
) -> dict[str, Any]:
    """Return what stands beside the tree: the form of a step, of a new one, or of the start."""
    found: dict[str, Any] = {
        "step": step, "chosen": step["id"] if step else START, "kind": None, "figures": None, "title": "",
        "places": [], "below": 0, "waiting": 0, "above": 0, "sibling": (0, 0),
        "starts": flow_forms.STARTS, "events": flow_forms.starting_events(), "units": flow_forms.UNITS,
        "revision": 0, "texted": None, "shown": None, "pickable": [],
        "conditions": len(drawn.start.data.get("where") or []), "where": None, "pick_segments": [], "usual": "",
    }  # fmt: skip
    if kind in BY_TYPE:
        found |= {"kind": BY_TYPE[kind], "form": form or flow_forms.shown({"type": kind, "duration": 86_400})}
    elif step is not None:
        found["texted"] = _texted(visit, step) if step["type"] == "sms" else None
        found |= {
            "kind": BY_TYPE[step["type"]], "form": form or _opened(step), **_standing(drawn, said, step),
            "title": flow_tree.said(visit.account_id, step)[0],
            "revision": version_snapshot.of_steps([step])[0].revision if step.get("template_id") else 0,
            "figures": next((one for one in known.steps if one.id == step["id"]), None) if known else None,
        }  # fmt: skip
    else:
        found["form"] = form or together.opened(flow_forms.start_shown(drawn.start, drawn.goal), flow_together.START)
        found["where"] = (form and form.where) or together.opened(flow_together.where(drawn.start), flow_together.WHERE)
        kept = segments.page(visit.account_id, SegmentQuery(limit=100)).rows
        found["pick_segments"] = sorted(((str(row.id), row.name) for row in kept), key=lambda one: one[1].casefold())
        plain = drawn.start._replace(data={})
        found["usual"] = "As usual: " + ("once" if triggers.frequency(plain) == "once" else "each time")
    found["tone"] = flow_tree.TONES.get(found["kind"].icon, "good") if found["kind"] else "good"
    takes = {field.type for field in found["kind"].fields} if found["kind"] else {"list", "filters"}
    if "list" in takes:
        # A list that mirrors a segment has no comings and goings of its own
        found["pickable"] = [
            (str(row.id), row.name) for row in named.all_lists(visit.account_id) if row.segment_id is None
        ]
    if "filters" in takes:
        asked = drawn.start.data.get("where") if found["kind"] is None else step["filters"] if step else []
        rows = (form.rows if form is not None else None) or (Rows.of(asked) if asked else Rows.blank())
        rows.event = drawn.start.event or ""
        found["shown"] = filter_look.look(visit.account_id, rows, BRANCH)
    return found


def _opened(step: dict[str, Any]) -> StepForm:
    return together.opened(flow_together.shown(step), flow_together.of_step(step["type"]))


def _texted(visit: Visit, step: Any) -> Any:
    """Return an SMS as somebody made up would get it, with what it takes; None if it cannot be made."""
    body = (step.get("content") or {}).get("body") or ""
    asked = sample_render.PreviewRequest(
        document={}, body=body, channel="sms", transactional=bool(step["transactional"])
    )
    try:
        return sample_render.preview(visit.account_id, asked).sms
    except Invalid:
        return None


def _standing(drawn: Sketch, said: list[Any], step: Any) -> dict[str, Any]:
    """Return where a step stands, where else it may stand, and who stands in it and before it."""
    place = tree.place(drawn.steps, step["id"])
    stand = publishing.inside(drawn.flow.id)
    above = sum(stand.get(one["id"], 0) for one in tree.above(drawn.steps, step["id"]))
    titles = {one["id"]: flow_tree.said(drawn.flow.account_id, one)[0] for _, one in document.walk(said)}
    places = [
        (str(one.where), "\u2003" * one.depth + _place_words(one, titles))
        for one in tree.valid(drawn.steps, step["id"])
    ]
    below = [one["id"] for one in tree.below(step)]
    return {
        "places": places, "below": len(below), "above": above,
        "waiting": sum(stand.get(one, 0) for one in (step["id"], *below)),
        "sibling": (place.at, len(place.siblings)) if place else (0, 0),
    }  # fmt: skip


def _place_words(one: tree.Valid, titles: dict[int, str]) -> str:
    if one.step is None:
        return "At the start"
    title = titles[one.step["id"]][:60]
    how = one.where.how
    return f"After “{title}”" if how == tree.AFTER else f"First in {how.capitalize()} of “{title}”"


async def panel(
    request: Request, visit: Visit, flow_id: int, shows: str, form: StepForm | None = None, status: int = 200
) -> HTTPResponse:
    """Return the page, or the part of it that was saved, with what else changes by that."""
    found = await call(facts, visit, flow_id, request.args, form, shows)
    return view.page(request, "flows/show.html", status, also=("tree", "state", "acts", "banner"), **found)


def step_path(flow_id: int, shows: int | str) -> str:
    """Return the page of a flow with a step beside it."""
    return f"/flows/{flow_id}?step={shows}"


async def saved(request: Request, visit: Visit, flow_id: int, shows: str) -> HTTPResponse:
    """Return what was saved, or the page with it where no script asked."""
    if view.is_part(request):
        return await panel(request, visit, flow_id, shows)
    view.say(request, "Saved.")
    return view.go(request, step_path(flow_id, shows))
