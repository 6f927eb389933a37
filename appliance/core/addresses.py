"""Normal forms of email addresses and phone numbers, the country of a number, and the client IP of a request."""

import contextlib
import ipaddress
import re
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal
from email.utils import getaddresses
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import idna

from appliance.core import clock, i18n
from appliance.core.i18n import gettext, gettext_noop, gettext_stored

if TYPE_CHECKING:
    from phonenumbers import PhoneNumber

_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")
_PHONE_FILLER = re.compile(r"[ .\-()]")
# Text that files and forms contain beside a phone number: invisible characters, a label before the number, and words in
# parentheses and an extension after it.
_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_LABEL = re.compile(r"(?:tel|phone|mobile|mobil|mob|handy|cell|fon|[tpm])[.:]*\s*(?=[+(\d])")
_WORDS = re.compile(r"\([^)\d]*\)")
_EXTENSION = re.compile(r"[\s,;]*(?:ext|extension|x|dw|durchwahl|poste)[.:\s]*\d{1,6}\Z")
_NEEDLESS_QUOTES = re.compile(r"\"([\w!#$%&'*+/=?^`{|}~.-]{1,64})\"@")
_LOCAL = re.compile(r"[+]?[\d .\-\u2010-\u2015\u2212()/]+")
_SCIENTIFIC = re.compile(r"\d(?:[.,]\d+)?e\+?\d{1,2}")
_WHOLE_FLOAT = re.compile(r"(\d{6,15})[.,]0+")
# The maximum length of a phone number in a file or form with the words beside it. `_WORDS` and `_EXTENSION` take
# quadratic time, so that a longer text is refused before they are used.
MAX_WRITTEN_PHONE_CHARACTERS = 255
# A header with addresses, and the comments in it, which the standard library parses recursively.
MAX_ADDRESS_HEADER_CHARACTERS, _MAX_COMMENTS = 65_536, 200
# A contact is loaded, shown and indexed with all its addresses, so their number is limited.
MAX_ADDRESSES = 50
# `unicodedata.normalize` needs less than 10 ms for this number of characters, whatever they are.
_MAX_INSERTION_SORTED = 1_000
NO_COUNTRY, NOT_A_PHONE = gettext_noop("has no country code"), gettext_noop("is not a phone number")
_NOT_IN_USE = gettext_stored("is not a number in use in %(country)s")
_WRONG_LENGTH = gettext_stored("is too short or too long for a phone number in %(country)s")
SHORTENED = gettext_noop("was shortened by a spreadsheet: export the column as text")
_SHORT_CODE = re.compile(r"[1-9][0-9]{2,7}")
_SENDER_SERVICE = re.compile(r"MG[0-9a-fA-F]{32}")  # the id of a Twilio messaging service
_SENDER_NAME = re.compile(r"(?=[0-9 ]*[A-Za-z])[A-Za-z0-9 ]{1,11}")


class InvalidNationalNumber(ValueError):
    """A number without a country code is not valid in the assumed country; the message is the reason, in English."""


class Address(NamedTuple):
    """An email address or phone number (`kind` is `email` or `phone`).

    `value` is shown and used for sending; `key` is the normal form, by which the address is unique in an account.
    """

    kind: str
    value: str
    key: str


def parse_email(text: str) -> Address:
    """Parse an email address. Raises ValueError for an address that cannot be sent to (docs/decisions.md#9).

    Quoted local parts, IP address literals, domains without a dot and addresses of more than 254 characters are
    rejected. Reserved domains, such as example.org, are valid.
    """
    import email_validator

    # Simulations use .test and example.org, so reserved domains must be valid.
    email_validator.SPECIAL_USE_DOMAIN_NAMES = []
    text = text.strip()
    if len(text) > 254:
        raise ValueError(gettext("is invalid"))
    try:
        validated = email_validator.validate_email(text, check_deliverability=False, strict=True)
    except email_validator.EmailNotValidError:
        raise ValueError(gettext("is invalid")) from None
    return Address("email", validated.normalized, f"{lowercase(validated.local_part)}@{validated.ascii_domain.lower()}")


def strip_needless_quotes(text: str) -> str:
    """Unquote each local part in a text that needs no quotes: `"reader"@example.org` becomes `reader@example.org`.

    Both forms are the same mailbox (RFC 5321, section 4.1.2).
    """
    return _NEEDLESS_QUOTES.sub(r"\1@", text)


