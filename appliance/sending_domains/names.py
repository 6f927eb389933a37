"""Names of domains: read from what people type, in the one form that DNS and mail servers use."""

import ipaddress
import re

import idna

from appliance import addresses
from appliance.delivery import groups

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# Below a domain stand records of ours, as `c12-0123._domainkey.`, and all of it has to fit in 253 characters
_MAX_CHARACTERS = 220


def read(text: str) -> str:
    """Return a domain in lower case, international ones in their ASCII form; ValueError with what is wrong.

    A mailbox provider's own domain is reserved: nobody else can put records into it.
    """
    typed = text.strip().removesuffix(".")
    try:
        name = addresses.email(f"x@{typed}").key.partition("@")[2]
    except ValueError:
        raise ValueError("is invalid") from None
    labels = name.split(".")
    if len(name) > _MAX_CHARACTERS or len(labels) < 2 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("is invalid")
    if labels[-1].isdecimal() or _is_address(name):
        raise ValueError("is invalid")
    if groups.is_shared(name):
        raise ValueError("is reserved")
    return name


def of_address(address: str) -> str:
    """Return the domain of an e-mail address in the form domains are kept in."""
    typed = address.rpartition("@")[2].lower()
    ascii_form = addresses.ascii_form(f"x@{typed}")
    return ascii_form.rpartition("@")[2].lower() if ascii_form else typed


def shown(name: str) -> str:
    """Return a domain as its owner writes it."""
    if "xn--" not in name:
        return name

    try:
        return idna.decode(name)
    except idna.IDNAError:
        return name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
