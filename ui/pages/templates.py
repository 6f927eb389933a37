"""The list of templates, new templates from starters or files, archive and bulk actions."""

import re
from functools import partial
from pathlib import PurePath
from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.filters import personal
from appliance.content import brand as brands
from appliance.content.templates import revisions, starters, store
from appliance.content.templates.validation import MAX_DESIGN_BYTES, TemplateQuery, TemplateWrite
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext, pgettext_noop
from appliance.sending.messages import preview
from appliance.storage.models import Template
from appliance.storage.transactions import commit, fetch, render, render_for
from ui import view
from ui.forms import Form
from ui.guard import signed_in
from ui.pages.template_detail import describe_file_errors
from ui.session import Pages, Visit
from ui.widgets import tables
from ui.widgets.tables import Chip, Column, Selection

pages = Pages("ui_templates", url_prefix="/templates")

_COLUMNS = (
    Column(gettext_noop("Name"), "name", ""),
    Column(gettext_noop("Updated"), "updated"),
    Column(gettext_noop("Created"), "created"),
)
_CHIP_LABELS = {
    "": pgettext_noop("templates", "All"),
    "email": pgettext_noop("templates", "Email"),
    "sms": pgettext_noop("templates", "SMS"),
    "away": pgettext_noop("templates", "Archived"),
}
_IMPORTED_FIELDS = ("name", "subject", "preheader", "body", "from_name", "from_email", "reply_to", "design")
# The pages that a saved template returns to.
_LOCAL_PATH = re.compile(r"/(?:campaigns|flows|inbox|templates)(?:/[\w/-]*)?(?:\?[\w=&-]*)?")
_BLANK_DESIGN = {"sections": [{"type": "footer", "props": {}, "styles": {}}], "theme": {}}


def _count_templates(number: int) -> str:
    return ngettext("%(num)s template", "%(num)s templates", number)


@pages.get("/", strict_slashes=False)
@signed_in("templates:read")
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the templates as cards, and the starters if there are no templates."""
    table = tables.Table(request, "/templates", _count_templates, _COLUMNS, "-updated", ("show",))
    table.is_cards = True
    table.bulk_action_url = "/templates/acts" if visit.can("templates:write") else ""
    show, search = table.state["show"], table.search

    def read() -> int:
        away, many = store.count_archived(visit.account_id), store.count_by_channel(visit.account_id)
        names = {"": sum(many.values()), "email": many.get("email", 0), "sms": many.get("sms", 0), "away": away}
        table.chips = [Chip(key, pgettext("templates", _CHIP_LABELS[key]), number) for key, number in names.items()
                       if number or key != "away" or show == "away"]  # fmt: skip
        if show == "away":
            table.results = store.fetch_archived_page(visit.account_id, table.page, table.limit, search)
        else:
            params = table.list_params | {"standalone": True} | ({"channel": show} if show in ("email", "sms") else {})
            table.results = store.fetch_page(visit.account_id, validation.read(TemplateQuery, params), table.sort)
        return away

    away = await fetch(read)
    is_new = not table.results.total and not table.is_filtered
    begin = await fetch(_list_starters, visit.account_id) if is_new else ()
    return tables.render_table(request, "templates/index.html", table, away=away, starters=begin)


@pages.get("/new")
@signed_in("templates:read")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the starters, a blank design and an upload; with `kind=html` the form for HTML."""
    if request.args.get("kind") == "html":
        return view.render(
            request, "templates/form.html", form=Form(), row=None, sections=0, advice=[], is_open_to_agents=False
        )
    return await _render_new(request, visit, Form())


async def _render_new(request: Request, visit: Visit, form: Form, status: int = 200) -> HTTPResponse:
    page = await fetch(_list_starters, visit.account_id)
    return view.render(
        request, "templates/new.html", status, starters=page, form=form,
        may_write=visit.can("templates:write"),
    )  # fmt: skip


@pages.post("/begin")
@signed_in("templates:write")
async def create_from_starter(request: Request, visit: Visit) -> HTTPResponse:
    """Create a template from a starter, or with a blank design, and open it in the editor."""
    key = Form.from_request(request)["starter"]
    if key == "blank":
        return await _create_template(
            request, visit, {"name": gettext(store.UNTITLED), "design": _BLANK_DESIGN}, gettext("Created blank"), ""
        )
    starter = await fetch(_find_starter, visit.account_id, key)
    label = gettext(starter.label)
    values = {
        "name": label,
        **starter.email._asdict(),
    }
    return await _create_template(
        request,
        visit,
        values,
        gettext("Created from %(name)s", name=label),
        gettext("Template created. Replace the sample content with your own."),
    )


