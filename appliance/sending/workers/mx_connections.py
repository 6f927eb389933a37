"""Open connections to recipients' mail servers in direct delivery, and reuse idle connections.

If the servers of a domain cannot be reached, only the attempts to send to that domain fail. If no server on the
internet can be reached, the transport is closed and no attempt is counted.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from appliance.core import clock
from appliance.core.errors import (
    ConnectionFailed,
    Deferred,
    DeliveryError,
    MailUnauthenticated,
    RateLimited,
    SenderRejected,
    SenderRejectedByMx,
    Unavailable,
)
from appliance.sending.delivery import bounce_classes, mx_routes, smtp_connect
from appliance.sending.delivery.mx_routes import DIRECT, MtaStsPolicy, domain_of
from appliance.sending.delivery.smtp_client import ReplyTimeout, SmtpClient
from appliance.sending.delivery.smtp_connect import MxTarget
from appliance.sending.messages.ledger import Claim
from appliance.sending.workers.circuit_breaker import CircuitBreaker
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.settings import config
from appliance.settings.config import parse_seconds
from appliance.storage import transactions as storage_transactions
from appliance.storage.models import MailPolicy
from appliance.storage.transactions import require_write_transaction

# MTA-STS policies of recipient domains are stored until they expire, also over restarts, and refreshed from DNS and the
# web server. An attacker who makes these fail must not remove a known policy (RFC 8461, 5.1 and 10.2).

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
        stored = await storage_transactions.fetch(load_policy, domain)
        announced = await mx_routes.run_lookup(mx_routes.find_policy_id, domain)
        if announced is None or (stored is not None and stored.id == announced):
            return stored, _POLICY_SECONDS
        fetched = await mx_routes.fetch_policy(domain, announced)
        if fetched is None:
            log.warning("mta-sts: policy of %s could not be fetched", domain)
            return stored, _POLICY_RETRY_SECONDS
        await storage_transactions.commit(store_policy, domain, fetched)
        return fetched, _POLICY_SECONDS


# Idle connections to recipients' mail servers are reused for the next message to the same servers.

# Servers soon close connections that are silent, so keeping them longer gains nothing.
_IDLE_SECONDS = 5.0

_MAX_IDLE = 50


class _IdleConnection(NamedTuple):
    target: MxTarget
    client: SmtpClient
    timer: asyncio.TimerHandle


class ConnectionPool:
    """Idle connections, and the number of open connections of each recipient group; used on one event loop."""

    def __init__(self) -> None:
        self._idle: list[_IdleConnection] = []  # the most recently used is last
        self._open: Counter[str] = Counter()  # by recipient group, without the idle ones
        self._closing: dict[asyncio.Future[None], str] = {}

    @property
    def connections(self) -> int:
        """Return the number of idle connections."""
        return len(self._idle)

    def take(self, target: MxTarget) -> SmtpClient | None:
        """Return an idle connection to the servers of a target and count it as in use, or return None."""
        for idle in reversed(self._idle):
            if idle.target.key == target.key:
                self._idle.remove(idle)
                idle.timer.cancel()
                if idle.client.is_open():
                    self._open[target.group] += 1
                    return idle.client
        return None

    async def reserve(self, target: MxTarget, limit: int) -> None:
        """Count a new connection in the target's group as in use, before it is opened.

        If the group has `limit` connections, close idle connections and wait until they are closed. Connections in use
        are not waited for, so the group may exceed `limit`.
        """
        while True:
            idle = [connection for connection in self._idle if connection.target.group == target.group]
            if len(idle) + self._open[target.group] < limit:
                break
            if idle:
                self._close_idle(idle[0])
            closing = [task for task, group in self._closing.items() if group == target.group]
            if not closing:
                break
            await asyncio.wait(closing, return_when=asyncio.FIRST_COMPLETED)
        self._open[target.group] += 1

    def release(self, target: MxTarget) -> None:
        """Count a connection as no longer in use, because it failed, was aborted or was closed."""
        self._open[target.group] -= 1
        if self._open[target.group] <= 0:
            del self._open[target.group]

    def put(self, target: MxTarget, client: SmtpClient) -> None:
        """Keep a used connection as idle for `_IDLE_SECONDS`; above `_MAX_IDLE` idle connections, close the oldest."""
        self.release(target)
        if len(self._idle) >= _MAX_IDLE:
            self._close_idle(self._idle[0])
        timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._expire, client)
        self._idle.append(_IdleConnection(target, client, timer))

    def close_group(self, group: str) -> None:
        """Close the idle connections to a recipient group."""
        for idle in [idle for idle in self._idle if idle.target.group == group]:
            self._close_idle(idle)

    def _expire(self, client: SmtpClient) -> None:
        for idle in [idle for idle in self._idle if idle.client is client]:
            self._close_idle(idle)

    def _close_idle(self, idle: _IdleConnection) -> None:
        self._idle.remove(idle)
        idle.timer.cancel()
        self._open[idle.target.group] += 1
        self.close_connection(idle.target, idle.client)

    def close_connection(self, target: MxTarget, client: SmtpClient) -> None:
        """Close a connection in the background; it counts as in use until it is closed."""
        task = asyncio.ensure_future(client.close())
        self._closing[task] = target.group

        def ended(_: "asyncio.Future[None]") -> None:
            del self._closing[task]
            self.release(target)

        task.add_done_callback(ended)

    async def close(self) -> None:
        """Close all idle connections, and wait until they and those already closing are closed."""
        for idle in [*self._idle]:
            self._close_idle(idle)
        if self._closing:
            await asyncio.wait({*self._closing})


# Mail servers that cannot be reached. If other servers can, the fault is theirs; if none can, the fault is ours.

# After this many failures in a row, servers are not tried for `DEAD_SECONDS` (D21).
MAX_FAILURES = 3

DEAD_SECONDS = 900.0

# Recipient groups that must reject a sender before the sender is at fault.
_MAX_REFUSING_GROUPS = 3

# A reply within this time shows that the internet can be reached.
_RECENT_SECONDS = 60.0

# The result of a probe is used for this time, so that messages waiting for it do not probe again.
_OUTAGE_CACHE_SECONDS = 5.0

_MAX_CACHED_HOSTS = 5_000


class UnreachableHosts:
    """The mail servers that this process could not reach, and those that rejected a sender; used on one event loop."""

    def __init__(self) -> None:
        self._last_reply_at = float("-inf")  # monotonic time of the last reply of any server
        # Until when the result of the last probe counts, and the result; for mail servers and for name servers.
        self._outage: tuple[float, str | None] = (float("-inf"), None)
        self._dns_outage: tuple[float, str | None] = (float("-inf"), None)
        # By sender domain: the recipient groups that rejected it since a message of it was last accepted.
        self._refusing_groups: dict[str, set[str]] = {}
        # By `MxTarget.key`: failures in a row, the time until which the servers are not tried, and the last reason.
        self._failures: dict[str, tuple[int, float, str]] = {}

    def get_downtime(self, target: MxTarget) -> tuple[float, str] | None:
        """Return (seconds for which the servers are not tried, reason), or None if they may be tried now."""
        _, until, reason = self._failures.get(target.key, (0, 0.0, ""))
        seconds_left = until - clock.monotonic()
        return (seconds_left, reason) if seconds_left > 0 else None

    def record_failure(self, target: MxTarget, reason: str) -> None:
        """Count a failure to reach servers; after `MAX_FAILURES` in a row they are not tried for `DEAD_SECONDS`."""
        if len(self._failures) >= _MAX_CACHED_HOSTS:
            self._failures.clear()
        count = self._failures.get(target.key, (0, 0.0, ""))[0] + 1
        until = clock.monotonic() + DEAD_SECONDS if count >= MAX_FAILURES else 0.0
        self._failures[target.key] = (count, until, reason)

    def record_connection(self, target: MxTarget) -> None:
        """Record that servers accepted a connection, and reset their failures."""
        self._last_reply_at = clock.monotonic()
        self._failures.pop(target.key, None)

    def record_reply(self) -> None:
        """Record that a server replied, whatever the reply was."""
        self._last_reply_at = clock.monotonic()

    def record_sender_refusal(self, sender: str, group: str) -> bool:
        """Record that a recipient group rejects a sender; return whether `_MAX_REFUSING_GROUPS` groups reject it.

        Only rejections since the last accepted message count. `sender` is the domain of the sender.
        """
        groups = self._refusing_groups.setdefault(sender, set())
        groups.add(group)
        return len(groups) >= _MAX_REFUSING_GROUPS

    def record_accepted(self, sender: str) -> None:
        """Record that a message of a sender domain was accepted, and delete its recorded rejections."""
        self._refusing_groups.pop(sender, None)

    async def find_outage(self) -> str | None:
        """Return why no mail server at all can be reached; None if one can be reached or the cause is unknown.

        The servers of well-known domains are probed only if no server replied within `_RECENT_SECONDS`.
        """
        if clock.monotonic() < self._last_reply_at + _RECENT_SECONDS:
            return None
        until, reason = self._outage
        if until < clock.monotonic():
            reason = await smtp_connect.find_port_block()
            self._outage = (clock.monotonic() + _OUTAGE_CACHE_SECONDS, reason)
            if reason is None:
                # None counts as a reply, so that the next failure does not probe again at once.
                self.record_reply()
        return reason

    async def find_dns_outage(self) -> str | None:
        """Return why no name server answers; None if one answers or the cause is unknown.

        Names are looked up only if no name server answered within `_RECENT_SECONDS`.
        """
        if clock.monotonic() < mx_routes.get_last_dns_answer_at() + _RECENT_SECONDS:
            return None
        until, reason = self._dns_outage
        if until < clock.monotonic():
            reason = await self._probe_dns()
            self._dns_outage = (clock.monotonic() + _OUTAGE_CACHE_SECONDS, reason)
        return reason

    @staticmethod
    async def _probe_dns() -> str | None:
        names = config.current().email.direct.probes
        errors = await asyncio.gather(*map(mx_routes.fetch_mx_error, names))
        if not errors or clock.monotonic() < mx_routes.get_last_dns_answer_at() + _RECENT_SECONDS:
            return None
        return f"no name server answers, so no mail server can be found: {errors[0]}"


# Time limit for connecting to any server of a domain.
_CONNECT_SECONDS = 120.0


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


class TransactionLimit:
    """A limit of concurrent transactions, of which slow servers occupy at most half; used on one event loop.

    All servers of an operator (`mx_routes.get_organisation`) are slow after a slow transaction with one of them, until
    a transaction with one of them is fast.
    """

    def __init__(self, max_transactions: int) -> None:
        self._slots = asyncio.Semaphore(max_transactions)
        self._max_slow, self._max_waiting = max_transactions // 2, 2 * max_transactions
        self._slow_count = self._waiting_count = 0
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
            async with self._slots:
                loop = asyncio.get_running_loop()
                started_at = loop.time()
                timer = loop.call_later(self._slow_seconds, self._handle_slow, transaction, operator)
                try:
                    yield transaction
                finally:
                    timer.cancel()
                    if loop.time() < started_at + self._slow_seconds:
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

    async def _wait_for_slow_slot(self) -> None:
        self._waiting_count += 1
        try:
            while self._slow_count >= max(1, self._max_slow):
                self._slow_ended.clear()
                await self._slow_ended.wait()
        finally:
            self._waiting_count -= 1

    def _count_as_slow(self, transaction: Transaction) -> None:
        transaction.is_slow = True
        self._slow_count += 1

    def _handle_slow(self, transaction: Transaction, operator: str) -> None:
        """Remember a slow operator. Abort its transaction if too many are slow, others wait and nothing was sent yet.

        After the message was sent, an abort would leave its outcome unknown.
        """
        if transaction.client is None:
            return
        if len(self._slow_operators) >= _MAX_SLOW_OPERATORS:
            self._slow_operators.clear()
        self._slow_operators.add(operator)
        if not transaction.is_slow:
            self._count_as_slow(transaction)
        if self._slow_count > self._max_slow and self._slots.locked() and not transaction.is_claimed:
            log.info("direct: slow server given up host=%s", transaction.client.server.host)
            transaction.client.fail(
                ReplyTimeout(f"no reply within {self._slow_seconds:g} s, while other messages waited")
            )


def _get_operator(client: SmtpClient) -> str:
    return mx_routes.get_organisation(client.server.host)


class MxConnection(NamedTuple):
    """A connection to a mail server of a recipient, or the error that explains why there is none.

    `is_other_group` means that no connection was opened, because the servers do not belong to the recipient group
    under whose limits the message was admitted.
    """

    target: MxTarget | None = None
    client: SmtpClient | None = None
    error: DeliveryError | None = None
    is_other_group: bool = False


class MxConnections:
    """The connections to recipients' mail servers, shared by the workers of a sender; used on one event loop.

    `transactions` limits the number of messages that are sent at the same time.
    """

    def __init__(
        self, breaker: CircuitBreaker, limits: EmailRateLimits, hosts: UnreachableHosts, transactions: TransactionLimit
    ) -> None:
        self._breaker, self._limits, self.hosts = breaker, limits, hosts
        self.transactions = transactions
        self.pool = ConnectionPool()
        self._policies = MtaStsPolicies()
        self._probe_lock = asyncio.Lock()

    async def connect(self, claim: Claim) -> MxConnection:
        """Return a connection for a message, or the error; pass an open connection to `give_back` after use.

        Raises Unavailable if the database cannot be read or written.
        """
        try:
            return await self._connect(claim)
        except Unavailable:
            raise
        except Exception as error:
            # After an internal error this message is tried again later; other messages are not affected.
            log.exception("direct: connecting for message %s failed", claim.id)
            return MxConnection(error=Deferred(f"{type(error).__name__}: {error}"))

    async def _connect(self, claim: Claim) -> MxConnection:
        domain = domain_of(claim.recipient_key)
        route = await mx_routes.find_route_async(domain)
        if route.error is not None:
            return MxConnection(error=await self._handle_route_error(route.error))
        if self._limits.get_admitted_group(claim) not in (None, route.group):
            return MxConnection(is_other_group=True)
        target = MxTarget(domain, route.hosts, route.group)
        if config.current().email.direct.mta_sts:
            target = self._apply_policy(target, await self._policies.get(domain))
        if not target.hosts:
            names = ", ".join(name for _, name in route.hosts)
            return MxConnection(
                error=Deferred(f"the MTA-STS policy of {domain} does not list its mail servers: {names}")
            )
        downtime = self.hosts.get_downtime(target)
        if downtime is not None:
            return MxConnection(
                error=Deferred(f"no attempt for {downtime[0] / 60:.0f} more minutes: {downtime[1]}", None, "4.4.1")
            )
        return await self._open_connection(target, claim)

    @staticmethod
    def _apply_policy(target: MxTarget, policy: MtaStsPolicy | None) -> MxTarget:
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

    async def _open_connection(self, target: MxTarget, claim: Claim) -> MxConnection:
        client = self.pool.take(target)
        if client is not None:
            return MxConnection(target, client)
        await self.pool.reserve(target, self._limits.get_max_connections(target.group, domain_of(claim.recipient_key)))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                client = await smtp_connect.connect_to_mx(target)
        except DeliveryError as error:
            self.pool.release(target)
            return MxConnection(error=await self._handle_connect_error(target, claim, error))
        except TimeoutError:
            self.pool.release(target)
            timed_out = ConnectionFailed(
                f"no mail server of {target.domain} accepted a connection within {_CONNECT_SECONDS:.0f} s"
            )
            return MxConnection(error=await self._handle_connect_error(target, claim, timed_out))
        except Exception as error:
            # After an internal error this message is tried again later; mail to other servers is not affected.
            log.exception("direct: connecting to the mail servers of %s failed", target.domain)
            self.pool.release(target)
            return MxConnection(error=Deferred(f"{type(error).__name__}: {error}"))
        except BaseException:
            self.pool.release(target)
            raise
        self.hosts.record_connection(target)
        return MxConnection(target, client)

    async def _handle_route_error(self, error: DeliveryError) -> DeliveryError:
        if error.enhanced == "4.4.3":
            async with self._probe_lock:
                reason = await self.hosts.find_dns_outage()
            if reason is not None:
                return self._close_transport(reason)
        return error

    async def _handle_connect_error(self, target: MxTarget, claim: Claim, error: DeliveryError) -> DeliveryError:
        if isinstance(error, ConnectionFailed):
            async with self._probe_lock:
                reason = await self.hosts.find_outage()
            if reason is not None:
                return self._close_transport(reason)
            error = Deferred(error.text, None, "4.4.1")
        elif error.smtp is not None:
            self.hosts.record_reply()
        if isinstance(error, Deferred):
            answer = self._limits.record_answer(claim, error)
            if isinstance(answer, RateLimited):
                self.pool.close_group(target.group)
                return answer
            self.hosts.record_failure(target, error.text)
        return error

    def classify_refusal(self, error: SenderRejected, claim: Claim, sender: str) -> DeliveryError:
        """Return the error to record for a server that rejects our sender.

        It is MailUnauthenticated if the server could not authenticate the message, the given error if
        `_MAX_REFUSING_GROUPS` recipient groups reject the sender, else SenderRejectedByMx, which only fails this
        message.
        """
        group = mx_routes.get_recipient_group(DIRECT, claim.recipient_key)
        if bounce_classes.classify(error.smtp, error.enhanced, error.text) is bounce_classes.AUTHENTICATION:
            return MailUnauthenticated(error.text, error.smtp, error.enhanced)
        if self.hosts.record_sender_refusal(domain_of(sender), group):
            return error
        return SenderRejectedByMx(error.text, error.smtp, error.enhanced)

    def _close_transport(self, reason: str) -> DeliveryError:
        error = ConnectionFailed(reason)
        self._breaker.record_connection_failure(DIRECT, error)
        return error

    def put_off_slow(self, connection: MxConnection) -> MxConnection:
        """Return the connection, or an error instead if too many messages already wait for slow servers."""
        if connection.target is None or connection.client is None:
            return connection
        error = self.transactions.find_delay(connection.client)
        if error is None:
            return connection
        self.give_back(connection.target, connection.client, None)
        return MxConnection(error=error)

    def give_back(self, target: MxTarget, client: SmtpClient | None, error: DeliveryError | None) -> None:
        """Keep a connection for the next message, or close it if it may carry no more messages or its group is paused.

        `client` is None for an aborted connection. `error` is the error of the message, or None; RateLimited also
        closes the idle connections to the group.
        """
        if isinstance(error, RateLimited):
            self.pool.close_group(target.group)
        if client is None:
            self.pool.release(target)
        elif client.is_open() and not self._limits.is_paused(target.group):
            self.pool.put(target, client)
        else:
            self.pool.close_connection(target, client)


def load_policy(domain: str) -> MtaStsPolicy | None:
    """Return the stored policy of a domain, or None if none is stored or the stored one has expired.

    The `max_age` of the returned policy is the remaining time in seconds.
    """
    row = MailPolicy.get_or_none(MailPolicy.domain == domain, MailPolicy.expires_at > clock.now_ms())
    if row is None:
        return None
    return MtaStsPolicy(row.policy_id, row.mode, tuple(row.hosts), (row.expires_at - clock.now_ms()) // 1000)


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
