"""Open connections to recipients' mail servers in direct delivery, and reuse idle connections.

If the servers of a domain cannot be reached, only the attempts to send to that domain fail. If no server on the
internet can be reached, the transport is paused and no attempt is counted.
`circuit_breaker.py` knows which servers are unreachable, and `email_rate_limits.py` which are slow.

The MTA-STS policy of a domain says what it demands of a connection (RFC 8461). Policies are stored until they expire,
also over restarts. They are fetched again if their id in DNS changes, and once half of their lifetime is over: an
attacker who makes DNS or the web server fail for a while must not remove a known policy (RFC 8461, 3.3 and 10.2).
"""

import asyncio
import logging
from collections import Counter
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
from appliance.sending.delivery.smtp_client import SmtpClient
from appliance.sending.delivery.smtp_connect import MxTarget
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.workers.circuit_breaker import CircuitBreaker, UnreachableHosts
from appliance.sending.workers.email_rate_limits import EmailRateLimits, TransactionLimit
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.models import MailPolicy
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero.sender")
# Time limit for connecting to any server of a domain.
_CONNECT_SECONDS = 120.0
# Servers soon close connections that are silent, so keeping them longer gains nothing.
_IDLE_SECONDS = 5.0
_MAX_IDLE = 50
# How long a policy or its absence is cached in memory: usually, after a failed request, and at least.
_POLICY_SECONDS, _POLICY_RETRY_SECONDS, _MIN_POLICY_SECONDS = 3600.0, 300.0, 60.0
_MAX_CACHED_POLICIES = 20_000


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
    def idle_count(self) -> int:
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
        are not waited for: that they stay within `limit` is up to the rate limits, which admit only so many messages of
        a group (`EmailRateLimits`).
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
        timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, lambda: self._close_idle(idle))
        idle: _IdleConnection = _IdleConnection(target, client, timer)
        self._idle.append(idle)

    def close_group(self, group: str) -> None:
        """Close the idle connections to a recipient group."""
        for idle in [idle for idle in self._idle if idle.target.group == group]:
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

    async def connect(self, row: LedgerRow) -> MxConnection:
        """Return a connection for a message, or the error; pass an open connection to `give_back` after use.

        Raises Unavailable if the database cannot be read or written.
        """
        try:
            return await self._connect(row)
        except Unavailable:
            raise
        except Exception as error:
            # After an internal error this message is tried again later; other messages are not affected.
            log.exception("direct: connecting for message %s failed", row.id)
            return MxConnection(error=Deferred(f"{type(error).__name__}: {error}"))

    async def _connect(self, row: LedgerRow) -> MxConnection:
        domain = domain_of(row.recipient_key)
        route = await mx_routes.find_route_async(domain)
        if route.error is not None:
            return MxConnection(error=await self._handle_route_error(route.error))
        if self._limits.get_admitted_group(row) not in (None, route.group):
            return MxConnection(is_other_group=True)
        target = MxTarget(domain, route.hosts, route.group)
        if config.current().email.direct.mta_sts:
            target = apply_policy(target, await self._policies.get(domain))
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
        return await self._open_connection(target, row)

    async def _open_connection(self, target: MxTarget, row: LedgerRow) -> MxConnection:
        client = self.pool.take(target)
        if client is not None:
            return MxConnection(target, client)
        await self.pool.reserve(target, self._limits.get_max_connections(target.group, domain_of(row.recipient_key)))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                client = await smtp_connect.connect_to_mx(target)
        except BaseException as error:
            self.pool.release(target)
            if isinstance(error, TimeoutError):
                text = f"no mail server of {target.domain} accepted a connection within {_CONNECT_SECONDS:.0f} s"
                return MxConnection(error=await self._handle_connect_error(target, row, ConnectionFailed(text)))
            if isinstance(error, DeliveryError):
                return MxConnection(error=await self._handle_connect_error(target, row, error))
            raise
        self.hosts.record_connection(target)
        return MxConnection(target, client)

    async def _handle_route_error(self, error: DeliveryError) -> DeliveryError:
        if error.enhanced == mx_routes.DNS_FAILED:
            async with self._probe_lock:
                reason = await self.hosts.find_dns_outage()
            if reason is not None:
                return self._pause_transport(reason)
        return error

    async def _handle_connect_error(self, target: MxTarget, row: LedgerRow, error: DeliveryError) -> DeliveryError:
        if isinstance(error, ConnectionFailed):
            async with self._probe_lock:
                reason = await self.hosts.find_outage()
            if reason is not None:
                return self._pause_transport(reason)
            error = Deferred(error.text, None, "4.4.1")
        elif error.smtp is not None:
            self.hosts.record_reply()
        if isinstance(error, Deferred):
            answer = self._limits.handle_answer(row, error)
            if isinstance(answer, RateLimited):
                self.pool.close_group(target.group)
                return answer
            self.hosts.record_failure(target, error.text)
        return error

    def classify_refusal(self, error: SenderRejected, row: LedgerRow, sender: str) -> DeliveryError:
        """Return the error to record for a server that rejects our sender.

        It is MailUnauthenticated if the server could not authenticate the message, the given error if
        `_MAX_REFUSING_GROUPS` recipient groups reject the sender, else SenderRejectedByMx, which only fails this
        message.
        """
        group = mx_routes.get_recipient_group(DIRECT, row.recipient_key)
        if bounce_classes.classify(error.smtp, error.enhanced, error.text) is bounce_classes.AUTHENTICATION:
            return MailUnauthenticated(error.text, error.smtp, error.enhanced)
        if self.hosts.record_sender_refusal(domain_of(sender), group):
            return error
        return SenderRejectedByMx(error.text, error.smtp, error.enhanced)

    def _pause_transport(self, reason: str) -> DeliveryError:
        error = ConnectionFailed(reason)
        self._breaker.handle_connection_failure(DIRECT, error)
        return error

    def postpone_slow(self, connection: MxConnection) -> MxConnection:
        """Return the connection, or give it back and return an error if too many messages wait for slow servers."""
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
