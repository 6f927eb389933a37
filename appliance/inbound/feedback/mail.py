"""Turns a mail that came back into facts about messages of ours; what it is decides, not the address it came to."""

import re
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from typing import Literal, NamedTuple

from appliance.core import addresses
from appliance.inbound.feedback import mime, receipts, record
from appliance.inbound.feedback.record import Fact
from appliance.sending.delivery import classes
from appliance.storage.work import writing

# Reads reports of people who call a message spam: RFC 5965, and what Microsoft sends instead (D29).
#
# Providers often take the address out (RFC 6590). Which message was meant is told by what we signed in it; that
# somebody complained is believed if the report names the recipient too, or holds a signature that is proof
# (`signed`).

# What a person says with it: not wanted. `not-spam` takes back, `virus` and `other` are no person's word
_UNWANTED = ("abuse", "fraud", "opt-out", "opt-out-list")
_RECIPIENT_HEADERS = ("x-hmxmroriginalrecipient", "delivered-to", "x-original-to", "to")
_MAX_RECIPIENTS = 10


class Complaint(NamedTuple):
    """A message of ours that somebody called spam, and the words for the evidence.

    `recipients` are the addresses that are named; `is_proven` says that it holds without one.
    """

    message_id: int
    text: str
    recipients: tuple[str, ...]
    is_proven: bool


def read_arf(mail: Message, message_id: int | None) -> Complaint | None:
    """Return the complaint that a mail is, or None; `message_id` is the message whose return path it came to."""
    report = mime.first(mail, "message/feedback-report")
    original = mime.original(mail)
    if report is None:
        # The Junk Mail Reporting Program sends the message as it was, with a header of its own
        is_jmrp = any(name == "x-hmxmroriginalrecipient" for name, _ in original)
        return _complaint(message_id, original, {}, "abuse reported through Microsoft JMRP") if is_jmrp else None
    fields = next(iter(mime.blocks(mime.text(report))), {})
    kind = fields.get("feedback-type", "").split("(")[0].strip().lower()
    if kind not in _UNWANTED:
        return None
    words = f"{kind} reported through {fields.get('user-agent', 'an unnamed service')[:200]}"
    return _complaint(message_id, original, fields, words)


def _complaint(
    arrived_at: int | None, original: list[tuple[str, str]], fields: dict[str, str], words: str
) -> Complaint | None:
    """Return a complaint if all signatures name one message, and it is proven or somebody is named."""
    senders = " ".join(fields.get(name, "") for name in ("original-mail-from", "original-envelope-id"))
    found = receipts.find_signed(original, senders)
    arrived = frozenset() if arrived_at is None else frozenset({arrived_at})
    numbers, proven = found.named | arrived, found.proven | arrived
    named = "\n".join(
        [fields.get("original-rcpt-to", ""), *(value for name, value in original if name in _RECIPIENT_HEADERS)]
    )
    recipients = tuple(dict.fromkeys(mime.ADDRESS.findall(named)))[:_MAX_RECIPIENTS]
    if len(numbers) != 1 or not (proven or recipients):
        return None
    return Complaint(next(iter(numbers)), words, recipients, bool(proven))


# Tells bounces without machine-readable fields from all else that comes to a return path.
#
# qmail, Exim, old Exchange, Sendmail, Domino and many others wrote for people. A bounce comes from a mail system,
# says so in its subject or first words, and is final; an absent person's answer, a delay and a challenge are not.

