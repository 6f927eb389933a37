"""Brings the write-ahead log home in small portions, so that it stays short and is written over again and again.

A log that grows costs several times as much to sync as one that is written over: the file system has to note its size.
It begins anew only when all of it is home and nobody writes. So most of it is brought home beside the writer, and what
was written meanwhile, which is little, on the writer's own thread.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

import apsw
import peewee

from appliance.db.disk_guard import StorageError
from appliance.db.open import checkpoint, close_database

log = logging.getLogger("campanero.writer")
# Pages in the log; 8 MB
_MAX_PAGES = 2_000
_AGAIN_SECONDS = 1.0


class LogKeeper:
    """Watches the log of one writer; `between` runs a function on the writer's thread, outside of transactions."""

    def __init__(self, between: Callable[[Callable[[], None]], None]) -> None:
        self._between = between
        self._due, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="log keeper", daemon=True)
        self._thread.start()

    def watch(self, writing_connection: Any) -> None:
        """Be told of every commit; SQLite's own checkpoint within some of them is off from here on."""
        writing_connection.set_wal_hook(self._written)

    def _written(self, connection: Any, name: str, pages: int) -> int:
        if pages >= _MAX_PAGES:
            self._due.set()
        return 0

    def _run(self) -> None:
        while not self._ending.is_set():
            self._due.wait()
            self._due.clear()
            if self._ending.is_set():
                break
            try:
                checkpoint()
                self._between(checkpoint)
            except (apsw.Error, peewee.PeeweeException, StorageError) as error:
                # Nothing is lost by a long log; where the disk is in trouble the writer says so
                log.debug("the log stays as it is: %s", error)
                self._ending.wait(_AGAIN_SECONDS)
            except Exception:
                # Without this thread the log would grow for ever
                log.exception("the log stays as it is")
                self._ending.wait(_AGAIN_SECONDS)
        close_database()

    def close(self) -> None:
        """End the thread."""
        self._ending.set()
        self._due.set()
        self._thread.join()
