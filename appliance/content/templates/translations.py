"""Translations of a template: which of its texts can be translated, and the template with its texts in a language.

Each translation is stored with the text that it translates, as in gettext, so that a text that has changed since is
known. `sending/messages/languages.py` chooses the language of each recipient.
"""

import copy
import html
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import json

from appliance.content.designs import document as designs
from appliance.content.designs import merge, merge_limits, sanitizer
from appliance.content.designs.document import Entry
from appliance.content.designs.kind import SCHEMES, Prop, normalize_address, validate_value
from appliance.content.templates import validation
from appliance.content.templates.validation import MAX_DESIGN_BYTES, Content
from appliance.core import validation as fields
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext, gettext_noop

# {language tag: {text id: {"source": text that was translated, "text": translation}}}
Translations = Mapping[str, Mapping[str, Mapping[str, str]]]
Document = Mapping[str, Any]

MAX_LANGUAGES = 20
MAX_TRANSLATIONS_BYTES = 4 * MAX_DESIGN_BYTES
# Of one request. A template with more texts is translated by several requests, because each keeps the other texts.
MAX_WRITTEN_TEXTS = 2_000
# After this many errors, ids that no text has are not reported.
MAX_UNKNOWN_TEXTS = 100
# The fields of a template that are translated besides its design, in reading order; of an SMS only the body.
TRANSLATED_FIELDS = ("subject", "preheader", "from_name", "body")
_FIELD_LABELS = {
    "subject": gettext_noop("Subject"), "preheader": gettext_noop("Preview text"),
    "from_name": gettext_noop("From name"), "body": gettext_noop("Content"),
}  # fmt: skip
# Values of these kinds may differ by language, but need not: without one of its own, a language shows the original.
_OPTIONAL_KINDS = ("image", "url")
# A text that is only an address, such as a link written out, can be the same in every language, too.
_ADDRESS = re.compile(r"(?:https?://|mailto:|tel:|www\.)\S+|[^\s@]+@[^\s@.]+(?:\.[^\s@.]+)+", re.IGNORECASE)
# The values of these kinds of sections that the document does not set come from the brand, or are translated already.
_KINDS_OF_BRAND = ("header", "footer")
# A tag that is not closed extends to the end of the text, so that the text is read only once.
_MARKUP = re.compile(
    r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)|<style\b.*?(?:</style\s*+>|\Z)|<[^<>]*>", re.DOTALL | re.IGNORECASE
)
# The number of a list's entry in the id of a text
_ENTRY = re.compile(r"\.\d+\.")


class TranslatableText(NamedTuple):
    """A text of a template that can be translated.

    `id` is the name of a field, or the key of a section, a slash and the path of the value (`a1b2/props.items.0.title`,
    as `editing.parse_path` reads it). `label` and `section` are in the language of this request; `section` is empty for
    a field. `kind` is the property's kind: `line`, `text`, `rich`, `html`, `url` or `image`. `prop` is the declaration
    of the property, or None for a field.
    """

    id: str
    label: str
    section: str
    kind: str
    text: str
    prop: Prop | None = None


TranslationState = Literal["translated", "changed", "missing", "original"]


class TextState(NamedTuple):
    """A text with its translation (None if it has none) and the state of the translation.

    `changed` means that the text has changed since it was translated. `original` means that no translation is needed,
    as for an image or a link.
    """

    text: TranslatableText
    translation: str | None
    state: TranslationState


class TranslationSummary(NamedTuple):
    """How far a template is translated into a language: counts of texts by state, and each text in reading order."""

    language: str
    translated: int
    changed: int
    missing: int
    texts: tuple[TextState, ...]

    @property
    def total(self) -> int:
        """Return the number of texts without those in the state `original`."""
        return self.translated + self.changed + self.missing


