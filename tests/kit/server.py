"""The real appliance as a process: start, stop, kill and restart it on the same data."""

import atexit
import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Self

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.failing_dns import failing_dns_address
from tests.kit.fork_server import Child, fork_server

ROOT = Path(__file__).resolve().parents[2]
READY = re.compile(r"is ready on (https?://\S+)")
SETUP = re.compile(r"(https?://\S+/setup/\S+)")
_PORTS = range(12_000, 32_000)
RATES = ("REQUESTS", "MESSAGES", "SENDS", "RENDERS")
EMAIL, PASSWORD = "owner@example.com", "correct horse battery"
_prepared_directories: dict[
    tuple[str, str, str], tuple[Path, str]
] = {}  # (email, password, account) -> data directory that was set up, API key


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now.

    It is below the ports from which the kernel takes those of connections, so that none takes it before it is used.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def relay_settings(port: int) -> dict[str, str]:
    """Return the environment of a server whose relay is an SMTP server of a test, with quick retries."""
    return {
        "CAMPANERO_EMAIL__TRANSPORT": "relay",
        "CAMPANERO_EMAIL__RELAY__HOST": "127.0.0.1",
        "CAMPANERO_EMAIL__RELAY__PORT": str(port),
        "CAMPANERO_EMAIL__RELAY__TLS": "none",
        "CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true",
        "CAMPANERO_EMAIL__RETRY_AFTER": "1,1,1",
        "CAMPANERO_EMAIL__REPLY_TIMEOUT": "5s",
        "CAMPANERO_EMAIL__CONNECTIONS": "4",
    }


