"""Contact lists over the API."""

from appliance.api import shapes, shaping
from appliance.api.declare import Answer, Call, Routes
from appliance.api.reply import page_headers
from appliance.contacts import lists
from appliance.contacts.lists import ListCreate, ListPatch, ListQuery
from appliance.db.work import call, commit
from appliance.tables import ContactList

ROUTES = Routes()


def _shaped(row: ContactList) -> shapes.ContactList:
    return shaping.contact_list(row, lists.sendable(row.id))


@ROUTES.add("GET", "/lists", scope="contacts:read", query=ListQuery, returns=shapes.ContactList, many=True)
async def index(request: Call) -> Answer:
    """List contact lists, newest first."""
    page = await call(lists.page, request.account_id, request.query)
    return Answer(await call(lambda: [_shaped(row) for row in page.rows]), headers=page_headers(page))


@ROUTES.add("POST", "/lists", scope="contacts:write", reads=ListCreate, returns=shapes.ContactList, status=201)
async def create(request: Call) -> Answer:
    """Create a list."""
    return Answer(await call(_shaped, await commit(lists.create, request.account_id, request.body)))


@ROUTES.add("GET", "/lists/{id}", scope="contacts:read", returns=shapes.ContactList)
async def show(request: Call) -> Answer:
    """Get a list."""
    return Answer(await call(lambda: _shaped(lists.get(request.account_id, request.id))))


@ROUTES.add("PATCH", "/lists/{id}", scope="contacts:write", reads=ListPatch, returns=shapes.ContactList)
async def update(request: Call) -> Answer:
    """Update a list; `contact_ids` replaces its members."""
    return Answer(await call(_shaped, await commit(lists.update, request.account_id, request.id, request.body)))


@ROUTES.add("DELETE", "/lists/{id}", scope="contacts:write", returns=shapes.ContactList)
async def delete(request: Call) -> Answer:
    """Delete a list; its people stay."""

    def verb() -> shapes.ContactList:
        shaped = _shaped(lists.get(request.account_id, request.id))
        lists.delete(request.account_id, request.id)
        return shaped

    return Answer(await commit(verb))
