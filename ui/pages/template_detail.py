"""The pages of one template: form, preview, history, design file, and test send."""

import re
from functools import partial
from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.filters import personal
from appliance.content.designs import document as designs
from appliance.content.templates import agent_drafts, revisions, store, translations
from appliance.content.templates.validation import MAX_DESIGN_BYTES, TemplateWrite
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext
from appliance.core.validation import PageQuery
from appliance.sending.messages import preview, test_sends, utm_links
from appliance.storage.transactions import commit, fetch, render, render_for, render_send
from ui import formats, view
from ui.forms import Form, lookups, parse_id, parse_int
from ui.guard import ignore_double_submit, signed_in
from ui.pages import editor
from ui.pages.campaign_content import describe_sent_tests
from ui.pages.editor import editor_url
from ui.session import Pages, Visit

pages = Pages("ui_template_detail", url_prefix="/templates")

FORM_FIELDS = ("name", "subject", "preheader", "body")
_FIELD_LABELS = {
    "name": gettext_noop("name"), "subject": gettext_noop("subject"), "preheader": gettext_noop("preview text"),
    "body": gettext_noop("content"), "design": gettext_noop("design"), "from_name": gettext_noop("From name"),
    "from_email": gettext_noop("From address"), "reply_to": gettext_noop("Reply-to address"),
    "translations": gettext_noop("Translations"),
}  # fmt: skip


