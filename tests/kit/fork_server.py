"""Start the appliance by forking a parent that has imported its modules, compiled templates and mounted its routes.

That takes 2.7 s of a processor, which is nearly the whole cost of a server in a test. A child runs the same `main()` as
the command, in its own session, with its own environment, working directory and pipes. Only modules that read the
environment while they are imported would behave differently; `Server(cold=True)` starts the real command instead.

The child processes of a service are forked too: from a process that each service forks before it starts, and whose
children end with the service.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO, Any

from argon2 import PasswordHasher
from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket
from sanic import Sanic
from sanic.application.state import ApplicationServerInfo
from sanic.http.constants import HTTP
from sanic.touchup import TouchUp

_MAX_BYTES = 1_000_000  # the largest request: arguments and environment
DOCUMENT_FILE = "openapi.json"
LIST_ROUTES = "list-routes"  # the command that prints the name, path and methods of each route of the service, as JSON
# The environment variable with the bytes by which the address space of a child may grow
MEMORY_VARIABLE = "_CAMPANERO_TEST_MEMORY"
# The child processes of a service that are forked. Pictures are decoded by a program, which is not often needed and has
# libraries that nothing else has.
_FORKED_WORKERS = ("rehearse", "replay-flow", "copy-child", "read-import", "sanitize-html", "doctor", "backup")
# The environment of a service that starts programs, for tests of their memory
REAL_CHILDREN = {"_CAMPANERO_TEST_CHILDREN": "real"}
# The environment of a service whose commits wait for the disk, for tests that look at its system calls. Tests end
# processes, but do not cut the power, and waiting for the disk would take a third of their time.
SYNCED = {"_CAMPANERO_TEST_SYNC": "yes"}
_PR_SET_NAME = 15


class Child:
    """A forked process with the part of `subprocess.Popen` that tests need."""

    def __init__(self, pid: int, ended: IO[str], stdout: IO[Any], stderr: IO[Any]) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._ended, self._lock = ended, threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raises `subprocess.TimeoutExpired`."""
        with self._lock:
            if self.returncode is None:
                poller = select.poll()  # a service may have more descriptors open than `select` takes
                poller.register(self._ended, select.POLLIN)
                if not poller.poll(None if timeout is None else timeout * 1000):
                    raise subprocess.TimeoutExpired("campanero", timeout or 0)
                self.returncode = int(self._ended.read())
                self._ended.close()
            return self.returncode

    def send_signal(self, sign: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, sign)


class Forker:
    """The connection to a process that forks."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._request_lock = connection, threading.Lock()

    def start(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Child:
        """Start the command line with these arguments; its output can be read while it runs."""
        (out, child_out), (err, child_err) = os.pipe(), os.pipe()
        with Path(os.devnull).open() as devnull:
            pid, ended = self._fork(command, env, cwd, [devnull.fileno(), child_out, child_err])
        os.close(child_out)
        os.close(child_err)
        return Child(pid, ended, os.fdopen(out, errors="replace"), os.fdopen(err, errors="replace"))

    def run(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, stdin: str, timeout: float
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command line to its end. Raises `subprocess.TimeoutExpired`."""
        with ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
            files[0].write(stdin)
            files[0].seek(0)
            child = Child(*self._fork(command, env, cwd, [file.fileno() for file in files]), files[1], files[2])
            try:
                code = child.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                raise
            output = []
            for file in files[1:]:
                file.seek(0)
                output.append(file.read())
        return subprocess.CompletedProcess(list(command), code, *output)

    def _fork(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, streams: Sequence[int]
    ) -> tuple[int, IO[str]]:
        read_end, write_end = os.pipe()
        request = json.dumps([list(command), dict(env), str(cwd)]).encode()
        try:
            with self._request_lock:
                socket.send_fds(self._socket, [request], [write_end, *streams])
                pid = int(self._socket.recv(64))
        except (OSError, ValueError) as error:
            raise AssertionError("the fork server has ended; see its stderr") from error
        finally:
            os.close(write_end)
        return pid, os.fdopen(read_end)


def _open_connection() -> tuple[socket.socket, socket.socket]:
    """Return the ends of a connection: that of the process that asks, and that of the process that forks."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class ForkServer(Forker):
    """The parent process that forks; each test process has one."""

    def __init__(self) -> None:
        connection, child_socket = _open_connection()
        super().__init__(connection)
        self._directory = tempfile.mkdtemp(prefix="campanero-test-")
        root = str(Path(__file__).resolve().parents[2])
        command = [sys.executable, "-P", "-m", "tests.kit.fork_server", str(child_socket.fileno()), self._directory]
        self._process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": root}, pass_fds=[child_socket.fileno()], stdin=subprocess.DEVNULL
        )
        child_socket.close()
        atexit.register(self.close)

    def close(self) -> None:
        """End the parent; its children continue."""
        self._socket.close()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def read_openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of the service, once the process is prepared."""
        self.run([LIST_ROUTES], {}, Path.cwd(), "", 120)
        document: dict[str, Any] = json.loads(Path(self._directory, DOCUMENT_FILE).read_text(encoding="utf-8"))
        return document


