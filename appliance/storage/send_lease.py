"""The permission of this process to send, if a lease in a store gives it to one machine at a time (`[lease]`).

`ops/fencing` renews the lease and sets the state here; senders only read it. Without a lease everything is permitted.

The time is that of the boot clock, which no correction of the system clock changes and which goes on while the machine
is suspended. A message may leave only after the store knows that it may: the ids of messages are reserved in blocks, so
that another machine, which continues from a copy of the database that is some seconds old, knows which messages may
have left since (docs/promises.md#p3).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

# Ids of messages are reserved in blocks of this many. A larger block means fewer requests to the store in a send, and
# more messages that a person has to decide about after the loss of the machine.
BLOCK_IDS = 256
_WAIT_SECONDS = 15.0
_NOT_RENEWED = "the lease could not be renewed in time: its storage does not answer"


def now() -> float:
    """Return the seconds since the boot of the machine, including those in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _State:
    """The permission that the keeper of the lease last set; without a lease nothing is restricted."""

    def __init__(self) -> None:
        self.is_required = False
        self.until = 0.0  # on the clock of `now`
        self.reason = ""  # why the lease is not held, for people
        self.blocks: frozenset[int] = frozenset()  # reserved in the store
        self.touched: dict[int, float] = {}  # when a message of a block was last read from the queue
        self.wanted: dict[int, list[Future[bool]]] = {}  # blocks that are not reserved yet
        self.wake: Callable[[], None] = lambda: None
        self.lock = threading.Lock()


_state = _State()


def require(reason: str, wake: Callable[[], None]) -> None:
    """Permit nothing until `extend` is called; users are shown the reason. `wake` is called if blocks are wanted."""
    _state.is_required, _state.reason, _state.wake = True, reason, wake


def disregard() -> None:
    """Permit everything again, because no lease is configured."""
    _state.is_required = False


def extend(until: float, blocks: Iterable[int]) -> None:
    """Permit sending the messages of the reserved `blocks` until a time on the clock of `now`."""
    _state.blocks = frozenset(blocks)
    _state.until, _state.reason = until, _NOT_RENEWED  # unless another reason comes before the end
    with _state.lock:
        for block in _state.blocks & _state.wanted.keys():
            for future in _state.wanted.pop(block):
                _resolve(future, True)


def lose(reason: str) -> None:
    """Permit nothing from now on; users are shown the reason."""
    _state.until, _state.reason = 0.0, reason
    with _state.lock:
        waiting = [future for futures in _state.wanted.values() for future in futures]
        _state.wanted.clear()
    for future in waiting:
        _resolve(future, False)


def _resolve(future: "Future[bool]", value: bool) -> None:
    if future.set_running_or_notify_cancel():
        future.set_result(value)


def explain(reason: str) -> None:
    """Set the reason that is shown once the lease has ended."""
    _state.reason = reason


def is_held() -> bool:
    """Return whether messages and requests may leave this machine now."""
    return not _state.is_required or now() < _state.until


def find_blocker() -> str | None:
    """Return why the lease does not permit sending, or None if it does."""
    return None if is_held() else _state.reason


def is_reserved(message_id: int) -> bool:
    """Return whether the block of this message is reserved in the store; True if no lease is configured."""
    return not _state.is_required or message_id // BLOCK_IDS in _state.blocks


def list_wanted() -> set[int]:
    """Return the numbers of the blocks that senders wait for, to be reserved in the store."""
    with _state.lock:
        return set(_state.wanted)


def list_used(seconds: float) -> set[int]:
    """Return the blocks of which a sender read a message in the last `seconds`, reserved or not; forget the others.

    The forgotten blocks count as not reserved, because the caller is about to remove them from the store too.
    """
    since = now() - seconds
    with _state.lock:
        _state.touched = {block: at for block, at in _state.touched.items() if at >= since}
        _state.blocks &= _state.touched.keys()
        return set(_state.touched)


def touch(blocks: Iterable[int]) -> None:
    """Record that senders have read messages of these blocks from the queue now."""
    with _state.lock:
        _state.touched.update(dict.fromkeys(blocks, now()))


async def reserve(message_ids: Iterable[int]) -> bool:
    """Wait until the blocks of these messages are reserved in the store; return whether they are.

    Returns True at once if no lease is configured or the blocks are reserved, and False if the lease is not held.
    """
    if not _state.is_required:
        return True
    blocks = {message_id // BLOCK_IDS for message_id in message_ids}
    touch(blocks)
    if not is_held():
        return False
    waiting = []
    with _state.lock:
        for block in blocks - _state.blocks:
            future: Future[bool] = Future()
            _state.wanted.setdefault(block, []).append(future)
            waiting.append(asyncio.wrap_future(future))
    if not waiting:
        return True
    _state.wake()
    done, late = await asyncio.wait(waiting, timeout=_WAIT_SECONDS)
    return not late and all(future.result() for future in done)
