"""Edits of single values of a template by several users at once; edits of different values never conflict.

An editor sends a hash of the value that it showed. If the stored value has changed since, Conflict is raised with the
stored value, its hash, and the author and time of its last change.
"""

import copy
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import UNSET, Struct

from appliance.audience.filters import compiler as filters
from appliance.audience.filters import personal
from appliance.audience.segments import members
from appliance.content.designs import document, sanitizer, theme
from appliance.content.designs import document as designs
from appliance.content.designs.document import Entry
from appliance.content.designs.kind import SCHEMES, STYLES, THEME, Kind, Prop, normalize_address, validate_value
from appliance.content.templates import revisions, store, validation
from appliance.content.templates.store import PreparedContent
from appliance.content.templates.validation import MAX_DESIGN_BYTES, TemplateWrite
from appliance.core import validation as fields
from appliance.core.errors import Conflict, Faults, Invalid, NotFound
from appliance.core.i18n import gettext, gettext_noop, gettext_stored
from appliance.storage.models import Template, TemplateRevision, User
from appliance.storage.transactions import require_write_transaction

# A value is addressed by a path such as `props.items.0.title`: root, name, index and inner name.

_PATH = re.compile(r"(props|styles|theme)\.([a-z_]+)(?:\.(\d{1,3}))?(?:\.([a-z_]+))?\Z")
PADDING_SIDES = ("top", "bottom", "sides")
_SPACE = re.compile(r"-?\d+(?:\.\d+)?(?:px)?\Z")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z")
_MAX_SPACE = 96
_VALUES_CHANGED = gettext_stored("%(section)s: %(properties)s changed", revisions.HISTORY)
_DETAILS_CHANGED = gettext_stored("%(fields)s changed", revisions.HISTORY)


class ValuePath(NamedTuple):
    """The parsed path of one value, with its declaration.

    `root` is `props`, `styles` or `theme`. `number` is the index in a list or None; `inner` is the name of a value
    inside a list item, a group or a padding, or an empty string. `owner` is the property called `name`; `prop` is the
    property of the value itself, which is `owner` unless the value is inside it. `kind` is None for the theme.
    """

    path: str
    prop: Prop
    root: str
    name: str
    number: int | None
    inner: str
    owner: Prop
    kind: Kind | None

    @property
    def label(self) -> str:
        """Return the label of this value in the history in English, such as `entries, title`."""
        label = _lower_first(self.owner.label)
        return label if self.prop is self.owner else f"{label}, {_lower_first(self.prop.label)}"


