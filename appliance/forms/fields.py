"""The fields of sign-up forms: their kinds, which definitions are valid, and how forms are rendered."""

import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.content import brand as brands
from appliance.content import media
from appliance.content.brand import PageStyle
from appliance.content.designs.theme import SANS_STACK
from appliance.core import executable, recipient_texts
from appliance.core.errors import Faults
from appliance.core.i18n import gettext
from appliance.storage.models import Form

CONTACT_FIELDS = ("email", "phone", "first_name", "last_name", "language")
MAX_FIELDS, MAX_OPTIONS = 20, 50
MAX_TEXT_CHARACTERS, MAX_HIDDEN_CHARACTERS = 1_000, 255
_DATA_KEY = re.compile(r"(?:data\.)?([A-Za-z][A-Za-z0-9_]{0,63})")
_QUERY_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NUMBER = re.compile(r"[+-]?\d{1,16}(?:[.,]\d{1,10})?")
# Keys of `data` that a form cannot have as fields, because contacts store or parse them in a special way.
_RESERVED_KEYS = ("tags", "enrichment", "website", "data", *CONTACT_FIELDS)

FieldType = Literal["text", "textarea", "select", "radio", "checkboxes", "checkbox", "date", "number", "hidden"]
CHOICE_TYPES = ("select", "radio", "checkboxes")
Option = Annotated[str, Meta(min_length=1, max_length=100)]
Caption = Annotated[str, Meta(max_length=255)]


class FormField(Struct):
    """A field of a form: one of `CONTACT_FIELDS`, or a key of the custom data."""

    name: Annotated[
        str,
        Meta(max_length=80),
        Meta(description="`email`, `phone`, `first_name`, `last_name`, `language`, or a key of `data`"),
    ]
    label: Annotated[Caption, Meta(description="label of the field")] | None = None
    required: Annotated[bool, Meta(description="whether the field is required")] = False
    type: Annotated[FieldType, Meta(description="kind of a field of `data`; default `text`")] | None | UnsetType = UNSET
    options: (
        Annotated[
            list[Option],
            Meta(max_length=MAX_OPTIONS),
            Meta(description="options of a `select`, `radio` or `checkboxes` field, in order"),
        ]
        | None
        | UnsetType
    ) = UNSET
    help: Annotated[Caption, Meta(description="help text below the field")] | None | UnsetType = UNSET
    placeholder: Annotated[Caption, Meta(description="example shown while the field is empty")] | None | UnsetType = (
        UNSET
    )
    value: (
        Annotated[Caption, Meta(description="value of a `hidden` field, unless its `query_parameter` has one")]
        | None
        | UnsetType
    ) = UNSET
    query_parameter: (
        Annotated[
            str,
            Meta(max_length=64),
            Meta(description="parameter of the page's URL that a `hidden` field is read from, such as `utm_source`"),
        ]
        | None
        | UnsetType
    ) = UNSET


class Field(NamedTuple):
    """A parsed field of a form; `key` is its key in the custom data, or None for a field of `CONTACT_FIELDS`."""

    name: str
    key: str | None
    label: str | None
    required: bool
    type: str = "text"
    options: tuple[str, ...] = ()
    help: str | None = None
    placeholder: str | None = None
    value: str | None = None
    query_parameter: str | None = None


def list_fields(form: Form) -> list[Field]:
    """Return the fields of a form. Without an email or phone field, a required `email` field comes first."""
    fields = [_parse_field(field) for field in form.fields]
    if not any(field.name in ("email", "phone") for field in fields):
        fields.insert(0, Field("email", None, None, True))
    # A single address field is always required; of two address fields, the contact may leave one empty.
    is_single = sum(field.name in ("email", "phone") for field in fields) == 1
    return [
        field._replace(required=True) if is_single and field.name in ("email", "phone") else field for field in fields
    ]


def _parse_field(written: Any) -> Field:
    spec = {"name": written} if isinstance(written, str) else written
    name = spec["name"]
    key = None if name in CONTACT_FIELDS else name.removeprefix("data.")
    texts = (spec.get(part) or None for part in ("help", "placeholder", "value", "query_parameter"))
    type_ = spec.get("type") or "text"
    is_required = bool(spec.get("required")) and type_ != "hidden"
    return Field(
        name if key is None else f"data.{key}", key, spec.get("label"), is_required, type_,
        tuple(spec.get("options") or ()), *texts,
    )  # fmt: skip


