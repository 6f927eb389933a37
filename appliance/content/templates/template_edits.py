"""Edits of a template beyond single values: its sections and translations, undo, redo and restored revisions.

`editing.edit_sections` applies an edit of sections, and `translations` computes edits of translations. Undo, redo and
restore write an earlier revision as a new one, so that no content is lost.
"""

import copy
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from appliance.content.designs import document
from appliance.content.designs.document import Entry
from appliance.content.designs.kind import Kind
from appliance.content.designs.sections import BY_NAME, build_initial_props
from appliance.content.templates import revisions, store, translations
from appliance.content.templates.editing import SectionEdit
from appliance.content.templates.revisions import HISTORY
from appliance.content.templates.store import PreparedContent, get, prepare_values, require_unchanged, write
from appliance.content.templates.translations import CheckedTexts, TranslationSummary
from appliance.core import i18n
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext, gettext_stored, ngettext, use_language
from appliance.core.recipient_texts import language_of_locale
from appliance.core.validation import parse_language
from appliance.storage.models import Account, Template
from appliance.storage.transactions import require_write_transaction

# The labels of the edits in the history.
_ENTRY_ADDED = gettext_stored("%(section)s: entry added (%(list)s)", HISTORY)
_ENTRY_REMOVED = gettext_stored("%(section)s: entry removed (%(list)s)", HISTORY)
_ORDER_CHANGED = gettext_stored("%(section)s: order changed (%(list)s)", HISTORY)
_ADDED = gettext_stored("%(section)s added", HISTORY)
_BASICS_ADDED = gettext_stored("Header, text, button and footer added", HISTORY)
_MOVED = gettext_stored("%(section)s moved", HISTORY)
_MOVED_UP = gettext_stored("%(section)s moved up", HISTORY)
_MOVED_DOWN = gettext_stored("%(section)s moved down", HISTORY)
_DUPLICATED = gettext_stored("%(section)s duplicated", HISTORY)
_REMOVED = gettext_stored("%(section)s removed", HISTORY)


class SectionTarget(Struct):
    """The position of a section: before or after another section (by key), or at the end of a column or of the email.

    `parent` is the key of a columns section and `column` the index of its column. Without `before`, `after` and
    `parent` the position is the end of the email.
    """

    before: str | None = None
    after: str | None = None
    parent: str | None = None
    column: int = 0


def add_section(kind: str, target: SectionTarget, locale: str) -> SectionEdit:
    """Return an edit that adds a section of a kind, with texts in the language of `locale`, the account's locale.

    The edit raises NotFound for an unknown kind or target, and Invalid if the section is not allowed at the target.

    If the target is a section inside columns and the kind is not allowed there, the section is placed after the
    columns. A section added at the end of the email is placed before a footer.
    """

    def make(design: dict[str, Any], entries: list[Entry]) -> tuple[str, str | None]:
        section_kind = BY_NAME.get(kind)
        if section_kind is None:
            raise NotFound
        with use_language(language_of_locale(locale)):
            raw = _set_ids({"type": kind, "props": build_initial_props(section_kind)})
        _insert(design, entries, raw, section_kind, target, lenient=True)
        return _ADDED % {"section": section_kind.label}, str(raw["id"])

    return make


# The sections of an email to start from: a footer is required, and the others are what most emails have.
_BASIC_KINDS = ("header", "text", "button", "footer")


def add_basics(locale: str) -> SectionEdit:
    """Return an edit that adds a header, a text, a button and a footer to an empty email, and selects the text.

    Their texts are in the language of `locale`, the account's locale. The edit raises Invalid if the email has a
    section already.
    """

    def make(design: dict[str, Any], entries: list[Entry]) -> tuple[str, str | None]:
        if entries:
            raise Invalid({"base": [gettext("this email has sections already")]})
        with use_language(language_of_locale(locale)):
            rows = [_set_ids({"type": kind, "props": build_initial_props(BY_NAME[kind])}) for kind in _BASIC_KINDS]
        design["sections"] += rows
        return _BASICS_ADDED, str(rows[_BASIC_KINDS.index("text")]["id"])

    return make