def address_in_header(text: str) -> str:
    """Return the email address in a text of a header, log or DNS record, without name, needless quotes and final dot.

    Examples are `Ann <ann@example.org>` and `ann@example.org.`. If no address can be parsed, the result is the text
    itself without needless quotes and final dot.
    """
    try:
        mailboxes = read_mailboxes(text)
    except ValueError:
        mailboxes = []
    return strip_needless_quotes(mailboxes[0][1] if len(mailboxes) == 1 else text).rstrip(".")


def read_mailboxes(text: str) -> list[tuple[str, str]]:
    """Return name and address of each mailbox in a header such as To; the texts are as written, without quotes.

    Raises ValueError for a header that is too long, or whose comments are nested too deeply, to be parsed.
    """
    if len(text) > MAX_ADDRESS_HEADER_CHARACTERS or text.count("(") > _MAX_COMMENTS:
        raise ValueError("The addresses in the header cannot be read")
    try:
        return [(name, address) for name, address in getaddresses([text]) if address]
    except (RecursionError, LookupError, TypeError):
        raise ValueError("The addresses in the header cannot be read") from None


def lowercase(text: str) -> str:
    """Return a text in lower case and in composed form (NFC, RFC 6532 section 3.1), for comparing addresses.

    Case folding and NFKC are not used: they would equate `straße` with `strasse` and `ſ` with `s`, which are different
    mailboxes. The text is composed again at the end, because `İ` has no single lowercase letter.
    """
    if text.isascii():
        return text.lower()
    return normalize_unicode("NFC", normalize_unicode("NFC", text).lower())


def normalize_unicode(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """Return `unicodedata.normalize(form, text)`, in linear time even for thousands of combining marks in a row.

    The standard library sorts the marks of a letter by insertion, which takes seconds for 30,000 marks.
    """
    if text.isascii() or len(text) <= _MAX_INSERTION_SORTED:
        return unicodedata.normalize(form, text)
    decomposition: Literal["NFD", "NFKD"] = "NFKD" if form.startswith("NFK") else "NFD"
    ordered: list[str] = []
    marks: list[str] = []
    for character in "".join(unicodedata.normalize(decomposition, character) for character in text):
        if unicodedata.combining(character):
            marks.append(character)
            continue
        # The sort is stable, as canonical ordering must be (Unicode 15, section 3.11, D109).
        ordered += sorted(marks, key=unicodedata.combining)
        marks = []
        ordered.append(character)
    ordered += sorted(marks, key=unicodedata.combining)
    return unicodedata.normalize(form, "".join(ordered))


def find_mailbox(key: str) -> str:
    """Return the mailbox to which a normalized email address probably leads, for limits by mailbox.

    This is the address without what follows a plus, and at Gmail without dots. Other addresses may lead there, too.
    """
    local, _, domain = key.rpartition("@")
    local = local.partition("+")[0] or local
    return f"{local.replace('.', '')}@gmail.com" if domain in ("gmail.com", "googlemail.com") else f"{local}@{domain}"


def parse_phone(text: str) -> Address:
    """Parse an E.164 number, ignoring spaces, dots, hyphens and parentheses. Raises ValueError if it is invalid."""
    number = _PHONE_FILLER.sub("", text.strip())
    if not _PHONE.fullmatch(number):
        raise ValueError(gettext("is invalid"))
    return Address("phone", number, number)


def parse_written_phone(text: str, country: str | None = None) -> Address:
    """Parse a phone number from a file or form. Raises ValueError with a reason such as `has no country code`.

    A number without a country code belongs to `country` (two letters) and must be valid there, because a part of a
    number could be the number of another person; without `country` it is rejected. A number with a country code needs
    only a possible length, because no list of assigned ranges is complete. `00` is read as `+`, and a trunk zero is
    dropped: `+44 (0)20 …`. A number that a spreadsheet shortened to 4.47701E+11 has lost its last digits and is
    rejected, and so is a text of more than `MAX_WRITTEN_PHONE_CHARACTERS`.
    """
    text = text.strip()
    if len(text) <= MAX_WRITTEN_PHONE_CHARACTERS:
        text = unicodedata.normalize("NFKC", text)  # may make the text longer
    if len(text) > MAX_WRITTEN_PHONE_CHARACTERS:
        raise ValueError(NOT_A_PHONE)
    text = _INVISIBLE.sub("", text).strip(" \t\r\n'\"").casefold()
    text = _WORDS.sub("", _LABEL.sub("", text.removeprefix("tel:"), count=1))
    text = _EXTENSION.sub("", text).strip(" ,;.")
    if _SCIENTIFIC.fullmatch(text):
        exact = Decimal(text.replace(",", "."))
        if exact.as_tuple().exponent:  # the last digits are missing
            raise ValueError(SHORTENED)
        text = str(int(exact))
    elif float_match := _WHOLE_FLOAT.fullmatch(text):
        text = float_match[1]
    if not _LOCAL.fullmatch(text) or sum(character.isdecimal() for character in text) < 3:
        raise ValueError(NOT_A_PHONE)
    if text.startswith("+") and "(0)" not in text:
        with contextlib.suppress(ValueError):
            return parse_phone(text)
    return _to_phone_address(text, country)


def _to_phone_address(text: str, country: str | None) -> Address:
    import phonenumbers

    bare = "".join(character for character in text if character.isdecimal() or character == "+")
    if bare.startswith("00"):
        bare = text = f"+{bare.lstrip('0')}"
    if not bare.startswith("+") and country is None:
        raise ValueError(NO_COUNTRY)
    try:
        parsed = phonenumbers.parse(text, country)
    except phonenumbers.NumberParseException:
        raise ValueError(NOT_A_PHONE) from None
    is_international = bare.startswith("+")
    # A number that can only be dialled locally cannot be written in E.164 form.
    is_possible = phonenumbers.is_possible_number_with_reason(parsed) == phonenumbers.ValidationResult.IS_POSSIBLE
    if is_international and not is_possible:
        raise ValueError(NOT_A_PHONE)
    if not is_international and not (is_possible and phonenumbers.is_valid_number(parsed)):
        reason = _NOT_IN_USE if is_possible else _WRONG_LENGTH
        raise InvalidNationalNumber(reason % {"country": i18n.place_country(country or "", i18n.DEFAULT_LANGUAGE)})
    return parse_phone(phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164))


