"""The table of sign-up forms, the settings of a form, its QR codes, and the snippet to embed it."""

from typing import Any, Literal

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts, audit
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop
from appliance.forms import store, submissions
from appliance.sending.domains import records
from appliance.sending.messages import senders
from appliance.settings import config
from appliance.storage.transactions import commit, fetch
from appliance.tracking import page_style
from ui import formats, view
from ui.forms import Form, edit_conflicts, list_params, lookups
from ui.forms.edit_conflicts import FormPart, FormParts
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit
from ui.widgets import charts

pages = Pages("ui_forms", url_prefix="/forms")

_PAGE_SIZE = 50
_FIELD_LABELS = {
    "first_name": gettext_noop("First name"), "last_name": gettext_noop("Last name"),
    "phone": gettext_noop("Phone number"), "language": gettext_noop("Language"),
}  # fmt: skip
_FIELD_NAMES = tuple(_FIELD_LABELS)
_FIELDS, _LISTS = gettext_noop("Fields"), gettext_noop("Lists")
_FORM_PARTS = FormParts(
    FormPart(gettext_noop("Name"), ("name",)),
    FormPart(_FIELDS, ("asked",), True),
    FormPart(gettext_noop("Custom fields"), ("others",)),
    FormPart(gettext_noop("Consent text"), ("consent_text",)),
    FormPart(gettext_noop("Double opt-in"), ("double_opt_in",), True),
    FormPart(_LISTS, ("list_ids",), True),
    FormPart(gettext_noop("Thank-you page"), ("redirect_url",)),
    FormPart(gettext_noop("Allowed origins"), ("origins",)),
)


