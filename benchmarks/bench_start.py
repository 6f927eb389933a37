"""Measures the start: `python -m benchmarks.bench_start [--executable dist/campanero]`; not a test, run by hand.

From the command to the first 200 of /healthz, on data that is set up and with everything in the file cache, and the
processor time of all its processes until then: median of seven starts, whatever is measured in turns. Goals, of the
executable: 1 s on two cores, 2 s on a quarter of one. That needs a control group of our own; where there may be none,
the processor time says it: a quarter of a core gives half a second of it in two.

Meanwhile the processors turn over for nothing: the host of a virtual machine takes one that rests away and is slow to
give it back, which makes a start on a quarter of a core two to three times as long as it is.
"""

import argparse
import contextlib
import http.client
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.kit.server import EMAIL, PASSWORD, ROOT, free_port
from tests.kit.timeouts import cpu_seconds, report_stolen_cpu_at_exit

_WITHIN = 120.0
_PERIOD = 100_000  # microseconds, the usual one
_TURN_OVER = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"


class Program:
    """A way to run the appliance, with a data directory of its own."""

    def __init__(self, name: str, command: list[str], home: Path, path: Path | None = None) -> None:
        self.name, self.command, self.data = name, command, home / "data"
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("CAMPANERO_", "PYTHON"))}
        self.env |= {"PYTHONPATH": str(path)} if path else {}
        words = ["setup", "--data", str(self.data), "--email", EMAIL]
        subprocess.run([*command, *words], env=self.env, input=f"{PASSWORD}\n", text=True, check=True)

    def start(self, group: Path | None) -> tuple[float, float]:
        """Start once, optionally in a control group; return the seconds to the first response and of the processors.

        The output is discarded, so that the process never waits for a reader.
        """
        port = free_port()
        command = [*self.command, "serve", "--data", str(self.data), "--listen", f"127.0.0.1:{port}"]
        if group:
            command = ["sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh", *command]
        started_at = time.monotonic()
        process = subprocess.Popen(
            command, env=self.env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > started_at + _WITHIN:
                    raise AssertionError(f"{self.name} does not start: {' '.join(command)}")
                time.sleep(0.002)
            took = time.monotonic() - started_at
            return took, sum(map(cpu_seconds, _family(process.pid)))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _answers(port: int) -> bool:
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=_WITHIN)
    try:
        asking.request("GET", "/healthz")
        return asking.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()


def _family(pid: int) -> list[int]:
    """Return the process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(descendant for child in children for descendant in _family(int(child)))]


@contextlib.contextmanager
def share(of_one_core: float) -> Iterator[Path | None]:
    """Create a control group (version 1 or 2) with a share of one core, or return None if that is not allowed."""
    new, old = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")
    group = (old if old.is_dir() else new) / f"campanero-bench-{os.getpid()}"
    quota = int(_PERIOD * of_one_core)
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        if old.is_dir():
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            with contextlib.suppress(OSError):
                (new / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
        usable = True
    except OSError:
        usable = False
    try:
        yield group if usable else None
    finally:
        group.rmdir()


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """Keep the processors busy with processes of the lowest priority."""
    turning = [subprocess.Popen([sys.executable, "-c", _TURN_OVER]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for thread in turning:
            thread.kill()
            thread.wait()


def measure(programs: list[Program], starts: int, group: Path | None, goal: float) -> None:
    """Start the programs in turns and print the medians."""
    took: dict[str, list[tuple[float, float]]] = {program.name: [] for program in programs}
    for turn in range(starts + 1):
        for program in programs:
            figures = program.start(group)
            if turn:  # the first one warms up
                took[program.name].append(figures)
    for name, all_found in took.items():
        waited, used = ([thread[which] for thread in all_found] for which in (0, 1))
        print(
            f"  {statistics.median(waited):5.2f} s ({min(waited):.2f} to {max(waited):.2f}), processor "
            f"{statistics.median(used):.2f} s ({min(used):.2f} to {max(used):.2f})  {name} (goal {goal:.0f} s)",
            flush=True,
        )


def main() -> None:
    """Print how long a start takes with all cores and with a quarter of one."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executable", type=Path, action="append", default=[], help="a built file, or several")
    parser.add_argument("--source", type=Path, action="append", default=[], help="another clone beside this one")
    parser.add_argument("--starts", type=int, default=7)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, median of {options.starts}")
    with tempfile.TemporaryDirectory(prefix="campanero-bench-") as home, share(0.25) as group, awake():
        python = [sys.executable, "-P", "-m", "appliance"]
        programs = [
            Program(str(path), python, Path(home) / str(number), path)
            for number, path in enumerate([ROOT, *options.source])
        ] + [
            Program(str(file), [str(file.resolve())], Path(home) / f"file{number}")
            for number, file in enumerate(options.executable)
        ]
        print("all cores:")
        measure(programs, options.starts, None, 1)
        if group is None:
            print("a quarter of one: no control group may be made here; four times the processor time is what it takes")
            return
        print("a quarter of one core:")
        measure(programs, options.starts, group, 2)


if __name__ == "__main__":
    main()
