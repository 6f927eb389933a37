"""What mailbox providers judge a sender by: how much came back, and how much was called spam."""

from typing import NamedTuple

from appliance import clock
from appliance.db.dialect.hints import by_index
from appliance.db.open import rows
from appliance.rested import Rested

_DAY_MS = 86_400_000
_SQL = (
    f"SELECT event, count(*) FROM event {by_index('event_of_name')} WHERE account_id = ? AND event IN "
    "('email_sent', 'email_bounced', 'email_complained', 'sms_sent', 'sms_failed') AND created_at >= ? AND test = 0 "
    "GROUP BY event"
)
_known: Rested["Health"] = Rested(least=10)


class Health(NamedTuple):
    """What was handed over in so many days, and what became of it."""

    days: int
    sent: int
    bounced: int
    complained: int
    texts: int
    texts_failed: int


def of(account_id: int, days: int = 30) -> Health:
    """Return how the mail of an account fared lately."""

    def count() -> Health:
        found: dict[str, int] = dict(rows(_SQL, (account_id, clock.now_ms() - days * _DAY_MS)))
        names = ("email_sent", "email_bounced", "email_complained", "sms_sent", "sms_failed")
        return Health(days, *(found.get(name, 0) for name in names))

    return _known.get((account_id, days), count)
