"""Takes away what nobody needs any more, every hour and at the start: so there is never much of it.

Rows go by the bite: which ones is found beside the writer, and each bite is a transaction of a few milliseconds, after
which others have as long a turn. What has an end of its own is dropped by whoever owns it (events, webhooks, imports).

The database file is not made smaller. What is deleted leaves pages that the next rows fill, so the file is as large as
it once had to be; to give them back would copy the whole file while everybody waits, and be undone by the next import.
Nor are statistics gathered (`ANALYZE`): each statement is written for its index, and no plan changes on one machine
alone because of them.
"""

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from appliance.accounts import idempotency, sessions
from appliance.audience.contacts import bulk_actions
from appliance.content import media
from appliance.core.errors import Unavailable
from appliance.forms import accept
from appliance.imports import erase_rows
from appliance.sending.messages import capture_inbox, retry_bytes
from appliance.storage import work
from appliance.webhooks import fanout

log = logging.getLogger("campanero.housekeeping")
_DAY_SECONDS = 86_400


class Sweep(NamedTuple):
    """One kind of rows: what they are, how some are found, how these are dropped, and how many at once."""

    what: str
    find: Callable[[int], list[int]]
    drop: Callable[[list[int]], int]
    most: int = 200


SWEEPS = (
    Sweep("answers kept for repeats", idempotency.old, idempotency.forget),
    Sweep("sign-ins that are over", sessions.old, sessions.forget),
    Sweep("texts of sign-ups", accept.expired, accept.blank),
    Sweep("sign-ups", accept.old, accept.forget),
    Sweep("parts of acts on many people", bulk_actions.old_parts, bulk_actions.forget_parts, 20),
    Sweep("acts on many people", bulk_actions.old, bulk_actions.forget),
    # A mail may have a hundred pages
    Sweep("messages of the built-in inbox", capture_inbox.old, capture_inbox.forget, 20),
    Sweep("messages of an inbox that was emptied", capture_inbox.emptied, capture_inbox.forget, 20),
)
_working = threading.Lock()


def tend(stopping: threading.Event) -> None:
    """Take away what is over; one thread at a time, and no longer than the service runs."""
    if not _working.acquire(blocking=False):
        return
    try:
        for one in SWEEPS:
            if gone := _sweep(one, stopping):
                log.info("%d %s were no longer needed", gone, one.what)
        _rooms()
    except Unavailable:
        if not work.is_stopped():
            raise
    finally:
        _working.release()


def _sweep(one: Sweep, stopping: threading.Event) -> int:
    gone = 0
    while not stopping.is_set() and (found := one.find(one.most)):
        begun = time.perf_counter()
        done = work.write(one.drop, found)
        if not done:
            # Whoever found them keeps finding them: the next hour will tell
            break
        gone += done
        stopping.wait(time.perf_counter() - begun)
    return gone


def _rooms() -> None:
    """Remove what an upload left in the directory for temporary files, where the service was killed in the middle."""
    for room in Path(tempfile.gettempdir()).glob(f"{media.ROOM}*"):
        try:
            found = room.lstat()
            if found.st_mtime < time.time() - _DAY_SECONDS and found.st_uid == Path("/proc/self").stat().st_uid:
                shutil.rmtree(room)
                log.info("%s was left by an upload and is removed", room)
        except OSError as error:
            log.debug("%s stays: %s", room, error)


def forget_what_is_over() -> None:
    """Take erased people out of what imports keep, and drop what is kept of messages that never go again."""
    erase_rows.tend()
    for sweeps in (retry_bytes.sweep, fanout.remove_old):
        while work.write(sweeps):
            pass