def get_sender_key(sender: str) -> str:
    """Return a sender of SMS for comparison: a number as digits only, because some providers omit the plus."""
    try:
        return parse_phone(sender).key[1:]
    except ValueError:
        return sender.strip().casefold()


def parse_sms_sender(text: str) -> str:
    """Parse an SMS sender: an E.164 number, short code, name (at most 11 characters) or messaging service id.

    Raises ValueError for anything else.
    """
    text = text.strip()
    if _SHORT_CODE.fullmatch(text) or _SENDER_NAME.fullmatch(text) or is_messaging_service(text):
        return text
    return parse_phone(text).value


def is_messaging_service(text: str) -> bool:
    """Return whether an SMS sender is the id of a Twilio messaging service, which picks the number of each message."""
    return _SENDER_SERVICE.fullmatch(text) is not None


def is_sender_name(sender: str) -> bool:
    """Return whether an SMS sender is a name, which gets no replies, and neither a number nor a messaging service."""
    return any(letter.isalpha() for letter in sender) and not is_messaging_service(sender)


def parse(kind: str, text: str) -> Address:
    """Parse an email address if `kind` is `email`, otherwise a phone number. Raises ValueError for invalid text."""
    return parse_email(text) if kind == "email" else parse_phone(text)


def normalize_query(written: str) -> str:
    """Return the key of an address in a URL query, where an unencoded plus arrives as a space.

    A text that is neither a phone number nor an email address is returned in lower case.
    """
    text = written.strip()
    with contextlib.suppress(ValueError):
        return parse_phone(text if text.startswith("+") else f"+{text}").key
    with contextlib.suppress(ValueError):
        return parse_email(text).key
    return lowercase(text)


def to_ascii(address: str) -> str | None:
    """Return an email address in ASCII, for SMTP without SMTPUTF8; None if its local part is not ASCII.

    Raises idna.IDNAError for a domain that has no ASCII form.
    """
    if address.isascii() and "@" in address:
        return address
    local, _, domain = address.rpartition("@")
    if not local.isascii():
        return None
    return f"{local}@{_ascii_domain(domain)}"


