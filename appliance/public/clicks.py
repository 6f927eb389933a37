"""Click and open tracking: the redirects of links, the tracking pixel, and the recording of hits.

The target of a link is stored; nothing in a request can change it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from sanic import HTTPResponse, Request

from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.public import pages
from appliance.sending.messages import links
from appliance.sending.messages.links import ClickShares, LinkRequest, LinkResolver, TrackedMessage
from appliance.storage import transactions
from appliance.storage.database import close_database
from appliance.storage.disk_guard import StorageError, to_storage_error
from appliance.tracking import hits
from appliance.tracking.hits import Hit, HitLimiter, HitRequest

# Hits are looked up and written in batches. The response to a hit is sent when the hit is on disk, or after
# MAX_WAIT_SECONDS, so that a slow disk does not delay recipients. A batch begins at once, unless
# `_MAX_BATCHES_IN_FLIGHT` batches are being processed; hits that arrive meanwhile form the next batch.

log = logging.getLogger("campanero.tracking")
MAX_WAIT_SECONDS = 0.25
_LOG_INTERVAL_SECONDS = 2.0
# Beyond this number of waiting hits, requests are redirected without being recorded.
_MAX_PENDING_HITS = 20_000
_MAX_BATCH_HITS = 250
# With two batches, the targets of one are looked up while the other is written.
_MAX_BATCHES_IN_FLIGHT = 2


class _PendingHit:
    """A hit that is not stored yet, with the future that its response waits for.

    `is_known` is whether `target` has been looked up. If so, a target of None means that the message does not exist.
    """

    __slots__ = ("account_id", "future", "hit_request", "is_known", "link", "target", "timer")

    def __init__(
        self,
        link: LinkRequest,
        hit_request: HitRequest,
        account_id: int | None,
        future: "asyncio.Future[TrackedMessage | None]",
    ) -> None:
        self.link, self.hit_request, self.account_id, self.future = link, hit_request, account_id, future
        self.target: TrackedMessage | None = None
        self.is_known = False
        self.timer: asyncio.TimerHandle | None = None


class HitRecorder:
    """A recorder that stores hits in batches. Call its public methods on one event loop only.

    `early` counts the responses that were sent before their hit was stored, `unrecorded` the hits that were lost.
    """

    def __init__(self) -> None:
        self.early = self.unrecorded = 0
        self._pending: list[_PendingHit] = []
        self._in_flight = 0
        self._is_scheduled = False
        self._targets = LinkResolver(ClickShares())
        self._limit = HitLimiter()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hits")
        self._logged_counts = (0, 0)
        self._is_log_scheduled = False

    def record(
        self, link: LinkRequest, hit_request: HitRequest, account_id: int | None
    ) -> "asyncio.Future[TrackedMessage | None]":
        """Record a hit, and return a future of its message with the target of the link.

        `account_id` is the account whose public address the request names, or None for the address of the installation.
        At the address of an account, messages of other accounts count as unknown, so that it never redirects to a link
        of another account.

        The future completes when the hit is stored, or, after MAX_WAIT_SECONDS, as soon as the target is known. Its
        result is None if the message does not exist; it raises Unavailable if the target cannot be read. If
        `_MAX_PENDING_HITS` hits are waiting, the hit is not recorded.
        """
        loop = asyncio.get_running_loop()
        pending = _PendingHit(link, hit_request, account_id, loop.create_future())
        pending.timer = loop.call_later(MAX_WAIT_SECONDS, self._handle_timeout, pending)
        if len(self._pending) < _MAX_PENDING_HITS:
            self._pending.append(pending)
        else:
            self._count_unrecorded(1)
        self._schedule_batch()
        return pending.future

    def close(self) -> None:
        """Wait for the batches in progress, then close the database connection of the thread and end the thread."""
        self._thread.submit(close_database)
        self._thread.shutdown()

    # -- On the event loop ----------------------------------------------------------------------------------------

    def _schedule_batch(self) -> None:
        if self._pending and not self._is_scheduled and self._in_flight < _MAX_BATCHES_IN_FLIGHT:
            self._is_scheduled = True
            # The batch starts in the next turn of the event loop, so that requests arriving at the same time join it.
            asyncio.get_running_loop().call_soon(self._submit_batch)

    def _submit_batch(self) -> None:
        self._is_scheduled = False
        batch, self._pending = self._pending[:_MAX_BATCH_HITS], self._pending[_MAX_BATCH_HITS:]
        self._in_flight += 1
        loop = asyncio.get_running_loop()
        self._thread.submit(self._process_batch, batch, loop).add_done_callback(_log_failure)

    def _resolve_batch(self, batch: list[_PendingHit], error: BaseException | None) -> None:
        """Complete the futures of a stored or failed batch: with the target, or with the error if it is unknown."""
        for pending in batch:
            if pending.timer is not None:
                pending.timer.cancel()
            if pending.future.done():
                continue
            if pending.is_known:
                pending.future.set_result(pending.target)
            else:
                pending.future.set_exception(error or StorageError("it cannot be read"))
        self._in_flight -= 1
        self._schedule_batch()

    def _handle_timeout(self, pending: _PendingHit) -> None:
        """Release the response of a hit that was not stored within MAX_WAIT_SECONDS."""
        if pending.future.done():
            return
        if pending.is_known:
            self._release(pending)
        else:
            # The hit is still waiting for its batch, so its target is looked up separately.
            loop = asyncio.get_running_loop()
            self._thread.submit(self._find_alone, pending, loop).add_done_callback(_log_failure)

    def _release(self, pending: _PendingHit) -> None:
        if not pending.future.done():
            self.early += 1
            self._schedule_log()
            pending.future.set_result(pending.target)

    def _fail(self, pending: _PendingHit, error: BaseException) -> None:
        if not pending.future.done():
            pending.future.set_exception(error)

    def _count_unrecorded(self, count: int) -> None:
        self.unrecorded += count
        self._schedule_log()

    def _schedule_log(self) -> None:
        if not self._is_log_scheduled:
            self._is_log_scheduled = True
            asyncio.get_running_loop().call_later(
                _LOG_INTERVAL_SECONDS if any(self._logged_counts) else 0, self._log_counts
            )

    def _log_counts(self) -> None:
        self._is_log_scheduled = False
        early, unrecorded = self.early - self._logged_counts[0], self.unrecorded - self._logged_counts[1]
        self._logged_counts = (self.early, self.unrecorded)
        log.warning("tracking: hits delayed early_responses=%s unrecorded=%s", early, unrecorded)

    # -- In the thread --------------------------------------------------------------------------------------------

    def _process_batch(self, batch: list[_PendingHit], loop: asyncio.AbstractEventLoop) -> None:
        """Look up the targets of a batch and hand its hits to the writer."""
        error: BaseException | None = None
        try:
            self._find_targets(batch)
            hits_to_write = [
                Hit(pending.hit_request, pending.target)
                for pending in batch
                if pending.target is not None and self._is_hit(pending)
            ]
            if hits_to_write:
                transactions.submit_record(hits.store_hits, hits_to_write).add_done_callback(
                    lambda done: self._finish_write(batch, hits_to_write, done, loop)
                )
                return
        except Exception as cause:
            error = to_storage_error(cause) or cause
            if not isinstance(error, Unavailable):
                log.exception("tracking: hit lookup failed")
        _call_on_loop(loop, self._resolve_batch, batch, error)

    def _find_targets(self, batch: list[_PendingHit]) -> None:
        targets = self._targets.resolve(pending.link for pending in batch)
        for pending in batch:
            target = targets.get(pending.link)
            if target is not None and pending.account_id not in (None, target.account_id):
                target = None
            pending.target, pending.is_known = target, True

    def _is_hit(self, pending: _PendingHit) -> bool:
        """Return whether a hit is to be stored.

        A hit is not stored if the link has no target, if the contact's tracking is `none`, or if the message has too
        many hits already.
        """
        target = pending.target
        if target is None or not hits.is_tracked(target) or (pending.link.number is not None and target.url is None):
            return False
        return self._limit.allows(target.message_id)

    def _find_alone(self, pending: _PendingHit, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._find_targets([pending])
        except Exception as error:
            _call_on_loop(loop, self._fail, pending, to_storage_error(error) or error)
        else:
            _call_on_loop(loop, self._release, pending)

    def _finish_write(
        self, batch: list[_PendingHit], hits_to_write: list[Hit], write: "Future[None]", loop: asyncio.AbstractEventLoop
    ) -> None:
        """Complete a batch after its write.

        If the storage is unavailable, all hits of the batch are lost and counted as unrecorded. After another error,
        the hits are written one by one, so that an invalid hit does not cause the loss of the others.
        """
        error = write.exception()
        if error is None:
            pass
        elif isinstance(error, Unavailable) or len(hits_to_write) == 1:
            if not isinstance(error, Unavailable):
                log.error("tracking: hit write failed", exc_info=error)
            _call_on_loop(loop, self._count_unrecorded, len(hits_to_write))
        else:
            log.warning("tracking: batch write failed error=%s", error)
            self._thread.submit(self._write_individually, batch, hits_to_write, loop).add_done_callback(_log_failure)
            return
        _call_on_loop(loop, self._resolve_batch, batch, error)

    def _write_individually(
        self, batch: list[_PendingHit], hits_to_write: list[Hit], loop: asyncio.AbstractEventLoop
    ) -> None:
        failed = 0
        for hit in hits_to_write:
            try:
                transactions.submit(hits.store_hits, [hit]).result()
            except Exception as error:
                failed += 1
                log.error("tracking: hit write failed", exc_info=error)
        if failed:
            _call_on_loop(loop, self._count_unrecorded, failed)
        _call_on_loop(loop, self._resolve_batch, batch, None)


def _call_on_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        log.debug("tracking: result dropped, the event loop is closed")


def _log_failure(write: "Future[None]") -> None:
    error = None if write.cancelled() else write.exception()
    if error is not None:
        log.error("tracking: batch failed", exc_info=error)


# The tracking pixel: a transparent GIF of one pixel.
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")
_PIXEL_SUFFIX = ".gif"
_MAX_AGENT_CHARACTERS, _MAX_REFERRER_CHARACTERS = 400, 500


def read_link(token: str) -> LinkRequest | None:
    """Return the message and link in the token of a path `/c/{token}`, or None if the token is invalid."""
    click = links.read_click_token(token)
    return None if click is None else LinkRequest(*click)


def read_pixel(token: str) -> LinkRequest | None:
    """Return the message in the token of a path `/o/{token}`, or None if the token is invalid."""
    message_id = links.read_open_token(token.removesuffix(_PIXEL_SUFFIX)) if token.endswith(_PIXEL_SUFFIX) else None
    return None if message_id is None else LinkRequest(message_id, None)


def redirect_response(url: str) -> HTTPResponse:
    """Return the redirect to the target of a link."""
    return HTTPResponse(None, 302, {**pages.PAGE_HEADERS, "Location": url}, content_type="text/plain")


def pixel_response() -> HTTPResponse:
    """Return the response with the tracking pixel."""
    return HTTPResponse(PIXEL, 200, pages.PAGE_HEADERS, content_type="image/gif")


def build_hit_request(link: LinkRequest, method: str, client: str, headers: Mapping[str, str]) -> HitRequest:
    """Return the data that is stored for a request for a link or pixel; `client` is the IP address."""
    is_prefetch = "prefetch" in (headers.get("sec-purpose") or headers.get("purpose") or "")
    agent, referrer = headers.get("user-agent"), headers.get("referer")
    return HitRequest(
        link.number,
        "PREFETCH" if is_prefetch else method,
        client,
        agent[:_MAX_AGENT_CHARACTERS] if agent else None,
        referrer[:_MAX_REFERRER_CHARACTERS] if referrer else None,
        clock.now_ms(),
    )


def get_recorder(context: Any) -> HitRecorder:
    """Return the hit recorder of this server process, whose `app.ctx` is `context`, creating it on first use."""
    if context.hit_recorder is None:
        context.hit_recorder = HitRecorder()
    recorder: HitRecorder = context.hit_recorder
    return recorder


async def follow_link(request: Request, token: str) -> HTTPResponse:
    """Record a click and redirect to the target of the link.

    The response is the page "not found" if the link is invalid or its merge tags cannot be filled in. It is the page
    for temporary failures if the target cannot be read, or if the account has used up its processor time for filling in
    links.
    """
    link, language = read_link(token), pages.detect_language(request)
    if link is None:
        return pages.not_found_page(language=language)
    try:
        target = await _record_hit(request, link)
    except Unavailable:
        return pages.unavailable_page(language)
    if target is not None and target.is_postponed:
        return pages.unavailable_page(language)
    if target is None or target.url is None:
        return pages.not_found_page(language=language)
    return redirect_response(target.url)


async def serve_pixel(request: Request, token: str) -> HTTPResponse:
    """Record an open and serve the tracking pixel, even if the open cannot be stored; 404 for an invalid token."""
    link = read_pixel(token)
    if link is None:
        return pages.not_found_page()
    try:
        await _record_hit(request, link)
    except Unavailable:
        get_recorder(request.app.ctx).unrecorded += 1
    return pixel_response()


async def _record_hit(request: Request, link: LinkRequest) -> TrackedMessage | None:
    hit_request = build_hit_request(link, request.method, request.ctx.client, request.headers)
    host = request.ctx.public_host
    return await get_recorder(request.app.ctx).record(link, hit_request, None if host is None else host.account_id)
