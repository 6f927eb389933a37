"""Delete expired rows, hourly and at the start.

Expired rows are found outside of the writer and deleted in batches. Each batch is a transaction of a few milliseconds,
followed by a pause of the same length, so that other writes are not delayed. The packages `events`, `webhooks` and
`imports` contain functions that delete their expired rows.

The database file does not shrink: deleted rows leave free pages, which later rows fill. `VACUUM` would block all writes
while it copies the whole file, and the next import would enlarge the file again. `ANALYZE` is not run either, because
each statement is written for its index, and statistics could change the query plan on a single machine.
"""

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from appliance.accounts import app_clients, app_grants, devices, invitations, request_limits, sessions
from appliance.audience import bulk_actions
from appliance.content import media
from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.flows import replays
from appliance.forms import submissions
from appliance.imports import erasing
from appliance.sending.messages import attachments, capture_inbox, restored_sends, retries, submitted
from appliance.settings import config
from appliance.storage import journal_compaction, transactions
from appliance.webhooks import queue

log = logging.getLogger("campanero.housekeeping")
_DAY_SECONDS = 86_400
_MAX_FILES = 50  # of a batch; each is deleted on the writer


class Sweep(NamedTuple):
    """A kind of expired rows.

    `description` names the rows in the log. `list_expired` returns the ids of at most the given number of rows.
    `delete` deletes the rows with the given ids in a write transaction and returns how many it deleted. `max_rows` is
    the size of a batch.
    """

    description: str
    list_expired: Callable[[int], list[int]]
    delete: Callable[[list[int]], int]
    max_rows: int = 200


SWEEPS = (
    Sweep("idempotency keys", request_limits.find_expired_keys, request_limits.delete_expired_keys),
    Sweep("expired sessions", sessions.find_expired, sessions.delete_expired),
    Sweep("devices that were not used for a year", devices.find_expired, devices.delete_expired),
    Sweep("expired tokens of apps", app_grants.find_expired_tokens, app_grants.delete_tokens),
    Sweep("expired codes of apps", app_grants.find_expired_codes, app_grants.delete_codes),
    Sweep("apps that nobody connected", app_clients.find_expired, app_clients.delete_expired),
    Sweep("expired invitations", invitations.find_expired, invitations.delete_expired),
    Sweep("personal data of old sign-ups", submissions.list_expired, submissions.clear_personal_data),
    Sweep("old sign-ups", submissions.list_deletable, submissions.delete_confirmations),
    Sweep("batches of bulk actions", bulk_actions.find_expired_parts, bulk_actions.delete_parts, 20),
    Sweep("bulk actions", bulk_actions.find_expired, bulk_actions.delete),
    Sweep("replays of flows", replays.list_expired, replays.delete, 20),
    # The batches are small, because a message may occupy a hundred database pages.
    Sweep("old messages of the built-in inbox", capture_inbox.list_expired, capture_inbox.delete, 20),
    Sweep("cleared messages of the built-in inbox", capture_inbox.list_cleared, capture_inbox.delete, 20),
    Sweep("references to old attached files", attachments.list_expired, attachments.expire),
    Sweep("old submitted emails", submitted.list_expired, submitted.delete, 20),
    Sweep("sent messages of a restore", restored_sends.list_expired, restored_sends.delete_rows),
)
_lock = threading.Lock()


def delete_expired(stopping: threading.Event) -> None:
    """Delete expired rows of each kind in `SWEEPS`, unneeded files, and old lines of the journal.

    Set `stopping` to end it after the current batch. Returns at once if another thread is already deleting expired
    rows.
    """
    if not _lock.acquire(blocking=False):
        return
    try:
        for sweep in SWEEPS:
            if deleted_count := _delete_in_batches(sweep, stopping):
                log.info("housekeeping: deleted %d %s", deleted_count, sweep.description)
        _remove_unreferenced_files(stopping)
        _remove_leftover_uploads()
        _compact_journal()
    except Unavailable:
        if not transactions.is_stopped():
            raise
    finally:
        _lock.release()


def _compact_journal() -> None:
    settings = config.current()
    sent_before = clock.now_ms() - settings.backup.journal_days * clock.DAY_MS
    try:
        journal_compaction.compact(Path(settings.data_dir), sent_before)
    except OSError as error:
        log.warning("housekeeping: old lines of the journal were not removed: %s", error.strerror or error)


def _delete_in_batches(sweep: Sweep, stopping: threading.Event) -> int:
    deleted_count = 0
    while not stopping.is_set() and (ids := sweep.list_expired(sweep.max_rows)):
        started = time.perf_counter()
        batch_count = transactions.write(sweep.delete, ids)
        if not batch_count:
            # None of these rows could be deleted, and the query would return them again; the next run tries again.
            break
        deleted_count += batch_count
        stopping.wait(time.perf_counter() - started)
    return deleted_count


def _remove_unreferenced_files(stopping: threading.Event) -> None:
    """Delete attached files that no message needs: of old or erased messages, and of requests of a killed process."""
    while not stopping.is_set() and (hashes := attachments.list_unreferenced(_MAX_FILES)):
        deleted_count = transactions.write(attachments.delete_unreferenced, hashes)
        log.info("housekeeping: deleted %d attached files", deleted_count)
        if deleted_count < len(hashes):
            break  # Running requests need the others.


def _remove_leftover_uploads() -> None:
    """Remove temporary upload directories that killed processes of the same user left more than a day ago."""
    for directory in Path(tempfile.gettempdir()).glob(f"{media.UPLOAD_DIR_PREFIX}*"):
        try:
            status = directory.lstat()
            if status.st_mtime < time.time() - _DAY_SECONDS and status.st_uid == Path("/proc/self").stat().st_uid:
                shutil.rmtree(directory)
                log.info("housekeeping: removed a leftover upload path=%s", directory)
        except OSError as error:
            log.debug("housekeeping: leftover upload path=%s cannot be removed: %s", directory, error)


def prune_erased_and_finished() -> None:
    """Remove erased contacts from stored imports, then delete unneeded message payloads and webhook deliveries."""
    erasing.run_erasures()
    for delete_batch in (retries.prune_payloads, queue.prune_deliveries):
        while transactions.write(delete_batch):
            pass
