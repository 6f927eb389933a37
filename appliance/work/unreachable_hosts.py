"""Recipients' mail servers that cannot be reached, and whether any can be.

If one cannot, the fault is theirs; if none can, it is ours.
"""

import asyncio

from appliance import clock, config
from appliance.delivery import routing, self_check
from appliance.delivery.providers.direct import Way

# Failures in a row before servers are left alone, and for how long (D21)
MAX_FAILURES = 3
DEAD_SECONDS = 900.0
# Groups that refuse a sender, before that is about the sender and not about them
_MANY_REFUSERS = 3
# Whoever was heard so lately proves that the way out is open
_PROOF_SECONDS = 60.0
# All that wait for the same answer are told the same, and who comes later asks again
_TOLD_SECONDS = 5.0
_MAX_KEPT = 5_000


class UnreachableHosts:
    """What is known of recipients' servers in this process; used on one event loop at a time."""

    def __init__(self) -> None:
        self._spoken = float("-inf")  # when any server last said anything
        self._blocked: tuple[float, str | None] = (float("-inf"), None)  # what was found when others were asked
        self._nameless: tuple[float, str | None] = (float("-inf"), None)
        self._refusers: dict[str, set[str]] = {}  # by the sender's domain: who refused it since it was last accepted
        self._failed: dict[str, tuple[int, float, str]] = {}  # by way: how often in a row, dead until, and the words

    def dead(self, way: Way) -> tuple[float, str] | None:
        """Return for how many seconds servers are not tried yet, and why; None if they may be."""
        _, until, words = self._failed.get(way.key, (0, 0.0, ""))
        left = until - clock.steady()
        return (left, words) if left > 0 else None

    def failed(self, way: Way, words: str) -> None:
        """Count a failure to reach servers; a few in a row mean that they are away."""
        if len(self._failed) >= _MAX_KEPT:
            self._failed.clear()
        count = self._failed.get(way.key, (0, 0.0, ""))[0] + 1
        until = clock.steady() + DEAD_SECONDS if count >= MAX_FAILURES else 0.0
        self._failed[way.key] = (count, until, words)

    def reached(self, way: Way) -> None:
        """Note that servers took a connection."""
        self._spoken = clock.steady()
        self._failed.pop(way.key, None)

    def spoke(self) -> None:
        """Note that some server said something, whatever it was."""
        self._spoken = clock.steady()

    def refuse_it_all(self, sender: str, group: str) -> bool:
        """Note that a group refuses a sender; says whether that is so of whoever is asked."""
        found = self._refusers.setdefault(sender, set())
        found.add(group)
        return len(found) >= _MANY_REFUSERS

    def accepted(self, sender: str) -> None:
        """Note that a sender's mail was taken by somebody."""
        self._refusers.pop(sender, None)

    async def nothing_answers(self) -> str | None:
        """Return the words for it if no mail server at all can be reached from here; None if one can, or nobody knows.

        Others are asked only if nobody was heard for a while.
        """
        if clock.steady() < self._spoken + _PROOF_SECONDS:
            return None
        until, words = self._blocked
        if until < clock.steady():
            words = await self_check.nothing_answers()
            self._blocked = (clock.steady() + _TOLD_SECONDS, words)
            if words is None:
                # Or nobody knows, which the next one to fail need not ask again at once
                self.spoke()
        return words

    async def no_name_is_known(self) -> str | None:
        """Return the words for it if no name server answers anything; None if one does, or nobody knows."""
        if clock.steady() < routing.heard() + _PROOF_SECONDS:
            return None
        until, words = self._nameless
        if until < clock.steady():
            words = await self._asked()
            self._nameless = (clock.steady() + _TOLD_SECONDS, words)
        return words

    @staticmethod
    async def _asked() -> str | None:
        names = config.current().email.direct.probes
        found = await asyncio.gather(*map(routing.asked_now, names))
        if not found or clock.steady() < routing.heard() + _PROOF_SECONDS:
            return None
        return f"no name server answers, so no mail server can be found: {found[0]}"
