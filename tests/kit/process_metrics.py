"""The resources of a process at one moment: memory, files, threads, and the size of its directories."""

import time
from pathlib import Path
from typing import NamedTuple

from tests.kit.server import Server


class ProcessMetrics(NamedTuple):
    """One measurement of a server. Sizes are in bytes; `memory` is the RSS, `temporary` a number of files."""

    memory: int
    anonymous_memory: int
    handles: int
    threads: int
    temporary: int
    log: int
    database: int


def measure(server: Server, temporary: Path) -> ProcessMetrics:
    """Measure a running server whose temporary files are in the directory `temporary`."""
    process = Path(f"/proc/{server.pid}")
    fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    resident, anonymous = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon"))
    wal = server.data / "campanero.db-wal"
    return ProcessMetrics(
        resident, anonymous, len(list((process / "fd").iterdir())), int(fields["Threads"]),
        sum(1 for _ in temporary.rglob("*")), wal.stat().st_size if wal.exists() else 0,
        (server.data / "campanero.db").stat().st_size,
    )  # fmt: skip


def list_process_tree(pid: int) -> list[int]:
    """Return the id of a process and those of its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        child_pids = [int(child_pid) for task in Path(f"/proc/{pid}/task").iterdir()
                 for child_pid in (task / "children").read_text().split()]  # fmt: skip
    except OSError:
        return [pid] if children.exists() else []
    return [pid, *(child_pid for child in child_pids for child_pid in list_process_tree(child))]


def runs_command(pid: int, word: str) -> bool:
    """Return whether a process, which may have ended, is a child process of a service that runs the command `word`."""
    process = Path(f"/proc/{pid}")
    try:
        # A forked one (`fork_server.py`) has the command as its name
        return word.encode() in (process / "cmdline").read_bytes().split(b"\0") or (
            (process / "comm").read_text().strip() == word
        )
    except OSError:
        return False


def wait_until_ended(pid: int) -> bool:
    """Return whether a process, which need not be a child, ends within 20 seconds; a zombie counts as ended."""
    stat, deadline = Path(f"/proc/{pid}/stat"), time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def format_table(days: list[ProcessMetrics]) -> str:
    """Return the measurements as a text table with a row for each day."""
    names = ("day", "RSS MB", "own MB", "handles", "threads", "temp", "WAL MB", "db MB")
    form = "{:>8}" * len(names)
    lines = [form.format(*names)]
    for day, vitals in enumerate(days):
        sizes = [f"{size / 1e6:.1f}" for size in (vitals.memory, vitals.anonymous_memory, vitals.log, vitals.database)]
        lines.append(form.format(day, *sizes[:2], vitals.handles, vitals.threads, vitals.temporary, *sizes[2:]))
    return "\n".join(lines)