def list_texts(document: Document, channel: str = "email") -> list[TranslatableText]:
    """Return the texts of a template that can be translated, in reading order.

    Texts without a letter of their own, such as a price or a single merge tag, are left out.
    """
    texts = []
    for name in TRANSLATED_FIELDS if channel == "email" else ("body",):
        value = document.get(name)
        if isinstance(value, str) and _has_words(value):
            label = gettext(_FIELD_LABELS[name]) if channel == "email" else gettext("SMS text")
            texts.append(TranslatableText(name, label, "", _field_kind(name, document, channel), value))
    if channel == "email":
        texts += (text for text, _ in _walk_design(document.get("design")))
    return texts


def _field_kind(name: str, document: Document, channel: str) -> str:
    if name != "body":
        return "line"
    # With a design, the body is the plain-text version.
    return "text" if channel == "sms" or designs.get_sections(document.get("design")) else "html"


def _has_words(text: str) -> bool:
    """Return whether a text has a letter outside of merge tags and HTML tags."""
    return any(character.isalpha() for character in html.unescape(_MARKUP.sub("", text)))


# Writes the translation of a text into the design that was walked.
_Write = Callable[[str], None]


def _walk_design(design: Any) -> Iterator[tuple[TranslatableText, _Write]]:
    for entry in designs.list_entries(design):
        if entry.section.kind is not None:
            for prop in entry.section.kind.props:
                yield from _walk_prop(entry, prop)


def _walk_prop(entry: Entry, prop: Prop) -> Iterator[tuple[TranslatableText, _Write]]:
    """Yield the texts of one property of a section, including those in its list or group."""
    values = entry.section.props
    value = prop.get_value(values)
    path = f"props.{prop.name}"
    if prop.kind == "group":
        value = {prop.fields[0].name: value} if isinstance(value, str) else value
        for field in prop.fields if isinstance(value, dict) else ():
            label = gettext("%(group)s: %(property)s", group=gettext(prop.label), property=gettext(field.label))
            text = _read_text(entry, field, value, f"{path}.{field.name}", label)
            if text is not None:
                yield text, _writer(entry, prop, field)
    elif prop.kind == "items":
        for index, item in enumerate(value[: int(prop.maximum)] if isinstance(value, list) else ()):
            for field in prop.fields if isinstance(item, dict) else ():
                label = gettext(
                    "%(list)s, entry %(number)s: %(property)s",
                    list=gettext(prop.label), number=str(index + 1), property=gettext(field.label),
                )  # fmt: skip
                text = _read_text(entry, field, item, f"{path}.{index}.{field.name}", label)
                if text is not None:
                    yield text, _writer(entry, prop, field, index)
    else:
        text = _read_text(entry, prop, values, path, gettext(prop.label))
        if text is not None:
            yield text, _writer(entry, prop)


def _read_text(entry: Entry, prop: Prop, values: dict[str, Any], path: str, label: str) -> TranslatableText | None:
    """Return a text of a section, or None if the value is not text that can be translated."""
    if not prop.is_text or not prop.is_translatable:
        return None
    value = prop.get_value(values)
    is_of_brand = entry.section.kind is not None and entry.section.kind.name in _KINDS_OF_BRAND
    if value in (None, "") and not (is_of_brand and values is entry.section.props):
        value = prop.default
    if not isinstance(value, str) or not _has_words(value):
        return None
    return TranslatableText(f"{entry.key}/{path}", label, entry.label, prop.kind, value, prop)


def _writer(entry: Entry, prop: Prop, field: Prop | None = None, index: int | None = None) -> _Write:
    """Return a function that sets one text of a section; the value under a property's own name wins over aliases."""

    def write(text: str) -> None:
        props = entry.raw.get("props")
        if not isinstance(props, dict):
            props = entry.raw["props"] = {}
        if field is None:
            props[prop.name] = text
            return
        current = prop.get_value(props)
        if index is not None:
            current[index][field.name] = text
            props[prop.name] = current
        else:
            props[prop.name] = (current if isinstance(current, dict) else {prop.fields[0].name: current}) | {
                field.name: text
            }

    return write


