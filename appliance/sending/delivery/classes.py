"""What a refusal means and whom it speaks against, whether a server said it at once or a report brought it later.

The enhanced code (RFC 3463) decides first, then the basic code, then the words. Where the words say that it is about
us (our DNS, our reputation, a block list), they win over a code that blames the recipient: to stop writing to somebody
for a fault of ours cannot be made good by itself, one more attempt costs nothing.
"""

import re
from typing import Literal, NamedTuple

# Whom it speaks against: the address at once, at the second time in 30 days, at the third, at the fifth; nobody. And
# what tells that somebody has left is their opt-out
Against = Literal["at_once", "second", "third", "fifth", "left", "nobody"]


class Class(NamedTuple):
    """A kind of refusal: its name, what it means in words, whom it speaks against, and what helps."""

    name: str
    words: str
    against: Against
    help: str = ""

    @property
    def event(self) -> str:
        """The event of a message that ended so (docs/decisions.md#13); what suppresses is a bounce for good."""
        return {"at_once": "email_bounced", "second": "email_soft_bounced", "fifth": "email_soft_bounced"}.get(
            self.against, "email_failed"
        )


HARD = Class("hard", "there is no such recipient", "at_once", "Nothing is sent to this address any more.")
DISABLED = Class(
    "disabled", "the mailbox is switched off", "second",
    "Nothing is sent to this address any more once this happens twice in 30 days.",
)  # fmt: skip
NOWHERE = Class(
    "nowhere", "the domain of the address cannot be found", "second",
    "Nothing is sent to this address any more once this happens twice in 30 days.",
)  # fmt: skip
FULL = Class("full", "the mailbox is full", "fifth", "After five such failures in 30 days nothing is sent any more.")
TEMPORARY = Class("temporary", "the recipient's server took no mail", "fifth", FULL.help)
EXPIRED = Class("expired", "it could not be delivered in time", "fifth", FULL.help)
SIZE = Class(
    "size", "the message is too big", "nobody", "Make the message smaller: fewer or smaller pictures inside it."
)
CONTENT = Class(
    "content", "the recipient's server does not like what the message says", "nobody",
    "Look at subject, links and pictures; ask the recipient's postmaster where the words name one.",
)  # fmt: skip
AUTHENTICATION = Class(
    "authentication", "the recipient's server cannot tell that the mail is ours", "nobody",
    "Put the records of the page Domains into the DNS of the From domain.",
)  # fmt: skip
REPUTATION = Class(
    "reputation", "the recipient's server wants less mail from here", "nobody",
    "Send more slowly and only to people who expect it; complaints make it worse.",
)  # fmt: skip
BLOCKLIST = Class(
    "blocklist", "the address we send from is on a block list", "nobody",
    "Ask the list that the words name to take the sending address off, or send through a relay.",
)  # fmt: skip
SETUP = Class(
    "setup", "something is set up wrongly on the way", "nobody",
    "Look at the words: a loop, a protocol fault, a sender address or a route that does not exist.",
)  # fmt: skip
REFUSED = Class("refused", "it was refused without a reason we know", "nobody")
# Of phones
UNREACHABLE = Class(
    "unreachable", "the phone was switched off or out of reach", "third",
    "Nothing is sent to this number any more once this happens three times in 30 days.",
)  # fmt: skip
LEFT = Class(
    "opted_out", "the person has told the provider to stop", "left",
    "Nothing is sent to this number any more until a START comes from it.",
)  # fmt: skip
FILTERED = Class(
    "filtered", "the network took it for unwanted and kept it back", "nobody",
    "Say who writes and how to opt out, use links of your own domain, and ask the provider what its filters dislike.",
)  # fmt: skip
UNREGISTERED = Class(
    "unregistered", "the sender is not registered for this country", "nobody",
    "Register the sender with the provider (in the US: brand and campaign of 10DLC, or a verified toll-free number).",
)  # fmt: skip
COUNTRY = Class(
    "country", "the account at the provider may not write to this country", "nobody",
    "Allow the country in the provider's geographic permissions, or leave it out with sms.countries.",
)  # fmt: skip
ALL = (HARD, DISABLED, NOWHERE, FULL, TEMPORARY, EXPIRED, SIZE, CONTENT, AUTHENTICATION, REPUTATION, BLOCKLIST, SETUP,
       REFUSED, UNREACHABLE, LEFT, FILTERED, UNREGISTERED, COUNTRY)  # fmt: skip
BY_NAME = {one.name: one for one in ALL}

_SPF = "Put our SPF record into the DNS of the From domain (page Domains); of two SPF records keep one."
_DKIM = "Put the TXT record <selector>._domainkey of the page Domains into the DNS of the From domain."
_PTR = "Give the sending address a name in reverse DNS (PTR), and that name an address record that leads back to it."
_DMARC = "Put the DKIM and _dmarc records of the page Domains into the DNS, and send from that domain."
_TLS = "Let the connection be encrypted: the recipient's server takes no mail in clear text."
# By the last part of x.7.n (RFC 7372, Google, Microsoft)
_HELP = {
    20: _DKIM, 21: _DKIM, 22: _DKIM, 30: _DKIM, 23: _SPF, 24: _SPF, 27: _SPF, 25: _PTR,
    26: _DMARC, 31: _DMARC, 32: _DMARC, 40: _DMARC, 509: _DMARC, 515: _DMARC, 29: _TLS,
}  # fmt: skip

