"""Render previews of messages as for a send, with values of a contact or sample values."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts.public_urls import base_url_of
from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs import links as designs_links
from appliance.content.designs import markup, merge, merge_limits, render
from appliance.content.designs.merge import make_readable
from appliance.content.designs.merge_limits import MergeError
from appliance.content.designs.utm import LinkTagger
from appliance.content.templates import placeholders, revisions, translations, validation, variant_content
from appliance.content.templates import store as templates
from appliance.content.templates.validation import Design
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import Data, Id, LanguageTag, Line, Subject, Text
from appliance.sending.messages import compose, languages, links, merge_tags, section_conditions
from appliance.sending.messages.compose import CompiledMessage, FilledMessage, SmsPreview, SmsText
from appliance.sending.sms import segments
from appliance.storage.models import Account, Brand, Campaign, Contact

GMAIL_CLIP_BYTES = 102 * 1024
# Above this size there is a warning, because a longer name or a few more links would reach the limit.
GMAIL_WARN_BYTES = 80 * 1024
_EMAIL_FIELDS = ("subject", "preheader", "from_name", "body")
_SMS_FIELDS: dict[str, merge_limits.Context] = {"body": "text"}


class TextTranslation(Struct):
    """The translation of a text (`text`), and the text of which it is a translation (`source`)."""

    source: Annotated[str, Meta(max_length=1_048_576), Meta(description="text that was translated")]
    text: Annotated[str, Meta(max_length=1_048_576), Meta(description="translation")]


class PreviewRequest(Struct):
    """The content of a message to preview, and the values to show in it.

    Of an SMS, only the body is used. The SMS is shown as a marketing message, with short links and the opt-out hint,
    unless it is `transactional`.
    """

    document: Annotated[Design, Meta(description="design to render")]
    subject: Subject | None | UnsetType = UNSET
    preheader: Line | None | UnsetType = UNSET
    from_name: Line | None | UnsetType = UNSET
    body: Text | None | UnsetType = UNSET
    contact_id: (
        Annotated[Id, Meta(description="id of the contact whose values are shown; absent for sample values")]
        | None
        | UnsetType
    ) = UNSET
    data: Annotated[Data, Meta(description="values for merge tags such as `{{ data.order }}`")] | None | UnsetType = (
        UNSET
    )
    channel: Annotated[Literal["email", "sms"], Meta(description="channel; default: `email`")] = "email"
    transactional: Annotated[
        bool, Meta(description="whether to show it as a message that needs no consent, without an unsubscribe link")
    ] = False
    translations: (
        Annotated[
            dict[str, dict[str, TextTranslation]],
            Meta(description="translations of the texts by language and id of the text"),
        ]
        | None
        | UnsetType
    ) = UNSET
    language: (
        Annotated[LanguageTag, Meta(description="language to show; absent for the language of the contact")]
        | None
        | UnsetType
    ) = UNSET


class PreviewWarning(Struct):
    """A warning about the content of a message; it does not prevent sending."""

    code: Annotated[str, Meta(description="warning code for programs")]
    message: str
    field: Annotated[str, Meta(description="name of the field")]


class Preview(Struct):
    """A rendered message, with warnings about its content."""

    html: Annotated[str, Meta(description="HTML content; empty for SMS")]
    text: str
    warnings: Annotated[list[PreviewWarning], Meta(description="warnings, which do not block")]
    bytes: Annotated[int, Meta(description="size of the HTML in bytes")]
    sms: Annotated[SmsPreview, Meta(description="details of the text as an SMS; null for email")] | None = None


def render_preview(account_id: int, request: PreviewRequest) -> Preview:
    """Render the message of a preview request; raises Invalid with all errors.

    An invalid value of a design that can be rendered without it is left out; an invalid `show_if` is a warning.
    """
    contact, tolerated = _validate_request(account_id, request)
    if request.channel == "sms":
        return _preview_sms(account_id, request, contact)
    document_fields: dict[str, Any] = {name: getattr(request, name) or None for name in _EMAIL_FIELDS}
    document_fields |= {"design": request.document, "translations": _read_translations(request)}
    content, filled = _render(
        account_id, document_fields, contact, request.data if isinstance(request.data, dict) else {},
        language=_read_language(request),
    )  # fmt: skip
    warnings = [
        PreviewWarning("section", messages[0], path) for path, messages in tolerated.fields.items() if "show_if" in path
    ]
    warnings += _find_warnings(content, filled) + _find_placeholders(document_fields)
    return Preview(filled.html, filled.text, warnings, len(filled.html.encode()))


def _read_translations(request: PreviewRequest) -> dict[str, Any]:
    translations = request.translations
    return msgspec.to_builtins(translations) if isinstance(translations, dict) else {}


def _read_language(request: PreviewRequest) -> str | None:
    """Return the language of a request, or None if the request names none."""
    return request.language if isinstance(request.language, str) else None


def validate_preview(account_id: int, request: PreviewRequest, _: int | None = None) -> None:
    """Raise Invalid with all errors of a preview request, without rendering it."""
    _validate_request(account_id, request)


def _validate_request(account_id: int, request: PreviewRequest) -> tuple[Contact | None, Faults]:
    """Return the contact whose values are shown (None: sample values), and the design's errors that are tolerated.

    With these errors, the design can still be rendered. Raises Invalid for all other errors.
    """
    faults, tolerated = Faults(), Faults()
    contact = _find_contact(account_id, request.contact_id, faults)
    is_text = request.channel == "sms"
    for name, context in (_SMS_FIELDS if is_text else merge.VARIABLE_FIELDS).items():
        if error := merge.find_error(getattr(request, name) or None, context):
            faults.add(name, error)
    if not is_text and isinstance(request.document, dict):
        validation.validate_design(account_id, request.document, "document.", tolerated)
    faults.merge(
        {path: messages for path, messages in tolerated.fields.items() if not _can_be_rendered(path, messages)}
    )
    faults.check()
    return contact, tolerated


def _preview_sms(account_id: int, request: PreviewRequest, contact: Contact | None) -> Preview:
    """Render an SMS; raises Invalid if it does not render. A text that is too long only has a warning."""
    fields = {"body": request.body or "", "translations": _read_translations(request)}
    language = _read_language(request)
    body = translate_for_preview(account_id, fields, contact, language, "sms")["body"]
    data = request.data if isinstance(request.data, dict) else {}
    try:
        sms = fill_sms_preview(
            account_id, body, _build_samples({"body": body}, contact, data, "sms"), not request.transactional,
            language=language or (contact.language if contact is not None else None),
            translation=languages.choose_for_preview(
                fields, contact.language if contact is not None else None, Account.get_by_id(account_id).locale,
                language, "sms",
            ).translation,
        )  # fmt: skip
    except MergeError as error:
        raise Invalid({"body": [error.describe()]}) from None
    sms_preview = compose.describe_sms(sms)
    warnings = [PreviewWarning("sms_problem", sms_preview.problem, "body")] if sms_preview.problem else []
    if sms_preview.forcing is not None:
        text = gettext(
            "a part holds 70 characters instead of 160, because “%(character)s” is not a standard SMS character",
            character=segments.describe_character(sms_preview.forcing.character),
        )
        warnings.append(PreviewWarning("sms_ucs2", text, "body"))
    for name in merge.find_unknown_variables(merge.compile_template(body, "text").variables):
        warnings.append(
            PreviewWarning(
                "unknown_merge_tag", gettext("%(name)s is not a known merge tag and will be blank", name=name), "body"
            )
        )
    return Preview("", sms.body, warnings, 0, sms_preview)


def translate_for_preview(
    account_id: int, fields: Mapping[str, Any], contact: Contact | None, language: str | None, channel: str = "email"
) -> dict[str, Any]:
    """Return the fields of a template with their texts in the language that `languages.choose_for_preview` returns."""
    locale = Account.get_by_id(account_id).locale
    choice = languages.choose_for_preview(
        fields, contact.language if contact is not None else None, locale, language, channel
    )
    return translations.translate_document(fields, choice.translation, channel)


def fill_sms_preview(
    account_id: int, body: str | None, samples: dict[str, Any], marketing: bool, tracked: bool = True, name: str = "",
    language: str | None = None, translation: str | None = None,
) -> SmsText:  # fmt: skip
    """Return an SMS with the values `samples`, as for a send; raises MergeError if that fails.

    A marketing SMS has the opt-out hint and, if `tracked`, links as short as they will be when it is sent. `name` is
    the name of the campaign, `language` the contact's language, and `translation` the text's translation, if it has
    one.
    """
    account = Account.get_by_id(account_id)
    values = {
        **samples, **merge_tags.get_account_values(account, brands.get(account_id)), "campaign": {"name": name},
        **links.get_link_values(base_url_of(account), 0), **compose.build_link_tokens(),
    }  # fmt: skip
    addresses = [link.href for link in compose.find_sms_links(body)] if marketing and tracked else None
    hint = languages.choose_opt_out_hint(account.sms_opt_out_hint, account.sms_opt_out_hints, language, account.locale)
    return compose.fill_sms(
        compose.compile_sms(body, addresses, translation or account.locale, base_url_of(account)),
        values,
        hint if marketing else None,
    )


def render_fields(
    account_id: int, fields: dict[str, Any], contact: Contact | None = None, marked: bool = False,
    language: str | None = None, tagger: LinkTagger | None = None,
) -> FilledMessage:  # fmt: skip
    """Return an email rendered from the fields of a template or revision, by default with sample values.

    Its language is `language`, else that of the contact. With `marked`, HTML comments surround the sections, for the
    canvas. `tagger` adds UTM parameters to links. Raises Invalid if the fields do not render.
    """
    return _render(account_id, fields, contact, {}, marked, language=language, tagger=tagger)[1]


class InboxLine(NamedTuple):
    """An email as an inbox lists it; `lengths` has the numbers of characters of `subject` and `preheader`."""

    from_name: str
    subject: str
    preview_text: str
    lengths: dict[str, int]


def build_inbox_line(
    account_id: int, fields: Mapping[str, Any], contact: Contact | None = None, language: str | None = None
) -> InboxLine:
    """Return how an inbox lists the email of a template, with the values of a contact or sample values.

    Its language is `language`, else that of the contact. If the email does not render, its fields are shown unfilled,
    with readable merge tags.
    """
    account = Account.get_by_id(account_id)
    default = account.email_from_name or account.name
    fields = translate_for_preview(account_id, fields, contact, language)
    try:
        filled = render_fields(account_id, dict(fields), contact)
        account_values = merge_tags.get_account_values(account, brands.get(account_id))
        lengths = compose.measure_lengths(
            fields, {**_build_samples(dict(fields), contact, {}), **account_values, **_get_dead_links(fields)}
        )
    except (Invalid, MergeError):
        subject, preview_text = make_readable(fields.get("subject") or ""), make_readable(fields.get("preheader") or "")
        lengths = {"subject": len(subject), "preheader": len(preview_text)}
        return InboxLine(make_readable(fields.get("from_name") or "") or default, subject, preview_text, lengths)
    return InboxLine(filled.from_name or default, filled.subject, markup.extract_preview_text(filled.html), lengths)


def measure_rendered_bytes(
    account_id: int, fields: dict[str, Any], is_tracked: bool, language: str | None = None
) -> int:
    """Return the size in bytes of a template's HTML as a marketing email with sample values.

    Its language is `language`, else the original. With `is_tracked`, the links are tracked. Raises MergeError if the
    template does not render.
    """
    account, brand = Account.get_by_id(account_id), brands.get(account_id)
    choice = languages.choose_for_preview(fields, None, account.locale, language)
    content = compose.compile_message(languages.build_source(fields, brands.build_look(brand), account.locale, choice))
    show_values = section_conditions.get_show_values(account_id, None, content.conditions)
    # Only the texts that are shown need values; reading the merge tags of all languages takes as long as rendering.
    shown_fields = translations.translate_document(fields, choice.translation)
    values = {
        **_build_samples(shown_fields, None, {}),
        **merge_tags.get_account_values(account, brand),
        **links.get_link_values(base_url_of(account), 0),
        **show_values,
        "campaign": {"name": fields.get("name") or ""},
        designs_links.TRACK_ROOT: links.build_tracking_tokens(0),
    }
    if is_tracked:
        content = compose.track_all_links(content, base_url_of(account))
    return len(compose.fill(content, values).html.encode())


def render_in_brand(account_id: int, fields: dict[str, Any], changed: brands.BrandWrite) -> str:
    """Return the HTML of a template's fields with the changed brand, which is not stored.

    Invalid changes are left out, so that a sample can be shown while a user types. Raises Invalid if the fields do not
    render.
    """
    brand = brands.preview_changes(account_id, changed)
    return _render(account_id, fields, None, {}, brand=brand)[1].html


def find_warnings(account_id: int, document_fields: dict[str, Any]) -> list[PreviewWarning]:
    """Return the warnings about the fields of a template, or the errors as warnings if they do not render."""
    try:
        warnings = _find_warnings(*_render(account_id, document_fields, None, {}))
        return warnings + _find_placeholders(document_fields)
    except Invalid as error:
        return [PreviewWarning("render", messages[0], field) for field, messages in error.fields.items()]


def find_unfinished(account_id: int, fields: Mapping[str, Any]) -> list[PreviewWarning]:
    """Return warnings about what the author of an email left unfinished: placeholders, and missing parts of sections.

    The field of a warning is a path in the template, such as `design.sections[2]` or `preheader`.
    """
    account = Account.get_by_id(account_id)
    warnings = [PreviewWarning(*placeholder) for placeholder in placeholders.find_placeholders(fields)]
    if designs.get_sections(fields.get("design")):
        rendered = render.render_design(fields["design"], brands.build_look(brands.get(account_id)), account.locale)
        warnings += [
            PreviewWarning(item.code, item.message, f"design.{item.path}")
            for item in rendered.advice
            if item.code in placeholders.UNFINISHED_CODES
        ]
    return warnings


def _find_placeholders(fields: Mapping[str, Any]) -> list[PreviewWarning]:
    """Return warnings about placeholders; as in a preview request, the field of the design is `document`."""
    matches = placeholders.find_placeholders(fields)
    return [PreviewWarning(code, text, path.replace("design.", "document.", 1)) for code, text, path in matches]


def _render(
    account_id: int,
    fields: dict[str, Any],
    contact: Contact | None,
    data: dict[str, Any],
    marked: bool = False,
    brand: Brand | None = None,
    language: str | None = None,
    tagger: LinkTagger | None = None,
) -> tuple[CompiledMessage, FilledMessage]:
    account = Account.get_by_id(account_id)
    brand = brand or brands.get(account_id)
    choice = languages.choose_for_preview(
        fields, contact.language if contact is not None else None, account.locale, language
    )
    source = languages.build_source(fields, brands.build_look(brand), account.locale, choice, marketing=False)
    if not fields["body"]:
        # A template with neither body nor sections is rendered as an empty email in the brand's colours.
        design = source.design or designs.to_canonical_json(fields["design"] or {})
        source = source._replace(design=design, marked=marked)
    values = {
        **_build_samples(fields, contact, data),
        **merge_tags.get_account_values(account, brand),
        **_get_dead_links(fields),
    }  # fmt: skip
    try:
        content = compose.tag_links(compose.compile_message(source), tagger)
        show_values = section_conditions.get_show_values(
            account_id, contact.id if contact is not None else None, content.conditions
        )
        return content, compose.fill(content, values | show_values)
    except MergeError as error:
        raise Invalid({"document": [error.describe()]}) from None


def _get_dead_links(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge values of a campaign's name and links; unsubscribe, preferences and view links are `#`."""
    name = fields.get("name") or ""
    return {"campaign": {"name": name}, "unsubscribe_url": "#", "preferences_url": "#", "view_url": "#"}