def keep_current(translations: Translations, document: Document, channel: str = "email") -> dict[str, Any]:
    """Return the translations whose stored source equals the text of a document now.

    Used when only a part of a template's content is copied with its translations.
    """
    present = {text.id: text.text for text in list_texts(document, channel)}
    return {
        tag: {text_id: value for text_id, value in texts.items() if value["source"] == present.get(text_id)}
        for tag, texts in translations.items()
    }


def get_languages(document: Document) -> list[str]:
    """Return the languages that a template is translated into, sorted."""
    return sorted(document.get("translations") or {})


def get_available_languages(document: Document) -> list[str]:
    """Return the languages that contacts can get, sorted: those with at least one translated text."""
    return sorted(language for language, texts in (document.get("translations") or {}).items() if texts)


def match_translation(
    languages: Collection[str], contact_language: str | None, original_language: str | None = None
) -> str | None:
    """Return the best of `languages` for a contact, or None for the original.

    `languages` are the languages of the translations, and `original_language` is the language of the original. For a
    contact with `de-AT`, the result is the first of these that exists: `de-AT`, `de`, the original if it is in German,
    another German translation such as `de-CH`, the original.
    """
    if not contact_language or not languages:
        return None
    tag = contact_language
    while tag not in languages and tag != original_language:
        if "-" not in tag:
            break
        tag = tag.rpartition("-")[0]
    if tag in languages:
        return tag
    if original_language is not None and get_primary(original_language) == get_primary(tag):
        return None
    return next((language for language in languages if get_primary(language) == tag), None)


def get_primary(language: str) -> str:
    """Return the language of a tag without script and region: `pt` for `pt-BR`."""
    return language.partition("-")[0]


def translate_document(document: Document, language: str | None, channel: str = "email") -> dict[str, Any]:
    """Return a copy of a template's document with its texts in a language, without `translations`.

    Texts without a translation stay as they are; a translation is used even if its original has changed since.
    """
    translated = {name: value for name, value in document.items() if name != "translations"}
    texts = (document.get("translations") or {}).get(language or "")
    if not texts:
        return translated
    for name in TRANSLATED_FIELDS if channel == "email" else ("body",):
        if name in texts and isinstance(translated.get(name), str) and _has_words(translated[name]):
            translated[name] = texts[name]["text"]
    if channel == "email" and designs.get_sections(document.get("design")):
        # `_walk_design` reads each text before it is written.
        translated["design"] = copy.deepcopy(document["design"])
        for text, write in list(_walk_design(translated["design"])):
            if text.id in texts:
                write(texts[text.id]["text"])
    return translated


def summarize(document: Document, language: str, channel: str = "email") -> TranslationSummary:
    """Return how far a template is translated into a language, with the state of each text."""
    return _summarize(list_texts(document, channel), document, language)


def summarize_languages(document: Document, channel: str = "email") -> list[TranslationSummary]:
    """Return how far a template is translated into each of its languages, sorted."""
    texts = list_texts(document, channel)
    return [_summarize(texts, document, language) for language in get_languages(document)]


def _summarize(texts: list[TranslatableText], document: Document, language: str) -> TranslationSummary:
    stored = (document.get("translations") or {}).get(language) or {}
    states = []
    for text in texts:
        translation = stored.get(text.id)
        if translation is None:
            states.append(TextState(text, None, "original" if _is_optional(text) else "missing"))
        else:
            is_current = translation["source"] == text.text
            states.append(TextState(text, translation["text"], "translated" if is_current else "changed"))
    names = [state.state for state in states]
    return TranslationSummary(
        language, names.count("translated"), names.count("changed"), names.count("missing"), tuple(states)
    )


def _is_optional(text: TranslatableText) -> bool:
    """Return whether a text is complete without a translation: an image, a link or a text that is only an address."""
    return text.kind in _OPTIONAL_KINDS or _ADDRESS.fullmatch(text.text.strip()) is not None