async def _create_template(
    request: Request, visit: Visit, values: dict[str, Any], label: str, notice: str
) -> HTTPResponse:
    body = validation.read(TemplateWrite, values)
    prepared = await render(store.prepare, visit.account_id, body)
    created = await commit(
        partial(store.create, visit.account_id, body, user_id=visit.user.id, label=label, prepared=prepared)
    )
    if notice:
        view.flash(request, notice)
    return view.redirect(request, f"/templates/{created.id}/edit")


@pages.post("/import")
@signed_in("templates:write")
async def import_file(request: Request, visit: Visit) -> HTTPResponse:
    """Create a template from an uploaded file (an exported design, or HTML); show its first errors."""
    try:
        text = _read_file(request)
        return await _create_template(
            request, visit, text, gettext("Created from a file"), gettext("Template created.")
        )
    except errors.Invalid as error:
        form = Form()
        form.add_error("file", describe_file_errors(error))
        return await _render_new(request, visit, form, 422)


def _read_file(request: Request) -> dict[str, Any]:
    file = request.files.get("file") if request.files else None
    if file is None or not file.body.strip():
        raise errors.Invalid({"": [gettext("it is empty")]})
    if len(file.body) > 2 * MAX_DESIGN_BYTES or validation.has_too_many_values(file.body):
        raise errors.Invalid({"": [gettext("it is too large")]})
    name = PurePath(str(file.name or "")).stem.strip()[:255] or gettext(store.UNTITLED)
    try:
        text = file.body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise errors.Invalid({"": [gettext("it is not text in UTF-8")]}) from None
    if not text.lstrip().startswith(("{", "[")):
        return {"name": name, "body": text}
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise errors.Invalid({"": [gettext("it is not JSON")]}) from None
    if not isinstance(data, dict) or validation.is_too_deep(data):
        raise errors.Invalid({"": [gettext("it has no design")]})
    personal.require_allowed(data)
    if "sections" in data:
        return {"name": name, "design": data}
    values = {field: data[field] for field in _IMPORTED_FIELDS if data.get(field) is not None}
    if not ({"design", "body"} & values.keys()):
        raise errors.Invalid({"": [gettext("it has no design")]})
    return {"name": name} | values


@pages.get("/starters/<key:str>/preview")
@signed_in("templates:read")
async def show_starter(request: Request, visit: Visit, key: str) -> HTTPResponse:
    """Show a starter in the look of the brand, as a document for a frame."""

    def read() -> str:
        email = _find_starter(visit.account_id, key).email
        fields: dict[str, Any] = dict.fromkeys(revisions.CONTENT_FIELDS) | email._asdict()
        return preview.render_fields(visit.account_id, fields).html

    return view.render_email(await render_for(visit.account_id, read))


def _list_starters(account_id: int) -> tuple[starters.Starter, ...]:
    return starters.build_starters(brands.build_look(brands.get(account_id)))


def _find_starter(account_id: int, key: str) -> starters.Starter:
    row = starters.find_starter(brands.build_look(brands.get(account_id)), key)
    if row is None:
        raise errors.NotFound
    return row


# Bulk actions.

# The largest number of rows in one bulk action.
_MAX_IDS = 500


