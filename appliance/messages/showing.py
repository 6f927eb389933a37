"""Which conditions of a campaign hold for its recipients, asked for many at a time: a sender never asks one by one."""

from collections.abc import Mapping
from typing import Any

from appliance import clock
from appliance.db.open import rows
from appliance.messages import values

# How many are asked for at once, and for how long an answer is taken for true
_TOGETHER = 300
_KEPT_MS = 60_000


class Showing:
    """The conditions of one campaign, for one thread that sends it."""

    def __init__(self, account_id: int, campaign_id: int, conditions: Mapping[str, list[Any]]) -> None:
        self._account_id, self._campaign_id, self._conditions = account_id, campaign_id, conditions
        self._known: dict[int, dict[str, bool]] = {}
        self._until = 0

    def to(self, contact_id: int | None) -> dict[str, Any]:
        """Answer the `show` root for a recipient; those who come next are asked about with it."""
        if contact_id is None or not self._conditions:
            return values.shown(self._account_id, None, self._conditions)
        now = clock.now_ms()
        if contact_id not in self._known or now >= self._until:
            self._known = values.shown_to(self._account_id, {contact_id, *self._next(now)}, self._conditions)
            self._until = now + _KEPT_MS
        return {"show": self._known[contact_id]}

    def _next(self, now: int) -> list[int]:
        found = rows(
            "SELECT contact_id FROM message WHERE campaign_id = ? AND status IN ('queued', 'held') AND due_at <= ? "
            "AND contact_id NOT NULL ORDER BY due_at, id LIMIT ?",
            (self._campaign_id, now, _TOGETHER),
        )
        return [row[0] for row in found]
