"""How many parts an SMS takes: GSM 03.38 with its extension, else UCS-2 in units of UTF-16."""

import re
from typing import Final, Literal, NamedTuple
from unicodedata import name, normalize

from appliance.content.designs import merge
from appliance.settings import config

_BASIC: Final = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENSION: Final = "\f^{}\\[~]|€"  # an escape and the character: two units that may not part
_FOREIGN: Final = re.compile(f"[^{re.escape(_BASIC + _EXTENSION)}]")
_WIDE_GSM: Final = re.compile(f"[{re.escape(_EXTENSION)}]")
_WIDE_UCS2: Final = re.compile("[\U00010000-\U0010ffff]")  # a pair of surrogates
# What word processors and phones put in, and what says the same in GSM-7
_PLAIN: Final = str.maketrans(
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


class Counted(NamedTuple):
    """What a text takes as an SMS.

    `units` are septets of GSM-7 or units of UTF-16, fillers at the end of parts not among them; `left` of them fit
    into the last part. `forcing` is the first character that GSM-7 lacks.
    """

    parts: int
    alphabet: Literal["GSM-7", "UCS-2"]
    characters: int
    units: int
    forcing: str | None
    left: int


def count(text: str) -> Counted:
    """Return how a text travels; no character is ever split over two parts."""
    foreign = _FOREIGN.search(text)
    if foreign is None:
        return _counted(text, "GSM-7", None, _WIDE_GSM, (160, 153))
    return _counted(text, "UCS-2", foreign.group(), _WIDE_UCS2, (70, 67))


def plain(text: str) -> str:
    """Return the text with typographic quotes, dashes, dots and spaces as GSM-7 has them, where that makes it GSM-7.

    A text that takes UCS-2 anyway stays as it was written.
    """
    if _FOREIGN.search(text) is None:
        return text
    plainer = normalize("NFC", text).translate(_PLAIN)
    return text if _FOREIGN.search(plainer) else plainer


def named(character: str) -> str:
    """Return a character by its code and name, as a person can look for it: "U+201C LEFT DOUBLE QUOTATION MARK"."""
    return f"U+{ord(character):04X} {name(character, '')}".rstrip()


def _counted(
    text: str, alphabet: Literal["GSM-7", "UCS-2"], forcing: str | None, wide: re.Pattern[str], sizes: tuple[int, int]
) -> Counted:
    """Count the parts of a text whose `wide` characters take two units each."""
    single, each = sizes
    doubles = len(wide.findall(text))
    units = len(text) + doubles
    if units <= single:
        return Counted(1 if text else 0, alphabet, len(text), units, forcing, single - units)
    if doubles == 0:
        parts = -(-units // each)
        return Counted(parts, alphabet, len(text), units, forcing, parts * each - units)
    parts, used = _packed(text, wide, each)
    return Counted(parts, alphabet, len(text), units, forcing, each - used)


def _packed(text: str, wide: re.Pattern[str], each: int) -> tuple[int, int]:
    """Fill part after part; a wide character that no longer fits whole begins the next one."""
    whole = used = position = 0  # parts that are full, units in the one being filled
    for match in wide.finditer(text):
        more, used = divmod(used + match.start() - position, each)
        whole += more
        if used == each - 1:
            whole, used = whole + 1, 0
        used += 2
        position = match.end()
    more, used = divmod(used + len(text) - position, each)
    whole += more
    return (whole, each) if used == 0 else (whole + 1, used)


# What a provider is given, and what it says to that.


class Text(NamedTuple):
    """An SMS ready to be handed over.

    `id` is our message's, `callback_url` where the provider tells what became of it.
    """

    id: int
    to: str  # E.164
    sender: str  # a number in E.164, a short code, or a name; empty: the provider chooses
    body: str
    callback_url: str


class Accepted(NamedTuple):
    """The provider took it: what it calls it, and its first word on what becomes of it (`told.STATUSES`)."""

    provider_id: str
    status: str = "sent"


# How long an SMS may be, and what is wrong with the text of one before it is filled in.

MAX_PARTS = 10
MAX_CHARACTERS = 1_600


def length_fault(body: str | None) -> str | None:
    """Return what is wrong with the text of an SMS in the words of a field's fault, or None.

    Where nothing is filled in and no address may become a shorter one, its parts are known already.
    """
    if not body:
        return None
    if len(body) > MAX_CHARACTERS:
        return f"is too long (maximum is {MAX_CHARACTERS} characters)"
    if "{" not in body and "://" not in body:
        counted = count(plain(body) if config.current().sms.plain_quotes else body)
        if counted.parts > MAX_PARTS:
            return f"is too long ({counted.parts} parts in {counted.alphabet}, maximum is {MAX_PARTS})"
    return merge.fault(body, "text")
