"""The texts, dates and amounts that recipients read, in the languages that an account may choose.

They are used on pages, in system emails and in the footers of emails. Dates and amounts use the CLDR data of Babel. The
texts of pages contain values to fill in, such as `{address}`. The texts of emails contain merge tags, such as `{{
brand.company_name }}`. All texts are translated in the catalogues of `appliance/core/i18n.py`, where `recipient` is
their context.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from appliance.core import i18n
from appliance.core.i18n import pgettext_noop

if TYPE_CHECKING:
    from babel import Locale

_TEXTS = {
    # The unsubscribe page.
    "leave_title": pgettext_noop("recipient", "Unsubscribe"),
    "leave_heading": pgettext_noop("recipient", "Stop these emails?"),
    "leave_lead": pgettext_noop(
        "recipient", "This unsubscribes <b>{address}</b> from emails with news and offers from {company}."
    ),
    "leave_button": pgettext_noop("recipient", "Unsubscribe"),
    "leave_quiet": pgettext_noop("recipient", "Nothing changes until you press the button."),
    "less": pgettext_noop("recipient", "Prefer fewer emails? Manage your preferences"),
    "left_title": pgettext_noop("recipient", "Unsubscribed"),
    "left_heading": pgettext_noop("recipient", "You are unsubscribed"),
    "left_lead": pgettext_noop(
        "recipient",
        "<b>{address}</b> will no longer receive news and offers from {company}. You will still receive messages about "
        "your orders and requests, such as receipts.",
    ),
    "left_nobody": pgettext_noop("recipient", "You will no longer receive news and offers from {company}."),
    "left_undo": pgettext_noop("recipient", "Was that a mistake?"),
    "left_undo_button": pgettext_noop("recipient", "Subscribe again"),
    "back_heading": pgettext_noop("recipient", "You are subscribed again"),
    "back_lead": pgettext_noop("recipient", "<b>{address}</b> will receive news and offers from {company} again."),
    "close": pgettext_noop("recipient", "You can close this page."),
    "choose": pgettext_noop("recipient", "Manage your preferences"),
    # The unsubscribe page for SMS.
    "leave_heading_sms": pgettext_noop("recipient", "Stop these text messages?"),
    "leave_lead_sms": pgettext_noop(
        "recipient",
        "This unsubscribes <b>{address}</b> from news and offers by SMS from {company}.",
    ),
    "left_lead_sms": pgettext_noop(
        "recipient",
        "<b>{address}</b> will no longer receive offers and news by SMS from {company}. You will still receive "
        "messages about your orders and requests.",
    ),
    "left_nobody_sms": pgettext_noop("recipient", "You will no longer receive offers and news by SMS from {company}."),
    "back_lead_sms": pgettext_noop("recipient", "<b>{address}</b> will receive SMS from {company} again."),
    # The preferences page.
    "prefs_title": pgettext_noop("recipient", "Your preferences"),
    "prefs_heading": pgettext_noop("recipient", "What would you like to receive?"),
    "prefs_lead": pgettext_noop("recipient", "Messages from {company} to <b>{address}</b>."),
    "prefs_channels": pgettext_noop("recipient", "How we may contact you"),
    "prefs_email": pgettext_noop("recipient", "Email to {address}"),
    "prefs_phone": pgettext_noop("recipient", "Text messages to {address}"),
    "prefs_blocked": pgettext_noop(
        "recipient",
        "You reported a message from {company} as spam, so nothing is sent here. To hear from us again, sign up again.",
    ),
    "prefs_lists": pgettext_noop("recipient", "Topics"),
    "prefs_tracking": pgettext_noop("recipient", "Tracking"),
    "prefs_full": pgettext_noop("recipient", "Opens and clicks, to personalise my emails"),
    "prefs_aggregate": pgettext_noop("recipient", "Anonymous totals only"),
    "prefs_none": pgettext_noop("recipient", "No tracking"),
    "prefs_language": pgettext_noop("recipient", "Language"),
    "prefs_language_now": pgettext_noop("recipient", "Language: {what}"),
    "prefs_save": pgettext_noop("recipient", "Save"),
    "prefs_saved": pgettext_noop("recipient", "Saved"),
    "prefs_same": pgettext_noop("recipient", "You made no changes."),
    "prefs_on": pgettext_noop("recipient", "Subscribed: {what}"),
    "prefs_off": pgettext_noop("recipient", "Unsubscribed: {what}"),
    "prefs_noticed": pgettext_noop("recipient", "Tracking: {what}"),
    "prefs_gone": pgettext_noop(
        "recipient", "We hold no data about you, and you will not receive newsletters from {company}."
    ),
    "prefs_test": pgettext_noop(
        "recipient",
        "This link is from a test message, so there is nothing to choose. Contacts choose here what they receive by "
        "email and SMS, their topics, tracking and language, and can have their data deleted.",
    ),
    "erase_heading": pgettext_noop("recipient", "Your data"),
    "erase_lead": pgettext_noop(
        "recipient",
        "{company} will delete all your data. First, we send you an email to confirm that the request is yours.",
    ),
    "erase_lead_unmailed": pgettext_noop(
        "recipient",
        "{company} will delete all your data after reviewing your request.",
    ),
    "erase_button": pgettext_noop("recipient", "Delete my data"),
    "erase_mailed_heading": pgettext_noop("recipient", "Check your inbox"),
    "erase_mailed_lead": pgettext_noop(
        "recipient",
        "We have sent you an email. Everything is deleted as soon as you confirm there.",
    ),
    "erase_noted_heading": pgettext_noop("recipient", "Your request is noted"),
    "erase_noted_lead": pgettext_noop("recipient", "{company} has been told and will delete your data."),
    # Confirmation pages.
    "confirm_title": pgettext_noop("recipient", "Please confirm"),
    "confirm_heading": pgettext_noop("recipient", "One last step"),
    "confirm_lead": pgettext_noop("recipient", "Confirm that <b>{address}</b> should receive emails from {company}."),
    "confirm_lists": pgettext_noop("recipient", "You will be subscribed to: {lists}."),
    "confirm_button": pgettext_noop("recipient", "Yes, subscribe me"),
    "confirm_quiet": pgettext_noop("recipient", "If this was not you, close this page, and nothing will happen."),
    "confirmed_heading": pgettext_noop("recipient", "Thank you, you are subscribed"),
    "confirmed_lead": pgettext_noop("recipient", "<b>{address}</b> will now receive emails from {company}."),
    "erasing_heading": pgettext_noop("recipient", "Delete everything about you?"),
    "erasing_lead": pgettext_noop(
        "recipient",
        "{company} will delete your profile, your history and your messages, and will not contact <b>{address}</b> "
        "again. This cannot be undone.",
    ),
    "erasing_button": pgettext_noop("recipient", "Delete everything"),
    "erased_heading": pgettext_noop("recipient", "Everything is deleted"),
    "erased_lead": pgettext_noop("recipient", "{company} has deleted your data and won’t contact you again."),
    "expired_heading": pgettext_noop("recipient", "This link has expired"),
    "expired_lead": pgettext_noop(
        "recipient",
        "Links work for seven days. Please ask again, and we’ll send you a new one.",
    ),
    # Sign-up forms.
    "form_button": pgettext_noop("recipient", "Sign up"),
    "form_optional": pgettext_noop("recipient", "optional"),
    "form_email": pgettext_noop("recipient", "Email address"),
    "form_phone": pgettext_noop("recipient", "Phone number"),
    "form_first_name": pgettext_noop("recipient", "First name"),
    "form_last_name": pgettext_noop("recipient", "Last name"),
    "form_language": pgettext_noop("recipient", "Language"),
    "form_trap": pgettext_noop("recipient", "Leave this empty"),
    "form_blank": pgettext_noop("recipient", "Please fill this in."),
    "form_either": pgettext_noop("recipient", "Please give an email address or a phone number."),
    "form_email_wrong": pgettext_noop("recipient", "Please enter an email address like name@example.com."),
    "form_phone_wrong": pgettext_noop(
        "recipient", "Please enter the number with its country code, like +44 20 7946 0018."
    ),
    "form_long": pgettext_noop("recipient", "That’s too long."),
    "form_choose": pgettext_noop("recipient", "Please select one of the options."),
    "form_choose_some": pgettext_noop("recipient", "Please select at least one option."),
    "form_tick": pgettext_noop("recipient", "Please tick this box."),
    "form_date_wrong": pgettext_noop("recipient", "Please enter a date."),
    "form_number_wrong": pgettext_noop("recipient", "Please enter a number."),
    "form_topics": pgettext_noop("recipient", "What would you like to receive?"),
    "form_again": pgettext_noop("recipient", "That was very quick. Please press the button once more."),
    "form_many_heading": pgettext_noop("recipient", "Please try again in a minute"),
    "form_many_lead": pgettext_noop("recipient", "There were too many attempts just now."),
    "form_mailed_heading": pgettext_noop("recipient", "Almost done"),
    "form_mailed_lead": pgettext_noop(
        "recipient",
        "We’ve sent an email to <b>{address}</b>. Click “{button}” in it. Not there after a few minutes? Look in your "
        "spam folder.",
    ),
    "form_done_heading": pgettext_noop("recipient", "Thank you"),
    "form_done_lead": pgettext_noop(
        "recipient",
        "You are signed up. If your address has to be confirmed first, an email is on its way to you.",
    ),
    "form_typo": pgettext_noop(
        "recipient", "You entered an address that ends in <b>{domain}</b>. Did you mean <b>{suggestion}</b>?"
    ),
    "form_typo_again": pgettext_noop("recipient", "Correct the address"),
    "form_continue": pgettext_noop("recipient", "Continue without changes"),
    # Error pages.
    "lost_heading": pgettext_noop("recipient", "This link does not work"),
    "lost_lead": pgettext_noop(
        "recipient",
        "It may have been cut off by your mail program. Open it from the message once more, or copy the whole address.",
    ),
    "later_heading": pgettext_noop("recipient", "Please try again in a moment"),
    "later_lead": pgettext_noop("recipient", "We could not save your choice just now. Nothing was changed."),
    # System emails.
    "mail_confirm_subject": pgettext_noop("recipient", "Please confirm: email from {{ brand.company_name }}"),
    "mail_confirm_subject_lists": pgettext_noop("recipient", "Please confirm: {{ data.lists }}"),
    "mail_confirm_heading": pgettext_noop("recipient", "Please confirm your address"),
    "mail_confirm_text": pgettext_noop(
        "recipient",
        "You (or someone using this address) asked to receive emails from {{ brand.company_name }}.",
    ),
    "mail_confirm_lists": pgettext_noop("recipient", "You will be subscribed to: {{ data.lists }}."),
    # The same words as on the page that the button opens
    "mail_confirm_button": pgettext_noop("recipient", "Yes, subscribe me"),
    "mail_confirm_note": pgettext_noop(
        "recipient",
        "If it was not you, ignore this email, and nothing will happen. The link works for seven days.",
    ),
    "mail_erase_subject": pgettext_noop("recipient", "Please confirm: delete your data at {{ brand.company_name }}"),
    "mail_erase_heading": pgettext_noop("recipient", "Delete everything about you?"),
    "mail_erase_text": pgettext_noop(
        "recipient",
        "You asked {{ brand.company_name }} to delete all data about you.",
    ),
    "mail_erase_button": pgettext_noop("recipient", "Continue"),
    "mail_erase_note": pgettext_noop(
        "recipient",
        "If it was not you, ignore this email, and nothing will be deleted. The link works for seven days.",
    ),
    # The links in the footer of emails; `leave_title` is the link to unsubscribe.
    "mail_preferences": pgettext_noop("recipient", "Preferences"),
    "mail_view": pgettext_noop("recipient", "View in browser"),
    # Before the last day of a coupon.
    "coupon_until": pgettext_noop("recipient", "Valid until"),
    # In the plain text of emails: the price of a product that has an original price, and a video without a caption.
    "price": pgettext_noop("recipient", "{price} (was {old_price})"),
    "video": pgettext_noop("recipient", "Video"),
}

# The supported languages, each with its name in that language.
LANGUAGE_NAMES = i18n.LANGUAGES


def language_of_locale(locale: str) -> str:
    """Return the language of a locale such as `de-AT`, or English if there are no texts in its language."""
    return i18n.match_language(locale) or i18n.DEFAULT_LANGUAGE


def choose_language(contact_language: str | None, account_locale: str) -> str:
    """Return the language of the texts for a contact: the contact's if there are texts in it, else the account's."""
    own_language = i18n.match_language(contact_language) if contact_language else None
    return own_language or language_of_locale(account_locale)


def get_lang_attribute(language: str | None) -> str:
    """Return ` lang="pt-BR"` for a text in a language other than its document's, or an empty text for None."""
    return "" if language is None else f' lang="{language.replace("_", "-")}"'


