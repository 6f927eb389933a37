"""Contact lists over the API."""

from appliance.accounts import audit
from appliance.api import shapes, shaping
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import page_headers
from appliance.audience.contacts import bulk, lists
from appliance.audience.contacts.bulk import BulkDone, BulkWrite
from appliance.audience.contacts.lists import ListCreate, ListPatch, ListQuery
from appliance.storage.models import ContactList
from appliance.storage.work import call, commit

ROUTES = Routes()


def _shaped(row: ContactList) -> shapes.ContactList:
    return shaping.contact_list(row, lists.sendable(row.id))


@ROUTES.add("GET", "/lists", scope="contacts:read", query=ListQuery, returns=shapes.ContactList, many=True)
async def index(request: Call) -> Answer:
    """List contact lists, newest first."""
    page = await call(lists.page, request.account_id, request.query)
    return Answer(await call(lambda: [_shaped(row) for row in page.rows]), headers=page_headers(page))


@ROUTES.add(
    "POST",
    "/lists",
    scope="contacts:write",
    reads=ListCreate,
    inside=checked(lists.check),
    returns=shapes.ContactList,
    status=201,
)
async def create(request: Call) -> Answer:
    """Create a list."""
    return Answer(await call(_shaped, await commit(lists.create, request.account_id, request.body)))


@ROUTES.add("GET", "/lists/{id}", scope="contacts:read", returns=shapes.ContactList)
async def show(request: Call) -> Answer:
    """Get a list."""
    return Answer(await call(lambda: _shaped(lists.get(request.account_id, request.id))))


@ROUTES.add(
    "PATCH",
    "/lists/{id}",
    scope="contacts:write",
    reads=ListPatch,
    inside=checked(lists.check),
    returns=shapes.ContactList,
)
async def update(request: Call) -> Answer:
    """Update a list; `contact_ids` replaces its members."""
    changed = await commit(lists.update, request.account_id, request.id, request.body, request.by)
    return Answer(await call(_shaped, changed))


@ROUTES.add("DELETE", "/lists/{id}", scope="contacts:write", returns=shapes.ContactList)
async def delete(request: Call) -> Answer:
    """Delete a list; its people stay."""

    def verb() -> shapes.ContactList:
        shaped = _shaped(lists.get(request.account_id, request.id))
        audit.noting(request.by, "list_delete", lists.delete, request.account_id, request.id)
        return shaped

    return Answer(await commit(verb))


def _looked_over(account_id: int, request: BulkWrite, number: int) -> None:
    bulk.plan(account_id, number, request)


@ROUTES.add(
    "POST", "/lists/{id}/contacts/bulk", scope="contacts:write", reads=BulkWrite, returns=BulkDone,
    inside=checked(_looked_over, whole=True),
)  # fmt: skip
async def change_many(request: Call) -> Answer:
    """Add and remove many contacts, named by id or e-mail address."""
    plan = await call(bulk.plan, request.account_id, request.id, request.body)
    done = BulkDone(0, 0, plan.unknown, [])
    # In small parts, so that nobody else's write waits for ten thousand; the same request may be repeated
    for start in range(0, len(plan.add), bulk.CHUNK):
        some = plan.add[start : start + bulk.CHUNK]
        joined = await commit(lists.join, request.account_id, request.id, some)
        done.added += joined.number
        done.kept_opt_out = joined.kept or done.kept_opt_out
    for start in range(0, len(plan.remove), bulk.CHUNK):
        some = plan.remove[start : start + bulk.CHUNK]
        done.removed += (await commit(lists.leave, request.account_id, request.id, some)).number
    told = {"added": done.added, "removed": done.removed}
    await commit(audit.note, request.by, request.account_id, "contacts_bulk", f"list:{request.id}", told)
    return Answer(done)
