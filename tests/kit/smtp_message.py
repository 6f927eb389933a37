"""The records of the SMTP server for tests: accepted messages, and every phase of its sessions."""

from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from functools import cached_property


@dataclass(frozen=True)
class Phase:
    """A step of a session, recorded before its reply."""

    time: float
    connection: int
    phase: str
    line: str
    mail_from: str | None = None
    rcpt_to: tuple[str, ...] = ()
    size: int | None = None


@dataclass
class Message:
    """An accepted message: its envelope, and its bytes without dot-stuffing, ending in CRLF.

    `invited_at` is the time right before the 354 reply, `begun_at` that of the first byte after it, and `time` that of
    the last.
    """

    mail_from: str
    rcpt_to: list[str]
    raw: bytes
    time: float
    connection: int
    mail_params: list[str] = field(default_factory=list)
    tls: bool = False
    user: str | None = None
    invited_at: float = 0.0
    begun_at: float = 0.0

    @cached_property
    def parsed(self) -> EmailMessage:
        """Return the message parsed by the standard library."""
        return message_from_bytes(self.raw, policy=policy.default)

    @property
    def to(self) -> str:
        """Return the only recipient. Raises ValueError if there are several."""
        (only,) = self.rcpt_to
        return only

    @property
    def subject(self) -> str:
        """Return the decoded subject."""
        return self.header("Subject") or ""

    def header(self, name: str) -> str | None:
        """Return a decoded header, or None if it is missing. Raises AssertionError if it is repeated."""
        values = self.headers(name)
        if len(values) > 1:
            raise AssertionError(f"header {name} stands {len(values)} times: {values}")
        return values[0] if values else None

    def headers(self, name: str) -> list[str]:
        """Return every decoded value of a header."""
        return [str(value) for value in self.parsed.get_all(name, [])]

    def raw_header(self, name: str) -> str | None:
        """Return a header as it was received, folded and encoded."""
        lower = name.lower()
        for key, value in message_from_bytes(self.raw, policy=policy.compat32).raw_items():
            if key.lower() == lower:
                return str(value)
        return None

    def text(self) -> str | None:
        """Return the decoded plain text part with LF line ends, or None."""
        return self._part("plain")

    def html(self) -> str | None:
        """Return the decoded HTML part with LF line ends, or None."""
        return self._part("html")

    def _part(self, subtype: str) -> str | None:
        for part in self.parsed.walk():
            if part.get_content_type() == f"text/{subtype}" and part.get_content_disposition() != "attachment":
                return str(part.get_content()).replace("\r\n", "\n")
        return None