_EXACT: dict[str, Class] = {
    **dict.fromkeys(("5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10"), HARD),
    **dict.fromkeys(("5.4.4", "5.4.310"), NOWHERE),
    **dict.fromkeys(("5.2.2", "4.2.2"), FULL),
    **dict.fromkeys(("5.3.4", "5.2.3", "4.3.4"), SIZE),
    **dict.fromkeys(("5.4.7", "4.4.7", "5.4.300", "4.4.300", "5.4.316", "4.4.316"), EXPIRED),
    **dict.fromkeys(("5.4.6", "4.4.6", "5.4.14", "4.4.14", "5.3.5", "4.3.5"), SETUP),
    **dict.fromkeys(("5.1.7", "4.1.7", "5.1.8", "4.1.8"), SETUP),
    **dict.fromkeys(("5.7.3", "5.7.8", "5.7.57", "5.7.64"), SETUP),
    **dict.fromkeys(("4.7.0", "4.7.28", "5.7.28", "4.7.500", "4.7.650"), REPUTATION),
    **dict.fromkeys(("5.7.501", "5.7.502", "5.7.503", "5.7.511", "5.7.705", "5.7.708"), REPUTATION),
    "5.2.1": DISABLED,
}  # fmt: skip
_SUBJECTS: dict[str, Class] = {
    "5.3": TEMPORARY, "5.4": TEMPORARY, "5.5": SETUP, "5.6": CONTENT, "4.6": CONTENT, "5.7": CONTENT,
}  # fmt: skip
_CODE = re.compile(r"(?<![\d.])[245]\.\d{1,3}\.\d{1,3}(?![\d.]*\d)")


_Rules = tuple[tuple["re.Pattern[str]", Class], ...]


def _words(text: str) -> "re.Pattern[str]":
    return re.compile(text, re.IGNORECASE)


_OURS: _Rules = (
    (_words(
        r"\bdmarc\b|\bspf\b|sender policy framework|\bdkim\b|unauthenticated|not authenticated|fail\w* authentication|"
        r"authentication (?:checks?|requirements?|information)|reverse dns|\brdns\b|\bfcrdns\b|\bptr\b"
    ), AUTHENTICATION),
    (_words(
        r"\[TSS?\d+\]|\bRP-\d+|\bS77\d\b|\bS31[45]0\b|(?:low|poor|bad) reputation|reputation of|unusual rate|"
        r"rate[- ]limit|too many (?:messages|connections)|user complaints|throttl|unexpected volume"
    ), REPUTATION),
    (_words(
        r"spamhaus|spamcop|barracudacentral|\bsorbs\b|\b(?:dns|r|d)bl\b|uceprotect|abusix|block ?list|black ?list|"
        r"\[BL\d+\]|block\w* using |(?:is|are|was|been|currently) listed (?:at|in|on|by) "
    ), BLOCKLIST),
)  # fmt: skip
_SENDER = _words(
    r"\bsender\b[^\n]{0,40}(?:verif|reject|denied|unknown|invalid|not found|does not exist|not exist)|verify sender|"
    r"relay(?:ing)? (?:access )?(?:denied|not permitted|prohibited)|not permitted to relay|we do not relay"
)
_LOOP = _words(r"too many hops|mail loop|loops? back|hop count|routing loop|forwarding loop")
_FULL = _words(
    r"(?:mail ?box|inbox|mail ?dir|folder|account|storage)[^\n]{0,40}(?:\bfull\b|quota|out of (?:space|storage))|"
    r"over ?(?:its |the )?quota|quota[^\n]{0,20}(?:exceed|full|violat|reach|erreicht)|storage allocation|"
    r"out of (?:disk |storage )?space|postfach[^\n]{0,30}voll|bo[iî]te[^\n]{0,40}pleine|buz[oó]n[^\n]{0,20}lleno|"
    r"casella[^\n]{0,20}piena|caixa[^\n]{0,30}cheia|ящик[^\n]{0,40}переполнен|メールボックス[^\n]{0,20}(?:容量|一杯)"
)
_INACTIVE = _words(
    r"inactiv|\bdisabled\b|deactivat|suspended|account[^\n]{0,20}(?:expired|closed|locked)|mailbox unavailable|"
    r"no longer (?:active|accepts|accepting|available|in use)|not accepting (?:mail|messages)|discontinued|abandoned|"
    r"recipient address rejected: access denied|deaktiviert|d[eé]sactiv|desactivad"
)
_SIZE = _words(r"(?:message|mail|size)[^\n]{0,40}(?:too (?:big|large)|exceeds)|size limit|maximum (?:message )?size")
_NOBODY = _words(
    r"user\b[^\n]{0,60}(?:unknown|not found|not known|invalid)|"
    r"unknown (?:user|recipient|account|local|address|mailbox)|"
    r"no such (?:user|recipient|person|mailbox|account|address|local)|no mailbox here|unrouteable address|"
    r"(?:mailbox|account|address|recipient|user|e-?mail)\b[^\n]{0,60}(?:n[o']t exist|not found|unknown|not known)|"
    r"not (?:a )?valid (?:user|recipient|mailbox|address)|(?<!sender )invalid (?:recipient|mailbox|user|address)|"
    r"doesn[’']t have an? \S+ account|not listed in|not our customer|no longer (?:valid|exists)|"
    r"no account by that name|"
    r"empf[äa]nger[^\n]{0,30}(?:unbekannt|existiert)|(?:benutzer|nutzer|adresse|postfach)[^\n]{0,30}"
    r"(?:unbekannt|nicht gefunden|existiert nicht)|utilisateur inconnu|destinataire inconnu|n[’']existe pas|"
    r"(?:usuario|destinatario) desconocido|no existe|utente sconosciuto|inesistente|n[aã]o existe|"
    r"не существует|不存在|存在しません|見つかりません"
)
_NOWHERE = _words(
    r"host[^\n]{0,60}not found|domain[^\n]{0,60}(?:not found|n[o']t exist)|no such domain|nxdomain|"
    r"unknown (?:host|domain)|"
    r"host unknown|couldn'?t find any host|no mail servers? for"
)
_LATE = _words(
    r"in (?:the )?queue too long|queue too long|(?:message|delivery|retry)[^\n]{0,20}(?:expired|time ?out|timed out)|"
    r"could not be delivered (?:for|within)|retry (?:limit|time(?:out)?) |giv(?:en|ing) up|"
    r"connection (?:timed out|refused)|"
    r"not (?:been able to )?deliver\w* (?:it )?(?:for|within) |not responding"
)
_SPAM = _words(
    r"\bspam|unsolicited|\bjunk\b|virus|malware|phish|infected|suspicious|\bpolic(?:y|ies)\b|\[PH\d+\]|\bcontent\b|"
    r"prohibited|message (?:was )?(?:rejected|blocked)"
)
# What the words say where no code does, the most certain first; only for what is refused for good the last ones
_ANY: _Rules = ((_SENDER, SETUP), (_LOOP, SETUP), (_FULL, FULL), (_SIZE, SIZE))
_FOR_GOOD: _Rules = ((_INACTIVE, DISABLED), (_NOWHERE, NOWHERE), (_NOBODY, HARD), (_LATE, EXPIRED), (_SPAM, CONTENT))