def move_section(key: str, target: SectionTarget) -> SectionEdit:
    """Return an edit that moves a section.

    The edit raises NotFound for an unknown section or target, and Invalid if the section is not allowed at the target.
    """

    def make(design: dict[str, Any], entries: list[Entry]) -> tuple[str, str | None]:
        entry = _get_entry(entries, key)
        target_keys = [target_key for target_key in (target.before, target.after, target.parent) if target_key]
        if any(target_key == key or _is_inside(entries, target_key, key) for target_key in target_keys):
            raise Invalid({"base": [gettext("A section cannot be moved into itself.")]})
        # A marker keeps the old position until the section is inserted, so that the other indexes do not shift.
        mark: dict[str, Any] = {}
        entry.siblings[entry.position] = mark
        _insert(design, entries, entry.raw, entry.section.kind, target)
        _remove_marker(entry.siblings, mark)
        return _MOVED % {"section": entry.stored_label}, _find_key(design, entry.raw)

    return make


def shift_section(key: str, by: int) -> SectionEdit:
    """Return an edit that moves a section by `by` positions among its siblings (-1: up, 1: down).

    The section does not move past the first or last position. The edit raises NotFound for an unknown section.
    """

    def make(design: dict[str, Any], entries: list[Entry]) -> tuple[str, str | None]:
        entry = _get_entry(entries, key)
        to = max(0, min(len(entry.siblings) - 1, entry.position + by))
        entry.siblings.insert(to, entry.siblings.pop(entry.position))
        label = (_MOVED_UP if by < 0 else _MOVED_DOWN) % {"section": entry.stored_label}
        return label, _find_key(design, entry.raw)

    return make


def duplicate_section(key: str) -> SectionEdit:
    """Return an edit that inserts a copy of a section, with new ids, directly after the section.

    The edit raises NotFound for an unknown section.
    """

    def make(design: dict[str, Any], entries: list[Entry]) -> tuple[str, str | None]:
        entry = _get_entry(entries, key)
        copied = _set_ids(copy.deepcopy(entry.raw), renew=True)
        entry.siblings.insert(entry.position + 1, copied)
        return _DUPLICATED % {"section": entry.stored_label}, _find_key(design, copied)

    return make


def remove_section(key: str) -> SectionEdit:
    """Return an edit that removes a section and selects the nearest sibling, else the enclosing columns section.

    The edit raises NotFound for an unknown section.
    """

    def make(design: dict[str, Any], entries: list[Entry]) -> tuple[str, str | None]:
        entry = _get_entry(entries, key)
        neighbours = [other for other in entries if other.siblings is entry.siblings and other.key != key]
        neighbour = min(neighbours, key=lambda other: abs(other.position - entry.position), default=None)
        del entry.siblings[entry.position]
        label = _REMOVED % {"section": entry.stored_label}
        return label, _find_key(design, neighbour.raw) if neighbour is not None else entry.parent or None

    return make


def edit_list(key: str, name: str, act: str, at: int = 0) -> SectionEdit:
    """Return an edit of a list property of a section; `name` is the name of the property.

    `act` is `add`, `remove`, `up` or `down`; the last three apply to the entry at index `at`. The edit raises NotFound
    for an unknown section, property, act or entry, and Invalid if the list would have more or fewer entries than its
    property allows.
    """

    def make(design: dict[str, Any], section_entries: list[Entry]) -> tuple[str, str | None]:
        entry = _get_entry(section_entries, key)
        prop = next((each for each in (entry.section.kind.props if entry.section.kind else ())
                     if each.name == name and each.kind == "items"), None)  # fmt: skip
        if prop is None or act not in ("add", "remove", "up", "down"):
            raise NotFound
        props = entry.raw.setdefault("props", {})
        entries = list(prop.get_value(props) or [])
        if act != "add" and not 0 <= at < len(entries):
            raise NotFound
        if act == "add":
            if len(entries) >= prop.maximum:
                text = ngettext(
                    "must have at most %(num)s entry", "must have at most %(num)s entries", int(prop.maximum)
                )
                raise Invalid({"base": [text]})
            entries.append({"sections": []} if name == "columns" else {})
        elif act == "remove":
            if len(entries) <= prop.minimum:
                text = ngettext(
                    "must have at least %(num)s entry", "must have at least %(num)s entries", int(prop.minimum)
                )
                raise Invalid({"base": [text]})
            del entries[at]
        else:
            to = max(0, min(len(entries) - 1, at + (-1 if act == "up" else 1)))
            entries.insert(to, entries.pop(at))
        for alias in prop.aliases:
            props.pop(alias, None)
        props[name] = entries
        if name == "columns" and props.get("preset") and act in ("add", "remove"):
            props.pop("preset")
        label = {"add": _ENTRY_ADDED, "remove": _ENTRY_REMOVED}.get(act, _ORDER_CHANGED)
        return label % {"section": entry.stored_label, "list": prop.label}, key

    return make


