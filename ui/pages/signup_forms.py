"""The table of sign-up forms, the settings of a form, its QR codes, and the snippet to embed it."""

import re
import secrets
import unicodedata
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts, audit
from appliance.audience.segments import suggestions
from appliance.content import brand as brands
from appliance.core import errors, i18n, recipient_texts, validation
from appliance.core.i18n import gettext, gettext_noop
from appliance.forms import fields, store
from appliance.forms.fields import CHOICE_TYPES, CONTACT_FIELDS, MAX_FIELDS, Field, list_fields
from appliance.sending.domains import records
from appliance.sending.messages import senders
from appliance.settings import config
from appliance.storage.transactions import commit, fetch
from ui import formats, forms, view
from ui.forms import Form, FormPart, is_message, list_params, lookups
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit
from ui.widgets import charts

pages = Pages("ui_forms", url_prefix="/forms")

_PAGE_SIZE, _RECENT_DAYS = 50, 30
_LISTS, _TOPICS = gettext_noop("Lists"), gettext_noop("Topics")
_TEXT_FIELDS = (
    "language", "title", "intro", "button_text", "thanks_title", "thanks_text", "consent_text", "redirect_url",
)  # fmt: skip
# The consent text of a new form
_CONSENT_TEXT = gettext_noop("Send me news and offers by email. I can unsubscribe at any time.")
# The previews that pages show now, oldest first, by token. A preview that is lost is rendered again at the next change.
_MAX_PREVIEWS, _MAX_PREVIEW_TRIES = 100, 3
_previews: OrderedDict[str, "_Preview"] = OrderedDict()
# The frame has the style sheet of the hosted page and the styles of the brand, and neither scripts nor submissions.
_PREVIEW_POLICY = (
    "sandbox; default-src 'none'; style-src 'self' 'nonce-{nonce}'; img-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'"
)


class _Preview(NamedTuple):
    """A rendered preview; `nonce` allows its styles in the content security policy."""

    account_id: int
    html: str
    nonce: str


