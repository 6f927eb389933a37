"""The editor of an email, which belongs to a template, a campaign or a flow.

This module has its page, the fields of sections, details and theme, the audience of a section, and presence;
`editor_sections` adds, moves and removes sections, and `canvas` shows the email.
"""

import json
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.campaigns import content as campaign_content
from appliance.campaigns import store as campaigns
from appliance.content import brand as brands
from appliance.content import media
from appliance.content.designs import document, merge_limits, render
from appliance.content.templates import agent_drafts, editing, revisions, store, translations, variant_content
from appliance.content.templates.editing import Change
from appliance.core import clock, errors, i18n
from appliance.core.errors import Conflict, Invalid, NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.imports import store as imports
from appliance.sending.messages import merge_tags, preview
from appliance.storage.models import Contact, Template
from appliance.storage.transactions import commit, fetch, render_for
from ui import formats, view
from ui.forms import IS_INVALID, Form, is_message, parse_id
from ui.forms.filter_rows import FilterRows
from ui.guard import signed_in
from ui.pages import canvas
from ui.session import Pages, Visit
from ui.widgets import editor_panels, filter_builder

pages = Pages("ui_editor")

# Users who have an email open, in memory.

# Browsers report presence every 20 seconds; a user is present until this time after the last report.
_TIMEOUT_MS = 45_000
_present: dict[int, dict[str, "PresentUser"]] = {}


class PresentUser(NamedTuple):
    """A user who has an email open, with the key of the selected section.

    `at` is the time of the last report in milliseconds.
    """

    user: int
    name: str
    key: str
    at: int


def mark_present(template_id: int, session_key: str, user: int, name: str, key: str) -> None:
    """Record that a user has an email open in a browser session, with the section `key` selected."""
    now = clock.now_ms()
    users = _present.setdefault(template_id, {})
    users[session_key] = PresentUser(user, name, key, now)
    for expired_key in [expired_key for expired_key, user_entry in users.items() if now - user_entry.at > _TIMEOUT_MS]:
        del users[expired_key]


def list_others(template_id: int, user: int) -> list[PresentUser]:
    """Return the other users who have an email open, each once, with the section of their last report."""
    now = clock.now_ms()
    users = sorted(_present.get(template_id, {}).values(), key=lambda other: other.at)
    return list({entry.user: entry for entry in users if entry.user != user and now - entry.at <= _TIMEOUT_MS}.values())


def mark_left(template_id: int, session_key: str) -> None:
    """Remove the entry of a browser session in which a user closed an email."""
    users = _present.get(template_id, {})
    users.pop(session_key, None)
    if not users:
        _present.pop(template_id, None)


PAGE_TEMPLATE = "editor/page.html"
_PALETTES = (
    (gettext_noop("Ink"), {"brand_color": "#1f2933", "text_color": "#1f2933", "bg_color": "#f4f2ee"}),
    (gettext_noop("Sea"), {"brand_color": "#0f617d", "text_color": "#22303a", "bg_color": "#eef4f6"}),
    (gettext_noop("Moss"), {"brand_color": "#3d6b35", "text_color": "#26302a", "bg_color": "#f2f5ee"}),
    (gettext_noop("Brick"), {"brand_color": "#a63d2f", "text_color": "#2d2523", "bg_color": "#f8f1ec"}),
    (gettext_noop("Plum"), {"brand_color": "#6b3fa0", "text_color": "#2a2433", "bg_color": "#f4f1f8"}),
    (gettext_noop("Night"), {"brand_color": "#f2b84b", "text_color": "#f3f1ea", "bg_color": "#17191d"}),
)  # fmt: skip
# The number of characters of a subject and of a preheader that a phone shows.
SUBJECT_CHARACTERS, PREHEADER_CHARACTERS = 45, 90


