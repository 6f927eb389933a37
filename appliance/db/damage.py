"""Notices damage of the database while it is used, whoever comes upon it, and says when it is proved whole again."""

import contextlib
import logging
import os
import threading
import time
from typing import Any

import apsw
import peewee

from appliance.db import disk_guard
from appliance.db.dialect import catalogue
from appliance.db.open import close_database, connection

log = logging.getLogger("campanero.storage")
_CODES = (apsw.SQLITE_CORRUPT, apsw.SQLITE_NOTADB)
_MAX_FAULTS = 3
# Once it was suspected it is looked through again, but not for more than a twentieth of the time
MIN_REST_SECONDS = 60.0
_REST_FACTOR = 20


class DamageWatch:
    """A thread that looks through the database once at the start, and whenever SQLite came upon damage in it.

    From the first sign of damage on the storage counts as damaged (`storage.damaged`), until all of it is proved whole.
    """

    def __init__(self) -> None:
        self._due, self._ending = threading.Event(), threading.Event()
        self._connection: Any = None
        self._thread = threading.Thread(target=self._run, name="database check", daemon=True)

    def start(self) -> None:
        """Begin to listen, and look through the database beside everything else."""
        # SQLite reports each damaged page it meets here, also where nobody tells of the error
        apsw.config(apsw.SQLITE_CONFIG_LOG, self._heard)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, also in the middle of a look."""
        self._ending.set()
        self._due.set()
        while self._thread.is_alive():
            here = self._connection
            if here is not None:
                with contextlib.suppress(apsw.ConnectionClosedError):
                    here.interrupt()
            self._thread.join(0.05)

    def _heard(self, code: int, message: str) -> None:
        # Called inside of SQLite: it may not be asked anything here
        if code & 0xFF in _CODES:
            if disk_guard.damage() is None:
                disk_guard.damaged("the database is damaged: see campanero doctor")
            self._due.set()

    def _run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not self._ending.is_set():
            is_suspected = self._due.is_set()
            self._due.clear()
            begun = time.monotonic()
            faults = self._faults(is_suspected)
            if self._ending.is_set():
                return
            if faults or is_suspected:
                words = f"the database is damaged ({'; '.join(faults)}): see campanero doctor" if faults else None
                disk_guard.damaged(words)
                disk_guard.look()
                self._ending.wait(max(MIN_REST_SECONDS, _REST_FACTOR * (time.monotonic() - begun)))
            if faults:
                self._due.set()  # until it is proved whole
            self._due.wait()

    def _faults(self, is_suspected: bool) -> list[str]:
        """Look through all of the database, its indexes too if something is wrong somewhere."""
        try:
            self._connection = connection()
            look = catalogue.thorough_damage if is_suspected else catalogue.damage
            return look(_MAX_FAULTS)
        except apsw.InterruptError:
            return []
        except (apsw.Error, peewee.PeeweeException) as error:
            if disk_guard.is_damage(error):
                return [str(error)]
            log.warning("storage: database check failed: %s", error)
            return []
        finally:
            self._connection = None
            close_database()