@cache
def fork_server() -> ForkServer:
    """Return the fork server of this test process; it ends with the test process."""
    return ForkServer()


# -- what runs in the parent ------------------------------------------------------------------------------------------


def _run_child(arguments: list[str], env: dict[str, str], cwd: str, streams: list[int]) -> None:
    """Run the appliance in a child, which ends as `main()` does."""
    from appliance.core.executable import PARENT_VARIABLE
    from appliance.storage.database import PRAGMAS

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if arguments == [LIST_ROUTES]:
        routes = importlib.import_module("appliance.http.server").mount_routes().router.routes
        print(json.dumps([(route.name, f"/{route.path}", sorted(route.methods)) for route in routes]))
        _exit(0)
    if MEMORY_VARIABLE in env:
        limit = _measure_address_space() + int(env.pop(MEMORY_VARIABLE))
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if "PYTEST_VERSION" in env and SYNCED.items() - env.items():  # benchmarks have no such variable
        PRAGMAS["synchronous"] = 0
    is_worker = PARENT_VARIABLE in env
    if is_worker:  # the process with whose end it ends
        env[PARENT_VARIABLE] = str(os.getppid())
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["campanero", *arguments]
    if "CAMPANERO_TEST_CATALOGUES" in env:
        _forget_languages()
    if is_worker:
        _prepare_worker(arguments[0])
    if arguments[0] in ("serve", "rehearse", "replay-flow") and REAL_CHILDREN.items() - env.items():
        _fork_workers()
    try:
        importlib.import_module("appliance.__main__").main()
    except SystemExit as end:
        if isinstance(end.code, int):
            _exit(end.code)
        raise


def _forget_languages() -> None:
    """Forget what was built for all languages, because this process has further ones."""
    from appliance.content.templates import placeholders

    placeholders.load_known_texts.cache_clear()


class ForkedProgram(subprocess.Popen[Any]):
    """A child process of a service, which is forked instead of started; the child of another process (`forker`)."""

    forker: Forker

    def _execute_child(self, args: list[str], executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any,
                       env: Any, startupinfo: Any, flags: Any, shell: Any, *rest: Any) -> None:  # fmt: skip
        pipes = rest[:6]
        given = zip((pipes[0], pipes[3], pipes[5]), range(3), strict=True)
        streams = [stream if stream != -1 else standard for stream, standard in given]
        words = args[args.index("appliance") + 1 :]
        pid, ended = self.forker._fork(words, env, Path.cwd(), streams)
        self._child = Child(pid, ended, sys.stdout, sys.stderr)
        self.pid = pid
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # a private method of the library

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and hasattr(self, "_child"):
            self.returncode = self._child.poll()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            self.returncode = self._child.wait(timeout)
        return self.returncode


class _Subprocess:
    """The part of the module `subprocess` that `executable` needs, with `ForkedProgram` for the usual children."""

    DEVNULL, PIPE, TimeoutExpired = subprocess.DEVNULL, subprocess.PIPE, subprocess.TimeoutExpired

    @staticmethod
    def Popen(command: list[str], **options: Any) -> "subprocess.Popen[Any]":
        is_forked = command[command.index("appliance") + 1] in _FORKED_WORKERS
        return (ForkedProgram if is_forked else subprocess.Popen)(command, **options)


def _fork_workers() -> None:
    """Make this process fork its child processes instead of starting programs. It must not have a thread yet."""
    from appliance.core import executable

    connection, listener = _open_connection()
    if os.fork() == 0:
        connection.close()
        with Path(os.devnull).open("r+b") as devnull:
            for stream in range(3):  # so that those of the service end with it
                os.dup2(devnull.fileno(), stream)
        _serve(listener, new_sessions=False)
        os._exit(0)
    listener.close()
    ForkedProgram.forker = Forker(connection)
    executable.subprocess = _Subprocess  # type: ignore[assignment]  # it has what that module uses


def _prepare_worker(word: str) -> None:
    """Name this child process after its command, as `/proc/PID/comm` has it, and allow for the memory that it shares.

    Its address space begins with what it shares with the service, where a program would begin with little.
    """
    from appliance.core import limited_process

    ctypes.CDLL(None).prctl(_PR_SET_NAME, word.encode())
    limit, shared_bytes = limited_process._limit_process, _measure_address_space()
    limited_process._limit_process = lambda max_bytes: limit(max_bytes + shared_bytes)


