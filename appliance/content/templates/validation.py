"""The fields of templates: request structs, validation, and conversion to the stored form."""

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience.filters import compiler
from appliance.audience.segments import members
from appliance.content.designs import document, merge, merge_limits
from appliance.core import i18n
from appliance.core.aliases import Alias, Aliases
from appliance.core.errors import Faults, Invalid, RefusedKeys, content_keys
from appliance.core.validation import EmailText, LastRead, Line, PageQuery, Short, Subject, Text, default, schema_name
from appliance.sending.sms import segments
from appliance.storage.models.content import EMPTY_DESIGN

MAX_DESIGN_BYTES = 1_048_576
Design = Annotated[dict[str, Any], Meta(extra={"bytes": MAX_DESIGN_BYTES}), schema_name("Design")]


class Content(Struct):
    """The content of one message in a request: subject, body, sender and design."""

    REFUSED: ClassVar[RefusedKeys] = content_keys()

    subject: Subject | None | UnsetType = UNSET
    body: Text | None | UnsetType = UNSET
    preheader: Line | None | UnsetType = UNSET
    from_name: Line | None | UnsetType = UNSET
    from_email: EmailText | None | UnsetType = UNSET
    reply_to: EmailText | None | UnsetType = UNSET
    design: Annotated[Design, Meta(description="design; replaces the whole existing design")] | None | UnsetType = UNSET


class TemplateWrite(Content):
    """A new or changed template; `updated_at` as last read makes the update fail if the template has changed since."""

    name: Line | None | UnsetType = UNSET
    channel: Annotated[Literal["email", "sms"], Meta(description="channel; cannot be changed")] | UnsetType = UNSET
    updated_at: LastRead | UnsetType = UNSET


class TemplateCreate(TemplateWrite):
    """A new template, as the API documents it; all fields are optional."""

    ALIASES: ClassVar[Aliases] = {"channelType": Alias("channel")}

    name: Annotated[Line, default("Untitled template")] | None | UnsetType = UNSET
    channel: (
        Annotated[Literal["email", "sms"], default("email"), Meta(description="channel; cannot be changed")] | UnsetType
    ) = UNSET
    design: (
        Annotated[
            Design,
            Meta(description="design; replaces the whole existing design. Default: one without sections"),
        ]
        | None
        | UnsetType
    ) = UNSET


class TemplateQuery(PageQuery):
    """Filters of the template list."""

    standalone: (
        Annotated[bool, Meta(description="true: only templates that belong to no campaign or flow; false: only others")]
        | UnsetType
    ) = UNSET
    channel: Annotated[Literal["email", "sms"], Meta(description="only those of this channel")] | UnsetType = UNSET
    search: Annotated[Short, Meta(description="search words for name and subject")] | UnsetType = UNSET


# The merge context of each field.
FIELD_CONTEXTS: dict[str, merge_limits.Context] = {
    "subject": "header",
    "preheader": "header",
    "from_name": "header",
    "body": "html",
}
# Enough for the templates of all steps of a flow, which are validated before its write transaction. The cached results
# are small.
_MAX_CACHED = 512
# The fields that may contain merge variables.
FIELDS_WITH_VARIABLES = (*merge.VARIABLE_FIELDS, "design", "translations")
# The errors of a request's texts and design, each as (path, message).
TextFaults = tuple[tuple[str, str], ...]


def validate_content(
    account_id: int, request: Content, prefix: str, faults: Faults, channel: str = "email",
    text_faults: TextFaults | None = None,
) -> None:  # fmt: skip
    """Add the errors of merge tags, of the design and of the text of an SMS to `faults`.

    `prefix` is put before each path. `text_faults` is the result of `find_text_faults` for the same request and
    channel, if the caller has it.
    """
    if text_faults is None:
        text_faults = find_text_faults(request, channel)
    for path, message in text_faults:
        faults.add(prefix + path, message)
    if isinstance(request.design, dict) and "design.sections" not in (path for path, _ in text_faults):
        _check_conditions(account_id, request.design, f"{prefix}design.", faults)


def find_text_faults(request: Content, channel: str) -> TextFaults:
    """Return the errors of a request's texts and design that can be found without the database."""
    errors: list[tuple[str, str]] = []
    for name, context in FIELD_CONTEXTS.items():
        text = getattr(request, name)
        if isinstance(text, str):
            is_sms = channel == "sms" and name == "body"
            error = segments.find_length_fault(text) if is_sms else merge.find_error(text, context)
            if error:
                errors.append((name, error))
    if isinstance(request.design, dict):
        design_faults = _design_faults(_HashedDocument(request.design), i18n.get_language())
        errors += ((f"design.{path}", message) for path, message in design_faults)
    return tuple(errors)


def validate_design(account_id: int, design: dict[str, Any], prefix: str, faults: Faults) -> None:
    """Add every error of a design to `faults`, at `prefix` followed by a path such as `sections[2].props.href`."""
    design_faults = _design_faults(_HashedDocument(design), i18n.get_language())
    for path, message in design_faults:
        faults.add(prefix + path, message)
    if "sections" not in (path for path, _ in design_faults):
        _check_conditions(account_id, design, prefix, faults)


