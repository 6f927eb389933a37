"""Posts what is due to webhooks, several at once, so that one that is slow holds up no other."""

import asyncio
import logging
import threading
from collections.abc import Callable

from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.sending.delivery.safe_http import Kept
from appliance.settings import config
from appliance.storage import disk_guard, work
from appliance.storage.open import fetch_one, rows
from appliance.webhooks import fanout, outcomes, post
from appliance.webhooks.outcomes import Job, Outcome

log = logging.getLogger("campanero.webhooks")

# What is on its way when the process ends gets so long to be answered; after that it is sent again by the next
_GRACE_SECONDS = 2.0
# Who takes longer is slow
_SLOW_MS = 1_000


class Teller:
    """Works on webhooks in one thread at a time; a ring meanwhile is answered by the one at work."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._working = threading.Lock()
        self._rung = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = asyncio.Event()
        self._turn = 0
        # How long each took to take what it got last; None if it did not
        self._took: dict[int, int | None] = {}
        # One loop for all times: a name that takes long to be resolved keeps a thread, not us
        self._runner = asyncio.Runner()

    def tend(self) -> None:
        """Work until there is nothing to do, or the process ends."""
        self._rung.set()
        self.wake()
        while self._rung.is_set() and self._working.acquire(blocking=False):
            try:
                self._rung.clear()
                if is_due():
                    self._runner.run(self._work())
            finally:
                self._working.release()

    def stop(self) -> None:
        """Begin nothing new, and let what is on its way come to an end."""
        self.stopping.set()
        self.wake()

    def wake(self) -> None:
        """Let the one at work look again."""
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._awake.set)
            except RuntimeError:
                pass  # it has just ended, and whoever rang looks again itself

    async def _work(self) -> None:
        self._loop, self._awake = asyncio.get_running_loop(), asyncio.Event()
        hand: dict[asyncio.Task[Outcome], Job] = {}
        kept = Kept()
        try:
            while not self.stopping.is_set() and disk_guard.unwritable() is None:
                self._awake.clear()
                more = fanout.is_behind() and await _written(fanout.take_in)
                more = (fanout.has_deleted() and await _written(fanout.deleted)) or more
                more = (fanout.is_put_off() and await _written(fanout.put_off)) or more
                for job in self._due(list(hand.values())):
                    hand[asyncio.create_task(post.attempt(job, kept))] = job
                if hand:
                    await self._answered(hand, wait=not more)
                elif not more:
                    return
        finally:
            self._loop = None
            await _last(hand)
            await kept.close()

    async def _answered(self, hand: "dict[asyncio.Task[Outcome], Job]", wait: bool) -> None:
        """Keep what has been answered; `wait` for the next answer, or for a ring."""
        rung = asyncio.create_task(self._awake.wait())
        done, _ = await asyncio.wait({*hand, rung}, timeout=None if wait else 0, return_when=asyncio.FIRST_COMPLETED)
        rung.cancel()
        self._took |= {
            job.webhook_id: came.duration_ms if came is not None and came.good else None
            for task, job in hand.items() if task in done for came in (_came(task),)
        }  # fmt: skip
        await _keep(hand, [task for task in hand if task in done])

    def _due(self, hand: list[Job]) -> list[Job]:
        """Choose what is sent now: for each webhook in the order in which it is due, and from all in turn.

        Those that fail or are slow share one half of the connections, so that however many those are, whoever answers
        at once is not held up. Nobody gets several before they have taken one.
        """
        here, now = config.current().webhooks, clock.now_ms()
        hooks = rows("SELECT id, failing_since FROM webhook WHERE enabled AND deleted_at IS NULL ORDER BY id")
        self._took = {one: self._took[one] for one, _ in hooks if one in self._took}
        slow = {one for one, failing in hooks if failing or _is_slow(self._took.get(one, 0))}
        found: list[Job] = []
        self._turn += 1
        start = self._turn % len(hooks) if hooks else 0
        for webhook_id, failing in hooks[start:] + hooks[:start]:
            mine = [*hand, *found]
            busy = {job.id for job in mine if job.webhook_id == webhook_id}
            # One that fails is asked by one at a time: it shall not be overrun when it is back
            each = 1 if failing or self._took.get(webhook_id) is None else here.connections_each
            free = min(here.connections - len(mine), each - len(busy))
            if webhook_id in slow:
                free = min(free, max(here.connections // 2, 1) - sum(job.webhook_id in slow for job in mine))
            if free > 0:
                found += [job for job in _next(webhook_id, now, free + len(busy)) if job.id not in busy][:free]
        return found


def _is_slow(took: int | None) -> bool:
    return took is None or took >= _SLOW_MS


def _came(task: "asyncio.Task[Outcome]") -> Outcome | None:
    return None if task.cancelled() or task.exception() is not None else task.result()


def _next(webhook_id: int, now: int, most: int) -> list[Job]:
    return [
        Job(*row)
        for row in rows(
            "SELECT id, webhook_id, event_id, attempts FROM webhook_delivery "
            "WHERE webhook_id = ? AND status = 'pending' AND next_attempt_at <= ? ORDER BY next_attempt_at, id LIMIT ?",
            (webhook_id, now, most),
        )
    ]


def is_due() -> bool:
    """Return whether there is anything to do: events that nobody looked at, deliveries that are due, rows to mend."""
    if fanout.is_behind() or fanout.has_deleted() or fanout.is_put_off():
        return True
    return any(
        fetch_one(
            "SELECT 1 FROM webhook_delivery WHERE webhook_id = ? AND status = 'pending' AND next_attempt_at <= ? "
            "LIMIT 1",
            (row[0], clock.now_ms()),
        )
        for row in rows("SELECT id FROM webhook WHERE enabled AND deleted_at IS NULL")
    )


async def _written(verb: Callable[[], bool]) -> bool:
    return await asyncio.wrap_future(work.submit(verb))


async def _keep(hand: "dict[asyncio.Task[Outcome], Job]", done: "list[asyncio.Task[Outcome]]") -> None:
    """Write what came of attempts, all in one go; what cannot be written is known to nobody and sent again."""
    found = []
    for task in done:
        job = hand.pop(task)
        try:
            found.append(task.result())
        except Exception:
            log.exception("delivery %s failed", job.id)
            found.append(Outcome(job, error="it could not be made"))
    if not found:
        return
    try:
        await asyncio.wrap_future(work.record(outcomes.keep, found))
    except Unavailable:
        raise
    except Exception:
        # Whatever is wrong with us, nobody shall get the same again and again
        log.exception("what came of %s deliveries could not be judged", len(found))
        await asyncio.wrap_future(work.record(outcomes.keep, found, False))


async def _last(hand: "dict[asyncio.Task[Outcome], Job]") -> None:
    """Give what is on its way a moment, and keep what came of it."""
    if not hand:
        return
    done, late = await asyncio.wait(hand, timeout=_GRACE_SECONDS)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    await _keep(hand, list(done))