def _measure_address_space() -> int:
    """Return the bytes of the address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _exit(code: int) -> None:
    """Exit as the interpreter does, but leave the memory to the kernel.

    Freeing each object would first copy nearly all memory that the child shares with its parent, which takes as long as
    a start. Returns without exiting if the output cannot be written.
    """
    threading._shutdown()  # waits for threads, as the interpreter does first
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(listener: socket.socket, *, new_sessions: bool = True) -> None:
    """Fork for each request and report the end of each child, until the socket closes."""
    ended: dict[int, int] = {}
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    while True:
        ready, _, _ = select.select([listener, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            _reap(ended)
        if listener not in ready:
            continue
        request, files, _, _ = socket.recv_fds(listener, _MAX_BYTES, 4)
        if not request:
            return None
        session_read, session_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            # Before its id is known, so that its group can be killed at once
            if new_sessions:
                os.setsid()
            os.close(session_read)
            os.close(session_write)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (listener.detach(), wake_read, wake_write, files[0], *ended.values()):
                os.close(descriptor)
            arguments, env, cwd = json.loads(request)
            return _run_child(arguments, env, cwd, files[1:])
        os.close(session_write)
        os.read(session_read, 1)  # ends when the child has closed it
        os.close(session_read)
        ended[pid] = files[0]
        for file in files[1:]:
            os.close(file)
        listener.send(str(pid).encode())


def _reap(ended: dict[int, int]) -> None:
    for pid in list(ended):
        pid_, status = os.waitpid(pid, os.WNOHANG)
        if pid_:
            pipe = ended.pop(pid)
            os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(pipe)


class _TemplateCache(FileSystemBytecodeCache):
    """The compiled templates that children share; a child whose disk a test made unwritable keeps its own."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store a compiled template, if the disk is writable."""
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def _prepare(directory: str) -> None:
    """Do what each child would: import modules, compile common templates, build types and mount routes.

    Children share the templates that they compile in a directory, which gets the OpenAPI document, too.
    """
    # Imported here, because the test process imports this module too
    from appliance.accounts import passwords
    from appliance.api import openapi
    from appliance.audience.segments import suggestions
    from appliance.content.templates import placeholders
    from appliance.core import addresses, i18n, time_zones, validation
    from appliance.events import user_agents
    from appliance.http import server
    from appliance.imports import cells
    from appliance.ops import cli
    from appliance.settings import config
    from ui import documentation, pages, static_files, view

    modules = (
        "appliance.__main__", "appliance.app", "appliance.campaigns.rehearsal", "appliance.flows.replays",
        "appliance.http.server", "appliance.ops.cli", "argparse", "email_validator",
    )  # fmt: skip
    for module in (*modules, *(f"ui.pages.{name}" for name in pages.NAMES)):
        importlib.import_module(module)
    # What a service builds at its first use, from its own files alone: together 0.8 s of a processor
    for language in i18n.LANGUAGES:
        i18n.load_catalogue(language)
    for build in (
        placeholders.load_known_texts, cells._countries, cells._language_names, time_zones.list_zones,
        addresses.phone_countries, i18n._country_codes, user_agents._parser, static_files.load_all,
        static_files.list_script_texts, documentation._markdown_renderer, suggestions.describe_builder,
    ):  # fmt: skip
        build()
    view.template_environment().bytecode_cache = _TemplateCache(directory)
    # A hash names its parameters, so that these hold for sign-ins too: each would take a processor for 40 ms otherwise
    passwords._hasher = cache(lambda: PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    validation.build_type_info()
    parser = cli._build_parser()
    cli._build_parser = lambda: parser
    # For tests that check responses against it (`Client.contract`)
    config.set_current(config.load({}, {}).config)
    document = json.dumps(openapi.build_document(), default=str)
    config._current = None
    Path(directory, DOCUMENT_FILE).write_text(document, encoding="utf-8")
    app = server.mount_routes()
    app.finalize()
    # Rewrites the handling of requests for HTTP/1.1 alone, without the signals that nothing receives
    app.state.server_info.append(ApplicationServerInfo({"version": HTTP.VERSION_1, "port": 0}))
    TouchUp.run(app)
    app.state.server_info.clear()
    server.mount_routes = lambda: app
    # What is done cannot be done again, and would take each child 0.1 s of a processor
    Sanic.finalize = lambda _: None
    TouchUp.run = lambda _: None


if __name__ == "__main__":
    gc.disable()  # what is imported stays; a service turns it on again
    _prepare(sys.argv[2])
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
