"""Sign-up forms over the API."""

from typing import Annotated

from msgspec import Meta, Struct

from appliance.accounts import audit
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import page_headers
from appliance.api.shapes import Moment
from appliance.core.clock import iso
from appliance.forms import store
from appliance.forms.store import FormField, FormPatch, FormQuery, FormWrite
from appliance.storage import models
from appliance.storage.work import call, commit

# Shapes of sign-up forms.


class Form(Struct):
    """A form through which people sign themselves up; `url` is its own page."""

    id: int
    account_id: int
    name: str
    list_ids: list[int]
    origins: list[str]
    fields: list[str | FormField]
    double_opt_in: bool
    redirect_url: str | None
    consent_text: str | None
    public_key: str
    url: Annotated[str, Meta(extra_json_schema={"format": "uri"})]
    submissions_count: int
    confirmed_count: int
    created_at: Moment
    updated_at: Moment


def form(row: models.Form) -> Form:
    """Shape a form."""
    return Form(
        row.id, row.account_id, row.name, row.list_ids, row.origins,
        [one if isinstance(one, str) else FormField(**one) for one in row.fields], row.double_opt_in,
        row.redirect_url, row.consent_text, row.public_key, row.url, row.submissions_count, row.confirmed_count,
        str(iso(row.created_at)), str(iso(row.updated_at)),
    )  # fmt: skip


ROUTES = Routes()


@ROUTES.add("GET", "/forms", scope="contacts:read", query=FormQuery, returns=Form, many=True)
async def index(request: Call) -> Answer:
    """List forms, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer([form(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST",
    "/forms",
    scope="contacts:write",
    reads=FormWrite,
    inside=checked(store.check),
    returns=Form,
    status=201,
)
async def create(request: Call) -> Answer:
    """Create a form."""
    return Answer(
        form(await commit(audit.noting, request.by, "form_add", store.create, request.account_id, request.body))
    )


@ROUTES.add("GET", "/forms/{id}", scope="contacts:read", returns=Form)
async def show(request: Call) -> Answer:
    """Get a form."""
    return Answer(form(await call(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH",
    "/forms/{id}",
    scope="contacts:write",
    reads=FormPatch,
    inside=checked(store.check),
    returns=Form,
)
async def update(request: Call) -> Answer:
    """Update a form."""
    args = (request.account_id, request.id, request.body)
    return Answer(form(await commit(audit.noting, request.by, "form_update", store.update, *args)))


@ROUTES.add("DELETE", "/forms/{id}", scope="contacts:write", returns=Form)
async def delete(request: Call) -> Answer:
    """Delete a form; whoever signed up through it stays."""
    args = (request.account_id, request.id)
    return Answer(form(await commit(audit.noting, request.by, "form_delete", store.delete, *args)))