class CheckedText(NamedTuple):
    """The result of checking a translation: its stored form, or None, and its errors.

    The result is valid only for the same typed text and the same declaration of the original (`prop`).
    """

    prop: Prop | None
    typed: str
    translation: str | None
    errors: list[str]


CheckedTexts = Mapping[str, CheckedText]


def check_texts(document: Document, texts: Mapping[str, str | None], channel: str = "email") -> CheckedTexts:
    """Check the translations of a template's texts, and return the results by text id.

    Blank translations and unknown ids are left out. Checking parses HTML, so call it outside of the write transaction.
    """
    return {
        text.id: _check(text, typed, channel)
        for text in list_texts(document, channel)
        if (typed := texts.get(text.id)) and typed.strip()
    }


def _check(text: TranslatableText, typed: str, channel: str) -> CheckedText:
    return CheckedText(text.prop, typed, *_validate(text, typed, channel))


def set_texts(
    translations: Translations, document: Document, language: str, texts: Mapping[str, str | None],
    channel: str = "email", prefix: str = "", checked: CheckedTexts | None = None,
) -> dict[str, dict[str, dict[str, str]]]:  # fmt: skip
    """Return translations with some texts of a language added, as {language: {text id: {"source", "text"}}}.

    A None or an empty text removes a translation. A text counts as a translation of the present original, even if it is
    the same as before. The result is pruned as by `prune`. A language whose last text is removed stays, without texts.
    `checked` are results of `check_texts`; a text without one, or that changed since, is checked here. Raises Invalid
    with all errors, each at `prefix` and the id of its text.
    """
    faults, checked = Faults(), checked or {}
    present = {text.id: text for text in list_texts(document, channel)}
    added: dict[str, dict[str, str]] = {}
    for text_id, typed in texts.items():
        text, path = present.get(text_id), prefix + text_id
        if text is None:
            if typed and len(faults.fields) < MAX_UNKNOWN_TEXTS:
                faults.add(path, gettext("is not a text of this template"))
        elif typed and typed.strip():
            result = checked.get(text_id)
            if result is None or (result.prop, result.typed) != (text.prop, typed):
                result = _check(text, typed, channel)
            for error in result.errors:
                faults.add(path, error)
            if result.translation:
                added[text_id] = {"source": text.text, "text": result.translation}
    faults.check()
    changed = prune(translations, document, channel)
    unchanged = {text_id: value for text_id, value in changed.get(language, {}).items() if text_id not in texts}
    # In reading order, so that equal translations are stored as equal JSON.
    own_texts = {text_id: added.get(text_id) or unchanged.get(text_id) for text_id in present.keys() | unchanged.keys()}
    changed[language] = {
        text_id: value for text_id in (*present, *unchanged) if (value := own_texts[text_id]) is not None
    }
    _check_limits(changed, translate_document({**document, "translations": changed}, language, channel))
    return changed


def _check_limits(translations: Translations, translated: Document) -> None:
    """Raise Invalid if there are too many languages or texts, or too many merge tags in the translated document."""
    if len(translations) > MAX_LANGUAGES:
        limit = str(MAX_LANGUAGES)
        raise Invalid(
            {"base": [gettext("A template can be translated into at most %(limit)s languages.", limit=limit)]}
        )
    design_size = len(designs.to_canonical_json(translated.get("design")).encode("utf-8", "replace"))
    if design_size > MAX_DESIGN_BYTES or len(json.encode(translations)) > MAX_TRANSLATIONS_BYTES:
        raise Invalid({"base": [gettext("The translations are too large.")]})
    faults: list[str] = []
    designs.validate(
        dict(translated.get("design") or {}),
        lambda path, message: faults.append(message) if path == "sections" else None,
    )
    if message := merge_limits.find_code_error(merge.iterate_strings(translated.get("design"))):
        faults.append(message)
    if faults:
        raise Invalid({"base": faults[:1]})