def _get_entry(entries: list[Entry], key: str) -> Entry:
    entry = document.find_section(entries, key)
    if entry is None:
        raise NotFound
    return entry


def _is_inside(entries: list[Entry], key: str, ancestor: str) -> bool:
    entry = document.find_section(entries, key)
    while entry is not None and entry.parent:
        if entry.parent == ancestor:
            return True
        entry = document.find_section(entries, entry.parent)
    return False


def _insert(
    design: dict[str, Any], entries: list[Entry], raw: dict[str, Any], kind: Kind | None, target: SectionTarget,
    lenient: bool = False,
) -> None:  # fmt: skip
    beside = target.before or target.after
    if beside:
        entry = _get_entry(entries, beside)
        is_behind = target.after is not None and not target.before
        while entry.parent and lenient and not _fits_in_column(kind, entry.level):
            entry, is_behind = _get_entry(entries, entry.parent), True
        if entry.parent and not _fits_in_column(kind, entry.level):
            raise Invalid({"base": [gettext("this section is not allowed in a column")]})
        place = next(index for index, other in enumerate(entry.siblings) if other is entry.raw) + is_behind
        entry.siblings.insert(place, raw)
        if lenient and not entry.parent:
            _keep_footer_last(entry.siblings, raw, kind)
        return
    if target.parent:
        parent = _get_entry(entries, target.parent)
        columns = document.get_columns(parent.raw)
        if not 0 <= target.column < len(columns) or not isinstance(columns[target.column], dict):
            raise NotFound
        if not _fits_in_column(kind, parent.level + 1):
            raise Invalid({"base": [gettext("this section is not allowed in a column")]})
        inner = columns[target.column].setdefault("sections", [])
        if not isinstance(inner, list):
            inner = columns[target.column]["sections"] = []
        inner.append(raw)
        return
    design["sections"].append(raw)
    if lenient:
        _keep_footer_last(design["sections"], raw, kind)


def _fits_in_column(kind: Kind | None, level: int) -> bool:
    """Return whether a section of this kind may be in a column at this nesting level (1: columns at the top level)."""
    if kind is None or not kind.is_in_columns:
        return False
    return level <= document.MAX_COLUMN_LEVELS and (kind.name != "columns" or level < document.MAX_COLUMN_LEVELS)


def _keep_footer_last(siblings: list[Any], raw: dict[str, Any], kind: Kind | None) -> None:
    """If a section was just added at the end, directly after a footer, swap the two."""
    place = next(index for index, sibling in enumerate(siblings) if sibling is raw)
    previous = siblings[place - 1] if place else None
    is_last = place == len(siblings) - 1
    if kind is not None and kind.name != "footer" and is_last and isinstance(previous, dict):
        section = document.read_section(previous, "")
        if section.kind is not None and section.kind.name == "footer":
            siblings[place - 1], siblings[place] = raw, previous


def _remove_marker(siblings: list[Any], mark: dict[str, Any]) -> None:
    del siblings[next(index for index, sibling in enumerate(siblings) if sibling is mark)]


def _find_key(design: dict[str, Any], raw: dict[str, Any]) -> str | None:
    return next((entry.key for entry in document.list_entries(design) if entry.raw is raw), None)


def _set_ids(raw: dict[str, Any], renew: bool = False) -> dict[str, Any]:
    """Give an id to each section that has none, including nested ones; `renew` replaces existing ids too."""
    if renew or raw.get("id") is None:
        raw["id"] = f"s{secrets.token_hex(4)}"
    for column in document.get_columns(raw):
        inner = column.get("sections") if isinstance(column, dict) else None
        for item in inner if isinstance(inner, list) else []:
            if isinstance(item, dict):
                _set_ids(item, renew)
    return raw