class Server:
    """A data directory and the processes on it; use it as a context manager, or call `start()` and `close()`."""

    def __init__(
        self,
        *,
        relay: int | None = None,
        env: dict[str, str] | None = None,
        config: str | None = None,
        clock: TestClock | None = None,
        executable: Path | None = None,
        data: Path | None = None,
        module: str = "appliance",
        cold: bool = False,
    ):
        self.home = Path(tempfile.mkdtemp(prefix="campanero-test-"))
        self.data = data or self.home / "data"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key: str | None = None
        self.executable, self.module = executable, module
        # Whether to run the real command instead of forking (`fork_server`)
        self._cold = cold or executable is not None or module != "appliance"
        self._has_default_setup = executable is None and config is None and (clock is None or clock.offset == 0)
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | Child | None = None
        self._pumps: list[threading.Thread] = []
        self._output_changed = threading.Condition()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("CAMPANERO_")}
        self.env |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        # Without bytecode files each start would compile the whole program again, which takes a second
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)
        # Every look-up fails at once: a test that needs DNS sets the address of its own DnsServer
        self.env |= {"CAMPANERO_NETWORK__DNS_SERVERS": failing_dns_address()}
        # No rate limits, because tests send many requests; tests of the limits set them
        self.env |= dict.fromkeys((f"CAMPANERO_LIMITS__{name}_PER_MINUTE" for name in RATES), "0")
        # No automatic backups, because tests that move the clock by days would start many; tests of backups set it
        self.env |= {"CAMPANERO_BACKUP__EVERY": "0s"}
        self.env |= relay_settings(relay) if relay else {}
        self.env |= {"CAMPANERO_TEST_CLOCK": str(clock.path)} if clock else {}
        self.env |= env or {}
        self._config: list[str] = []
        if config is not None:
            (self.home / "campanero.toml").write_text(config, encoding="utf-8")
            self._config = ["--config", str(self.home / "campanero.toml")]

    # -- the process ----------------------------------------------------------------------------------------------

    def _arguments(self, *arguments: str) -> list[str]:
        return [*arguments, "--data", str(self.data), *self._config]

    def _command(self, *arguments: str) -> list[str]:
        program = [str(self.executable)] if self.executable else [sys.executable, "-P", "-m", self.module]
        return [*program, *self._arguments(*arguments)]

    def start(self, *options: str, timeout: float = 60) -> Self:
        """Run `serve` and return when it is ready."""
        self.launch("serve", "--listen", f"127.0.0.1:{self.port}", *options)
        self.wait_for_line(READY, timeout)
        return self

    def launch(self, *arguments: str) -> None:
        """Run a command that goes on until it is stopped, such as `follow`, in place of `serve`."""
        if self.process is not None:
            raise AssertionError("this server is running already")
        self.lines = []
        self.process = self.begin(*arguments)
        streams = (self.process.stdout, self.process.stderr)
        self._pumps = [threading.Thread(target=self._pump, args=(stream,), daemon=True) for stream in streams]
        for pump in self._pumps:
            pump.start()

    def begin(self, *arguments: str) -> "subprocess.Popen[str] | Child":
        """Start a command on this data directory and return its process, which has a session and pipes of its own."""
        # A new session, so that a kill also reaches the child process of the executable.
        return subprocess.Popen(
            self._command(*arguments), env=self.env, cwd=self.home, text=True, errors="replace", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) if self._cold else fork_server().start(self._arguments(*arguments), self.env, self.home)  # fmt: skip

    def _pump(self, stream: IO[str]) -> None:
        for line in stream:
            with self._output_changed:
                self.lines.append(line.rstrip("\n"))
                self._output_changed.notify_all()
        stream.close()
        with self._output_changed:
            self._output_changed.notify_all()

    def wait_for_line(self, pattern: str | re.Pattern[str], timeout: float = 30) -> re.Match[str]:
        """Wait for a line of output (stdout or stderr) that matches, and return the match."""
        end = time.monotonic() + timeout
        with self._output_changed:
            while True:
                match = next((m for line in self.lines if (m := re.search(pattern, line))), None)
                if match:
                    return match
                gone = self.process is None or not any(pump.is_alive() for pump in self._pumps)
                if gone or time.monotonic() > end:
                    why = "ended" if gone else f"did not say it within {timeout} s"
                    raise AssertionError(f"no line like {pattern!r}: the server {why}; it said:\n{self.output}")
                self._output_changed.wait(0.1)

    @property
    def output(self) -> str:
        """Return all output of the process since its start."""
        return "\n".join(self.lines)

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        if self.process is None:
            raise AssertionError("the server is not running")
        return self.process.pid

    @property
    def setup_link(self) -> str:
        """Return the one-time link that a server without a user prints."""
        return self.wait_for_line(SETUP)[1]

    def stop(self, *, expect: int | None = 0, timeout: float = 40, sign: signal.Signals = signal.SIGTERM) -> int:
        """Stop the process and return its exit code, which must be `expect` (None: any)."""
        process = self._running()
        process.send_signal(sign)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running {timeout} s after {sign.name}; it said:\n{self.output}") from None
        self._join_pumps()
        if expect is not None and code != expect:
            raise AssertionError(f"exit code {code}, not {expect}; it said:\n{self.output}")
        return code

    def wait_for_end(self, timeout: float = 30) -> int:
        """Wait until the process has ended by itself, and return its exit code."""
        code = self._running().wait(timeout)
        self._join_pumps()
        return code

    def kill(self) -> None:
        """Kill the process with SIGKILL, as a power cut would, without a chance to clean up."""
        process = self._running()
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._join_pumps()

    def restart(self, *options: str, timeout: float = 60) -> Self:
        """Start again on the same data and port; a running process is stopped first."""
        if self.process is not None:
            self.stop()
        return self.start(*options, timeout=timeout)

    def _running(self) -> "subprocess.Popen[str] | Child":
        if self.process is None:
            raise AssertionError("the server is not running")
        return self.process

    def _join_pumps(self) -> None:
        for pump in self._pumps:
            pump.join(5)
        self.process = None

    def close(self) -> None:
        """End the processes that still run, and remove the directories."""
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start() if self.process is None else self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the command line -----------------------------------------------------------------------------------------

    def cli(self, *arguments: str, stdin: str = "", expect: int | None = 0, timeout: float = 60) -> "Completed":
        """Run a command on this data directory; its exit code must be `expect` (None: any)."""
        if self._cold:
            process = subprocess.run(
                self._command(*arguments), input=stdin, env=self.env, cwd=self.home, text=True, capture_output=True,
                timeout=timeout,
            )  # fmt: skip
        else:
            process = fork_server().run(self._arguments(*arguments), self.env, self.home, stdin, timeout)
        if expect is not None and process.returncode != expect:
            raise AssertionError(
                f"{arguments}: exit code {process.returncode}, not {expect}\n{process.stdout}\n{process.stderr}"
            )
        return process

    def set_up(self, email: str = EMAIL, password: str = PASSWORD, account: str = "Bakery") -> Self:
        """Create the account, its owner and a key with full scope, stored in `key`.

        A data directory that was set up before with the same arguments is copied, which saves two processes for each
        server.
        """
        owner = (email, password, account)
        if not self._has_default_setup or self.data.exists():
            self.key = self._set_up(*owner)
            return self
        if owner not in _prepared_directories:
            self.key = self._set_up(*owner)
            copy = Path(tempfile.mkdtemp(prefix="campanero-test-"))
            atexit.register(shutil.rmtree, copy, ignore_errors=True)
            shutil.copytree(self.data, copy / "data")
            _prepared_directories[owner] = copy / "data", self.key
            return self
        data, self.key = _prepared_directories[owner]
        shutil.copytree(data, self.data)
        return self

    def _set_up(self, email: str, password: str, account: str) -> str:
        self.cli("setup", "--email", email, "--name", account, stdin=f"{password}\n")
        return self.new_key()

    def new_key(self, name: str = "test", *options: str) -> str:
        """Create an API key on the command line and return it; `options` such as `--scope` or `--test`."""
        return self.cli("key", "create", name, *options).stdout.strip()

    def set_postal_address(self) -> Self:
        """Set the postal address of the brand, which sending requires; the server must run."""
        self.client().put("/brand", {"company_name": "Bakery", "physical_address": "1 Mill Lane, Bath"}).expect(200)
        return self

    def client(self, key: str | None = None, **options: bool) -> Client:
        """Return a client with this API key, by default that of `set_up()`."""
        return Client(self.url, key or self.key, **options)


Completed = subprocess.CompletedProcess[str]
