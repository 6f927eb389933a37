"""What is usual: how the campaigns before one did on average, so that its own numbers mean something."""

from functools import partial
from typing import NamedTuple

from appliance.db.dialect.hints import by_index
from appliance.db.open import rows, scalar
from appliance.rested import Rested
from appliance.tables import Campaign

_LAST = (
    "SELECT id, sent_count, bounced_count, complained_count, tracking FROM campaign WHERE account_id = ? "
    "AND channel = ? AND phase = 'completed' AND test = 0 AND deleted_at IS NULL AND sent_count > 0 "
    "AND id != ? AND started_at < ? ORDER BY started_at DESC LIMIT 10"
)
# What came of a campaign weeks ago hardly changes
_did: Rested[tuple[int, int]] = Rested(least=300)


class Usual(NamedTuple):
    """Averages of so many campaigns: shares of those who were reached; None where none of them counted it."""

    campaigns: int
    opened: float | None
    clicked: float | None
    complained: float
    bounced: float  # of those who were accepted


def usual(campaign: Campaign) -> Usual | None:
    """Return the averages of the last ten campaigns before this one, or None if there were fewer than two."""
    before = rows(_LAST, (campaign.account_id, campaign.channel, campaign.id, campaign.started_at or 2**62))
    if len(before) < 2:
        return None
    opened, clicked, complained, bounced = [], [], [], []
    for number, sent, back, unwelcome, tracking in before:
        reached = max(sent - back, 1)
        bounced.append(back / sent)
        complained.append(unwelcome / reached)
        if tracking:
            did = _did.get(number, partial(_read, number))
            opened.append(did[0] / reached)
            clicked.append(did[1] / reached)
    return Usual(len(before), _mean(opened), _mean(clicked), sum(complained) / len(before), sum(bounced) / len(before))


def _read(campaign_id: int) -> tuple[int, int]:
    return _count(campaign_id, "opened"), _count(campaign_id, "clicked")


def _mean(shares: list[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None


def _count(campaign_id: int, what: str) -> int:
    """Count people of a campaign who opened or clicked, by the index of it."""
    sql = f"SELECT count(*) FROM message {by_index('message_' + what)} WHERE campaign_id = ? AND {what}_at IS NOT NULL"
    return int(scalar(sql, (campaign_id,)))
