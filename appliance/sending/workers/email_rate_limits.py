"""Limit the rate of email in messages a second, messages an hour, connections, and transactions with slow servers.

The limits come from the settings and apply to all email, to each sending domain and to each recipient group. In
addition, a recipient group whose servers ask for a lower rate is throttled (`AdaptiveThrottle`), while sending to
other groups continues. Only messages that are not claimed yet wait for a limit.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from appliance.core import clock
from appliance.core.errors import DeliveryError, RateLimited
from appliance.sending.delivery import bounce_classes, mx_routes
from appliance.sending.delivery.mx_routes import DIRECT, domain_of, get_address_group
from appliance.sending.delivery.smtp_client import ReplyTimeout, SmtpClient
from appliance.sending.messages import senders
from appliance.sending.messages.delivery_status import PausedTransport, SendStatus, WarmingDomain
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.senders import WarmUpDay
from appliance.sending.transports import TRANSPORTS
from appliance.sending.workers.rate_limits import ALL, NEVER, AdaptiveThrottle, RateLimiter, RateLimits, SendLimit
from appliance.settings import config
from appliance.settings.config import RateLimit, parse_limit, parse_seconds
from appliance.settings.schema import Email
from appliance.storage import transactions

log = logging.getLogger("campanero.sender")


class WarmUpQuota:
    """The quota of a sending domain in warm-up for one day (`senders.WarmUpDay`); used on one event loop.

    `used` counts accepted messages, `in_use` messages being sent; a `day.cap` of 0 is no limit.
    """

    def __init__(self, day: WarmUpDay) -> None:
        self.name = f"from {day.domain}"
        self.day = day
        self.used = day.accepted
        self.in_use = 0

    def is_over(self) -> bool:
        """Return whether the current time is outside of the day."""
        return not self.day.ends_at - clock.DAY_MS <= clock.now_ms() < self.day.ends_at

    def is_full(self) -> bool:
        """Return whether the quota of the day is used up; False after the day."""
        return bool(self.day.cap) and self.used >= self.day.cap and not self.is_over()

    def allowed_at(self, now: float) -> float:
        """Return the time from which the next message may be sent (seconds of `clock.monotonic`).

        NEVER means that the day is over and a new quota is needed, or that a message in progress has to end first.
        """
        if self.is_over():
            return NEVER
        if not self.day.cap or self.used + self.in_use < self.day.cap:
            return now
        return NEVER if self.used < self.day.cap else now + (self.day.ends_at - clock.now_ms()) / 1000

    def take(self, _: float) -> None:
        """Count a message as in progress."""
        self.in_use += 1

    def end(self, _used: bool) -> None:
        """Count a message as no longer in progress, whatever its outcome."""
        self.in_use -= 1

    def count_sent(self) -> None:
        """Count an accepted message towards the quota."""
        self.used += 1


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
# With so many throttles, `_DROPPED_THROTTLES` that are not in use are dropped.
_MAX_THROTTLES, _DROPPED_THROTTLES = 256, 64
# Connections to a recipient group at first in direct delivery (D19); accepted messages raise the number.
_FIRST_CONNECTIONS = 4


class EmailRateLimits(RateLimits):
    """The limits of email in one process; used on one event loop. Other threads may only read them."""

    def __init__(self, email: Email) -> None:
        super().__init__(RateLimit(email.rate_per_second, email.rate_per_hour))
        self._provider = email.transport
        self._pause_seconds, self._max_connections = parse_seconds(email.slow_down), email.connections
        self._senders = {
            name: RateLimiter(f"from {name}", limit) for name, limit in map(parse_limit, email.sender_limits)
        }
        self._groups = {
            group: RateLimiter(group, limit)
            for name, limit in map(parse_limit, email.recipient_limits)
            for group in (get_address_group(name),)
        }
        # Even the largest group leaves one connection for the other groups.
        self._max_group_connections = min(email.direct.group_connections, max(1, email.connections - 1))
        self._first_connections = min(_FIRST_CONNECTIONS, self._max_group_connections, max(1, email.connections // 2))
        self._throttles: dict[tuple[str, str], AdaptiveThrottle] = {}
        self._recently_throttled: deque[tuple[float, str]] = deque(maxlen=100)
        self._has_limits = bool(self.has_overall_limit or self._senders or self._groups)
        self._is_direct = self._provider == DIRECT
        self._has_warm_up = email.direct.warm_up
        self._quotas: dict[str, WarmUpQuota] = {}  # by sending domain
        self.is_unlimited = not self._has_limits and not self._is_direct

    async def load_quota(self, row: LedgerRow, sender: str) -> None:
        """Load the warm-up quota of a sending domain for today, unless it is loaded."""
        if not self._has_warm_up or row.provider != DIRECT:
            return
        domain = domain_of(sender)
        quota = self._quotas.get(domain)
        if quota is None or quota.is_over():
            self._quotas[domain] = WarmUpQuota(await transactions.commit(senders.get_or_create_today, domain))

    def get_sender_limit_name(self, sender: str) -> str:
        """Return the name of the limit of a sender address: `from ` and its domain."""
        return f"from {domain_of(sender)}"

    def _get_limits_of(self, row: LedgerRow, sender: str) -> list[SendLimit]:
        names = mx_routes.get_group_names(row.provider, row.recipient_key or "")
        limits: list[SendLimit | None] = []
        if row.provider == DIRECT:
            limits.append(self._get_throttle(DIRECT, names[0]))
            quota = self._quotas.get(domain_of(sender)) if self._quotas else None
            if quota is not None:
                # A transactional message must not wait for the next day because a newsletter used up the quota.
                is_uncapped = row.transactional or (row.campaign_id is None and row.flow_id is None)
                limits.append(UncappedQuota(quota) if is_uncapped else quota)
        elif self._throttles:
            limits += [self._throttles.get((row.provider, ALL)), self._throttles.get((row.provider, names[0]))]
        # The settings limit the configured transport only, not test messages that go to the capture server.
        if self._has_limits and row.provider == self._provider:
            limits += [self._senders.get(domain_of(sender)), *map(self._groups.get, names)]
            limits += [self.overall] if self.has_overall_limit else []
        return [limit for limit in limits if limit is not None]

    def record_answer(self, row: LedgerRow, error: DeliveryError | None) -> DeliveryError | None:
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
        if isinstance(error, RateLimited) and row.provider in TRANSPORTS:
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
        if row.provider != DIRECT:
            self._recently_throttled.append((now, group))
        if (
            len({name for at, name in self._recently_throttled if at > now - _THROTTLED_GROUPS_SECONDS and name != ALL})
            >= _MAX_THROTTLED_GROUPS
        ):
            self._slow_down(row.provider, ALL, now, error)
            self._recently_throttled.clear()
        return throttle.to_rate_limited(error, now)

    def _slow_down(self, provider: str, group: str, now: float, error: DeliveryError) -> AdaptiveThrottle:
        throttle = self._get_throttle(provider, group)
        throttle.record_refusal(now, error.text, bounce_classes.asks_for_pause(error))
        return throttle

    def _get_throttle(self, provider: str, group: str) -> AdaptiveThrottle:
        existing = self._throttles.get((provider, group))
        if existing is not None:
            return existing
        if len(self._throttles) >= _MAX_THROTTLES:
            self._drop_throttles()
        if provider == DIRECT:
            throttle = AdaptiveThrottle(
                group, self._max_group_connections, self._pause_seconds, self._first_connections
            )
        else:
            throttle = AdaptiveThrottle(group, self._max_connections, self._pause_seconds)
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
            (limit.name for limit in self._admitted.get(row.id, ()) if isinstance(limit, AdaptiveThrottle)), None
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
        self.is_unlimited = not self._throttles and not self._has_limits and not self._is_direct

    def get_paused_providers(self) -> tuple[str, ...]:
        """Return the providers that are paused as a whole."""
        now = clock.monotonic()
        return tuple(
            provider
            for (provider, group), throttle in [*self._throttles.items()]
            if group == ALL and throttle.paused_until > now
        )

    def _get_all_limits(self) -> list[SendLimit]:
        configured = [self.overall, *self._senders.values(), *self._groups.values()]
        return [*configured, *self._throttles.values(), *self._quotas.values()]

    def _get_group_limits(self) -> list[tuple[str, RateLimiter | AdaptiveThrottle]]:
        throttles = [(group, throttle) for (_, group), throttle in self._throttles.items() if group != ALL]
        return [*self._groups.items(), *throttles]

    def _get_configured_limits(self, provider: str, sender: str, recipient: str) -> list[RateLimiter]:
        if provider != self._provider:
            return []
        groups = map(self._groups.get, mx_routes.get_group_names(provider, recipient))
        return [
            limiter for limiter in (self.overall, self._senders.get(domain_of(sender)), *groups) if limiter is not None
        ]

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
                WarmingDomain(quota.day._replace(accepted=quota.used), quota.is_full())
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
    async def hold(self, client: SmtpClient | None) -> AsyncIterator[Transaction]:
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
