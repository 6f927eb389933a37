"""Deletes expired rows every hour and at the start.

Rows are found outside the writer and deleted in chunks: each is a transaction of a few milliseconds, followed by a
pause of the same length for other writes. Events, webhooks and imports delete their own rows.

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
from appliance.audience import bulk_actions
from appliance.content import media
from appliance.core.errors import Unavailable
from appliance.forms import submissions
from appliance.imports import removal
from appliance.sending.messages import capture_inbox, retries
from appliance.storage import transactions
from appliance.webhooks import queue

log = logging.getLogger("campanero.housekeeping")
_DAY_SECONDS = 86_400


class Sweep(NamedTuple):
    """A kind of expired rows: its name for the log, the functions that find and delete them, and the chunk size."""

    what: str
    find: Callable[[int], list[int]]
    drop: Callable[[list[int]], int]
    most: int = 200


SWEEPS = (
    Sweep("answers kept for repeats", idempotency.find_expired, idempotency.delete_expired),
    Sweep("sign-ins that are over", sessions.find_expired, sessions.delete_expired),
    Sweep("texts of sign-ups", submissions.list_expired, submissions.clear_personal_data),
    Sweep("sign-ups", submissions.list_old, submissions.delete_confirmations),
    Sweep("parts of acts on many people", bulk_actions.find_expired_parts, bulk_actions.delete_parts, 20),
    Sweep("acts on many people", bulk_actions.find_expired, bulk_actions.delete),
    # A mail may have a hundred pages
    Sweep("messages of the built-in inbox", capture_inbox.list_expired, capture_inbox.delete, 20),
    Sweep("messages of an inbox that was emptied", capture_inbox.list_cleared, capture_inbox.delete, 20),
)
_working = threading.Lock()


def delete_expired(stopping: threading.Event) -> None:
    """Delete expired rows; one thread at a time, until the service stops."""
    if not _working.acquire(blocking=False):
        return
    try:
        for sweep in SWEEPS:
            if deleted_count := _sweep(sweep, stopping):
                log.info("housekeeping: deleted %d %s", deleted_count, sweep.what)
        _rooms()
    except Unavailable:
        if not transactions.is_stopped():
            raise
    finally:
        _working.release()


def _sweep(sweep: Sweep, stopping: threading.Event) -> int:
    deleted_count = 0
    while not stopping.is_set() and (ids := sweep.find(sweep.most)):
        started = time.perf_counter()
        batch_count = transactions.write(sweep.drop, ids)
        if not batch_count:
            # The query would return the same rows again; the next hourly run tries them again.
            break
        deleted_count += batch_count
        stopping.wait(time.perf_counter() - started)
    return deleted_count


def _rooms() -> None:
    """Remove temporary directories of uploads that a kill left behind."""
    for room in Path(tempfile.gettempdir()).glob(f"{media.UPLOAD_DIR_PREFIX}*"):
        try:
            found = room.lstat()
            if found.st_mtime < time.time() - _DAY_SECONDS and found.st_uid == Path("/proc/self").stat().st_uid:
                shutil.rmtree(room)
                log.info("housekeeping: removed a leftover upload path=%s", room)
        except OSError as error:
            log.debug("housekeeping: leftover upload path=%s cannot be removed: %s", room, error)


def prune_erased_and_finished() -> None:
    """Remove erased contacts from stored imports, and payloads and deliveries that are no longer needed."""
    removal.run_erasures()
    for sweeps in (retries.prune_payloads, queue.prune_deliveries):
        while transactions.write(sweeps):
            pass
