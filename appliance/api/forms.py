"""Sign-up forms over the API."""

from appliance.account import audit
from appliance.api import form_shapes
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked
from appliance.api.reply import page_headers
from appliance.db.work import call, commit
from appliance.forms import store
from appliance.forms.store import FormPatch, FormQuery, FormWrite

ROUTES = Routes()


@ROUTES.add("GET", "/forms", scope="contacts:read", query=FormQuery, returns=form_shapes.Form, many=True)
async def index(request: Call) -> Answer:
    """List forms, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer([form_shapes.form(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST",
    "/forms",
    scope="contacts:write",
    reads=FormWrite,
    inside=checked(store.check),
    returns=form_shapes.Form,
    status=201,
)
async def create(request: Call) -> Answer:
    """Create a form."""
    return Answer(
        form_shapes.form(
            await commit(audit.noting, request.by, "form_add", store.create, request.account_id, request.body)
        )
    )


@ROUTES.add("GET", "/forms/{id}", scope="contacts:read", returns=form_shapes.Form)
async def show(request: Call) -> Answer:
    """Get a form."""
    return Answer(form_shapes.form(await call(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH",
    "/forms/{id}",
    scope="contacts:write",
    reads=FormPatch,
    inside=checked(store.check),
    returns=form_shapes.Form,
)
async def update(request: Call) -> Answer:
    """Update a form."""
    args = (request.account_id, request.id, request.body)
    return Answer(form_shapes.form(await commit(audit.noting, request.by, "form_update", store.update, *args)))


@ROUTES.add("DELETE", "/forms/{id}", scope="contacts:write", returns=form_shapes.Form)
async def delete(request: Call) -> Answer:
    """Delete a form; whoever signed up through it stays."""
    args = (request.account_id, request.id)
    return Answer(form_shapes.form(await commit(audit.noting, request.by, "form_delete", store.delete, *args)))