def classify(smtp: int | None, enhanced: str | None, text: str) -> Class:
    """Return what a refusal means, from its basic code, its enhanced code and its words, as far as each is known."""
    text = text[:4_000]
    enhanced = _code_in(enhanced or "") or _code_in(text)
    final = smtp >= 500 if smtp is not None else enhanced is None or enhanced.startswith("5")
    exact = _exact(enhanced, final)
    ours = next((kind for pattern, kind in _OURS if pattern.search(text)), None)
    if exact is not None:
        if exact in (FULL, DISABLED) and final and _INACTIVE.search(text):
            return DISABLED
        return ours if exact is HARD and ours is not None and ours is not REPUTATION else exact
    if ours is not None:
        return ours
    for pattern, kind in (*_ANY, *(_FOR_GOOD if final else ())):
        if pattern.search(text):
            return kind
    if not final:
        return CONTENT if (enhanced or "").startswith("4.6.") else TEMPORARY
    known = _SUBJECTS.get((enhanced or "").rpartition(".")[0])
    return known or (FULL if smtp == 552 else REFUSED)


def _exact(enhanced: str | None, final: bool) -> Class | None:
    """Return what an enhanced code means by itself; one for good counts only with a refusal for good."""
    if enhanced is None or (enhanced.startswith("5") and not final):
        return None
    _, subject, last = enhanced.split(".")
    if subject == "7" and int(last) in _HELP:
        return AUTHENTICATION
    if subject == "7" and 606 <= int(last) <= 649:
        return BLOCKLIST
    return _EXACT.get(enhanced)


def _code_in(text: str) -> str | None:
    found = _CODE.search(text)
    return found[0] if found else None


def remedy(enhanced: str | None, text: str) -> str:
    """Return what to do about a refusal that names our authentication: the record that is missing or wrong."""
    _, _, last = (enhanced or _code_in(text) or "").rpartition(".")
    if last.isdecimal() and int(last) in _HELP:
        return _HELP[int(last)]
    named = (("spf", _SPF), ("dkim", _DKIM), ("dmarc", _DMARC), ("ptr", _PTR), ("reverse dns", _PTR), ("tls", _TLS))
    return next((help for word, help in named if word in text.lower()), AUTHENTICATION.help)


def is_unwelcome(smtp: int | None, enhanced: str | None, text: str) -> bool:
    """Return whether a refusal is about where the mail comes from: all other recipients there are refused alike."""
    return classify(smtp, enhanced, text) in (REPUTATION, BLOCKLIST)
