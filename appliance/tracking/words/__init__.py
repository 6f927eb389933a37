"""What the people we write to read on our pages and in our own mails, in the language of the account.

`{address}` and such are filled in by pages, `{{ brand.company_name }}` and such by mails.
"""

from collections.abc import Mapping

from appliance.tracking.words import de, en, es, fr

_LANGUAGES: dict[str, Mapping[str, str]] = {"en": en.WORDS, "de": de.WORDS, "es": es.WORDS, "fr": fr.WORDS}


# The languages that recipients may read, each by its own name
NAMES = {"en": "English", "de": "Deutsch", "es": "Español", "fr": "Français"}


def language(locale: str) -> str:
    """Return the language that a locale is written in here; English where we have no words for it."""
    short = locale.replace("_", "-").partition("-")[0].lower()
    return short if short in _LANGUAGES else "en"


def of(short: str) -> Mapping[str, str]:
    """Return the words of a language that `language` named."""
    return _LANGUAGES[short]
