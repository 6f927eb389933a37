"""Divide a finished email into the parts that APIs with their own JSON ask for."""

import email
import email.errors
import email.header
import email.utils
import re
from collections.abc import Iterator
from email.message import Message
from typing import NamedTuple

from appliance.core.i18n import gettext_noop

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


def parse_parts(content: bytes) -> EmailParts:
    """Return the parts of an email, with decoded texts; what cannot be decoded stays as it is written.

    An attached email is one file. Raises ValueError if the parts are nested too deeply.
    """
    try:
        message = email.message_from_bytes(content)
        return _read_parts(message)
    except RecursionError:
        raise ValueError(gettext_noop("its parts are nested too deeply")) from None


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
            (name, _FOLD.sub(" ", str(value)))
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
        return data.decode(charset or "utf-8", "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def _to_attachment(part: Message, kind: str, data: bytes, html: str) -> Attachment:
    content_id = str(part["Content-ID"] or "").strip().strip("<>")
    is_inline = bool(content_id) and f"cid:{content_id}" in html
    name = str(part.get_filename() or "attachment").encode("utf-8", "replace").decode()
    return Attachment(name, kind, data, content_id if is_inline else None)


def _decode(value: str | None) -> str:
    """Return the text of a header whose encoded words are decoded (RFC 2047)."""
    text = _FOLD.sub(" ", str(value or ""))
    try:
        return str(email.header.make_header(email.header.decode_header(text)))
    except (LookupError, ValueError, email.errors.MessageError):
        return text


def _to_mailbox(value: str | None) -> Mailbox | None:
    name, address = email.utils.parseaddr(_FOLD.sub(" ", str(value or "")))
    return Mailbox(_decode(name), address) if address else None