# The labels of the edits in the history.
_TRANSLATED = gettext_stored("Translated into %(language)s", HISTORY)
_TRANSLATION_REMOVED = gettext_stored("Translation into %(language)s removed", HISTORY)

Texts = Mapping[str, str | None]


def _name_in_english(language: str) -> str:
    """Return the name of a language for a label of the history, which is stored in English."""
    with i18n.use_language(i18n.DEFAULT_LANGUAGE):
        return i18n.name_language(language)


def read_language(text: str) -> str:
    """Return a language tag in its usual form; raises Invalid at `language`."""
    try:
        return parse_language(text)
    except ValueError as error:
        raise Invalid({"language": [str(error)]}) from None


def get_original_language(account_id: int) -> str:
    """Return the language in which an account writes its templates, as a tag."""
    locale: str = Account.get_by_id(account_id).locale
    return locale.replace("_", "-")


def list_summaries(account_id: int, template_id: int) -> list[TranslationSummary]:
    """Return how far a template is translated into each of its languages; raises NotFound."""
    template = store.get(account_id, template_id)
    return translations.summarize_languages(revisions.to_document(template), template.channel)


def get_summary(account_id: int, template_id: int, language: str) -> TranslationSummary:
    """Return the texts of a template with their translations into a language.

    Raises NotFound, also if the template is not translated into the language.
    """
    template = store.get(account_id, template_id)
    if language not in template.translations:
        raise NotFound
    return translations.summarize(revisions.to_document(template), language, template.channel)


def set_texts(
    account_id: int, template_id: int, language: str, texts: Texts, user_id: int | None = None,
    revision: int | None = None, prefix: str = "", prepared: PreparedContent | None = None,
    read_at: int | None = None,
) -> Template:  # fmt: skip
    """Set texts of a translation, by text id; None removes one. A language that is new is added.

    Raises NotFound, Conflict if `revision` is not the current one or the template is newer than `read_at` (its
    `updated_at` as last read), Invalid with all errors, each at `prefix` and its text id, and the errors of
    `store.write`.
    """
    require_write_transaction()
    template = store.get(account_id, template_id)
    store.require_unchanged(template, read_at, revision)
    changed = _compute(template, language, texts, prefix, prepared and prepared.checked_texts)
    label = _TRANSLATED % {"language": _name_in_english(language)}
    edited_field = f"translations {language} {next(iter(texts))}"[:255] if len(texts) == 1 else None
    store.write(template, {"translations": changed}, user_id, label, edited_field=edited_field, prepared=prepared)
    return template


def _compute(
    template: Template, language: str, texts: Texts, prefix: str, checked: CheckedTexts | None
) -> dict[str, dict[str, dict[str, str]]]:
    if language == get_original_language(template.account_id):
        raise Invalid({"language": [gettext("is the language of the original")]})
    document = revisions.to_document(template)
    return translations.set_texts(template.translations, document, language, texts, template.channel, prefix, checked)


def remove(
    account_id: int, template_id: int, language: str, user_id: int | None = None, revision: int | None = None,
    prepared: PreparedContent | None = None,
) -> Template:  # fmt: skip
    """Remove a language from a template.

    Raises NotFound, also if the template is not translated into it, Conflict if `revision` is not the current one, and
    the errors of `store.write`.
    """
    require_write_transaction()
    template = store.get(account_id, template_id)
    store.require_unchanged(template, revision=revision)
    if language not in template.translations:
        raise NotFound
    changed = translations.remove_language(template.translations, language)
    label = _TRANSLATION_REMOVED % {"language": _name_in_english(language)}
    store.write(template, {"translations": changed}, user_id, label, prepared=prepared)
    return template


