"""Translates texts into the language of the current page, from the gettext catalogues in `appliance/locale`.

Texts are English in the code. `gettext` and its siblings return them in the language that `set_language` has set for
this request, and in English for programs that use the API and for commands. A text that is made when a module is
imported is marked with `gettext_noop`, and translated where it is shown. Texts are stored in English, and translated by
`translate_stored`. A value is written `%(name)s` in a text, and a percent sign `%%`. docs/architecture.md#languages
says how a catalogue is made.
"""

import decimal
import gettext as stdlib_gettext
import io
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, time, tzinfo
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from appliance.core import shipped

if TYPE_CHECKING:
    from babel import Locale

_T = TypeVar("_T")
# The supported languages by their code, each with its name in that language. English needs no catalogue.
LANGUAGES = {
    "en": "English", "de": "Deutsch", "es": "Español", "fr": "Français", "it": "Italiano", "nl": "Nederlands",
    "pl": "Polski", "pt_BR": "Português (Brasil)", "ja": "日本語",
}  # fmt: skip
DEFAULT_LANGUAGE = "en"
# The name of the catalogues and of the directory that holds them.
DOMAIN, DIRECTORY = "campanero", "appliance/locale"

# Further languages for tests, by code, with the paths of their catalogues.
_test_catalogues: dict[str, Path] = {}

# An element of the header Accept-Language: a language and its weight (RFC 9110, sections 12.4.2 and 12.5.4).
_ACCEPTED_LANGUAGE = re.compile(r"([A-Za-z0-9*-]{1,35})\s*(?:;\s*q=([01](?:\.[0-9]{0,3})?))?", re.IGNORECASE)

# Latin letters that Unicode does not decompose, with the letters among which a reader looks for them.
_LETTERS_WITHOUT_DECOMPOSITION = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "ı": "i", "ŋ": "n", "ŧ": "t"}
)

# A language with an optional script and region (RFC 5646, section 2.1).
_LANGUAGE_TAG = re.compile(r"([A-Za-z]{2,3})(?:[-_]([A-Za-z]{4}))?(?:[-_]([A-Za-z]{2}|[0-9]{3}))?")
# The same for the OpenAPI document, or an empty text, which clears a language.
LANGUAGE_TAG_SCHEMA = f"^({_LANGUAGE_TAG.pattern.replace('(?:', '(')})?$"
# Tags with a name in CLDR that are not a living language: special codes, invented languages, ancient languages
_DEAD_OR_INVENTED_LANGUAGES = frozenset(
    ("mis", "mul", "und", "zxx", "afh", "avk", "jbo", "lfn", "nov", "tlh", "zbl", "akk", "ang", "chg", "dum", "egy",
     "elx", "enm", "frm", "fro", "gmh", "goh", "got", "grc", "hit", "kho", "mga", "non", "ota", "pal", "peo", "phn",
     "pro", "sga", "sog", "sux", "uga")
)  # fmt: skip

_language: ContextVar[str] = ContextVar("language", default=DEFAULT_LANGUAGE)


def use_test_catalogues(directory: str | None) -> None:
    """Support the languages whose catalogues `CODE.po` a directory has; None ends the effect of an earlier call."""
    former = set(_test_catalogues)
    for language in former:
        LANGUAGES.pop(language, None)
    _test_catalogues.clear()
    if directory:
        _test_catalogues.update((path.stem, path) for path in Path(directory).glob("*.po"))
    LANGUAGES.update((language, language) for language in _test_catalogues)
    for language in former.union(_test_catalogues):
        _catalogues.pop(language, None)


def get_language() -> str:
    """Return the code of the language of this request, such as `de` or `pt_BR`."""
    return _language.get()


def set_language(language: str) -> None:
    """Set the language of this request; English, if it is not one of `LANGUAGES`."""
    _language.set(language if language in LANGUAGES else DEFAULT_LANGUAGE)


@contextmanager
def use_language(language: str) -> Iterator[None]:
    """Set the language within a block; an unknown language becomes `DEFAULT_LANGUAGE`."""
    token = _language.set(language if language in LANGUAGES else DEFAULT_LANGUAGE)
    try:
        yield
    finally:
        _language.reset(token)


def get_language_tag() -> str:
    """Return the language of this request as HTML and HTTP write it (RFC 5646), such as `pt-BR`."""
    return get_language().replace("_", "-")


def get_locale() -> "Locale":
    """Return Babel's locale of this request's language; for English it is `en_GB`, because of its date formats."""
    return _load_locale(get_language())


