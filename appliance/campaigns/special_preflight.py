"""The preflight checks that only SMS campaigns or translated campaigns need.

An SMS is checked for text, length and parts, opt-out hint, sender, countries and quiet hours; a translated campaign for
its message in every language, and who gets which.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from appliance.campaigns import audience, send_times
from appliance.campaigns.findings import Finding, PreflightInput, TranslatedMessage, find_transport
from appliance.campaigns.rehearsal import UNKNOWN, Rehearsal, SmsTotals
from appliance.content.designs import merge
from appliance.content.designs.merge_limits import MergeError
from appliance.content.templates import placeholders, translations
from appliance.content.templates.revisions import to_document
from appliance.content.templates.translations import TranslationSummary
from appliance.core import addresses, clock, i18n
from appliance.core.i18n import format_number, gettext, ngettext
from appliance.sending.messages import compose, languages, senders, sms_rules
from appliance.sending.messages.compose import MessageSource
from appliance.sending.sms import segments
from appliance.settings import config
from appliance.storage.models import Account, Campaign

if TYPE_CHECKING:
    from appliance.content.designs.compiled_template import CompiledTemplate


_BODY, _BASE, _AUDIENCE = "template_attributes.body", "base", "trigger_attributes"
# Words that count as an opt-out hint, in addition to those of the settings.
_OPT_OUT_WORDS = (
    "stop",
    "unsubscribe",
    "opt out",
    "optout",
    "abmelden",
    "arret",
    "baja",
    "alto",
    "desuscribir",
    "stopp",
)
_OPT_OUT_LINKS = ("unsubscribe_url", "preferences_url")
_NAME_TAGS = ("brand.company_name", "account.name")
# Networks treat messages with public URL shorteners as fraud, because anyone can hide behind them.
_SHORTENERS = re.compile(
    r"//(?:www\.)?(?:bit\.ly|tinyurl\.com|goo\.gl|t\.co|ow\.ly|is\.gd|buff\.ly|rebrand\.ly|cutt\.ly|rb\.gy|t\.ly)\b",
    re.I,
)
_MAX_CHARACTERS_NAMED = 3


def compile_sms(campaign: Campaign) -> "CompiledTemplate | None":
    """Return the compiled text of an SMS campaign, or None if the text is empty.

    Raises MergeError if the text does not compile.
    """
    body = campaign.template.body
    if not (body or "").strip():
        return None
    return compose.compile_sms(body)


def check_length(case: PreflightInput) -> Iterator[Finding]:
    """Yield a blocker if the text is too long for any recipient, whatever the values of its merge tags.

    Recipients for whom only the filled text is too long are skipped by the send.
    """
    fault = segments.find_length_fault(case.campaign.template.body) if case.text is not None else None
    if fault is not None:
        yield Finding("preflight_failed", fault, _BODY)


def describe_sms(case: PreflightInput) -> dict[str, Any]:
    """Return the facts of an SMS campaign that are known without rendering it for every recipient (the rehearsal).

    Keys: `from`, `opt_out_hint`, and None for `parts` and `is_exact`, which `describe_rehearsed_sms` replaces.
    """
    sender = senders.find_default_sms(case.account, find_transport(case.campaign))
    return {"from": sender, "opt_out_hint": case.account.sms_opt_out_hint, "parts": None, "is_exact": None}


def describe_rehearsed_sms(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return the SMS facts of a complete rehearsal (`parts`, `is_exact`), or an empty dict before it is complete."""
    totals = rehearsal.result.sms
    if rehearsal.status != "complete" or totals is None:
        return {}
    return {"parts": totals.parts, "is_exact": totals.is_exact}


def check_opt_out_hint(case: PreflightInput) -> Iterator[Finding]:
    """Warn if the text has neither an opt-out word nor an opt-out link, and the account has no opt-out hint."""
    if case.text is None or case.account.sms_opt_out_hint:
        return
    body = " ".join((case.campaign.template.body or "").casefold().split())
    opt_out_words = {*_OPT_OUT_WORDS, *(word.casefold() for word in config.current().sms.stop_words)}
    has_link = any(name in case.text.variables for name in _OPT_OUT_LINKS)
    if not has_link and not any(re.search(rf"\b{re.escape(word)}\b", body) for word in opt_out_words):
        message = gettext(
            "the text does not say how to opt out: set the opt-out text of the account (sms_opt_out_hint), or add it"
        )
        yield Finding("opt_out_hint_missing", message, _BODY)


