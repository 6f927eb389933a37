"""Limit the rate of email in messages a second, messages an hour, connections, and transactions with slow servers.

The limits come from the settings and apply to all email, to each sending domain and to each recipient group. In
addition, a recipient group whose servers ask for a lower rate is throttled (`AdaptiveThrottle`), while sending to
other groups continues. Only messages that are not claimed yet wait for a limit.

With several transports, each has limits of its own, and its own number of messages in progress, so that a slow one does
not occupy the workers of the others. The rates of the default transport are `email.rate_per_second` and `_per_hour`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from appliance.core import clock
from appliance.core.errors import DeliveryError, RateLimited
from appliance.sending.delivery import bounce_classes, mx_routes
from appliance.sending.delivery.mx_routes import DIRECT, domain_of, get_address_group
from appliance.sending.delivery.smtp_client import ReplyTimeout, SmtpClient
from appliance.sending.messages import senders
from appliance.sending.messages.delivery_status import PausedTransport, SendStatus, WarmingDomain
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.queue_reader import TransportChooser
from appliance.sending.messages.senders import WarmUpDay, get_transport_limit_name
from appliance.sending.messages.transport_choice import (
    ReplacingChooser,
    RulesChooser,
    TransportRules,
    TransportStates,
)
from appliance.sending.transports import TRANSPORTS
from appliance.sending.workers.rate_limits import (
    AFTER_CHANGE,
    ALL,
    AdaptiveThrottle,
    RateLimiter,
    RateLimits,
    SendLimit,
)
from appliance.settings import config, transports
from appliance.settings.config import RateLimit, parse_limit, parse_seconds
from appliance.settings.schema import Email
from appliance.storage import transactions

log = logging.getLogger("campanero.sender")


class WarmUpQuota:
    """The quota of a sending domain in warm-up for one day (`senders.WarmUpDay`); used on one event loop.

    `accepted_count` counts accepted messages, `in_use` messages being sent; a `day.cap` of 0 is no limit.
    """

    def __init__(self, day: WarmUpDay, name: str = "") -> None:
        self.name = name or f"from {day.domain}"
        self.day = day
        self.accepted_count = day.accepted
        self.in_use = 0

    def is_over(self) -> bool:
        """Return whether the current time is outside of the day."""
        return not self.day.ends_at - clock.DAY_MS <= clock.now_ms() < self.day.ends_at

    def is_full(self) -> bool:
        """Return whether the quota of the day is used up; False after the day."""
        return bool(self.day.cap) and self.accepted_count >= self.day.cap and not self.is_over()

    def allowed_at(self, now: float) -> float:
        """Return the time from which the next message may be sent (seconds of `clock.monotonic`).

        AFTER_CHANGE means that the day is over and a new quota is needed, or that a message in progress has to end.
        """
        if self.is_over():
            return AFTER_CHANGE
        if not self.day.cap or self.accepted_count + self.in_use < self.day.cap:
            return now
        return AFTER_CHANGE if self.accepted_count < self.day.cap else now + (self.day.ends_at - clock.now_ms()) / 1000

    def take(self, _: float) -> None:
        """Count a message as in progress."""
        self.in_use += 1

    def end(self, _was_sent: bool) -> None:
        """Count a message as no longer in progress, whatever its outcome."""
        self.in_use -= 1

    def count_sent(self) -> None:
        """Count an accepted message towards the quota."""
        self.accepted_count += 1


class UncappedQuota:
    """A warm-up quota for transactional messages: they count towards the quota but do not wait for it."""

    def __init__(self, quota: WarmUpQuota) -> None:
        self.name, self.quota = quota.name, quota
        self.take, self.end, self.count_sent = quota.take, quota.end, quota.count_sent

    @staticmethod
    def allowed_at(now: float) -> float:
        """Return `now`, because the message may be sent at once."""
        return now


# The whole relay is throttled once this many recipient groups asked for a lower rate within this time.
_MAX_THROTTLED_GROUPS, _THROTTLED_GROUPS_SECONDS = 3, 60.0
# With this many throttles, `_DROPPED_THROTTLES` that are not in use are dropped.
_MAX_THROTTLES, _DROPPED_THROTTLES = 256, 64
# Connections to a recipient group at first in direct delivery (D19); accepted messages raise the number.
_FIRST_CONNECTIONS = 4


# Workers for each allowed connection in direct delivery, where most may be waiting for a server.
_WORKERS_PER_CONNECTION = 8
_MAX_DIRECT_WORKERS = 100


def count_workers(key: str, email: Email) -> int:
    """Return the number of workers that messages of a transport may occupy."""
    connections = transports.build_settings(key, email).connections
    return min(connections * _WORKERS_PER_CONNECTION, _MAX_DIRECT_WORKERS) if key == DIRECT else connections


class EmailRateLimits(RateLimits):
    """The limits of email in one process; used on one event loop. Other threads may only read them."""

    def __init__(self, email: Email) -> None:
        self._rules = TransportRules(email)
        has_several = self._rules.has_choice
        super().__init__(RateLimit() if has_several else RateLimit(email.rate_per_second, email.rate_per_hour))
        self._email, self._provider = email, email.transport
        self._providers = frozenset(self._rules.keys)
        # The limits of transports, including replaced ones for which messages are still queued.
        self._transports: dict[str, RateLimiter] = {}
        self._warming = frozenset(transport.key for transport in email.transports if transport.warm_up)
        # Whether workers share the connections of a transport, because there are more workers than connections to it.
        self.shares_connections = has_several or email.transport == DIRECT
        if has_several:
            for key in self._rules.keys:
                self._get_transport_limit(key)
        self._pause_seconds = parse_seconds(email.slow_down)
        self._senders = {
            name: RateLimiter(f"from {name}", limit) for name, limit in map(parse_limit, email.sender_limits)
        }
        if has_several or self._senders:
            self.get_names = self._list_names
        self._groups = {
            group: RateLimiter(group, limit)
            for name, limit in map(parse_limit, email.recipient_limits)
            for group in (get_address_group(name),)
        }
        # Even the largest group leaves one connection for the other groups.
        self._max_group_connections = min(email.direct.group_connections, max(1, email.connections - 1))
        self._first_connections = min(_FIRST_CONNECTIONS, self._max_group_connections, max(1, email.connections // 2))
        self._throttles: dict[tuple[str, str], AdaptiveThrottle] = {}
        # When which group of which transport was throttled.
        self._recently_throttled: deque[tuple[float, str, str]] = deque(maxlen=100)
        self._has_limits = bool(self.has_overall_limit or self._senders or self._groups)
        self._has_warm_up = email.direct.warm_up
        self._quotas: dict[str, WarmUpQuota] = {}  # by sending domain
        self.is_unlimited = not self._has_limits and not self.shares_connections

    async def load_quota(self, row: LedgerRow, sender: str) -> None:
        """Load the warm-up quota of a sending domain for today, unless it is loaded."""
        if row.provider in self._warming:
            name = domain = get_transport_limit_name(row.provider)
        elif self._has_warm_up and row.provider == DIRECT:
            name, domain = "", domain_of(sender)
        else:
            return
        quota = self._quotas.get(domain)
        if quota is None or quota.is_over():
            self._quotas[domain] = WarmUpQuota(await transactions.commit(senders.get_or_create_today, domain), name)

    def has_sender_limits(self) -> bool:
        """Return whether the settings limit a sending domain, or one is in its warm-up."""
        return bool(self._senders or self._quotas)

    def get_sender_limit_name(self, sender: str) -> str:
        """Return the name of the limit of a sender address: `from ` and its domain."""
        return f"from {domain_of(sender)}"

    def _get_limits_of(self, row: LedgerRow, sender: str) -> list[SendLimit]:
        names = mx_routes.get_group_names(row.provider, row.recipient_key or "")
        limits: list[SendLimit | None] = []
        if row.provider == DIRECT:
            limits.append(self._get_throttle(DIRECT, names[0]))
        elif self._throttles:
            limits += [self._throttles.get((row.provider, ALL)), self._throttles.get((row.provider, names[0]))]
        if self._quotas and (row.provider == DIRECT or row.provider in self._warming):
            is_domain = row.provider == DIRECT
            quota = self._quotas.get(domain_of(sender) if is_domain else get_transport_limit_name(row.provider))
            if quota is not None:
                # A transactional message must not wait for the next day because a newsletter used up the quota.
                is_uncapped = row.transactional or (row.campaign_id is None and row.flow_id is None)
                limits.append(UncappedQuota(quota) if is_uncapped else quota)
        # The settings limit the configured transports only, not test messages that go to the capture server.
        if self._has_limits and row.provider in self._providers:
            limits += [self._senders.get(domain_of(sender)), *map(self._groups.get, names)]
            limits += [self.overall] if self.has_overall_limit else []
        if self.shares_connections and (self._rules.has_choice or row.provider != DIRECT):
            limits.append(self._get_transport_limit(row.provider))
        return [limit for limit in limits if limit is not None]

    def _get_transport_limit(self, key: str) -> RateLimiter:
        """Return the limit of a transport: its rates, and the number of its messages in progress."""
        existing = self._transports.get(key)
        if existing is not None:
            return existing
        named = transports.find_named(key, self._email)
        rates = named or self._email
        has_rates = named is not None or (key == self._provider and self._rules.has_choice)
        limit = RateLimit(
            rates.rate_per_second if has_rates else 0, rates.rate_per_hour if has_rates else 0,
            count_workers(key, self._email),
        )  # fmt: skip
        limiter = self._transports[key] = RateLimiter(get_transport_limit_name(key), limit, is_transport=True)
        return limiter

    def _list_names(self, row: LedgerRow) -> tuple[str, ...]:
        """Return the names of the limits that apply to a row: of its transport, recipient groups and sending domain."""
        groups = mx_routes.get_group_names(row.provider, row.recipient_key or "")
        if self._senders and row.sender is not None and row.provider in self._providers:
            groups = (*groups, self.get_sender_limit_name(row.sender))
        if not self._rules.has_choice:
            return groups
        return (
            get_transport_limit_name(row.provider),
            *groups,
            *(self._name_throttle(row.provider, name) for name in groups),
        )

    def _name_throttle(self, provider: str, group: str) -> str:
        """Return the name of the limit of a throttled group; with several transports, it is that of one transport."""
        if not self._rules.has_choice:
            return group
        return get_transport_limit_name(provider) if group == ALL else f"{group} {get_transport_limit_name(provider)}"

    def get_limit_to_wait_for(self, row: LedgerRow, first: LedgerRow) -> str | None:
        """Return the name of the limit of the message's transport, if the first message has another transport."""
        has_other = self._rules.has_choice and row.provider != first.provider
        return get_transport_limit_name(row.provider) if has_other else None

    def _shares_place(self, limits: list[SendLimit], row: LedgerRow, first: LedgerRow) -> bool:
        [limit, *others] = limits
        return (
            not others
            and isinstance(limit, RateLimiter)
            and limit.is_transport
            and not (limit.limit.per_second or limit.limit.per_hour)
            and row.provider == first.provider
            and first.id in self._admitted
        )

    def _get_states(self, unavailable: Collection[str]) -> TransportStates:
        """Return which transports cannot take messages now; `unavailable` are those of the circuit breaker."""
        now = clock.monotonic()
        throttled = [
            (provider, throttle.group) for (provider, group), throttle in self._throttles.items()
            if group != ALL and throttle.paused_until > now
        ]  # fmt: skip
        full = [
            key
            for key in self._warming
            if (quota := self._quotas.get(get_transport_limit_name(key))) and quota.is_full()
        ]
        return TransportStates(frozenset(self.list_unavailable(unavailable)), frozenset(full), frozenset(throttled))

    def get_chooser(self, unavailable: Collection[str], begin_probe: Callable[[LedgerRow], bool]) -> TransportChooser:
        """Return the chooser of transports by the rules (`TransportRules`) and the current states of transports."""
        if not self._rules.has_choice:
            return ReplacingChooser(self._rules)
        return RulesChooser(self._rules, self._get_states(unavailable), begin_probe)

    def falls_over(self, row: LedgerRow, unavailable: Collection[str]) -> bool:
        """Return whether another transport may be chosen for a message, because its own takes no messages now.

        While its own is open, that one would be chosen again, in a loop. If no other is open, the message waits in the
        queue. A message that may have been accepted keeps its transport.
        """
        return self._rules.has_alternative(row) and not self._get_states(unavailable).is_open(row.provider, row)

    def list_unread(self, paused: Collection[str]) -> tuple[str, ...]:
        """Return the providers whose rows are not read: the paused and the throttled ones.

        With several transports to choose from, return them only if all are unavailable, because otherwise another one
        takes their messages.
        """
        if not self._rules.has_choice:
            return super().list_unread(paused)
        unavailable = self.list_unavailable(paused)
        return tuple(unavailable) if self._providers <= set(unavailable) else ()

    def list_unavailable(self, paused: Collection[str]) -> Collection[str]:
        """Return the transports that are paused or throttled as a whole, or have used up their hourly limit."""
        if not self._rules.has_choice:
            return paused
        now = clock.monotonic()
        full = (key for key, limiter in self._transports.items() if limiter.hour_allowed_at(now) > now)
        return {*paused, *self.get_throttled_providers(), *full}

    def get_room(self, waiting: Mapping[str, int], unavailable: Collection[str] = ()) -> dict[str, int]:
        """Return the room of each limited group and transport (`RateLimits`); an unavailable transport has none."""
        return super().get_room(waiting) | dict.fromkeys(self.get_unavailable_limits(unavailable), 0)

    def get_unavailable_limits(self, unavailable: Collection[str]) -> set[str]:
        """Return the names of the limits of unavailable transports; empty without a choice of transports."""
        return (
            {get_transport_limit_name(key) for key in self.list_unavailable(unavailable)}
            if self._rules.has_choice
            else set()
        )

    def handle_answer(self, row: LedgerRow, error: DeliveryError | None) -> DeliveryError | None:
        """Update throttles and quotas from the outcome of a message (`error`, None if accepted), and return its error.

        An error that asks for a lower rate throttles the recipient group, or the whole relay, and is returned as
        RateLimited with the seconds to wait.
        """
        if error is None:
            for limit in self._admitted.get(row.id, ()) if self._quotas else ():
                if isinstance(limit, WarmUpQuota | UncappedQuota):
                    limit.count_sent()
            if self._throttles:
                self._record_accepted(row)
            return None
        now = clock.monotonic()
        if isinstance(error, RateLimited) and transports.get_kind(row.provider, self._email) in TRANSPORTS:
            # An HTTP API asks the whole account for a lower rate, and says for how long.
            throttle = self._slow_down(row.provider, ALL, now, error)
            throttle.paused_until = max(throttle.paused_until, now + error.seconds)
            return throttle.to_rate_limited(error, now)
        if not bounce_classes.is_rate_limited(error):
            return error
        # In direct delivery, a server only speaks for its own recipient group.
        applies_to_all = row.provider != DIRECT and bounce_classes.limits_all_recipients(error)
        group = ALL if applies_to_all else mx_routes.get_recipient_group(row.provider, row.recipient_key or "")
        throttle = self._slow_down(row.provider, group, now, error)
        if row.provider != DIRECT and group != ALL:
            self._recently_throttled.append((now, row.provider, group))
        throttled_groups = {
            name for at, provider, name in self._recently_throttled
            if at > now - _THROTTLED_GROUPS_SECONDS and provider == row.provider
        }  # fmt: skip
        if len(throttled_groups) >= _MAX_THROTTLED_GROUPS:
            self._slow_down(row.provider, ALL, now, error)
            others = [entry for entry in self._recently_throttled if entry[1] != row.provider]
            self._recently_throttled = deque(others, maxlen=100)
        return throttle.to_rate_limited(error, now)

    def _slow_down(self, provider: str, group: str, now: float, error: DeliveryError) -> AdaptiveThrottle:
        throttle = self._get_throttle(provider, group)
        throttle.slow_down(now, error.text, bounce_classes.asks_for_pause(error))
        return throttle

    def _get_throttle(self, provider: str, group: str) -> AdaptiveThrottle:
        existing = self._throttles.get((provider, group))
        if existing is not None:
            return existing
        if len(self._throttles) >= _MAX_THROTTLES:
            self._drop_throttles()
        name = self._name_throttle(provider, group)
        if provider == DIRECT:
            throttle = AdaptiveThrottle(
                name, self._max_group_connections, self._pause_seconds, self._first_connections, group
            )
        else:
            connections = transports.build_settings(provider, self._email).connections
            throttle = AdaptiveThrottle(name, connections, self._pause_seconds, group=group)
        self._throttles[provider, group] = throttle
        self.is_unlimited = False
        return throttle

    def _drop_throttles(self) -> None:
        """Drop throttles of recipient groups: first those without a refusal, then those whose pause ends first.

        A group whose throttle is dropped asks for a lower rate again if needed.
        """
        idle = [
            (bool(throttle.reason), throttle.paused_until, key)
            for key, throttle in self._throttles.items()
            if not throttle.in_use and key[1] != ALL
        ]
        idle.sort(key=lambda entry: entry[:2])
        for _, _, key in idle[:_DROPPED_THROTTLES]:
            del self._throttles[key]

    def get_max_connections(self, group: str, domain: str) -> int:
        """Return the maximum number of connections to the servers of a recipient group for mail to a domain."""
        limits = [
            limiter.limit.connections for limiter in map(self._groups.get, (group, domain)) if limiter is not None
        ]
        return min(
            self._get_throttle(DIRECT, group).max_in_use,
            *(limit for limit in limits if limit),
            self._max_group_connections,
        )

    def get_admitted_group(self, row: LedgerRow) -> str | None:
        """Return the recipient group whose throttle admitted a message, or None if no throttle applied."""
        return next(
            (limit.group for limit in self._admitted.get(row.id, ()) if isinstance(limit, AdaptiveThrottle)), None
        )

    def is_paused(self, group: str) -> bool:
        """Return whether direct delivery to a recipient group is paused now."""
        throttle = self._throttles.get((DIRECT, group))
        return throttle is not None and throttle.paused_until > clock.monotonic()

    def _record_accepted(self, row: LedgerRow) -> None:
        now = clock.monotonic()
        for group in (ALL, mx_routes.get_recipient_group(row.provider, row.recipient_key or "")):
            throttle = self._throttles.get((row.provider, group))
            if throttle is not None and throttle.record_accepted(now):
                if row.provider == DIRECT:
                    throttle.reason = ""  # the throttle is kept, because direct delivery limits every group
                else:
                    del self._throttles[row.provider, group]
        self.is_unlimited = not self._throttles and not self._has_limits and not self.shares_connections

    def get_throttled_providers(self) -> tuple[str, ...]:
        """Return the providers that are paused as a whole."""
        now = clock.monotonic()
        return tuple(
            provider
            for (provider, group), throttle in [*self._throttles.items()]
            if group == ALL and throttle.paused_until > now
        )

    def _get_all_limits(self) -> list[SendLimit]:
        configured = [self.overall, *self._senders.values(), *self._groups.values(), *self._transports.values()]
        return [*configured, *self._throttles.values(), *self._quotas.values()]

    def _get_group_limits(self) -> list[tuple[str, RateLimiter | AdaptiveThrottle]]:
        throttles = [(throttle.name, throttle) for (_, group), throttle in self._throttles.items() if group != ALL]
        named = [*self._senders.values(), *(self._transports.values() if self._rules.has_choice else ())]
        return [*self._groups.items(), *throttles, *((limiter.name, limiter) for limiter in named)]

    def _get_configured_limits(self, provider: str, sender: str, recipient: str) -> list[RateLimiter]:
        if provider not in self._providers:
            return []
        own = [self._get_transport_limit(provider)] if self._rules.has_choice else []
        groups = map(self._groups.get, mx_routes.get_group_names(provider, recipient))
        shared = (self.overall, self._senders.get(domain_of(sender)), *groups)
        return [*own, *(limiter for limiter in shared if limiter is not None)]

    def get_status(self) -> SendStatus:
        """Return the paused providers, throttled groups, exhausted hourly limits and domains in warm-up, for pages."""
        loop_now, now = clock.monotonic(), clock.now_ms()
        throttles = [*self._throttles.items()]
        return SendStatus(
            tuple(
                PausedTransport(
                    provider, throttle.reason, throttle.since, now + int((throttle.paused_until - loop_now) * 1000)
                )
                for (provider, group), throttle in throttles
                if group == ALL and throttle.paused_until > loop_now
            ),
            tuple(
                throttle.describe(provider, loop_now, now) for (provider, _), throttle in throttles if throttle.reason
            ),
            self.get_full_limits(),
            warming_domains=tuple(
                WarmingDomain(quota.day._replace(accepted=quota.accepted_count), quota.is_full())
                for quota in [*self._quotas.values()]
                if quota.day.cap and not quota.is_over()
            ),
        )


