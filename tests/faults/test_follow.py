"""A machine that follows another one, and is killed alone: as by the kernel when memory is short."""

import os
import shutil
import signal
from pathlib import Path

from tests.conftest import FreshServer
from tests.kit.https_clients import wait_until
from tests.kit.litestream import PROGRAM, Litestream


def _find_processes(folder: Path) -> list[int]:
    """Return the ids of the processes whose command line names a folder."""
    ids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(folder) in path.read_bytes():
                ids.append(int(path.parent.name))
        except OSError:
            continue
    return ids


def test_no_litestream_goes_on_writing_after_a_kill(fresh_server: FreshServer, tmp_path: Path) -> None:
    """It would write to the copy while that is promoted, and to the database of the service after that."""
    first = fresh_server(start=False)
    first.env["CAMPANERO_LITESTREAM__SOCKET"] = str(tmp_path / "one" / "ls.sock")
    first.start()
    litestream = Litestream(first.data / "campanero.db", tmp_path / "one", "replica").start()
    second = fresh_server(start=False, set_up=False)
    try:
        second.data.mkdir(mode=0o700)
        shutil.copy(first.data / "secret.key", second.data)
        second.launch("follow", litestream.source, "--litestream", PROGRAM)
        second.wait_for_line("standby: ready")
        assert len(_find_processes(second.data / "standby")) == 1
        os.kill(second.pid, signal.SIGKILL)  # it alone, not its group
        second.wait_for_end()
        wait_until(lambda: not _find_processes(second.data / "standby"))
    finally:
        for process_id in _find_processes(second.data / "standby"):
            os.kill(process_id, signal.SIGKILL)
        litestream.close()
