"""The links and pictures that lead through us. Where they lead stands with us; nothing a request says changes it."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from sanic import HTTPResponse, Request

from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.public import answers
from appliance.sending.messages import links
from appliance.sending.messages.link_targets import Found, Targets, Wanted
from appliance.storage import work
from appliance.storage.disk_guard import StorageError, storage_error
from appliance.storage.open import close_database
from appliance.tracking import hits
from appliance.tracking.hits import Asked, Hit, Limit

# Between the doors of recipients and the writer: hits that come meanwhile are looked up and written together.
#
# Who asked is answered when the hit is on disk, or after 250 ms: nobody waits for a slow disk to read a page. Few
# batches are under way; while they are, the next one gathers. There is no timer for that.

log = logging.getLogger("campanero.tracking")
PATIENCE_SECONDS = 0.25
_SAY_SECONDS = 2.0
# So many may wait for a disk that does not write; more are sent on and not kept
_MAX_WAITING = 20_000
_MAX_AT_ONCE = 250
# While one batch is written, the next is looked up
_MAX_UNDER_WAY = 2


class _One:
    """A hit on its way: what was asked for, who waits for the answer, and what is known of it so far."""

    __slots__ = ("answer", "asked", "found", "is_known", "timer", "wanted")

    def __init__(self, wanted: Wanted, asked: Asked, answer: "asyncio.Future[Found | None]") -> None:
        self.wanted, self.asked, self.answer = wanted, asked, answer
        self.found: Found | None = None
        self.is_known = False
        self.timer: asyncio.TimerHandle | None = None


class Desk:
    """Counts who asks; used on one event loop. What was not counted is: `early`, `unrecorded`."""

    def __init__(self) -> None:
        self.early = self.unrecorded = 0
        self._waiting: list[_One] = []
        self._under_way = 0
        self._is_called = False
        self._targets = Targets()
        self._limit = Limit()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hits")
        self._said = (0, 0)
        self._saying = False

    def ask(self, wanted: Wanted, asked: Asked) -> "asyncio.Future[Found | None]":
        """Return what was asked for, once that is on disk or it took too long; None for what is not there (any more).

        Raises Unavailable where not even the answer can be read.
        """
        loop = asyncio.get_running_loop()
        one = _One(wanted, asked, loop.create_future())
        one.timer = loop.call_later(PATIENCE_SECONDS, self._late, one)
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(one)
        else:
            self._not_kept(1)
        self._call()
        return one.answer

    def close(self) -> None:
        """End the thread."""
        self._thread.submit(close_database)
        self._thread.shutdown()

    # -- on the loop ----------------------------------------------------------------------------------------------

    def _call(self) -> None:
        if self._waiting and not self._is_called and self._under_way < _MAX_UNDER_WAY:
            self._is_called = True
            # Whoever else asks in this round of the loop comes along
            asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._is_called = False
        batch, self._waiting = self._waiting[:_MAX_AT_ONCE], self._waiting[_MAX_AT_ONCE:]
        self._under_way += 1
        loop = asyncio.get_running_loop()
        self._thread.submit(self._work, batch, loop).add_done_callback(_log_fault)

    def _answered(self, batch: list[_One], error: BaseException | None) -> None:
        """Tell those who still wait; without a fault all of it is on disk."""
        for one in batch:
            if one.timer is not None:
                one.timer.cancel()
            if one.answer.done():
                continue
            if one.is_known:
                one.answer.set_result(one.found)
            else:
                one.answer.set_exception(error or StorageError("it cannot be read"))
        self._under_way -= 1
        self._call()

    def _late(self, one: _One) -> None:
        """Let somebody go first whose hit takes too long to be written."""
        if one.answer.done():
            return
        if one.is_known:
            self._go(one)
        else:
            # It waits behind a batch that is not written: where it leads is found without that
            loop = asyncio.get_running_loop()
            self._thread.submit(self._find_alone, one, loop).add_done_callback(_log_fault)

    def _go(self, one: _One) -> None:
        if not one.answer.done():
            self.early += 1
            self._say_soon()
            one.answer.set_result(one.found)

    def _failed(self, one: _One, error: BaseException) -> None:
        if not one.answer.done():
            one.answer.set_exception(error)

    def _not_kept(self, count: int) -> None:
        self.unrecorded += count
        self._say_soon()

    def _say_soon(self) -> None:
        if not self._saying:
            self._saying = True
            asyncio.get_running_loop().call_later(_SAY_SECONDS if any(self._said) else 0, self._say)

    def _say(self) -> None:
        self._saying = False
        early, unrecorded = self.early - self._said[0], self.unrecorded - self._said[1]
        self._said = (self.early, self.unrecorded)
        log.warning("readers sent on before their hit was stored: %s; hits that are not stored: %s", early, unrecorded)

    # -- in the thread --------------------------------------------------------------------------------------------

    def _work(self, batch: list[_One], loop: asyncio.AbstractEventLoop) -> None:
        """Find where a batch leads and hand it to the writer."""
        error: BaseException | None = None
        try:
            self._find(batch)
            kept = [Hit(one.asked, one.found) for one in batch if one.found is not None and self._is_hit(one)]
            if kept:
                work.submit(hits.keep, kept).add_done_callback(lambda done: self._written(batch, kept, done, loop))
                return
        except Exception as fault:
            error = storage_error(fault) or fault
            if not isinstance(error, Unavailable):
                log.exception("hits cannot be looked up")
        _tell(loop, self._answered, batch, error)

    def _find(self, batch: list[_One]) -> None:
        found = self._targets.find(one.wanted for one in batch)
        for one in batch:
            one.found, one.is_known = found.get(one.wanted), True

    def _is_hit(self, one: _One) -> bool:
        """Return whether a hit is for something that exists, by somebody who may be counted, and not repeated."""
        found = one.found
        if found is None or not hits.is_kept(found) or (one.wanted.number is not None and found.url is None):
            return False
        return self._limit.allows(found.message_id)

    def _find_alone(self, one: _One, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._find([one])
        except Exception as error:
            _tell(loop, self._failed, one, storage_error(error) or error)
        else:
            _tell(loop, self._go, one)

    def _written(
        self, batch: list[_One], kept: list[Hit], done: "Future[None]", loop: asyncio.AbstractEventLoop
    ) -> None:
        """Go on after the writer; where one of many broke the batch, each is written by itself."""
        error = done.exception()
        if error is None:
            pass
        elif isinstance(error, Unavailable) or len(kept) == 1:
            if not isinstance(error, Unavailable):
                log.error("a hit could not be written", exc_info=error)
            _tell(loop, self._not_kept, len(kept))
        else:
            log.warning("hits could not be written together: %s", error)
            self._thread.submit(self._one_by_one, batch, kept, loop).add_done_callback(_log_fault)
            return
        _tell(loop, self._answered, batch, error)

    def _one_by_one(self, batch: list[_One], kept: list[Hit], loop: asyncio.AbstractEventLoop) -> None:
        failed = 0
        for hit in kept:
            try:
                work.submit(hits.keep, [hit]).result()
            except Exception as error:
                failed += 1
                log.error("a hit could not be written", exc_info=error)
        if failed:
            _tell(loop, self._not_kept, failed)
        _tell(loop, self._answered, batch, None)


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        log.debug("the service has ended")


def _log_fault(done: "Future[None]") -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.error("a batch of hits broke", exc_info=error)


# The smallest picture there is: one pixel that nobody sees
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")
_ENDING = ".gif"
# As much as is kept of what somebody says of themselves
_AGENT, _REFERRER = 400, 500


async def click(request: Request, token: str) -> HTTPResponse:
    """Send the reader on to where the link was written to lead."""
    read = links.read_click(token)
    if read is None:
        return answers.lost()
    try:
        found = await _ask(request, Wanted(*read))
    except Unavailable:
        return answers.unavailable()
    if found is None or found.url is None:
        return answers.lost()
    return HTTPResponse(None, 302, {**answers.HEADERS, "Location": found.url}, content_type="text/plain")


async def seen(request: Request, token: str) -> HTTPResponse:
    """Return the picture, whatever becomes of the count."""
    message_id = links.read_open(token.removesuffix(_ENDING)) if token.endswith(_ENDING) else None
    if message_id is None:
        return answers.lost()
    try:
        await _ask(request, Wanted(message_id, None))
    except Unavailable:
        _desk(request).unrecorded += 1
    return HTTPResponse(PIXEL, 200, answers.HEADERS, content_type="image/gif")


async def _ask(request: Request, wanted: Wanted) -> Found | None:
    headers = request.headers
    is_ahead = "prefetch" in (headers.get("sec-purpose") or headers.get("purpose") or "")
    agent, referrer = headers.get("user-agent"), headers.get("referer")
    asked = Asked(
        wanted.number, "PREFETCH" if is_ahead else request.method, request.ctx.client,
        agent[:_AGENT] if agent else None, referrer[:_REFERRER] if referrer else None, clock.now_ms(),
    )  # fmt: skip
    return await _desk(request).ask(wanted, asked)


def _desk(request: Request) -> Desk:
    """Return the desk of this server; who comes first sets it up."""
    here = request.app.ctx
    if here.desk is None:
        here.desk = Desk()
    found: Desk = here.desk
    return found
