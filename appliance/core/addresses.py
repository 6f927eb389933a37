"""One normal form for each address, so that an address is one person's whatever the spelling."""

import contextlib
import re
import unicodedata
from decimal import Decimal
from email.utils import parseaddr
from functools import cache
from typing import NamedTuple

import idna

_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")
_PHONE_FILLER = re.compile(r"[ .\-()]")
# What people write around a number: invisible marks, a label before it, words in brackets behind it, an extension
_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_LABEL = re.compile(r"(?:tel|phone|mobile|mobil|mob|handy|cell|fon|[tpm])[.:]*\s*(?=[+(\d])")
_WORDS = re.compile(r"\([^)\d]*\)")
_EXTENSION = re.compile(r"[\s,;]*(?:ext|extension|x|dw|durchwahl|poste)[.:\s]*\d{1,6}\Z")
_NEEDLESS_QUOTES = re.compile(r"\"([\w!#$%&'*+/=?^`{|}~.-]{1,64})\"@")
_LOCAL = re.compile(r"[+]?[\d .\-\u2010-\u2015\u2212()/]+")
_SCIENTIFIC = re.compile(r"\d(?:[.,]\d+)?e\+?\d{1,2}")
_WHOLE_FLOAT = re.compile(r"(\d{6,15})[.,]0+")
NO_COUNTRY, NOT_A_PHONE = "has no country code", "is not a phone number"
SHORTENED = "was shortened by a spreadsheet: export the column as text"
_SHORT_CODE = re.compile(r"[1-9][0-9]{2,7}")
_SENDER_SERVICE = re.compile(r"MG[0-9a-fA-F]{32}")  # of Twilio, which chooses one of its numbers
_SENDER_NAME = re.compile(r"(?=[0-9 ]*[A-Za-z])[A-Za-z0-9 ]{1,11}")


class Address(NamedTuple):
    """An address as shown (`value`) and its normal form (`key`), unique in an account."""

    kind: str
    value: str
    key: str


def email(text: str) -> Address:
    """Read an e-mail address; ValueError if it is not one we can send to (docs/decisions.md#9).

    No quoted local part, no literal, a domain with a dot, at most 254 characters; reserved domains are valid.
    """
    import email_validator

    # Rehearsals use .test and example.org; a reserved name is a domain like any other to us.
    email_validator.SPECIAL_USE_DOMAIN_NAMES = []
    text = text.strip()
    if len(text) > 254:
        raise ValueError("is invalid")
    try:
        found = email_validator.validate_email(text, check_deliverability=False, strict=True)
    except email_validator.EmailNotValidError:
        raise ValueError("is invalid") from None
    return Address("email", found.normalized, f"{lower(found.local_part)}@{found.ascii_domain.lower()}")


def unquoted(text: str) -> str:
    """Return a text with needless quotes taken from its addresses: `"reader"@example.org` is `reader@example.org`
    (RFC 5321, section 4.1.2).
    """
    return _NEEDLESS_QUOTES.sub(r"\1@", text)


def in_header(text: str) -> str:
    """Return the address in a text as headers, logs and DNS write it: `Ann <ann@example.org>`, `ann@example.org.`."""
    return unquoted(parseaddr(text)[1] or text).rstrip(".")


def lower(text: str) -> str:
    """Return a text as addresses are compared: in lower case, and composed (NFC, as RFC 6532, section 3.1 asks for).

    No case folding and no NFKC: they make one of `straße` and `strasse`, of `ſ` and `s`, which are two mailboxes. What
    is composed or not is the same text to whoever types it. Composed once more, for `İ` has no single small letter.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())


def phone(text: str) -> Address:
    """Read a phone number in E.164, with the usual filler removed; ValueError otherwise."""
    number = _PHONE_FILLER.sub("", text.strip())
    if not _PHONE.fullmatch(number):
        raise ValueError("is invalid")
    return Address("phone", number, number)


def written_phone(text: str, country: str | None = None) -> Address:
    """Read a phone number as people write it; raises ValueError with the reason as a predicate.

    A number without country code is one of `country` (two letters). `00` stands for the plus everywhere, and the trunk
    zero goes: `+44 (0)20 …`. A number that a spreadsheet wrote as 4.47701E+11 has lost its last digits and is refused.
    """
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).strip(" \t\r\n'\"").casefold()
    text = _WORDS.sub("", _LABEL.sub("", text.removeprefix("tel:"), count=1))
    text = _EXTENSION.sub("", text).strip(" ,;.")
    if _SCIENTIFIC.fullmatch(text):
        exact = Decimal(text.replace(",", "."))
        if exact.as_tuple().exponent:  # digits are missing between the last that is written and the ones
            raise ValueError(SHORTENED)
        text = str(int(exact))
    elif whole := _WHOLE_FLOAT.fullmatch(text):
        text = whole[1]
    if not _LOCAL.fullmatch(text) or sum(character.isdecimal() for character in text) < 3:
        raise ValueError(NOT_A_PHONE)
    if text.startswith("+") and "(0)" not in text:
        with contextlib.suppress(ValueError):
            return phone(text)
    return _parsed_phone(text, country)


def _parsed_phone(text: str, country: str | None) -> Address:
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
    # One that is dialled within its town alone has no form for the world
    if phonenumbers.is_possible_number_with_reason(parsed) != phonenumbers.ValidationResult.IS_POSSIBLE:
        raise ValueError(NOT_A_PHONE if bare.startswith("+") else f"is not a phone number of {country}")
    return phone(phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164))


def sms_sender(text: str) -> str:
    """Read who an SMS is from: a number in E.164, a short code, a name or a messaging service; ValueError otherwise."""
    text = text.strip()
    if _SHORT_CODE.fullmatch(text) or _SENDER_NAME.fullmatch(text) or is_sender_service(text):
        return text
    return phone(text).value


def is_sender_service(text: str) -> bool:
    """Return whether the sender of an SMS is a service that chooses one of its numbers for each."""
    return _SENDER_SERVICE.fullmatch(text) is not None


def read(kind: str, text: str) -> Address:
    """Read an address of a kind, `email` or `phone`."""
    return email(text) if kind == "email" else phone(text)


def sought(written: str) -> str:
    """Return the normal form of an address in a query, where an unencoded plus arrives as a space."""
    text = written.strip()
    with contextlib.suppress(ValueError):
        return phone(text if text.startswith("+") else f"+{text}").key
    with contextlib.suppress(ValueError):
        return email(text).key
    return lower(text)


def ascii_form(address: str) -> str | None:
    """Return an e-mail address as it can stand on the wire without SMTPUTF8, or None if its local part cannot."""
    local, _, domain = address.rpartition("@")
    if not local.isascii():
        return None
    return f"{local}@{_ascii_domain(domain)}"


def _ascii_domain(domain: str) -> str:
    if domain.isascii():
        return domain

    return idna.encode(domain, uts46=True).decode()


@cache
def countries() -> frozenset[str]:
    """Return the countries that phone numbers belong to, by two letters."""
    import phonenumbers

    return frozenset(phonenumbers.SUPPORTED_REGIONS)


def country_of(phone_number: str) -> str | None:
    """Return the two-letter country of an E.164 number where the number tells it."""
    import phonenumbers

    try:
        code = phonenumbers.region_code_for_number(phonenumbers.parse(phone_number))
        # Numbers of no country (+800, +883) have a code of digits
        return code if code and code.isalpha() else None
    except phonenumbers.NumberParseException:
        return None
