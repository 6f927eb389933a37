"""Finds a message a connection to the recipient's mail servers: an idle one, or a new one.

A fault of these servers costs this message one attempt and no other. A fault of all servers closes the transport and
costs no attempt.
"""

import asyncio
import logging
from typing import NamedTuple

from appliance import config
from appliance.delivery import classes, routing
from appliance.delivery.dialogue import Dialogue
from appliance.delivery.groups import domain_of
from appliance.delivery.mta_sts import Policy
from appliance.delivery.providers import direct
from appliance.delivery.providers.direct import Way
from appliance.delivery.routing import DIRECT
from appliance.errors import (
    DeliveryError,
    SenderRefused,
    Temporary,
    Throttled,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Unwelcome,
)
from appliance.messages.ledger import Claim
from appliance.work.circuit_breaker import CircuitBreaker
from appliance.work.connection_pool import ConnectionPool
from appliance.work.email_rate_limits import EmailRateLimits
from appliance.work.mta_sts_policies import MtaStsPolicies
from appliance.work.unreachable_hosts import UnreachableHosts

log = logging.getLogger("campanero.sender")
# All servers of a domain together may take so long to take a connection
_PATIENCE_SECONDS = 120.0


class Found(NamedTuple):
    """A conversation, or why there is none; `elsewhere` says that the message belongs to another group than was known
    when it was let go.
    """

    way: Way | None = None
    dialogue: Dialogue | None = None
    closed: DeliveryError | None = None
    elsewhere: bool = False


class MxConnections:
    """The recipients' servers, as all places of a sender see them; used on one event loop."""

    def __init__(
        self, gate: CircuitBreaker, pace: EmailRateLimits, reach: UnreachableHosts, transactions: asyncio.Semaphore
    ) -> None:
        self._gate, self._pace, self.reach = gate, pace, reach
        self.transactions = transactions
        self.pool = ConnectionPool()
        self._policies = MtaStsPolicies()
        self._one_asks = asyncio.Lock()

    async def find(self, claim: Claim) -> Found:
        """Return a conversation for a message; the caller gives it back (`done`)."""
        try:
            return await self._found(claim)
        except Unavailable:
            raise
        except Exception as error:
            # A fault of ours; whatever is wrong with this domain, it is tried again later and the others get their mail
            log.exception("where message %s goes cannot be found", claim.id)
            return Found(closed=Temporary(f"{type(error).__name__}: {error}"))

    async def _found(self, claim: Claim) -> Found:
        domain = domain_of(claim.recipient_key)
        route = await routing.routed(domain)
        if route.error is not None:
            return Found(closed=await self._not_found(route.error))
        if self._pace.goes_to(claim) not in (None, route.group):
            return Found(elsewhere=True)
        way = Way(domain, route.hosts, route.group)
        if config.current().email.direct.mta_sts:
            way = self._proven(way, await self._policies.of(domain))
        if not way.hosts:
            names = ", ".join(name for _, name in route.hosts)
            return Found(closed=Temporary(f"the policy of {domain} (MTA-STS) does not name its mail servers: {names}"))
        dead = self.reach.dead(way)
        if dead is not None:
            return Found(closed=Temporary(f"left alone for {dead[0] / 60:.0f} more minutes: {dead[1]}", None, "4.4.1"))
        return await self._open(way, claim)

    @staticmethod
    def _proven(way: Way, policy: Policy | None) -> Way:
        """Hold a way against the policy of its domain: one that is enforced leaves only the servers it names."""
        if policy is None or policy.mode == "none":
            return way
        named = tuple(host for host in way.hosts if policy.allows(host[1]))
        if policy.mode == "enforce":
            return way._replace(hosts=named, proven=True)
        if named != way.hosts:
            log.warning("%s tries a policy (MTA-STS) that does not name all of its mail servers", way.domain)
        return way

    async def _open(self, way: Way, claim: Claim) -> Found:
        dialogue = self.pool.take(way)
        if dialogue is not None:
            return Found(way, dialogue)
        await self.pool.opening(way, self._pace.most_to(way.group, domain_of(claim.recipient_key)))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                dialogue = await direct.connect(way)
        except DeliveryError as error:
            self.pool.closed(way)
            return Found(closed=await self._not_reached(way, claim, error))
        except TimeoutError:
            self.pool.closed(way)
            late = Unreachable(f"no mail server of {way.domain} took a connection within {_PATIENCE_SECONDS:.0f} s")
            return Found(closed=await self._not_reached(way, claim, late))
        except Exception as error:
            # A fault of ours; whatever is wrong with these servers, the others get their mail
            log.exception("the mail servers of %s cannot be spoken to", way.domain)
            self.pool.closed(way)
            return Found(closed=Temporary(f"{type(error).__name__}: {error}"))
        except BaseException:
            self.pool.closed(way)
            raise
        self.reach.reached(way)
        return Found(way, dialogue)

    async def _not_found(self, error: DeliveryError) -> DeliveryError:
        if error.enhanced == "4.4.3":
            async with self._one_asks:
                words = await self.reach.no_name_is_known()
            if words is not None:
                return self._close(words)
        return error

    async def _not_reached(self, way: Way, claim: Claim, error: DeliveryError) -> DeliveryError:
        if isinstance(error, Unreachable):
            async with self._one_asks:
                words = await self.reach.nothing_answers()
            if words is not None:
                return self._close(words)
            error = Temporary(error.text, None, "4.4.1")
        elif error.smtp is not None:
            self.reach.spoke()
        if isinstance(error, Temporary):
            heard = self._pace.heard(claim, error)
            if isinstance(heard, Throttled):
                self.pool.spare(way.group)
                return heard
            self.reach.failed(way, error.text)
        return error

    def refused(self, error: SenderRefused, claim: Claim, sender: str) -> DeliveryError:
        """Return what follows when a server refuses our sender: one of many ends this message alone."""
        group = routing.group_of(DIRECT, claim.recipient_key)
        if classes.classify(error.smtp, error.enhanced, error.text) is classes.AUTHENTICATION:
            return Unauthenticated(error.text, error.smtp, error.enhanced)
        if self.reach.refuse_it_all(domain_of(sender), group):
            return error
        return Unwelcome(error.text, error.smtp, error.enhanced)

    def _close(self, words: str) -> DeliveryError:
        closed = Unreachable(words)
        self._gate.connecting_failed(DIRECT, closed)
        return closed

    def done(self, way: Way, dialogue: Dialogue | None, error: DeliveryError | None) -> None:
        """Take a conversation back; None stands for one that was hung up."""
        if isinstance(error, Throttled):
            self.pool.spare(way.group)
        if dialogue is None:
            self.pool.closed(way)
        elif dialogue.is_open() and not self._pace.pauses(way.group):
            self.pool.give(way, dialogue)
        else:
            self.pool.end(way, dialogue)