def check_wording(case: PreflightInput) -> Iterator[Finding]:
    """Warn of unknown merge tags, a text that does not name its sender, and URL shorteners that networks block."""
    if case.text is None:
        return
    for name in merge.find_unknown_variables(list(case.text.variables)):
        yield Finding(
            "unknown_merge_tag", gettext("%(name)s is not a known merge tag and will be blank", name=name), _BODY
        )
    body, account = case.campaign.template.body or "", case.account
    sender = senders.pick_sms_sender(account.sms_from, None, find_transport(case.campaign))
    names = [value.casefold() for value in (case.brand.company_name, account.name) if value]
    is_named = any(value in body.casefold() for value in names) or any(
        value in case.text.variables for value in _NAME_TAGS
    )
    if not is_named and not addresses.is_sender_name(sender):
        yield Finding("sender_unnamed", gettext("the text does not identify you: add your brand name"), _BODY)
    if match := _SHORTENERS.search(body):
        host = match.group()[2:]
        message = (
            gettext(
                "carriers block links to %(host)s: use the full link, which is shortened to one on your own domain",
                host=host,
            )
            if case.campaign.tracking
            else gettext("carriers block links to %(host)s", host=host)
        )
        yield Finding("public_shortener", message, _BODY)


def check_quiet_hours(case: PreflightInput) -> Iterator[Finding]:
    """Warn if the campaign starts in quiet hours in the account's time zone, or if its local time is in them.

    When a contact gets the SMS depends on the contact's own time zone.
    """
    hours, campaign = case.account.sms_quiet_hours, case.campaign
    starts = [max(campaign.scheduled_at or 0, clock.now_ms())]
    if campaign.local_time is not None:
        starts = send_times.list_starts(campaign, case.account.time_zone)
    is_quiet = hours and any(
        sms_rules.get_quiet_end(hours, case.account.time_zone, start) is not None for start in starts
    )
    if case.is_real and is_quiet:
        message = gettext(
            "sending starts in quiet hours (%(hours)s): contacts receive it when their quiet hours end",
            hours=_format_hours(hours),
        )
        yield Finding("quiet_hours", message, "scheduled_at")


def _format_hours(hours: dict[str, str]) -> str:
    return gettext("%(start)s to %(end)s", start=hours["from"], end=hours["to"])


def check_rehearsed_sms(case: PreflightInput, rehearsal: Rehearsal) -> Iterator[Finding]:
    """Yield the warnings about the SMS that a rehearsal rendered, once it is complete."""
    sms = rehearsal.result.sms
    if sms is None or rehearsal.status != "complete":
        return
    yield from _check_encoding(sms)
    if sms.refused:
        reasons = ", ".join(f"{reason} ({i18n.format_number(count)})" for reason, count in sms.refused.items())
        message = ngettext(
            "%(num)s contact will be skipped because of their number or consent: %(reasons)s",
            "%(num)s contacts will be skipped because of their number or consent: %(reasons)s",
            sum(sms.refused.values()),
            reasons=reasons,
        )
        yield Finding("numbers_refused", message, _AUDIENCE)
    if sms.resting:
        hours = _format_hours(case.account.sms_quiet_hours or {"from": "", "to": ""})
        message = ngettext(
            "%(num)s contact is in quiet hours at the start (%(hours)s local time) and will receive it afterwards",
            "%(num)s contacts are in quiet hours at the start (%(hours)s local time) and will receive it afterwards",
            sms.resting,
            hours=hours,
        )
        yield Finding("recipient_quiet_hours", message, "scheduled_at")
    yield from _check_daily_limit(case, sms)
    if sms.fixed_lines:
        message = ngettext(
            "%(num)s contact has a landline number, which may not receive SMS",
            "%(num)s contacts have a landline number, which may not receive SMS",
            sms.fixed_lines,
        )
        yield Finding("fixed_line", message, _AUDIENCE)
    countries = {country for country in sms.countries if country != UNKNOWN}
    account = case.account
    for code, message in senders.find_sms_advice(account, countries, account.sms_opt_out_hint, case.is_real):
        yield Finding(code, message, _BASE)


