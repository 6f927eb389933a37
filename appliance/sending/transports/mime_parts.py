"""Divide a finished email into the parts that APIs with their own JSON ask for."""

import email
import email.errors
import re
from collections.abc import Iterator
from email.message import Message
from typing import NamedTuple

from appliance.core import addresses, mime_text
from appliance.core.i18n import gettext_noop

# The standard library raises these for some invalid headers of parts.
_UNREADABLE = (LookupError, ValueError, TypeError, AttributeError, AssertionError, email.errors.MessageError)
_FOLD = re.compile(r"\r?\n[ \t]+")
# Headers with a field of their own in every API, or that describe or sign our bytes, which the provider replaces.
_OTHER_HEADERS = frozenset((
    "from", "to", "cc", "bcc", "subject", "reply-to", "sender", "date", "return-path", "received", "mime-version",
    "dkim-signature", "message-id",
))  # fmt: skip


class Mailbox(NamedTuple):
    """A display name, which may be empty, and an address."""

    name: str
    address: str

    def format(self) -> str:
        """Return the mailbox as text, with the name in quotes; line breaks cannot occur."""
        escaped = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}" <{self.address}>' if self.name else self.address


class Attachment(NamedTuple):
    """A file of an email; one with a `content_id` (without brackets) is shown inside of the HTML."""

    name: str
    content_type: str
    content: bytes
    content_id: str | None


class EmailParts(NamedTuple):
    """The parts of an email; `headers` are those that no API has a field for."""

    sender: Mailbox
    reply_to: Mailbox | None
    subject: str
    text: str
    html: str | None
    headers: tuple[tuple[str, str], ...]
    attachments: tuple[Attachment, ...]


def unfold(value: object) -> str:
    """Return the value of a header, which may be missing, as one line (RFC 5322, 2.2.3)."""
    return _FOLD.sub(" ", str(value or ""))


def parse_parts(content: bytes) -> EmailParts:
    """Return the parts of an email, with decoded texts; what cannot be decoded stays as it is written.

    An attached email is one file. Raises ValueError if the parts are nested too deeply, or cannot be parsed.
    """
    try:
        message = email.message_from_bytes(content)
        return _read_parts(message)
    except RecursionError:
        raise ValueError(gettext_noop("its parts are nested too deeply")) from None
    except _UNREADABLE:
        raise ValueError(gettext_noop("its parts cannot be read")) from None


def read_headers(content: bytes) -> list[tuple[str, str]]:
    """Return name and value of each header of an email, decoded as far as that is possible."""
    headers = email.message_from_bytes(content[: _find_head_end(content)]).items()
    return [(name, mime_text.decode_words(unfold(value))) for name, value in headers]


def _find_head_end(content: bytes) -> int:
    ends = [position for position in (content.find(b"\r\n\r\n"), content.find(b"\n\n")) if position >= 0]
    return min(ends) if ends else len(content)


def read_bodies(content: bytes) -> tuple[str | None, str | None]:
    """Return the HTML and the plain text of an email; None for a missing one, or if the email cannot be parsed."""
    try:
        bodies, _ = _divide(email.message_from_bytes(content))
    except (*_UNREADABLE, RecursionError):
        return None, None
    return bodies.get("text/html"), bodies.get("text/plain")


def _divide(message: Message) -> tuple[dict[str, str], list[Message]]:
    """Return the texts by content type, and all other parts."""
    bodies: dict[str, str] = {}
    others = []
    for part in _walk(message):
        kind = part.get_content_type()
        if kind in ("text/plain", "text/html") and part.get_content_disposition() is None and kind not in bodies:
            bodies[kind] = mime_text.decode_bytes(_get_content(part), part.get_content_charset()).replace("\r\n", "\n")
        else:
            others.append(part)
    return bodies, others


def _read_parts(message: Message) -> EmailParts:
    bodies, files = _divide(message)
    html = bodies.get("text/html")
    return EmailParts(
        _to_mailbox(message["From"]) or Mailbox("", ""), _to_mailbox(message["Reply-To"]),
        mime_text.decode_words(unfold(message["Subject"])), bodies.get("text/plain", ""), html,
        tuple(
            (name, mime_text.replace_surrogates(unfold(value)))
            for name, value in message.items()
            if name.lower() not in _OTHER_HEADERS and not name.lower().startswith("content-")
        ),
        tuple(_to_attachment(part, html or "") for part in files),
    )  # fmt: skip


def _walk(message: Message) -> Iterator[Message]:
    """Yield the parts that contain no parts, and attached emails as a whole."""
    if message.get_content_maintype() == "multipart" and message.is_multipart():
        for part in message.get_payload():
            if isinstance(part, Message):
                yield from _walk(part)
    else:
        yield message


def _get_content(part: Message) -> bytes:
    if part.is_multipart():  # an attached email, or parts of a delivery report
        return b"\r\n".join(inner.as_bytes() for inner in part.get_payload() if isinstance(inner, Message))
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _to_attachment(part: Message, html: str) -> Attachment:
    content_id = mime_text.replace_surrogates(str(part["Content-ID"] or "")).strip().strip("<>")
    is_inline = bool(content_id) and f"cid:{content_id}" in html
    name = mime_text.read_filename(part) or "attachment"
    return Attachment(name, part.get_content_type(), _get_content(part), content_id if is_inline else None)


def _to_mailbox(value: str | None) -> Mailbox | None:
    try:
        mailboxes = addresses.read_mailboxes(unfold(value))
    except ValueError:
        return None
    return (
        Mailbox(mime_text.decode_words(mailboxes[0][0]), mime_text.replace_surrogates(mailboxes[0][1]))
        if mailboxes
        else None
    )
