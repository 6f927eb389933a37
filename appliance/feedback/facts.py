"""What somebody tells us about a message after it left, whichever way they tell it."""

from typing import Literal, NamedTuple

Kind = Literal["delivered", "bounced", "soft_bounced", "complained"]


class Fact(NamedTuple):
    """One thing said about one message; believed only as far as `record.apply` can check it.

    `recipient` is the address as reported (None where the report withholds it), `key` is the reporter's own name for
    this report, under which it counts once, and `at` its moment in ms.
    """

    message_id: int
    kind: Kind
    source: str  # dsn, arf, smtp, hook, ses, postmark, mailgun, sendgrid, capture
    text: str = ""
    smtp: int | None = None
    enhanced: str | None = None
    recipient: str | None = None
    key: str | None = None
    at: int | None = None
