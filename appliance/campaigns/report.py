"""What became of a campaign, as numbers a person can follow to the rows."""

from typing import Any

from appliance import clock
from appliance.campaigns import store
from appliance.db.open import rows, scalar
from appliance.tables import Message


def problems(account_id: int, campaign_id: int) -> list[dict[str, Any]]:
    """Group what did not go out by status, reason and the server's own words; raises NotFound."""
    campaign = store.get(account_id, campaign_id)
    found = rows(
        "SELECT status, coalesce(skip_reason, error_code), error_text, count(*) FROM message WHERE campaign_id = ? "
        "AND (status IN ('failed', 'bounced', 'skipped', 'uncertain', 'complained') "
        "OR (status = 'queued' AND attempts > 0)) GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT 200",
        (campaign.id,),
    )
    return [{"status": row[0], "reason": row[1], "text": row[2], "count": row[3]} for row in found]


def doubts(campaign_id: int, most: int = 5) -> list[Message]:
    """Answer some of the messages of which nobody knows whether they arrived, the first ones first."""
    asked = Message.select().where(Message.campaign == campaign_id, Message.status == "uncertain")
    return list(asked.order_by(Message.id).limit(most))


def progress(account_id: int, campaign_id: int) -> dict[str, Any]:
    """Answer the sums with the rate of the last minute and, after 20 seconds of data, the time left."""
    campaign = store.get(account_id, campaign_id)
    now = clock.now_ms()
    since = max(now - 60_000, campaign.started_at or now)
    done = int(
        scalar(
            "SELECT count(*) FROM message WHERE campaign_id = ? AND status = 'sent' AND sent_at >= ?",
            (campaign.id, since),
        )
    )
    elapsed = (now - since) / 1000
    rate = done / elapsed if elapsed > 0 else 0.0
    known = elapsed >= 20 and rate > 0 and campaign.phase == "sending"
    retrying = int(
        scalar(
            "SELECT count(*) FROM message WHERE campaign_id = ? AND status = 'queued' AND attempts > 0", (campaign.id,)
        )
    )
    return {
        "stats": campaign.stats,
        "retrying": retrying,
        "per_second": rate,
        "seconds_left": campaign.stats["pending"] / rate if known else None,
    }
