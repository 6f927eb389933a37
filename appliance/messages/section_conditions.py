"""Which conditions of a message hold for its recipients, asked for many at a time: a sender never asks one by one."""

from collections.abc import Iterable, Mapping
from typing import Any

from appliance import clock
from appliance.messages import values

# For how long an answer is taken for true
_KEPT_MS = 60_000


class Showing:
    """The conditions of one campaign or step, for one thread that sends it."""

    def __init__(self, account_id: int, conditions: Mapping[str, list[Any]]) -> None:
        self._account_id, self._conditions = account_id, conditions
        self._known: dict[int, dict[str, bool]] = {}
        self._expected: frozenset[int] = frozenset()
        self._until = 0

    def expect(self, contact_ids: Iterable[int]) -> None:
        """Be told who comes next, instead of those told before."""
        self._expected = frozenset(contact_ids)

    def to(self, contact_id: int | None) -> dict[str, Any]:
        """Return the `show` root for a recipient; those who are expected are asked about with it."""
        if contact_id is None or not self._conditions:
            return values.shown(self._account_id, None, self._conditions)
        now = clock.now_ms()
        if contact_id not in self._known or now >= self._until:
            self._known = values.shown_to(self._account_id, {contact_id, *self._expected}, self._conditions)
            self._until = now + _KEPT_MS
        return {"show": self._known[contact_id]}
