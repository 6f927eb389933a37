"""Parse bounces, delivery status notifications and spam complaints in returned mail into delivery reports.

The kind of a mail is derived from its content, not from the address to which it was sent.
"""

import base64
import binascii
import quopri
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import HeaderParser
from functools import cache, partial
from itertools import islice
from typing import Literal, NamedTuple

from appliance.core import addresses
from appliance.inbound import delivery_reports
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.sending.delivery import bounce_classes
from appliance.sending.messages import links
from appliance.storage.transactions import require_write_transaction

# The standard library parses untrusted mail without limits, so the limits below are checked first. A mail that is too
# large, too deep or has too many parts is ignored; no input raises an error.

MAX_BYTES, MAX_DEPTH, MAX_PARTS = 1024 * 1024, 10, 50
# The time to parse a mail grows with the number of its lines (headers), blank lines (blocks) and lines of dashes
# (parts).
_MAX_LINES, _MAX_BLANK, _MAX_LINES_OF_DASHES = 30_000, 3_000, 500
_MAX_TYPE_BYTES, _MAX_HEAD_CHARACTERS, _MAX_HEADERS = 2_000, 50_000, 300
ORIGINAL_TYPES = ("message/rfc822", "text/rfc822-headers", "message/global", "message/global-headers")
# Matches only from the beginning of a word and without backtracking, so that no text is slow to search.
ADDRESS = re.compile(r"(?<![^\s<>;,()\"\[\]:@])[^\s<>;,()\"\[\]:@]{1,64}+@[^\s<>;,()\"\[\]:@]{1,255}")
_CONTENT_HEADERS = re.compile(rb"^content-[a-z-]{1,40}:[^\n]*(?:\n[ \t][^\n]*)*", re.IGNORECASE | re.MULTILINE)
_NESTING_TYPES = re.compile(rb"multipart/|message/", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-?8|us-ascii|ascii|iso-8859-\d{1,2}|windows-125\d|cp125\d|koi8-[ru]|iso-2022-(?:jp|kr)|shift_jis|euc-(?:jp|kr)|"
    r"gb2312|gbk|gb18030|big5",
    re.IGNORECASE,
)


def parse_mail(raw: bytes) -> Message | None:
    """Parse a mail, or return None if it exceeds `MAX_BYTES`, `MAX_DEPTH` or `MAX_PARTS`.

    A mail with too many lines is truncated. That loses no report, because the report comes before the returned message.
    """
    if len(raw) > MAX_BYTES:
        return None
    mail = message_from_bytes(_truncate(raw))
    return (
        mail if len(list(walk_parts(mail, MAX_PARTS + 1))) <= MAX_PARTS and _nesting_depth(mail) <= MAX_DEPTH else None
    )


def _truncate(raw: bytes) -> bytes:
    """Return the longest beginning of a mail within the limits of lines and content headers."""
    for separator, limit in ((b"\n", _MAX_LINES), (b"\n\r\n", _MAX_BLANK), (b"\n--", _MAX_LINES_OF_DASHES)):
        if raw.count(separator) > limit:
            positions = (match.start() for match in re.finditer(re.escape(separator), raw))
            raw = raw[: next(islice(positions, limit, None))]
    nests = 0
    for header in _CONTENT_HEADERS.finditer(raw):
        # Only headers are counted, because URLs may contain these words, too.
        nests += bool(_NESTING_TYPES.search(header[0]))
        if len(header[0]) > _MAX_TYPE_BYTES or nests > 2 * MAX_PARTS:
            return raw[: header.start()]
    return raw


def walk_parts(mail: Message, max_parts: int = MAX_PARTS, into_messages: bool = True) -> Iterator[Message]:
    """Yield a mail and its parts, each part before those that it contains, at most `max_parts` in all.

    With `into_messages=False`, the parts of attached messages are left out.
    """
    waiting = [mail]
    for _ in range(max_parts):
        if not waiting:
            return
        part = waiting.pop(0)
        yield part
        if into_messages or part.get_content_maintype() != "message":
            waiting = _child_parts(part) + waiting


