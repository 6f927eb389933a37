"""Edits of the translations of a stored template; `translations` computes them."""

from collections.abc import Mapping

from appliance.content.templates import revisions, store, translations
from appliance.content.templates.store import PreparedContent
from appliance.content.templates.translations import CheckedTexts, TranslationSummary
from appliance.core import i18n
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext, gettext_stored
from appliance.core.validation import parse_language
from appliance.storage.models import Account, Template
from appliance.storage.transactions import require_write_transaction

# The labels of the edits in the history.
_TRANSLATED = gettext_stored("Translated into %(language)s", revisions.HISTORY)
_REMOVED = gettext_stored("Translation into %(language)s removed", revisions.HISTORY)

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
    label = _REMOVED % {"language": _name_in_english(language)}
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
