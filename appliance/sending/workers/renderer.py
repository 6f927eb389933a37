"""Render and sign messages in turns, so that accounts share the thread that renders.

Messages are rendered on the event loop of the workers, a few at a time: a separate thread would compete with it for
the interpreter lock. An RSA signature takes longer than all other work on a message and releases that lock, so messages
are signed in other threads while the next ones are rendered. Content whose HTML is sanitized in the child process
(`designs.sanitizer`) is compiled in another thread, too, because that may take seconds.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import apsw
import msgspec
import peewee

from appliance.content.designs.merge_limits import MergeError
from appliance.core.errors import Postponed, RecipientRejected, SenderRejected, Unavailable
from appliance.core.limited_process import FairShares, charge_account, forbid_waiting
from appliance.sending.messages import compose, retries
from appliance.sending.messages.compose import MessageSource, NotCompiled
from appliance.sending.messages.ledger import LedgerRow, Outcome, OutgoingMessage
from appliance.sending.messages.prepare import MessagePreparer, UnsignedMessage

log = logging.getLogger("campanero.sender")
# RSA releases the interpreter lock, so signatures do not delay rendering. Measured in docs/decisions.md#19.
_SIGNER_THREADS = 3
# Messages that are rendered in one turn, and then signed together in one thread.
_MAX_TURN_MESSAGES = 8
# A turn of one account ends after this time, even if few messages were rendered.
_TURN_SECONDS = 0.02
# Delay before a message that could not be read from the database is tried again.
_READ_RETRY_SECONDS = 30.0
# Delay before messages are tried again whose content cannot be compiled, because the child process does not run.
_COMPILE_RETRY_SECONDS = 10.0


class RenderedMessage(NamedTuple):
    """A message that can be sent, or a message that could not be rendered.

    If it could not be rendered, `prepared` is None, and `failure` is its outcome. `rendered_at` is in seconds of
    `time.monotonic`.
    """

    row: LedgerRow
    prepared: OutgoingMessage | None
    failure: Outcome | None
    rendered_at: float

    @property
    def sender(self) -> str:
        """Return the sender address or number, or an empty string if the message could not be rendered."""
        return self.prepared.sender if self.prepared is not None else ""


# A row with its rendered message, or with its outcome if it could not be rendered.
_Draft = tuple[LedgerRow, UnsignedMessage | Outcome]


class Renderer:
    """A renderer and signer of messages; used by one thread at a time."""

    def __init__(self) -> None:
        self._preparer = MessagePreparer()
        self._signers = ThreadPoolExecutor(_SIGNER_THREADS, thread_name_prefix="signer")
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="compiler")
        # The account and duration of each compilation that is not charged yet; `shares` is only used by one thread.
        self._compile_seconds: deque[tuple[int, float]] = deque()
        # The messages left out by the last `render_turns`, by the content that has to be compiled first.
        self.uncompiled: dict[MessageSource, list[LedgerRow]] = {}
        self.shares = FairShares()

    def reset(self) -> None:
        """Drop all cached content, so that the next messages are rendered from the current state of the database."""
        self._preparer = MessagePreparer()

    def render_turns(
        self, candidates: Sequence[LedgerRow], seconds: float
    ) -> Iterator["Future[list[RenderedMessage]]"]:
        """Render messages in turns of up to `_MAX_TURN_MESSAGES`; yield a future of the signed messages of each turn.

        A message that cannot be rendered has its `failure` set. After `seconds`, no further turn begins, so messages
        may be missing. Messages whose content has to be compiled in the other thread are missing too, and are in
        `uncompiled` afterwards. Accounts take turns by the processor time that they used, so that a slow template of
        one account does not delay the others.
        """
        preparer, shares = self._preparer, self.shares
        until = time.monotonic() + seconds
        while self._compile_seconds:
            shares.charge(*self._compile_seconds.popleft())
        waiting: dict[int, deque[LedgerRow]] = {}
        rows_by_content: dict[tuple[int | None, ...], list[LedgerRow]] = {}
        for row in candidates:
            waiting.setdefault(row.account_id, deque()).append(row)
            rows_by_content.setdefault(_get_content_key(row), []).append(row)
        preparer.clear_cache()
        uncompiled = self.uncompiled = {}
        is_first = True
        while waiting and (is_first or time.monotonic() < until):
            is_first = False
            account_id = shares.next(waiting)
            queue, started_at = waiting[account_id], time.thread_time()
            drafts: list[_Draft] = []
            turn_end = time.monotonic() + _TURN_SECONDS
            with forbid_waiting():
                while queue and len(drafts) < _MAX_TURN_MESSAGES and (not drafts or time.monotonic() < turn_end):
                    row = queue.popleft()
                    if rows_by_content:
                        preparer.prefetch(rows_by_content.pop(_get_content_key(row), ()))
                    try:
                        drafts.append((row, _build(preparer, row)))
                    except NotCompiled as error:
                        uncompiled.setdefault(error.source, []).extend((row, *_remove_similar(queue, row)))
            shares.charge(account_id, time.thread_time() - started_at)
            if not queue:
                del waiting[account_id]
            if sum(isinstance(draft, UnsignedMessage) and bool(draft.signers) for _, draft in drafts) > 1:
                turn = self._signers.submit(_sign_turn, drafts)
            else:  # a thread would cost more than the signature
                turn = Future()
                turn.set_result(_sign_turn(drafts))
            yield turn

    def compile_first(self) -> "Future[list[RenderedMessage]]":
        """Compile the first content of `uncompiled`; return a future of its messages that have to wait longer.

        The other messages can be rendered once the future is done. Only one piece of content is compiled at a time, so
        that a message of another account does not wait for many.
        """
        content, messages = next(iter(self.uncompiled.items()))
        return self._compiler.submit(self._compile, content, messages)

    def _compile(self, content: MessageSource, messages: list[LedgerRow]) -> list[RenderedMessage]:
        """Compile content for later calls of `render_turns`; return its messages if they have to wait longer."""
        started_at = time.monotonic()
        try:
            with charge_account(messages[0].account_id):
                compose.try_compile(content)
        except Unavailable as error:
            # The recipients are not at fault, and the computer may be less busy then.
            log.warning("renderer: compiling the content of message %s failed: %s", messages[0].id, error)
            postponed = Postponed("its content could not be compiled", _COMPILE_RETRY_SECONDS)
            return _sign_turn([(row, Outcome(row, postponed)) for row in messages])
        except Exception as error:
            failure = _handle_exception(messages[0], error)  # logged once for all
            return _sign_turn([(row, msgspec.structs.replace(failure, row=row)) for row in messages])
        finally:
            self._compile_seconds.append((messages[0].account_id, time.monotonic() - started_at))
        return []

    def close(self) -> None:
        """Wait until the signing threads have ended; no messages may be rendered afterwards."""
        # The service ends the child process, for which the thread may wait, when it stops.
        self._compiler.shutdown(wait=False, cancel_futures=True)
        self._signers.shutdown()


def _get_content_key(row: LedgerRow) -> tuple[int | None, ...]:
    """Return the key of the messages that share content: account, campaign, flow and step.

    Shared content is compiled when the first message with its key is rendered.
    """
    return row.account_id, row.campaign_id, row.flow_id, row.step_id


def _remove_similar(queue: deque[LedgerRow], row: LedgerRow) -> list[LedgerRow]:
    """Remove and return the messages that share the content of `row`, because each of them would read it again."""
    key = _get_content_key(row)
    similar = [] if row.is_single else [other for other in queue if _get_content_key(other) == key]
    if similar:
        others = [other for other in queue if _get_content_key(other) != key]
        queue.clear()
        queue.extend(others)
    return similar


def _build(preparer: MessagePreparer, row: LedgerRow) -> UnsignedMessage | Outcome:
    """Return the rendered message of a row, or its failure. Raises NotCompiled."""
    try:
        stored = retries.load_payload(row.id) if row.uncertain_count else None
        if stored is not None:
            return UnsignedMessage(stored)
        return preparer.build(row)
    except NotCompiled:
        raise
    except SenderRejected as error:
        # The recipient is not at fault: the message is tried again, and after repeated errors its campaign is paused.
        # The outcome gets a new error, because the traceback of this one would keep all rendered content in memory.
        return Outcome(row, SenderRejected(error.text))
    except (apsw.Error, peewee.DatabaseError) as error:
        # The recipient is not at fault, and the error may be temporary.
        log.error("renderer: reading message %s failed: %s", row.id, error)
        return Outcome(row, Postponed("the database could not be read", _READ_RETRY_SECONDS))
    except (MergeError, ValueError) as error:
        return _build_render_error(row, error.describe() if isinstance(error, MergeError) else str(error))
    except Exception as error:
        return _handle_exception(row, error)


def _sign_turn(drafts: list[_Draft]) -> list[RenderedMessage]:
    """Sign a turn of messages, and return them in the same order, with those that could not be rendered."""
    return [_sign(row, draft) for row, draft in drafts]


def _sign(row: LedgerRow, draft: UnsignedMessage | Outcome) -> RenderedMessage:
    if not isinstance(draft, Outcome):
        try:
            prepared = draft.sign()
            row = row.with_body_hash(retries.hash_body(prepared))
            return RenderedMessage(row, prepared, None, time.monotonic())
        except Exception as error:
            draft = _handle_exception(row, error)
    # Without a body hash, the message does not become uncertain if the process dies.
    return RenderedMessage(row.with_body_hash(None), None, draft, time.monotonic())


def _handle_exception(row: LedgerRow, error: Exception) -> Outcome:
    """Log an internal error of rendering, and return it as the outcome of the message."""
    log.error("renderer: rendering message %s failed", row.id, exc_info=error)
    return _build_render_error(row, f"{type(error).__name__}: {error}")


def _build_render_error(row: LedgerRow, text: str) -> Outcome:
    return Outcome(row, RecipientRejected(text), skip_reason="render_error")
