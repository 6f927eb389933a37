"""Makes one person of two: found, compared, merged."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import merge, requests, store, timeline
from appliance.core import errors, fields
from appliance.storage.work import call, commit
from ui import people, view, words
from ui.forms import Form, listing, number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_contact_merge", url_prefix="/contacts")
_LIMIT = 20


@pages.get("/<contact_id:int>/merge", name="ask")
@signed_in
async def ask(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Whom to merge with; once that is chosen, what the two have and what becomes of it."""
    return await _page(request, visit, contact_id, number(request.args.get("with"), 0), Form(), 200)


@pages.post("/<contact_id:int>/merge", name="merge")
@signed_in
async def merge_two(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Merge the two: who is kept keeps their own name and data where both have some."""
    form = Form.of(request)
    other = number(form["with"], 0)
    kept, gone = (other, contact_id) if form["keep"] == "other" else (contact_id, other)
    try:
        await call(store.get, visit.account_id, contact_id)
        args = (merge.merge, visit.account_id, kept, gone, people.evidence(visit))
        told = {"merged_contact_id": gone}
        one = await commit(audit.noting, visit.by, "contact_merge", *args, data=told)
    except errors.Invalid:
        form.wrong("base", "Choose another person: this one is not here any more.")
        return await _page(request, visit, contact_id, 0, form, 422)
    view.say(request, f"{words.name(one)} is one person now.")
    return view.go(request, f"/contacts/{one.id}")


async def _page(
    request: Request, visit: Visit, contact_id: int, other_id: int, form: Form, status: int
) -> HTTPResponse:
    raw, search = listing(request, _LIMIT)
    found = await call(_found, visit.account_id, contact_id, other_id, raw)
    return view.page(request, "contacts/merge.html", status, form=form, search=search, **found)


def _found(account_id: int, contact_id: int, other_id: int, raw: dict[str, Any]) -> dict[str, Any]:
    contact = store.get(account_id, contact_id)
    other = next(iter(store.by_ids([other_id])), None) if other_id and other_id != contact_id else None
    return {
        "contact": contact,
        "other": other if other and other.account_id == account_id else None,
        "alike": timeline.alike(account_id, contact_id),
        "found": store.page(account_id, fields.read(requests.ContactQuery, raw)) if raw.get("search") else None,
        "lists": {row.id: row.name for row in people.all_lists(account_id)},
    }
