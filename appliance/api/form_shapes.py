"""Shapes of sign-up forms."""

from typing import Annotated

from msgspec import Meta, Struct

from appliance import tables
from appliance.api.shapes import Moment
from appliance.clock import iso
from appliance.forms.store import FormField


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


def form(row: tables.Form) -> Form:
    """Shape a form."""
    return Form(
        row.id, row.account_id, row.name, row.list_ids, row.origins,
        [one if isinstance(one, str) else FormField(**one) for one in row.fields], row.double_opt_in,
        row.redirect_url, row.consent_text, row.public_key, row.url, row.submissions_count, row.confirmed_count,
        str(iso(row.created_at)), str(iso(row.updated_at)),
    )  # fmt: skip
