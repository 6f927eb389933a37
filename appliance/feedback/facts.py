"""What somebody tells us about a message after it left, whichever way they tell it."""

from typing import Literal, NamedTuple

from appliance.delivery.classes import Class

Kind = Literal["delivered", "bounced", "soft_bounced", "complained"]


class Fact(NamedTuple):
    """One thing said about one message; believed only as far as `record.apply` can check it.

    `recipient` is the address as reported (None only where nobody need be named, see `record`), `key` is the reporter's
    own name for this report, under which it counts once, and `at` its moment in ms. Of an SMS, `code` is its provider's
    own, and `judged` what that means.
    """

    message_id: int
    kind: Kind
    source: str  # dsn, arf, smtp, hook, ses, postmark, mailgun, sendgrid, capture, and the providers of SMS
    text: str = ""
    smtp: int | None = None
    enhanced: str | None = None
    recipient: str | None = None
    key: str | None = None
    at: int | None = None
    code: str | None = None
    judged: Class | None = None