def _find_contact(account_id: int, contact_id: Any, faults: Faults) -> Contact | None:
    if not isinstance(contact_id, int):
        return None
    try:
        return contacts.get(account_id, contact_id)
    except NotFound:
        faults.add("contact_id", gettext("must exist"))
        return None


def _can_be_rendered(path: str, messages: list[str]) -> bool:
    """Return whether a design with these errors at a path can be rendered, by leaving the invalid value out."""
    return "show_if" in path or (messages == [gettext("is invalid")] and (".props." in path or ".styles." in path))


def _build_samples(
    fields: dict[str, Any], contact: Contact | None, data: dict[str, Any], channel: str = "email"
) -> dict[str, Any]:
    """Return merge tag values: the contact's, and sample values for all other variables of the fields.

    Values in `data` override sample values.
    """
    values: dict[str, Any] = {"contact": {"data": {}}, "data": {}, "event": {}}
    for name, variable in merge.find_variables(fields, channel).items():
        # The sample contact has a name even if the template has a default for it.
        sample = merge.find_sample(name) or variable["sample"]
        root, *path = name.split(".")
        node: Any = values.setdefault(root, {} if path else sample)
        for part in path[:-1]:
            node = node.setdefault(part, {}) if isinstance(node, dict) else None
        if path and isinstance(node, dict):
            node.setdefault(path[-1], sample)
    values |= {"data": {**values["data"], **data}} if isinstance(values["data"], dict) else {"data": data}
    return values | merge_tags.get_contact_values(contact, None) if contact is not None else values


def _find_warnings(content: CompiledMessage, filled: FilledMessage) -> list[PreviewWarning]:
    warnings = [PreviewWarning(item.code, item.message, f"document.{item.path}") for item in content.advice]
    for name in merge.find_unknown_variables(content.variables()):
        warnings.append(
            PreviewWarning(
                "unknown_merge_tag",
                gettext("%(name)s is not a known merge tag and will be blank", name=name),
                "document",
            )
        )
    if len(filled.html.encode()) > GMAIL_CLIP_BYTES:
        warnings.append(PreviewWarning("too_long", gettext("over 102 KB: Gmail cuts it off"), "document"))
    return warnings


def measure_html_bytes(account_id: int, template_id: int) -> int | None:
    """Return the size in bytes of a template's HTML as it is sent, or None if it does not render; raises NotFound."""
    template = variant_content.complete_if_variant(templates.get(account_id, template_id))
    query = Campaign.select(Campaign.tracking).where(Campaign.flow == template.flow_id)
    campaign = query.first() if template.flow_id is not None else None
    try:
        return measure_rendered_bytes(
            account_id, revisions.to_document(template), campaign is None or campaign.tracking
        )
    except MergeError:
        return None