@cache
def _load_locale(language: str) -> "Locale":
    from babel import Locale  # takes 30 ms, which a service with only English pages saves

    return Locale.parse("en_GB" if language == "en" else language)


def is_right_to_left() -> bool:
    """Return whether the language of this request is written from right to left."""
    return get_language() != DEFAULT_LANGUAGE and get_locale().text_direction == "rtl"


def format_number(value: int | float) -> str:
    """Format a number as the current language does: `12,384` in English."""
    from babel.numbers import format_decimal

    return format_decimal(value, locale=get_locale())


_SIZE_UNITS = (("digital-gigabyte", 1e9), ("digital-megabyte", 1e6), ("digital-kilobyte", 1e3))


def format_size(size: float) -> str:
    """Format a number of bytes in KB, MB or GB (powers of 1000) as the current language does: `78.6 GB`."""
    from babel.units import format_unit

    unit, divisor = next((unit for unit in _SIZE_UNITS if size >= unit[1] * 0.9995), _SIZE_UNITS[-1])
    value = size / divisor
    return format_unit(round(value, 1 if value < 100 else None), unit, "short", locale=get_locale())


# Numbers of custom data from here on are grouped by thousands; smaller ones may be years.
_MIN_GROUPED = 10_000
# Other numbers are shown as Python writes them: 1e+300.
_MIN_WRITTEN_OUT, _MAX_WRITTEN_OUT = 1e-9, 1e15


def format_data_number(value: int | float) -> str:
    """Format a number of custom data with all its digits: `2010` for 2010.0 too, `1234.56789`, `12,384` in English."""
    from babel.numbers import format_decimal

    if value and not _MIN_WRITTEN_OUT <= abs(value) < _MAX_WRITTEN_OUT:
        return str(value).replace(".", get_decimal_mark())
    exact = int(value) if float(value).is_integer() else Decimal(repr(value))
    return format_decimal(
        exact, locale=get_locale(), decimal_quantization=False, group_separator=abs(value) >= _MIN_GROUPED
    )


# A date, or a time with an optional offset from UTC (RFC 3339)
_DATA_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?")


def format_data_date(text: str, zone: tzinfo) -> str | None:
    """Format a text of custom data that is a date or a time in ISO 8601: `8 Jun 1964` in English; None for other texts.

    A time with an offset from UTC is shown in the time zone `zone`.
    """
    if not _DATA_DATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is None else moment.astimezone(zone)
    except (ValueError, OverflowError):
        return None
    day = format_date(moment, "yMMMd")
    return day if len(text) == len("1964-06-08") else gettext("%(date)s, %(time)s", date=day, time=format_clock(moment))


_MAX_ZONE_CHARACTERS = 5


def name_zone(moment: datetime) -> str:
    """Return the abbreviation of a time's zone in the current language, such as `MEZ` for CET; else its UTC offset."""
    from babel.dates import get_timezone_name

    name = moment.tzname() or ""
    if get_language() != DEFAULT_LANGUAGE and name != "UTC":
        name = get_timezone_name(moment, "short", locale=get_locale())
    if name.isalpha() and len(name) <= _MAX_ZONE_CHARACTERS:
        return name
    offset = f"{moment:%z}"
    return f"UTC{offset[:3]}:{offset[3:5]}"


def get_decimal_mark() -> str:
    """Return the decimal mark of the current language: a point in English."""
    from babel.numbers import get_decimal_symbol

    return str(get_decimal_symbol(get_locale()))


def format_percent(value: float, max_decimals: int) -> str:
    """Format a share as a percentage with at most `max_decimals` decimals: `7.3%` for 0.073 in English.

    A half is rounded up: 0.125 is `13%`.
    """
    from babel.numbers import NumberPattern, parse_pattern

    pattern: NumberPattern = parse_pattern(get_locale().percent_formats[None])
    # Babel rounds in the current context, which rounds a half to the even digit unless it is told otherwise.
    with decimal.localcontext(rounding=decimal.ROUND_HALF_UP):
        return str(pattern.apply(value, get_locale(), force_frac=(0, max_decimals)))


def format_date(moment: datetime, skeleton: str) -> str:
    """Format a date with the fields of a CLDR skeleton, such as `MMMEd`: `Fri 27 Nov` in English."""
    from babel.dates import format_skeleton

    return format_skeleton(skeleton, moment, locale=get_locale())


# The year in the pattern of a full date, with the words around it: ` 'de' y` in Spanish, `y年` in Japanese.
_YEAR_IN_PATTERN = re.compile(r"(?: 'de')? ?y年?")


