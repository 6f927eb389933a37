"""Count the segments of an SMS, in GSM-7 (GSM 03.38 with its extension table) or else in UCS-2 (UTF-16 code units)."""

import re
from collections.abc import Callable
from typing import Final, Literal, NamedTuple
from unicodedata import name, normalize

from appliance.content.designs import merge
from appliance.core.i18n import gettext
from appliance.settings import config

_BASIC: Final = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENSION: Final = "\f^{}\\[~]|€"  # each is an escape and a character: two units that must be in the same segment
_NOT_GSM: Final = re.compile(f"[^{re.escape(_BASIC + _EXTENSION)}]")
_WIDE_GSM: Final = re.compile(f"[{re.escape(_EXTENSION)}]")
_WIDE_UCS2: Final = re.compile("[\U00010000-\U0010ffff]")  # a pair of surrogates
# Typographic characters that word processors and phones insert, with their equivalents in GSM-7.
_GSM_SUBSTITUTES: Final = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´ʹʻʼ", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‹", "<"),
        **dict.fromkeys("›", ">"),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("\t\u00a0\u2002\u2003\u2007\u2008\u2009\u200a\u202f\u3000", " "),
        **dict.fromkeys("\u00ad\u200b\u200c\u2060\ufeff", ""),
        **dict.fromkeys("•·", "-"),
        "…": "...",
    }
)


class SegmentCount(NamedTuple):
    """The size of a text as an SMS.

    `parts` is the number of segments. `units` are septets of GSM-7 or code units of UTF-16, without unused units at
    the end of segments. `forcing_character` is the first character that GSM-7 lacks, which requires UCS-2, or None.
    `remaining_units` is the number of units that still fit into the last segment.
    """

    parts: int
    alphabet: Literal["GSM-7", "UCS-2"]
    characters: int
    units: int
    forcing_character: str | None
    remaining_units: int


def count_segments(text: str) -> SegmentCount:
    """Return the size of a text as an SMS; a character of two units is never split between two segments."""
    match = _NOT_GSM.search(text)
    if match is None:
        return _count(text, "GSM-7", None, _WIDE_GSM, (160, 153))
    return _count(text, "UCS-2", match.group(), _WIDE_UCS2, (70, 67))


def replace_typography(text: str) -> str:
    """Return a text with typographic quotes, dashes, dots and spaces replaced by their equivalents in GSM-7.

    If the result would still contain characters outside of GSM-7, the text is returned unchanged.
    """
    if _NOT_GSM.search(text) is None:
        return text
    plainer = normalize("NFC", text).translate(_GSM_SUBSTITUTES)
    return text if _NOT_GSM.search(plainer) else plainer


def character_name(character: str) -> str:
    """Return the code point and name of a character, such as "U+201C LEFT DOUBLE QUOTATION MARK"."""
    return f"U+{ord(character):04X} {name(character, '')}".rstrip()


def describe_character(character: str) -> str:
    """Return a character itself, or the code point and name of one that nobody can see."""
    return character if character.isprintable() and not character.isspace() else character_name(character)


def _count(
    text: str, alphabet: Literal["GSM-7", "UCS-2"], forcing: str | None, wide: re.Pattern[str], sizes: tuple[int, int]
) -> SegmentCount:
    """Return the size of a text as an SMS.

    Characters that match `wide` take two units, all others one. `sizes` are the units of a single segment and of each
    segment of several.
    """
    single_size, part_size = sizes
    doubles = len(wide.findall(text))
    units = len(text) + doubles
    if units <= single_size:
        return SegmentCount(1 if text else 0, alphabet, len(text), units, forcing, single_size - units)
    if doubles == 0:
        parts = -(-units // part_size)
        return SegmentCount(parts, alphabet, len(text), units, forcing, parts * part_size - units)
    parts, used = _fill_parts(text, wide, part_size)
    return SegmentCount(parts, alphabet, len(text), units, forcing, part_size - used)


def _fill_parts(text: str, wide: re.Pattern[str], part_size: int) -> tuple[int, int]:
    """Return (number of segments, units used in the last one) for a text of several segments.

    A character of two units that no longer fits into a segment begins the next one.
    """
    full_parts = used = position = 0  # number of full segments, units in the current one, and position in the text
    for match in wide.finditer(text):
        added_parts, used = divmod(used + match.start() - position, part_size)
        full_parts += added_parts
        if used == part_size - 1:
            full_parts, used = full_parts + 1, 0
        used += 2
        position = match.end()
    added_parts, used = divmod(used + len(text) - position, part_size)
    full_parts += added_parts
    return (full_parts, part_size) if used == 0 else (full_parts + 1, used)


# The SMS that a provider gets, and its reply.


class OutgoingSms(NamedTuple):
    """An SMS that is ready to be sent.

    `id` is the id of the message in the ledger. `callback_url` is where the provider posts receipts, or an empty
    string. A provider calls `check` right before it writes the request; it raises Postponed if the SMS may no longer be
    sent.
    """

    id: int
    to: str  # E.164
    sender: str  # a number in E.164, a short code, or a name; empty: the provider chooses
    body: str
    callback_url: str
    check: Callable[[], None] = lambda: None


class AcceptedSms(NamedTuple):
    """The provider's id of an accepted SMS, and its first status (`error_codes.STATUSES`)."""

    provider_id: str
    status: str = "sent"


# The maximum length of an SMS text, which is checked before merge tags are filled in.

MAX_PARTS = 10
MAX_CHARACTERS = 1_600


def find_length_fault(body: str | None) -> str | None:
    """Return a field error if an SMS text is too long or its merge tags are invalid, else None.

    The number of segments is checked only for a text without merge tags and URLs: both may change its length when the
    SMS is sent.
    """
    if not body:
        return None
    if len(body) > MAX_CHARACTERS:
        return gettext("is too long (maximum is %(limit)s characters)", limit=MAX_CHARACTERS)
    if "{" not in body and "://" not in body:
        counted = count_segments(replace_typography(body) if config.current().sms.plain_quotes else body)
        if counted.parts > MAX_PARTS:
            return gettext(
                "is too long (%(parts)s parts in %(alphabet)s, maximum is %(limit)s)",
                parts=counted.parts, alphabet=counted.alphabet, limit=MAX_PARTS,
            )  # fmt: skip
    return merge.find_error(body, "text")
