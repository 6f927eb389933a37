"""Endpoints of sign-up forms."""

from typing import Annotated

from msgspec import Meta, Struct

from appliance.accounts import audit
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.http import page_headers
from appliance.api.schemas import Moment
from appliance.core.clock import iso
from appliance.forms import store
from appliance.forms.fields import FormField
from appliance.forms.store import FormPatch, FormQuery, FormWrite
from appliance.storage import models
from appliance.storage.transactions import commit, fetch


class Form(Struct):
    """A sign-up form; `url` is its hosted page."""

    id: int
    account_id: int
    name: str
    language: (
        Annotated[
            str,
            Meta(
                description="language of the form, of its confirmations, and of new contacts; null for that of the "
                "browser"
            ),
        ]
        | None
    )
    list_ids: Annotated[list[int], Meta(description="ids of the lists that contacts join")]
    origins: Annotated[
        list[str],
        Meta(
            description="origins of the sites that may submit the form and read the response, such as "
            "`https://example.org`"
        ),
    ]
    fields: Annotated[
        list[str | FormField],
        Meta(
            description="fields of the form: `email`, `phone`, `first_name`, `last_name`, `language` or keys of "
            "`data`, each as a name or an object"
        ),
    ]
    double_opt_in: Annotated[
        bool, Meta(description="whether contacts confirm their address through a link in an email")
    ]
    redirect_url: (
        Annotated[
            str, Meta(description="URL to which the browser is redirected after submission; null for the built-in page")
        ]
        | None
    )
    consent_text: Annotated[str, Meta(description="consent text, stored as evidence")] | None
    title: Annotated[str, Meta(description="heading of the form; null for its name")] | None
    intro: Annotated[str, Meta(description="text below the heading")] | None
    button_text: Annotated[str, Meta(description="text of the button; null for the built-in text")] | None
    thanks_title: Annotated[str, Meta(description="heading after submission; null for the built-in heading")] | None
    thanks_text: Annotated[str, Meta(description="text after submission; null for the built-in text")] | None
    topic_ids: Annotated[list[int], Meta(description="ids of the public lists that visitors may choose from, in order")]
    topics_required: Annotated[bool, Meta(description="whether visitors must choose at least one of `topic_ids`")]
    public_key: Annotated[str, Meta(description="public key that identifies the form in submissions")]
    url: Annotated[str, Meta(extra_json_schema={"format": "uri"}), Meta(description="URL of the form's own page")]
    submissions_count: Annotated[int, Meta(description="number of submissions")]
    confirmed_count: Annotated[int, Meta(description="number of submissions with a confirmed address")]
    created_at: Moment
    updated_at: Moment


def serialize_form(row: models.Form) -> Form:
    """Return the API representation of a sign-up form."""
    return Form(
        row.id, row.account_id, row.name, row.language, row.list_ids, row.origins,
        [field if isinstance(field, str) else FormField(**field) for field in row.fields], row.double_opt_in,
        row.redirect_url, row.consent_text, row.title, row.intro, row.button_text, row.thanks_title, row.thanks_text,
        row.topic_ids, row.topics_required, row.public_key, row.url, row.submissions_count, row.confirmed_count,
        str(iso(row.created_at)), str(iso(row.updated_at)),
    )  # fmt: skip


ROUTES = Routes()


@ROUTES.add("GET", "/forms", scope="contacts:read", query_type=FormQuery, response_type=Form, returns_list=True)
async def list_forms(request: ApiRequest) -> ApiResponse:
    """List forms, newest first."""
    page = await fetch(store.list_forms, request.account_id, request.query)
    return ApiResponse([serialize_form(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST",
    "/forms",
    scope="contacts:write",
    body_type=FormWrite,
    validate=validator(store.check_request),
    response_type=Form,
    status=201,
)
async def create_form(request: ApiRequest) -> ApiResponse:
    """Create a form."""
    return ApiResponse(
        serialize_form(
            await commit(
                audit.run_and_record, request.caller, "form_add", store.create, request.account_id, request.body
            )
        )
    )


@ROUTES.add("GET", "/forms/{id}", scope="contacts:read", response_type=Form)
async def get_form(request: ApiRequest) -> ApiResponse:
    """Get a form."""
    return ApiResponse(serialize_form(await fetch(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH",
    "/forms/{id}",
    scope="contacts:write",
    body_type=FormPatch,
    validate=validator(store.check_request),
    response_type=Form,
)
async def update_form(request: ApiRequest) -> ApiResponse:
    """Update a form."""
    args = (request.account_id, request.id, request.body)
    return ApiResponse(
        serialize_form(await commit(audit.run_and_record, request.caller, "form_update", store.update, *args))
    )


@ROUTES.add("DELETE", "/forms/{id}", scope="contacts:write", response_type=Form)
async def delete_form(request: ApiRequest) -> ApiResponse:
    """Delete a form; contacts who signed up through it are kept."""
    args = (request.account_id, request.id)
    return ApiResponse(
        serialize_form(await commit(audit.run_and_record, request.caller, "form_delete", store.delete, *args))
    )