def _ascii_domain(domain: str) -> str:
    if domain.isascii():
        return domain

    return idna.encode(domain, uts46=True).decode()


@cache
def phone_countries() -> frozenset[str]:
    """Return the two-letter codes of the countries whose phone numbers can be parsed."""
    import phonenumbers

    return frozenset(phonenumbers.SUPPORTED_REGIONS)


def example_phone(country: str) -> str:
    """Return an example of a phone number of a country (two letters) in national format; "" if there is none."""
    import phonenumbers

    example = phonenumbers.example_number(country)
    return phonenumbers.format_number(example, phonenumbers.PhoneNumberFormat.NATIONAL) if example else ""


def format_phone(phone_number: str) -> str:
    """Return an E.164 number in the international format, with spaces: `+44 7700 900407` (ITU-T E.123)."""
    import phonenumbers

    try:
        parsed = phonenumbers.parse(phone_number)
    except phonenumbers.NumberParseException:
        return phone_number
    return phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.INTERNATIONAL)


def country_of_phone(phone_number: str) -> str | None:
    """Return the two-letter country of an E.164 number; None if it is invalid or belongs to no single country."""
    import phonenumbers

    try:
        code = phonenumbers.region_code_for_number(phonenumbers.parse(phone_number))
        # The region of international numbers (+800, +883) is "001", not a country.
        return code if code and code.isalpha() else None
    except phonenumbers.NumberParseException:
        return None


_IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# A client can send a header of any length; no real installation has more proxies in a row than this.
_MAX_HOPS = 20


@lru_cache(maxsize=8)
def parse_networks(trusted: tuple[str, ...]) -> tuple[_IpNetwork, ...]:
    """Parse IP addresses and networks (`10.0.0.0/8`). Raises ValueError for an invalid entry."""
    return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in trusted)


def find_client_ip(peer: str, forwarded: Iterable[str], trusted: Sequence[str]) -> str:
    """Return the IP address of a client: the peer, or the address that trusted proxies added to X-Forwarded-For.

    `forwarded` holds the lines of that header, `trusted` the addresses and networks of proxies. The header is read from
    its end, because a client can forge all entries except those that trusted proxies appended.
    """
    if not trusted:
        return peer
    networks = parse_networks(tuple(trusted))
    hops = [hop for line in forwarded for hop in line.split(",")][-_MAX_HOPS:]
    client = peer
    while (ip := _parse_ip(client)) is not None and any(ip in network for network in networks) and hops:
        previous = _parse_ip(hops.pop())
        if previous is None:
            break
        client = str(previous)
    return client


def _parse_ip(text: str) -> _IpAddress | None:
    """Parse an IP address with or without port and brackets; return None for anything else.

    An IPv4-mapped IPv6 address is returned as IPv4.
    """
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_private_ip(peer: str) -> bool:
    """Return whether an IP address belongs to this machine or a private network, which is usual for a proxy."""
    address = _parse_ip(peer)
    return address is not None and address.is_private


def anonymize_ip(ip: str | None, precision: str) -> str | None:
    """Return an IP address at the precision of the privacy setting: `full`, `truncated` or `none`.

    `truncated` keeps the first address of the /24 network (IPv4) or /48 network (IPv6). Returns None for `none` and for
    a missing or invalid address.
    """
    address = _parse_ip(ip) if ip and precision != "none" else None
    if address is None:
        return None
    if precision == "full":
        return str(address)
    size = 24 if address.version == 4 else 48
    return str(ipaddress.ip_network((address, size), strict=False).network_address)


def client_network(ip: str) -> str:
    """Return the key by which clients are rate limited: the IPv4 address, or the /64 network of an IPv6 address.

    A text that is not an IP address is returned unchanged.
    """
    address = _parse_ip(ip)
    if address is None or address.version == 4:
        return ip
    return str(ipaddress.ip_network((address, 64), strict=False))


def mask_address(address: str) -> str:
    """Return an email address or phone number with most characters hidden, such as `a…a@e…e.org`.

    The owner still recognises the address.
    """
    if "@" not in address:
        return f"{address[:3]}…{address[-2:]}"
    local, _, domain = address.partition("@")
    name, dot, top_level = domain.rpartition(".")
    return f"{_mask_word(local)}@{_mask_word(name)}{dot}{top_level}"