def _check_conditions(account_id: int, design: dict[str, Any], prefix: str, faults: Faults) -> None:
    """Add the errors of `show_if` conditions, the filters that show a section to some contacts only."""
    scope = None
    for path, raw in _iterate_conditions(design):
        scope = scope or members.build_scope(account_id, writing=True)
        try:
            compiler.parse_filters(raw, scope, prefix + path)
        except Invalid as refused:
            faults.merge(refused.fields)


class _HashedDocument:
    """A document that is hashed and compared by its content, so that it can be a key of a cache."""

    __slots__ = ("design", "digest")

    def __init__(self, design: dict[str, Any]) -> None:
        self.design = design
        self.digest = hashlib.blake2b(json.dumps(design, sort_keys=True).encode(), digest_size=16).digest()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HashedDocument) and self.digest == other.digest


@lru_cache(maxsize=_MAX_CACHED)
def _design_faults(text: _HashedDocument, language: str) -> TextFaults:
    """Return the errors of a document in the current language, which is a parameter so that the cache keeps each."""
    if message := merge_limits.find_code_error(merge.iterate_strings(text.design)):
        return (("sections", message),)
    faults: list[tuple[str, str]] = []
    document.validate(text.design, lambda path, message: faults.append((path, message)))
    # The cached key keeps only the digest, so that the cache does not hold the document in memory.
    text.design = {}
    return tuple(faults)


def find_variables(fields: dict[str, Any], channel: str = "email") -> dict[str, Any]:
    """Return the merge variables of a template by name, as dicts of `default`, `sample` and `required`; cached.

    `fields` maps names of FIELDS_WITH_VARIABLES to their values.
    """
    return dict(_find_variables(_HashedDocument({name: fields.get(name) for name in FIELDS_WITH_VARIABLES}), channel))


@lru_cache(maxsize=_MAX_CACHED)
def _find_variables(text: _HashedDocument, channel: str) -> dict[str, Any]:
    variables = merge.find_variables(text.design, channel)
    text.design = {}
    return variables


def _iterate_conditions(design: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for section in document.walk_sections(design):
        if section.kind is not None and section.props.get("show_if") is not None:
            yield f"{section.path}.props.show_if", section.props["show_if"]


def normalize_field(name: str, value: Any) -> Any:
    """Return a field in its stored form.

    Texts other than the body are stripped, and an empty text becomes None. Sections of a design get `id` and `type`.
    """
    if name == "design":
        return set_ids(value) if value is not None else dict(EMPTY_DESIGN)
    return value.strip() or None if isinstance(value, str) and name != "body" else value


def set_ids(design: dict[str, Any]) -> dict[str, Any]:
    """Return a design in which every section has an `id`, and a `type` if it can be inferred.

    A new id is derived from the section's content, so that the same design always gets the same ids.
    """
    taken_ids = {str(section["id"]): 0 for section in _iterate_sections(design) if section.get("id") is not None}
    return (
        design | {"sections": _set_ids_in_list(design["sections"], "sections", 0, taken_ids)}
        if "sections" in design
        else design
    )


def _iterate_sections(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every raw section of a design, including those in columns."""
    for section in document.get_sections(value):
        if isinstance(section, dict):
            yield section
            columns = section["props"].get("columns") if isinstance(section.get("props"), dict) else None
            for column in columns if isinstance(columns, list) else []:
                yield from _iterate_sections(column)


def _set_ids_in_list(raw: Any, path: str, level: int, taken_ids: dict[str, int]) -> Any:
    if not isinstance(raw, list):
        return raw
    return [_set_id(section, f"{path}[{index}]", level, taken_ids) if isinstance(section, dict) else section
            for index, section in enumerate(raw)]  # fmt: skip


def _set_id(raw: dict[str, Any], path: str, level: int, taken_ids: dict[str, int]) -> dict[str, Any]:
    section = document.read_section(raw, path)
    added: dict[str, Any] = {}
    if raw.get("id") is None:
        added["id"] = _generate_id(raw, taken_ids)
    if raw.get("type") is None and section.type:
        added["type"] = section.type
    columns = raw["props"].get("columns") if isinstance(raw.get("props"), dict) else None
    is_columns = section.kind is not None and section.kind.name == "columns" and level < document.MAX_COLUMN_LEVELS
    if is_columns and isinstance(columns, list):
        inner = [
            column | {"sections": _set_ids_in_list(
                column["sections"], f"{path}.props.columns[{number}].sections", level + 1, taken_ids)}
            if isinstance(column, dict) and "sections" in column else column
            for number, column in enumerate(columns)
        ]  # fmt: skip
        added["props"] = raw["props"] | {"columns": inner}
    return raw | added


def _generate_id(raw: dict[str, Any], taken_ids: dict[str, int]) -> str:
    text = json.dumps({key: value for key, value in raw.items() if key not in ("id", "type")}, sort_keys=True)
    # The search starts at the last number used for an equal section: otherwise thousands of equal sections would take
    # quadratic time.
    counter_key = f"={text}"
    number = taken_ids.get(counter_key, 0)
    while True:
        candidate = "s" + hashlib.blake2b(f"{number}{text}".encode(), digest_size=4).hexdigest()
        number += 1
        if candidate not in taken_ids:
            taken_ids |= {candidate: 0, counter_key: number}
            return candidate