def check_fields(form_fields: list[str | FormField], faults: Faults) -> None:
    """Add the errors of field definitions to `faults`, with paths such as `fields[0].label`.

    The options of valid fields are stripped of spaces. Values of a wrong type are skipped, because parsing has reported
    them.
    """
    seen_keys: set[str] = set()
    for index, field in enumerate(form_fields):
        name = field if isinstance(field, str) else field.name
        if not isinstance(name, str):
            continue
        match = _DATA_KEY.fullmatch(name)
        if match is None:
            faults.add(f"fields[{index}]", gettext("is invalid"))
            continue
        key = name if name in CONTACT_FIELDS else match[1]
        if key in _RESERVED_KEYS and name not in CONTACT_FIELDS:
            faults.add(f"fields[{index}]", gettext("is reserved"))
        if key in seen_keys:
            faults.add(f"fields[{index}]", gettext("has already been taken"))
        seen_keys.add(key)
        if isinstance(field, FormField):
            _check_parts(field, f"fields[{index}]", faults)


def _check_parts(field: FormField, path: str, faults: Faults) -> None:
    for part in ("label", "help", "placeholder", "value"):
        text = getattr(field, part)
        if isinstance(text, str) and _CONTROL_CHARACTERS.search(text):
            faults.add(f"{path}.{part}", gettext("is invalid"))
    if field.name in CONTACT_FIELDS and field.type not in (None, UNSET, "text"):
        faults.add(f"{path}.type", gettext("is only for custom fields"))
    if field.type in CHOICE_TYPES:
        options = [option.strip() for option in field.options or [] if isinstance(option, str)]
        if not options:
            faults.add(f"{path}.options", gettext("can't be blank"))
        elif len(set(options)) < len(options):
            faults.add(f"{path}.options", gettext("must be different from each other"))
        elif any(not option or _CONTROL_CHARACTERS.search(option) for option in options):
            faults.add(f"{path}.options", gettext("is invalid"))
        else:
            field.options = options
    elif field.options:
        faults.add(f"{path}.options", gettext("is only for fields with options"))
    if field.type == "hidden":
        if isinstance(field.query_parameter, str) and not _QUERY_PARAMETER.fullmatch(field.query_parameter):
            faults.add(f"{path}.query_parameter", gettext("is invalid"))
        if not field.value and not field.query_parameter:
            faults.add(f"{path}.value", gettext("can't be blank"))
    else:
        for part in ("value", "query_parameter"):
            if getattr(field, part):
                faults.add(f"{path}.{part}", gettext("is only for hidden fields"))


def read_value(field: Field, value: Any, faults: Faults) -> Any:
    """Return a submitted value as the contact stores it, or None for no value; an error is added to `faults`.

    Dates are stored as text such as 2026-01-31, the ticked options of checkboxes as a list in the order of the form,
    and a ticked checkbox as true. A hidden field never has errors: its text is cleaned and cut, see `clean_hidden`.
    """
    return _READERS[field.type](field, value, faults)


def clean_hidden(field: Field, value: Any) -> str | None:
    """Return the value of a hidden field: `value` if the field reads it from the URL or form, else the fixed value.

    Control characters are removed, and the text is cut to `MAX_HIDDEN_CHARACTERS`. An empty `value` counts as missing.
    """
    if field.query_parameter and isinstance(value, str):
        text = _CONTROL_CHARACTERS.sub("", value).strip()[:MAX_HIDDEN_CHARACTERS]
        if text:
            return text
    return field.value


def _read_text(field: Field, value: Any, faults: Faults) -> Any:
    """Return text of up to `MAX_TEXT_CHARACTERS`, a boolean or a number; None for other JSON values and empty text.

    Text with an error is None too, so that the returned value can be stored.
    """
    if isinstance(value, str):
        value = value.replace("\r\n", "\n").strip()
        if not is_storable(value):
            faults.add(field.name, gettext("is invalid"))
            return None
        if len(value) > MAX_TEXT_CHARACTERS:
            faults.add(field.name, gettext("is too long (maximum is %(limit)s characters)", limit=MAX_TEXT_CHARACTERS))
            return None
    return value if isinstance(value, bool | int | float | str) and value != "" and _is_finite(value) else None


def _read_choice(field: Field, value: Any, faults: Faults) -> Any:
    if value in field.options:
        return value
    if value is not None:
        faults.add(field.name, gettext("is not included in the list"))
    return None