# A server may let a transaction wait for minutes (RFC 5321, 4.5.3.2) and still be a good one, so the timeouts are long.
# Without a limit, a few servers that never reply would therefore hold all transactions and stop the mail to all others.

# A transaction is slow after this part of `email.command_timeout`.
_SLOW_PART = 0.1
_MAX_SLOW_OPERATORS = 5_000
# Each waiting message occupies a worker, so more messages to slow servers are put off by this time.
_SLOW_WAIT_SECONDS = 60.0


class Transaction:
    """A running transaction; `is_claimed` is set once its message is claimed and the server is ready for it."""

    def __init__(self, client: SmtpClient | None) -> None:
        self.client = client
        self.is_claimed = self.is_slow = False
        self.timer: asyncio.TimerHandle | None = None


class TransactionLimit:
    """A limit of concurrent transactions, of which slow servers occupy at most half, or one; used on one event loop.

    All servers of an operator (`mx_routes.get_organisation`) are slow after a slow transaction with one of them, until
    a transaction with one of them is fast.
    """

    def __init__(self, max_transactions: int) -> None:
        self._slots = asyncio.Semaphore(max_transactions)
        self._max_slow, self._max_waiting = max(1, max_transactions // 2), 2 * max_transactions
        # Running transactions with slow servers, messages that wait until fewer run, and messages that wait for a slot.
        self._slow_count = self._waiting_count = self._queued_count = 0
        self._slow_ended = asyncio.Event()
        self._slow_operators: set[str] = set()
        self._slow_seconds = _SLOW_PART * parse_seconds(config.current().email.command_timeout)

    @asynccontextmanager
    async def begin(self, client: SmtpClient | None) -> AsyncIterator[Transaction]:
        """Wait until a transaction may run, and count it as running while the `async with` block runs.

        `client` is None for a message that is not sent and only gets an outcome.
        """
        transaction = Transaction(client)
        operator = _get_operator(client) if client is not None else ""
        if operator in self._slow_operators:
            await self._wait_for_slow_slot()
            self._count_as_slow(transaction)
        try:
            await self._acquire_slot()
            started_at = asyncio.get_running_loop().time()
            self._start_timer(transaction, operator)
            try:
                yield transaction
            finally:
                self._slots.release()
                if transaction.timer is not None:
                    transaction.timer.cancel()
                if asyncio.get_running_loop().time() < started_at + self._slow_seconds:
                    self._slow_operators.discard(operator)
        finally:
            if transaction.is_slow:
                self._slow_count -= 1
                self._slow_ended.set()

    def find_delay(self, client: SmtpClient) -> RateLimited | None:
        """Return the error for a message to a slow server if too many others wait for slow servers, else None."""
        if self._waiting_count < self._max_waiting or _get_operator(client) not in self._slow_operators:
            return None
        return RateLimited(f"{client.server.host} replies slowly, and others wait for slow servers", _SLOW_WAIT_SECONDS)

    async def _acquire_slot(self) -> None:
        self._queued_count += 1
        try:
            await self._slots.acquire()
        finally:
            self._queued_count -= 1

    def _start_timer(self, transaction: Transaction, operator: str) -> None:
        loop = asyncio.get_running_loop()
        transaction.timer = loop.call_later(self._slow_seconds, self._handle_slow, transaction, operator)

    async def _wait_for_slow_slot(self) -> None:
        self._waiting_count += 1
        try:
            while self._slow_count >= self._max_slow:
                self._slow_ended.clear()
                await self._slow_ended.wait()
        finally:
            self._waiting_count -= 1

    def _count_as_slow(self, transaction: Transaction) -> None:
        transaction.is_slow = True
        self._slow_count += 1

    def _handle_slow(self, transaction: Transaction, operator: str) -> None:
        """Remember a slow operator. Abort its transaction if too many are slow, others wait and nothing was sent yet.

        After the message was sent, an abort would leave its outcome unknown. Others may begin to wait later, so this is
        called again after the same time.
        """
        if transaction.client is None:
            return
        if len(self._slow_operators) >= _MAX_SLOW_OPERATORS:
            self._slow_operators.clear()
        self._slow_operators.add(operator)
        if not transaction.is_slow:
            self._count_as_slow(transaction)
        if transaction.is_claimed:
            return
        if self._slow_count <= self._max_slow or not self._queued_count:
            self._start_timer(transaction, operator)
        else:
            log.info("direct: slow server given up host=%s", transaction.client.server.host)
            transaction.client.fail(
                ReplyTimeout(f"no reply within {self._slow_seconds:g} s, while other messages waited")
            )


def _get_operator(client: SmtpClient) -> str:
    return mx_routes.get_organisation(client.server.host)
