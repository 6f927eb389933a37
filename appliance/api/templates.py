"""Endpoints of templates, and of uploaded images."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit
from appliance.api import http, schemas
from appliance.api.auth import require_access_to_named_contact
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, keep_faults_of_readable_fields, validator
from appliance.api.http import page_headers
from appliance.campaigns import content
from appliance.content import brand as brands
from appliance.content import media
from appliance.content.designs import document, merge_limits
from appliance.content.pictures import Picture
from appliance.content.templates import starters, store, template_edits
from appliance.content.templates.translations import MAX_WRITTEN_TEXTS, TranslationSummary
from appliance.content.templates.validation import TemplateCreate, TemplateQuery, TemplateWrite
from appliance.core import clock, i18n, validation
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.validation import PageQuery, Short, Text, When
from appliance.sending.messages import preview, test_sends
from appliance.sending.messages.preview import Preview, PreviewRequest
from appliance.sending.messages.test_sends import TestRequest, TestSendResult
from appliance.storage.database import Page
from appliance.storage.models import Media
from appliance.storage.transactions import commit, fetch, render, render_preview, render_send

ROUTES = Routes()


@ROUTES.add(
    "GET",
    "/templates",
    scope="templates:read",
    agent_scope="templates:read",
    query_type=TemplateQuery,
    response_type=schemas.Template,
    returns_list=True,
)
async def list_templates(request: ApiRequest) -> ApiResponse:
    """List templates, newest first."""
    page = await fetch(store.fetch_page, request.account_id, request.query)
    return ApiResponse([schemas.serialize_template(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/templates", scope="templates:write", agent_scope="templates:write",
    body_type=TemplateCreate, response_type=schemas.Template, status=201,
    validate=validator(store.validate, run=render),
)  # fmt: skip
async def create_template(request: ApiRequest) -> ApiResponse:
    """Create a template."""
    prepared = await render(store.prepare, request.account_id, request.body)
    args = (content.create_template, request.account_id, request.body, request.caller, prepared)
    template = await commit(audit.run_and_record_agent, request.caller, "template_create", *args)
    return ApiResponse(schemas.serialize_template(template))


class EmailStarter(Struct):
    """A predefined email in the style of the account's brand."""

    name: Annotated[str, Meta(description="key of the starter")]
    label: str
    description: Annotated[str, Meta(description="description")]
    subject: str
    preheader: str
    design: Annotated[schemas.Design, Meta(description="design")]


class TemplateSpec(Struct):
    """The section types of designs, the tags and filters of merge tags, and predefined emails."""

    kinds: Annotated[list[schemas.Json], Meta(description="section types and their properties")]
    theme: Annotated[list[schemas.Json], Meta(description="properties of the theme")]
    common: Annotated[list[schemas.Json], Meta(description="properties that all sections have")]
    styles: Annotated[list[schemas.Json], Meta(description="properties allowed in `styles`")]
    colours: Annotated[list[str], Meta(description="names of theme colours")]
    limits: Annotated[schemas.Json, Meta(description="limits")]
    merge: Annotated[dict[str, list[str]], Meta(description="merge language: tags, filters, roots")]
    starters: Annotated[list[EmailStarter], Meta(description="starter designs")]


@ROUTES.add("GET", "/templates/spec", scope="templates:read", agent_scope="templates:read", response_type=TemplateSpec)
async def describe_designs(request: ApiRequest) -> ApiResponse:
    """Get the section types with their properties and defaults, and predefined designs."""

    def read() -> TemplateSpec:
        look = brands.build_look(brands.get(request.account_id))
        email_starters = [EmailStarter(*starter[:3], *starter.email) for starter in starters.build_starters(look)]
        tags = [starter for starter in merge_limits.TAGS if starter not in ("output", "content", "illegal")]
        merge_language = {"tags": tags, "filters": [*merge_limits.FILTERS], "roots": [*merge_limits.ROOTS]}
        return TemplateSpec(**document.describe_designs(), merge=merge_language, starters=email_starters)

    return ApiResponse(await fetch(read))


