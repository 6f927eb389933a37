"""The baselines for sending: Postfix's `smtp-sink` and `smtp-source`, and threads of `smtplib`."""

import os
import resource
import shutil
import smtplib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.kit.server import free_port

FROM, TO = "news@example.org", "person1@example.org"


class Cost(NamedTuple):
    """The cost of a run."""

    messages: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cpu_of_1000(self) -> float:
        """Processor seconds of 1,000 messages."""
        return self.cpu / self.messages * 1000


class Postfix:
    """The two tools, installed or unpacked from Debian's package (`apt-get download postfix`)."""

    def __init__(self, unpacked: Path | None) -> None:
        self._env = dict(os.environ)
        self._at = ""
        if unpacked is not None:
            self._at = f"{unpacked}/usr/sbin/"
            self._env["LD_LIBRARY_PATH"] = f"{unpacked}/usr/lib/postfix"
        elif shutil.which("smtp-sink") is None:
            raise SystemExit("smtp-sink is not here: install postfix, or unpack its package and give --postfix DIR")

    @contextmanager
    def sink(self) -> Iterator[int]:
        """Run `smtp-sink` and yield its port."""
        port = free_port()
        command = [
            f"{self._at}smtp-sink",
            "-u",
            "root" if os.getuid() == 0 else os.environ["USER"],
            f"127.0.0.1:{port}",
        ]
        process = subprocess.Popen([*command, "1000"], env=self._env)
        try:
            _wait(port)
            yield port
        finally:
            process.terminate()
            process.wait(10)

    def source(self, port: int, connections: int, messages: int, mail: Path) -> Cost:
        """Send the same bytes repeatedly, several messages per connection, with `smtp-source -d`."""
        command = [f"{self._at}smtp-source", "-d", "-s", str(connections), "-m", str(messages), "-F", str(mail)]
        before, begin = _children(), time.perf_counter()
        subprocess.run([*command, "-f", FROM, "-t", TO, f"127.0.0.1:{port}"], env=self._env, check=True)
        return Cost(messages, time.perf_counter() - begin, _children() - before)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait(port: int) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            smtplib.SMTP("127.0.0.1", port, timeout=1).quit()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def ready_made(port: int, connections: int, messages: int, mail: Path) -> Cost:
    """Send the same bytes with threads of `smtplib`, in a separate process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.bench_sending_rivals",
        str(port),
        str(connections),
        str(messages),
        str(mail),
    ]
    before, begin = _children(), time.perf_counter()
    subprocess.run(command, check=True)
    return Cost(messages, time.perf_counter() - begin, _children() - before)


def main() -> None:
    """Run as that separate process."""
    port, connections, messages = map(int, sys.argv[1:4])
    mail = Path(sys.argv[4]).read_bytes()

    def send(count: int) -> None:
        with smtplib.SMTP("127.0.0.1", port) as smtp:
            for _ in range(count):
                smtp.sendmail(FROM, TO, mail)

    threads = [threading.Thread(target=send, args=(messages // connections,)) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