@pages.get("/", name="index", strict_slashes=False)
@signed_in("contacts:read")
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table of sign-up forms."""
    raw, search = list_params(request, _PAGE_SIZE)
    page = await fetch(store.list_forms, visit.account_id, validation.read(store.FormQuery, raw))
    return view.render(request, "forms/index.html", page=page, search=search)


@pages.get("/new", name="new")
@signed_in("contacts:write")
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the settings of a new sign-up form, with email, first name and double opt-in."""
    with i18n.use_language(recipient_texts.language_of_locale(visit.account.locale)):
        consent_text = gettext(_CONSENT_TEXT)
    form = Form({"double_opt_in": "yes", "consent_text": consent_text})
    set_fields(form, [Field("email", None, None, True), Field("first_name", None, None, False)])
    return await _render_form(request, visit, form, None, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in("contacts:write")
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a sign-up form and redirect to it; if a button of the rows was pressed, only apply that to the page."""
    form = Form.from_request(request)
    if form["act"]:
        return await _render_form(request, visit, form, None, 200, apply_action(form))
    _require_title(form)
    add_label_errors(form)
    try:
        if form.errors:
            raise errors.Invalid({})
        args = (store.create, visit.account_id, validation.read(store.FormWrite, _read_form(form)))
        created = await commit(audit.run_and_record, visit.actor, "form_add", *args)
    except errors.Invalid as error:
        return await _render_form(request, visit, _add_errors(form, error), None, 422)
    view.flash(
        request, gettext("“%(name)s” is ready. Share its link, or paste its HTML into your website.", name=created.name)
    )
    return view.redirect(request, f"/forms/{created.id}")


@pages.get("/<form_id:int>", name="show")
@signed_in("contacts:read")
async def show(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Show a sign-up form: its numbers, lists and fields, QR code, HTML to embed, and problems of its emails."""
    row = await fetch(store.get, visit.account_id, form_id)
    lists = [
        contact_list
        for contact_list in await fetch(lookups.list_contact_lists, visit.account_id)
        if contact_list.id in row.list_ids
    ]
    style = await fetch(brands.get_page_style, visit.account_id, row.language)
    is_branded = request.args.get("look") != "plain"
    sender_problems = await fetch(_list_sender_problems, visit.account_id)
    recent_count = await fetch(store.count_recent_submissions, visit.account_id, form_id, _RECENT_DAYS)
    language = (row.language and i18n.match_language(row.language)) or i18n.get_language()
    return view.render(
        request, "forms/show.html", row=row, lists=lists, snippet=fields.render_embed(row, style, is_branded),
        is_branded=is_branded, field_labels=[fields.get_label(field, language) for field in list_fields(row)],
        sender_problems=sender_problems, code=charts.draw_qr(row.url),
        public=records.is_public_name(urlsplit(row.url).hostname or ""),
        recent_count=recent_count, recent_days=_RECENT_DAYS,
    )  # fmt: skip


@pages.get("/<form_id:int>/qr.svg", name="qr_svg")
@signed_in("contacts:read")
async def download_qr_svg(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Download the QR code of a form's page as SVG."""
    return await _render_qr(visit, form_id, "svg", "image/svg+xml")


@pages.get("/<form_id:int>/qr.png", name="qr_png")
@signed_in("contacts:read")
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
    return await _render_form(request, visit, forms.open_form(_build_form(row), _FORM_PARTS), row, 200)


@pages.post("/<form_id:int>", name="update")
@signed_in("contacts:write")
@forms.retry_on_change
async def update(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Save the settings of a sign-up form; if a button of the rows was pressed, only apply that to the page."""
    form = Form.from_request(request)
    row = await fetch(store.get, visit.account_id, form_id)
    if form["act"]:
        return await _render_form(request, visit, form, row, 200, apply_action(form))
    form.values["name"] = form["name"] or form["title"]
    list_names = {
        str(contact_list.id): contact_list.name
        for contact_list in await fetch(lookups.list_contact_lists, visit.account_id)
    }
    forms.merge_form(form, _FORM_PARTS, _build_form(row), {_LISTS: list_names, _TOPICS: list_names})
    if form.conflicts:
        return await _render_form(request, visit, form, row, 409)
    _require_title(form)
    add_label_errors(form)
    try:
        if form.errors:
            raise errors.Invalid({})
        body = validation.read(store.FormPatch, _read_form(form))
        args = (audit.run_and_record, visit.actor, "form_update", store.update, visit.account_id, form_id, body)
        await commit(
            forms.write_if_unchanged,
            form,
            _FORM_PARTS,
            lambda: _build_form(store.get(visit.account_id, form_id)),
            *args,
        )
    except errors.Invalid as error:
        return await _render_form(request, visit, _add_errors(form, error), row, 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, f"/forms/{form_id}")


@pages.post("/<form_id:int>/copy", name="copy")
@signed_in("contacts:write")
@ignore_double_submit
async def copy(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Duplicate a sign-up form, and redirect to the settings of the copy."""
    source = await fetch(store.get, visit.account_id, form_id)
    name = gettext("%(name)s (copy)", name=source.name)
    args = (store.duplicate, visit.account_id, form_id, name)
    created = await commit(audit.run_and_record, visit.actor, "form_add", *args)
    view.flash(request, gettext("Form duplicated. The copy has its own link."))
    return view.redirect(request, f"/forms/{created.id}/edit")


@pages.post("/preview", name="preview")
@signed_in("contacts:write")
async def update_preview(request: Request, visit: Visit) -> HTTPResponse:
    """Show the preview of posted settings, without storing them."""
    form = Form.from_request(request)
    return view.render(request, "forms/form.html", form=form, row=None, **await _build_context(visit, form, None))


@pages.get("/preview/<token:str>", name="show_preview")
@signed_in("contacts:write")
async def show_preview(request: Request, visit: Visit, token: str) -> HTTPResponse:
    """Show a rendered preview as the document of a frame. Raises NotFound if the preview is no longer stored."""
    preview = _previews.get(token)
    if preview is None or preview.account_id != visit.account_id:
        raise errors.NotFound
    headers = {
        "content-security-policy": _PREVIEW_POLICY.format(nonce=preview.nonce), "referrer-policy": "no-referrer",
        "x-frame-options": "SAMEORIGIN",
    }  # fmt: skip
    return HTTPResponse(preview.html, 200, headers, "text/html; charset=utf-8")


async def _add_preview(visit: Visit, form: Form) -> str:
    """Render the preview of the settings in a form, and return its token."""
    values = _read_form(form)
    for field, title in zip(values["fields"], (row.title for row in list_rows(form)), strict=True):
        # So that a field appears as soon as it is added
        field["label"] = field["label"] or title
        if field.get("options") == []:
            field["options"] = ["…"]
    row = await _build_preview_form(visit.account_id, values)
    style = await fetch(brands.get_page_style, visit.account_id, row.language)
    nonce, token = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
    scheme: Literal["light", "dark"] = "dark" if form["scheme"] == "dark" else "light"
    html = fields.render_preview(row, style, nonce, scheme)
    _previews[token] = _Preview(visit.account_id, html, nonce)
    while len(_previews) > _MAX_PREVIEWS:
        _previews.popitem(last=False)
    return token


async def _build_preview_form(account_id: int, values: dict[str, Any]) -> Any:
    """Return an unsaved sign-up form with the given settings; settings that are invalid so far are left out."""
    values["name"] = values["name"] or gettext("Untitled form")
    for _ in range(_MAX_PREVIEW_TRIES):
        try:
            return await fetch(store.build_preview, account_id, validation.read(store.FormWrite, values))
        except errors.Invalid as error:
            paths = {path.partition(".")[0] for path in error.fields}
            names = {path.partition("[")[0] for path in paths} - {"fields"}
            fields = [field for index, field in enumerate(values["fields"]) if f"fields[{index}]" not in paths]
            values = {name: value for name, value in values.items() if name not in names} | {"fields": fields}
            values.setdefault("name", gettext("Untitled form"))
    return await fetch(store.build_preview, account_id, store.FormWrite(name=gettext("Untitled form")))


@pages.post("/<form_id:int>/delete", name="delete")
@signed_in("contacts:write")
async def delete(request: Request, visit: Visit, form_id: int) -> HTTPResponse:
    """Delete a sign-up form; the contacts who signed up are kept."""
    deleted = await commit(audit.run_and_record, visit.actor, "form_delete", store.delete, visit.account_id, form_id)
    view.flash(request, gettext("The form “%(name)s” was deleted. Contacts who signed up are kept.", name=deleted.name))
    return view.redirect(request, "/forms")


def _require_title(form: Form) -> None:
    """Give a form without a name its title as the name; add an error if it has neither."""
    form.values["name"] = form["name"] or form["title"]
    if not form["name"]:
        form.add_error("title", gettext("Enter a title."))


def _list_sender_problems(account_id: int) -> list[str]:
    """Return sentences that say why confirmation emails cannot be sent; empty if they can."""
    account = accounts.get(account_id)
    transport = config.current().email.transport
    problems = senders.find_email_problems(account, senders.resolve_email(account, None), transport, marketing=False)
    return [formats.sentence(text) for _, text in problems]


def _build_form(row: Any) -> Form:
    """Return the form with the stored settings of a sign-up form."""
    values = {name: getattr(row, name) or "" for name in ("name", *_TEXT_FIELDS)} | {
        "origins": "\n".join(row.origins), "double_opt_in": "yes" if row.double_opt_in else "",
        "topics_required": "yes" if row.topics_required else "",
    }  # fmt: skip
    form = Form(values, {name: [str(id_) for id_ in getattr(row, name)] for name in ("list_ids", "topic_ids")})
    set_fields(form, list_fields(row))
    return form


def _read_form(form: Form) -> dict[str, Any]:
    """Return the settings of a posted form, as the API takes them."""
    return {
        "name": form["name"], "list_ids": form.ids("list_ids"), "double_opt_in": form["double_opt_in"] == "yes",
        "fields": read_fields(form), "topic_ids": form.ids("topic_ids"),
        "topics_required": form["topics_required"] == "yes",
        "origins": [line.strip() for line in form["origins"].splitlines() if line.strip()],
        **{name: form.text(name) for name in _TEXT_FIELDS},
    }  # fmt: skip


def _add_errors(form: Form, error: errors.Invalid) -> Form:
    """Add the errors of an Invalid to the fields of the settings, and return the form."""
    add_field_errors(form, {path: messages for path, messages in error.fields.items() if path.startswith("fields")})
    for path in error.fields:
        if path.startswith("origins"):
            form.add_error("origins", gettext("Enter each origin as https://shop.example, without a path."))
        elif path == "redirect_url":
            form.add_error("redirect_url", gettext("Enter a full URL, such as https://shop.example/thanks."))
    other_errors = {
        path: messages for path, messages in error.fields.items() if not path.startswith(("origins", "fields"))
    }
    return form.add_errors(errors.Invalid(other_errors)) if other_errors else form


async def _build_context(visit: Visit, form: Form, changed: int | None) -> dict[str, Any]:
    """Return the template context of the settings besides the form; `changed` is the number of an opened row."""
    lists = [
        contact_list
        for contact_list in await fetch(lookups.list_contact_lists, visit.account_id)
        if contact_list.segment_id is None
    ]
    keys = [key.path for key in await fetch(suggestions.suggest_data_keys, visit.account_id)]
    return {
        "lists": lists, "field_rows": list_rows(form), "addable": list_addable(form),
        "languages": lookups.language_options(gettext("Visitor’s language"), form["language"]),
        "data_keys": keys, "changed": changed, "type_labels": TYPE_LABELS,
        "choice_types": CHOICE_TYPES, "token": await _add_preview(visit, form),
    }  # fmt: skip


async def _render_form(
    request: Request, visit: Visit, form: Form, row: Any, status: int, changed: int | None = None
) -> HTTPResponse:
    context = await _build_context(visit, form, changed)
    return view.render(request, "forms/form.html", status, also=("preview",), form=form, row=row, **context)


# The settings have one row for each field, added, removed and moved without saving. Each row has a number, and its
# values are form fields such as `label-3`; the order of the hidden fields `row` is the order of the rows.
CONTACT_LABELS = {
    "email": gettext_noop("Email address"), "phone": gettext_noop("Phone number"),
    "first_name": gettext_noop("First name"), "last_name": gettext_noop("Last name"),
    "language": gettext_noop("Language"),
}  # fmt: skip
TYPE_LABELS = {
    "text": gettext_noop("Short text"), "textarea": gettext_noop("Long text"), "select": gettext_noop("Dropdown"),
    "radio": gettext_noop("Single choice"), "checkboxes": gettext_noop("Checkboxes"),
    "checkbox": gettext_noop("Yes or no"), "date": gettext_noop("Date"), "number": gettext_noop("Number"),
    "hidden": gettext_noop("Hidden value"),
}  # fmt: skip
# The part of an error path, and the form field of the row that shows the error.
_ERROR_PLACES = {
    "label": "label", "help": "help", "placeholder": "placeholder", "options": "options", "value": "value",
    "query_parameter": "query",
}  # fmt: skip
_ERROR_PATH = re.compile(r"fields\[(\d+)\](?:\.(\w+))?")
_KEY_PREFIX = "data."


class FieldRow(NamedTuple):
    """A row of the settings: its number, contact field (empty for a custom field), type and title."""

    number: int
    name: str
    type: str
    title: str


def set_fields(form: Form, fields: list[Field]) -> None:
    """Set the rows of a form from the fields of a sign-up form."""
    form.lists["row"] = []
    for field in fields:
        number = _add_row(form, field.name if field.key is None else field.type)
        values = {
            "label": field.label, "key": field.key, "required": "yes" if field.required else "",
            "options": "\n".join(field.options), "help": field.help, "placeholder": field.placeholder,
            "value": field.value, "query": field.query_parameter,
        }  # fmt: skip
        form.values |= {f"{name}-{number}": value or "" for name, value in values.items()}


def _add_row(form: Form, kind: str) -> int:
    """Add an empty row of a contact field or type, and return its number."""
    number = max((row.number for row in list_rows(form)), default=0) + 1
    form.lists["row"] = [*form.getlist("row"), str(number)]
    form.values[f"name-{number}"] = kind if kind in CONTACT_FIELDS else ""
    form.values[f"type-{number}"] = "text" if kind in CONTACT_FIELDS else kind
    return number


def list_rows(form: Form) -> list[FieldRow]:
    """Return the rows of a form in order, at most MAX_FIELDS; rows with unknown names or types are left out."""
    rows = []
    for number in dict.fromkeys(form.ids("row")):
        name, type_ = form[f"name-{number}"], form[f"type-{number}"]
        if name in CONTACT_LABELS:
            rows.append(FieldRow(number, name, "text", form[f"label-{number}"] or gettext(CONTACT_LABELS[name])))
        elif type_ in TYPE_LABELS:
            key_words = form[f"key-{number}"].replace("_", " ").capitalize()
            title = form[f"label-{number}"] or key_words or gettext(TYPE_LABELS[type_])
            rows.append(FieldRow(number, "", type_, title))
    return rows[:MAX_FIELDS]


def list_addable(form: Form) -> list[tuple[str, str]]:
    """Return (kind, label) of each kind of row that can be added to the form; a contact field only once.

    The list is empty if the form has `MAX_FIELDS` rows.
    """
    rows = list_rows(form)
    if len(rows) >= MAX_FIELDS:
        return []
    names = {row.name for row in rows}
    return [(name, label) for name, label in CONTACT_LABELS.items() if name not in names] + list(TYPE_LABELS.items())


def apply_action(form: Form) -> int | None:
    """Apply the pressed button of the rows (`add:date`, `remove:3`, `up:3`, `down:3`).

    Return the number of the row, or None if no row was changed.
    """
    verb, _, argument = form.values.pop("act", "").partition(":")
    if verb == "add":
        return _add_row(form, argument) if argument in dict(list_addable(form)) else None
    numbers = [str(row.number) for row in list_rows(form)]
    if argument not in numbers:
        return None
    at = numbers.index(argument)
    numbers.pop(at)
    if verb != "remove":
        numbers.insert(max(0, at - 1) if verb == "up" else at + 1, argument)
    form.lists["row"] = numbers
    return int(argument)


def read_fields(form: Form) -> list[dict[str, Any]]:
    """Return the fields of the rows as the API represents them."""
    return [_read_row(form, row) for row in list_rows(form)]


def _read_row(form: Form, row: FieldRow) -> dict[str, Any]:
    def text(name: str) -> str | None:
        return form[f"{name}-{row.number}"] or None

    is_hidden = row.type == "hidden"
    field: dict[str, Any] = {
        "name": row.name or _KEY_PREFIX + (_clean_key(text("key") or "") or _derive_key(text("label") or "", row)),
        "label": text("label"), "required": bool(text("required")) and not is_hidden, "type": row.type,
        "help": None if is_hidden else text("help"), "placeholder": None if is_hidden else text("placeholder"),
    }  # fmt: skip
    if row.type in CHOICE_TYPES:
        lines = (line.strip() for line in (text("options") or "").splitlines())
        field["options"] = [line for line in lines if line]
    if is_hidden:
        field |= {"value": text("value"), "query_parameter": text("query")}
    return field


def _clean_key(text: str) -> str:
    return text.removeprefix(_KEY_PREFIX).replace(" ", "_")


def _derive_key(label: str, row: FieldRow) -> str:
    """Return the key of a field without one: its label in plain letters, else its number."""
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    key = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:64]
    return key if key[:1].isalpha() else f"field_{row.number}"


def add_label_errors(form: Form) -> None:
    """Add an error to each new field that has neither a label nor a key from which its label could be derived."""
    for row in list_rows(form):
        if not row.name and row.type != "hidden" and not form[f"label-{row.number}"] and not form[f"key-{row.number}"]:
            form.add_error(f"label-{row.number}", gettext("Enter the label that visitors see."))


def add_field_errors(form: Form, paths: Mapping[str, list[str]]) -> None:
    """Add the errors at paths such as `fields[2].options` to the rows of the form."""
    rows = list_rows(form)
    for path, messages in paths.items():
        match = _ERROR_PATH.match(path)
        if match is None or int(match[1]) >= len(rows):
            form.add_error("fields", gettext("Use at most %(limit)s fields.", limit=MAX_FIELDS))
            continue
        row = rows[int(match[1])]
        place = _ERROR_PLACES.get(match[2] or "", "label" if row.name else "key")
        form.add_error(f"{place}-{row.number}", _error_sentence(place, messages[0]))


def _error_sentence(place: str, message: str) -> str:
    if place == "key":
        return gettext("Use only letters, digits and _, and each name once.")
    if place == "options":
        is_blank = is_message(message, gettext_noop("can't be blank"))
        return (
            gettext("Enter at least one option.")
            if is_blank
            else gettext("Enter up to 50 different options of at most 100 characters, one per line.")
        )
    if place == "value":
        return gettext("Enter a value of at most 255 characters, or a URL parameter.")
    if place == "query":
        return gettext("Use only letters, digits, dots, hyphens and _.")
    return gettext("Use at most 255 characters, without line breaks.")


class SignupFormParts(forms.FormParts):
    """The parts of the settings of a sign-up form; its fields are one part."""

    FIELDS = gettext_noop("Fields")

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part: the fields as the API takes them, else the sorted values."""
        return read_fields(form) if key == self.FIELDS else super().value(form, key)

    def take_stored(self, form: Form, key: str, stored: Form) -> None:
        """Replace the value of a part in the form with the stored value."""
        if key != self.FIELDS:
            return super().take_stored(form, key, stored)
        for number in form.ids("row"):
            for name in [name for name in form.values if name.endswith(f"-{number}")]:
                del form.values[name]
        form.lists["row"] = stored.getlist("row")
        for number in form.ids("row"):
            form.values |= {name: value for name, value in stored.values.items() if name.endswith(f"-{number}")}
        return None

    def describe(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return the value of a part as text for the user; of the fields, their titles."""
        if key != self.FIELDS:
            return super().describe(form, key, known)
        return ", ".join(row.title for row in list_rows(form)) or gettext("nothing")


_FORM_PARTS = SignupFormParts(
    FormPart(gettext_noop("Internal name"), ("name",)),
    FormPart(SignupFormParts.FIELDS, ("row",), True),
    FormPart(gettext_noop("Title"), ("title",)),
    FormPart(gettext_noop("Introduction"), ("intro",)),
    FormPart(gettext_noop("Form language"), ("language",)),
    FormPart(gettext_noop("Button"), ("button_text",)),
    FormPart(gettext_noop("Consent text"), ("consent_text",)),
    FormPart(gettext_noop("Double opt-in"), ("double_opt_in",), True),
    FormPart(_LISTS, ("list_ids",), True),
    FormPart(_TOPICS, ("topic_ids", "topics_required"), True),
    FormPart(gettext_noop("Thank-you title"), ("thanks_title",)),
    FormPart(gettext_noop("Thank-you text"), ("thanks_text",)),
    FormPart(gettext_noop("Your own thank-you page"), ("redirect_url",)),
    FormPart(gettext_noop("Allowed origins"), ("origins",)),
)
