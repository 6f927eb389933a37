"""The MTA-STS policies of recipient domains: what they demand of a connection (RFC 8461).

Policies are stored until they expire, also over restarts. They are fetched again if their id in DNS changes, and once
half of their lifetime is over: an attacker who makes DNS or the web server fail for a while must not remove a known
policy (RFC 8461, 3.3 and 10.2).
"""

import asyncio
import logging

from appliance.core import clock
from appliance.sending.delivery import mx_routes
from appliance.sending.delivery.mx_routes import MtaStsPolicy
from appliance.sending.delivery.smtp_connect import MxTarget
from appliance.storage import transactions
from appliance.storage.models import MailPolicy
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.sender")
# How long a policy or its absence is cached in memory: usually, after a failed request, and at least.
_POLICY_SECONDS, _POLICY_RETRY_SECONDS, _MIN_POLICY_SECONDS = 3600.0, 300.0, 60.0
_MAX_CACHED_POLICIES = 20_000


class MtaStsPolicies:
    """The MTA-STS policies of recipient domains; used on one event loop."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[float, MtaStsPolicy | None]] = {}
        self._requests: dict[str, asyncio.Task[MtaStsPolicy | None]] = {}

    async def get(self, domain: str) -> MtaStsPolicy | None:
        """Return the valid policy of a domain, or None; look it up unless it is cached."""
        at, policy = self._cache.get(domain, (0.0, None))
        if at > clock.monotonic():
            return policy
        task = self._requests.get(domain)
        if task is None:
            task = self._requests[domain] = asyncio.create_task(self._refresh(domain))
            task.add_done_callback(lambda _: self._requests.pop(domain, None))
        # If this caller is cancelled, the request continues for other callers that wait for it.
        return await asyncio.shield(task)

    async def _refresh(self, domain: str) -> MtaStsPolicy | None:
        policy, seconds = await self._load_or_fetch(domain)
        if len(self._cache) >= _MAX_CACHED_POLICIES:
            self._cache.clear()
        if policy is not None:
            seconds = min(seconds, max(policy.max_age, _MIN_POLICY_SECONDS))
        self._cache[domain] = (clock.monotonic() + seconds, policy)
        return policy

    @staticmethod
    async def _load_or_fetch(domain: str) -> tuple[MtaStsPolicy | None, float]:
        stored, is_old = await transactions.fetch(load_policy, domain)
        announced = await mx_routes.run_lookup(mx_routes.find_policy_id, domain)
        if announced is None or (stored is not None and stored.id == announced and not is_old):
            return stored, _POLICY_SECONDS
        fetched = await mx_routes.fetch_policy(domain, announced)
        if fetched is None:
            log.warning("mta-sts: policy of %s could not be fetched", domain)
            return stored, _POLICY_RETRY_SECONDS
        await transactions.commit(store_policy, domain, fetched)
        return fetched, _POLICY_SECONDS


def apply_policy(target: MxTarget, policy: MtaStsPolicy | None) -> MxTarget:
    """Return a target changed as the domain's MTA-STS policy requires.

    In mode `enforce`, the target has only the servers that the policy lists and requires verified TLS. In mode
    `testing`, a server that is not listed is only logged.
    """
    if policy is None or policy.mode == "none":
        return target
    named = tuple(host for host in target.hosts if policy.allows(host[1]))
    if policy.mode == "enforce":
        return target._replace(hosts=named, requires_verified_tls=True)
    if named != target.hosts:
        log.warning("mta-sts: testing policy of %s does not list all of its mail servers", target.domain)
    return target


def load_policy(domain: str) -> tuple[MtaStsPolicy | None, bool]:
    """Return the stored policy of a domain, None if there is none or it has expired, and whether it is half expired.

    The `max_age` of the returned policy is the remaining time in seconds.
    """
    now = clock.now_ms()
    row = MailPolicy.get_or_none(MailPolicy.domain == domain, MailPolicy.expires_at > now)
    if row is None:
        return None, False
    policy = MtaStsPolicy(row.policy_id, row.mode, tuple(row.hosts), (row.expires_at - now) // 1000)
    return policy, 2 * now > row.fetched_at + row.expires_at


def store_policy(domain: str, policy: MtaStsPolicy) -> None:
    """Store the policy of a domain in place of an earlier one, and delete the expired policies of all domains."""
    require_write_transaction()
    now = clock.now_ms()
    MailPolicy.delete().where(MailPolicy.expires_at <= now).execute()
    MailPolicy.delete().where(MailPolicy.domain == domain).execute()
    MailPolicy.create(
        domain=domain, policy_id=policy.id, mode=policy.mode, hosts=list(policy.hosts), fetched_at=now,
        expires_at=now + policy.max_age * 1000,
    )  # fmt: skip
