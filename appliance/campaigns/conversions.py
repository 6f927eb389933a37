"""What people did after a click, by the events of the account's own: orders, bookings, whatever a program records."""

from typing import NamedTuple

from appliance.db.dialect.hints import by_index
from appliance.db.dialect.texts import sum_or_zero
from appliance.db.open import rows
from appliance.rested import Rested
from appliance.tables import Campaign

_WEEK_MS = 7 * 86_400_000
_SQL = (
    f"SELECT e.event, count(DISTINCT m.id), {sum_or_zero('e.amount')} FROM message m {by_index('message_clicked')} "
    "JOIN event e ON e.contact_id = m.contact_id AND e.created_at >= m.clicked_at AND e.created_at < m.clicked_at + ? "
    "WHERE m.campaign_id = ? AND m.clicked_at IS NOT NULL AND e.generated = 0 AND e.test = 0 "
    "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3"
)
_known: Rested[list["After"]] = Rested(least=5)


class After(NamedTuple):
    """An event, of how many people, and what it came to in all (0 where events name no amount)."""

    event: str
    people: int
    amount: float


def of(campaign: Campaign) -> list[After]:
    """Return the events of a program that most people caused within a week after their first click."""
    return _known.get(campaign.id, lambda: [After(*row) for row in rows(_SQL, (_WEEK_MS, campaign.id))])