def format_day(moment: datetime) -> str:
    """Format weekday, day and month in full: `Friday 27 November` in English, `Freitag, 27. November` in German.

    Where CLDR has no pattern for these fields, the next best one has abbreviations, so the full date without its year
    is used instead.
    """
    from babel.dates import format_date as format_in_style

    locale = get_locale()
    if "MMMMEEEEd" in locale.datetime_skeletons:
        return format_date(moment, "MMMMEEEEd")
    return format_in_style(moment, _YEAR_IN_PATTERN.sub("", locale.date_formats["full"].pattern), locale=locale)


def format_full_date(moment: datetime) -> str:
    """Format a date in full: `Friday, 27 November 2026` in English."""
    from babel.dates import format_date as format_in_style

    return format_in_style(moment, "full", locale=get_locale())


def format_clock(moment: datetime | time) -> str:
    """Format hour and minute: `14:05`."""
    from babel.dates import format_time

    return format_time(moment, "short", locale=get_locale())


def format_list(names: Sequence[str], style: Literal["standard", "or"] = "standard") -> str:
    """Join names: `a, b and c` in English, or with the style `or` `a, b or c`."""
    from babel.lists import format_list as join

    return join(names, style=style, locale=get_locale())


def negotiate_language(header: str | None) -> str:
    """Return the supported language that a browser prefers, given its header Accept-Language (RFC 9110, 12.5.4).

    Return `DEFAULT_LANGUAGE` if the header names no supported language.
    """
    choices = []
    for position, item in enumerate((header or "")[:500].split(",")):
        if match := _ACCEPTED_LANGUAGE.fullmatch(item.strip()):
            choices.append((-float(match[2] or 1), position, match[1]))
    for quality, _, tag in sorted(choices):
        language = match_language(tag) if quality else None
        if language is not None:
            return language
    return DEFAULT_LANGUAGE


def match_language(tag: str) -> str | None:
    """Return the supported language of a tag or locale such as `de-AT` or `pt`, or None if there is none."""
    locale = tag.replace("-", "_").lower()
    primary = locale.partition("_")[0]
    exact = (language for language in LANGUAGES if language.lower() == locale)
    similar = (language for language in LANGUAGES if language.partition("_")[0] == primary)
    return next(exact, None) or next(similar, None)


# What CLDR names "Unknown Script" and "Unknown Region".
_UNKNOWN_SUBTAGS = frozenset({"Zzzz", "ZZ"})


def normalize_language_tag(text: str) -> str | None:
    """Return the tag of a language in its usual form (RFC 5646, section 2.1.1), or None.

    CLDR must have a name for its language, its script and its region. `DE`, `pt_br` and `zh-hant-tw` become `de`,
    `pt-BR` and `zh-Hant-TW`. Invented and ancient languages, such as Klingon, are None, too.
    """
    from babel import Locale  # 30 ms, see `_load_locale`

    match = _LANGUAGE_TAG.fullmatch(text.strip())
    if match is None:
        return None
    language, script, region = match[1].lower(), (match[2] or "").capitalize(), (match[3] or "").upper()
    names = Locale("en")
    if (
        language not in names.languages.keys() - _DEAD_OR_INVENTED_LANGUAGES
        or (script and (script in _UNKNOWN_SUBTAGS or script not in names.scripts))
        or (region and (region in _UNKNOWN_SUBTAGS or region not in names.territories))
    ):
        return None
    return "-".join(filter(None, (language, script, region)))


def name_language(tag: str) -> str:
    """Return the name of a language in the current language: `Portuguese (Brazil)`; the tag, if CLDR has no name."""
    locale = get_locale()
    primary, *subtags = re.split("[-_]", tag)
    name = locale.languages.get(primary, primary)
    details = [locale.scripts.get(part) or locale.territories.get(part, part) for part in subtags]
    return f"{name} ({', '.join(details)})" if details else name


def name_country(code: str) -> str:
    """Return the name of a country in the current language, or the code itself if CLDR does not know it."""
    return str(get_locale().territories.get(code.upper(), code))


# English names of countries that follow "in" with an article
_COUNTRIES_WITH_ARTICLE = frozenset(
    ("AE", "AX", "BS", "CC", "CD", "CF", "CK", "DO", "FK", "FO", "GB", "GM", "KM", "KY", "MH", "MP", "MV", "NL", "PH",
     "SB", "TC", "US", "VG", "VI")
)  # fmt: skip


def place_country(code: str, language: str | None = None) -> str:
    """Return the name of a country in a language, by default the current one, as it follows "in": `the United Kingdom`.

    Only English names get an article.
    """
    with use_language(language or get_language()):
        name = name_country(code)
        return f"the {name}" if code.upper() in _COUNTRIES_WITH_ARTICLE and get_language() == DEFAULT_LANGUAGE else name


