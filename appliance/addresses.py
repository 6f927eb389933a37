"""One normal form for each address, so that an address is one person's whatever the spelling."""

import contextlib
from typing import NamedTuple

from appliance.patterns import late

_PHONE = late(r"\+[1-9][0-9]{6,14}")
_PHONE_FILLER = late(r"[ .\-()]")
_SHORT_CODE = late(r"[1-9][0-9]{2,7}")
_SENDER_SERVICE = late(r"MG[0-9a-fA-F]{32}")  # of Twilio, which chooses one of its numbers
_SENDER_NAME = late(r"(?=[0-9 ]*[A-Za-z])[A-Za-z0-9 ]{1,11}")


class Address(NamedTuple):
    """An address as shown (`value`) and its normal form (`key`), unique in an account."""

    kind: str
    value: str
    key: str


def email(text: str) -> Address:
    """Read an e-mail address; ValueError if it is not one we can send to (decisions, section 9).

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
    local = found.local_part.casefold()
    return Address("email", found.normalized, f"{local}@{found.ascii_domain.lower()}")


def phone(text: str) -> Address:
    """Read a phone number in E.164, with the usual filler removed; ValueError otherwise."""
    number = _PHONE_FILLER.sub("", text.strip())
    if not _PHONE.fullmatch(number):
        raise ValueError("is invalid")
    return Address("phone", number, number)


def sms_sender(text: str) -> str:
    """Read who an SMS is from: a number in E.164, a short code, a name or a messaging service; ValueError otherwise."""
    text = text.strip()
    if _SHORT_CODE.fullmatch(text) or _SENDER_NAME.fullmatch(text) or is_sender_service(text):
        return text
    return phone(text).value


def is_sender_service(text: str) -> bool:
    """Say whether the sender of an SMS is a service that chooses one of its numbers for each."""
    return _SENDER_SERVICE.fullmatch(text) is not None


def read(kind: str, text: str) -> Address:
    """Read an address of a kind, `email` or `phone`."""
    return email(text) if kind == "email" else phone(text)


def sought(written: str) -> str:
    """Answer the normal form that somebody looks for; a plus that nobody encoded for a query comes as a space."""
    text = written.strip()
    with contextlib.suppress(ValueError):
        return phone(text if text.startswith("+") else f"+{text}").key
    return text.casefold()


def ascii_form(address: str) -> str | None:
    """Answer an e-mail address as it can stand on the wire without SMTPUTF8, or None if its local part cannot."""
    local, _, domain = address.rpartition("@")
    if not local.isascii():
        return None
    return f"{local}@{_ascii_domain(domain)}"


def _ascii_domain(domain: str) -> str:
    if domain.isascii():
        return domain
    import idna

    return idna.encode(domain, uts46=True).decode()


def country_of(phone_number: str) -> str | None:
    """Answer the two-letter country of an E.164 number where the number tells it."""
    import phonenumbers

    try:
        code = phonenumbers.region_code_for_number(phonenumbers.parse(phone_number))
        # Numbers of no country (+800, +883) have a code of digits
        return code if code and code.isalpha() else None
    except phonenumbers.NumberParseException:
        return None