def _read_choices(field: Field, value: Any, faults: Faults) -> Any:
    values = value if isinstance(value, list) else [value]
    if any(item not in field.options for item in values if item not in (None, "")):
        faults.add(field.name, gettext("is not included in the list"))
    return [option for option in field.options if option in values] or None


def _read_checkbox(field: Field, value: Any, faults: Faults) -> Any:
    if isinstance(value, str):
        value = {"yes": True, "on": True, "true": True, "1": True, "no": False, "false": False, "0": False}.get(
            value.strip().lower(), value
        )
    if value is not None and not isinstance(value, bool):
        faults.add(field.name, gettext("must be true or false"))
        return None
    # False does not fill in a required checkbox.
    return value or (None if field.required else value)


def _read_date(field: Field, value: Any, faults: Faults) -> Any:
    try:
        return None if value is None else date.fromisoformat(value.strip()).isoformat()
    except (ValueError, AttributeError):
        faults.add(field.name, gettext("must be a date such as 2026-01-31"))
        return None


def _read_number(field: Field, value: Any, faults: Faults) -> Any:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        text = value.strip().replace(",", ".")
        value = float(text) if "." in text else int(text)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)):
        return value
    faults.add(field.name, gettext("must be a number"))
    return None


_READERS: Mapping[str, Callable[[Field, Any, Faults], Any]] = {
    "text": _read_text, "textarea": _read_text, "select": _read_choice, "radio": _read_choice,
    "checkboxes": _read_choices, "checkbox": _read_checkbox, "date": _read_date, "number": _read_number,
    "hidden": lambda field, value, faults: clean_hidden(field, value),
}  # fmt: skip


def is_storable(value: str) -> bool:
    """Return whether a text can be stored: it has no NUL and no unpaired surrogates."""
    return "\x00" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, int | float) or -(2**53) <= value <= 2**53


Scheme = Literal["light", "dark"]
# The type and the autocomplete value of inputs that are not plain text.
_INPUTS = {
    "email": ("email", "email"), "phone": ("tel", "tel"), "first_name": ("text", "given-name"),
    "last_name": ("text", "family-name"),
}  # fmt: skip


@cache
def get_environment() -> Environment:
    """Return the Jinja environment with the templates of sign-up forms."""
    return Environment(
        loader=executable.template_loader("appliance/forms/html"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def render_form(
    form: Form, language: str, raw: Mapping[str, Any], errors: Mapping[str, str], shown_at: str = ""
) -> Markup:
    """Return the heading, texts and form of the hosted page as HTML.

    `raw` are the entered values, and `errors` the keys of the error texts, both by field name. `shown_at` is the signed
    time at which the page was shown, for a hidden field.
    """
    return _render("form.html", form, language, raw=raw, errors=errors, shown_at=shown_at)


def render_embed(form: Form, style: PageStyle, is_branded: bool = True) -> str:
    """Return the HTML of a form for another website, without scripts and without requests to other servers.

    With `is_branded` it has its own styles, in the light colours and the font of the brand; otherwise it has none, and
    takes the styles of the website.
    """
    colours, font = style.light, "inherit" if style.font == SANS_STACK else Markup(style.font)  # noqa: S704 - validated
    return str(
        _render(
            "embed.html", form, style.language, raw={}, errors={}, colours=colours, font=font, is_branded=is_branded
        )
    )


def render_preview(form: Form, style: PageStyle, nonce: str, scheme: Scheme) -> str:
    """Return a document that looks like the hosted page of a form, in light or dark colours.

    `nonce` allows its styles in the content security policy.
    """
    return str(
        _render(
            "preview.html", form, style.language, raw={}, errors={}, shown_at="", style=style, nonce=nonce,
            look=brands.build_css(style), scheme=scheme, media_path=media.URL_PATH,
        )
    )  # fmt: skip


def _render(template: str, form: Form, language: str, **values: Any) -> Markup:
    translate = recipient_texts.get_translator(language)
    text = get_environment().get_template(template).render(
        form=form, fields=list_fields(form), language=language, translate=translate,
        languages=recipient_texts.LANGUAGE_NAMES,
        label=lambda field: get_label(field, language), inputs=_INPUTS, hidden=clean_hidden, **values
    )  # fmt: skip
    return Markup(text)  # noqa: S704 - the template escapes its values


def get_label(field: Field, language: str) -> str:
    """Return the label of a field: its own, else the built-in one, else the key with spaces for underscores."""
    if field.label:
        return field.label
    if field.key is None:
        return recipient_texts.get_texts(language)[f"form_{field.name}"]
    return field.key.replace("_", " ").capitalize()
