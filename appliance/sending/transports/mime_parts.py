"""Divide a finished email into the parts that APIs with their own JSON ask for."""

import codecs
import email
import email.errors
import email.header
import re
from collections.abc import Iterator
from email.message import Message
from typing import NamedTuple

from appliance.core import addresses
from appliance.core.i18n import gettext_noop

_FOLD = re.compile(r"\r?\n[ \t]+")
# Headers with a field of their own in every API, or that describe or sign our bytes, which the provider replaces.
_OTHER_HEADERS = frozenset((
    "from", "to", "cc", "bcc", "subject", "reply-to", "sender", "date", "return-path", "received", "mime-version",
    "dkim-signature", "message-id",
))  # fmt: skip
# Codecs of Python that decode bytes to text, and are no charsets of email.
_NO_CHARSETS = frozenset(("idna", "punycode", "undefined", "unicode-escape", "unicode_escape", "raw-unicode-escape"))


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


def parse_parts(content: bytes) -> EmailParts:
    """Return the parts of an email, with decoded texts; what cannot be decoded stays as it is written.

    An attached email is one file. Raises ValueError if the parts are nested too deeply, or cannot be parsed.
    """
    try:
        message = email.message_from_bytes(content)
        return _read_parts(message)
    except RecursionError:
        raise ValueError(gettext_noop("its parts are nested too deeply")) from None
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError, email.errors.MessageError):
        # The standard library raises these for some invalid headers of parts.
        raise ValueError(gettext_noop("its parts cannot be read")) from None


def _read_parts(message: Message) -> EmailParts:
    bodies: dict[str, str] = {}
    attachments = []
    for part in _walk(message):
        kind, data = part.get_content_type(), _get_content(part)
        if kind in ("text/plain", "text/html") and part.get_content_disposition() is None and kind not in bodies:
            bodies[kind] = _decode_body(data, part.get_content_charset()).replace("\r\n", "\n")
        else:
            attachments.append((part, kind, data))
    html = bodies.get("text/html")
    return EmailParts(
        _to_mailbox(message["From"]) or Mailbox("", ""), _to_mailbox(message["Reply-To"]),
        _decode(message["Subject"]), bodies.get("text/plain", ""), html,
        tuple(
            (name, _clean(_FOLD.sub(" ", str(value))))
            for name, value in message.items()
            if name.lower() not in _OTHER_HEADERS and not name.lower().startswith("content-")
        ),
        tuple(_to_attachment(*attachment, html or "") for attachment in attachments),
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


def _decode_body(data: bytes, charset: str | None) -> str:
    try:
        name = codecs.lookup(charset or "utf-8").name
        return _clean(data.decode("utf-8" if name in _NO_CHARSETS else name, "replace"))
    except (LookupError, ValueError):
        return data.decode("utf-8", "replace")


def _clean(text: str) -> str:
    """Return a text without lone surrogates, which JSON and UTF-8 cannot contain."""
    return text.encode("utf-8", "replace").decode()


def _to_attachment(part: Message, kind: str, data: bytes, html: str) -> Attachment:
    content_id = _clean(str(part["Content-ID"] or "")).strip().strip("<>")
    is_inline = bool(content_id) and f"cid:{content_id}" in html
    return Attachment(_get_filename(part), kind, data, content_id if is_inline else None)


def _get_filename(part: Message) -> str:
    try:
        return _clean(str(part.get_filename() or "attachment"))
    except (LookupError, ValueError):
        return "attachment"  # Its charset or its numbering is invalid (RFC 2231).


def _decode(value: str | None) -> str:
    """Return the text of a header whose encoded words are decoded (RFC 2047)."""
    text = _FOLD.sub(" ", str(value or ""))
    try:
        text = str(email.header.make_header(email.header.decode_header(text)))
    except (LookupError, ValueError, email.errors.MessageError):
        pass  # An unknown charset or invalid base64: the text stays as it is written.
    return _clean(text)


def _to_mailbox(value: str | None) -> Mailbox | None:
    try:
        mailboxes = addresses.read_mailboxes(_FOLD.sub(" ", str(value or "")))
    except ValueError:
        return None
    return Mailbox(_decode(mailboxes[0][0]), _clean(mailboxes[0][1])) if mailboxes else None
