"""The way out: what every provider does, and the registry of them (one file and one line each)."""

from typing import NamedTuple, Protocol


class Envelope(NamedTuple):
    """A finished message with its two envelope addresses, as ASCII or, where the next hop takes it, UTF-8."""

    mail_from: str
    rcpt_to: str
    content: bytes


class Connection(Protocol):
    """An open conversation with the next hop; used by one thread at a time."""

    def hand_over(self, envelope: Envelope) -> str:
        """Hand a message over and answer the next hop's words of acceptance.

        Raises Temporary, Permanent, Ours, Unreachable (nothing was handed over) or Uncertain (it may have been).
        """

    def is_open(self) -> bool:
        """Say whether another message may follow on this connection."""

    def close(self) -> None:
        """End the conversation politely; never raises."""
