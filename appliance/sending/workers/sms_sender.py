"""Send SMS that are due, with up to `sms.connections` requests at a time, on the event loop of a separate thread.

`SmsSender.wake` starts the thread, which then runs as long as the service: connections to the provider stay open
between messages, and the loop sleeps until the next wake-up. `request_worker.py` says how a message is sent.
"""

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable

from appliance.core import addresses, clock, logs, signals
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    DeliveryError,
    Postponed,
    SenderRejected,
    Uncertain,
)
from appliance.sending.delivery import bounce_classes, http_client
from appliance.sending.messages import retries
from appliance.sending.messages.ledger import LedgerRow, Outcome, OutgoingMessage
from appliance.sending.messages.senders import get_limit_name, pick_sms_sender
from appliance.sending.sms import error_codes
from appliance.sending.sms.providers import PROVIDERS
from appliance.sending.sms.providers.base import Provider
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.sending.workers.rate_limits import SmsRateLimits
from appliance.sending.workers.renderer import RenderedMessage
from appliance.sending.workers.request_worker import RequestWorker
from appliance.sending.workers.sender import Sender, WorkerContext
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import close_database, scalar

log = logging.getLogger("campanero.sender")
CHANNEL = "sms"
# Messages rendered ahead for each concurrent request; more would only wait longer.
_READY_PER_CONNECTION = 4
# Delay before the thread starts its event loop again after an error.
_RETRY_SECONDS = 1.0
_SENDER_CACHE_SECONDS = 1.0
# After this time without a message, the connections to the provider are closed.
_IDLE_SECONDS = 10.0
# Delay of a lookup while another message to the same number is being sent, because it might find that message.
_CONCURRENT_SECONDS = 1.0
_PROVIDER_UNCERTAIN = "the provider's replies are missing: {text}"


