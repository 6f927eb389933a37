"""The preflight checks of a campaign that is translated: its message in every language, and who gets which."""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from appliance.campaigns import audience
from appliance.campaigns.findings import Finding, PreflightInput, TranslatedMessage
from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import placeholders, translations
from appliance.content.templates.revisions import to_document
from appliance.content.templates.translations import TranslationSummary
from appliance.core import i18n
from appliance.core.i18n import format_number, gettext, ngettext
from appliance.sending.messages import compose, languages
from appliance.sending.messages.compose import MessageSource
from appliance.sending.sms import segments
from appliance.storage.models import Account, Campaign

_TRANSLATIONS = "template_attributes.translations"
_MAX_NAMED_TEXTS, _MAX_NAMED_LANGUAGES = 3, 10
# Five times the maximum number of translations of a template. Without a limit, tags with regions and scripts, which an
# import may contain, could make thousands of rows, each with a handful of recipients.
MAX_COUNTED_LANGUAGES = 100


class LanguageCount(Struct):
    """The recipients with a language, and the translation that they get."""

    language: Annotated[str, Meta(description="language of the contacts; null if it is unknown")] | None
    recipients: Annotated[int, Meta(description="number of recipients with this language")]
    translation: Annotated[str, Meta(description="language of the texts they get; null for the original")] | None


def compile_translations(campaign: Campaign, sources: dict[str | None, MessageSource]) -> tuple[TranslatedMessage, ...]:
    """Compile the message of a campaign in each language that it is translated into.

    `sources` are those of an email by language (`languages.build_sources`), and unused for SMS.
    """
    document = to_document(campaign.template)
    messages = []
    for language, translated in translations.list_messages(document, campaign.channel):
        if language is None:
            continue
        content = text = error = None
        try:
            if campaign.channel == "sms":
                text = compose.compile_sms(translated["body"], language=language)
            elif language in sources:
                content = compose.compile_message(sources[language])
        except MergeError as merge_error:
            error = merge_error.describe()
        messages.append(TranslatedMessage(language, translated, content, text, error))
    return tuple(messages)


def check_rendering(case: PreflightInput) -> Iterator[Finding]:
    """Yield a blocker for each language in which the message does not render, or is too long for an SMS."""
    for message in case.translated:
        name = i18n.name_language(message.language)
        if message.error:
            text = gettext(
                "%(language)s: the message cannot be rendered: %(error)s", language=name, error=message.error
            )
            yield Finding("preflight_failed", text, f"{_TRANSLATIONS}.{message.language}")
        fault = None if message.text is None else segments.find_length_fault(message.document["body"])
        if fault is not None:
            text = gettext("%(language)s: %(problem)s", language=name, problem=fault)
            yield Finding("preflight_failed", text, f"{_TRANSLATIONS}.{message.language}")


def find_warnings(case: PreflightInput, counts: list[LanguageCount]) -> Iterator[Finding]:
    """Yield the warnings about translations; `counts` are from `count_languages`."""
    document, channel = to_document(case.campaign.template), case.campaign.channel
    known = (
        {placeholder.message for placeholder in placeholders.find_placeholders(document)} if case.translated else set()
    )
    for message in case.translated:
        summary = translations.summarize(document, message.language, channel)
        yield from _check_completeness(summary)
        yield from _check_tags(case, message)
        yield from _check_placeholders(known, message)
    yield from _check_recipients(counts, case.account.locale)


def _check_completeness(summary: TranslationSummary) -> Iterator[Finding]:
    path, name = f"{_TRANSLATIONS}.{summary.language}", i18n.name_language(summary.language)
    if summary.missing:
        message = ngettext(
            "%(language)s: %(missing)s of %(num)s text is not translated (%(texts)s)",
            "%(language)s: %(missing)s of %(num)s texts are not translated (%(texts)s)",
            summary.total,
            language=name,
            missing=format_number(summary.missing),
            texts=_name_texts(summary, "missing"),
        )
        yield Finding("translation_missing", message, path)
    if summary.changed:
        message = ngettext(
            "%(language)s: %(num)s text has changed since its translation (%(texts)s)",
            "%(language)s: %(num)s texts have changed since their translation (%(texts)s)",
            summary.changed,
            language=name,
            texts=_name_texts(summary, "changed"),
        )
        yield Finding("translation_changed", message, path)


def _name_texts(summary: TranslationSummary, state: str) -> str:
    """Return the labels of the first texts in a state, each once."""
    labels = list(dict.fromkeys(text.text.label for text in summary.texts if text.state == state))
    return ", ".join(labels[:_MAX_NAMED_TEXTS]) + ("…" if len(labels) > _MAX_NAMED_TEXTS else "")


def _check_tags(case: PreflightInput, message: TranslatedMessage) -> Iterator[Finding]:
    """Yield a warning for each unknown merge tag that only the translation has."""
    for name in sorted(_find_unknown(message.content, message.text) - _find_unknown(case.content, case.text)):
        text = gettext(
            "%(language)s: %(tag)s is not a known merge tag and will be blank",
            language=i18n.name_language(message.language),
            tag=name,
        )
        yield Finding("unknown_merge_tag", text, f"{_TRANSLATIONS}.{message.language}")


def _find_unknown(content: Any, text: Any) -> set[str]:
    names = content.variables() if content is not None else list(text.variables) if text is not None else []
    return set(merge.find_unknown_roots(names))


def _check_placeholders(known: set[str], message: TranslatedMessage) -> Iterator[Finding]:
    """Yield a warning for each placeholder that only the translation has; `known` are those of the original."""
    for placeholder in placeholders.find_placeholders(message.document):
        if placeholder.message not in known:
            text = gettext(
                "%(language)s: %(problem)s",
                language=i18n.name_language(message.language),
                problem=placeholder.message,
            )
            yield Finding(placeholder.code, text, f"{_TRANSLATIONS}.{message.language}")


def _check_recipients(counts: list[LanguageCount], locale: str) -> Iterator[Finding]:
    """Yield a warning for each language of recipients that the message is not translated into, the largest first.

    At most `_MAX_NAMED_LANGUAGES` languages are named.
    """
    untranslated = [
        count for count in counts if count.language and not (count.translation or _is_original(count.language, locale))
    ]
    for count in untranslated[:_MAX_NAMED_LANGUAGES]:
        message = ngettext(
            "%(num)s recipient has the language %(language)s, which this message is not translated into",
            "%(num)s recipients have the language %(language)s, which this message is not translated into",
            count.recipients,
            language=i18n.name_language(str(count.language)),
        )
        yield Finding("language_untranslated", message, _TRANSLATIONS)


def count_languages(campaign: Campaign, account: Account) -> list[LanguageCount]:
    """Return the number of recipients by language, the largest first, with the translation that each gets.

    At most `MAX_COUNTED_LANGUAGES` are returned.
    """
    document = to_document(campaign.template)
    available = translations.get_available_languages(document)
    counts = audience.count_languages(campaign, MAX_COUNTED_LANGUAGES)
    return [
        LanguageCount(tag, number, languages.choose(available, tag, account.locale).translation)
        for tag, number in counts.items()
    ]


def _is_original(language: str, locale: str) -> bool:
    """Return whether the original is in a language."""
    return translations.get_primary(language) == translations.get_primary(locale.replace("_", "-"))