@pages.get("/campaigns/<campaign_id:int>/content")
@signed_in("campaigns:read")
async def show_campaign(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Show the editor of a campaign's email; a campaign of SMS is redirected to its page."""
    row = await fetch(store.get_campaign_template, visit.account_id, campaign_id)
    if row.channel != "email":
        return view.redirect(request, f"/campaigns/{campaign_id}")
    return await render_editor(request, visit, row)


@pages.get("/flows/<flow_id:int>/steps/<step_id:int>/content")
@signed_in("flows:read")
async def show_step(request: Request, visit: Visit, flow_id: int, step_id: int) -> HTTPResponse:
    """Show the editor of the email of a flow's step; an SMS step is redirected to the flow."""
    row = await fetch(store.get_step_template, visit.account_id, flow_id, step_id)
    if row.channel != "email":
        return view.redirect(request, f"/flows/{flow_id}?step={step_id}")
    return await render_editor(request, visit, row)


async def render_editor(
    request: Request, visit: Visit, row: Template, status: int = 200, file: str = ""
) -> HTTPResponse:
    """Render the editor of an email, with the section that the query selects by `s` (its key) or `path`.

    With `fix`, the code of a finding about that section, the field that fixes it gets the focus. `file` is the error of
    an uploaded file.
    """
    path, key, code = request.args.get("path"), request.args.get("s"), request.args.get("fix")
    if path and key is None:
        key = next((entry.key for entry in document.list_entries(row.design) if entry.section.path == path), None)
    values = await render_for(visit.account_id, build_context, visit, row.id, key)
    fix_field = editor_panels.find_fix_field(values["entry"], values["groups"], code) if code else None
    focus = "" if fix_field is None else fix_field.id
    return view.render_whole(request, PAGE_TEMPLATE, status, **(values | {"file": file, "focus": focus}))


async def render_errors(request: Request, visit: Visit, row: Template, values: dict[str, str]) -> HTTPResponse:
    """Render errors of fields for the editor's script; `values` maps fields to messages."""
    return await _render_messages(request, visit, row.id, None, 422, values, "", None)


def build_context(visit: Visit, template_id: int, key: str | None = None) -> dict[str, Any]:
    """Return the template context of the editor, with the section `key` selected. Raises NotFound."""
    row = store.get(visit.account_id, template_id)
    home = store.find_owner(row)
    contact = _find_sample_contact(visit.account_id, home)
    # An empty text of a variant is that of its campaign.
    complete = variant_content.complete_if_variant(row)
    page = document.list_entries(row.design)
    entry = document.find_section(page, key) if key else None
    look = brands.build_look(brands.get(visit.account_id))
    theme = render.document_theme(row.design, look)
    filenames = media.get_filenames(visit.account_id, editor_panels.list_picture_names(page))
    message = "body" if row.body and not document.get_sections(row.design) else "sections"
    return {
        "row": row, "home": home, "page_url": f"/templates/{row.id}", "back": back_url(home), "page": editor_url(home),
        "locked": home.is_locked or not visit.can("templates:write"), "may_look_only": not visit.can("templates:write"),
        "outline": editor_panels.build_outline(page, filenames), "many": len(page), "entry": entry,
        "key": entry.key if entry else "",
        "top": document.find_top_key(page, entry.key) if entry else "",
        "groups": editor_panels.build_groups(entry, theme) if entry else [],
        "columns": editor_panels.sections_by_column(entry, page) if entry else [],
        "template_choice": _template_choice_url(home),
        "is_open_to_agents": agent_drafts.is_open_to_agents(row),
        "listing": editor_panels, "palette": editor_panels.list_palette(),
        "emails": editor_panels.build_detail_fields(row), "complete": complete, "mode": message,
        "themed": editor_panels.build_theme_fields(row.design, theme),
        "contrasts": editor_panels.check_contrasts(theme),
        "palettes": [(gettext(name), values) for name, values in _PALETTES],
        "languages": translations.summarize_languages(revisions.to_document(row)),
        "original_name": i18n.name_language(visit.account.locale),
        "reach": revisions.find_undo_steps(row), "others": list_others(row.id, visit.user.id),
        "file": "", "focus": "", "siblings": _position_among_siblings(page, entry),
        "lengths": (SUBJECT_CHARACTERS, PREHEADER_CHARACTERS), "raw": _unknown_section_json(entry),
        "contact": contact, "seen_by": _describe_audience(visit, entry),
        # The inbox line is only shown while no section is selected.
        "inbox": (
            None if entry is not None
            else preview.build_inbox_line(visit.account_id, revisions.to_document(complete), contact)
        ),
    }  # fmt: skip


def _find_sample_contact(account_id: int, home: store.TemplateOwner) -> Contact | None:
    """Return the first recipient of the campaign that an email belongs to, whom its composer shows too; else None."""
    if home.kind != "campaign":
        return None
    try:
        return campaign_content.find_sample_contact(campaigns.get(account_id, home.id))
    except NotFound:  # a deleted campaign, whose email may still be looked at
        return None


def _position_among_siblings(rows: list[document.Entry], entry: document.Entry | None) -> tuple[int, int]:
    """Return the position of a section from 1, and the number of sections at its level, itself included.

    Returns (0, 0) without a section.
    """
    if entry is None:
        return 0, 0
    return entry.position + 1, len([sibling for sibling in entry.siblings if isinstance(sibling, dict)])


def _unknown_section_json(entry: document.Entry | None) -> str:
    """Return the JSON of a section whose kind is unknown, else an empty string."""
    if entry is None or entry.section.kind is not None:
        return ""
    return json.dumps(entry.raw, indent=2, ensure_ascii=False)


def _describe_audience(visit: Visit, entry: document.Entry | None) -> str:
    """Return a sentence about the contacts who see a section; empty if all contacts see it."""
    filters = entry.section.props.get("show_if") if entry is not None and entry.section.kind is not None else None
    if not isinstance(filters, list) or not filters:
        return ""
    return filter_builder.build_view(
        visit.account_id, FilterRows.from_filters(filters), counted=False
    ).sentence or gettext("Contacts who match its conditions")


def editor_url(home: store.TemplateOwner) -> str:
    """Return the URL of the editor for the email of an owner."""
    if home.variant is not None:
        return f"/campaigns/{home.id}/variants/{home.variant}/content"
    if home.kind == "campaign":
        return f"/campaigns/{home.id}/content"
    return f"/flows/{home.id}/steps/{home.step}/content" if home.kind == "flow" else f"/templates/{home.id}/edit"


def back_url(home: store.TemplateOwner) -> str:
    """Return the URL of the page that the editor's Back link leads to."""
    if home.variant is not None:
        return f"/campaigns/{home.id}?open=experiment#card-experiment"
    if home.kind == "campaign":
        return f"/campaigns/{home.id}"
    return f"/flows/{home.id}?step={home.step}" if home.kind == "flow" else "/templates"


def _template_choice_url(home: store.TemplateOwner) -> str:
    """Return the URL where a template is selected for an email; empty for a template, and for a variant of a test."""
    if home.variant is not None or home.kind == "template":
        return ""
    return f"/flows/{home.id}/steps/{home.step}/template" if home.kind == "flow" else f"/campaigns/{home.id}/template"


async def render_blocks(
    request: Request, visit: Visit, template_id: int, key: str | None, names: tuple[str, ...], status: int = 200,
    **text: Any,
) -> HTTPResponse:  # fmt: skip
    """Render blocks of the editor after a change, with data for its script in the header `x-editor`.

    `text` has that data, and a `notice` to show as a toast. A request without the script is redirected to the editor,
    which then shows the `notice`, or the text `say` of `text`.
    """
    values = await render_for(visit.account_id, build_context, visit, template_id, key)
    notice = text.pop("notice", None)
    if not view.is_partial(request):
        if notice:
            view.flash(request, notice["text"], notice["undo"])
        elif text.get("say"):
            view.flash(request, text["say"])
        return view.redirect(request, values["page"] + (f"?s={values['key']}" if values["key"] else ""))
    if notice:
        names = (*names, "toast")
    response = view.render_blocks(request, PAGE_TEMPLATE, names, status, **values, notice=notice)
    details = {"rev": values["row"].revision, "key": values["key"], **text}
    response.headers["x-editor"] = json.dumps(details)
    if text.get("kept") or text.get("changed"):
        response.body = (response.body or b"") + (await canvas.render_update(request, visit, template_id)).encode()
    return response


@pages.get("/templates/<template_id:int>/sections/<key:str>")
@signed_in("templates:read")
async def show_section(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Show the fields of a section in the editor's panel. Raises NotFound if the template has no such section."""
    row = await fetch(store.get, visit.account_id, template_id)
    if document.find_section(document.list_entries(row.design), key) is None:
        raise NotFound
    return await render_blocks(request, visit, template_id, key, ("inspector",))


@pages.get("/templates/<template_id:int>/details")
@signed_in("templates:read")
async def show_details(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show the fields of subject, preheader and sender in the editor's panel."""
    return await render_blocks(request, visit, template_id, None, ("inspector",))


@pages.post("/templates/<template_id:int>/sections/<key:str>")
@signed_in("templates:write")
async def save_section(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Save the changed values of a section; all other values stay as stored."""
    changes = read_changes(request)
    return await _save_changes(
        request, visit, template_id, key, changes, editing.edit_values, visit.account_id, template_id, key
    )


@pages.post("/templates/<template_id:int>/theme")
@signed_in("templates:write")
async def save_theme(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Save changed values of the theme."""
    changes = read_changes(request)
    return await _save_changes(
        request, visit, template_id, None, changes, editing.edit_values, visit.account_id, template_id, None
    )


@pages.post("/templates/<template_id:int>/details")
@signed_in("templates:write")
async def save_details(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Save changed values of subject, preheader and sender."""
    changes = read_changes(request)
    return await _save_changes(
        request, visit, template_id, None, changes, editing.edit_details, visit.account_id, template_id
    )


def read_changes(request: Request) -> list[Change]:
    """Return the changed values of a posted form, with the spaces as typed."""
    form = Form.from_request(request)
    names = [name for name in form.values if name.startswith(("props.", "styles.", "theme.", "email."))]
    return [Change(name, form.getlist(name)[-1].replace("\r\n", "\n"), form["seen:" + name] or None) for name in names]


async def _save_changes(
    request: Request, visit: Visit, template_id: int, key: str | None, changes: list[Change], verb: Any, *args: Any
) -> HTTPResponse:
    path = changes[0].path if len(changes) == 1 else ""
    names: tuple[str, ...] = (
        ("state", "steps", "list") if key is not None or path else ("state", "steps", "list", "theme")
    )
    try:
        row = await fetch(store.get, visit.account_id, template_id)
        prepared = await render_for(visit.account_id, _prepare_edit, row, key, changes)
        edited = await commit(verb, *args, changes, visit.user.id, prepared)
    except Invalid as error:
        return await _render_refused(request, visit, template_id, key, changes, error)
    except Conflict as error:
        return await _render_conflict(request, visit, template_id, key, changes, error)
    if path.startswith("theme."):
        names = (*names, "contrasts")
    elif path == "props.preset":
        names = (*names, "inspector")
    elif path in ("email.from_name", "email.subject", "email.preheader"):
        names = (*names, "inboxrow", "subject_length", "preheader_length")
    digests = await fetch(_current_digests, edited.template, key, changes)
    return await render_blocks(request, visit, template_id, key, names, kept=True, seen=digests)


def _prepare_edit(row: Template, key: str | None, changes: list[Change]) -> Any:
    is_detail = bool(changes) and changes[0].path.startswith("email.")
    edit = editing.build_detail_edit(row, changes) if is_detail else editing.build_value_edit(row, key, changes)
    return editing.prepare(row, edit)


def _current_digests(row: Template, key: str | None, changes: list[Change]) -> dict[str, str]:
    """Return the hash of the current value of each changed path."""
    digests = {}
    entry = document.find_section(document.list_entries(row.design), key) if key else None
    for change in changes:
        if change.path.startswith("email."):
            value = getattr(row, change.path.removeprefix("email."))
        else:
            value_path = editing.parse_path(change.path, entry.section.kind if entry else None)
            value = editing.get_value(value_path, editing.get_holder(entry, row.design, value_path))
        digests[change.path] = editing.hash_value(value)
    return digests


async def _render_refused(
    request: Request, visit: Visit, template_id: int, key: str | None, changes: list[Change], error: Invalid
) -> HTTPResponse:
    """Render the errors of rejected changes at their fields, and any other error beside the title."""
    kinds = {change.path: change.typed for change in changes}
    values = {path: value_error_sentence(path, messages[0]) for path, messages in error.fields.items() if path in kinds}
    base = [formats.sentence(messages[0]) for path, messages in error.fields.items() if path not in kinds]
    return await _render_messages(request, visit, template_id, key, 422, values, " ".join(base), None)


async def _render_conflict(
    request: Request, visit: Visit, template_id: int, key: str | None, changes: list[Change], error: Conflict
) -> HTTPResponse:
    """Render a conflict: the value that another user saved, that user's name, and the value that was posted."""
    return await _render_messages(request, visit, template_id, key, 409, {}, "", error.extra)


async def _render_messages(
    request: Request, visit: Visit, template_id: int, key: str | None, status: int, field_errors: dict[str, str],
    base: str, theirs: dict[str, Any] | None,
) -> HTTPResponse:  # fmt: skip
    if not view.is_partial(request):
        text = next(iter(field_errors.values()), base) or _describe_conflict((theirs or {}).get("changed_by"))
        return await render_blocks(request, visit, template_id, key, (), status, say=text)
    values = await render_for(visit.account_id, build_context, visit, template_id, key)
    response = view.render_blocks(
        request,
        "editor/messages.html",
        ("messages",),
        status,
        field_errors=field_errors,
        base=base,
        conflict=theirs,
        **values,
    )
    response.headers["x-editor"] = json.dumps(
        {"rev": values["row"].revision, "base": base, "wrong": list(field_errors)}
    )
    return response


def _describe_conflict(user_name: str | None) -> str:
    if user_name:
        return gettext("%(name)s changed this at the same time.", name=user_name)
    return gettext("Another user changed this at the same time.")


def value_error_sentence(path: str, message: str) -> str:
    """Return the validation error of a value in the editor as a sentence."""
    if is_message(message, IS_INVALID) and path.rpartition(".")[2] in ("href", "cta_url"):
        return gettext("The link must start with https://")
    if is_message(message, IS_INVALID) and path.rpartition(".")[2] in ("email", "from_email", "reply_to"):
        return gettext("Enter an email address like name@example.com.")
    if is_message(message, IS_INVALID):
        return gettext("The address must start with https://")
    if is_message(message, "is not a colour"):
        return gettext("Select a colour, or enter one such as #0f617d.")
    if message.startswith("must be between"):
        low, _, high = message.removeprefix("must be between ").partition(" and ")
        return gettext("Enter a number from %(minimum)s to %(maximum)s.", minimum=low, maximum=high)
    if message.startswith("is too long"):
        return gettext("This text is too long.")
    return formats.sentence(message)


# The audience of a section.

AUDIENCE_PATH = "props.show_if"


@pages.get("/templates/<template_id:int>/sections/<key:str>/audience")
@signed_in("templates:read")
async def show_audience(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Show the rules that select which contacts see a section, with the number of matching contacts."""
    row, entry = await fetch(_load_section, visit, template_id, key)
    filters = entry.section.props.get("show_if")
    rows = FilterRows.from_filters(filters) if isinstance(filters, list) and filters else FilterRows.blank()
    return await _render_audience(request, visit, row, entry, rows)


@pages.post("/templates/<template_id:int>/sections/<key:str>/audience")
@signed_in("templates:write")
async def save_audience(request: Request, visit: Visit, template_id: int, key: str) -> HTTPResponse:
    """Save the rules of a section; without rules all contacts see it.

    If a button of the rows was pressed, they are only shown again.
    """
    form = Form.from_request(request)
    row, entry = await fetch(_load_section, visit, template_id, key)
    rows = FilterRows.from_form(form.lists)
    if rows.apply_action(form.lists):
        return await _render_audience(request, visit, row, entry, rows)
    try:
        changes = [Change(AUDIENCE_PATH, json.dumps(rows.to_filters()))]
        edit = await fetch(editing.build_value_edit, row, key, changes)
        prepared = await render_for(visit.account_id, editing.prepare, row, edit)
        await commit(editing.edit_values, visit.account_id, template_id, key, changes, visit.user.id, prepared)
    except errors.Invalid as error:
        rows.add_errors(error, AUDIENCE_PATH)
        return await _render_audience(request, visit, row, entry, rows, 422)
    view.flash(request, gettext("Visibility of the section “%(section)s” saved.", section=entry.label))
    return view.redirect(request, f"{editor_url(await fetch(store.find_owner, row))}?s={key}")


def _load_section(visit: Visit, template_id: int, key: str) -> tuple[Template, document.Entry]:
    row = store.get(visit.account_id, template_id)
    entry = document.find_section(document.list_entries(row.design), key)
    if entry is None or entry.section.kind is None:
        raise NotFound
    return row, entry


async def _render_audience(
    request: Request, visit: Visit, row: Template, entry: document.Entry, rows: FilterRows, status: int = 200
) -> HTTPResponse:
    home = await fetch(store.find_owner, row)
    values: dict[str, Any] = {
        "row": row, "entry": entry, "home": home, "page": editor_url(home),
        "locked": home.is_locked or not visit.can("templates:write"),
        "filter_view": await filter_builder.load_view(visit.account_id, rows),
    }  # fmt: skip
    return view.render(request, "editor/audience.html", status, **values)


# The menu of merge tags, which all pages use.


@pages.get("/templates/merge")
@signed_in("templates:read")
async def show_merge_tags(request: Request, visit: Visit) -> HTTPResponse:
    """Show the merge tags with examples and the number of contacts who lack each value.

    The query parameter `t` is the id of the template in which the merge tags will be used, and may be absent.
    """
    template_id = parse_id(request.args.get("t")) or None

    def read() -> list[merge_tags.MergeTagGroup]:
        row = store.get(visit.account_id, template_id) if template_id else None
        contact = _find_sample_contact(visit.account_id, store.find_owner(row)) if row is not None else None
        labels = imports.list_data_labels(visit.account_id)
        return merge_tags.list_merge_tags(visit.account_id, template_id, contact=contact, data_labels=labels)

    groups = await fetch(read)
    return view.render(request, "merge/menu.html", groups=groups, roots=merge_limits.ROOTS)
