"""Keep a copy of another machine's database up to date with `litestream restore -f`.

Litestream applies each change of the replica within a second of its arrival. It cannot always continue with a copy
after it was stopped. So each start restores into a new folder, and the former copy is kept until the new one is
complete.
"""

import logging
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

from appliance.core import clock, crypto
from appliance.ops import stores
from appliance.ops.fencing.mirror import MirrorReader
from appliance.ops.standby import place
from appliance.ops.standby.place import StandbyFailed
from appliance.ops.stores.base import StoreError
from appliance.settings import config
from appliance.storage import migrations

log = logging.getLogger("campanero.standby")
_INTERVAL = "500ms"
_RETRY_SECONDS = 5.0
_FILES_SECONDS = 5.0
_STATUS_SECONDS = 30.0
_STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
# A heartbeat older than this is reported as late; the followed machine writes it every five seconds.
LATE_SECONDS = 30.0


class Follower:
    """Runs Litestream until `stop` is called, and restarts it when it ends."""

    def __init__(self, directory: Path, source: str, program: str) -> None:
        self._directory, self._source, self._program = directory, source, program
        self._stopping = threading.Event()
        self._reader = _open_reader(directory)
        self._files_error = ""
        self._child: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """Ask `run` to end; a signal handler may call this."""
        self._stopping.set()

    def run(self) -> None:
        """Follow until `stop` is called, and fetch the last files then: a promotion may have called it."""
        restores = place.iterate_next_restore(self._directory)
        files = threading.Thread(target=self._fetch_files, name="files", daemon=True)
        files.start()
        while not self._stopping.is_set():
            former = place.list_restores(self._directory)
            place.remove_restores([restore for restore in former if not place.is_complete(restore)])
            restore = next(restores)
            try:
                self._follow(restore)
            finally:
                self._end_child()
            if not self._stopping.wait(_RETRY_SECONDS):
                log.warning("standby: Litestream is started again source=%s", self._source)
        files.join(_STOP_SECONDS)

    def _follow(self, restore: Path) -> None:
        """Run Litestream into a folder until it ends or `stop` is called."""
        database = restore / place.DATABASE
        arguments = [self._program, "restore", "-f", "-follow-interval", _INTERVAL, "-o", str(database)]
        arguments.append(build_url(self._source))
        self._child = subprocess.Popen(  # noqa: S603  the operator names the program and the source
            arguments, env=build_environment(), stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent()
        )
        was_complete, reported_at = False, 0.0
        while self._child.poll() is None and not self._stopping.wait(0.2):
            if not was_complete and place.is_complete(restore):
                was_complete = True
                _check_key(self._directory, database)
                others = [other for other in place.list_restores(self._directory) if other != restore]
                place.remove_restores(others)
                log.warning("standby: ready; following source=%s", self._source)
            if was_complete and time.monotonic() > reported_at + _STATUS_SECONDS:
                reported_at = time.monotonic()
                log.info("standby: %s", describe_lag(database))
        if self._child.poll() is not None and not self._stopping.is_set():
            log.error("standby: Litestream ended status=%s", self._child.returncode)

    def _fetch_files(self) -> None:
        """Fetch the files beside the database repeatedly, and a last time once `stop` is called."""
        is_last = self._reader is None
        while not is_last and self._reader is not None:
            is_last, text = self._stopping.wait(_FILES_SECONDS), ""
            try:
                self._reader.fetch()
            except (StoreError, OSError) as error:
                text = str(error)
            except Exception:
                # The thread must continue; what it cannot fetch now, it may fetch later.
                log.exception("standby: fetching files failed")
            if text != self._files_error:
                self._files_error = text
                log.warning("standby: files are %s", f"not fetched: {text}" if text else "fetched again")

    def _end_child(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


def _end_with_parent() -> Callable[[], None]:
    """Return a function that makes the kernel end a child process with this one, also after `kill -9`.

    Otherwise Litestream would go on writing to a copy that is promoted meanwhile, and so to the database of the
    service. Call it, and start the child, on the main thread: the kernel also ends the child with the thread.
    """
    import ctypes  # only this command needs it

    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # the parent ended before prctl

    return prepare


def _open_reader(directory: Path) -> MirrorReader | None:
    """Return a reader of the files beside the database, or None without a lease store. Raises StandbyFailed."""
    settings = config.current()
    if not settings.lease.store:
        return None
    try:
        store = stores.open_store(settings.lease.store, settings.copies)
    except StoreError as error:
        raise StandbyFailed(f"lease.store: {error}") from None
    return MirrorReader(store, directory / place.FOLDER / place.FILES)


def _check_key(directory: Path, database: Path) -> None:
    """Log an error if the key in a data directory is not the key of a copied database."""
    try:
        fingerprint = migrations.inspect_database(database).key_fingerprint
        if fingerprint is not None:
            crypto.check_key(fingerprint, directory / crypto.KEY_FILE)
    except (crypto.WrongKey, migrations.UnusableDatabase) as error:
        log.error("standby: %s", error)


def find_litestream(program: str | None) -> str:
    """Return the path of the program Litestream. Raises StandbyFailed if it is not installed."""
    path = shutil.which(program or "litestream")
    if path is None:
        raise StandbyFailed("Litestream is not installed: see the guide, A second machine that is ready")
    return path


def build_url(source: str) -> str:
    """Return the URL of a replica for Litestream; for a bucket with the endpoint and region of `copies.s3`."""
    parts, s3 = urlsplit(source), config.current().copies.s3
    if parts.scheme != "s3" or parts.query or not s3.endpoint:
        return source
    return f"{source}?endpoint={quote(s3.endpoint, safe=':/')}&region={s3.region}&forcePathStyle=true"


def build_environment() -> dict[str, str]:
    """Return the environment variables for Litestream: those of this process, and the credentials of `copies.s3`."""
    s3, environment = config.current().copies.s3, dict(os.environ)
    if s3.access_key_id:
        environment |= {
            "LITESTREAM_ACCESS_KEY_ID": s3.access_key_id, "LITESTREAM_SECRET_ACCESS_KEY": s3.secret_access_key,
        }  # fmt: skip
    return environment


def measure_lag(database: Path) -> float | None:
    """Return the seconds since the last heartbeat of the followed machine that has arrived, or None if there is none.

    This includes the time since that heartbeat was written, up to five seconds, and the difference of the clocks.
    """
    heartbeat = place.read_heartbeat(database)
    return max(0.0, (clock.now_ms() - heartbeat) / 1000) if heartbeat is not None else None


def describe_lag(database: Path) -> str:
    """Return a line that says how far the copy is behind."""
    lag = measure_lag(database)
    number = f"transaction {place.read_transaction(database)}"
    return f"{number}, state of the other machine unknown" if lag is None else f"{number}, {lag:.1f} s behind"