def uncapitalize(text: str) -> str:
    """Return a phrase with a lower-case first letter, for the middle of a sentence.

    A phrase that begins with an acronym is unchanged, and so is a German one, which may begin with a noun.
    """
    return text if text[1:2].isupper() or get_language() == "de" else text[:1].lower() + text[1:]


_SENTENCE_ENDS = (".", "?", ")", ":", "。", "？", "）", "：")


def to_sentence(text: str) -> str:
    """Return a message with a capital letter and a full stop. A domain or address at its start is left as it is."""
    is_name = "." in text.partition(" ")[0][:-1]
    return (text[:1] if is_name else text[:1].upper()) + text[1:] + ("" if text.endswith(_SENTENCE_ENDS) else ".")


def list_languages() -> list[tuple[str, str]]:
    """Return (tag, name in the current language) of all languages that CLDR names, sorted by name."""
    return list(_list_languages(get_language()))


def fold(text: str) -> str:
    """Return the key by which a name is sorted: the name in lower case and without accents, `Łódź` as `lodz`."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return plain.translate(_LETTERS_WITHOUT_DECOMPOSITION)


@cache
def _list_languages(language: str) -> tuple[tuple[str, str], ...]:
    names = _load_locale(language).languages
    tags = ((tag.replace("_", "-"), name) for tag, name in names.items())
    return tuple(sorted(
        ((tag, name) for tag, name in tags if len(tag) == 2), key=lambda option: fold(option[1])
    ))  # fmt: skip


def gettext(message: str, /, **values: Any) -> str:
    """Return a text in the current language, with values in place of `%(name)s`."""
    return translate(message) % values


def ngettext(singular: str, plural: str, count: int, /, **values: Any) -> str:
    """Return the form of a text that the number needs in the current language; `%(num)s` is the formatted number."""
    return translate_plural(singular, plural, count) % {"num": format_number(count), **values}


def pgettext(context: str, message: str, /, **values: Any) -> str:
    """Return a text as `gettext` does; `context` distinguishes texts that are equal in English only."""
    return translate_in_context(context, message) % values


def gettext_noop(message: str) -> str:
    """Return a text unchanged, and mark it for the catalogues; `gettext` translates it later."""
    return message


def pgettext_noop(context: str, message: str) -> str:
    """Return a text unchanged, and mark it for the catalogues with a context; `pgettext` translates it later."""
    return message


_stored: dict[str, list[str]] = {}  # the texts of `gettext_stored` by their scope
# Values of stored texts that are names, separated by commas, each of which is translated.
_NAME_LISTS = ("fields", "properties")
_VALUE = re.compile(r"%\((\w+)\)s")
# A number in English notation, as stored texts have it.
_GROUPED_NUMBER = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_MAX_STORED_CHARACTERS = 2_000


def gettext_stored(message: str, scope: str = "") -> str:
    """Return a text unchanged; mark it as a pattern of texts stored in English, in which `%(name)s` is any value.

    Call it when a module is imported, so that `translate_stored` knows the text. Give a general pattern, which other
    texts could match by accident, a `scope`: only calls of `translate_stored` with the same scope use it.
    """
    _stored.setdefault(scope, []).append(message)
    return message


def translate_stored(text: str, scope: str = "") -> str:
    """Return a text that was stored in English in the current language.

    The text must be one of `gettext_noop`, or one of `gettext_stored` with this scope, filled with values. Any other
    text, such as the reply of a server, is returned unchanged.
    """
    if _language.get() == DEFAULT_LANGUAGE or not text or len(text) > _MAX_STORED_CHARACTERS:
        return text
    translation = translate(text.replace("%", "%%")).replace("%%", "%")
    if translation != text:
        return translation
    for message in _stored.get(scope, ()):
        if match := _stored_pattern(message).fullmatch(text):
            return gettext(message, **{
                name: _translate_names(value)
                if name in _NAME_LISTS
                else _translate_language_name(value)
                if name == "language"
                else _translate_country_name(value)
                if name == "country"
                else format_number(int(value.replace(",", "")))
                if _GROUPED_NUMBER.fullmatch(value)
                else translate_stored(value, scope)
                for name, value in match.groupdict().items()
            })  # fmt: skip
    return text


def _translate_country_name(name: str) -> str:
    """Return the English name of a country, as `place_country` returns it, in the current language."""
    code = _country_codes().get(name.removeprefix("the "))
    return name_country(code) if code else name


@cache
def _country_codes() -> dict[str, str]:
    """Return the codes of countries by their English names."""
    return {name: code for code, name in _load_locale(DEFAULT_LANGUAGE).territories.items() if code.isalpha()}


def _translate_language_name(name: str) -> str:
    """Return the English name of a language in the current language; unchanged, if it has a script or a region."""
    tag = next((tag for tag, english in _list_languages(DEFAULT_LANGUAGE) if english == name), None)
    return name_language(tag) if tag else name


def _translate_names(names: str) -> str:
    """Translate names that are separated by commas.

    A name that begins with a lower-case letter keeps it, except in German.
    """

    def translate_name(name: str) -> str:
        translation = translate_stored(name)
        if translation != name or not name[:1].islower():
            return translation
        translation = translate_stored(name[:1].upper() + name[1:])
        is_small = translation[1:2].islower() and _language.get() != "de"
        return translation[:1].lower() + translation[1:] if is_small else translation

    return ", ".join(map(translate_name, names.split(", ")))


@cache
def _stored_pattern(message: str) -> "re.Pattern[str]":
    """Return a pattern for texts made from `message`, with a named group for each value."""
    pieces = _VALUE.split(message)  # texts, with the names of the values between them
    pattern = "".join(
        f"(?P<{piece}>.+)" if index % 2 else re.escape(piece.replace("%%", "%")) for index, piece in enumerate(pieces)
    )
    return re.compile(pattern, re.DOTALL)


def translate(message: str) -> str:
    """Return a text in the current language; its placeholders for values stay."""
    catalogue = load_catalogue(_language.get())
    return catalogue.gettext(message) if message else message


def translate_plural(singular: str, plural: str, count: int) -> str:
    """Return the form of a text for a number in the current language; its placeholders for values stay."""
    return load_catalogue(_language.get()).ngettext(singular, plural, count)


def translate_in_context(context: str, message: str) -> str:
    """Return a text with a context in the current language; its placeholders for values stay."""
    return load_catalogue(_language.get()).pgettext(context, message)


_catalogues: dict[str, stdlib_gettext.NullTranslations] = {}


def load_catalogue(language: str) -> stdlib_gettext.NullTranslations:
    """Return the catalogue of a language, which stays in memory."""
    catalogue = _catalogues.get(language)
    if catalogue is None:
        catalogue = _catalogues[language] = _read_catalogue(language)
    return catalogue


def build_for_each_language(build: Callable[[], _T]) -> list[_T]:
    """Return the results of a function in each supported language.

    Catalogues that are loaded only for this are not kept in memory.
    """
    values = []
    for language in LANGUAGES:
        is_loaded = language in _catalogues
        with use_language(language):
            values.append(build())
        if not is_loaded:
            _catalogues.pop(language, None)
    return values


def _read_catalogue(language: str) -> stdlib_gettext.NullTranslations:
    """Return the catalogue of a language: the compiled file, or in a checkout the `.po` file, compiled in memory."""
    if language == DEFAULT_LANGUAGE:
        return stdlib_gettext.NullTranslations()
    compiled = shipped.find(DIRECTORY, language, "LC_MESSAGES", f"{DOMAIN}.mo")
    if language in _test_catalogues:
        content = _compile_once(_test_catalogues[language])
    elif compiled.is_file():
        content = compiled.read_bytes()
    else:
        content = _compile_once(shipped.ROOT / DIRECTORY / language / "LC_MESSAGES" / f"{DOMAIN}.po")
    return stdlib_gettext.GNUTranslations(io.BytesIO(content))


def _compile_once(source: Path) -> bytes:
    """Return the compiled form of a catalogue of the sources or of a test, which is cached in `__pycache__`."""
    cached = source.parent / "__pycache__" / f"{source.stem}.mo"
    if cached.exists() and cached.stat().st_mtime_ns > source.stat().st_mtime_ns:
        return cached.read_bytes()
    content = compile_catalogue(source.read_bytes())
    with suppress(OSError):  # Sources that cannot be written beside are compiled each time.
        cached.parent.mkdir(exist_ok=True)
        written = cached.with_name(f"{cached.name}.{os.getpid()}.{threading.get_ident()}")
        written.write_bytes(content)
        written.replace(cached)
    return content


def compile_catalogue(source: bytes) -> bytes:
    """Return the compiled form (`.mo`) of a catalogue (`.po`), without untranslated and fuzzy entries."""
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    compiled = io.BytesIO()
    write_mo(compiled, read_po(io.BytesIO(source)))
    return compiled.getvalue()
