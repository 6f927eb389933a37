"""Classify rejections and bounces: their meaning, whether they suppress the address, and whether to send more slowly.

The enhanced code (RFC 3463) decides first, then the text, then the basic code. A text that blames the sender (its DNS
or a block list) overrides a code that says the recipient does not exist: a recipient suppressed by mistake stays
suppressed, while another attempt costs nothing.
"""

import re
from typing import Literal, NamedTuple

from appliance.core.errors import ConnectionFailed, Deferred, DeliveryError
from appliance.core.i18n import gettext_noop

# When rejections suppress the address: at the first, second, third or fifth one within 30 days, or never.
# `opted_out` means that the provider reports an opt-out, which suppresses the address like a stop keyword.
SuppressionRule = Literal["at_once", "second", "third", "fifth", "opted_out", "never"]


class BounceClass(NamedTuple):
    """A class of rejections.

    `meaning` is the reason in plain words, and `help` says what to do about the rejection (may be empty); both are
    English message ids for `gettext`.
    """

    name: str
    meaning: str
    suppression_rule: SuppressionRule
    help: str = ""

    @property
    def event_name(self) -> str:
        """Return the name of the event that a rejection of this class records (docs/decisions.md#13).

        A class that suppresses at once is a hard bounce, one that suppresses at the second or fifth rejection a soft
        bounce, and any other a failure.
        """
        return {"at_once": "email_bounced", "second": "email_soft_bounced", "fifth": "email_soft_bounced"}.get(
            self.suppression_rule, "email_failed"
        )


HARD = BounceClass(
    "hard",
    gettext_noop("the address does not exist"),
    "at_once",
    gettext_noop("No more messages are sent to this address."),
)
DISABLED = BounceClass(
    "disabled", gettext_noop("the mailbox is disabled"), "second",
    gettext_noop("The address is suppressed if this happens twice in 30 days."),
)  # fmt: skip
DOMAIN_NOT_FOUND = BounceClass(
    "nowhere", gettext_noop("the domain of the address cannot be found"), "second",
    gettext_noop("The address is suppressed if this happens twice in 30 days."),
)  # fmt: skip
FULL = BounceClass(
    "full",
    gettext_noop("the mailbox is full"),
    "fifth",
    gettext_noop("The address is suppressed after five such failures in 30 days."),
)
TEMPORARY = BounceClass(
    "temporary", gettext_noop("the recipient's server did not accept the email"), "fifth", FULL.help
)
EXPIRED = BounceClass("expired", gettext_noop("it could not be delivered in time"), "fifth", FULL.help)
SIZE = BounceClass(
    "size",
    gettext_noop("the message is too large"),
    "never",
    gettext_noop("Make the message smaller: use fewer or smaller images."),
)
CONTENT = BounceClass(
    "content", gettext_noop("the recipient's server rejected the content of the message"), "never",
    gettext_noop("Check the subject, links and images; contact the postmaster if the reply names one."),
)  # fmt: skip
AUTHENTICATION = BounceClass(
    "authentication", gettext_noop("the recipient's server could not verify the sender"), "never",
    gettext_noop("Add the records of Settings > Domains to the DNS of the From domain."),
)  # fmt: skip
REPUTATION = BounceClass(
    "reputation", gettext_noop("the recipient's server is throttling email from this server"), "never",
    gettext_noop("Send more slowly, and only to contacts who expect it; spam complaints make it worse."),
)  # fmt: skip
BLOCKLIST = BounceClass(
    "blocklist", gettext_noop("the IP address of the sending server is on a blocklist"), "never",
    gettext_noop("Ask the blocklist that the reply names to remove the address, or send through a relay."),
)  # fmt: skip
SETUP = BounceClass(
    "setup", gettext_noop("a server on the way is misconfigured"), "never",
    gettext_noop(
        "Read the server's reply: it may be a mail loop, a protocol error, or a sender "
        "address or route that does not exist."
    ),
)  # fmt: skip
REFUSED = BounceClass("refused", gettext_noop("it was rejected for an unknown reason"), "never")
# Classes of SMS
UNREACHABLE = BounceClass(
    "unreachable", gettext_noop("the phone was off or out of range"), "third",
    gettext_noop("The number is suppressed if this happens three times in 30 days."),
)  # fmt: skip
OPTED_OUT = BounceClass(
    "opted_out", gettext_noop("the contact opted out at the provider"), "opted_out",
    gettext_noop("No more SMS are sent to this number until it replies START."),
)  # fmt: skip
FILTERED = BounceClass(
    "filtered", gettext_noop("the network blocked it as spam"), "never",
    gettext_noop(
        "Name your brand and how to opt out, use links of your own domain, and ask the "
        "provider what its filters reject."
    ),
)  # fmt: skip
UNREGISTERED = BounceClass(
    "unregistered", gettext_noop("the sender is not registered for this country"), "never",
    gettext_noop(
        "Register the sender with the provider (in the US: brand and campaign of 10DLC, "
        "or a verified toll-free number)."
    ),
)  # fmt: skip
COUNTRY = BounceClass(
    "country", gettext_noop("the provider account may not send to this country"), "never",
    gettext_noop("Allow the country in the provider's geographic permissions, or exclude it with sms.countries."),
)  # fmt: skip
ALL_CLASSES = (
    HARD,
    DISABLED,
    DOMAIN_NOT_FOUND,
    FULL,
    TEMPORARY,
    EXPIRED,
    SIZE,
    CONTENT,
    AUTHENTICATION,
    REPUTATION,
    BLOCKLIST,
    SETUP,
    REFUSED,
    UNREACHABLE,
    OPTED_OUT,
    FILTERED,
    UNREGISTERED,
    COUNTRY,
)
CLASSES_BY_NAME = {bounce_class.name: bounce_class for bounce_class in ALL_CLASSES}