def _validate(text: TranslatableText, typed: str, channel: str) -> tuple[str | None, list[str]]:
    """Return (translation in its stored form, its errors); it is checked as the original value is."""
    if text.prop is None:
        return _validate_field(text.id, typed, channel)
    errors: list[str] = []
    value = typed.strip() if text.kind in ("line", "url", "image") else typed
    validate_value(text.prop, value, "", lambda _, message: errors.append(message))
    is_address = text.kind in ("url", "image") and not value.startswith("{")
    schemes = SCHEMES[:2] if text.kind == "image" else SCHEMES
    if not errors and is_address and normalize_address(value, schemes, lambda _: False) is None:
        errors.append(gettext("is invalid"))
    return sanitizer.normalize_rich_text(value) if text.kind == "rich" and not errors else value, errors


def _validate_field(name: str, typed: str, channel: str) -> tuple[str | None, list[str]]:
    try:
        request = fields.read(Content, {name: typed})
    except Invalid as refused:
        return None, [message for messages in refused.fields.values() for message in messages]
    errors = [message for _, message in validation.find_text_faults(request, channel)]
    return validation.normalize_field(name, getattr(request, name)), errors


def remove_language(translations: Translations, language: str) -> dict[str, Any]:
    """Return the translations without a language."""
    return {tag: dict(texts) for tag, texts in translations.items() if tag != language}


def follow_entries(translations: Translations, document: Document, former: Document) -> dict[str, dict[str, Any]]:
    """Return the translations after list entries were moved: each under the id that its original has now.

    `former` is the document before the change. A translation whose place another entry has taken is left out, because
    it would be shown with the price, the picture and the link of that entry.
    """
    moved: dict[str, dict[str, Any]] = {}
    if not any(_ENTRY.search(text_id) for texts in translations.values() for text_id in texts):
        return {tag: dict(texts) for tag, texts in translations.items()}
    present = {text.id: text.text for text, _ in _walk_design(document.get("design"))}
    earlier = {text.id: text.text for text, _ in _walk_design(former.get("design"))}
    earlier_texts = {(_ENTRY.sub(".", text_id), text) for text_id, text in earlier.items()}
    for tag, texts in translations.items():
        moved[tag] = dict(texts)
        entry_texts = {text_id: value for text_id, value in texts.items() if _ENTRY.search(text_id)}
        stale = [text_id for text_id, value in entry_texts.items() if value["source"] != present.get(text_id)]
        free_ids: dict[tuple[str, str], list[str]] = {}
        for text_id, text in present.items() if stale else ():
            if text_id not in entry_texts or entry_texts[text_id]["source"] != text:
                free_ids.setdefault((_ENTRY.sub(".", text_id), text), []).append(text_id)
        targets = {}
        for text_id in stale:
            path = _ENTRY.sub(".", text_id)
            ids = free_ids.get((path, entry_texts[text_id]["source"]))
            if ids:
                targets[ids.pop(0)] = entry_texts[text_id]
            is_taken = present.get(text_id) != earlier.get(text_id) and (path, present.get(text_id)) in earlier_texts
            if ids is not None or is_taken:
                del moved[tag][text_id]
        moved[tag] |= targets
    return moved


def prune(translations: Translations, document: Document, channel: str = "email") -> dict[str, dict[str, Any]]:
    """Return the translations without the texts of fields and sections that the template no longer has.

    Earlier revisions keep them. A text that is empty at present keeps its translation, because it may come back.
    """
    keys = {entry.key for entry in designs.list_entries(document.get("design"))} if channel == "email" else set()
    return {
        tag: {text_id: value for text_id, value in texts.items()
              if (text_id.partition("/")[0] in keys if "/" in text_id else text_id in TRANSLATED_FIELDS)}
        for tag, texts in translations.items()
    }  # fmt: skip


def list_messages(document: Document, channel: str = "email") -> list[tuple[str | None, dict[str, Any]]]:
    """Return (language, document in this language) of the original, whose language is None, and of each translation."""
    languages: list[str | None] = [None, *get_available_languages(document)]
    return [(language, translate_document(document, language, channel)) for language in languages]