_MAX_OLD_CHARACTERS = 20_000
_SYSTEM = re.compile(
    r"mailer-?daemon|postmaster|mail delivery (?:sub)?system|mail administrator|mailadmin|system administrator|"
    r"systemadministrator|mdaemon|mmdf|noreply-?bounce|bounce",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"undeliver|returned (?:mail|to sender|e-?mail)|failure notice|"
    r"delivery (?:status )?(?:notification|fail\w*|problem)|"
    r"delivery .{0,30}fail|mail (?:delivery|system) (?:fail|error)|non[- ]?deliver|"
    r"nondeliverable|message not delivered|"
    r"unzustellbar|nicht zugestellt|nicht zugestellbar|zustellung fehlgeschlagen|fehlgeschlagen|non remis|"
    r"échec|echec|no (?:se )?(?:ha )?(?:podido )?entrega|no entregado|devuelto|mancata consegna|mancato recapito|"
    r"não entregue|falha na entrega|недоставлен|не доставлен|配信|退信|送信エラー",
    re.IGNORECASE,
)
_WORDS = re.compile(
    r"this is the qmail-send program|message was created automatically by mail delivery software|"
    r"permanent (?:fatal )?error|could not be delivered to|was not delivered to|did not reach the following|"
    r"(?:unable|not able) to deliver|delivery to the following recipients? failed|failed permanently|"
    r"(?:undeliverable|permanent failure)|returned message (?:follows|below)|delivery has failed|"
    r"konnte nicht zugestellt werden|n['’]a pas pu être (?:remis|délivré)|no se (?:ha podido|pudo) entregar|"
    r"non è stato possibile|impossibile recapitare|não (?:foi|pôde ser) entregue|не (?:удалось|может быть) достав",
    re.IGNORECASE,
)
_LATE = re.compile(
    r"\bdelay|\bwarning\b|still (?:being )?(?:trying|retried|attempt)|"
    r"will (?:keep|continue) (?:trying|to try|to be)|"
    r"will be retried|not (?:yet )?been delivered yet|"
    r"no action is required|you do not need to resend|verzöger|retard[ée]",
    re.IGNORECASE,
)
# What replies and forwarded mail begin with, in the languages of the words above
_ANSWER = re.compile(
    r"^(?:auto(?:mati\w+)?[ :-]|(?:re|aw|antw|sv|vs|rv|res|odp|ynt|r|fwd?|wg|tr|enc|doorst|vb|i|回复|转发|答复)"
    r"(?:\[\d+\])?\s?[:：]|out of (?:the )?office|abwesen|vacation|ooo\b|away\b|r[ée]ponse auto|absence|"
    r"respuesta auto|fuera de|risposta auto|autosvar)",
    re.IGNORECASE,
)
# What answering machines write beside, or instead of, `Auto-Submitted`
_ANSWER_HEADERS = ("X-Autoreply", "X-Autorespond", "X-Auto-Reply")
# What follows is the message that came back
_ORIGINAL = re.compile(
    r"^-{2,}.{0,40}(?:copy of|original message|returned message|message follows|undeliverable message|"
    r"headers of the|ursprüngliche nachricht|message d['’]origine|mensaje original).*$|^return-path:|^received: |"
    r"^original message headers:|^x-original-to:",
    re.IGNORECASE | re.MULTILINE,
)


def own_words(mail: Message) -> str:
    """Return what a mail says itself, without the message it brings back."""
    found = []
    for part in mime.parts(mail):
        kind = part.get_content_type()
        if kind in (*mime.ORIGINALS, "message/partial"):
            break
        # One that says it holds parts and holds none that can be found is read as it stands
        if not part.is_multipart() and kind.startswith(("text/", "multipart/")):
            words = mime.text(part)[: 2 * _MAX_OLD_CHARACTERS]
            found.append(re.sub(r"<[a-zA-Z/!][^<>]{0,400}>", " ", words) if kind == "text/html" else words)
            if kind == "text/plain" and words.strip():
                break
    text = "\n".join(found)[:_MAX_OLD_CHARACTERS]
    original = _ORIGINAL.search(text, 1)
    return text[: original.start()] if original else text


def is_bounce(mail: Message, words: str) -> bool:
    """Return whether a mail without fields is a final bounce of a mail system."""
    subject, sender = _plain(mime.header(mail, "Subject")), _plain(mime.header(mail, "From"))
    precedence = mime.header(mail, "Precedence").lower()
    is_answer = (
        mime.header(mail, "Auto-Submitted").lower().startswith("auto-replied")
        or precedence == "auto_reply"
        or any(name in mail for name in _ANSWER_HEADERS)
    )
    if (is_answer and not _SYSTEM.search(sender)) or _ANSWER.search(subject) or precedence in ("bulk", "list"):
        return False
    failed = bool(mime.header(mail, "X-Failed-Recipients"))
    signs = (bool(_SYSTEM.search(sender)), bool(_SUBJECT.search(subject)), bool(_WORDS.search(words)) or failed)
    return sum(signs) >= 2 and not _LATE.search(subject) and not _LATE.search(words[:2_000])


def _plain(value: str) -> str:
    """Decode what is encoded in a header, as far as it can be."""
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError):
        return value
    return "".join(
        piece if isinstance(piece, str) else mime.words(piece, charset or "utf-8") for piece, charset in pieces
    )


# Reads reports about deliveries: RFC 3464 by its fields, older and stranger ones by their words (D28).
#
# What a report says of one recipient becomes a `Report`. That something is late, was passed on or was put on a list
# is no verdict and is left out; so are answers of people and their machines (RFC 3834).

_STATUS = ("message/delivery-status", "message/global-delivery-status")
_SMTP = re.compile(r"(?<![\d.])([245]\d\d)(?![\d.])")
_ENHANCED = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)")
_XTEXT = re.compile(r"\+([0-9A-F]{2})")
_MAX_DSN_RECIPIENTS = 50
_MAX_CHARACTERS = 1_000


class Report(NamedTuple):
    """What became of a message for one recipient, who may be named in several ways."""

    kind: Literal["bounced", "soft_bounced", "delivered"]
    recipients: tuple[str, ...]
    smtp: int | None
    enhanced: str | None
    text: str


