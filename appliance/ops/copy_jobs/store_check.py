"""The test of a store before its settings are saved: a small object is written, read and deleted."""

import asyncio
import hashlib
import io
import secrets
import threading
from contextlib import closing, suppress

from appliance.ops.stores import open_store
from appliance.ops.stores.base import (
    Conflict,
    Damaged,
    Missing,
    NotSupported,
    Refused,
    StoreError,
    StoreFull,
    Unreachable,
)
from appliance.settings.copies import Copies

_PREFIX = "test"
# A server that accepts a connection and sends nothing blocks a test for longer than a user waits for its result.
_MAX_RUNNING = 3
_running = threading.BoundedSemaphore(_MAX_RUNNING)
_CODES: tuple[tuple[type[StoreError], str], ...] = (
    (Unreachable, "unreachable"), (Refused, "refused"), (StoreFull, "store_full"), (Missing, "missing"),
    (Damaged, "damaged"), (Conflict, "conflict"), (NotSupported, "not_supported"),
)  # fmt: skip


def check_store(copies: Copies) -> None:
    """Write, read and delete a small object in the store. Raises StoreError with the reason that the store gave."""
    content, key = secrets.token_bytes(32), f"{_PREFIX}/{secrets.token_hex(8)}"
    with closing(open_store(copies.store, copies)) as store:
        store.put(key, io.BytesIO(content), len(content), hashlib.sha256(content).digest())
        try:
            with store.open(key) as stream:
                if stream.read(len(content) + 1) != content:
                    raise Damaged("the storage did not return the content that it was given")
        finally:
            store.delete(key)


async def check_in_thread(copies: Copies) -> None:
    """Run `check_store` on a thread of its own, so that a test that hangs takes no thread from other requests.

    If this coroutine is cancelled, the test continues. Raises StoreError, also if `_MAX_RUNNING` tests are still
    running.
    """
    if not _running.acquire(blocking=False):
        raise Unreachable("earlier tests of the storage have not ended yet")
    loop = asyncio.get_running_loop()
    result = loop.create_future()

    def finish(error: Exception | None) -> None:
        if result.done():
            return  # Nobody waits any more.
        if error is None:
            result.set_result(None)
        else:
            result.set_exception(error)

    def run() -> None:
        failure: Exception | None = None
        try:
            check_store(copies)
        except Exception as error:
            failure = error
        finally:
            _running.release()
        with suppress(RuntimeError):  # The service has ended.
            loop.call_soon_threadsafe(finish, failure)

    threading.Thread(target=run, name="store-test", daemon=True).start()
    await result


def name_error(error: StoreError) -> str:
    """Return the code of a StoreError: `unreachable`, `refused`, `store_full`, `missing` and others."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), "store")
