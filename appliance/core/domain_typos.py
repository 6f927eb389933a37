"""Find typos in the domain of an email address, such as gmail.con, by the domains of the large mailbox providers.

A suggestion is only shown, because the typed address may be right. The domain is one change away from a well-known one
(a letter is missing, too many, wrong, or swapped with the next). Other providers' domains get no suggestion.
"""

import string
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

# The most used first: a typo that is one change away from two domains belongs to the first.
_KNOWN = """
    gmail.com hotmail.com yahoo.com outlook.com icloud.com googlemail.com aol.com live.com msn.com proton.me
    protonmail.com gmx.de gmx.net gmx.at gmx.ch gmx.com web.de t-online.de freenet.de posteo.de hotmail.de outlook.de
    yahoo.de hotmail.co.uk yahoo.co.uk btinternet.com hotmail.fr outlook.fr yahoo.fr orange.fr wanadoo.fr laposte.net
    hotmail.it outlook.it yahoo.it libero.it virgilio.it hotmail.es outlook.es yahoo.es hotmail.nl outlook.nl ziggo.nl
    kpnmail.nl hetnet.nl interia.pl yahoo.com.br outlook.com.br hotmail.com.br uol.com.br bol.com.br terra.com.br
    yahoo.co.jp docomo.ne.jp ezweb.ne.jp comcast.net verizon.net
"""
KNOWN_DOMAINS = tuple(_KNOWN.split())
# Domains of other providers and companies that are one change away from one of the above
_OTHERS = frozenset(
    ("mail.com", "email.com", "ymail.com", "rocketmail.com", "cloud.com", "libera.it", "yahoo.ne.jp", "poste.de",
     "live.co", "gmx.co")
)  # fmt: skip
# A shorter name, such as gmx, is too close to those of other domains, so that only a typo after it counts.
_MIN_NAME_CHARACTERS = 5
_CHARACTERS = string.ascii_lowercase + string.digits + "-."


def suggest_domain(address: str) -> str | None:
    """Return the well-known domain that an email address probably should have, or None."""
    return list_typos().get(address.rpartition("@")[2].lower())


def suggest_address(address: str) -> str | None:
    """Return an email address with the well-known domain that it probably should have, or None."""
    domain = suggest_domain(address)
    return None if domain is None else f"{address.rpartition('@')[0]}@{domain}"


@cache
def list_typos() -> Mapping[str, str]:
    """Return the well-known domain by each domain that is one change away from it."""
    typos: dict[str, str] = {}
    for domain in KNOWN_DOMAINS:
        for typo in _change_once(domain):
            if typo not in KNOWN_DOMAINS and typo not in _OTHERS and _is_typo(typo, domain):
                typos.setdefault(typo, domain)
    return MappingProxyType(typos)


def _change_once(text: str) -> set[str]:
    """Return the texts that differ from a text by one character, or by two neighbours that changed places."""
    cuts = [(text[:index], text[index:]) for index in range(len(text) + 1)]
    changed = {before + after[1:] for before, after in cuts if after}
    changed |= {before + after[1] + after[0] + after[2:] for before, after in cuts if len(after) > 1}
    for character in _CHARACTERS:
        changed |= {before + character + after[1:] for before, after in cuts if after}
        changed |= {before + character + after for before, after in cuts}
    return changed


def _is_typo(text: str, domain: str) -> bool:
    """Return whether a text that is one change away from a domain is a domain, and no other that probably exists."""
    labels = text.split(".")
    if len(labels) < 2 or not all(labels) or any(label.startswith("-") or label.endswith("-") for label in labels):
        return False
    name, _, ending = domain.partition(".")
    if len(name) < _MIN_NAME_CHARACTERS and labels[0] != name:
        return False
    # A provider has domains in several countries: yahoo.dk is no typo of yahoo.de.
    own_ending = text.partition(".")[2]
    is_other_country = labels[0] == name and len(labels[-1]) == len(ending.split(".")[-1]) == 2
    return not (is_other_country and own_ending != ending and len(own_ending) == len(ending))