def _nesting_depth(mail: Message) -> int:
    deepest, waiting = 0, [(mail, 1)]
    while waiting:
        part, depth = waiting.pop()
        deepest = max(deepest, depth)
        if depth <= MAX_DEPTH:
            waiting += [(child, depth + 1) for child in _child_parts(part)]
    return deepest


def _child_parts(part: Message) -> list[Message]:
    """Return the parts of a multipart or attached message, and [] for any other part.

    The payload of any other part is not read here: the library would decode it with any codec that the mail names, and
    some codecs raise errors or never end.
    """
    payload = part.get_payload() if part.is_multipart() else []
    return [child for child in payload if isinstance(child, Message)] if isinstance(payload, list) else []


def find_part(mail: Message, *types: str) -> Message | None:
    """Return the first part that has one of the content types, or None.

    Parts of attached messages are ignored, even if they are reports, because people forward mail.
    """
    return next((part for part in walk_parts(mail, into_messages=False) if part.get_content_type() in types), None)


def get_header(part: Message, name: str) -> str:
    """Return the first `_MAX_TYPE_BYTES` characters of a header as one line, not decoded; "" if it is missing."""
    return " ".join(str(part.get(name, "")).split())[:_MAX_TYPE_BYTES]


def get_text(part: Message) -> str:
    """Return the decoded text of a part; for a multipart part, the source (headers and text) of the parts in it."""
    if part.is_multipart():
        source = _clean_text("\n\n".join(_part_source(child) for child in _child_parts(part)))
        return _decode_source(source, get_header(part, "Content-Transfer-Encoding").lower())
    return decode_text(_payload_bytes(part), str(part.get_content_charset() or "utf-8")).replace("\r\n", "\n")


