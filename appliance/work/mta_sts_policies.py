"""MTA-STS policies of recipient domains: fetched now and then, cached for as long as they are valid.

An attacker who makes DNS or a web server fail must not remove a known policy (RFC 8461, sections 5.1 and 10.2).
"""

import asyncio
import logging

from appliance import clock
from appliance.db import work
from appliance.delivery import mta_sts, routing
from appliance.delivery.mta_sts import Policy
from appliance.messages import policies

log = logging.getLogger("campanero.sender")
# How long what is known is not asked for again: a policy or its absence, and what could not be had
_KNOWN_SECONDS, _FAILED_SECONDS, _MIN_SECONDS = 3600.0, 300.0, 60.0
_MAX_KEPT = 20_000


class MtaStsPolicies:
    """What domains want; used on one event loop."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, Policy | None]] = {}
        self._asking: dict[str, asyncio.Task[Policy | None]] = {}

    async def of(self, domain: str) -> Policy | None:
        """Return the policy that holds for a domain, if it has one."""
        at, policy = self._kept.get(domain, (0.0, None))
        if at > clock.steady():
            return policy
        task = self._asking.get(domain)
        if task is None:
            task = self._asking[domain] = asyncio.create_task(self._asked(domain))
            task.add_done_callback(lambda _: self._asking.pop(domain, None))
        # Others wait for the same answer when one of them gives up
        return await asyncio.shield(task)

    async def _asked(self, domain: str) -> Policy | None:
        policy, seconds = await self._found(domain)
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        if policy is not None:
            seconds = min(seconds, max(policy.max_age, _MIN_SECONDS))
        self._kept[domain] = (clock.steady() + seconds, policy)
        return policy

    @staticmethod
    async def _found(domain: str) -> tuple[Policy | None, float]:
        kept = await work.call(policies.load, domain)
        announced = await routing.in_thread(mta_sts.announced, domain)
        if announced is None or (kept is not None and kept.id == announced):
            return kept, _KNOWN_SECONDS
        fresh = await mta_sts.fetch(domain, announced)
        if fresh is None:
            log.warning("%s announces a policy for its mail (MTA-STS) that cannot be had", domain)
            return kept, _FAILED_SECONDS
        await work.commit(policies.keep, domain, fresh)
        return fresh, _KNOWN_SECONDS
