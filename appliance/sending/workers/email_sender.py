"""Send email that is due over at most `email.connections` connections, on one event loop.

`EmailWorker` adds direct delivery to `smtp_worker.py`, which sends through the relay and to the capture server, and
passes messages for a provider's HTTP API (`sending/transports`) to `HttpWorker`, which sends one at a time.

`EmailSender.drain` runs on the thread of the job `outbox` (`jobs.send_due_email`). It starts an event loop, on
which the workers run, and on which messages are read and rendered; only signatures, DNS look-ups and writes have other
threads. The loop ends when no message is due, and the next wake-up starts another.
"""

import asyncio
import time
from collections.abc import Callable

import uvloop

from appliance.core.errors import ClientRejected, DeliveryError, SenderRejected
from appliance.sending.delivery import http_client
from appliance.sending.delivery.mx_routes import DIRECT, domain_of
from appliance.sending.delivery.smtp_client import SmtpClient
from appliance.sending.messages import ledger
from appliance.sending.messages.ledger import Outcome, OutgoingMessage
from appliance.sending.messages.transport_choice import TransportRules
from appliance.sending.transports import TRANSPORTS
from appliance.sending.transports.base import OutgoingEmail
from appliance.sending.workers.circuit_breaker import UnreachableHosts
from appliance.sending.workers.email_rate_limits import EmailRateLimits, Transaction, TransactionLimit, count_workers
from appliance.sending.workers.mx_connections import MxConnection, MxConnections
from appliance.sending.workers.renderer import RenderedMessage
from appliance.sending.workers.request_worker import RequestWorker
from appliance.sending.workers.sender import Sender, WorkerContext
from appliance.sending.workers.smtp_worker import IDLE_SECONDS, NextMessage, SmtpWorker
from appliance.settings import config, transports
from appliance.storage.database import close_database


