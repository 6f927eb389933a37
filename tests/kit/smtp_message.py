"""What the SMTP server of the kit remembers: the messages it took, and every phase it went through."""

from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from functools import cached_property


@dataclass(frozen=True)
class Phase:
    """One step of a conversation, noted before it was answered."""

    time: float
    connection: int
    phase: str
    line: str
    mail_from: str | None = None
    rcpt_to: tuple[str, ...] = ()
    size: int | None = None


@dataclass
class Message:
    """A message as it was taken: its envelope, and its bytes without dot-stuffing, ending in CRLF."""

    mail_from: str
    rcpt_to: list[str]
    raw: bytes
    time: float
    connection: int
    mail_params: list[str] = field(default_factory=list)
    tls: bool = False
    user: str | None = None

    @cached_property
    def parsed(self) -> EmailMessage:
        """Return the message as the standard library reads it."""
        return message_from_bytes(self.raw, policy=policy.default)

    @property
    def to(self) -> str:
        """Return the only recipient; more than one is an error."""
        (only,) = self.rcpt_to
        return only

    @property
    def subject(self) -> str:
        """Return the decoded subject."""
        return self.header("Subject") or ""

    def header(self, name: str) -> str | None:
        """Return one decoded header, None when it is missing; twice is an error."""
        values = self.headers(name)
        if len(values) > 1:
            raise AssertionError(f"header {name} stands {len(values)} times: {values}")
        return values[0] if values else None

    def headers(self, name: str) -> list[str]:
        """Return every decoded value of a header."""
        return [str(value) for value in self.parsed.get_all(name, [])]

    def raw_header(self, name: str) -> str | None:
        """Return a header as it travelled, folded and encoded."""
        lower = name.lower()
        for key, value in message_from_bytes(self.raw, policy=policy.compat32).raw_items():
            if key.lower() == lower:
                return str(value)
        return None

    def text(self) -> str | None:
        """Return the decoded plain text part with lines ending in LF, None without one."""
        return self._part("plain")

    def html(self) -> str | None:
        """Return the decoded HTML part with lines ending in LF, None without one."""
        return self._part("html")

    def _part(self, subtype: str) -> str | None:
        for part in self.parsed.walk():
            if part.get_content_type() == f"text/{subtype}" and part.get_content_disposition() != "attachment":
                return str(part.get_content()).replace("\r\n", "\n")
        return None