@cache
def get_texts(language: str) -> Mapping[str, str]:
    """Return the texts in a language by key; raises KeyError if the language is not one of `i18n.LANGUAGES`."""
    if language not in i18n.LANGUAGES:
        raise KeyError(language)
    catalogue = i18n.load_catalogue(language)
    return {key: catalogue.pgettext("recipient", text) for key, text in _TEXTS.items()}


def get_translator(language: str) -> Callable[..., Markup]:
    """Return a function that takes a key and values, and returns the text in a language, with escaped values."""
    texts = get_texts(language)

    def translate(key: str, /, **values: Any) -> Markup:
        return Markup(texts[key]).format(**values)  # noqa: S704 - the phrases are ours and values are escaped

    return translate


# Dates and amounts, in any language of CLDR, because those of a message follow the language of its template.

_DIRECTIVE = re.compile(r"%([-_^#]?)([a-zA-Z%])")
# The CLDR patterns of the strftime directives that are words. Beside a day, the month has the form that dates have,
# else the form that stands alone: "8 czerwca 1964", but "czerwiec 1964".
_WORDS = {"B": "MMMM", "b": "MMM", "h": "MMM", "A": "EEEE", "a": "EEE", "p": "a"}
_WORDS_ALONE = {"B": "LLLL", "b": "LLL", "h": "LLL"}
_DAYS_OF_MONTH = ("d", "e")


