"""Keep a queue of rendered messages, which is filled ahead of the workers.

Messages in the queue are not claimed yet: if the process dies, they are rendered again (`renderer.py`).
"""

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Mapping
from concurrent.futures import Future

from appliance.core import clock, logs
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.queue_reader import LimitNames, QueueReader, Source, get_source, list_campaign_senders
from appliance.sending.workers.circuit_breaker import CircuitBreaker, StopSwitch
from appliance.sending.workers.rate_limits import ALL, RateLimits
from appliance.sending.workers.renderer import RenderedMessage, Renderer
from appliance.storage import send_lease

log = logging.getLogger("campanero.sender")
# Messages that waited longer in the queue are rendered again from the current state of the database.
_MAX_AGE_SECONDS = 5.0
# Longest wait of a worker for a limit before it looks for other messages.
_MAX_WAIT_SECONDS = 5.0
_MIN_WAIT_SECONDS = 0.001
# The approximate memory for rendered messages: if messages are large, fewer of them are rendered ahead.
_MAX_READY_BYTES = 32 * 1024 * 1024
# A refill begins when fewer than half of the messages to render ahead are ready, so there are at least two of them.
_MIN_READY = 2
# A refill renders for at most this long, so that new single messages wait no longer; the rest is read again.
_MAX_RENDER_SECONDS = 0.25
# A turn of usual templates takes one to two milliseconds.
_LONG_TURN_SECONDS = 0.01
# Delay before parked rows are read again if the last refill read none of them although their recipient group has room.
_PARKED_SECONDS = 1.0
# Delay before the next refill after one that failed; it doubles with each failure in a row.
_FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.1, 5.0
# Delay before rows are read again that could not be reserved in the store of the lease.
_RESERVE_RETRY_SECONDS = 1.0