class IdleConnections:
    """Open connections to relays that no worker uses now, so that there are no more of them than messages in progress.

    They are used on one event loop, and closed after `IDLE_SECONDS`, because servers drop idle clients.
    """

    def __init__(self) -> None:
        self._idle: dict[str, dict[SmtpClient, asyncio.TimerHandle]] = {}
        self._closing: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        """Return the number of connections; may be called from any thread."""
        return sum(len(idle) for idle in [*self._idle.values()])

    def take(self, provider: str) -> SmtpClient | None:
        """Remove and return the connection to a transport that was used last, or return None."""
        idle = self._idle.get(provider, {})
        while idle:
            client, timer = idle.popitem()
            timer.cancel()
            if client.is_open():
                return client
            self._close(client)
        return None

    def put(self, provider: str, client: SmtpClient) -> None:
        """Keep a connection for the next message of its transport, if it is still open."""
        if not client.is_open():
            self._close(client)
            return

        def expire() -> None:
            del idle[client]
            self._close(client)

        idle = self._idle.setdefault(provider, {})
        idle[client] = asyncio.get_running_loop().call_later(IDLE_SECONDS, expire)

    def _close(self, client: SmtpClient) -> None:
        self._closing.add(task := asyncio.ensure_future(client.close()))
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections with QUIT, and wait until they are closed."""
        for idle in self._idle.values():
            for client, timer in idle.items():
                timer.cancel()
                self._close(client)
        self._idle = {}
        if self._closing:
            await asyncio.wait({*self._closing})


class HttpWorker(RequestWorker[EmailRateLimits]):
    """A worker that sends each email with one request to the transport of its ledger row."""

    async def _transmit(self, prepared: OutgoingMessage, outcome: Outcome, check: Callable[[], None]) -> None:
        row, settings = outcome.row, config.current()
        kind = transports.get_kind(row.provider, settings.email)
        outcome.subject, outcome.internet_message_id = prepared.subject, prepared.internet_message_id
        if kind not in TRANSPORTS:
            raise ClientRejected(f"the transport {row.provider} no longer exists")
        # The settings may have been changed since the message was queued. Those of further transports are complete.
        faults = config.find_missing_settings(settings, kind) if kind == row.provider else []
        if faults:
            raise ClientRejected(f"{row.provider} is no longer configured: {'; '.join(faults)}")
        email = OutgoingEmail(prepared.envelope, prepared.internet_message_id, not row.transactional)
        own_settings = transports.build_settings(row.provider, settings.email)
        outcome.provider_id = await TRANSPORTS[kind].send(email, check, own_settings)

    async def _send(self, prepared: OutgoingMessage, outcome: Outcome, revision: int) -> DeliveryError | None:
        started_at = time.monotonic()
        error = await super()._send(prepared, outcome, revision)
        ledger.observe_transaction(outcome.row.provider, error, time.monotonic() - started_at)
        return error

    def _handle_answer(self, outcome: Outcome, sender: str) -> None:
        outcome.error = self._context.limits.handle_answer(outcome.row, outcome.error)
        self._context.breaker.record_answer(outcome.row, outcome.error)


class EmailWorker(SmtpWorker):
    """A worker for every transport of email: direct delivery here, relay and capture as in `SmtpWorker`.

    Messages of one queue may have different transports (`transport_choice.py`). Those for an HTTP API are sent by an
    `HttpWorker`, whose last outcome is stored before a message of another transport is taken.

    In direct delivery, the worker finds the recipient's mail servers and connects before it claims the message, so that
    no message is claimed while a server is slow. There are more workers than `email.connections`, because most may be
    waiting for a server, but `TransactionLimit` allows only `email.connections` claimed messages
    (docs/promises.md#p3). The limit of each other transport restricts its messages in progress (`EmailRateLimits`).
    """

    def __init__(
        self, context: WorkerContext[EmailRateLimits], mx_connections: MxConnections, idle_connections: IdleConnections
    ) -> None:
        super().__init__(context)
        self._idle_connections = idle_connections
        self._http_worker = HttpWorker(context)
        self._is_requesting = False
        self._mx_connections = mx_connections
        self._connecting: asyncio.Task[MxConnection] | None = None
        self._transaction: Transaction | None = None

    async def _send_next(self) -> None:
        ready = self._next.ready if self._next is not None else None
        if self._is_claimed_ahead():  # so it goes to a fixed server, as the message before it
            await (self._send_to_fixed_server(ready) if self._limits.shares_connections else super()._send_next())
            return
        if ready is not None and ready.prepared is not None and self._get_kind(ready.row.provider) in TRANSPORTS:
            await self._send_over_http(ready)
            return
        await self._http_worker.store_pending_outcome()
        if ready is None or ready.prepared is None or ready.row.provider != DIRECT:
            await self._send_to_fixed_server(ready)
            return
        await self._store_pending_outcome()
        self._next = None
        self._connecting = asyncio.ensure_future(self._mx_connections.connect(ready.row))
        try:
            connection = await self._connecting
        except BaseException:
            self._ready_queue.finish_claim(ready.row, is_claimed=False)
            if self._connecting.cancelled() and self._stop_switch.is_halted():
                return
            self._connecting.cancel()
            raise
        finally:
            self._connecting = None
        connection = self._mx_connections.postpone_slow(connection)
        # The transaction ends when the outcome is stored, so that the limit counts every message that a crash would
        # leave in doubt.
        async with self._mx_connections.transactions.begin(connection.client) as self._transaction:
            await self._process_with(ready, connection)

    async def _send_to_fixed_server(self, ready: RenderedMessage | None) -> None:
        """Send the next message over a connection of this worker, or over one that no worker uses now.

        While workers share connections, this worker keeps the connection only for a message that it sends next.
        """
        if ready is None or not self._limits.shares_connections:
            await super()._send_next()
            return
        provider = ready.row.provider
        if provider not in self._connections and (client := self._idle_connections.take(provider)) is not None:
            self._connections[provider] = client
        try:
            await super()._send_next()
        finally:
            if self._next is None or self._next.ready.row.provider != provider:
                client = self._connections.pop(provider, None)
                if client is not None:
                    self._idle_connections.put(provider, client)

    async def _connect_for_next(self) -> bool:
        # A connection that workers share is opened only for a message that is admitted.
        if self._limits.shares_connections:
            return await self._ready_queue.peek_provider() is not None
        return await super()._connect_for_next()

    @staticmethod
    def _get_kind(provider: str) -> str:
        return transports.get_kind(provider, config.current().email)

    async def _send_over_http(self, ready: RenderedMessage) -> None:
        """Send the next message with a request, or put it back into the queue if a limit now applies to it."""
        await super()._store_pending_outcome()
        if not self._is_admitted(ready):
            self._put_back_next()
            return
        self._next, self._is_requesting = None, True
        try:
            await self._http_worker.process(ready)
        finally:
            self._is_requesting = False
            self._ready_queue.release(ready.row)

    @property
    def connections(self) -> int:
        """Return the number of SMTP connections, including idle ones, and of HTTP requests in flight."""
        return super().connections + self._is_requesting

    async def _store_pending_outcome(self) -> None:
        await self._http_worker.store_pending_outcome()
        await super()._store_pending_outcome()

    def cancel_connecting(self) -> None:
        """Cancel the connection attempt in progress, if any, because the service is stopping."""
        if self._connecting is not None:
            self._connecting.cancel()

    async def _process_with(self, ready: RenderedMessage, connection: MxConnection) -> None:
        """Send a message over a connection and store its outcome, then give the connection back.

        The message is put back into the queue if sending was stopped, if the recipient's servers do not belong to the
        recipient group that was assumed, or if a limit now applies to the message.
        """
        error: DeliveryError | None = None
        if connection.client is not None:
            self._connections[DIRECT] = connection.client
        try:
            if (
                connection.is_other_group
                or self._stop_switch.is_halted()
                or (connection.error is None and not self._is_admitted(ready))
            ):
                self._ready_queue.put_back(ready)
                return
            try:
                await self._process(NextMessage(ready), connection.client, connection.error)
                error = self._pending_outcome.error if self._pending_outcome is not None else None
                if error is None and self._pending_outcome is not None:
                    self._mx_connections.hosts.record_accepted(domain_of(ready.sender))
                await self._store_pending_outcome()
            finally:
                self._ready_queue.release(ready.row)
        finally:
            client = self._connections.pop(DIRECT, None)
            if connection.target is not None:
                self._mx_connections.give_back(connection.target, client, error)

    def _has_fixed_server(self, provider: str) -> bool:
        return provider != DIRECT and self._get_kind(provider) not in TRANSPORTS

    def _begin_outcome(self, ready: RenderedMessage, client: SmtpClient | None, outcome: Outcome) -> None:
        if ready.row.provider == DIRECT:
            if isinstance(outcome.error, SenderRejected):
                outcome.error = self._mx_connections.classify_refusal(outcome.error, outcome.row, ready.sender)
            if client is not None:
                if self._transaction is not None:
                    self._transaction.is_claimed = True
                outcome.delivered_via = {"mx": client.server.host, "tls": client.encryption}


# Messages rendered ahead for each worker; more would only wait longer.
_READY_PER_CONNECTION = 8


class EmailSender(Sender[EmailRateLimits]):
    """The email sender of one process; `drain` must run in one thread at a time."""

    def __init__(self, process: str) -> None:
        email = config.current().email
        self._hosts = UnreachableHosts()
        self._workers: set[EmailWorker] = set()
        self._mx_connections: MxConnections | None = None
        self._idle_connections = IdleConnections()
        rules = TransportRules(email)
        super().__init__("email", "smtp", process, email.probe_after, EmailRateLimits(email), rules.is_replaceable)

    def drain(self) -> None:
        """Send messages until none is due or sending is stopped.

        A wake-up that comes too late for the workers of this loop starts another loop.
        """
        while not self.stop_switch.is_halted():
            try:
                # With uvloop, a message takes a tenth less processor time (docs/decisions.md#19).
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(self._run())
            finally:
                close_database()
            if not self._woken.is_set():
                return

    def _create_context(self) -> WorkerContext[EmailRateLimits]:
        email = config.current().email
        keys = TransportRules(email).keys
        worker_count = sum(count_workers(key, email) for key in keys)
        connections = sum(transports.build_settings(key, email).connections for key in keys)
        direct_connections = transports.build_settings(DIRECT, email).connections
        self._mx_connections = MxConnections(
            self.breaker, self.limits, self._hosts, TransactionLimit(direct_connections)
        )
        return self._build_context(worker_count, worker_count * _READY_PER_CONNECTION, connections)

    async def _run_worker(self, context: WorkerContext[EmailRateLimits]) -> None:
        assert self._mx_connections is not None
        worker = EmailWorker(context, self._mx_connections, self._idle_connections)
        self._workers.add(worker)
        try:
            await worker.run()
        except asyncio.CancelledError:
            worker.abort()
            raise
        finally:
            await worker.close()
            self._workers.discard(worker)

    async def _wait_for_wake_up(self) -> bool:
        return False

    def _cancel_waiting(self) -> None:
        for worker in [*self._workers]:
            worker.cancel_connecting()

    async def _close_connections(self) -> None:
        await http_client.close_connections()
        await self._idle_connections.close()
        if self._mx_connections is not None:
            await self._mx_connections.pool.close()

    def _count_connections(self) -> int:
        idle_count = self._mx_connections.pool.idle_count if self._mx_connections is not None else 0
        return idle_count + self._idle_connections.count + sum(worker.connections for worker in [*self._workers])