@pages.get("/", name="index", strict_slashes=False)
@signed_in()
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table of sign-up forms."""
    raw, search = list_params(request, _PAGE_SIZE)
    page = await fetch(store.list_forms, visit.account_id, validation.read(store.FormQuery, raw))
    return view.render(request, "forms/index.html", page=page, search=search)


@pages.get("/new", name="new")
@signed_in("contacts:write")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the settings of a new sign-up form, with first name and double opt-in selected."""
    form = Form({"double_opt_in": "yes"}, {"asked": ["first_name"]})
    return await _render_form(request, visit, form, None, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in("contacts:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a sign-up form, and redirect to it."""
    form = Form.from_request(request)
    form.require("name", gettext("Enter a name. It is shown above the fields."))
    try:
        if form.errors:
            raise errors.Invalid({})
        args = (store.create, visit.account_id, validation.read(store.FormWrite, _read_fields(form, [])))
        created = await commit(audit.run_and_record, visit.actor, "form_add", *args)
    except errors.Invalid as error:
        return await _render_form(request, visit, _add_errors(form, error), None, 422)
    view.flash(
        request, gettext("%(name)s is ready. Share its link, or paste its HTML into your website.", name=created.name)
    )
    return view.redirect(request, f"/forms/{created.id}")


@pages.get("/<form_id:int>", name="show")
@signed_in()
async def show(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Show a sign-up form: its lists and fields, QR code, snippet to embed, and problems of confirmation emails."""
    row = await fetch(store.get, visit.account_id, form_id)
    lists = [
        contact_list
        for contact_list in await fetch(lookups.list_contact_lists, visit.account_id)
        if contact_list.id in row.list_ids
    ]
    style = await fetch(page_style.get_page_style, visit.account_id)
    html = submissions.render_snippet(row, style.language)
    sender_problems = await fetch(_list_sender_problems, visit.account_id)
    return view.render(
        request, "forms/show.html", row=row, lists=lists, snippet=html, field_labels=_label_fields(row),
        sender_problems=sender_problems, code=charts.draw_qr(row.url), public=records.has_public_name(),
    )  # fmt: skip


@pages.get("/<form_id:int>/qr.svg", name="qr_svg")
@signed_in()
async def download_qr_svg(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Download the QR code of a form's page as SVG."""
    return await _render_qr(visit, form_id, "svg", "image/svg+xml")


@pages.get("/<form_id:int>/qr.png", name="qr_png")
@signed_in()
async def download_qr_png(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Download the QR code of a form's page as PNG."""
    return await _render_qr(visit, form_id, "png", "image/png")


async def _render_qr(visit: Visit, form_id: int, kind: Literal["svg", "png"], media_type: str) -> HTTPResponse:
    row = await fetch(store.get, visit.account_id, form_id)
    headers = {"content-disposition": f'attachment; filename="form-{row.id}.{kind}"'}
    return HTTPResponse(await fetch(charts.render_qr_file, row.url, kind), 200, headers, media_type)


@pages.get("/<form_id:int>/edit", name="edit")
@signed_in("contacts:write")
async def edit(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Show the settings of a sign-up form."""
    row = await fetch(store.get, visit.account_id, form_id)
    return await _render_form(request, visit, edit_conflicts.open_form(_build_form(row), _FORM_PARTS), row, 200)


@pages.post("/<form_id:int>", name="update")
@signed_in("contacts:write")
@edit_conflicts.retry_on_change
async def update(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Save the settings of a sign-up form."""
    form = Form.from_request(request)
    row = await fetch(store.get, visit.account_id, form_id)
    list_names = {
        str(contact_list.id): contact_list.name
        for contact_list in await fetch(lookups.list_contact_lists, visit.account_id)
    }
    edit_conflicts.merge_form(form, _FORM_PARTS, _build_form(row), {_LISTS: list_names, _FIELDS: _field_labels()})
    if form.conflicts:
        return await _render_form(request, visit, form, row, 409)
    form.require("name", gettext("Enter a name. It is shown above the fields."))
    try:
        if form.errors:
            raise errors.Invalid({})
        body = validation.read(store.FormPatch, _read_fields(form, row.fields))
        args = (audit.run_and_record, visit.actor, "form_update", store.update, visit.account_id, form_id, body)
        await commit(
            edit_conflicts.write_if_unchanged,
            form,
            _FORM_PARTS,
            lambda: _build_form(store.get(visit.account_id, form_id)),
            *args,
        )
    except errors.Invalid as error:
        return await _render_form(request, visit, _add_errors(form, error), row, 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, f"/forms/{form_id}")


@pages.post("/<form_id:int>/delete", name="delete")
@signed_in("contacts:write")
async def delete(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Delete a sign-up form; the contacts who signed up are kept."""
    deleted = await commit(audit.run_and_record, visit.actor, "form_delete", store.delete, visit.account_id, form_id)
    view.flash(request, gettext("The form %(name)s was deleted. Contacts who signed up are kept.", name=deleted.name))
    return view.redirect(request, "/forms")


def _field_labels() -> dict[str, str]:
    """Return the label of each field of contacts that a form can ask for, by its name."""
    return {name: gettext(label) for name, label in _FIELD_LABELS.items()}


def _label_fields(row: Any) -> list[str]:
    """Return the labels of the fields of a form; a field without a label gets its name as label."""
    labels = _field_labels() | {"email": gettext("Email address")}
    return [
        field.label or labels.get(field.name) or (field.key or field.name).replace("_", " ").capitalize()
        for field in store.list_fields(row)
    ]


def _list_sender_problems(account_id: int) -> list[str]:
    """Return sentences that say why confirmation emails cannot be sent; empty if they can."""
    account = accounts.get(account_id)
    transport = config.current().email.transport
    problems = senders.find_email_problems(account, senders.resolve_email(account, None), transport, marketing=False)
    return [formats.sentence(text) for _, text in problems]


def _build_form(row: Any) -> Form:
    """Return the form with the stored settings of a sign-up form."""
    fields = store.list_fields(row)
    values = {
        "name": row.name, "consent_text": row.consent_text or "", "redirect_url": row.redirect_url or "",
        "origins": "\n".join(row.origins), "double_opt_in": "yes" if row.double_opt_in else "",
        "others": "\n".join(field.key for field in fields if field.key),
    }  # fmt: skip
    names = [field.name for field in fields if field.name in _FIELD_NAMES]
    return Form(values, {"asked": names, "list_ids": [str(id_) for id_ in row.list_ids]})


def _read_fields(form: Form, stored_fields: list[Any]) -> dict[str, Any]:
    """Return the settings of a posted form.

    `stored_fields` are the fields that the sign-up form has already; they keep their labels and whether they are
    required.
    """
    fields_by_name = {item["name"]: item for item in stored_fields if isinstance(item, dict)}
    names = ["email", *(name for name in _FIELD_NAMES if name in form.getlist("asked"))]
    data_keys = [line.strip() for line in form["others"].splitlines() if line.strip()]
    keys = [f"data.{line.removeprefix('data.').replace(' ', '_').lower()}" for line in data_keys]
    return {
        "name": form["name"], "list_ids": form.ids("list_ids"), "double_opt_in": form["double_opt_in"] == "yes",
        "fields": [fields_by_name.get(name, name) for name in (*names, *keys)],
        "consent_text": form.text("consent_text"),
        "redirect_url": form.text("redirect_url"),
        "origins": [line.strip() for line in form["origins"].splitlines() if line.strip()],
    }  # fmt: skip


def _add_errors(form: Form, error: errors.Invalid) -> Form:
    """Add the errors of an Invalid to the fields of the settings, and return the form."""
    for path in error.fields:
        if path.startswith("origins"):
            form.add_error("origins", gettext("Enter each origin as https://shop.example, without a path."))
        elif path.startswith("fields"):
            form.add_error("others", gettext("Use only letters, digits and _, and each name once."))
        elif path == "redirect_url":
            form.add_error("redirect_url", gettext("Enter a full URL, such as https://shop.example/thanks."))
    other_errors = {
        path: messages for path, messages in error.fields.items() if not path.startswith(("origins", "fields"))
    }
    return form.add_errors(errors.Invalid(other_errors)) if other_errors else form


async def _render_form(request: Request, visit: Visit, form: Form, row: Any, status: int) -> HTTPResponse:
    lists = [
        contact_list
        for contact_list in await fetch(lookups.list_contact_lists, visit.account_id)
        if contact_list.segment_id is None
    ]
    return view.render(request, "forms/form.html", status, form=form, row=row, lists=lists)