def _mask_word(word: str) -> str:
    return f"{word[0]}…{word[-1]}" if len(word) > 2 else f"{word[:1]}…"


# Country, type, validity and possible time zones of phone numbers.
#
# Numbers reserved for fiction (+44 7700 900123) count as possible, but their type is `unknown`.

# Our names of the values of PhoneNumberType in the phonenumbers library.
_PHONE_TYPES = {
    0: "fixed", 1: "mobile", 2: "fixed_or_mobile", 3: "toll_free", 4: "premium", 5: "shared_cost", 6: "voip",
    7: "personal", 8: "pager", 9: "uan", 10: "voicemail",
}  # fmt: skip
# Types of numbers whose owners are paid for calls and messages to them.
PREMIUM_TYPES = ("premium", "shared_cost")
_UNKNOWN_ZONE = "Etc/Unknown"
# The number of last digits in which the numbers of a block differ; fraudsters rent whole blocks for SMS pumping.
BLOCK_DIGITS = 4


class NumberInfo(NamedTuple):
    """The properties of a phone number.

    `country` is a two-letter code, or None if the number belongs to no country. `type` is `unknown` or one of
    `mobile`, `fixed`, `fixed_or_mobile`, `toll_free`, `premium`, `shared_cost`, `voip`, `personal`, `pager`, `uan` and
    `voicemail`. `is_possible` means that the number has a valid length and can be dialled from abroad. `zones` are all
    time zones in which the number may be, usually one; the tuple is empty if they are unknown.
    """

    country: str | None
    type: str
    is_possible: bool
    zones: tuple[str, ...]
    prefix: str  # the number without its last four digits, which all numbers of a block share


@lru_cache(40_000)
def inspect_number(number: str) -> NumberInfo:
    """Return the properties of a number in E.164, from a cache.

    An unreadable number has no country and counts as not possible.
    """
    import phonenumbers

    prefix = number[:-BLOCK_DIGITS]
    try:
        parsed = phonenumbers.parse(number)
    except phonenumbers.NumberParseException:
        return NumberInfo(None, "unknown", False, (), prefix)
    code = parsed.country_code or 0
    region = phonenumbers.region_code_for_number(parsed) or phonenumbers.region_code_for_country_code(code)
    # The region of numbers without a country (+800, +883) is written in digits.
    country = region if region and region.isalpha() and region != "ZZ" else None
    kind = phonenumbers.number_type(parsed)
    # A number that can only be dialled locally is not possible either, because it has no international form.
    length = phonenumbers.is_possible_number_with_reason(parsed)
    is_possible = length == phonenumbers.ValidationResult.IS_POSSIBLE
    return NumberInfo(
        country, _PHONE_TYPES.get(kind, "unknown"), is_possible, _time_zones(parsed, kind, country), prefix
    )


@lru_cache(1_000)
def _existing_zones(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the time zones that exist on this system; the cache shares equal results, which saves memory."""
    return tuple(name for name in names if name != _UNKNOWN_ZONE and clock.find_time_zone(name))


def _time_zones(parsed: "PhoneNumber", kind: int, country: str | None) -> tuple[str, ...]:
    from phonenumbers import is_number_geographical, region_codes_for_country_code, timezone

    is_somewhere = _PHONE_TYPES.get(kind) is not None and is_number_geographical(parsed)
    if not is_somewhere and len(region_codes_for_country_code(parsed.country_code or 0)) > 1:
        # Several countries share this calling code (+1, +7, +44), and the library would return the time zones of all of
        # them for a mobile or toll-free number. Only those of the number's own country are used.
        zones = clock.time_zones_of_country(country)
        area_zones = timezone.time_zones_for_geographical_number(parsed)
        if parsed.country_code == 1 and _PHONE_TYPES.get(kind) is None and set(area_zones) <= set(zones):
            return _existing_zones(area_zones)  # an area code has a place, whether the number is assigned or not
        if zones:
            return _existing_zones(zones)
    if _PHONE_TYPES.get(kind) is None:
        return _existing_zones(timezone.time_zones_for_geographical_number(parsed))
    return _existing_zones(timezone.time_zones_for_number(parsed))
