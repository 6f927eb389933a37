"""Send email over SMTP connections to the relay or the capture server, one message at a time on each connection.

While the body of a message is being sent, the next message is claimed and its envelope is sent behind the body, so
that neither a commit nor a round trip keeps the connection waiting. At most two messages of a connection are therefore
claimed without a stored outcome (docs/promises.md#p3). A claimed message is checked again before its body is sent, if
any write since then may forbid it (docs/promises.md#p4): a server may take long to accept its envelope.

The steps of message 2 in a row of messages on one connection:

1. During the body of message 1, message 2 is taken from the queue, its claim is written (together with the outcome of
   message 0), and its envelope is sent behind that body (`_deliver`).
2. The server accepts message 1 and then the envelope of message 2 (`_wait_until_ready`).
3. The claim of message 2 is on disk, and it is checked again if necessary (`_check_again`).
4. Its body is sent. Meanwhile message 3 is in step 1: its claim is written together with the outcome of message 1.
5. The server accepts message 2. That outcome is written together with the claim of message 4, or alone if none follows.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import NamedTuple

from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    DeliveryError,
    MailUnauthenticated,
    Postponed,
    RateLimited,
    RecipientRejected,
    SenderRejected,
    Uncertain,
)
from appliance.sending.delivery import smtp_connect
from appliance.sending.delivery.smtp_client import Envelope, MessageRejected, OpenedEnvelope, SmtpClient
from appliance.sending.messages import ledger, queue
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.sending.messages.retries import STOPPED_WHILE_SENDING
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.sending.workers.outcome_writer import PendingWrite, postpone
from appliance.sending.workers.renderer import RenderedMessage
from appliance.sending.workers.sender import WorkerContext
from appliance.storage import transactions

log = logging.getLogger("campanero.sender")
# A message that waits this long for a connection, or for the message before it, is put back into the queue.
_MAX_WAIT_SECONDS = 1.0
# Connections that are idle for this long are closed.
IDLE_SECONDS = 30.0


class _PendingClaim(NamedTuple):
    """A claim that is being written.

    Await `claiming` to get whether the message was claimed; `revision` is the permission revision before the claim.
    """

    claiming: PendingWrite
    revision: int


@dataclass(eq=False)
class NextMessage:
    """The message that a worker sends next; it may be claimed, and its envelope sent, while another is being sent."""

    ready: RenderedMessage
    claim: _PendingClaim | None = None  # if it is claimed while the message before it is being sent
    envelope: OpenedEnvelope | None = None  # if its commands were sent right after the message before it


def _as_next(ready: RenderedMessage | None) -> NextMessage | None:
    return None if ready is None else NextMessage(ready)


class SmtpWorker:
    """A worker that sends emails one after the other and passes their outcomes to the outcome writer.

    It has one connection for each provider.
    """

    def __init__(self, context: WorkerContext[EmailRateLimits]) -> None:
        self._breaker, self._limits, self._stop_switch = context.breaker, context.limits, context.stop_switch
        self._ready_queue, self._outcome_writer = context.ready_queue, context.outcome_writer
        self._connections: dict[str, SmtpClient] = {}
        # Connections that are being closed, and claims that are being given up.
        self._background_tasks: set[asyncio.Future[None]] = set()
        self._next: NextMessage | None = None
        # Until when the next message may wait here (time of the event loop; 0 if it does not wait), and its timer.
        self._next_waits_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        # Whether the server took longer to accept the last message than a message may wait here.
        self._is_server_slow = False
        # Outcomes that are not stored yet: of the latest message and, while it is being sent, of the one before it.
        self._pending_outcome: Outcome | None = None
        self._previous_outcome: Outcome | None = None

    @property
    def connections(self) -> int:
        """Return the number of connections, including idle ones."""
        return len(self._connections)

    async def run(self) -> None:
        """Send messages until none is due or sending is stopped, and store the last outcome."""
        try:
            while await self._take_next():
                await self._send_next()
        finally:
            self._put_back_next()
            if self._timer is not None:
                self._timer.cancel()
            await self._store_pending_outcome()

    async def _take_next(self) -> bool:
        """Wait for the next message and set `_next`; return whether there is one."""
        if self._is_claimed_ahead():
            return True
        is_halted = self._stop_switch.is_halted()
        if is_halted and self._next is not None:
            self._put_back_next()  # the message was taken while the switch was not halted yet
        if self._next is None and not is_halted and not self._limits.has_overall_limit:
            self._next = _as_next(self._ready_queue.poll())
        if self._next is None:
            # The wait may be long, so the known outcome is stored before.
            await self._store_pending_outcome()
            timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_idle)
            try:
                # With a rate limit, the worker connects first, so that connecting does not delay an admitted message.
                if not self._limits.has_overall_limit or await self._connect_for_next():
                    self._next = _as_next(await self._ready_queue.take())
            finally:
                timer.cancel()
        return self._next is not None

    def _is_claimed_ahead(self) -> bool:
        """Return whether there is a next message that was claimed ahead, for the connection of the one before it."""
        return self._next is not None and self._next.claim is not None

    async def _connect_for_next(self) -> bool:
        """Connect to the provider of the next message before taking it; return whether there is a message."""
        while (provider := await self._ready_queue.peek_provider()) is not None:
            try:
                if self._has_fixed_server(provider):
                    await self._get_connection(provider)
            except DeliveryError as error:
                log.debug("smtp: connection to %s failed: %s", provider, error)
            else:
                return True
        return False

    async def _send_next(self) -> None:
        """Send the next message, or put it back into the queue if a limit now applies to it."""
        client, connection_error = await self._connect()
        message, self._next = self._next, None
        if message is None:  # the message was put back, because connecting took long
            return
        if self._is_admitted(message.ready):
            try:
                await self._process(message, client, connection_error)
            finally:
                self._ready_queue.release(message.ready.row)
        else:
            # The recipient group of the message has asked for a lower rate. SMTP cannot withdraw an envelope once sent.
            if message.envelope is not None:
                self._abort_connection(message.ready.row.provider)
            self._put_back(message)

    def _is_admitted(self, ready: RenderedMessage) -> bool:
        return ready.prepared is None or self._limits.still_admits(ready.row, ready.prepared.sender)

    async def _connect(self) -> tuple[SmtpClient | None, DeliveryError | None]:
        """Return (connection, error) for the next message: one of the two, or neither if there is nothing to send.

        The message is not claimed yet, so that it stays available to other workers while a server is slow, unless it
        was claimed ahead over a connection that has closed since.
        """
        if self._next is None or self._next.ready.prepared is None:
            return None, None
        provider = self._next.ready.row.provider
        connection = self._connections.get(provider)
        if connection is not None and connection.is_open():
            return connection, None
        await self._store_pending_outcome()
        if not self._limits.shares_connections:  # else the message keeps its place at the limit of its transport
            self._start_waiting()
        try:
            return await self._get_connection(provider), None
        except DeliveryError as error:
            return None, error
        finally:
            self._next_waits_until = 0.0

    async def _get_connection(self, provider: str) -> SmtpClient:
        connection = self._connections.get(provider)
        if connection is not None and connection.is_open():
            return connection
        self._forget_envelope()
        if connection is not None:
            del self._connections[provider]
            await connection.close()
        try:
            connection = self._connections[provider] = await smtp_connect.connect_to_provider(provider)
        except Deferred as error:
            # A temporary rejection of the connection must not count as an attempt to reach the recipient.
            failure = ConnectionFailed(error.text, error.smtp, error.enhanced)
            self._breaker.handle_connection_failure(provider, failure)
            raise failure from None
        except (ClientRejected, ConnectionFailed) as error:
            self._breaker.handle_connection_failure(provider, error)
            raise
        return connection

    def _has_fixed_server(self, provider: str) -> bool:
        """Return whether all messages of a provider go to the same server, so that they can share a connection."""
        return True

    # The steps of a message: claim, envelope, body, outcome.

    async def _process(
        self, message: NextMessage, client: SmtpClient | None, connection_error: DeliveryError | None
    ) -> None:
        """Claim and send a message over a connection, or record the error if there is none.

        The envelope is sent before the claim is on disk, because it does not deliver anything: without a claim the
        connection is aborted. While the body is being sent, the next message may be taken and its envelope sent.
        """
        ready, claim = message.ready, message.claim
        if claim is None:
            last_outcome, self._pending_outcome = self._pending_outcome, None
            claim = self._start_claim(last_outcome, ready.row)
        outcome, prepared = ready.failure or Outcome(ready.row, connection_error), ready.prepared
        started_at = time.monotonic()
        is_ready = message.envelope is not None and message.envelope.is_accepted()
        if client is not None and prepared is not None and not is_ready:
            try:
                outcome.error = await self._wait_until_ready(client, prepared.envelope, message.envelope)
            except asyncio.CancelledError:
                # The service ends before the server replied, so nothing of the message was sent. If it was claimed
                # ahead, the outcome of the message before it is not stored yet.
                self._previous_outcome, self._pending_outcome = self._pending_outcome, None
                self._store_previous_outcome()
                await self._give_up_claim(ready.row, claim)
                raise
            if isinstance(outcome.error, ConnectionFailed) and client.sent_count:
                # The message is claimed and checked again for the next connection, and this is not an attempt.
                outcome.error = Postponed("the server accepts no more messages on this connection", 0)
        is_claimed = False
        try:
            is_claimed = await self._outcome_writer.wait_for_claim(ready.row, claim.claiming)
            if is_claimed and outcome.error is None:
                is_claimed = await self._check_again(ready.row, claim.revision)
        except Exception:
            # The server already expects the message, so a QUIT would be part of its text.
            self._abort_connection(ready.row.provider)
            if is_claimed:
                self._outcome_writer.write(postpone(ready.row), None)
            raise
        finally:
            self._ready_queue.finish_claim(ready.row, is_claimed)
        if not is_claimed:
            # The message may no longer be sent, and SMTP cannot withdraw it after DATA.
            self._abort_connection(ready.row.provider)
            return
        # The message is claimed, so from here on it always gets an outcome.
        self._previous_outcome, self._pending_outcome = self._pending_outcome, outcome
        try:
            await self._complete_outcome(ready, client, outcome)
        finally:
            self._store_previous_outcome()
        if client is not None and prepared is not None:
            ledger.observe_transaction(ready.row.provider, outcome.error, time.monotonic() - started_at)

    def _start_claim(self, outcome: Outcome | None, row: LedgerRow) -> _PendingClaim:
        """Pass the claim of a message, and the outcome of one before it, to the outcome writer."""
        revision = transactions.get_permission_revision()
        return _PendingClaim(self._outcome_writer.write(outcome, row), revision)

    async def _wait_until_ready(
        self, client: SmtpClient, envelope: Envelope, opened: OpenedEnvelope | None
    ) -> DeliveryError | None:
        """Wait until the server is ready for the message; return the error of a rejection or a lost connection."""
        try:
            await client.wait_until_ready(opened or client.open_envelope(envelope))
        except DeliveryError as error:
            return error
        except Exception as error:
            # An internal error before the final dot affects this message only.
            log.exception("smtp: sending a message failed")
            client.abort()
            return Deferred(f"{type(error).__name__}: {error}")
        return None

    async def _check_again(self, row: LedgerRow, revision: int) -> bool:
        """Return whether a message that was claimed at a permission revision may still be sent.

        If it may not, the message is postponed and claimed again, which records why. While all sending is stopped, it
        is only postponed.
        """
        while (current := transactions.get_permission_revision()) != revision:
            revision = current
            is_allowed = transactions.fetch_inline(queue.is_still_allowed, row.id)
            if not is_allowed:
                claimed_again = self._outcome_writer.write(postpone(row), row)
                if not await self._outcome_writer.wait_for_claim(row, claimed_again):
                    return False
        if self._stop_switch.is_blocked():
            self._outcome_writer.write(postpone(row), None)
            return False
        return True

    def _begin_outcome(self, ready: RenderedMessage, client: SmtpClient | None, outcome: Outcome) -> None:
        """Complete an outcome before its message is sent; subclasses with servers that are not fixed override this."""
        return

    async def _complete_outcome(self, ready: RenderedMessage, client: SmtpClient | None, outcome: Outcome) -> None:
        """Send a claimed message unless its outcome has an error already, and complete and count the outcome."""
        self._begin_outcome(ready, client, outcome)
        prepared = ready.prepared
        if prepared is not None:
            outcome.subject, outcome.sender = prepared.subject, prepared.sender
            outcome.internet_message_id, outcome.prepared = prepared.internet_message_id, prepared
            if client is not None and outcome.error is None:
                outcome.error = Uncertain(STOPPED_WHILE_SENDING)  # stays if this task is cancelled
                await self._deliver(client, prepared.envelope, outcome)
        if isinstance(outcome.error, RecipientRejected) and outcome.error.enhanced == "5.6.7":
            outcome.skip_reason = "smtputf8_unsupported"
        if client is not None:
            outcome.error = self._limits.handle_answer(ready.row, outcome.error)
        error = outcome.error
        if (
            error is None
            or error.smtp is not None
            or isinstance(error, SenderRejected | MailUnauthenticated | Uncertain)
        ):
            # Any other error is ours, such as a delay or a failed look-up, and must not reset the counts of rejections.
            self._breaker.record_answer(ready.row, error)
        else:
            self._breaker.cancel_probe(ready.row)
        if isinstance(error, ConnectionFailed | ClientRejected | RateLimited):
            outcome.falls_over = self._limits.falls_over(ready.row, self._breaker.get_unavailable_providers())

    async def _deliver(self, client: SmtpClient, envelope: Envelope, outcome: Outcome) -> None:
        """Send the message of an outcome, and set the error or reply of the outcome.

        The next message is taken meanwhile, unless it would have to be put back because the server is slow. It is
        claimed and its envelope is sent behind this message if both go to the same server.
        """
        provider, next_envelope, started_at = outcome.row.provider, None, time.monotonic()
        upcoming = None
        if not (self._limits.has_overall_limit or self._is_server_slow or self._stop_switch.is_halted()):
            upcoming = self._next = _as_next(self._ready_queue.poll(behind=outcome.row))
        if (
            upcoming is not None
            and upcoming.ready.prepared is not None
            and upcoming.ready.row.provider == provider
            and self._has_fixed_server(provider)
        ):
            next_envelope = upcoming.ready.prepared.envelope
            previous, self._previous_outcome = self._previous_outcome, None
            upcoming.claim = self._start_claim(previous, upcoming.ready.row)
        self._store_previous_outcome()
        self._start_waiting()
        opened: OpenedEnvelope | None = None
        try:
            _, opened = await client.deliver(envelope, next_envelope)
            outcome.error = None
        except MessageRejected as rejection:
            outcome.error, opened = rejection.error, rejection.next_envelope
        except DeliveryError as error:
            outcome.error = error
        except Exception as error:
            log.exception("smtp: outcome of message %s is unknown", outcome.row.id)
            outcome.error = Uncertain(f"{type(error).__name__}: {error}")
            client.abort()
        finally:
            self._next_waits_until = 0.0
        self._is_server_slow = time.monotonic() > started_at + _MAX_WAIT_SECONDS
        if upcoming is not None and self._next is upcoming:
            upcoming.envelope = opened
        elif opened is not None:
            # The next message was put back meanwhile, and SMTP cannot withdraw its envelope.
            self._abort_connection(provider)

    async def _store_pending_outcome(self) -> None:
        outcome, self._pending_outcome = self._pending_outcome, None
        if outcome is not None:
            await self._outcome_writer.write(outcome, None)

    def _store_previous_outcome(self) -> None:
        """Pass the outcome of the message before this one to the outcome writer, if it still has to be stored."""
        previous, self._previous_outcome = self._previous_outcome, None
        if previous is not None:
            self._outcome_writer.write(previous, None)

    # The next message goes back if it would wait here too long, or may not be sent over this connection.

    def _start_waiting(self) -> None:
        """Start the time limit after which the next message is put back, because another worker may send it sooner.

        One timer serves all messages and is set again if it fires early: a timer for each message would cost as much as
        sending the message.
        """
        loop = asyncio.get_running_loop()
        self._next_waits_until = loop.time() + _MAX_WAIT_SECONDS
        if self._timer is None:
            self._timer = loop.call_at(self._next_waits_until, self._check_waiting)

    def _check_waiting(self) -> None:
        self._timer = None
        if self._next_waits_until <= 0:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._next_waits_until:
            self._timer = loop.call_at(self._next_waits_until, self._check_waiting)
        else:
            self._put_back_next()

    def _put_back_next(self) -> None:
        message, self._next = self._next, None
        if message is not None:
            self._put_back(message)

    def _put_back(self, message: NextMessage) -> None:
        """Put a message back into the queue; if it was claimed ahead, store that it is postponed."""
        if message.claim is None:
            self._ready_queue.put_back(message.ready)
        else:
            giving_up = self._give_up_claim(message.ready.row, message.claim)
            self._background_tasks.add(task := asyncio.ensure_future(giving_up))
            task.add_done_callback(self._background_tasks.discard)

    async def _give_up_claim(self, row: LedgerRow, claim: _PendingClaim) -> None:
        is_claimed = await self._outcome_writer.give_up_claim(row, claim.claiming)
        self._ready_queue.finish_claim(row, is_claimed)
        if is_claimed:
            self._breaker.cancel_probe(row)
            self._ready_queue.release(row)

    def _forget_envelope(self) -> None:
        """Record that the commands of the next message are lost with the connection on which they were sent."""
        if self._next is not None:
            self._next.envelope = None

    def _abort_connection(self, provider: str) -> None:
        self._forget_envelope()
        connection = self._connections.pop(provider, None)
        if connection is not None:
            connection.abort()

    def _close_idle(self) -> None:
        """Close all connections with QUIT in the background, because servers drop idle clients."""
        for provider in list(self._connections):
            # The connection is removed at once, so that the next message is not sent over it.
            self._background_tasks.add(task := asyncio.ensure_future(self._connections.pop(provider).close()))
            task.add_done_callback(self._background_tasks.discard)

    def abort(self) -> None:
        """Abort all connections of this worker without QUIT."""
        for provider in list(self._connections):
            self._abort_connection(provider)

    async def close(self) -> None:
        """Close all connections of this worker with QUIT, and wait until they are closed."""
        self._close_idle()
        if self._background_tasks:
            await asyncio.wait({*self._background_tasks})