def _lower_first(text: str) -> str:
    """Return an English label for the middle of a sentence: with a small letter, except an acronym."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def hash_value(value: Any) -> str:
    """Return a hash of a value as 12 hexadecimal digits, by which editors and forms detect conflicts."""
    text = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=6).hexdigest()


def parse_path(path: str, kind: Kind | None) -> ValuePath:
    """Parse a path; raises NotFound if the kind or the theme declares no such value.

    `kind` is the kind of the section, or None for the theme.
    """
    match = _PATH.match(path)
    if match is None:
        raise NotFound
    root, name, index, inner = match[1], match[2], match[3], match[4] or ""
    declared = THEME if root == "theme" else STYLES if root == "styles" else kind.all_props() if kind else ()
    owner = next((item for item in declared if item.name == name), None)
    if owner is None or (root != "theme" and kind is None):
        raise NotFound
    number = int(index) if index is not None else None
    if root == "styles" and name == "padding":
        if number is not None or inner not in ("", *PADDING_SIDES):
            raise NotFound
        return ValuePath(path, owner, root, name, None, inner, owner, kind)
    wants_index, wants_inner = owner.kind == "items", owner.kind in ("items", "group")
    if (number is not None) != wants_index or bool(inner) != wants_inner:
        raise NotFound
    prop = next((field for field in owner.fields if field.name == inner), None) if inner else owner
    if prop is None or prop.kind == "sections" or (number is not None and number >= owner.maximum):
        raise NotFound
    return ValuePath(path, prop, root, name, number, inner, owner, kind)


def get_value(value_path: ValuePath, holder: dict[str, Any]) -> Any:
    """Return the value at a path in a raw section or design, or None if it is not set."""
    values = _root_values(value_path, holder)
    if value_path.inner in PADDING_SIDES and value_path.name == "padding":
        return read_padding_side(values.get("padding"), value_path.inner)
    if value_path.name == value_path.prop.name and value_path.number is None and not value_path.inner:
        return value_path.prop.get_value(values)
    return value_path.prop.get_value(_inner_values(value_path, values))


def _root_values(value_path: ValuePath, holder: dict[str, Any]) -> dict[str, Any]:
    values = holder.get(value_path.root)
    values = dict(values) if isinstance(values, dict) else {}
    return document.read_section(holder, "").props if value_path.root == "props" else values


def _inner_values(value_path: ValuePath, values: dict[str, Any]) -> Any:
    owner_value = value_path.owner.get_value(values)
    if value_path.number is not None:
        return (
            owner_value[value_path.number]
            if isinstance(owner_value, list) and value_path.number < len(owner_value)
            else None
        )
    return {value_path.owner.fields[0].name: owner_value} if isinstance(owner_value, str) else owner_value


def set_value(value_path: ValuePath, holder: dict[str, Any], value: Any) -> None:
    """Set the value at a path in a raw section or design, or remove it if `value` is None.

    Raises NotFound for an index past the end of a list.
    """
    root_values = holder.get(value_path.root)
    if not isinstance(root_values, dict):
        root_values = holder[value_path.root] = {}
    if value_path.name == "padding" and value_path.root == "styles":
        value = _set_padding_side(root_values.get("padding"), value_path, value)
        _set_prop(root_values, value_path.owner, value)
    elif value_path.number is None and not value_path.inner:
        _set_prop(root_values, value_path.prop, value)
    else:
        inner_values = _inner_values(value_path, _root_values(value_path, holder))
        if value_path.number is not None and not isinstance(inner_values, dict):
            raise NotFound
        inner_values = dict(inner_values) if isinstance(inner_values, dict) else {}
        _set_prop(inner_values, value_path.prop, value)
        if value_path.number is None:
            _set_prop(root_values, value_path.owner, inner_values or None)
        else:
            items = list(value_path.owner.get_value(_root_values(value_path, holder)))
            items[value_path.number] = inner_values
            _set_prop(root_values, value_path.owner, items)


def _set_prop(values: dict[str, Any], prop: Prop, value: Any) -> None:
    # A value under an alias is removed too; otherwise it would reappear once the value under the name is removed.
    for alias in (*prop.aliases, *(alias for alias, name in document.ALIASES if name == prop.name)):
        values.pop(alias, None)
    if prop.name in ("href", "src"):
        values.pop("url", None)
    if value is None:
        values.pop(prop.name, None)
    else:
        values[prop.name] = value


def read_padding(raw: Any, kind: Kind | None) -> tuple[int, int, int, int]:
    """Return the top, right, bottom and left padding in pixels, each limited to 0 to `_MAX_SPACE`.

    A value that cannot be parsed gives the default padding of the kind.
    """
    sizes_text = str(raw).split() if isinstance(raw, str | int | float) and not isinstance(raw, bool) else []
    if not 1 <= len(sizes_text) <= 4 or not all(_SPACE.match(word) for word in sizes_text):
        return kind.padding if kind is not None else (12, 32, 12, 32)
    sizes = [max(0, min(_MAX_SPACE, round(float(word.removesuffix("px"))))) for word in sizes_text]
    top, right, bottom, left = (sizes * 4)[:4] if len(sizes) < 3 else [*sizes, sizes[1]][:4]
    return top, right, bottom, left


def read_padding_side(raw: Any, name: str) -> int | None:
    """Return the padding of one side (`top`, `bottom` or `sides`) in pixels, or None if no padding is set."""
    if raw is None or raw == "":
        return None
    top, right, bottom, _ = read_padding(raw, None)
    return {"top": top, "bottom": bottom, "sides": right}[name]


def _set_padding_side(raw: Any, value_path: ValuePath, value: Any) -> str | None:
    if not value_path.inner:
        return str(value) if value is not None else None
    top, right, bottom, left = read_padding(raw, value_path.kind)
    if value is None:
        standard = value_path.kind.padding if value_path.kind is not None else (12, 32, 12, 32)
        value = {"top": standard[0], "bottom": standard[2], "sides": standard[1]}[value_path.inner]
    if value_path.inner == "sides":
        right = left = value
    top, bottom = (value if value_path.inner == "top" else top), (value if value_path.inner == "bottom" else bottom)
    if value_path.kind is not None and (top, right, bottom, left) == value_path.kind.padding:
        return None
    return f"{top}px {right}px {bottom}px" if right == left else f"{top}px {right}px {bottom}px {left}px"


def parse_typed(value_path: ValuePath, typed: str) -> Any:
    """Convert the text of an input field to a value of the property.

    An empty text gives None. Raises Invalid, with the path of the value, if the property does not allow the text.
    """
    prop = value_path.prop
    if value_path.name == "padding" and value_path.inner in PADDING_SIDES:
        return _parse_number(value_path, typed, 0, _MAX_SPACE)
    if not typed.strip():
        return None
    if prop.kind == "number":
        return _parse_number(value_path, typed, prop.minimum, prop.maximum)
    if prop.kind == "flag":
        return typed.lower() in ("true", "on", "yes", "1")
    if prop.kind == "choice" and typed not in prop.options:
        raise Invalid({value_path.path: [gettext("is not included in the list")]})
    if prop.kind == "colour":
        return _parse_colour(value_path, typed)
    if prop.kind in ("url", "image"):
        typed = typed.strip()
        schemes = SCHEMES if prop.kind == "url" else SCHEMES[:2]
        if not typed.startswith("{") and normalize_address(typed, schemes, lambda text: False) is None:
            raise Invalid({value_path.path: [gettext("is invalid")]})
    if prop.kind == "filters":
        return _parse_filters(value_path, typed)
    faults: list[str] = []
    validate_value(prop, typed, value_path.path, lambda path, message: faults.append(message))
    if faults:
        raise Invalid({value_path.path: faults})
    return sanitizer.normalize_rich_text(typed) if prop.kind == "rich" else typed


def _parse_number(value_path: ValuePath, typed: str, minimum: float, maximum: float) -> int | float | None:
    typed = typed.strip().replace(",", ".").removesuffix("px").removesuffix("%").strip()
    if not typed:
        return None
    value = float(typed) if _NUMBER.match(typed) else None
    if value is None or not minimum <= value <= maximum:
        raise Invalid(
            {
                value_path.path: [
                    gettext(
                        "must be between %(minimum)s and %(maximum)s", minimum=f"{minimum:g}", maximum=f"{maximum:g}"
                    )
                ]
            }
        )
    return int(value) if value == int(value) else value


def _parse_colour(value_path: ValuePath, typed: str) -> str:
    typed = typed.strip()
    if re.fullmatch(r"[0-9a-fA-F]{6}|[0-9a-fA-F]{3}", typed):
        typed = f"#{typed}"
    if not theme.is_colour(typed):
        raise Invalid({value_path.path: [gettext("is not a colour")]})
    return typed.lower()


def _parse_filters(value_path: ValuePath, typed: str) -> list[Any] | None:
    try:
        parsed = json.loads(typed)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, list):
        raise Invalid({value_path.path: [gettext("is invalid")]})
    return parsed or None


def get_holder(entry: Entry | None, design: dict[str, Any], value_path: ValuePath) -> dict[str, Any]:
    """Return the dict that contains a value: the design for a theme, else the raw section of the entry."""
    return design if value_path.root == "theme" or entry is None else entry.raw


# The fields of a template besides its design; each is edited as one value.
DETAIL_FIELDS = ("name", "subject", "preheader", "from_name", "from_email", "reply_to", "body")
_DETAIL_LABELS = {
    "name": gettext_noop("Name"), "subject": gettext_noop("Subject"), "preheader": gettext_noop("Preview text"),
    "from_name": gettext_noop("From name"), "from_email": gettext_noop("From address"),
    "reply_to": gettext_noop("Reply-to address"), "body": gettext_noop("Content"),
}  # fmt: skip


class Change(Struct):
    """A new value for a path, as the text of an input field (`typed`).

    `seen_hash` is the hash of the value that the editor showed; None overwrites the value without a check
    for conflicts. `sanitized` caches (declaration, value) of a rich text, so that the write transaction does not
    sanitize it again.
    """

    path: str
    typed: str
    seen_hash: str | None = None
    sanitized: tuple[Prop, str | None] | None = None


class Edit(NamedTuple):
    """The template fields that an edit writes, and its label in the history.

    `edited_field` names the changed value if only one changed, so that quick further changes of it share a revision.
    """

    values: dict[str, Any]
    label: str
    edited_field: str | None = None


class EditResult(NamedTuple):
    """A template after an edit, and the key of the section that the editor selects next, or None."""

    template: Template
    key: str | None = None


SectionEdit = Callable[[dict[str, Any], list[Entry]], tuple[str, str | None]]


def edit_values(
    account_id: int, template_id: int, key: str | None, changes: list[Change], user_id: int | None,
    prepared: PreparedContent | None = None,
) -> EditResult:  # fmt: skip
    """Change values of the section `key`, or of the theme if `key` is None; nothing is written if no value differs.

    Raises NotFound for an unknown template; also raises the errors of `build_value_edit` and `store.write`.
    """
    require_write_transaction()
    template = store.get(account_id, template_id)
    edit = build_value_edit(template, key, changes)
    if edit is not None:
        store.write(template, edit.values, user_id, edit.label, edited_field=edit.edited_field, prepared=prepared)
    return EditResult(template, key)


def build_value_edit(template: Template, key: str | None, changes: list[Change]) -> Edit | None:
    """Return the edit that applies `changes` to the section `key` or the theme, or None if no value differs.

    The template is not modified. Raises NotFound for an unknown section or path, Conflict if a value has changed since
    the editor showed it, Invalid at the path of a value that is not allowed, and NotAllowed for filters on names and
    addresses where contact data is masked.
    """
    design = copy.deepcopy(template.design)
    entry = None
    if key is not None:
        entry = document.find_section(document.list_entries(design), key)
        if entry is None:
            raise NotFound
    labels = []
    for change in changes:
        value_path = parse_path(change.path, entry.section.kind if entry is not None else None)
        if (value_path.root == "theme") != (entry is None):
            raise NotFound
        if _write_value(template, entry, design, value_path, change):
            labels.append(value_path.label)
    if not labels:
        return None
    section = entry.stored_label if entry is not None else gettext_noop("Theme")
    label = _VALUES_CHANGED % {"section": section, "properties": ", ".join(labels)}
    edited_field = f"{key or 'theme'} {changes[0].path}" if len(changes) == 1 else None
    return Edit({"design": _validate_design(design)}, label[:255], edited_field)


def _parse_change(value_path: ValuePath, change: Change) -> Any:
    if value_path.prop.kind != "rich":
        return parse_typed(value_path, change.typed)
    if change.sanitized is None or change.sanitized[0] != value_path.prop:
        change.sanitized = (value_path.prop, parse_typed(value_path, change.typed))
    return change.sanitized[1]


def _write_value(
    template: Template, entry: Entry | None, design: dict[str, Any], value_path: ValuePath, change: Change
) -> bool:
    holder = get_holder(entry, design, value_path)
    current, value = get_value(value_path, holder), _parse_change(value_path, change)
    if current == value and type(current) is type(value):
        return False
    if change.seen_hash is not None and change.seen_hash != hash_value(current):
        raise _build_conflict(
            template, value_path.path, current, f"{entry.key if entry is not None else 'theme'} {value_path.path}"
        )
    if value_path.prop.kind == "filters" and value is not None:
        personal.require_allowed(value)
        filters.parse_filters(value, members.build_scope(template.account_id, writing=True), value_path.path)
    set_value(value_path, holder, value)
    if value_path.path == "props.preset" and entry is not None:
        _fit_columns(entry.raw, value)
    return True


def _fit_columns(raw: dict[str, Any], preset: str | None) -> None:
    """Add or remove columns to match a preset such as `1:2`; sections of removed columns move to the last column."""
    columns = document.get_columns(raw)
    if preset is None or not all(isinstance(column, dict) for column in columns):
        return
    count = preset.count(":") + 1
    while len(columns) < count:
        columns.append({"sections": []})
    for removed in columns[count:]:
        last_column = columns[count - 1]
        last_column["sections"] = [*(last_column.get("sections") or []), *(removed.get("sections") or [])]
    del columns[count:]
    for column in columns:
        column.pop("width", None)


def _validate_design(design: dict[str, Any]) -> dict[str, Any]:
    """Return a design in its stored form.

    Raises Invalid if the design is too large, has too many sections or tags, has `sections` or `columns` that are not a
    list, or nests columns too deeply. Errors inside a section are not reported, so that they do not prevent an edit of
    another value.
    """
    faults: list[str] = []
    for path, message in find_design_faults(design):
        if path.endswith(("sections", "columns")):
            faults.append(message)
    if len(designs.to_canonical_json(design).encode("utf-8", "replace")) > MAX_DESIGN_BYTES:
        faults.append("is too large")
    if faults:
        raise Invalid({"base": faults[:1]})
    normalized: dict[str, Any] = validation.normalize_field("design", design)
    return normalized


def find_design_faults(design: dict[str, Any]) -> list[tuple[str, str]]:
    """Return every error of a design as (path, message)."""
    faults: list[tuple[str, str]] = []
    designs.validate(design, lambda path, message: faults.append((path, message)))
    return faults


def edit_details(
    account_id: int, template_id: int, changes: list[Change], user_id: int | None,
    prepared: PreparedContent | None = None,
) -> EditResult:  # fmt: skip
    """Change fields of a template other than its design; nothing is written if no value differs.

    Raises NotFound for an unknown template; also raises the errors of `build_detail_edit` and `store.write`.
    """
    require_write_transaction()
    template = store.get(account_id, template_id)
    edit = build_detail_edit(template, changes)
    if edit is not None:
        store.write(template, edit.values, user_id, edit.label, edited_field=edit.edited_field, prepared=prepared)
    return EditResult(template)


def build_detail_edit(template: Template, changes: list[Change]) -> Edit | None:
    """Return the edit that changes fields other than the design, or None if no value differs.

    Raises NotFound for an unknown field, Conflict if a field has changed since the editor showed it, and Invalid at
    `email.<field>` for a value that is not allowed.
    """
    raw, seen_hashes = {}, {}
    for change in changes:
        name = change.path.removeprefix("email.")
        if name not in DETAIL_FIELDS or (name == "name" and template.flow_id is not None):
            raise NotFound
        raw[name], seen_hashes[name] = change.typed or None, change.seen_hash
    try:
        request = fields.read(TemplateWrite, raw)
        faults = Faults()
        validation.validate_content(template.account_id, request, "", faults, template.channel)
        faults.check()
    except Invalid as refused:
        raise Invalid({f"email.{name}": messages for name, messages in refused.fields.items()}) from None
    values = {}
    for name in raw:
        value, current = getattr(request, name), getattr(template, name)
        value = validation.normalize_field(name, None if value is UNSET else value)
        if name == "name" and value is None:
            value = store.UNTITLED
        if value == current:
            continue
        if seen_hashes[name] is not None and seen_hashes[name] != hash_value(current):
            raise _build_conflict(template, f"email.{name}", current, f"email {name}")
        values[name] = value
    if not values:
        return None
    label = _DETAILS_CHANGED % {"fields": ", ".join(_DETAIL_LABELS[name] for name in values)}
    return Edit(values, label, f"email {next(iter(values))}" if len(values) == 1 else None)


def _build_conflict(template: Template, path: str, current: Any, edited_field: str) -> Conflict:
    """Return a conflict with the current value and its hash, and the author and time of its last change.

    If no revision names the value, the author and time come from the newest revision.
    """
    of_this = TemplateRevision.select().where(TemplateRevision.template == template.id)
    newest = of_this.order_by(TemplateRevision.number.desc())
    last = newest.where(TemplateRevision.edited_field == edited_field).first() or newest.first()
    author = User.get_or_none(User.id == last.user_id) if last.user_id is not None else None
    return Conflict(
        gettext("Another user changed this value."), path=path, theirs=current, seen=hash_value(current),
        changed_by=(author.name or author.email) if author is not None else None, changed_at=last.created_at,
    )  # fmt: skip


def edit_sections(
    account_id: int,
    template_id: int,
    section_edit: SectionEdit,
    user_id: int | None,
    prepared: PreparedContent | None = None,
) -> EditResult:
    """Apply a section edit of `template_edits`, and return the template with the key of the section to select.

    Raises NotFound for an unknown template or section, Invalid if the new place of a section is not allowed or the
    design is too large, and the errors of `store.write`.
    """
    require_write_transaction()
    template = store.get(account_id, template_id)
    edit, key = build_section_edit(template, section_edit)
    store.write(template, edit.values, user_id, edit.label, prepared=prepared)
    return EditResult(template, key)


def build_section_edit(template: Template, section_edit: SectionEdit) -> tuple[Edit, str | None]:
    """Return (the edit of a copy of the design, key of the section to select next or None).

    Raises the errors of `section_edit`, and Invalid if the design becomes too large.
    """
    design = copy.deepcopy(template.design)
    if not isinstance(design.get("sections"), list):
        design["sections"] = []
    label, key = section_edit(design, document.list_entries(design))
    return Edit({"design": _validate_design(design)}, label), key


def prepare(template: Template, edit: Edit | None) -> PreparedContent | None:
    """Parse the document that an edit produces, for `store.write`; return None for no edit.

    Call it outside of the write transaction.
    """
    return None if edit is None else store.prepare_values(template, edit.values)