class ReadyQueue:
    """The rendered messages of a channel that wait for a worker or a limit; used on one event loop.

    Single messages come before those of campaigns and flows. `is_exhausted` is True once a refill found no due rows.

    A message from `take` or `poll` is admitted by the limits, and its row is taken: a refill does not read it. The
    worker reports each message:

    | When                     | Method                | Admission       | Row                       |
    |--------------------------|-----------------------|-----------------|---------------------------|
    | it does not claim it now | `put_back`            | ends, not sent  | taken; first in the queue |
    | the claim was refused    | `finish_claim(False)` | ends, not sent  | read again                |
    | the claim is on disk     | `finish_claim(True)`  | goes on         | claimed; not taken        |
    | it has processed it      | `release`             | ends            | has its outcome           |

    `_drop` discards a message that was not admitted, such as an outdated one, so that its row is read again.
    """

    def __init__(
        self,
        breaker: CircuitBreaker,
        limits: RateLimits,
        max_ready: int,
        stop_switch: StopSwitch,
        channel: str = "email",
        names: LimitNames | None = None,
    ) -> None:
        self._breaker, self._limits, self._stop_switch = breaker, limits, stop_switch
        self._max_ready = self._usual_max_ready = limits.get_max_ready(max_ready)
        self._rendered_single: deque[RenderedMessage] = deque()
        self._rendered: deque[RenderedMessage] = deque()
        self._waiting: dict[str, deque[RenderedMessage]] = {}  # by the name of the limit that the messages wait for
        self._single_waiting: dict[str, deque[RenderedMessage]] = {}
        # Ids of messages in this queue, or with a worker and not claimed yet: their rows are not read again.
        self._taken_ids: set[int] = set()
        self._channel = channel
        # The limits of senders that had no room, so that the last refill held back their campaigns.
        self._held_limits: set[str] = set()
        self._renderer = Renderer()
        self._reader = QueueReader(channel, names or limits.get_names)
        self._parked_groups: set[str] = set()  # recipient groups and limits with parked rows
        self._filling: asyncio.Task[None] | None = None
        # The compilation in progress; until it is done, the rows without compiled content, which stay taken.
        self._compiling: asyncio.Task[None] | None = None
        self._uncompiled: dict[int, LedgerRow] = {}
        self._limit_lock = asyncio.Lock()  # held by the one worker that waits for a limit
        self._changed = asyncio.Event()  # ends the wait of that worker (`_wait_for_change`)
        self._refill_requested = False
        self._parked_until = 0.0
        # After a failed refill: the delay before the next, and the time from which it may begin.
        self._backoff_seconds = 0.0
        self._retry_at: float | None = None
        self._errors = logs.RepeatedErrors(log, "sender: reading due messages failed")
        self.is_exhausted = False

    async def take(self) -> RenderedMessage | None:
        """Wait for the next message that may be sent, and return it.

        None means that no message is due or sending is stopped.
        """
        ready = None if self._stop_switch.is_halted() else self.poll()
        while ready is None and not self._stop_switch.is_halted():
            if not self._waits_for_limits():
                # Workers that wait for the same refill continue in the same iteration of the loop and share a commit.
                if not await self._wait_for_refill():
                    return None
                ready = self.poll()
                continue
            async with self._limit_lock:  # one worker waits at a time, so that a limit that opens wakes only one
                if self._stop_switch.is_halted():
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
        while not self._stop_switch.is_halted():
            self._changed.clear()
            for queue in self._get_queues():
                ready = self._pop_fresh(queue)
                if ready is not None:
                    queue.appendleft(ready)
                    return ready.row.provider
            self._start_refill()
            if self._waits_for_limits():
                await self._wait_for_change()
            elif not await self._wait_for_refill():
                return None
        return None

    def poll(self, behind: LedgerRow | None = None) -> RenderedMessage | None:
        """Return the next message that may be sent now, or None; start a refill if needed.

        If `behind` is given, the message will be pipelined behind that one, and thus sent some time after it was taken.
        So only a message is returned to which no limit applies, or which can take over the place of the other at its
        limit (`RateLimits.follow`).
        """
        ready = self._pop_admitted(behind)
        self._start_refill()
        return ready

    def put_back(self, ready: RenderedMessage) -> None:
        """Put a message that was taken but not claimed at the front of the queue, and end its admission."""
        self._limits.release(ready.row.id, was_sent=False)
        (self._rendered_single if ready.row.is_single else self._rendered).appendleft(ready)
        self._changed.set()

    def finish_claim(self, row: LedgerRow, is_claimed: bool) -> None:
        """Record whether a message from `take` was claimed, so that the queue no longer counts it as taken.

        If it was not claimed, its admission ends and its row is read again.
        """
        if is_claimed:
            self._taken_ids.discard(row.id)
        else:
            self._limits.release(row.id, was_sent=False)
            self._drop(row)
            self._changed.set()

    def release(self, row: LedgerRow) -> None:
        """End the admission of a message that was processed, so that workers check the limits again."""
        self._limits.release(row.id)
        self._changed.set()

    def refill(self) -> None:
        """Request that due rows are read again; new single messages are put before the messages rendered already."""
        if self.is_exhausted:
            self._renderer.reset()  # nothing was due before, so the cached content may be old
        self.is_exhausted, self._parked_until = False, 0.0
        self._refill_requested = True
        self._changed.set()

    async def close(self) -> None:
        """End the refill and the compilation in progress, if any, and wait until the signing threads have ended."""
        tasks = {task for task in (self._filling, self._compiling) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.get_running_loop().run_in_executor(None, self._renderer.close)

    # Which message comes next: single messages first, and those that waited for a limit before those that did not.

    def _get_queues(self) -> tuple[deque[RenderedMessage], ...]:
        return (*self._single_waiting.values(), self._rendered_single, *self._waiting.values(), self._rendered)

    def _pop_admitted(self, behind: LedgerRow | None) -> RenderedMessage | None:
        """Pop and admit the first message that no limit delays; move those that a limit delays to its own queue.

        A message that waits for the overall limit stays where it is, as does one that cannot follow `behind`. No other
        message passes it.
        """
        for queue in self._get_queues():
            while queue:
                ready = self._pop_fresh(queue)
                if ready is None:
                    break
                if ready.prepared is None or self._limits.is_unlimited:
                    return ready
                sender = ready.prepared.sender
                if behind is not None:
                    if self._limits.follow(ready.row, sender, behind):
                        return ready
                    # A message of another transport is moved aside, because a later one may be of the same transport.
                    name = self._limits.get_limit_to_wait_for(ready.row, behind)
                    if name is None:
                        queue.appendleft(ready)
                        return None
                    if not self._set_waiting(ready, name, queue):
                        break
                    continue
                blocking_limit = self._limits.admit(ready.row, sender)
                if blocking_limit is None:
                    if queue is not self._rendered_single and queue is not self._rendered:
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

        Messages of paused providers or held campaigns and outdated messages are dropped; their rows are read again.
        """
        paused = self._limits.list_unavailable(self._breaker.get_unavailable_providers())
        held = self._breaker.get_held_campaigns()
        oldest = time.monotonic() - _MAX_AGE_SECONDS
        while queue:
            ready = queue.popleft()
            row = ready.row
            is_paused = row.provider in paused and not self._breaker.is_probe(row)
            if not is_paused and row.campaign_id not in held and ready.rendered_at > oldest:
                return ready
            self._drop(row)
            self.is_exhausted = False
        return None

    def _set_waiting(self, ready: RenderedMessage, name: str, queue: deque[RenderedMessage]) -> bool:
        """Move a message popped from `queue` to the queue of messages that wait for the limit `name`.

        Return False if `queue` is that queue, so that its next message need not be tried, else True. If too many
        messages wait for the limit, the message is dropped and its row is read again.
        """
        waiting = (self._single_waiting if ready.row.is_single else self._waiting).setdefault(name, deque())
        if queue is waiting:
            waiting.appendleft(ready)
            return False
        if len(waiting) < self._max_ready:
            waiting.append(ready)
        else:
            self._drop(ready.row)
        return True

    def _drop(self, row: LedgerRow) -> None:
        self._breaker.cancel_probe(row)
        self._taken_ids.discard(row.id)
        self._reader.give_back(row)

    # What a worker that gets no message waits for.

    def _waits_for_limits(self) -> bool:
        """Return whether the queue waits for a limit, for content to be compiled, or to repeat a failed refill.

        Messages that `poll` leaves in `_rendered` wait for the overall limit: the result is True, because a refill
        brings nothing that may be sent sooner. Otherwise the result is False during a refill, which may bring messages
        that need not wait.
        """
        if self._rendered or self._filling is not None:
            return bool(self._rendered)
        is_waiting = self._retry_at is not None or self._compiling is not None
        return bool(is_waiting or self._parked_groups or any(self._get_queues()))

    async def _wait_for_refill(self) -> bool:
        """Wait for the refill in progress, if any; return whether there was one."""
        if self._filling is None:
            return False
        await asyncio.shield(self._filling)
        return True

    async def _wait_for_change(self) -> None:
        """Wait until a limit opens, a message ends, or a refill is requested or done; at most `_MAX_WAIT_SECONDS`."""
        waiting = [*self._waiting.items(), *self._single_waiting.items()]
        names = {name for name, queue in waiting if queue}
        has_ready = bool(self._rendered or self._rendered_single)
        now, wait = clock.monotonic(), math.inf
        if self._retry_at is not None:
            wait = self._retry_at - now
        elif self._parked_groups and self._parked_until > now:
            wait = self._parked_until - now
        elif self._parked_groups:
            unavailable = self._limits.get_unavailable_limits(self._breaker.get_unavailable_providers())
            names |= self._parked_groups - unavailable
            if self._parked_groups & unavailable:
                wait = _PARKED_SECONDS
        if names or has_ready:
            wait = min(wait, self._limits.get_opening_time(names, has_ready) - now)
        try:
            await asyncio.wait_for(self._changed.wait(), min(max(wait, _MIN_WAIT_SECONDS), _MAX_WAIT_SECONDS))
        except TimeoutError:
            # All limits open later than `_MAX_WAIT_SECONDS`, so look for messages of other limits. Doing this before
            # the wait would refill in a loop, because each refill wakes the workers that peek.
            if wait > _MAX_WAIT_SECONDS:
                self.is_exhausted = False

    # A refill reads due rows and renders them; it runs beside the workers.

    def _start_refill(self) -> None:
        if (
            self._filling is None
            and (self._refill_requested or (len(self._rendered) < self._max_ready // 2 and self._may_find_more()))
            and (self._retry_at is None or self._retry_at <= clock.monotonic())
        ):
            self._refill_requested = False
            self._filling = asyncio.create_task(self._refill())

    def _may_find_more(self) -> bool:
        """Return whether there may be rows to render: rows not read yet, or parked rows whose group has room now."""
        if not self.is_exhausted or not self._parked_groups:
            return not self.is_exhausted
        if self._parked_until > clock.monotonic():
            return False
        room = self._limits.get_room(self._count_waiting(), self._breaker.get_unavailable_providers())
        return any(room.get(group, 1) > 0 for group in self._parked_groups)

    async def _refill(self) -> None:
        """Read and render due rows; if that fails, set when the next refill may begin."""
        self._retry_at = None
        try:
            await self._read_and_render()
            self._backoff_seconds = 0.0
        except Exception as error:
            self._errors.log(error)
            self._reader.restart()
            self.is_exhausted = False
            self._backoff_seconds = min(max(_FIRST_BACKOFF_SECONDS, 2 * self._backoff_seconds), _MAX_BACKOFF_SECONDS)
            self._retry_at = clock.monotonic() + self._backoff_seconds
        finally:
            self._filling = None
            self._changed.set()

    async def _read_and_render(self) -> None:
        self._forget_idle_limits()
        unavailable = self._breaker.get_unavailable_providers()
        paused = self._limits.list_unread(unavailable)
        room = None if self._limits.is_unlimited else self._limits.get_room(self._count_waiting(), unavailable)
        limit = self._max_ready if len(self._rendered) < self._max_ready // 2 else 0
        candidates = {row.id: row for row in self._read(limit, paused, room)}
        count = len(candidates)
        try:
            if not await send_lease.reserve(candidates):
                self._retry_at = clock.monotonic() + _RESERVE_RETRY_SECONDS
                return
            await self._render(candidates)
            self._keep_uncompiled(candidates)
        finally:
            for row in candidates.values():
                self._drop(row)
        self._limit_memory()
        self._parked_groups = self._reader.get_parked_groups() | self._held_limits
        self.is_exhausted = not count and not self._reader.has_more and limit > 0
        is_blocked = self.is_exhausted and any((room or {}).get(group, 1) > 0 for group in self._parked_groups)
        self._parked_until = clock.monotonic() + _PARKED_SECONDS if is_blocked else 0.0

    def _read(self, limit: int, paused: tuple[str, ...], room: dict[str, int] | None) -> list[LedgerRow]:
        """Read the next rows, up to `limit` besides single messages, and mark them as taken."""
        waiting = len(self._rendered_single) + sum(map(len, self._single_waiting.values()))
        candidates = self._reader.fetch_candidates(
            limit,
            self._taken_ids,
            paused,
            self._get_held_sources(room or {}),
            room,
            max(0, self._max_ready - waiting),
            self._renderer.shares.get_used,
            self._limits.get_chooser(self._breaker.get_unavailable_providers(), self._breaker.begin_probe),
        )
        self._taken_ids.update(row.id for row in candidates)
        # A message keeps the Date of its first attempt, so that each attempt has the same bytes.
        now = clock.now_ms()
        return [row if row.first_attempt_at else row.with_first_attempt(now) for row in candidates]

    def _count_waiting(self) -> Counter[str]:
        """Return the number of rendered messages that wait for each limit, by its name."""
        counts = Counter({name: len(queue) for name, queue in self._waiting.items()})
        counts.update({name: len(queue) for name, queue in self._single_waiting.items()})
        return counts

    def _get_held_sources(self, room: Mapping[str, int]) -> set[Source]:
        """Return the campaigns, and the accounts of other messages, whose rows are not read.

        They are the campaigns that the circuit breaker holds, the campaigns for which no limit of a sender has room,
        and every source of messages whose content is not compiled.
        """
        campaigns = {*self._breaker.get_held_campaigns(), *self._find_limited_campaigns(room)}
        held = {Source("campaign", campaign_id) for campaign_id in campaigns}
        return held.union(map(get_source, self._uncompiled.values()))

    def _find_limited_campaigns(self, room: Mapping[str, int]) -> set[int]:
        """Return the campaigns for which no limit of a sender has room, and set `_held_limits`.

        The rows of a campaign that has another sender with room are parked one by one (`QueueReader`).
        """
        self._held_limits = set()
        if not self._limits.has_sender_limits():
            return set()
        no_room = {name for name, count in room.items() if count <= 0}
        full = no_room | {name for name, queue in self._waiting.items() if len(queue) >= self._max_ready}
        held = set()
        for campaign_id, senders in list_campaign_senders(self._channel).items() if full else ():
            names = set(map(self._limits.get_sender_limit_name, senders))
            if names <= full:
                held.add(campaign_id)
                self._held_limits |= names & no_room
        return held

    async def _render(self, candidates: dict[int, LedgerRow]) -> None:
        """Render messages and append them as soon as they are signed; remove those that were appended from the dict."""
        turns: deque[Future[list[RenderedMessage]]] = deque()
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        for turn in self._renderer.render_turns([*candidates.values()], _MAX_RENDER_SECONDS):
            seconds = loop.time() - started_at
            turns.append(turn)
            while turns and turns[0].done():
                await self._append_turn(turns.popleft(), candidates)
            # After a slow template, the workers get the event loop for as long as the template had it.
            await asyncio.sleep(seconds if seconds > _LONG_TURN_SECONDS else 0)
            started_at = loop.time()
        for turn in turns:
            await self._append_turn(turn, candidates)

    async def _append_turn(self, turn: "Future[list[RenderedMessage]]", candidates: dict[int, LedgerRow]) -> None:
        """Append the messages of a turn once they are signed and the quotas of their senders are loaded."""
        for message in turn.result() if turn.done() else await asyncio.wrap_future(turn):
            if message.prepared is not None:
                await self._limits.load_quota(message.row, message.prepared.sender)
            self._append(message)
            del candidates[message.row.id]

    def _append(self, ready: RenderedMessage) -> None:
        if ready.prepared is None:
            self._breaker.cancel_probe(ready.row)
        if ready.row.is_single:
            self._rendered_single.append(ready)
            return
        self._rendered.append(ready)

    def _keep_uncompiled(self, candidates: dict[int, LedgerRow]) -> None:
        """Keep the rows whose content has to be compiled, remove them from the dict, and compile the first content.

        If the rows were given back, they would be read again and again until they can be rendered.
        """
        rows = [row for source_rows in self._renderer.uncompiled.values() for row in source_rows]
        for row in rows:
            self._uncompiled[row.id] = candidates.pop(row.id)
        if rows and self._compiling is None:
            self._compiling = asyncio.create_task(self._finish_compiling(self._renderer.compile_first()))

    async def _finish_compiling(self, compiling: "Future[list[RenderedMessage]]") -> None:
        """Wait until the content is compiled; then all rows in `_uncompiled` are read again, in fair shares.

        Refills go on meanwhile, so other messages do not wait: a compilation may take as long as
        `limited_process.MAX_SECONDS`.
        """
        try:
            await self._append_turn(compiling, self._uncompiled)
        except Exception as error:
            self._errors.log(error)
        finally:
            for row in self._uncompiled.values():
                self._drop(row)
            self._uncompiled, self._compiling = {}, None
            self._changed.set()
        # A further refill is requested even if one is in progress, which may have passed these rows. It starts before
        # any worker continues.
        self.is_exhausted, self._refill_requested = False, True
        self._start_refill()

    def _limit_memory(self) -> None:
        """Set how many messages are rendered ahead, by the average size of those that are ready.

        It is at least two, because a refill begins below half of this number.
        """
        ready = [*self._rendered_single, *self._rendered]
        sizes = [len(message.prepared.envelope.content) for message in ready if message.prepared is not None]
        if sizes:
            fitting = _MAX_READY_BYTES * len(sizes) // sum(sizes)
            self._max_ready = min(self._usual_max_ready, max(_MIN_READY, fitting))

    def _forget_idle_limits(self) -> None:
        """Forget the limits for which no message waits, so that they are not scanned by each poll."""
        self._waiting = {name: queue for name, queue in self._waiting.items() if queue}
        self._single_waiting = {name: queue for name, queue in self._single_waiting.items() if queue}