@pages.post("/", strict_slashes=False)
@signed_in("templates:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a template from the form of HTML and text fields."""
    form = Form.from_request(request)
    form.require("name", gettext("Enter a name."))
    try:
        if form.errors:
            raise errors.Invalid({})
        body = _read_form(form)
        prepared = await render(store.prepare, visit.account_id, body)
        created = await commit(partial(store.create, visit.account_id, body, user_id=visit.user.id, prepared=prepared))
    except errors.Invalid as error:
        return view.render(
            request,
            "templates/form.html",
            422,
            form=form.add_errors(error),
            row=None,
            sections=0,
            advice=[],
            is_open_to_agents=False,
        )
    view.flash(request, gettext("Saved."))
    return view.redirect(request, f"/templates/{created.id}/edit")


@pages.get("/<template_id:int>/edit")
@signed_in("templates:read")
async def edit(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show the editor of a template, or for HTML and SMS a form with a preview."""
    row = await fetch(store.get, visit.account_id, template_id)
    if row.flow_id is not None:
        return view.redirect(request, editor.editor_url(await fetch(store.find_owner, row)))
    if uses_editor(row) and not (request.args.get("as") == "html" and not designs.get_sections(row.design)):
        return await editor.render_editor(request, visit, row)
    form = Form({name: getattr(row, name) or "" for name in FORM_FIELDS} | {"revision": str(row.revision)})
    return await render_form(request, row, form)


def uses_editor(row: Any) -> bool:
    """Return whether the section editor can edit a template.

    The editor can edit an email that has sections, has no body, or belongs to a campaign or flow.
    """
    return row.channel == "email" and bool(designs.get_sections(row.design) or not row.body or row.flow_id is not None)


async def render_form(request: Request, row: Any, form: Form, status: int = 200) -> HTTPResponse:
    """Render the form of a template with the values and errors of `form`, and warnings about its sections."""
    sections = len(designs.get_sections(row.design))
    warnings = await render(preview.find_warnings, row.account_id, revisions.to_document(row)) if sections else []
    lines = [("warn", formats.sentence(text), "") for text in dict.fromkeys(warning.message for warning in warnings)]
    return view.render(
        request, "templates/form.html", status, form=form, row=row, sections=sections, advice=lines,
        is_open_to_agents=await fetch(agent_drafts.is_open_to_agents, row),
    )  # fmt: skip


@pages.post("/<template_id:int>")
@signed_in("templates:write")
async def update(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Save the form of a template; on a conflict, show what the other user changed and keep the posted values."""
    form = Form.from_request(request)
    form.require("name", gettext("Enter a name."))
    row = await fetch(store.get, visit.account_id, template_id)
    try:
        if form.errors:
            raise errors.Invalid({})
        body = _read_form(form)
        prepared = await render(store.prepare, visit.account_id, body, template_id)
        seen_revision = parse_int(form["revision"], 0) or None
        await commit(store.update, visit.account_id, template_id, body, visit.user.id, seen_revision, prepared)
    except errors.Invalid as error:
        return await render_form(request, row, form.add_errors(error), 422)
    except errors.Conflict as error:
        form.values["revision"] = str(error.extra["revision"])
        text = gettext("Your changes are not saved yet. Save again to overwrite the other changes.")
        form.add_error("base", f"{describe_conflict(error)} {text}")
        return await render_form(request, await fetch(store.get, visit.account_id, template_id), form, 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, f"/templates/{template_id}/edit")


def describe_conflict(error: errors.Conflict) -> str:
    """Return a sentence that says which user changed which fields since the user opened the template."""
    user_name = error.extra.get("changed_by")
    names = list(dict.fromkeys(gettext(_FIELD_LABELS[name]) for name in error.extra.get("changed") or []))
    fields = formats.join_names(names or [gettext("template")])
    if user_name:
        return gettext("%(name)s changed the %(fields)s since you opened it.", name=user_name, fields=fields)
    return gettext("Another user changed the %(fields)s since you opened it.", fields=fields)


@pages.post("/<template_id:int>/take-over")
@signed_in("templates:write")
async def take_over(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Hand an agent's template to the team, in the version that the page showed."""
    seen_revision = parse_int(Form.from_request(request)["revision"], 0)
    try:
        await commit(agent_drafts.take_over, visit.account_id, template_id, seen_revision)
    except errors.Conflict:
        view.flash(request, gettext("The template has changed. Look at it again before you take it over."))
    else:
        view.flash(request, gettext("Taken over."))
    row = await fetch(store.get, visit.account_id, template_id)
    return view.redirect(request, editor.editor_url(await fetch(store.find_owner, row)))


@pages.get("/<template_id:int>/preview")
@signed_in("templates:read")
async def show_preview(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show a template as it is sent, with sample values, as a document for a frame.

    `at` is the number of a revision, by default the current revision. `language` is one of its translations, by default
    the original.
    """
    at, language = parse_int(request.args.get("at"), 0), request.args.get("language")

    def read() -> str:
        row = store.get(visit.account_id, template_id)
        fields = revisions.get(visit.account_id, template_id, at).document if at else revisions.to_document(row)
        fields = translations.translate_document(fields, language, row.channel)
        if row.channel == "sms":
            body = preview.PreviewRequest(document={}, body=fields["body"] or "", channel="sms")
            return view.sms_html(preview.render_preview(visit.account_id, body).text)
        if not (fields["body"] or designs.get_sections(fields["design"])):
            return ""
        tagger = utm_links.find_template_tagger(row)
        return preview.render_fields(visit.account_id, fields, language=language, tagger=tagger).html

    try:
        return view.render_email(await render_for(visit.account_id, read))
    except errors.Invalid as error:
        return view.render_email_error(next(iter(error.fields.values()))[0])


def _read_form(form: Form) -> TemplateWrite:
    return validation.read(TemplateWrite, {name: form.text(name) for name in FORM_FIELDS if name in form.values})


# Design file, test and history.

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_FAULTS = 5


@pages.get("/<template_id:int>/design.json")
@signed_in("templates:read")
async def download_design(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Download the design of a template as JSON."""
    row = await fetch(store.get, visit.account_id, template_id)
    name = _UNSAFE.sub("-", row.name or "template").strip("-.")[:60] or "template"
    headers = {"content-disposition": f'attachment; filename="{name}.json"'}
    content = msgspec.json.format(msgspec.json.encode(row.design), indent=2)
    return HTTPResponse(content, 200, headers, "application/json")


@pages.post("/<template_id:int>/design")
@signed_in("templates:write")
async def upload_design(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Replace the design of a template with an uploaded file; show up to `_MAX_FAULTS` errors, or a conflict."""
    seen_revision = parse_int(Form.from_request(request)["revision"], 0) or None
    row = await fetch(store.get, visit.account_id, template_id)
    try:
        body = validation.read(TemplateWrite, {"design": _read_design(request)})
        prepared = await render(store.prepare, visit.account_id, body, template_id)
        await commit(store.update, visit.account_id, template_id, body, visit.user.id, seen_revision, prepared)
    except errors.Invalid as error:
        form = _build_form(row)
        form.add_error("file", describe_file_errors(error))
        return await _render_file_error(request, visit, row, form)
    except errors.Conflict as error:
        row = await fetch(store.get, visit.account_id, template_id)
        form = _build_form(row)
        text = gettext("Select the file again to overwrite these changes.")
        form.add_error("file", f"{describe_conflict(error)} {text}")
        return await _render_file_error(request, visit, row, form)
    view.flash(request, gettext("Design replaced. The previous design is in the history."))
    return view.redirect(request, editor_url(await fetch(store.find_owner, row)))


def describe_file_errors(error: errors.Invalid) -> str:
    """Return a sentence with up to `_MAX_FAULTS` errors of an uploaded file; the path of an error may be empty."""
    lines = [f"{path} {messages[0]}".strip() for path, messages in error.fields.items()]
    if len(lines) > _MAX_FAULTS:
        more = ngettext("%(num)s more error", "%(num)s more errors", len(lines) - _MAX_FAULTS)
        lines = [*lines[:_MAX_FAULTS], more]
    return gettext("This file cannot be used: %(errors)s.", errors="; ".join(lines))


async def _render_file_error(request: Request, visit: Visit, row: Any, form: Form) -> HTTPResponse:
    """Render the editor or the form of a template with the error of an uploaded file."""
    if uses_editor(row):
        return await editor.render_editor(request, visit, row, 422, file=form.errors["file"])
    return await render_form(request, row, form, 422)


def _read_design(request: Request) -> Any:
    file = request.files.get("file") if request.files else None
    if file is None or not file.body:
        raise errors.Invalid({"": [gettext("it is empty")]})
    if len(file.body) > 2 * MAX_DESIGN_BYTES or validation.has_too_many_values(file.body):
        raise errors.Invalid({"": [gettext("it is too large")]})
    try:
        data = msgspec.json.decode(file.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise errors.Invalid({"": [gettext("it is not JSON")]}) from None
    if validation.is_too_deep(data):
        raise errors.Invalid({"": [gettext("it is nested too deeply")]})
    personal.require_allowed(data)
    # A response of the API for a template contains the design under the key `design`.
    inner = data.get("design") if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise errors.Invalid({"": [gettext("it has no design")]})
    return inner if isinstance(inner, dict) else data


@pages.post("/<template_id:int>/test")
@signed_in("templates:write")
async def send_test(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Send a test of a template to the addresses of the form; without an address, a test email goes to the user.

    `as` is the id of the contact whose values the test shows.
    """
    typed = Form.from_request(request)
    row = await fetch(store.get, visit.account_id, template_id)
    is_sms = row.channel == "sms"
    edits = uses_editor(row)
    # Phone numbers may contain spaces.
    parts = re.split(r"[,;\n]+" if is_sms else r"[\s,;]+", typed["emails"])
    emails = [part.strip() for part in parts if part.strip()] or ([] if is_sms else [visit.user.email])
    to = lookups.complete_test_phones(visit, emails) if is_sms else emails
    raw: dict[str, Any] = {"phones" if is_sms else "emails": to}
    if contact_id := parse_id(typed["as"]):
        raw["contact_id"] = contact_id
    try:
        body = validation.read(test_sends.TestRequest, raw)
        prepared = await render_send(test_sends.prepare, visit.account_id, template_id, body)
        args = (visit.account_id, template_id, body, False, prepared)
        tests = await commit(test_sends.send, *args, visit.actor.can_read_contacts, visit.can("campaigns:send"))
    except errors.Invalid as error:
        form = _build_form(row)
        form.values["emails"] = typed["emails"]
        form.add_error("emails", _address_error(error, emails))
        if edits:
            return await editor.render_errors(request, visit, row, {"emails": form.errors["emails"]})
        return await render_form(request, row, form, 422)
    if edits:
        return await editor.render_blocks(
            request, visit, template_id, None, (), notice={"text": describe_sent_tests(tests), "undo": None}
        )
    view.flash(request, describe_sent_tests(tests))
    return view.redirect(request, f"/templates/{template_id}/edit")


def _address_error(error: errors.Invalid, emails: list[str]) -> str:
    if {"emails", "phones"} & error.fields.keys():
        return ngettext("Enter at most %(num)s address.", "Enter at most %(num)s addresses.", test_sends.MAX_RECIPIENTS)
    if "contact_id" in error.fields:
        return gettext("The contact of this preview was deleted. Select another contact.")
    paths = (re.match(r"(?:emails|phones)\[(\d+)\]", path) for path in error.fields)
    invalid_addresses = [emails[int(match[1])] for match in paths if match]
    if invalid_addresses:
        names = formats.join_names(invalid_addresses)
        return ngettext(
            "%(addresses)s is not a valid address.", "%(addresses)s are not valid addresses.",
            len(invalid_addresses), addresses=names,
        )  # fmt: skip
    return formats.sentence(next(iter(error.fields.values()))[0])


@pages.get("/<template_id:int>/history")
@signed_in("templates:read")
async def show_history(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show the revisions of a template with their authors, and the content of the selected revision."""
    filters = parse_int(request.args.get("at"), 0)

    def read() -> dict[str, Any]:
        row = store.get(visit.account_id, template_id)
        query = PageQuery(page=parse_int(request.args.get("page")), limit=30)
        at = revisions.get(visit.account_id, template_id, filters or row.revision)
        page = revisions.fetch_page(visit.account_id, template_id, query)
        home = store.find_owner(row)
        may_write = visit.can("templates:write") and not home.is_locked
        return {"row": row, "page": page, "at": at, "reach": revisions.find_undo_steps(row), "title": home.name,
                "back": editor_url(home), "may_write": may_write}  # fmt: skip

    return view.render(request, "templates/history.html", **await fetch(read))


@pages.post("/<template_id:int>/label")
@signed_in("templates:write")
async def label_revision(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Name a revision, which exempts it from pruning, or remove its name."""
    form = Form.from_request(request)
    at = parse_int(form["at"], 0)
    await commit(revisions.name_revision, visit.account_id, template_id, at, form.text("label"))
    return view.redirect(request, f"/templates/{template_id}/history?at={at}")


def _build_form(row: Any) -> Form:
    return Form({name: getattr(row, name) or "" for name in FORM_FIELDS} | {"revision": str(row.revision)})
