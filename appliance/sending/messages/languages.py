"""Choose the language of a message: the translation of its template, and the language of the product's texts in it.

docs/architecture.md#languages describes the rules.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from appliance.content.designs.theme import Look
from appliance.content.templates import translations
from appliance.core import recipient_texts
from appliance.sending.messages import compose
from appliance.sending.messages.compose import MessageSource


class MessageLanguage(NamedTuple):
    """The language of a message.

    `translation` is the language of the template's texts, None for the original. `texts` is the language of the
    product's texts in the message, such as the label of the unsubscribe link, as a key of `i18n.LANGUAGES`.
    """

    translation: str | None
    texts: str


def choose(languages: Collection[str], contact_language: str | None, locale: str) -> MessageLanguage:
    """Return the language of a message for a contact (None: no contact, or its language is unknown).

    `languages` are those that the template is translated into. `locale` is the account's, in which the original is
    written.
    """
    translation = translations.match_translation(languages, contact_language, locale.replace("_", "-"))
    return MessageLanguage(translation, recipient_texts.choose_language(contact_language, locale))


def get_content_language(language: MessageLanguage | None, locale: str) -> str:
    """Return the language of a template's texts in a message: the translation's, else the account's."""
    return locale if language is None or language.translation is None else language.translation


def choose_opt_out_hint(
    hint: str | None, hints: Mapping[str, str], contact_language: str | None, locale: str
) -> str | None:
    """Return the opt-out hint of an SMS in the language of a contact, else `hint`, which is in the account's language.

    `hints` are the hints in other languages, by language tag. The language is matched as for a translation.
    """
    language = translations.match_translation(sorted(hints), contact_language, locale.replace("_", "-"))
    return hint if language is None else hints[language]


def choose_for_document(
    document: Mapping[str, Any], contact_language: str | None, locale: str, channel: str = "email"
) -> MessageLanguage:
    """Return the language of a template's message for a contact, as `choose` does.

    For an SMS, which contains no texts of the product, `texts` is always the language of the locale.
    """
    language = choose(translations.get_available_languages(document), contact_language, locale)
    return language if channel == "email" else language._replace(texts=recipient_texts.language_of_locale(locale))


def choose_for_preview(
    document: Mapping[str, Any], contact_language: str | None, locale: str, language: str | None = None,
    channel: str = "email",
) -> MessageLanguage:  # fmt: skip
    """Return the language of a preview or test: `language`, else the contact's.

    A `language` that the template is not translated into gives the original, with the product's texts in that language.
    """
    return choose_for_document(document, language or contact_language, locale, channel)


def build_source(
    document: Mapping[str, Any], look: Look, locale: str, language: MessageLanguage | None = None,
    marketing: bool = True,
) -> MessageSource:  # fmt: skip
    """Return the source of an email in a language, by default the original, from the fields of a template.

    `marketing` adds the compliance footer.
    """
    if language is None:
        return compose.build_source(document, look, locale, marketing)
    translated = translations.translate_document(document, language.translation)
    source = compose.build_source(translated, look, language.translation or locale, marketing)
    return source._replace(texts=get_other_texts(language.texts, source.locale))


def get_other_texts(texts: str, locale: str) -> str | None:
    """Return `texts`, the language of the product's texts, or None if it is the language of `locale`."""
    return None if texts == recipient_texts.language_of_locale(locale) else texts


def build_sources(
    document: Mapping[str, Any], look: Look, locale: str, marketing: bool = True
) -> dict[str | None, MessageSource]:
    """Return the sources of an email by language, from the fields of a template; the original is first, under None.

    `marketing` adds the compliance footer.
    """
    choices = {
        language: MessageLanguage(language, recipient_texts.choose_language(language, locale))
        for language in (None, *translations.get_available_languages(document))
    }
    return {language: build_source(document, look, locale, choice, marketing) for language, choice in choices.items()}
