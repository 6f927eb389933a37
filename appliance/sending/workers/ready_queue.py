"""Keep a queue of rendered messages, which is filled ahead of the workers.

Messages in the queue are not claimed yet: if the process dies, they are rendered again. They are rendered on the event
loop of the workers, a few at a time: a separate thread would compete with it for the interpreter lock. An RSA
signature takes longer than all other work on a message and releases that lock, so messages are signed in other threads
while the next ones are rendered.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import apsw
import peewee

from appliance.content.designs.merge_limits import MergeError
from appliance.core import clock
from appliance.core.errors import Postponed, RecipientRejected, SenderRejected
from appliance.sending.messages import retries, senders
from appliance.sending.messages.ledger import Claim, Outcome, OutgoingMessage
from appliance.sending.messages.prepare import MessagePreparer, UnsignedMessage
from appliance.sending.messages.queue_reader import LimitNames, QueueReader
from appliance.sending.workers.circuit_breaker import CircuitBreaker
from appliance.sending.workers.rate_limits import ALL, RateLimits
from appliance.storage import transactions


class FairShares:
    """The processor time in seconds that each account used for rendering; used by one thread.

    Accounts share the thread that renders: the account that used the least time gets the next turn. An account that
    returns after a pause starts with the least time among the active accounts. A pause therefore gives no advantage,
    and earlier use no lasting disadvantage.
    """

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        self._floor = 0.0

    def enter(self, accounts: Collection[int]) -> None:
        """Set the accounts that have messages to render now.

        The time of any other account is deleted, unless it is more than the time of the account that had the last
        turn.
        """
        self._used = {
            account: seconds for account, seconds in self._used.items() if account in accounts or seconds > self._floor
        }
        for account in accounts:
            self._used[account] = self.get_used(account)

    def get_used(self, account: int) -> float:
        """Return the seconds that count for an account: at least those of the account that had the last turn."""
        return max(self._used.get(account, 0.0), self._floor)

    def next(self, accounts: Collection[int]) -> int:
        """Return which of the accounts gets the next turn: the one with the least time."""
        account = min(accounts, key=self.get_used)
        self._floor = self.get_used(account)
        return account

    def charge(self, account: int, seconds: float) -> None:
        """Add the seconds of a turn to an account."""
        self._used[account] = self.get_used(account) + seconds


log = logging.getLogger("campanero.sender")
_SIGNER_THREADS = 3
# Messages that are rendered in one turn, and then signed together in one thread.
_SIGN_BATCH = 8
# A turn of one account ends after this time, even if few messages were rendered.
_TURN_SECONDS = 0.02
# Delay before a message that could not be read from the database is tried again.
_READ_RETRY_SECONDS = 30.0


class RenderedMessage(NamedTuple):
    """A message that can be sent, or a message that could not be rendered.

    If it could not be rendered, `prepared` is None, and `failure` is its outcome. `rendered_at` is in seconds of
    `time.monotonic`.
    """

    claim: Claim
    prepared: OutgoingMessage | None
    failure: Outcome | None
    rendered_at: float

    @property
    def sender(self) -> str:
        """Return the sender address or number, or an empty string if the message could not be rendered."""
        return self.prepared.sender if self.prepared is not None else ""


_Rendered = tuple[Claim, UnsignedMessage | Outcome]


class Renderer:
    """A renderer and signer of messages; used by one thread at a time."""

    def __init__(self) -> None:
        self._preparer = MessagePreparer()
        self._signers = ThreadPoolExecutor(_SIGNER_THREADS, thread_name_prefix="signer")
        self.shares = FairShares()

    def reset(self) -> None:
        """Drop all cached content, so that the next messages are rendered from the current state of the database."""
        self._preparer = MessagePreparer()

    def render_turns(
        self, claims: Sequence[Claim], seconds: float
    ) -> Iterator["Future[list[RenderedMessage]] | list[RenderedMessage]"]:
        """Render messages in turns of at most `_SIGN_BATCH` and yield the messages of each turn.

        A message that cannot be rendered has its `failure` set. After `seconds`, no further turn begins, so messages
        may be missing. Accounts take turns by the processor time that they used, so that a slow template of one
        account does not delay the others. A future is yielded if the messages of the turn are being signed in another
        thread.
        """
        preparer, shares = self._preparer, self.shares
        until = time.monotonic() + seconds
        waiting: dict[int, deque[Claim]] = {}
        sources: dict[tuple[int | None, ...], list[Claim]] = {}
        for claim in claims:
            waiting.setdefault(claim.account_id, deque()).append(claim)
            sources.setdefault(_get_source_key(claim), []).append(claim)
        preparer.clear_cache()
        shares.enter(waiting)
        is_first = True
        while waiting and (is_first or time.monotonic() < until):
            is_first = False
            account_id = shares.next(waiting)
            queue, started_at = waiting[account_id], time.thread_time()
            batch: list[_Rendered] = []
            turn_end = time.monotonic() + _TURN_SECONDS
            while queue and len(batch) < _SIGN_BATCH and (not batch or time.monotonic() < turn_end):
                claim = queue.popleft()
                preparer.prefetch(sources.pop(_get_source_key(claim), ()))
                batch.append((claim, _build(preparer, claim)))
            shares.charge(account_id, time.thread_time() - started_at)
            if not queue:
                del waiting[account_id]
            use_thread = sum(isinstance(draft, UnsignedMessage) and bool(draft.signers) for _, draft in batch) > 1
            yield self._signers.submit(_sign_batch, batch) if use_thread else _sign_batch(batch)

    def close(self) -> None:
        """Wait until the signing threads have ended; no messages may be rendered afterwards."""
        self._signers.shutdown()


def _get_source_key(claim: Claim) -> tuple[int | None, ...]:
    """Return the key of the messages that share content: account, campaign, flow and step.

    Shared content is compiled when the first message with its key is rendered.
    """
    return claim.account_id, claim.campaign_id, claim.flow_id, claim.step_id


def _build(preparer: MessagePreparer, claim: Claim) -> UnsignedMessage | Outcome:
    try:
        stored = retries.load_payload(claim.id) if claim.uncertain_count else None
        return UnsignedMessage(stored) if stored is not None else preparer.build(claim)
    except SenderRejected as error:
        # The recipient is not at fault: the message is tried again, and after repeated errors its campaign is paused.
        return Outcome(claim, SenderRejected(error.text))
    except (apsw.Error, peewee.DatabaseError) as error:
        # The recipient is not at fault, and the error may be temporary.
        log.error("renderer: reading message %s failed: %s", claim.id, error)
        return Outcome(claim, Postponed("the database could not be read", _READ_RETRY_SECONDS))
    except (MergeError, ValueError) as error:
        return _build_render_error(claim, error.describe() if isinstance(error, MergeError) else str(error))
    except Exception as error:
        return _handle_exception(claim, error)


def _sign_batch(batch: list[_Rendered]) -> list[RenderedMessage]:
    """Sign the messages of a batch that could be rendered; return all, in the same order."""
    return [
        _build_failed(claim, draft) if isinstance(draft, Outcome) else _sign(claim, draft) for claim, draft in batch
    ]


def _build_failed(claim: Claim, outcome: Outcome) -> RenderedMessage:
    # Without a body hash in its claim, the message does not become uncertain if the process dies.
    return RenderedMessage(claim._replace(body_hash=None), None, outcome, time.monotonic())


def _sign(claim: Claim, draft: UnsignedMessage) -> RenderedMessage:
    try:
        prepared = draft.sign()
    except Exception as error:
        return _build_failed(claim, _handle_exception(claim, error))
    return RenderedMessage(claim._replace(body_hash=retries.hash_body(prepared)), prepared, None, time.monotonic())


def _handle_exception(claim: Claim, error: Exception) -> Outcome:
    """Log an internal error of rendering, and return it as the outcome of the message."""
    log.error("renderer: rendering message %s failed", claim.id, exc_info=error)
    return _build_render_error(claim, f"{type(error).__name__}: {error}")


def _build_render_error(claim: Claim, text: str) -> Outcome:
    return Outcome(claim, RecipientRejected(text), skip_reason="render_error")


# Messages that waited longer in the queue are rendered again from the current state of the database.
_MAX_AGE_SECONDS = 5.0
# Longest wait of a worker for a limit before it looks for other messages.
_MAX_WAIT_SECONDS = 5.0
_MIN_WAIT_SECONDS = 0.001
# A refill renders for at most this long, so that new single messages wait no longer; the rest is read again.
_MAX_RENDER_SECONDS = 0.25
# A turn of usual templates takes one to two milliseconds.
_LONG_TURN_SECONDS = 0.01
# Delay before rows are read again that were skipped although their recipient group has room.
_BLOCKED_SECONDS = 1.0


class ReadyQueue:
    """The rendered messages of a channel that wait for a worker or a limit; used on one event loop.

    Single messages come before those of campaigns and flows. `is_exhausted` is True once a refill found no due rows.
    """

    def __init__(
        self,
        breaker: CircuitBreaker,
        limits: RateLimits,
        max_ready: int,
        is_halted: Callable[[], bool],
        channel: str = "email",
        names: LimitNames | None = None,
    ) -> None:
        self._breaker, self._limits, self._is_halted = breaker, limits, is_halted
        self._max_ready = limits.get_max_ready(max_ready)
        self._single: deque[RenderedMessage] = deque()
        self._ready: deque[RenderedMessage] = deque()
        self._waiting: dict[str, deque[RenderedMessage]] = {}  # by the name of the limit that the messages wait for
        self._single_waiting: dict[str, deque[RenderedMessage]] = {}
        # Ids of messages in this queue, or with a worker and not claimed yet: their rows are not read again.
        self._taken_ids: set[int] = set()
        self._sender_limits: dict[int, str] = {}  # by campaign id: the limit of its sender
        self._renderer = Renderer()
        self._reader = QueueReader(channel, names)
        self._blocked_groups: set[str] = set()  # recipient groups whose rows were skipped
        self._filling: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()  # of the worker that waits for a limit
        self._changed = asyncio.Event()  # ends that wait (`_wait_for_change`)
        self._refill_requested = False
        self._blocked_until = 0.0
        self.is_exhausted = False

    async def take(self) -> RenderedMessage | None:
        """Wait for the next message that may be sent, and return it.

        None means that no message is due or sending is stopped.
        """
        ready = None if self._is_halted() else self.poll()
        while ready is None and not self._is_halted():
            if not self._waits_for_limits():
                # Workers that wait for the same refill continue in the same iteration of the loop and share a commit.
                if not await self._wait_for_refill():
                    return None
                ready = self.poll()
                continue
            async with self._turn:  # one worker waits at a time, so that a limit that opens wakes only one
                if self._is_halted():
                    return None
                self._changed.clear()
                ready = self.poll()
                if ready is None and self._waits_for_limits():
                    await self._wait_for_change()
        return ready

    async def peek_provider(self) -> str | None:
        """Wait for the next message and return its provider, without taking it.

        None means that no message is due or sending is stopped.
        """
        while not self._is_halted():
            for queue in self._get_queues():
                ready = self._pop_fresh(queue)
                if ready is not None:
                    queue.appendleft(ready)
                    return ready.claim.provider
            self._start_refill()
            if self._waits_for_limits():
                await self._wait_for_change()
            elif not await self._wait_for_refill():
                return None
        return None

    def poll(self, behind: bool = False) -> RenderedMessage | None:
        """Return the next message that may be sent now, or None; start a refill if needed.

        With `behind`, the message will be pipelined behind another and thus sent later than it is taken, so only a
        message to which no limit applies is returned.
        """
        ready = self._pop_admitted(behind)
        self._start_refill()
        return ready

    def _get_queues(self) -> tuple[deque[RenderedMessage], ...]:
        return (*self._single_waiting.values(), self._single, *self._waiting.values(), self._ready)

    def _start_refill(self) -> None:
        if self._filling is None and (
            self._refill_requested or (len(self._ready) < self._max_ready // 2 and self._may_find_more())
        ):
            self._refill_requested = False
            self._filling = asyncio.create_task(self._refill())

    def _may_find_more(self) -> bool:
        """Return whether there may be rows to render: rows not read yet, or skipped rows whose group has room now."""
        if not self.is_exhausted or not self._blocked_groups:
            return not self.is_exhausted
        if self._get_blocked_seconds() > 0:
            return False
        room = self._limits.get_room(self._waiting)
        return any(room.get(group, 1) > 0 for group in self._blocked_groups)

    def _get_blocked_seconds(self) -> float:
        """Return for how many more seconds skipped rows are not read again; 0 or less if they may be read."""
        return self._blocked_until - asyncio.get_running_loop().time()

    def _waits_for_limits(self) -> bool:
        """Return whether there are messages that wait for a limit, rendered or skipped.

        What `poll` leaves in `_ready` waits for the overall limit, so a refill brings nothing that may be sent sooner.
        While only other limits are waited for, the refill in progress may bring such messages.
        """
        return bool(self._ready or (self._filling is None and (self._blocked_groups or any(self._get_queues()))))

    async def _wait_for_refill(self) -> bool:
        """Wait for the refill in progress, if any; return whether there was one."""
        if self._filling is None:
            return False
        await asyncio.shield(self._filling)
        return True

    def _pop_admitted(self, behind: bool) -> RenderedMessage | None:
        for queue in self._get_queues():
            while queue:
                ready = self._pop_fresh(queue)
                if ready is None:
                    break
                if ready.prepared is None or self._limits.is_free:
                    return ready
                sender = ready.prepared.sender
                if behind and not self._limits.is_unlimited(ready.claim, sender):
                    queue.appendleft(ready)
                    return None
                blocking_limit = self._limits.admit(ready.claim, sender)
                if blocking_limit is None:
                    if queue is not self._single and queue is not self._ready:
                        self.is_exhausted = False  # one more message that waits for this limit may be rendered
                    return ready
                if blocking_limit.name == ALL:
                    queue.appendleft(ready)
                    return None
                if not self._set_waiting(ready, blocking_limit.name, queue):
                    break
        return None

    def _pop_fresh(self, queue: deque[RenderedMessage]) -> RenderedMessage | None:
        """Pop the first message that may still be sent, or return None.

        Messages of closed providers or held campaigns and outdated messages are dropped; their rows are read again.
        """
        closed, held = self._breaker.get_closed_providers(), self._breaker.get_held_campaigns()
        oldest = time.monotonic() - _MAX_AGE_SECONDS
        while queue:
            ready = queue.popleft()
            claim = ready.claim
            if claim.provider not in closed and claim.campaign_id not in held and ready.rendered_at > oldest:
                return ready
            self._give_back(claim)
            self.is_exhausted = False
        return None

    def _set_waiting(self, ready: RenderedMessage, name: str, queue: deque[RenderedMessage]) -> bool:
        """Move a message popped from `queue` to the queue of messages that wait for the limit `name`.

        Return False if `queue` is that queue, so that its next message need not be tried, else True. If too many
        messages wait for the limit, the message is dropped and its row is read again.
        """
        waiting = (self._single_waiting if ready.claim.is_single else self._waiting).setdefault(name, deque())
        if queue is waiting:
            waiting.appendleft(ready)
            return False
        if len(waiting) < self._max_ready:
            waiting.append(ready)
        else:
            self._give_back(ready.claim)
        return True

    def put_back(self, ready: RenderedMessage) -> None:
        """Put a message that was taken but not claimed at the front of the queue, and end its admission."""
        self._limits.release(ready.claim.id, used=False)
        (self._single if ready.claim.is_single else self._ready).appendleft(ready)
        self._changed.set()

    def finish_claim(self, claim: Claim, is_claimed: bool) -> None:
        """Record whether a message from `take` was claimed, so that the queue no longer counts it as taken.

        If it was not claimed, its admission ends and its row is read again.
        """
        if is_claimed:
            self._taken_ids.discard(claim.id)
        else:
            self._limits.release(claim.id, used=False)
            self._give_back(claim)
            self._changed.set()

    def release(self, claim: Claim) -> None:
        """End the admission of a message that was processed, so that workers check the limits again."""
        self._limits.release(claim.id)
        self._changed.set()

    def _give_back(self, claim: Claim) -> None:
        self._taken_ids.discard(claim.id)
        self._reader.give_back(claim)

    def refill(self) -> None:
        """Request that due rows are read again; new single messages are put before the messages rendered already."""
        if self.is_exhausted:
            self._renderer.reset()  # nothing was due before, so the cached content may be old
        self.is_exhausted, self._blocked_until = False, 0.0
        self._refill_requested = True
        self._changed.set()

    async def _wait_for_change(self) -> None:
        """Wait until a limit opens, a message ends, or a refill is requested or done; at most `_MAX_WAIT_SECONDS`."""
        waiting = [*self._waiting.items(), *self._single_waiting.items()]
        names = {name for name, queue in waiting if queue}
        has_ready = bool(self._ready or self._single)
        blocked_seconds = self._get_blocked_seconds() if self._blocked_groups else 0.0
        names |= self._blocked_groups if blocked_seconds <= 0 else set()
        wait = (
            self._limits.get_opening_time(names, has_ready) - clock.monotonic()
            if names or has_ready or blocked_seconds <= 0
            else blocked_seconds
        )
        wait = min(wait, blocked_seconds) if blocked_seconds > 0 else wait
        if wait > _MAX_WAIT_SECONDS:
            self.is_exhausted = False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), min(max(wait, _MIN_WAIT_SECONDS), _MAX_WAIT_SECONDS))

    async def _refill(self) -> None:
        try:
            closed = (*self._breaker.get_closed_providers(), *self._limits.get_closed_providers())
            room = None if self._limits.is_free else self._limits.get_room(self._waiting)
            limit = self._max_ready if len(self._ready) < self._max_ready // 2 else 0
            claims = {claim.id: claim for claim in self._read(limit, closed, room)}
            count = len(claims)
            try:
                await self._render(claims)
            finally:
                for claim in claims.values():
                    self._give_back(claim)
            now = asyncio.get_running_loop().time()
            self._blocked_groups = self._reader.get_blocked_groups()
            self.is_exhausted = len(claims) == count and not self._reader.has_more and limit > 0
            is_blocked = self.is_exhausted and any((room or {}).get(group, 1) > 0 for group in self._blocked_groups)
            self._blocked_until = now + _BLOCKED_SECONDS if is_blocked else 0.0
        finally:
            self._filling = None
            self._changed.set()

    def _append(self, ready: RenderedMessage) -> None:
        if ready.claim.is_single:
            self._single.append(ready)
            return
        self._ready.append(ready)
        campaign_id = ready.claim.campaign_id
        name = self._limits.get_sender_limit_name(ready.prepared.sender) if ready.prepared is not None else None
        if name is not None and campaign_id is not None:
            self._sender_limits[campaign_id] = name

    def _get_held_campaigns(self) -> tuple[int, ...]:
        """Return the ids of campaigns whose rows are not read.

        They are the campaigns that the circuit breaker holds, and those with enough rendered messages that wait for the
        limit of the sender.
        """
        full = {name for name, queue in self._waiting.items() if len(queue) >= self._max_ready}
        return (
            *self._breaker.get_held_campaigns(),
            *(campaign_id for campaign_id, name in self._sender_limits.items() if name in full),
        )

    def _read(self, limit: int, closed: tuple[str, ...], room: dict[str, int] | None) -> list[Claim]:
        """Read the next rows, up to `limit` besides single messages, and mark them as taken."""
        waiting = len(self._single) + sum(map(len, self._single_waiting.values()))
        claims = self._reader.fetch_candidates(
            limit,
            self._taken_ids,
            closed,
            self._get_held_campaigns(),
            room,
            max(0, self._max_ready - waiting),
            self._renderer.shares.get_used,
        )
        self._taken_ids.update(claim.id for claim in claims)
        # A message keeps the Date of its first attempt, so that each attempt has the same bytes.
        now = clock.now_ms()
        return [row._replace(first_attempt_at=row.first_attempt_at or now) for row in claims]

    async def _render(self, claims: dict[int, Claim]) -> None:
        """Render messages and append them as soon as they are signed; remove those that were appended from `claims`."""
        unsigned: deque[Future[list[RenderedMessage]] | list[RenderedMessage]] = deque()
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        for turn in self._renderer.render_turns([*claims.values()], _MAX_RENDER_SECONDS):
            seconds = loop.time() - started_at
            unsigned.append(turn)
            while unsigned and not (isinstance(unsigned[0], Future) and not unsigned[0].done()):
                await self._append_turn(unsigned.popleft(), claims)
            # After a slow template, the workers get the event loop for as long as the template had it.
            await asyncio.sleep(seconds if seconds > _LONG_TURN_SECONDS else 0)
            started_at = loop.time()
        for turn in unsigned:
            await self._append_turn(turn, claims)

    async def _append_turn(
        self, turn: "Future[list[RenderedMessage]] | list[RenderedMessage]", claims: dict[int, Claim]
    ) -> None:
        messages = await asyncio.wrap_future(turn) if isinstance(turn, Future) else turn
        for message in messages:
            if message.prepared is not None:
                domain = self._limits.find_missing_quota(message.claim, message.prepared.sender)
                if domain is not None:
                    self._limits.set_quota(await transactions.commit(senders.get_or_create_today, domain))
            self._append(message)
            del claims[message.claim.id]

    def close(self) -> None:
        """Wait until the signing threads have ended."""
        self._renderer.close()