_SPF = gettext_noop(
    "Add our SPF record to the DNS of the From domain (Settings > Domains); if there are two SPF records, keep one."
)
_DKIM = gettext_noop("Add the TXT record <selector>._domainkey (Settings > Domains) to the DNS of the From domain.")
_PTR = gettext_noop("Set reverse DNS (PTR) of the sending IP address to a host name that resolves back to it.")
_DMARC = gettext_noop("Add the DKIM and _dmarc records (Settings > Domains) to the DNS, and send from that domain.")
_TLS = gettext_noop("Encrypt the connection: the recipient's server accepts no email in clear text.")
# Help for enhanced codes x.7.n, by n (RFC 7372, Google, Microsoft)
_AUTHENTICATION_HELP = {
    20: _DKIM, 21: _DKIM, 22: _DKIM, 30: _DKIM, 23: _SPF, 24: _SPF, 27: _SPF, 25: _PTR,
    26: _DMARC, 31: _DMARC, 32: _DMARC, 40: _DMARC, 509: _DMARC, 515: _DMARC, 29: _TLS,
}  # fmt: skip

_CLASS_OF_CODE: dict[str, BounceClass] = {
    **dict.fromkeys(("5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10"), HARD),
    **dict.fromkeys(("5.4.4", "5.4.310"), DOMAIN_NOT_FOUND),
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
_CLASS_OF_SUBJECT: dict[str, BounceClass] = {
    "5.3": TEMPORARY, "5.4": TEMPORARY, "5.5": SETUP, "5.6": CONTENT, "4.6": CONTENT, "5.7": CONTENT,
}  # fmt: skip
_CODE = re.compile(r"(?<![\d.])[245]\.\d{1,3}\.\d{1,3}(?![\d.]*\d)")


_Rules = tuple[tuple["re.Pattern[str]", BounceClass], ...]


def _pattern(text: str) -> "re.Pattern[str]":
    return re.compile(text, re.IGNORECASE)


_SENDER_FAULT_RULES: _Rules = (
    (_pattern(
        r"\bdmarc\b|\bspf\b|sender policy framework|\bdkim\b|unauthenticated|not authenticated|"
        r"fail\w{0,10} authentication|authentication (?:checks?|requirements?|information)|"
        r"reverse dns|\brdns\b|\bfcrdns\b|\bptr\b"
    ), AUTHENTICATION),
    (_pattern(
        r"\[TSS?\d+\]|\bRP-\d+|\bS77\d\b|\bS31[45]0\b|(?:low|poor|bad) reputation|reputation of|unusual rate|"
        r"rate[- ]limit|too many (?:messages|connections)|user complaints|throttl|unexpected volume"
    ), REPUTATION),
    (_pattern(
        r"spamhaus|spamcop|barracudacentral|\bsorbs\b|\b(?:dns|r|d)bl\b|uceprotect|abusix|block ?list|black ?list|"
        r"\[BL\d+\]|block\w{0,10} using |(?:is|are|was|been|currently) listed (?:at|in|on|by) "
    ), BLOCKLIST),
)  # fmt: skip
_SENDER = _pattern(
    r"\bsender\b[^\n]{0,40}(?:verif|reject|denied|unknown|invalid|not found|does not exist|not exist)|verify sender|"
    r"relay(?:ing)? (?:access )?(?:denied|not permitted|prohibited)|not permitted to relay|we do not relay"
)
_LOOP = _pattern(r"too many hops|mail loop|loops? back|hop count|routing loop|forwarding loop")
_FULL = _pattern(
    r"(?:mail ?box|inbox|mail ?dir|folder|account|storage)[^\n]{0,40}(?:\bfull\b|quota|out of (?:space|storage))|"
    r"over ?(?:its |the )?quota|quota[^\n]{0,20}(?:exceed|full|violat|reach|erreicht)|storage allocation|"
    r"out of (?:disk |storage )?space|postfach[^\n]{0,30}voll|bo[iî]te[^\n]{0,40}pleine|buz[oó]n[^\n]{0,20}lleno|"
    r"casella[^\n]{0,20}piena|caixa[^\n]{0,30}cheia|ящик[^\n]{0,40}переполнен|メールボックス[^\n]{0,20}(?:容量|一杯)"
)
_INACTIVE = _pattern(
    r"inactiv|\bdisabled\b|deactivat|suspended|account[^\n]{0,20}(?:expired|closed|locked)|mailbox unavailable|"
    r"no longer (?:active|accepts|accepting|available|in use)|not accepting (?:mail|messages)|discontinued|abandoned|"
    r"recipient address rejected: access denied|deaktiviert|d[eé]sactiv|desactivad"
)
_SIZE = _pattern(r"(?:message|mail|size)[^\n]{0,40}(?:too (?:big|large)|exceeds)|size limit|maximum (?:message )?size")
_UNKNOWN_USER = _pattern(
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
_UNKNOWN_DOMAIN = _pattern(
    r"host[^\n]{0,60}not found|domain[^\n]{0,60}(?:not found|n[o']t exist)|no such domain|nxdomain|"
    r"unknown (?:host|domain)|"
    r"host unknown|couldn'?t find any host|no mail servers? for"
)
_EXPIRED = _pattern(
    r"in (?:the )?queue too long|queue too long|(?:message|delivery|retry)[^\n]{0,20}(?:expired|time ?out|timed out)|"
    r"could not be delivered (?:for|within)|retry (?:limit|time(?:out)?) |giv(?:en|ing) up|"
    r"connection (?:timed out|refused)|"
    r"not (?:been able to )?deliver\w* (?:it )?(?:for|within) |not responding"
)
_SPAM = _pattern(
    r"\bspam|unsolicited|\bjunk\b|virus|malware|phish|infected|suspicious|\bpolic(?:y|ies)\b|\[PH\d+\]|\bcontent\b|"
    r"prohibited|message (?:was )?(?:rejected|blocked)"
)
# Rules for the text of rejections whose code does not decide, the most certain first; the second set is for permanent
# rejections only
_GENERAL_RULES: _Rules = ((_SENDER, SETUP), (_LOOP, SETUP), (_FULL, FULL), (_SIZE, SIZE))
_PERMANENT_RULES: _Rules = (
    (_INACTIVE, DISABLED),
    (_UNKNOWN_DOMAIN, DOMAIN_NOT_FOUND),
    (_UNKNOWN_USER, HARD),
    (_EXPIRED, EXPIRED),
    (_SPAM, CONTENT),
)


def classify(smtp: int | None, enhanced: str | None, text: str) -> BounceClass:
    """Return the class of a rejection from its SMTP reply code, its enhanced code and its text.

    An unknown enhanced code is searched for in the text. Without any code, the rejection counts as permanent.
    """
    text = text[:4_000]
    enhanced = _find_enhanced_code(enhanced or "") or _find_enhanced_code(text)
    is_permanent = smtp >= 500 if smtp is not None else enhanced is None or enhanced.startswith("5")
    class_of_code = _class_of_code(enhanced, is_permanent)
    sender_fault = next((kind for pattern, kind in _SENDER_FAULT_RULES if pattern.search(text)), None)
    if class_of_code is not None:
        if class_of_code in (FULL, DISABLED) and is_permanent and _INACTIVE.search(text):
            return DISABLED
        return (
            sender_fault
            if class_of_code is HARD and sender_fault is not None and sender_fault is not REPUTATION
            else class_of_code
        )
    if sender_fault is not None:
        return sender_fault
    for pattern, kind in (*_GENERAL_RULES, *(_PERMANENT_RULES if is_permanent else ())):
        if pattern.search(text):
            return kind
    if not is_permanent:
        return CONTENT if (enhanced or "").startswith("4.6.") else TEMPORARY
    class_of_subject = _CLASS_OF_SUBJECT.get((enhanced or "").rpartition(".")[0])
    return class_of_subject or (FULL if smtp == 552 else REFUSED)


def _class_of_code(enhanced: str | None, is_permanent: bool) -> BounceClass | None:
    """Return the class that an enhanced code alone decides, or None; 5.x.x decides permanent rejections only."""
    if enhanced is None or (enhanced.startswith("5") and not is_permanent):
        return None
    _, subject, detail = enhanced.split(".")
    if subject == "7" and int(detail) in _AUTHENTICATION_HELP:
        return AUTHENTICATION
    if subject == "7" and 606 <= int(detail) <= 649:
        return BLOCKLIST
    return _CLASS_OF_CODE.get(enhanced)


def _find_enhanced_code(text: str) -> str | None:
    match = _CODE.search(text)
    return match[0] if match else None


def authentication_help(enhanced: str | None, text: str) -> str:
    """Return the help text for an authentication failure, chosen by its enhanced code or by a word of its text."""
    _, _, detail = (enhanced or _find_enhanced_code(text) or "").rpartition(".")
    if detail.isdecimal() and int(detail) in _AUTHENTICATION_HELP:
        return _AUTHENTICATION_HELP[int(detail)]
    help_by_word = (
        ("spf", _SPF),
        ("dkim", _DKIM),
        ("dmarc", _DMARC),
        ("ptr", _PTR),
        ("reverse dns", _PTR),
        ("tls", _TLS),
    )
    return next((help for word, help in help_by_word if word in text.lower()), AUTHENTICATION.help)


def is_sender_blocked(smtp: int | None, enhanced: str | None, text: str) -> bool:
    """Return whether a rejection is about the sending server (REPUTATION, BLOCKLIST), not about the recipient."""
    return classify(smtp, enhanced, text) in (REPUTATION, BLOCKLIST)


# Rejections because of the sending rate: they slow down the whole recipient group and suppress no address.

# Google's code for a sender that exceeded its rate and should pause; it is not about the single message
_PAUSE_CODE = "4.7.28"
# Codes of rejections because of the sender's DNS or TLS, not its rate
_AUTHENTICATION_CODE = re.compile(r"4\.7\.(?:2[3-79]|3\d|40)")
_RATE_WORDS = re.compile(
    r"throttl|\brates?\b|too (?:many|much|fast)|slow down|limit|quota|exceed|busy|reputation|unusual|volume|deferred"
    r"|\[TS\d|\bRP-",
    re.IGNORECASE,
)
_GREYLISTED = re.compile(r"gr[ea]y-?list", re.IGNORECASE)


def is_rate_limited(error: DeliveryError | None) -> bool:
    """Return whether an error is a temporary rejection because of the sending rate; False for None.

    Reply code 421 and enhanced codes 4.7.x count, except greylisting, 4.7.1 and codes about the sender's DNS or TLS.
    Reply code 454 and 4.7.1 count if the text has a word about rates.
    """
    if not isinstance(error, Deferred | ConnectionFailed) or error.smtp is None:
        return False
    if error.smtp == 421 or error.enhanced == _PAUSE_CODE:
        return True
    enhanced = error.enhanced or ""
    if _GREYLISTED.search(error.text) or _AUTHENTICATION_CODE.fullmatch(enhanced):
        return False
    if enhanced.startswith("4.7.") and enhanced != "4.7.1":
        return True
    # Greylisting uses 4.7.1 too, and 4.2.1 is about a single mailbox
    return enhanced != "4.2.1" and (error.smtp == 454 or enhanced == "4.7.1") and bool(_RATE_WORDS.search(error.text))


def asks_for_pause(error: DeliveryError) -> bool:
    """Return whether a rejection has the code by which Google asks the sender to pause."""
    return error.enhanced == _PAUSE_CODE


def limits_all_recipients(error: DeliveryError) -> bool:
    """Return whether a rejection applies to all recipients: the connection was rejected, or the reply code is 454."""
    return error.smtp == 454 or isinstance(error, ConnectionFailed)
