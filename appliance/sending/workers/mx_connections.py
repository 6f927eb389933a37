"""Finds a message a connection to the recipient's mail servers: an idle one, or a new one.

A fault of these servers costs this message one attempt and no other. A fault of all servers closes the transport and
costs no attempt.
"""

import asyncio
import logging
from collections import Counter
from typing import NamedTuple

from appliance.core import clock
from appliance.core.errors import (
    DeliveryError,
    SenderRefused,
    Temporary,
    Throttled,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Unwelcome,
)
from appliance.sending.delivery import classes, mta_sts, routing, self_check
from appliance.sending.delivery.dialogue import Dialogue
from appliance.sending.delivery.groups import domain_of
from appliance.sending.delivery.mta_sts import Policy
from appliance.sending.delivery.providers import direct
from appliance.sending.delivery.providers.direct import Way
from appliance.sending.delivery.routing import DIRECT
from appliance.sending.messages import policies
from appliance.sending.messages.ledger import Claim
from appliance.sending.workers.circuit_breaker import CircuitBreaker
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.settings import config
from appliance.storage import work

# MTA-STS policies of recipient domains: fetched now and then, cached for as long as they are valid.
#
# An attacker who makes DNS or a web server fail must not remove a known policy (RFC 8461, sections 5.1 and 10.2).

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


# Idle connections to recipients' mail servers, reused for the next message to the same servers.

# Servers part early from who says nothing; nobody gains by being parted from
_IDLE_SECONDS = 5.0
_MAX_IDLE = 50


class _Idle(NamedTuple):
    way: Way
    dialogue: Dialogue
    timer: asyncio.TimerHandle


class ConnectionPool:
    """Idle conversations, and how many are open to each group; used on one event loop."""

    def __init__(self) -> None:
        self._idle: list[_Idle] = []  # who came last stands last
        self._open: Counter[str] = Counter()  # by group: all but the idle ones, also while they begin and end
        self._goodbyes: dict[asyncio.Future[None], str] = {}

    @property
    def connections(self) -> int:
        """How many conversations wait here."""
        return len(self._idle)

    def take(self, way: Way) -> Dialogue | None:
        """Return an open conversation with these servers, if there is one."""
        for one in reversed(self._idle):
            if one.way.key == way.key:
                self._idle.remove(one)
                one.timer.cancel()
                if one.dialogue.is_open():
                    self._open[way.group] += 1
                    return one.dialogue
        return None

    async def opening(self, way: Way, most: int) -> None:
        """Make room for one more conversation with a group, of which there may be so many, and count it."""
        while True:
            idle = [one for one in self._idle if one.way.group == way.group]
            if len(idle) + self._open[way.group] < most:
                break
            if idle:
                self._part(idle[0])
            leaving = [task for task, group in self._goodbyes.items() if group == way.group]
            if not leaving:
                break
            await asyncio.wait(leaving, return_when=asyncio.FIRST_COMPLETED)
        self._open[way.group] += 1

    def closed(self, way: Way) -> None:
        """Forget a conversation that did not come about, or was hung up."""
        self._open[way.group] -= 1
        if self._open[way.group] <= 0:
            del self._open[way.group]

    def give(self, way: Way, dialogue: Dialogue) -> None:
        """Keep a conversation for the next message, for a while."""
        self.closed(way)
        if len(self._idle) >= _MAX_IDLE:
            self._part(self._idle[0])
        timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._late, dialogue)
        self._idle.append(_Idle(way, dialogue, timer))

    def spare(self, group: str) -> None:
        """End what is idle with a group that asked for less."""
        for one in [one for one in self._idle if one.way.group == group]:
            self._part(one)

    def _late(self, dialogue: Dialogue) -> None:
        for one in [one for one in self._idle if one.dialogue is dialogue]:
            self._part(one)

    def _part(self, one: _Idle) -> None:
        self._idle.remove(one)
        one.timer.cancel()
        self._open[one.way.group] += 1
        self.end(one.way, one.dialogue)

    def end(self, way: Way, dialogue: Dialogue) -> None:
        """Say goodbye while others go on; it is open until that is said."""
        task = asyncio.ensure_future(dialogue.close())
        self._goodbyes[task] = way.group

        def ended(_: "asyncio.Future[None]") -> None:
            del self._goodbyes[task]
            self.closed(way)

        task.add_done_callback(ended)

    async def close(self) -> None:
        """End all conversations."""
        for one in [*self._idle]:
            self._part(one)
        if self._goodbyes:
            await asyncio.wait({*self._goodbyes})


# Recipients' mail servers that cannot be reached, and whether any can be.
#
# If one cannot, the fault is theirs; if none can, it is ours.

# Failures in a row before servers are left alone, and for how long (D21)
MAX_FAILURES = 3
DEAD_SECONDS = 900.0
# Groups that refuse a sender, before that is about the sender and not about them
_MANY_REFUSERS = 3
# Whoever was heard so lately proves that the way out is open
_PROOF_SECONDS = 60.0
# All that wait for the same answer are told the same, and who comes later asks again
_TOLD_SECONDS = 5.0
_MAX_KEPT_HOSTS = 5_000


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
        if len(self._failed) >= _MAX_KEPT_HOSTS:
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
