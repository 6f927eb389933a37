"""Renders messages in one thread and signs them in others.

An RSA signature takes longer than all the rest and releases the interpreter lock, so the next messages are rendered
while some are signed.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import apsw
import peewee

from appliance.content.designs.merge import MergeError
from appliance.core.errors import Later, Permanent, SenderRefused
from appliance.sending.messages import retry_bytes
from appliance.sending.messages.ledger import Claim, Outcome, Prepared
from appliance.sending.messages.prepare import Draft, Workshop

# Fair shares in rendering: the account that used the least processor time is next, however many others wait.


class FairShares:
    """The processor time that each account used for rendering, in seconds; used by one thread.

    Who comes back after a rest begins where those who worked meanwhile stand: a rest earns nothing, and what somebody
    used before others came is not held against them for ever.
    """

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        self._floor = 0.0

    def enter(self, accounts: Collection[int]) -> None:
        """Take in the accounts that have something to render now."""
        self._used = {
            account: used for account, used in self._used.items() if account in accounts or used > self._floor
        }
        for account in accounts:
            self._used[account] = self.used(account)

    def used(self, account: int) -> float:
        """Return where an account stands."""
        return max(self._used.get(account, 0.0), self._floor)

    def next(self, accounts: Collection[int]) -> int:
        """Return the account whose turn it is."""
        account = min(accounts, key=self.used)
        self._floor = self.used(account)
        return account

    def charge(self, account: int, seconds: float) -> None:
        """Count what a turn took."""
        self._used[account] = self.used(account) + seconds


log = logging.getLogger("campanero.sender")
_SIGNERS = 3
# What one thread signs before another looks at it
_TOGETHER = 4
# A turn of one account ends after this, however few messages were made in it
_TURN_SECONDS = 0.02
# A message that could not be read from the database is tried again after this
_READ_AGAIN_SECONDS = 30.0


class RenderedMessage(NamedTuple):
    """A message that can be handed over, or that cannot be made: then `fault` is what became of it."""

    claim: Claim
    prepared: Prepared | None
    fault: Outcome | None = None
    since: float = 0.0

    @property
    def sender(self) -> str:
        """The address it is from, if it could be made."""
        return self.prepared.sender if self.prepared is not None else ""


_Half = tuple[Claim, Draft | Outcome]


class Renderer:
    """Makes messages, for one thread at a time."""

    def __init__(self) -> None:
        self._workshop = Workshop()
        self._signers = ThreadPoolExecutor(_SIGNERS, thread_name_prefix="signer")
        self.shares = FairShares()

    def forget(self) -> None:
        """Make what comes next from what is true now."""
        self._workshop = Workshop()

    def make(self, claims: Sequence[Claim], seconds: float = math.inf) -> list[RenderedMessage]:
        """Make messages; one that cannot be made says why. After so many seconds the others are left.

        Accounts take turns by the processor time that theirs take, so that nobody waits for the templates of another.
        """
        workshop, shares = self._workshop, self.shares
        until = time.monotonic() + seconds
        waiting: dict[int, deque[Claim]] = {}
        sources: dict[tuple[int | None, ...], list[Claim]] = {}
        for claim in claims:
            waiting.setdefault(claim.account_id, deque()).append(claim)
            sources.setdefault(_source(claim), []).append(claim)
        workshop.begin()
        shares.enter(waiting)
        signed: list[Future[list[RenderedMessage]] | list[RenderedMessage]] = []
        while waiting and (not signed or time.monotonic() < until):
            account_id = shares.next(waiting)
            queue, began = waiting[account_id], time.thread_time()
            some: list[_Half] = []
            while queue and len(some) < _TOGETHER and (not some or time.thread_time() - began < _TURN_SECONDS):
                claim = queue.popleft()
                workshop.fetch(sources.pop(_source(claim), ()))
                some.append((claim, _draft(workshop, claim)))
            shares.charge(account_id, time.thread_time() - began)
            if not queue:
                del waiting[account_id]
            in_a_thread = sum(isinstance(half, Draft) and bool(half.signers) for _, half in some) > 1
            signed.append(self._signers.submit(_finished, some) if in_a_thread else _finished(some))
        return [*_all(signed)]

    def close(self) -> None:
        """End the threads."""
        self._signers.shutdown()


def _source(claim: Claim) -> tuple[int | None, ...]:
    """Return what claims share that are read together: a source is compiled when its first message is made."""
    return claim.account_id, claim.campaign_id, claim.flow_id, claim.step_id


def _all(signed: list["Future[list[RenderedMessage]] | list[RenderedMessage]"]) -> Iterator[RenderedMessage]:
    for some in signed:
        yield from some.result() if isinstance(some, Future) else some


def _draft(workshop: Workshop, claim: Claim) -> Draft | Outcome:
    try:
        kept = retry_bytes.load(claim.id) if claim.doubts else None
        return Draft(kept) if kept is not None else workshop.draft(claim)
    except SenderRefused as refused:
        # Nobody's fault who gets it: it waits, and where it goes on like this the campaign pauses with these words
        return Outcome(claim, SenderRefused(refused.text))
    except (apsw.Error, peewee.DatabaseError) as fault:
        # Ours too, and it may pass
        log.error("message %s cannot be read: %s", claim.id, fault)
        return Outcome(claim, Later("the database could not be read", _READ_AGAIN_SECONDS))
    except (MergeError, ValueError) as fault:
        return _unmade(claim, fault.words() if isinstance(fault, MergeError) else str(fault))
    except Exception as fault:
        return _failed(claim, fault)


def _finished(some: list[_Half]) -> list[RenderedMessage]:
    """Sign what can be signed."""
    return [_unready(claim, half) if isinstance(half, Outcome) else _signed(claim, half) for claim, half in some]


def _unready(claim: Claim, fault: Outcome) -> RenderedMessage:
    # Its mark says that there are no bytes: a process that dies now leaves no doubt
    return RenderedMessage(claim._replace(digest=None), None, fault)


def _signed(claim: Claim, draft: Draft) -> RenderedMessage:
    try:
        prepared = draft.signed()
    except Exception as fault:
        return _unready(claim, _failed(claim, fault))
    return RenderedMessage(claim._replace(digest=retry_bytes.digest(prepared)), prepared)


def _failed(claim: Claim, fault: Exception) -> Outcome:
    """Return what becomes of a message that a fault of ours is in; whatever it is, the others go out."""
    log.error("message %s cannot be made", claim.id, exc_info=fault)
    return _unmade(claim, f"{type(fault).__name__}: {fault}")


def _unmade(claim: Claim, words: str) -> Outcome:
    return Outcome(claim, Permanent(words), skip_reason="render_error")