def _clean_text(text: str) -> str:
    """Return a text that can be stored: NUL is removed, and escaped bytes above 127 in headers are decoded as UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\0", "")


def decode_text(raw: bytes, charset: str) -> str:
    """Decode bytes in one of `_CHARSETS`, or as UTF-8 if `charset` is another; replace invalid bytes and remove NUL."""
    return raw.decode(charset if _CHARSETS.fullmatch(charset) else "utf-8", "replace").replace("\0", "")


def _payload_bytes(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def original_headers(mail: Message) -> list[tuple[str, str]]:
    """Return the headers of the returned message as (name in lower case, value), or [] if there is none."""
    part = find_part(mail, *ORIGINAL_TYPES)
    if part is None:
        return []
    original = next(iter(_child_parts(part)), None)
    if original is None or not original.keys():
        original = HeaderParser().parsestr(get_text(part).lstrip("\n")[:_MAX_HEAD_CHARACTERS])
    headers = [(name.lower(), " ".join(_clean_text(str(value)).split())) for name, value in original.raw_items()]
    return [(name, value[:_MAX_TYPE_BYTES]) for name, value in headers[:_MAX_HEADERS]]


def _part_source(part: Message) -> str:
    lines = [f"{name}: {value}" for name, value in part.raw_items()]
    content = "\n\n".join(_part_source(child) for child in _child_parts(part))
    if not part.is_multipart():
        content = _payload_bytes(part).decode("utf-8", "replace")
    return "\n".join(lines).replace("\r\n", "\n") + "\n\n" + content.replace("\r\n", "\n")


def _decode_source(source: str, encoding: str) -> str:
    """Decode the source of a part that contains other parts, or return it unchanged if it is not encoded.

    No standard allows encoding such a part, but some systems do it.
    """
    try:
        match encoding:
            case "base64":
                raw = base64.b64decode("".join(source.split()))
            case "quoted-printable":
                raw = quopri.decodestring(source.encode())
            case _:
                return source
    except (binascii.Error, ValueError):
        return source
    return decode_text(raw, "utf-8").replace("\r\n", "\n")


def parse_blocks(fields: str) -> list[dict[str, str]]:
    """Return the blocks of fields in a report, each as a dict from field name (lower case) to first value, unfolded."""
    blocks: list[dict[str, str]] = []
    is_new_block, last_name = True, ""
    for line in fields.split("\n")[:2_000]:
        if not line.strip():
            is_new_block = True
            continue
        if line[0] in " \t" and blocks and last_name and not is_new_block:
            blocks[-1][last_name] = f"{blocks[-1][last_name]} {line.strip()}"[:4_000]
            continue
        name, colon, value = line.partition(":")
        if not colon or " " in name.strip():
            continue
        if is_new_block:
            blocks.append({})
            is_new_block = False
        last_name = name.strip().lower()
        blocks[-1].setdefault(last_name, value.strip()[:4_000])
    return [block for block in blocks if block]


# This service signs its return paths, Message-IDs and links. In returned mail a valid signature names a message, and
# some also prove that the sender of the mail had it.
# Every reply quotes the Message-ID, and most quote the unsubscribe link, so these two only name the message. The return
# path and the unsubscribe address are only in headers, so only systems that received the message itself know them.

_SIGNED_HEADERS = ("return-path", "list-unsubscribe", "received", "delivered-to", "x-original-to", "errors-to")


class SignedMessages(NamedTuple):
    """The ids of messages that valid signatures of this service in returned mail name.

    `proven_ids` are those named by a return path or unsubscribe address, which only a system that received the message
    knows.
    """

    named_ids: frozenset[int]
    proven_ids: frozenset[int]


def find_signed(headers: list[tuple[str, str]], text: str = "") -> SignedMessages:
    """Return the messages that valid signatures name in the headers of a returned message and in a text."""
    signed_text = "\n".join([text, *(value for name, value in headers if name in _SIGNED_HEADERS)])
    proven = links.find_signed_addresses(signed_text)
    message_ids = (links.read_message_id(value) for name, value in headers if name == "message-id")
    named = {message_id for message_id in message_ids if message_id is not None}
    return SignedMessages(frozenset(proven | named | links.find_unsubscribe_urls(signed_text)), frozenset(proven))


# Spam complaints come in the format of RFC 5965, or in that of Microsoft (D29).
# Providers often redact the address (RFC 6590), so our signatures show which message a complaint is about. A complaint
# has consequences only if a signature proves it (`SignedMessages.proven_ids`), because everybody who got a reply to a
# message knows its Message-ID and its recipient. A complaint that only names the recipient is recorded as unverified.

# The types of complaints by people. `not-spam` revokes a complaint; `virus` and `other` come from machines.
_COMPLAINT_TYPES = ("abuse", "fraud", "opt-out", "opt-out-list")
_RECIPIENT_HEADERS = ("x-hmxmroriginalrecipient", "delivered-to", "x-original-to", "to")
_MAX_RECIPIENTS, _MAX_RECIPIENT_CHARACTERS = 10, 10_000


class Complaint(NamedTuple):
    """A spam complaint about one of our messages.

    `text` is stored as evidence. `recipients` are the addresses named in the complaint. `is_proven` says that a
    signature proves it; any other complaint is unverified, and one of `recipients` must be the recipient of the
    message.
    """

    message_id: int
    text: str
    recipients: tuple[str, ...]
    is_proven: bool


def parse_complaint(mail: Message, message_id: int | None) -> Complaint | None:
    """Return the complaint in a mail, or None if the mail is not a complaint about one of our messages.

    `message_id` is the message whose return path received the mail, or None if the mail came to another address.
    """
    report = find_part(mail, "message/feedback-report")
    original = original_headers(mail)
    if report is None:
        # Microsoft's Junk Mail Reporting Program sends the original message with an additional header.
        is_jmrp = any(name == "x-hmxmroriginalrecipient" for name, _ in original)
        return _build_complaint(message_id, original, {}, "abuse reported through Microsoft JMRP") if is_jmrp else None
    fields = next(iter(parse_blocks(get_text(report))), {})
    kind = fields.get("feedback-type", "").split("(")[0].strip().lower()
    if kind not in _COMPLAINT_TYPES:
        return None
    words = f"{kind} reported through {fields.get('user-agent', 'an unnamed service')[:200]}"
    return _build_complaint(message_id, original, fields, words)


def _build_complaint(
    arrived_at: int | None, original: list[tuple[str, str]], fields: dict[str, str], text: str
) -> Complaint | None:
    """Return a complaint, or None if the signatures do not name exactly one message.

    None is also returned if no signature proves the complaint and no recipient is named. `arrived_at` is the id of the
    message whose return path received the mail, or None.
    """
    senders = " ".join(fields.get(name, "") for name in ("original-mail-from", "original-envelope-id"))
    signed = find_signed(original, senders)
    return_path_ids = frozenset() if arrived_at is None else frozenset({arrived_at})
    message_ids, proven = signed.named_ids | return_path_ids, signed.proven_ids | return_path_ids
    recipient_text = "\n".join(
        [fields.get("original-rcpt-to", ""), *(value for name, value in original if name in _RECIPIENT_HEADERS)]
    )
    names = ADDRESS.findall(recipient_text[:_MAX_RECIPIENT_CHARACTERS])
    recipients = tuple(dict.fromkeys(names))[:_MAX_RECIPIENTS]
    if len(message_ids) != 1 or not (proven or recipients):
        return None
    return Complaint(next(iter(message_ids)), text, recipients, bool(proven))


# Bounces without machine-readable fields must be distinguished from other mail to a return path.
#
# qmail, Exim, old Exchange, Sendmail, Domino and many others write such bounces for people. A bounce comes from a mail
# system, says so in its subject or text, and is final. Out-of-office replies, delays and challenges are not.

_MAX_BOUNCE_CHARACTERS = 20_000
_SYSTEM_SENDER = re.compile(
    r"mailer-?daemon|postmaster|mail delivery (?:sub)?system|mail administrator|mailadmin|system administrator|"
    r"systemadministrator|mdaemon|mmdf|noreply-?bounce|bounce",
    re.IGNORECASE,
)
_BOUNCE_SUBJECT = re.compile(
    r"undeliver|returned (?:mail|to sender|e-?mail)|failure notice|"
    r"delivery (?:status )?(?:notification|fail\w*|problem)|"
    r"delivery .{0,30}fail|mail (?:delivery|system) (?:fail|error)|non[- ]?deliver|"
    r"nondeliverable|message not delivered|"
    r"unzustellbar|nicht zugestellt|nicht zugestellbar|zustellung fehlgeschlagen|fehlgeschlagen|non remis|"
    r"échec|echec|no (?:se )?(?:ha )?(?:podido )?entrega|no entregado|devuelto|mancata consegna|mancato recapito|"
    r"não entregue|falha na entrega|недоставлен|не доставлен|配信|退信|送信エラー",
    re.IGNORECASE,
)
_BOUNCE_TEXT = re.compile(
    r"this is the qmail-send program|message was created automatically by mail delivery software|"
    r"permanent (?:fatal )?error|could not be delivered to|was not delivered to|did not reach the following|"
    r"(?:unable|not able) to deliver|delivery to the following recipients? failed|failed permanently|"
    r"(?:undeliverable|permanent failure)|returned message (?:follows|below)|delivery has failed|"
    r"konnte nicht zugestellt werden|n['’]a pas pu être (?:remis|délivré)|no se (?:ha podido|pudo) entregar|"
    r"non è stato possibile|impossibile recapitare|não (?:foi|pôde ser) entregue|не (?:удалось|может быть) достав",
    re.IGNORECASE,
)
_DELAYED = re.compile(
    r"\bdelay|\bwarning\b|still (?:being )?(?:trying|retried|attempt)|"
    r"will (?:keep|continue) (?:trying|to try|to be)|"
    r"will be retried|not (?:yet )?been delivered yet|"
    r"no action is required|you do not need to resend|verzöger|retard[ée]",
    re.IGNORECASE,
)
# Matches the beginning of the subject of a reply or forwarded mail, in the languages of the patterns above.
_REPLY_SUBJECT = re.compile(
    r"^(?:auto(?:mati\w+)?[ :-]|(?:re|aw|antw|sv|vs|rv|res|odp|ynt|r|fwd?|wg|tr|enc|doorst|vb|i|回复|转发|答复)"
    r"(?:\[\d+\])?\s?[:：]|out of (?:the )?office|abwesen|vacation|ooo\b|away\b|r[ée]ponse auto|absence|"
    r"respuesta auto|fuera de|risposta auto|autosvar)",
    re.IGNORECASE,
)
# Automatic replies have one of these headers in addition to `Auto-Submitted`, or instead of it.
_AUTO_REPLY_HEADERS = ("X-Autoreply", "X-Autorespond", "X-Auto-Reply")
# Matches the line with which the returned message begins in the text of a bounce.
_ORIGINAL = re.compile(
    r"^-{2,}+.{0,40}(?:copy of|original message|returned message|message follows|undeliverable message|"
    r"headers of the|ursprüngliche nachricht|message d['’]origine|mensaje original).*$|^return-path:|^received: |"
    r"^original message headers:|^x-original-to:",
    re.IGNORECASE | re.MULTILINE,
)


def bounce_text(mail: Message) -> str:
    """Return up to `_MAX_BOUNCE_CHARACTERS` of the text of a mail, without the returned message."""
    texts = []
    for part in walk_parts(mail):
        kind = part.get_content_type()
        if kind in (*ORIGINAL_TYPES, "message/partial"):
            break
        # A multipart mail whose parts the parser does not recognise is read as plain text.
        if not part.is_multipart() and kind.startswith(("text/", "multipart/")):
            part_text = get_text(part)[: 2 * _MAX_BOUNCE_CHARACTERS]
            texts.append(re.sub(r"<[a-zA-Z/!][^<>]{0,400}>", " ", part_text) if kind == "text/html" else part_text)
            if kind == "text/plain" and part_text.strip():
                break
    text = "\n".join(texts)[:_MAX_BOUNCE_CHARACTERS]
    original = _ORIGINAL.search(text, 1)
    return text[: original.start()] if original else text


def is_bounce(mail: Message, text: str) -> bool:
    """Return whether a mail without report fields is a final bounce from a mail system.

    At least two of its sender, subject and text must be typical of a bounce. `text` is the `bounce_text` of the mail.
    """
    subject, sender = _decode_header(get_header(mail, "Subject")), _decode_header(get_header(mail, "From"))
    precedence = get_header(mail, "Precedence").lower()
    is_auto_reply = (
        get_header(mail, "Auto-Submitted").lower().startswith("auto-replied")
        or precedence == "auto_reply"
        or any(name in mail for name in _AUTO_REPLY_HEADERS)
    )
    if (
        (is_auto_reply and not _SYSTEM_SENDER.search(sender))
        or _REPLY_SUBJECT.search(subject)
        or precedence in ("bulk", "list")
    ):
        return False
    has_failed_recipients = bool(get_header(mail, "X-Failed-Recipients"))
    signs = (
        bool(_SYSTEM_SENDER.search(sender)),
        bool(_BOUNCE_SUBJECT.search(subject)),
        bool(_BOUNCE_TEXT.search(text)) or has_failed_recipients,
    )
    return sum(signs) >= 2 and not _DELAYED.search(subject) and not _DELAYED.search(text[:2_000])


def _decode_header(value: str) -> str:
    """Decode the encoded words of a header (RFC 2047), or return it unchanged if they are invalid."""
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError):
        return value
    return "".join(
        chunk if isinstance(chunk, str) else decode_text(chunk, charset or "utf-8") for chunk, charset in pieces
    )


# Delivery status notifications are parsed by their fields (RFC 3464), bounces in other formats by their text (D28).
# The final result for one recipient becomes a `RecipientReport`. Reports that a message is delayed, relayed or expanded
# to a list are not final and are left out, as are the replies of people and automatic replies (RFC 3834).

_STATUS_TYPES = ("message/delivery-status", "message/global-delivery-status")
_SMTP = re.compile(r"(?<![\d.])([245]\d\d)(?![\d.])")
_ENHANCED = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)")
_XTEXT = re.compile(r"\+([0-9A-F]{2})")
_MAX_DSN_RECIPIENTS = 50
_MAX_REPORT_CHARACTERS = 1_000
# The text of a rejection is searched with many patterns, for each recipient.
_MAX_DIAGNOSTIC_CHARACTERS = 2_000


class RecipientReport(NamedTuple):
    """The final result for one recipient: all spellings of the address, and the SMTP codes and text of the server."""

    kind: Literal["bounced", "soft_bounced", "delivered"]
    recipients: tuple[str, ...]
    smtp: int | None
    enhanced: str | None
    text: str


def parse_dsn(mail: Message) -> list[RecipientReport]:
    """Return the results in a mail, one for each recipient; [] if it is neither a status notification nor a bounce."""
    part = find_part(mail, *_STATUS_TYPES)
    if part is not None:
        return _from_fields(parse_blocks(get_text(part)), bounce_text(mail))
    if mail.get_content_type() == "multipart/report" and str(mail.get_param("report-type")).lower() in (
        "disposition-notification", "feedback-report",
    ):  # fmt: skip
        return []
    text = bounce_text(mail)
    reports = _from_fields(parse_blocks(text), text) if "final-recipient:" in text.lower() else []
    return reports or _from_text(mail, text)


def _from_fields(blocks: list[dict[str, str]], text: str) -> list[RecipientReport]:
    """Return the results in the blocks of a report; `text` is the `bounce_text` of the mail."""
    reports = []
    for block in blocks[: _MAX_DSN_RECIPIENTS + 1]:
        if not ("action" in block or "final-recipient" in block or "original-recipient" in block):
            continue
        action = block.get("action", "").split("(")[0].strip().lower()
        status = next(iter(_ENHANCED.findall(block.get("status", ""))), None)
        if action == "delivered":
            reports.append(RecipientReport("delivered", _recipients_of(block), None, status, ""))
        elif action in ("failed", "failure") or (not action and (status or "").startswith("5")):
            reports.append(_failure_report(block, status, text))
    return reports


def _failure_report(block: dict[str, str], status: str | None, text: str) -> RecipientReport:
    diagnostic = block.get("diagnostic-code", "")[:_MAX_DIAGNOSTIC_CHARACTERS]
    kind, semicolon, remainder = diagnostic.partition(";")
    diagnostic = " ".join((remainder if semicolon and " " not in kind.strip() else diagnostic).split())
    smtp = _SMTP.search(diagnostic)
    own_code = next((code for code in _ENHANCED.findall(diagnostic) if not code.endswith(".0.0")), None)
    # The text of the server that rejected the message is more precise than the status that a relay derived from it.
    enhanced = own_code or (status if status is not None and not status.endswith(".0.0") else None)
    if not diagnostic or (smtp is None and enhanced is None):
        diagnostic = " ".join(f"{diagnostic} {text[:_MAX_REPORT_CHARACTERS]}".split())
    return _build_report(_recipients_of(block), int(smtp[1]) if smtp else None, enhanced or status, diagnostic)


def _build_report(recipients: tuple[str, ...], smtp: int | None, enhanced: str | None, text: str) -> RecipientReport:
    bounce_class = bounce_classes.classify(
        smtp, None if enhanced is None or enhanced.endswith(".0.0") else enhanced, text
    )
    kind: Literal["bounced", "soft_bounced"] = "bounced" if bounce_class is bounce_classes.HARD else "soft_bounced"
    return RecipientReport(kind, recipients, smtp, enhanced, text[:_MAX_REPORT_CHARACTERS])


def _recipients_of(block: dict[str, str]) -> tuple[str, ...]:
    """Return the addresses in the recipient fields of a block, as written and with xtext (RFC 3461) decoded."""
    names: dict[str, None] = {}
    for name in ("final-recipient", "original-recipient", "x-actual-recipient"):
        _, semicolon, value = block.get(name, "").partition(";")
        value = value if semicolon else block.get(name, "")
        for spelling in (value, _XTEXT.sub(lambda code: chr(int(code[1], 16)), value)):
            names |= dict.fromkeys(ADDRESS.findall(addresses.strip_needless_quotes(spelling))[:2])
    return tuple(names)


def _from_text(mail: Message, text: str) -> list[RecipientReport]:
    """Return the result in a bounce without fields, with the addresses in it as spellings of the recipient.

    Return [] if the mail is not a bounce, or if its text matches no known reason.
    """
    if not is_bounce(mail, text):
        return []
    failed = get_header(mail, "X-Failed-Recipients")
    recipients = tuple(dict.fromkeys(ADDRESS.findall(addresses.strip_needless_quotes(failed or text))))[
        :_MAX_DSN_RECIPIENTS
    ]
    line = " ".join(text.split())
    smtp = _SMTP.search(line)
    enhanced = next(iter(_ENHANCED.findall(line)), None)
    report = _build_report(recipients, int(smtp[1]) if smtp else None, enhanced, line)
    bounce_class = bounce_classes.classify(report.smtp, report.enhanced, line)
    return [] if bounce_class is bounce_classes.REFUSED else [report]


def parse_reports(raw: bytes, *message_ids: int | None) -> list[list[DeliveryReport]]:
    """Return the reports in a mail, each as a list of candidates, one for each address that may be its recipient.

    `message_ids` are the messages whose return paths received the mail, and None if it came to another address of ours.
    A report without a recipient is left out, unless it is a complaint that a signature proves. Bounces are only
    accepted at the return path.
    """
    mail = parse_mail(raw) if message_ids else None
    if mail is None:
        return []
    named_ids = find_signed(original_headers(mail)).named_ids
    # Parsed at most once, however many of our addresses received the mail.
    parse_results = cache(partial(parse_dsn, mail))
    reports: list[list[DeliveryReport]] = []
    for message_id in dict.fromkeys(message_ids):
        complaint = parse_complaint(mail, message_id)
        if complaint is not None:
            reports.append(_list_candidates(complaint))
        # A bounce whose original message is one of ours, but not the one with this return path, is ignored.
        elif message_id is not None and not named_ids - {message_id}:
            reports += [
                _for_recipients(
                    DeliveryReport(message_id, result.kind, "dsn", result.text, result.smtp, result.enhanced),
                    result.recipients,
                )
                for result in parse_results()
                if result.recipients
            ]
    return reports


def _list_candidates(complaint: Complaint) -> list[DeliveryReport]:
    if complaint.is_proven:
        proven_report = DeliveryReport(complaint.message_id, "complained", "arf", text=complaint.text)
        return [*_for_recipients(proven_report, complaint.recipients), proven_report]
    # The key limits the unverified complaints about a message to one.
    report = DeliveryReport(
        complaint.message_id, "unverified_complaint", "arf", complaint.text, key=f"unverified:{complaint.message_id}"
    )
    return _for_recipients(report, complaint.recipients)


def _for_recipients(report: DeliveryReport, recipients: tuple[str, ...]) -> list[DeliveryReport]:
    return [report._replace(recipient=name) for name in recipients]


def record_reports(reports: list[list[DeliveryReport]]) -> int:
    """Record the first acceptable candidate of each report; return the number of reports that changed something."""
    require_write_transaction()
    return sum(any(delivery_reports.record_report(report) for report in candidates) for candidates in reports)