class _InProgress:
    """The messages that the workers are sending or looking up now; used on one event loop."""

    def __init__(self, connections: int) -> None:
        # Number of messages in progress by recipient, including those whose outcome is not stored yet.
        self.counts: Counter[str] = Counter()
        # Messages to look up at the provider. Only some workers do this, so slow lookups do not delay other messages.
        self.lookup_queue: deque[RenderedMessage] = deque()
        self.lookup_workers, self.max_lookup_workers = 0, max(1, connections // 4)
        # Recipients with a lookup in progress. Each has only one at a time, so that two equal messages do not match the
        # same SMS.
        self.in_lookup: set[str] = set()

    def finish(self, number: str) -> None:
        """Count a message to a number as no longer in progress; call it when its outcome is stored."""
        self.counts[number] -= 1
        if not self.counts[number]:
            del self.counts[number]


class SmsWorker(RequestWorker[SmsRateLimits]):
    """A worker that sends SMS one after the other and passes their outcomes to the outcome writer."""

    def __init__(self, context: WorkerContext[SmsRateLimits], in_progress: _InProgress) -> None:
        super().__init__(context)
        self._in_progress = in_progress

    async def run(self) -> None:
        """Send messages until none is due or sending is stopped, and store the last outcome."""
        ready_queue = self._context.ready_queue
        try:
            while (ready := await self._take_next()) is not None:
                try:
                    prepared = ready.prepared
                    if prepared is not None and prepared.lookup_count is not None:
                        await self._queue_lookup(ready)
                    else:
                        await self.process(ready)
                finally:
                    ready_queue.release(ready.row)
        finally:
            await self.store_pending_outcome()

    async def _take_next(self) -> RenderedMessage | None:
        ready = None if self._context.stop_switch.is_halted() else self._context.ready_queue.poll()
        if ready is None:
            # The wait may be long, so the known outcome is stored before.
            await self.store_pending_outcome()
            ready = await self._context.ready_queue.take()
        return ready

    def _begin(self, row: LedgerRow) -> None:
        self._in_progress.counts[row.recipient_key] += 1

    def _finish(self, row: LedgerRow) -> None:
        self._in_progress.finish(row.recipient_key)

    async def _transmit(self, prepared: OutgoingMessage, outcome: Outcome, check: Callable[[], None]) -> None:
        row = outcome.row
        provider = PROVIDERS.get(row.provider)
        if provider is None:
            raise ClientRejected(f"the provider {row.provider} no longer exists")
        _require_settings(provider)
        accepted = await provider.send(build_sms(row, prepared)._replace(check=check))
        outcome.provider_id, outcome.first_status = accepted.provider_id, accepted.status

    def _handle_answer(self, outcome: Outcome, sender: str) -> None:
        row, breaker = outcome.row, self._context.breaker
        error = self._context.limits.handle_answer(row, sender, outcome.error)
        if isinstance(error, ClientRejected) and error_codes.classify_code(error.text) is bounce_classes.UNREGISTERED:
            # Only this sender in this country is rejected, so the provider is not paused for all other messages.
            error = SenderRejected(error.text, error.smtp, error.enhanced)
        outcome.error = error
        if isinstance(error, Uncertain):
            if self._context.limits.record_uncertain():
                breaker.handle_connection_failure(
                    row.provider, ConnectionFailed(_PROVIDER_UNCERTAIN.format(text=error.text))
                )
        else:
            breaker.record_answer(row, error)

    async def _queue_lookup(self, ready: RenderedMessage) -> None:
        """Queue a message for lookup at the provider, and process the queue unless enough workers do so already."""
        shared, ready_queue = self._in_progress, self._context.ready_queue
        self._context.limits.release(ready.row.id, was_sent=False)  # nothing is sent
        shared.lookup_queue.append(ready)
        if shared.lookup_workers >= shared.max_lookup_workers:
            return
        shared.lookup_workers += 1
        try:
            await self.store_pending_outcome()
            while shared.lookup_queue and not self._context.stop_switch.is_halted():
                await self._look_up(shared.lookup_queue.popleft())
        finally:
            shared.lookup_workers -= 1
            while shared.lookup_queue and not shared.lookup_workers:
                ready_queue.finish_claim(shared.lookup_queue.popleft().row, is_claimed=False)

    async def _look_up(self, ready: RenderedMessage) -> None:
        """Look up a message that the provider may have accepted; settle it, or postpone the lookup if it failed."""
        shared, row, prepared = self._in_progress, ready.row, ready.prepared
        assert prepared is not None
        number = row.recipient_key
        try:
            if number in shared.in_lookup or shared.counts[number]:
                await transactions.commit(
                    retries.postpone_lookup,
                    row,
                    Postponed("another lookup of this number is in progress", _CONCURRENT_SECONDS),
                )
                return
            shared.in_lookup.add(number)
            try:
                result = await self._find_accepted(row, prepared)
                if shared.counts[number]:
                    result = Postponed("another message to this number is being sent", _CONCURRENT_SECONDS)
                if isinstance(result, DeliveryError):
                    await transactions.commit(retries.postpone_lookup, row, result)
                else:
                    await transactions.commit(retries.settle_lookup, row, prepared, result)
            finally:
                shared.in_lookup.discard(number)
        finally:
            self._context.ready_queue.finish_claim(row, is_claimed=True)

    async def _find_accepted(
        self, row: LedgerRow, prepared: OutgoingMessage
    ) -> tuple[AcceptedSms, ...] | DeliveryError:
        try:
            _require_settings(PROVIDERS[row.provider])
            return await PROVIDERS[row.provider].find_accepted(build_sms(row, prepared), row.first_attempt_at or 0)
        except DeliveryError as error:
            if isinstance(error, ConnectionFailed):
                self._context.breaker.handle_connection_failure(row.provider, error)
            return error
        except Exception as error:
            log.exception("sms: lookup of message %s failed", row.id)
            return Deferred(f"{type(error).__name__}: {error}")


def _require_settings(provider: Provider) -> None:
    """Raise ClientRejected if settings of a provider are missing or invalid.

    They may have been changed since the message was queued.
    """
    faults = [f"{name}: {reason}" for name, reason in provider.find_setting_faults()]
    if faults:
        raise ClientRejected(f"{provider.name} is no longer configured: {'; '.join(faults)}")


def build_sms(row: LedgerRow, prepared: OutgoingMessage) -> OutgoingSms:
    """Return a prepared message as the SMS to pass to its provider, with the URL for receipts."""
    envelope = prepared.envelope
    url = PROVIDERS[row.provider].build_callback_url(row.id)
    return OutgoingSms(row.id, envelope.rcpt_to, prepared.sender, envelope.content.decode(), url)


class SmsSender(Sender[SmsRateLimits]):
    """The SMS sender of one process; its thread starts with the first call of `wake`."""

    def __init__(self, process: str) -> None:
        sms = config.current().sms
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._in_progress: _InProgress | None = None  # of the event loop that runs
        super().__init__(CHANNEL, "sms", process, sms.probe_after, SmsRateLimits(sms))

    def wake(self) -> None:
        """Make the sender look for due SMS; may be called from any thread.

        The thread of the sender is started if it does not run, unless the sender is stopping.
        """
        super().wake()
        with self._lock:
            if self._thread is None and not self.stopping.is_set():
                self._thread = threading.Thread(target=self._run_thread, name="sms-sender")
                self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end, at most `timeout` seconds, if given."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run_thread(self) -> None:
        errors = logs.RepeatedErrors(log, "sms: sender failed; restarting")
        while not self.stopping.is_set():
            try:
                # Named, because the web server sets a policy that would choose another loop here.
                with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                    runner.run(self._run())
            except Exception as error:
                errors.log(error)
                self.stopping.wait(_RETRY_SECONDS)
        close_database()

    def _create_context(self) -> WorkerContext[SmsRateLimits]:
        connections = config.current().sms.connections
        # A batch begins with its first entry: a request takes much longer than a commit, and nothing is claimed ahead.
        self._in_progress = _InProgress(connections)
        return self._build_context(connections, connections * _READY_PER_CONNECTION, 1, SenderLimitNames())

    async def _run_worker(self, context: WorkerContext[SmsRateLimits]) -> None:
        assert self._in_progress is not None
        await SmsWorker(context, self._in_progress).run()

    async def _close_connections(self) -> None:
        await http_client.close_connections()

    def _count_connections(self) -> int:
        return len(self._tasks)

    async def _wait_for_wake_up(self) -> bool:
        """Sleep until `wake` is called; after `_IDLE_SECONDS`, close the connections to the provider."""
        signals.wake("campaigns")  # a campaign may be complete
        assert self._wake_event is not None
        self._wake_event.clear()  # the end of the last worker has set it; from now on, only `wake` does
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._wake_event.wait()
        except TimeoutError:
            await http_client.close_connections()
            await self._wake_event.wait()
        return True


class SenderLimitNames:
    """A callable that returns the sender's limit of an SMS before the SMS is rendered; used by one thread.

    The sender of each account is cached for `_SENDER_CACHE_SECONDS`.
    """

    def __init__(self) -> None:
        self._account_senders: dict[int, tuple[float, str | None]] = {}

    def __call__(self, row: LedgerRow) -> tuple[str, ...]:
        """Return the name of the sender's limit for a row of the ledger, in a tuple."""
        read_at, account_sender = self._account_senders.get(row.account_id, (float("-inf"), None))
        if clock.monotonic() > read_at + _SENDER_CACHE_SECONDS:
            account_sender = scalar("SELECT sms_from FROM account WHERE id = ?", (row.account_id,))
            self._account_senders[row.account_id] = (clock.monotonic(), account_sender)
        return (
            get_limit_name(pick_sms_sender(account_sender, addresses.inspect_number(row.recipient_key or "").country)),
        )