@pages.post("/<template_id:int>/duplicate")
@signed_in("templates:write")
async def duplicate(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Create a copy of a template, and open it in the editor."""
    created = await commit(store.duplicate, visit.account_id, template_id, visit.user.id)
    view.flash(request, gettext("Copy created. You are editing the copy."))
    return view.redirect(request, f"/templates/{created.id}/edit")


@pages.post("/<template_id:int>/save", name="save")
@signed_in("templates:write")
async def save_as_template(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Copy the content of a campaign or flow step to a new template, and return to the page that the form names."""
    form = Form.from_request(request)

    def read() -> str:
        return store.find_owner(store.get(visit.account_id, template_id)).name

    name = form["name"].strip() or await fetch(read)
    created = await commit(store.duplicate, visit.account_id, template_id, visit.user.id, name)
    undo: tuple[str, dict[str, str]] = (f"/templates/{created.id}/delete", {})
    view.flash(request, gettext("Saved as the template “%(name)s”.", name=created.name), undo,
               link=(f"/templates/{created.id}/edit", gettext("Open template")))  # fmt: skip
    return view.redirect(request, form["back"] if _LOCAL_PATH.fullmatch(form["back"]) else "/templates")


@pages.post("/<template_id:int>/delete")
@signed_in("templates:write")
async def delete(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Delete a template with its revisions; the copies in campaigns are kept."""
    deleted = await commit(
        audit.run_and_record, visit.actor, "template_delete", store.delete, visit.account_id, template_id
    )
    view.flash(request, _describe_deletion([deleted]))
    return view.redirect(request, "/templates" if deleted.removed_at is None else "/templates?show=away")


@pages.post("/acts")
@signed_in("templates:write")
async def run_bulk_action(request: Request, visit: Visit) -> HTTPResponse:
    """Copy, archive, restore from the archive, or delete the selected templates; deletion is confirmed first."""
    form = Form.from_request(request)
    selection = Selection.from_request(request, form)
    name, return_url = form["act"], selection.table_url("/templates")
    rows = await fetch(_selected_templates, visit.account_id, selection)
    if not rows:
        view.flash(request, gettext("No templates selected."))
    elif name == "duplicate":
        for row in reversed(rows):
            await commit(store.duplicate, visit.account_id, row.id, visit.user.id)
        view.flash(request, ngettext("%(num)s copy created.", "%(num)s copies created.", len(rows)))
    elif name == "archive":
        deleted = [await commit(store.archive, visit.account_id, row.id) for row in rows if row.removed_at is None]
        ids = " ".join(str(row.id) for row in deleted)
        view.flash(request, _describe_archiving(deleted), ("/templates/bring-back", {"ids": ids}))
    elif name == "bring":
        await _unarchive(request, visit, [row.id for row in rows])
    elif name == "delete" and form["expected"] != str(len(rows)):
        sent_counts = await fetch(store.count_sent_messages, [row.id for row in rows])
        return view.render(
            request, "templates/sure.html", rows=rows, used=sum(sent_counts.values()), back=return_url,
            fields=[("act", name), *selection.fields],
        )  # fmt: skip
    elif name == "delete":
        args = (audit.run_and_record, visit.actor, "template_delete", store.delete, visit.account_id)
        deleted = [await commit(*args, row.id) for row in rows]
        view.flash(request, _describe_deletion(deleted))
    return view.redirect(request, return_url)


@pages.post("/bring-back")
@signed_in("templates:write")
async def unarchive(request: Request, visit: Visit) -> HTTPResponse:
    """Restore the archived templates whose ids the notice's undo button sends."""
    ids = [
        int(id_) for id_ in Form.from_request(request)["ids"].split()[:_MAX_IDS] if id_.isdecimal() and len(id_) < 19
    ]
    await _unarchive(request, visit, ids)
    return view.redirect(request, "/templates")


async def _unarchive(request: Request, visit: Visit, ids: list[int]) -> None:
    restored = []
    for id_ in ids:
        try:
            restored.append(await commit(store.unarchive, visit.account_id, id_))
        except errors.NotFound:
            continue
    if not restored:
        text = gettext("These templates have been deleted.")
    elif len(restored) == 1:
        text = gettext("“%(name)s” restored.", name=restored[0].name or gettext(store.UNTITLED))
    else:
        text = ngettext("%(num)s template restored.", "%(num)s templates restored.", len(restored))
    view.flash(request, text)


def _describe_archiving(rows: list[Template]) -> str:
    if len(rows) == 1:
        return gettext("“%(name)s” archived.", name=rows[0].name or gettext(store.UNTITLED))
    return ngettext("%(num)s template archived.", "%(num)s templates archived.", len(rows))


def _describe_deletion(rows: list[Template]) -> str:
    if len(rows) == 1:
        name = rows[0].name or gettext(store.UNTITLED)
        return gettext("“%(name)s” deleted. Campaigns keep their own copies.", name=name)
    return ngettext(
        "%(num)s template deleted. Campaigns keep their own copies.",
        "%(num)s templates deleted. Campaigns keep their own copies.",
        len(rows),
    )


def _selected_templates(account_id: int, selection: Selection) -> list[Template]:
    """Return the selected stand-alone templates, also archived ones, or all that match the table's filters."""
    search, show = selection.state.get("search", "")[:254], selection.state.get("show", "")
    if not selection.is_all:
        params: Any = Template.select().where(
            Template.account == account_id, Template.flow.is_null(), Template.id.in_(selection.ids[:_MAX_IDS])
        )
    elif show == "away":
        params = store.build_archive_query(account_id, search)
    else:
        raw: dict[str, Any] = {"standalone": True} | ({"channel": show} if show in ("email", "sms") else {})
        params = store.build_query(
            account_id, validation.read(TemplateQuery, raw | ({"search": search} if search else {}))
        )
    return list(params.order_by(Template.id.desc()).limit(_MAX_IDS))
