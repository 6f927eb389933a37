"""The translations of a template: its languages, and the texts of each beside the original."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.content import media
from appliance.content.designs import markup
from appliance.content.templates import store, template_edits
from appliance.content.templates.translations import TextState, TranslationSummary
from appliance.core import i18n
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.storage.models import Template
from appliance.storage.transactions import commit, fetch, render_for
from ui import view
from ui.forms import Form, lookups
from ui.guard import signed_in
from ui.pages.editor import back_url, editor_url, value_error_sentence
from ui.session import Pages, Visit

pages = Pages("ui_translations")

_PAGE = "templates/translation.html"
# Longer originals get a field of several lines.
_LINE_CHARACTERS = 70
_MAX_SUGGESTED_PICTURES = 50


class TextRow(NamedTuple):
    """A text of a template on the page of a translation.

    `id` is the text's id, and `element` the id of its HTML element. `original` is plain text, and `original_hash`
    identifies the text that was shown. `value` is the translation, or, after an error, the posted text; `seen` is the
    stored translation when the page was shown. `state` is `TextState.state`; if it is `changed`, `former` is the
    original that was translated.
    """

    id: str
    element: str
    label: str
    kind: str
    original: str
    original_hash: str
    value: str
    seen: str
    state: str
    former: str
    error: str = ""


@pages.get("/templates/<template_id:int>/translations")
@signed_in("templates:read")
async def index(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Show the languages that a template is translated into, and a form to add one."""
    return await _render_index(request, visit, template_id, Form({"language": ""}), 200)


@pages.get("/campaigns/<campaign_id:int>/translations")
@signed_in("campaigns:read")
async def show_campaign(request: Request, visit: Visit, campaign_id: int) -> HTTPResponse:
    """Redirect to the languages of a campaign's message."""
    row = await fetch(store.get_campaign_template, visit.account_id, campaign_id)
    return view.redirect(request, f"/templates/{row.id}/translations")


@pages.get("/campaigns/<campaign_id:int>/translations/<language:str>")
@signed_in("campaigns:read")
async def show_campaign_language(request: Request, visit: Visit, campaign_id: int, language: str) -> HTTPResponse:
    """Redirect to the translation of a campaign's message; to add it, if there is none."""
    row = await fetch(store.get_campaign_template, visit.account_id, campaign_id)
    suffix = f"/{language}" if language in row.translations else ""
    return view.redirect(request, f"/templates/{row.id}/translations{suffix}")


async def _render_index(
    request: Request, visit: Visit, template_id: int, form: Form, status: int, added: str = ""
) -> HTTPResponse:
    """Render the languages, or the dialog of the editor that adds one; `added` is the language that it has added."""
    values = await render_for(visit.account_id, _build_context, visit, template_id, "")
    return view.render(
        request, "templates/translations.html", status, form=form,
        added=next((summary for summary in values["languages"] if summary.language == added), None),
        options=_list_options(values["languages"], values["original_tag"]), **values,
    )  # fmt: skip


def _list_options(languages: list[TranslationSummary], original: str) -> list[tuple[str, str]]:
    """Return the languages that can be added, as (tag, name), after an empty option."""
    used = {original, *(summary.language for summary in languages)}
    return [option for option in lookups.language_options(gettext("Select a language")) if option[0] not in used]