def read_dsn(mail: Message) -> list[Report]:
    """Return what a mail reports, recipient by recipient; nothing where it is no report."""
    part = mime.first(mail, *_STATUS)
    if part is not None:
        return _of_fields(mime.blocks(mime.text(part)), mail)
    if mail.get_content_type() == "multipart/report" and str(mail.get_param("report-type")).lower() in (
        "disposition-notification", "feedback-report",
    ):  # fmt: skip
        return []
    words = own_words(mail)
    broken = _of_fields(mime.blocks(words), mail) if "final-recipient:" in words.lower() else []
    return broken or _of_words(mail, words)


def _of_fields(blocks: list[dict[str, str]], mail: Message) -> list[Report]:
    found = []
    for block in blocks[: _MAX_DSN_RECIPIENTS + 1]:
        if not ("action" in block or "final-recipient" in block or "original-recipient" in block):
            continue
        action = block.get("action", "").split("(")[0].strip().lower()
        status = next(iter(_ENHANCED.findall(block.get("status", ""))), None)
        if action == "delivered":
            found.append(Report("delivered", _named(block), None, status, ""))
        elif action in ("failed", "failure") or (not action and (status or "").startswith("5")):
            found.append(_failed(block, status, mail))
    return found


def _failed(block: dict[str, str], status: str | None, mail: Message) -> Report:
    said = block.get("diagnostic-code", "")
    kind, semicolon, rest = said.partition(";")
    said = " ".join((rest if semicolon and " " not in kind.strip() else said).split())
    smtp = _SMTP.search(said)
    own = next((code for code in _ENHANCED.findall(said) if not code.endswith(".0.0")), None)
    # The words of the last server are nearer to what happened than the status that somebody made of them
    enhanced = own or (status if status is not None and not status.endswith(".0.0") else None)
    if not said or (smtp is None and enhanced is None):
        said = " ".join(f"{said} {own_words(mail)[:_MAX_CHARACTERS]}".split())
    return _report(_named(block), int(smtp[1]) if smtp else None, enhanced or status, said)


def _report(recipients: tuple[str, ...], smtp: int | None, enhanced: str | None, text: str) -> Report:
    found = classes.classify(smtp, None if enhanced is None or enhanced.endswith(".0.0") else enhanced, text)
    kind: Literal["bounced", "soft_bounced"] = "bounced" if found is classes.HARD else "soft_bounced"
    return Report(kind, recipients, smtp, enhanced, text[:_MAX_CHARACTERS])


def _named(block: dict[str, str]) -> tuple[str, ...]:
    """Return the ways a recipient is named: as it was given to the last server, and as we gave it to the first."""
    found: dict[str, None] = {}
    for name in ("final-recipient", "original-recipient", "x-actual-recipient"):
        _, semicolon, value = block.get(name, "").partition(";")
        value = value if semicolon else block.get(name, "")
        for spelling in (value, _XTEXT.sub(lambda code: chr(int(code[1], 16)), value)):
            found |= dict.fromkeys(mime.ADDRESS.findall(addresses.unquoted(spelling))[:2])
    return tuple(found)


def _of_words(mail: Message, words: str) -> list[Report]:
    """Read a bounce that has no fields; who is named in it is all that makes it believed."""
    if not is_bounce(mail, words):
        return []
    failed = mime.header(mail, "X-Failed-Recipients")
    named = tuple(dict.fromkeys(mime.ADDRESS.findall(addresses.unquoted(failed or words))))[:_MAX_DSN_RECIPIENTS]
    said = " ".join(words.split())
    smtp = _SMTP.search(said)
    enhanced = next(iter(_ENHANCED.findall(said)), None)
    report = _report(named, int(smtp[1]) if smtp else None, enhanced, said)
    found = classes.classify(report.smtp, report.enhanced, said)
    return [] if found is classes.REFUSED else [report]


def facts(raw: bytes, message_id: int | None) -> list[list[Fact]]:
    """Return what a mail tells: for each thing told, the ways its recipient is named, of which one may be true.

    `message_id` is the message whose return path it came to. What names no recipient tells nothing, but for a complaint
    that is proven by what we signed.
    """
    mail = mime.parse(raw)
    if mail is None:
        return []
    complaint = read_arf(mail, message_id)
    if complaint is not None:
        told = Fact(complaint.message_id, "complained", "arf", text=complaint.text)
        return [_ways(told, complaint.recipients) + ([told] if complaint.is_proven else [])]
    if message_id is None or _is_of_another(mail, message_id):
        return []
    return [
        _ways(Fact(message_id, report.kind, "dsn", report.text, report.smtp, report.enhanced), report.recipients)
        for report in read_dsn(mail)
        if report.recipients
    ]


def _ways(fact: Fact, recipients: tuple[str, ...]) -> list[Fact]:
    return [fact._replace(recipient=name) for name in recipients]


def apply(told: list[list[Fact]]) -> int:
    """Write what mail told, each thing in the first way that is true; returns how much of it is new."""
    writing()
    return sum(any(record.apply(fact) for fact in ways) for ways in told)


def _is_of_another(mail: Message, message_id: int) -> bool:
    """Return whether what came back is another message of ours than the one it was sent back for."""
    return bool(receipts.find_signed(mime.original(mail)).named - {message_id})
