"""What is done to segments besides writing them: copied, deleted with a way back, many at once."""

import json
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.segments import dependencies, store
from appliance.audience.segments.store import SegmentCreate, SegmentQuery
from appliance.core import errors, fields
from appliance.storage.models import Segment
from appliance.storage.work import call, commit
from ui import view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.tables import Selection

pages = Pages("ui_segment_acts", url_prefix="/segments")
# Nobody has more than these in one look; who has does it in several
_MAX_IDS = 500
_KINDS = {"campaign_id": "campaigns", "flow_id": "flows", "list_id": "lists", "segment_id": "segments"}


class Chosen(NamedTuple):
    """A segment that is to go: what needs it, so that it cannot, and the drafts that would choose anew."""

    row: Segment
    used: list[tuple[str, str]]
    drafts: list[tuple[str, str]]


@pages.post("/<segment_id:int>/copy", name="copy")
@signed_in
async def copy(request: Request, visit: Visit, segment_id: int) -> HTTPResponse:
    """Make another one with the same rules."""
    row = await call(store.get, visit.account_id, segment_id)
    made = await commit(store.create, visit.account_id, _copied(row))
    view.say(request, f"This is a copy of {row.name}. Change what should differ.")
    return view.go(request, f"/segments/{made.id}")


@pages.post("/acts", name="acts")
@signed_in
async def act(request: Request, visit: Visit) -> HTTPResponse:
    """Copy or delete the chosen segments; one that something needs, or a draft chose, is asked about first."""
    form = Form.of(request)
    chosen = Selection.of(request, form)
    back = chosen.back("/segments")
    found = await call(_chosen, visit.account_id, chosen)
    if not found:
        view.say(request, "Choose some segments first.")
    elif form["act"] == "duplicate":
        for one_of in reversed(found):
            await commit(store.create, visit.account_id, _copied(one_of.row))
        view.say(request, f"{words.count(len(found), 'copy is', 'copies are')} made.")
    elif form["act"] == "delete" and form["expected"] != _told(found) and any(one.used + one.drafts for one in found):
        return view.page(
            request, "segments/sure.html", found=found, going=[one.row for one in found if not one.used],
            expected=_told(found), fields=[("act", "delete"), *chosen.fields], back=back,
        )  # fmt: skip
    elif form["act"] == "delete":
        await _delete(request, visit, found)
    return view.go(request, back)


async def _delete(request: Request, visit: Visit, found: list[Chosen]) -> None:
    """Delete what nothing needs; the message offers to make it again."""
    gone, kept = [], []
    for one in found:
        try:
            args = (store.delete, visit.account_id, one.row.id)
            gone.append(await commit(audit.noting, visit.by, "segment_delete", *args))
        except errors.Invalid:
            kept.append(one.row.name)
    stays = f" Kept, as it is in use: {words.listed(kept)}." if kept else ""
    if not gone:
        view.say(request, stays.strip())
        return
    what = f"The segment {gone[0].name} is" if len(gone) == 1 else f"{words.number(len(gone))} segments are"
    again = json.dumps([{"name": row.name, "filters": row.filters} for row in gone])
    view.say(
        request, f"{what} deleted. The people are still in Contacts.{stays}", ("/segments/restore", {"gone": again})
    )


def _chosen(account_id: int, chosen: Selection) -> list[Chosen]:
    """Return the segments meant: those named, or all that match; what is gone meanwhile is left out."""
    if chosen.is_all:
        words_of = chosen.state.get("search", "")[:254]
        query = SegmentQuery(search=words_of) if words_of else SegmentQuery()
        every, used = store.ids(account_id), dependencies.segments_in_use(account_id)
        only = {"used": used, "unused": every - used}.get(chosen.state.get("show", ""))
        rows = list(store.matching(account_id, query, only).order_by(Segment.id.desc()).limit(_MAX_IDS))
    else:
        rows = list(store.matching(account_id, SegmentQuery(), chosen.ids[:_MAX_IDS]).order_by(Segment.id.desc()))
    return [Chosen(row, _named(store.used_by(account_id, row.id)), _named(store.drafts(account_id, row.id)))
            for row in rows]  # fmt: skip


def _named(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the name and the address of what is named by an id."""
    return [(one["name"], f"/{base}/{one[key]}") for one in found for key, base in _KINDS.items() if key in one]


def _told(found: list[Chosen]) -> str:
    """Return what a question told of, so that it is asked anew where that is otherwise by now."""
    return f"{sum(not one.used for one in found)}-{sum(len(one.drafts) for one in found)}"


def _copied(row: Segment) -> SegmentCreate:
    return fields.read(SegmentCreate, {"name": f"{row.name[:240]}, copy", "filters": row.filters})


@pages.post("/restore", name="restore")
@signed_in
async def restore(request: Request, visit: Visit) -> HTTPResponse:
    """Make deleted segments again."""
    try:
        gone = json.loads(Form.of(request).exact("gone") or "[]")
    except ValueError:
        gone = None
    if not isinstance(gone, list) or not gone or fields.is_too_deep(gone):
        raise errors.NotFound
    asked = [fields.read(SegmentCreate, one) for one in gone[:_MAX_IDS]]
    back = [await commit(store.create, visit.account_id, one) for one in asked]
    only = len(back) == 1
    view.say(request, f"{back[0].name} is back." if only else f"{words.number(len(back))} segments are back.")
    return view.go(request, f"/segments/{back[0].id}" if only else "/segments")