@pages.post("/templates/<template_id:int>/translations")
@signed_in("templates:write")
async def add(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Add a language without texts, and show its page, or in the dialog of the editor a link to it."""
    form = Form.from_request(request)
    form.require("language", gettext("Select a language."))
    try:
        if form.errors:
            raise Invalid({})
        language = template_edits.read_language(form["language"])
        await _save(visit, template_id, language, {})
    except Invalid as error:
        return await _render_index(request, visit, template_id, form.add_errors(error), 422)
    if view.is_partial(request):
        return await _render_index(request, visit, template_id, form, 200, language)
    return view.redirect(request, f"/templates/{template_id}/translations/{language}")


@pages.get("/templates/<template_id:int>/translations/<language:str>")
@signed_in("templates:read")
async def show(request: Request, visit: Visit, template_id: int, language: str) -> HTTPResponse:
    """Show the texts of a template beside their translations, and the message in that language."""
    values = await render_for(visit.account_id, _build_context, visit, template_id, language)
    return view.render(request, _PAGE, 200, **values)


@pages.post("/templates/<template_id:int>/translations/<language:str>")
@signed_in("templates:write")
async def save(request: Request, visit: Visit, template_id: int, language: str) -> HTTPResponse:
    """Save the translation of one text, or copy the original, unless another user changed it meanwhile."""
    form = Form.from_request(request)
    text_id, typed = form["id"], form["text"].replace("\r\n", "\n")
    error = ""
    try:
        await _save_text(visit, template_id, language, text_id, typed, form)
    except Invalid as refused:
        path, messages = next(iter(refused.fields.items()))
        error = value_error_sentence(path, messages[0])
    if not view.is_partial(request):
        if error:
            view.flash(request, error)
        return view.redirect(request, f"/templates/{template_id}/translations/{language}")
    values = await render_for(visit.account_id, _build_context, visit, template_id, language)
    row = next((row for _, rows in values["groups"] for row in rows if row.id == text_id), None)
    if row is None:
        return view.redirect(request, f"/templates/{template_id}/translations/{language}")
    if error:
        row = row._replace(error=error, value=typed)
    return view.render_blocks(request, _PAGE, ("saved",), 422 if error else 200, **(values | {"saved": row}))


async def _save_text(visit: Visit, template_id: int, language: str, text_id: str, typed: str, form: Form) -> None:
    """Save one text; raises Invalid if its original or its translation has been changed since the page was shown."""
    summary = await render_for(visit.account_id, template_edits.get_summary, visit.account_id, template_id, language)
    state = next((state for state in summary.texts if state.text.id == text_id), None)
    if state is None:
        raise Invalid({"base": [gettext("The original of this text was removed. Reload the page.")]})
    if form["original"] != _hash_text(state.text.text):
        raise Invalid({"base": [gettext("The original was changed meanwhile. Compare it, then save again.")]})
    if form["copy"]:
        typed = state.text.text
    elif form["keep"]:
        typed = state.translation or ""
    seen = form["seen"].replace("\r\n", "\n")
    require_current = partial(_require_current, visit.account_id, template_id, language, text_id, (seen, typed))
    await _save(visit, template_id, language, {text_id: typed if typed.strip() else None}, require_current)


def _require_current(account_id: int, template_id: int, language: str, text_id: str, expected: tuple[str, ...]) -> None:
    """Raise Invalid unless the stored translation of a text is among those expected; call it in the write.

    Raises NotFound if the language was removed.
    """
    translations = store.get(account_id, template_id).translations
    if language not in translations:
        raise NotFound
    stored = translations[language].get(text_id, {}).get("text", "")
    if stored not in expected:
        message = gettext("Another user translated this at the same time: “%(text)s”", text=stored)
        raise Invalid({"base": [message]})


async def _save(
    visit: Visit, template_id: int, language: str, texts: dict[str, str | None], check: Callable[[], None] | None = None
) -> None:
    """Set texts of a translation; `check` is called in the same transaction, before the texts are set."""
    args = (visit.account_id, template_id, language, texts)
    prepared = await render_for(visit.account_id, template_edits.prepare, *args)

    def write() -> None:
        if check is not None:
            check()
        # With the user as its author, an edit of a live flow stays a draft (`flows.drafts.publish_changed_template`).
        template_edits.set_texts(*args, visit.user.id, prepared=prepared)

    await commit(write)


@pages.post("/templates/<template_id:int>/translations/<language:str>/remove")
@signed_in("templates:write")
async def remove(request: Request, visit: Visit, template_id: int, language: str) -> HTTPResponse:
    """Remove a language; the notice can undo it."""
    args = (visit.account_id, template_id, language)
    prepared = await render_for(visit.account_id, template_edits.prepare, *args, None)
    row = await commit(partial(template_edits.remove, *args, visit.user.id, prepared=prepared))
    back = f"translations/{language}"
    undo = (f"/templates/{template_id}/undo", {"revision": str(row.revision), "back": back})
    name = i18n.name_language(language)
    view.flash(request, gettext("Translation into %(language)s removed.", language=name), undo)
    return view.redirect(request, f"/templates/{template_id}/translations")


def _build_context(visit: Visit, template_id: int, language: str) -> dict[str, Any]:
    """Return the template context of the pages; raises NotFound for an unknown template or language."""
    row = store.get(visit.account_id, template_id)
    home = store.find_owner(row)
    languages = template_edits.list_summaries(visit.account_id, template_id)
    summary = next((summary for summary in languages if summary.language == language), None)
    if summary is None and language:
        raise NotFound
    stored = row.translations.get(language, {})
    groups = _group_rows(summary.texts if summary is not None else (), stored, row.channel)
    missing = [row for _, rows in groups for row in rows if row.state in ("missing", "changed")]
    original = template_edits.get_original_language(visit.account_id)
    return {
        "nav": [item for item in view.list_navigation(f"/{home.kind}s") if visit.can_open(item.href)],
        "row": row, "home": home, "page_url": f"/templates/{row.id}/translations", "editor": editor_url(home),
        "back": _original_url(row, home), "locked": home.is_locked,
        "may_write": visit.can("templates:write") and not home.is_locked,
        "languages": languages, "translation": summary, "groups": groups,
        "pictures": _list_pictures(visit.account_id, groups),
        "next_missing": missing[0].element if missing else "",
        "saved": None, "original_tag": original, "original_name": i18n.name_language(original),
    }  # fmt: skip


def _original_url(row: Template, home: store.TemplateOwner) -> str:
    """Return the URL where the original is edited; an SMS of a campaign or flow is edited on the page of its owner."""
    return back_url(home) if row.channel == "sms" and home.kind != "template" else editor_url(home)


def _group_rows(states: tuple[TextState, ...], stored: dict[str, Any], channel: str) -> list[tuple[str, list[TextRow]]]:
    """Return the texts in reading order, with the label of each section that they belong to.

    `stored` has the translations of the language by text id, each with the text that was translated.
    """
    groups: list[tuple[str, str, list[TextRow]]] = []
    of_fields = gettext("Text") if channel == "sms" else gettext("Subject and sender")
    for number, state in enumerate(states):
        section_key = state.text.id.partition("/")[0] if "/" in state.text.id else ""
        if not groups or groups[-1][0] != section_key:
            groups.append((section_key, state.text.section or of_fields, []))
        groups[-1][2].append(_build_row(number, state, stored))
    return [(label, rows) for _, label, rows in groups]


def _build_row(number: int, state: TextState, stored: dict[str, Any]) -> TextRow:
    text, translation = state.text, state.translation or ""
    kind = "text" if text.kind == "line" and len(text.text) > _LINE_CHARACTERS else text.kind
    former = _to_plain(stored[text.id]["source"], text.kind) if state.state == "changed" else ""
    original = _to_plain(text.text, text.kind)
    return TextRow(
        text.id, f"t-{number}", text.label, kind, original, _hash_text(text.text), translation, translation,
        state.state, former,
    )  # fmt: skip


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _list_pictures(account_id: int, groups: list[tuple[str, list[TextRow]]]) -> list[tuple[str, str]]:
    """Return the newest pictures of the account as (URL, file name), as suggestions for images in another language.

    Returns an empty list if the template has no image.
    """
    if all(row.kind != "image" for _, rows in groups for row in rows):
        return []
    page = media.fetch_page(account_id, limit=_MAX_SUGGESTED_PICTURES)
    return [(media.public_url(picture.signed_id), picture.filename) for picture in page.rows]


def _to_plain(text: str, kind: str) -> str:
    return markup.html_template_to_text(text).strip() if kind == "rich" else text