def prepare(account_id: int, template_id: int, language: str, texts: Texts | None) -> PreparedContent:
    """Check texts, and parse the template with them set, or without the language if `texts` is None; raises NotFound.

    Call it outside of the write transaction. If the texts are invalid, the result holds only the results of the checks,
    and the write raises the errors.
    """
    template = store.get(account_id, template_id)
    if texts is None:
        changed = translations.remove_language(template.translations, language)
        return store.prepare_values(template, {"translations": changed})
    checked = translations.check_texts(revisions.to_document(template), texts, template.channel)
    try:
        changed = _compute(template, language, texts, "", checked)
    except Invalid:
        return store.PreparedContent(None, template.channel, (), {}, {}, store.NO_STEP_MESSAGES, checked)
    return store.prepare_values(template, {"translations": changed})._replace(checked_texts=checked)


def validate(account_id: int, template_id: int, language: str, texts: Texts, prefix: str = "") -> None:
    """Raise NotFound for an unknown template, or Invalid with all errors of translations; nothing is written."""
    _compute(store.get(account_id, template_id), language, texts, prefix, None)


_RESTORED = gettext_stored("Restored %(revision)s", HISTORY)
_UNDONE = gettext_stored("Undo: back to %(revision)s", HISTORY)
_REDONE = gettext_stored("Redo: back to %(revision)s", HISTORY)


def undo(
    account_id: int, template_id: int, user_id: int | None = None, revision: int | None = None,
    prepared: PreparedContent | None = None,
) -> Template:  # fmt: skip
    """Restore the content before the last edit.

    Raises NotFound, Conflict if `revision` is not the current revision, Invalid if there is nothing to undo, or the
    errors of `write`.
    """
    return _undo_or_redo(account_id, template_id, user_id, revision, "undo", prepared)


def redo(
    account_id: int, template_id: int, user_id: int | None = None, revision: int | None = None,
    prepared: PreparedContent | None = None,
) -> Template:  # fmt: skip
    """Reverse the last undo.

    Raises NotFound, Conflict if `revision` is not the current revision, Invalid if there is nothing to redo, or the
    errors of `write`.
    """
    return _undo_or_redo(account_id, template_id, user_id, revision, "redo", prepared)


def restore(
    account_id: int, template_id: int, number: int, user_id: int | None = None, revision: int | None = None,
    prepared: PreparedContent | None = None,
) -> Template:  # fmt: skip
    """Restore the content of the revision `number` as a new edit.

    Raises NotFound, Conflict if `revision` is not the current revision, or the errors of `write`.
    """
    require_write_transaction()
    template = get(account_id, template_id)
    require_unchanged(template, revision=revision)
    revision_row = revisions.get(account_id, template_id, number)
    write(
        template,
        revisions.get_content_values(revision_row.document),
        user_id,
        _RESTORED % {"revision": revisions.describe_revision(revision_row)},
        restored_number=number,
        prepared=prepared,
    )
    return template


def prepare_revision(account_id: int, template_id: int, to: int | Literal["undo", "redo"]) -> PreparedContent | None:
    """Parse the content of the revision `to`, or of the revision that undo or redo would restore; raises NotFound.

    Returns None if there is nothing to undo or redo.
    """
    template = get(account_id, template_id)
    number: int | None = to if isinstance(to, int) else getattr(revisions.find_undo_steps(template), to)
    if number is None:
        return None
    revision = revisions.get(account_id, template_id, number)
    return prepare_values(template, revisions.get_content_values(revision.document))


def _undo_or_redo(
    account_id: int, template_id: int, user_id: int | None, revision: int | None, direction: str,
    prepared: PreparedContent | None,
) -> Template:  # fmt: skip
    require_write_transaction()
    template = get(account_id, template_id)
    require_unchanged(template, revision=revision)
    number: int | None = getattr(revisions.find_undo_steps(template), direction)
    if number is None:
        nothing_undone, nothing_redone = gettext("There is nothing to undo."), gettext("There is nothing to redo.")
        raise Invalid({"base": [nothing_undone if direction == "undo" else nothing_redone]})
    target = revisions.get(account_id, template_id, number)
    revision_name = revisions.describe_revision(target)
    label = (_UNDONE if direction == "undo" else _REDONE) % {"revision": revision_name}
    values = revisions.get_content_values(target.document)
    write(template, values, user_id, label, restored_number=number, is_undo_step=True, prepared=prepared)
    return template
