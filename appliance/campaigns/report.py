"""What became of a campaign, as numbers a person can follow to the rows.

The page asks for them every other second: nothing here reads more rows than it shows, however large the campaign.
"""

import threading
import time
from collections import Counter, deque
from typing import Any

from appliance.db.open import rows, scalar
from appliance.tables import Campaign, Message

_ENDED_BADLY = ("failed", "bounced", "skipped", "uncertain", "complained")
# What waits for another attempt is due later than what was never tried
_AGAIN = "campaign_id = ? AND status IN ('queued', 'held') AND due_at > ? AND attempts > 0"
_MOST_SHOWN, _MOST_KEPT = 200, 50
_RATE_SECONDS, _KNOWN_SECONDS = 60.0, 20.0


class _Memory:
    """What was asked lately: the problems as they were at certain sums, and how many had been sent when."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.problems: dict[int, tuple[Any, list[Any]]] = {}
        self.sent: dict[int, deque[tuple[float, int]]] = {}


_memory = _Memory()


def problems(campaign: Campaign) -> list[dict[str, Any]]:
    """Group what did not go out by status, reason and the server's own words."""
    both = _badly(campaign) + _grouped(_AGAIN, _waiting(campaign))
    both.sort(key=lambda row: (-row[3], row[0], row[1] or "", row[2] or ""))
    return [{"status": row[0], "reason": row[1], "text": row[2], "count": row[3]} for row in both[:_MOST_SHOWN]]


def skips(campaign: Campaign) -> dict[str, int]:
    """Count those who were skipped by reason, the most frequent first."""
    counted: Counter[str] = Counter()
    for status, reason, _, count in _badly(campaign):
        if status == "skipped":
            counted[reason] += count
    return dict(counted.most_common())


def _badly(campaign: Campaign) -> list[Any]:
    """Group what ended badly; read anew only if there is more or less of it than when it was read last."""
    sums = (campaign.updated_at, *(campaign.stats[name] for name in _ENDED_BADLY))
    with _memory.lock:
        known, found = _memory.problems.get(campaign.id, (None, []))
    if known != sums:
        found = _grouped(f"campaign_id = ? AND status IN ({','.join('?' * len(_ENDED_BADLY))})",
                         (campaign.id, *_ENDED_BADLY))  # fmt: skip
        with _memory.lock:
            if len(_memory.problems) >= _MOST_KEPT:
                _memory.problems.clear()
            _memory.problems[campaign.id] = sums, found
    return found


def _grouped(condition: str, values: tuple[Any, ...]) -> list[Any]:
    return rows(
        "SELECT status, coalesce(skip_reason, error_code), error_text, count(*) FROM message "
        f"WHERE {condition} GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT {_MOST_SHOWN}",
        values,
    )


def _waiting(campaign: Campaign) -> tuple[int, int]:
    return campaign.id, campaign.hold_until or 0


def doubts(campaign_id: int, most: int = 5) -> list[Message]:
    """Answer some of the messages of which nobody knows whether they arrived, the first ones first."""
    asked = Message.select().where(Message.campaign == campaign_id, Message.status == "uncertain")
    return list(asked.order_by(Message.id).limit(most))


def progress(campaign: Campaign) -> dict[str, Any]:
    """Answer how many wait for another attempt, the rate while it was looked at lately, and the time left if known."""
    seconds, sent = _lately(campaign.id, campaign.sent_count)
    rate = sent / seconds if seconds >= 1 else 0.0
    known = seconds >= _KNOWN_SECONDS and rate > 0 and campaign.phase == "sending"
    return {
        "retrying": int(scalar(f"SELECT count(*) FROM message WHERE {_AGAIN}", _waiting(campaign))),
        "per_second": rate,
        "seconds_left": campaign.stats["pending"] / rate if known else None,
    }


def _lately(campaign_id: int, sent: int) -> tuple[float, int]:
    """Note how many were sent by now; answers over how many seconds that was noted lately, and how many more it is."""
    now = time.monotonic()
    with _memory.lock:
        if campaign_id not in _memory.sent and len(_memory.sent) >= _MOST_KEPT:
            _memory.sent.clear()
        noted = _memory.sent.setdefault(campaign_id, deque())
        noted.append((now, sent))
        while noted[0][0] < now - _RATE_SECONDS:
            noted.popleft()
        return now - noted[0][0], sent - noted[0][1]