@ROUTES.add(
    "GET", "/templates/{id}", scope="templates:read", agent_scope="templates:read", response_type=schemas.Template
)
async def get_template(request: ApiRequest) -> ApiResponse:
    """Get a template."""
    return ApiResponse(schemas.serialize_template(await fetch(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH", "/templates/{id}", scope="templates:write", agent_scope="templates:write",
    body_type=TemplateWrite, response_type=schemas.Template,
    validate=validator(store.validate, run=render),
)  # fmt: skip
async def update_template(request: ApiRequest) -> ApiResponse:
    """Update a template."""
    prepared = await render(store.prepare, request.account_id, request.body, request.id)
    args = (content.update_template, request.account_id, request.id, request.body, request.caller, prepared)
    template = await commit(audit.run_and_record_agent, request.caller, "template_update", *args)
    return ApiResponse(schemas.serialize_template(template))


@ROUTES.add("DELETE", "/templates/{id}", scope="templates:write", response_type=schemas.Template)
async def delete_template(request: ApiRequest) -> ApiResponse:
    """Delete a standalone template."""
    args = (request.account_id, request.id)
    template = await commit(audit.run_and_record, request.caller, "template_delete", store.delete, *args)
    return ApiResponse(schemas.serialize_template(template))


_validate_preview = validator(preview.validate_preview, run=render_preview, access=require_access_to_named_contact)
_validate_test = validator(test_sends.validate, run=render, access=require_access_to_named_contact)


@ROUTES.add(
    "POST", "/templates/preview", scope="templates:read", agent_scope="templates:read",
    body_type=PreviewRequest, response_type=Preview,
    rate="renders", validate=_validate_preview,
)  # fmt: skip
async def preview_design(request: ApiRequest) -> ApiResponse:
    """Render an email design to HTML for a contact or with sample values.

    A contact (`contact_id`) requires `contacts:read` too.
    """
    require_access_to_named_contact(request)
    return ApiResponse(await render_preview(preview.render_preview, request.account_id, request.body))


@ROUTES.add(
    "POST", "/templates/{id}/send_test", scope="templates:write", agent_scope="templates:write",
    body_type=TestRequest, body_required=False,
    response_type=TestSendResult, rate="sends", validate=_validate_test,
)  # fmt: skip
async def send_test(request: ApiRequest) -> ApiResponse:
    """Send a test email of a template.

    An agent sends tests only to users of the account. A contact (`contact_id`) requires `contacts:read` too; without
    that scope, every test shows sample values.
    """
    require_access_to_named_contact(request)
    credential = request.credential
    can_send = credential.has_scope("campaigns:send") or credential.has_scope("messages:send")
    prepared = await render_send(test_sends.prepare, request.account_id, request.id, request.body)
    args = (request.account_id, request.id, request.body, credential.is_test, prepared)
    access = (credential.can_read_contacts, can_send, credential.is_agent)

    def write() -> TestSendResult:
        if credential.is_agent:
            audit.record(request.caller, request.account_id, "template_test", f"template:{request.id}")
        return test_sends.send(*args, *access)

    return ApiResponse(await commit(write))


class TranslationCounts(Struct):
    """A language that a template is translated into, with the number of its texts by state."""

    language: Annotated[str, Meta(description="tag of the language (RFC 5646)")]
    translated: Annotated[int, Meta(description="number of texts that are translated")]
    changed: Annotated[int, Meta(description="number of texts that have changed since they were translated")]
    missing: Annotated[int, Meta(description="number of texts that are not translated")]


class TranslatedText(Struct):
    """A text of a template with its translation.

    `text` is null if it is not translated; recipients then get `source`. The address of an image can be replaced in the
    same way. A translation whose source has changed since is still used, and its state is `changed`.
    """

    id: Annotated[str, Meta(description="id of the text: a field, or section and path (`a1b2/props.title`)")]
    label: Annotated[str, Meta(description="name of the text")]
    section: Annotated[str, Meta(description="name of its section; empty for a field of the template")]
    kind: Annotated[str, Meta(description="kind of the text: `line`, `text`, `rich`, `html`, `url` or `image`")]
    source: Annotated[str, Meta(description="text of the original")]
    text: Annotated[str, Meta(description="translation; null if there is none")] | None
    state: Annotated[
        Literal["translated", "changed", "missing", "original"],
        Meta(description="state of the translation; `original`: an image without one, which needs none"),
    ]


class TemplateTranslation(TranslationCounts):
    """The translation of a template into a language, with its texts in reading order."""

    updated_at: Annotated[schemas.Moment, Meta(description="last change of the template, for `updated_at` of a PUT")]

    texts: Annotated[list[TranslatedText], Meta(description="texts of the template in reading order")]


class TranslationWrite(Struct):
    """Translations by the id of the text. Texts that are not named keep theirs; null removes one."""

    texts: Annotated[
        dict[Short, Text | None],
        Meta(max_length=MAX_WRITTEN_TEXTS, description="translations by id of the text; null removes one"),
    ]
    updated_at: (
        Annotated[
            When,
            Meta(description="`updated_at` as last read; if the template has changed since then, the response is 409"),
        ]
        | UnsetType
    ) = UNSET


def _serialize_counts(summary: TranslationSummary) -> TranslationCounts:
    return TranslationCounts(summary.language, summary.translated, summary.changed, summary.missing)


def _serialize_translation(summary: TranslationSummary, updated_at: int) -> TemplateTranslation:
    texts = [
        TranslatedText(
            state.text.id, state.text.label, state.text.section, state.text.kind, state.text.text, state.translation,
            state.state,
        )
        for state in summary.texts
    ]  # fmt: skip
    return TemplateTranslation(
        summary.language, summary.translated, summary.changed, summary.missing, str(clock.iso(updated_at)), texts
    )


def _load_translation(account_id: int, template_id: int, language: str) -> TemplateTranslation:
    summary = template_edits.get_summary(account_id, template_id, language)
    return _serialize_translation(summary, store.get(account_id, template_id).updated_at)


def _find_language(request: ApiRequest) -> str:
    """Return the language of the path in its usual form; raises NotFound if it is not a language."""
    language = i18n.normalize_language_tag(request.language)
    if language is None:
        raise NotFound
    return language


@ROUTES.add(
    "GET", "/templates/{id}/translations", scope="templates:read", agent_scope="templates:read", query_type=PageQuery,
    response_type=TranslationCounts, returns_list=True,
)  # fmt: skip
async def list_template_translations(request: ApiRequest) -> ApiResponse:
    """List the languages that a template is translated into."""
    summaries = await render(template_edits.list_summaries, request.account_id, request.id)
    number, size = request.query.page, request.query.size()
    page = Page(summaries[(number - 1) * size : number * size], len(summaries), number, size)
    return ApiResponse([_serialize_counts(summary) for summary in page.rows], headers=page_headers(page))


@ROUTES.add(
    "GET",
    "/templates/{id}/translations/{language}",
    scope="templates:read",
    agent_scope="templates:read",
    response_type=TemplateTranslation,
)
async def get_template_translation(request: ApiRequest) -> ApiResponse:
    """Get the translation of a template into a language."""
    return ApiResponse(await render(_load_translation, request.account_id, request.id, _find_language(request)))


async def _validate_translation(request: ApiRequest) -> dict[str, list[str]]:
    if request.body is None:
        return {}
    assert request.parse_result is not None  # `body` is not None, so it was parsed.
    texts = getattr(request.body, "texts", None)
    try:
        language = template_edits.read_language(request.language)
        args = (request.account_id, request.id, language, texts if isinstance(texts, dict) else {}, "texts.")
        await render(template_edits.validate, *args)
    except Invalid as error:
        return keep_faults_of_readable_fields(request.parse_result, error)
    return {}


@ROUTES.add(
    "PUT", "/templates/{id}/translations/{language}", scope="templates:write", agent_scope="templates:write",
    body_type=TranslationWrite,
    response_type=TemplateTranslation, validate=_validate_translation,
)  # fmt: skip
async def put_template_translation(request: ApiRequest) -> ApiResponse:
    """Translate texts of a template into a language.

    The first translation adds the language. Contacts get the template in their language (`language` of the contact), in
    another region's (`de` for `de-AT`), or else in the original. With `updated_at` as last read, a template that was
    changed since is left unchanged, and the response is 409.
    """
    language = template_edits.read_language(request.language)
    args = (request.account_id, request.id, language, request.body.texts)
    prepared = await render(template_edits.prepare, *args)
    read_at = request.body.updated_at if isinstance(request.body.updated_at, int) else None
    write = (content.set_translation, *args, request.caller, prepared, read_at)
    await commit(audit.run_and_record_agent, request.caller, "template_update", *write)
    return ApiResponse(await render(_load_translation, request.account_id, request.id, language))


@ROUTES.add(
    "DELETE",
    "/templates/{id}/translations/{language}",
    scope="templates:write",
    agent_scope="templates:write",
    response_type=TemplateTranslation,
)
async def delete_template_translation(request: ApiRequest) -> ApiResponse:
    """Delete the translation of a template into a language, and return it."""
    language = _find_language(request)
    translation = await render(_load_translation, request.account_id, request.id, language)
    prepared = await render(template_edits.prepare, request.account_id, request.id, language, None)
    write = (content.remove_translation, request.account_id, request.id, language, request.caller, prepared)
    await commit(audit.run_and_record_agent, request.caller, "template_update", *write)
    return ApiResponse(translation)


class UploadForm(Struct):
    """The form fields other than the file.

    Without `full_size`, an image wider than twice the width of an email is scaled down.
    """

    full_size: Annotated[
        bool, Meta(description="true to keep the original width of an image that is wider than an email")
    ] = False


class Upload(Struct):
    """An uploaded image. Type and size describe the converted image, which is served instead of the original."""

    signed_id: Annotated[str, Meta(description="identifier of the image, for the brand's `logo` and others")]
    url: Annotated[str, Meta(description="URL of the image")]
    content_type: Annotated[str, Meta(description="media type, such as `image/png`")]
    bytes: Annotated[int, Meta(description="size in bytes")]
    width: Annotated[int, Meta(description="width in pixels; null if unknown")] | None
    height: Annotated[int, Meta(description="height in pixels; null if unknown")] | None
    filename: Annotated[str, Meta(description="file name")]


def serialize_upload(row: Media) -> Upload:
    """Return the API representation of an uploaded image."""
    return Upload(
        str(row.signed_id),
        media.public_url(row.signed_id),
        str(row.content_type),
        int(row.bytes),
        row.width,
        row.height,
        str(row.filename),
    )


async def _receive_picture(request: ApiRequest) -> tuple[str, Picture]:
    """Receive the image of a multipart form, and return its file name and the converted image.

    Raises Invalid with all errors of the image and of the form's fields.
    """
    directory = await asyncio.to_thread(TemporaryDirectory, prefix=media.UPLOAD_DIR_PREFIX)
    faults, picture = Faults(), None
    try:
        target = Path(directory.name) / "file"
        form = await http.receive_file(request, target, media.MAX_UPLOAD_BYTES, "An upload")
        options = faults.collect(validation.read, UploadForm, form.texts, "", True) or UploadForm()
        if form.filename is None:
            faults.add("file", "can't be blank")
        else:
            try:
                picture = await media.decode(request.account_id, media.prepare_upload, target, options.full_size)
            except Invalid as error:
                faults.merge(error.fields)
    finally:
        await asyncio.to_thread(directory.cleanup)
    faults.check()
    assert picture is not None  # `check` raises unless an image was decoded.
    return form.filename or "", picture


async def _validate_upload(request: ApiRequest) -> dict[str, list[str]]:
    try:
        await _receive_picture(request)
    except Invalid as error:
        return error.fields
    return {}


@ROUTES.add(
    "POST",
    "/uploads",
    scope="templates:write",
    agent_scope="templates:write",
    form_type=UploadForm,
    response_type=Upload,
    status=201,
    validate=_validate_upload,
)
async def create_upload(request: ApiRequest) -> ApiResponse:
    """Upload an image (PNG, JPEG, GIF or WebP) for a logo or an email."""
    args = (media.add, request.account_id, *await _receive_picture(request))
    picture = await commit(audit.run_and_record_agent, request.caller, "picture_upload", *args)
    return ApiResponse(serialize_upload(picture))