@lru_cache(64)
def _find_locale(tag: str) -> "Locale":
    """Return the locale of a language tag; of its language, if it has no such region; else English.

    English without a region has the dates of most countries, not of the US.
    """
    from babel import Locale, UnknownLocaleError  # takes 30 ms, which a service with only English emails saves

    for name in (tag.replace("-", "_"), re.split("[-_]", tag)[0]):
        try:
            return Locale.parse("en_GB" if name == "en" else name)
        except (ValueError, UnknownLocaleError):
            continue
    return Locale.parse("en_GB")


def format_day(day: date, language: str) -> str:
    """Return a date with the name of its month: `31 December 2026` for `en`, `31. Dezember 2026` for `de`."""
    from babel.dates import format_date

    return format_date(day, "long", locale=_find_locale(language))


def translate_format(moment: datetime, form: str, language: str) -> str:
    """Return a strftime format with the names of months and days of this moment in place of their directives."""
    from babel.dates import format_datetime

    has_day = any(match[2] in _DAYS_OF_MONTH for match in _DIRECTIVE.finditer(form))
    patterns = _WORDS if has_day else _WORDS | _WORDS_ALONE

    def replace(match: re.Match[str]) -> str:
        pattern = patterns.get(match[2])
        if pattern is None:
            return match[0]
        word = format_datetime(moment, pattern, locale=_find_locale(language)).replace("%", "%%")
        return word.upper() if match[1] == "^" else word

    return _DIRECTIVE.sub(replace, form)


def format_amount(amount: float, language: str) -> str:
    """Return an amount with two decimals: `1,234.50` for `en`, `1.234,50` for `de`."""
    from babel.numbers import format_decimal

    return format_decimal(amount, "#,##0.00", locale=_find_locale(language))