def _check_daily_limit(case: PreflightInput, sms: SmsTotals) -> Iterator[Finding]:
    """Warn if the campaign needs more SMS parts than today's limit still allows, with the days that it will take."""
    daily_parts = config.current().sms.parts_per_day
    if not case.is_real or not daily_parts:
        return
    remaining = daily_parts - sms_rules.get_parts_used(case.account.id, case.account.time_zone, clock.now_ms())
    if sms.parts > remaining:
        days = 1 + -(-(sms.parts - max(remaining, 0)) // daily_parts)
        message = ngettext(
            "sending takes %(days)s days: %(num)s SMS part at %(limit)s per day (sms.parts_per_day)",
            "sending takes %(days)s days: %(num)s SMS parts at %(limit)s per day (sms.parts_per_day)",
            sms.parts,
            limit=i18n.format_number(daily_parts),
            days=i18n.format_number(days),
        )
        yield Finding("parts_per_day", message, _BASE)


def _check_encoding(sms: SmsTotals) -> Iterator[Finding]:
    if not sms.ucs2:
        return
    characters = [segments.describe_character(entry.character) for entry in sms.forcing[:_MAX_CHARACTERS_NAMED]]
    names = ", ".join(characters) + (", …" if len(sms.forcing) > _MAX_CHARACTERS_NAMED else "")
    message = ngettext(
        "for %(num)s contact a part holds 70 characters instead of 160, because of emoji or special characters: "
        "%(characters)s",
        "for %(num)s contacts a part holds 70 characters instead of 160, because of emoji or special characters: "
        "%(characters)s",
        sms.ucs2,
        characters=names,
    )
    yield Finding("ucs2", message, _BODY)


SMS_CHECKS = (check_opt_out_hint, check_wording, check_quiet_hours)


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

    `sources` has an email's sources by language (`languages.build_sources`), and is unused for SMS.
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


def check_translated_rendering(case: PreflightInput) -> Iterator[Finding]:
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


def find_translation_warnings(case: PreflightInput, counts: list[LanguageCount]) -> Iterator[Finding]:
    """Yield the warnings about translations; `counts` are from `count_languages`."""
    document = to_document(case.campaign.template)
    # Also languages without a translated text, in which no contact gets the message yet.
    for summary in translations.summarize_languages(document, case.campaign.channel):
        yield from _check_completeness(summary)
    original_messages = (
        {placeholder.message for placeholder in placeholders.find_placeholders(document)} if case.translated else set()
    )
    for message in case.translated:
        yield from _check_tags(case, message)
        yield from _check_placeholders(original_messages, message)
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
    """Return the labels of the first texts in a state, each once; a text of a section has that of its section."""
    texts = [entry.text for entry in summary.texts if entry.state == state]
    labels = list(dict.fromkeys(text.section or text.label for text in texts))
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
    return set(merge.find_unknown_variables(names))


def _check_placeholders(original_messages: set[str], message: TranslatedMessage) -> Iterator[Finding]:
    """Yield a warning for each placeholder that only the translation has, not the original (`original_messages`)."""
    for placeholder in placeholders.find_placeholders(message.document):
        if placeholder.message not in original_messages:
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
    counts = audience.count_by(campaign, "c.language", limit=MAX_COUNTED_LANGUAGES)
    return [
        LanguageCount(tag, number, languages.choose(available, tag, account.locale).translation)
        for tag, number in counts.items()
    ]


def _is_original(language: str, locale: str) -> bool:
    """Return whether the original is in a language."""
    return translations.get_primary(language) == translations.get_primary(locale.replace("_", "-"))
