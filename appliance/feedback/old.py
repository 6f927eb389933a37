"""Tells bounces without machine-readable fields from all else that comes to a return path.

qmail, Exim, old Exchange, Sendmail, Domino and many others wrote for people. A bounce comes from a mail system, says so
in its subject or first words, and is final; an absent person's answer, a delay and a challenge are not.
"""

import re
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message

from appliance.feedback import mime

_MAX_CHARACTERS = 20_000
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
            words = mime.text(part)[: 2 * _MAX_CHARACTERS]
            found.append(re.sub(r"<[a-zA-Z/!][^<>]{0,400}>", " ", words) if kind == "text/html" else words)
            if kind == "text/plain" and words.strip():
                break
    text = "\n".join(found)[:_MAX_CHARACTERS]
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
