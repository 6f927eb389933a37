"""Send email that is due over at most `email.connections` connections, on one event loop.

`EmailWorker` adds direct delivery to `smtp_worker.py`, which sends through the relay and to the capture server.

`EmailSender.drain` runs on the thread of the job `outbox` (`jobs.tasks.send_due_email`). It starts an event loop, on
which the workers run, and on which messages are read and rendered; only signatures, DNS look-ups and writes have other
threads. The loop ends when no message is due, and the next wake-up starts another. The rate limits, the circuit
breaker and the record of unreachable hosts outlive the loop; workers, connections and the ready queue do not.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

import uvloop

from appliance.core import send_status
from appliance.core.errors import DeliveryError, SenderRejected, Unavailable
from appliance.core.send_status import SendStatus
from appliance.sending.delivery.mx_routes import DIRECT, domain_of
from appliance.sending.delivery.smtp_client import SmtpClient
from appliance.sending.messages.ledger import Outcome
from appliance.sending.workers.circuit_breaker import CircuitBreaker, StopSwitch
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.sending.workers.mx_connections import (
    MxConnection,
    MxConnections,
    Transaction,
    TransactionLimit,
    UnreachableHosts,
)
from appliance.sending.workers.outcome_writer import OutcomeWriter
from appliance.sending.workers.ready_queue import ReadyQueue, RenderedMessage
from appliance.sending.workers.smtp_worker import SmtpWorker
from appliance.sending.workers.worker_tasks import CANCEL_SECONDS, WorkerTasks
from appliance.settings import config
from appliance.settings.config import parse_seconds
from appliance.storage.database import close_database


class EmailWorker(SmtpWorker):
    """A worker for every transport of email: direct delivery here, relay and capture as in `SmtpWorker`.

    For direct delivery it looks up the recipient's mail servers and connects before it claims the message, so that no
    message is claimed while a server is slow. There are more workers than `email.connections`, because most may be
    waiting for a server, but `TransactionLimit` allows only `email.connections` claimed messages
    (docs/promises.md#p3).
    """

    def __init__(
        self, breaker: CircuitBreaker, limits: EmailRateLimits, ready_queue: ReadyQueue, outcome_writer: OutcomeWriter,
        is_halted: Callable[[], bool], mx_connections: MxConnections,
    ) -> None:  # fmt: skip
        super().__init__(breaker, limits, ready_queue, outcome_writer, is_halted)
        self._mx_connections = mx_connections
        self._connecting: asyncio.Task[MxConnection] | None = None
        self._transaction: Transaction | None = None

    async def _send_next(self) -> None:
        ready = self._next
        if ready is None or ready.prepared is None or ready.claim.provider != DIRECT:
            await super()._send_next()
            return
        await self._store_outcome()
        self._next = None
        self._connecting = asyncio.ensure_future(self._mx_connections.connect(ready.claim))
        try:
            connection = await self._connecting
        except BaseException:
            self._ready_queue.finish_claim(ready.claim, is_claimed=False)
            if self._connecting.cancelled() and self._is_halted():
                return
            self._connecting.cancel()
            raise
        finally:
            self._connecting = None
        connection = self._mx_connections.put_off_slow(connection)
        # The place is held until the outcome is stored, so that it counts all messages that a crash leaves in doubt.
        async with self._mx_connections.transactions.hold(connection.client) as self._transaction:
            await self._process_with(ready, connection)

    def cancel_connecting(self) -> None:
        """Cancel the connection attempt in progress, if any, because the service is stopping."""
        if self._connecting is not None:
            self._connecting.cancel()

    async def _process_with(self, ready: RenderedMessage, connection: MxConnection) -> None:
        """Send a message over a connection and store its outcome, then give the connection back.

        The message is put back into the queue if sending was stopped, if the recipient's servers belong to another
        recipient group than was assumed, or if a limit now applies to the message.
        """
        error: DeliveryError | None = None
        if connection.client is not None:
            self._connections[DIRECT] = connection.client
        try:
            if (
                connection.is_other_group
                or self._is_halted()
                or (connection.error is None and not self._is_admitted(ready))
            ):
                self._ready_queue.put_back(ready)
                return
            try:
                await self._process(ready, connection.client, connection.error)
                error = self._outcome.error if self._outcome is not None else None
                if error is None and self._outcome is not None:
                    self._mx_connections.hosts.record_accepted(domain_of(ready.sender))
                await self._store_outcome()
            finally:
                self._ready_queue.release(ready.claim)
        finally:
            client = self._connections.pop(DIRECT, None)
            if connection.target is not None:
                self._mx_connections.give_back(connection.target, client, error)

    def _can_claim_ahead(self, provider: str) -> bool:
        """Return False for direct delivery, where the next message may need another connection."""
        return provider != DIRECT

    async def _transmit(self, ready: RenderedMessage, client: SmtpClient | None, outcome: Outcome) -> None:
        if ready.claim.provider == DIRECT:
            if isinstance(outcome.error, SenderRejected):
                outcome.error = self._mx_connections.classify_refusal(outcome.error, outcome.claim, ready.sender)
            if client is not None:
                if self._transaction is not None:
                    self._transaction.is_claimed = True
                outcome.delivered_via = {"mx": client.server.host, "tls": client.encryption}
        await super()._transmit(ready, client, outcome)

    async def _connect_ahead(self, provider: str) -> None:
        if provider != DIRECT:
            await super()._connect_ahead(provider)


log = logging.getLogger("campanero.sender")
# Messages rendered ahead for each worker; more would only wait longer.
_READY_PER_CONNECTION = 8
# Workers for each allowed connection in direct delivery.
_WORKERS_PER_CONNECTION = 8
_MAX_WORKERS = 100


class EmailSender:
    """The email sender of one process; `drain` must run in one thread at a time."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.is_halted = StopSwitch()
        self.stopping = self.is_halted.stopping
        self.breaker = CircuitBreaker(parse_seconds(config.current().email.probe_after))
        self._woken = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_event: asyncio.Event | None = None
        self.limits = EmailRateLimits(config.current().email)
        self.hosts = UnreachableHosts()
        self._workers: set[EmailWorker] = set()
        self._mx_connections: MxConnections | None = None
        send_status.set_reporter("email", self.get_status)

    def wake(self) -> None:
        """Make a running sender look for due messages again; may be called from any thread."""
        self._woken.set()
        loop, event = self._loop, self._wake_event
        if loop is not None and event is not None:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                log.debug("smtp: wake ignored, sender has ended")

    def drain(self) -> None:
        """Send messages until none is due or sending is stopped.

        A wake-up that comes too late for the workers of this loop starts another loop.
        """
        while not self.is_halted():
            try:
                with asyncio.Runner(loop_factory=_create_loop) as runner:
                    runner.run(self._drain())
            finally:
                close_database()
            if not self._woken.is_set():
                return

    def stop(self) -> None:
        """Start no new transactions, and let a running `drain` return once the open ones have finished."""
        self.stopping.set()
        self.wake()

    def get_status(self) -> SendStatus:
        """Return the state of the transports, limits and connections of email; may be called from any thread."""
        status = self.limits.get_status()
        open_connections = sum(worker.connections for worker in [*self._workers])
        open_connections += self._mx_connections.pool.connections if self._mx_connections is not None else 0
        closed = (*self.breaker.get_closed_transports(), *status.closed_transports)
        return status._replace(closed_transports=closed, connections=open_connections)

    async def _drain(self) -> None:
        """Run workers on this event loop until no message is due or `stop` is called, then close all connections."""
        email = config.current().email
        worker_count = (
            min(email.connections * _WORKERS_PER_CONNECTION, _MAX_WORKERS)
            if email.transport == DIRECT
            else email.connections
        )
        self._mx_connections = mx_connections = MxConnections(
            self.breaker, self.limits, self.hosts, TransactionLimit(email.connections)
        )
        self._loop, self._wake_event = asyncio.get_running_loop(), asyncio.Event()
        ready_queue = ReadyQueue(self.breaker, self.limits, worker_count * _READY_PER_CONNECTION, self.is_halted)
        outcome_writer = OutcomeWriter(self.process, email.connections)
        tasks = WorkerTasks(lambda: self._run_worker(ready_queue, outcome_writer, mx_connections), self._wake_event)
        try:
            await self.limits.count_past_hour("email")
            while not self.stopping.is_set():
                self._wake_event.clear()
                self._woken.clear()
                ready_queue.refill()
                tasks.start(worker_count)
                # Workers that find no message end, and are started again at the next wake-up.
                await self._wake_event.wait()
                if not tasks and not self._woken.is_set():
                    return
            ready_queue.refill()  # wakes the workers that wait for a limit, so that they end
            for worker in [*self._workers]:
                worker.cancel_connecting()
            await tasks.stop()
        finally:
            self._loop = self._wake_event = None
            await mx_connections.pool.close()
            # The shutdown does not wait for a database that cannot be written.
            await outcome_writer.flush(CANCEL_SECONDS if self.stopping.is_set() else None)
            await asyncio.get_running_loop().run_in_executor(None, ready_queue.close)

    async def _run_worker(
        self, ready_queue: ReadyQueue, outcome_writer: OutcomeWriter, mx_connections: MxConnections
    ) -> None:
        """Run one worker until it finds no message; its errors are logged, so that the other workers continue."""
        worker = EmailWorker(self.breaker, self.limits, ready_queue, outcome_writer, self.is_halted, mx_connections)
        self._workers.add(worker)
        try:
            await worker.run()
        except Unavailable as error:
            log.error("smtp: sending stopped: %s", error)
        except Exception:
            log.exception("smtp: worker failed")
        except asyncio.CancelledError:
            worker.abort()
            raise
        finally:
            await worker.close()
            self._workers.discard(worker)


def _create_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop, which costs a message a tenth less, or that of asyncio for direct delivery.

    When a server answers STARTTLS with something else than a handshake, uvloop passes it on as a reply. In direct
    delivery a failed handshake must be distinguishable, because the message is then sent without encryption.
    """
    if config.current().email.transport == DIRECT:
        return asyncio.SelectorEventLoop()
    return uvloop.new_event_loop()
