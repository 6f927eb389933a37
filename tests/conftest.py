"""Fixtures of all tests: the real server, a client, an SMTP server, a DNS server, a clock, a browser."""

import gc
import importlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.kit import axe, sampling
from tests.kit.browser import Problems, find_browser, lent_page, new_page, running_browser, sign_in
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.dns import DnsServer
from tests.kit.executable import build_executable, build_in_background
from tests.kit.fake_sms import FakeSms
from tests.kit.fork_server import fork_server
from tests.kit.processor_report import ProcessorReport
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.submission import Ports
from tests.kit.webhook_receiver import Receiver

FreshServer = Callable[..., Server]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--full` for large tests at full size, and options that write files: golden files, figures, pictures."""
    parser.addoption("--full", action="store_true", help="run large tests at their full size")
    parser.addoption("--update-golden", action="store_true", help="write golden files anew, to be looked at")
    parser.addoption("--write-guide-pictures", action="store_true", help="take the pictures of the guides anew")
    parser.addoption("--figures", metavar="FILE", help="add the figures of the fault tests to a table")
    parser.addoption("--processor", metavar="FILE", help="write the processor seconds of each test file")


# The ring of each test directory: in process, against the running service, in a browser, or with real faults
RINGS = {
    "designs": "unit", "domain": "unit", "kit_selftest": "unit", "rules": "unit",
    "api": "process", "attacks": "process", "built": "process", "copies": "process",
    "direct": "process", "doors": "process",
    "journeys": "process", "mcp": "process", "clients": "process", "clients/test_generated_files.py": "unit",
    "clients/test_python_transport.py": "unit",
    "model": "process", "oidc": "process",
    "schemathesis": "process", "test_executable.py": "process",
    "ui": "browser", "attacks/test_html.py": "browser", "designs/test_screens.py": "browser", "faults": "fault",
    # These need no service, but would take half of the time of the unit ring: random actions, threads, large inputs
    **dict.fromkeys((
        "designs/test_hostile_documents.py", "designs/test_literal_braces.py", "domain/test_child_processes.py",
        "domain/test_connection_causes.py", "domain/test_greeting.py", "domain/test_ledger.py",
        "domain/test_merge_tags.py", "domain/test_outcomes.py", "domain/test_parse_time.py",
        "domain/test_pasted_html.py", "domain/test_picture_process.py", "domain/test_pictures.py",
        "domain/test_queue_reader.py", "domain/test_render_ahead.py", "domain/test_render_time.py",
        "rules/test_patterns.py",
    ), "process"),
}  # fmt: skip


# The longest files with a browser come first of those: one of them at the end would leave processes without work
LONG_FILES = {
    "test_approval.py", "test_campaign_results.py", "test_canvas_mouse_and_keyboard.py", "test_canvas_pictures.py",
    "test_canvas_writing.py", "test_composer.py", "test_docs.py", "test_editor.py", "test_editor_drags.py",
    "test_editor_undo.py", "test_experiments.py", "test_first_send.py", "test_flows.py", "test_guide_pictures.py",
    "test_imports.py", "test_made_up_languages.py", "test_pages.py", "test_pictures.py",
    "test_placeholder_warnings.py", "test_segments.py", "test_sms_campaigns.py", "test_tables.py",
    "test_tables_without_javascript.py", "test_templates.py", "test_threats_xss.py",
}  # fmt: skip

# A test that takes longer fails, because a run that hangs reports nothing; its clean-up then has this long, repeatedly
MAX_TEST_SECONDS, MAX_TEST_SECONDS_FULL, MAX_CLEANUP_SECONDS = 300, 3600, 30

# The modules with a test that uses the fixture `browser`, and those with one that uses `executable`
BROWSER_MODULES = pytest.StashKey[set[Path]]()
EXECUTABLE_MODULES = pytest.StashKey[set[Path]]()
# What ends with the tests of this process
BESIDE_TESTS = pytest.StashKey[ExitStack]()


def _ring_of(path: Path) -> str:
    """Return the ring of a test file, given its path below this directory. Raises KeyError for an unknown directory."""
    return RINGS.get(path.as_posix()) or RINGS[path.parts[0]]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the test files of other rings with `-m unit`: all of them take each process twice as long."""
    ring = config.getoption("markexpr")
    if ring not in RINGS.values() or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    return _ring_of(collection_path.relative_to(Path(__file__).parent)) != ring or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its ring: `packaging/test -m unit`."""
    root = Path(__file__).parent
    config.stash[BROWSER_MODULES] = _modules_using("browser", items)
    config.stash[EXECUTABLE_MODULES] = _modules_using("executable", items)
    for item in items:
        path = item.path.relative_to(root)
        item.add_marker(_ring_of(path))
    items.sort(key=lambda item: _turn_of_file(item.path, config))
    if not config.getoption("--full"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("full")])
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def _modules_using(fixture: str, items: list[pytest.Item]) -> set[Path]:
    return {item.path for item in items if fixture in getattr(item, "fixturenames", ())}


def _turn_of_file(path: Path, config: pytest.Config) -> int:
    """Return when the tests of a file run; files with the same number keep their order.

    Those with a browser come together, because it is closed before each file without one, and a new one costs seconds.
    Those with the executable come last, because it is built beside the others.
    """
    if path in config.stash[EXECUTABLE_MODULES]:
        return 3
    return 0 if path not in config.stash[BROWSER_MODULES] else 1 if path.name in LONG_FILES else 2


def pytest_configure(config: pytest.Config) -> None:
    """Tell the kit whether tests check a sample or everything, before it imports test modules."""
    # What is imported and collected stays, so that looking for garbage in it takes a fifth of the collection
    gc.disable()
    axe.check_all_everywhere = sampling.is_full = bool(config.getoption("--full"))
    if path := config.getoption("--processor"):
        config.pluginmanager.register(ProcessorReport(Path(path)))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage again, but not among what was collected; begin to build the executable if a test needs it."""
    gc.freeze()
    gc.enable()
    is_first_process = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if is_first_process and not session.config.getoption("collectonly") and _modules_using("executable", session.items):
        session.config.stash[BESIDE_TESTS] = stack = ExitStack()
        stack.enter_context(build_in_background())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Fail a test that hangs, at the line where it hangs, also in its set-up or clean-up."""
    seconds = MAX_TEST_SECONDS_FULL if item.config.getoption("--full") else MAX_TEST_SECONDS
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"not done after {seconds} s"))
    signal.setitimer(signal.ITIMER_REAL, seconds, MAX_CLEANUP_SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what runs beside the tests of this process."""
    config.stash.get(BESIDE_TESTS, ExitStack()).close()


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the fork server of a parallel process, and import a module that Hypothesis would import within a test.

    Python 3.11 (up to .7) cannot parse a module while pytest reports the failure of a test that was being parsed
    (CPython, gh-106905).
    """
    importlib.import_module("hypothesis.strategies._internal.regex")
    if "PYTEST_XDIST_WORKER" in os.environ and session.config.getoption("markexpr") != "unit":
        fork_server()  # is prepared while the tests are collected
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores SIGINT in background processes, which all child processes would inherit
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Return whether large tests run at their full size."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(scope="session")
def executable() -> Path:
    """Return the executable, built from the current sources."""
    return build_executable()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a server with the built-in inbox, set up, shared by the tests of a module.

    A module whose server needs other settings has them as an environment in `SERVER_ENV`.
    """
    with Server(env=getattr(request.module, "SERVER_ENV", None)).set_up() as running:
        yield running
        running.stop()


@pytest.fixture(scope="module")
def api(server: Server) -> Client:
    """Return a client of the shared server with its full key."""
    return server.client()


@pytest.fixture(scope="module")
def user(api: Client) -> ScriptlessBrowser:
    """Return the owner of the shared server, whose browser runs no scripts."""
    return ScriptlessBrowser(api)


@pytest.fixture
def fresh_server() -> Iterator[FreshServer]:
    """Yield a function that creates servers: `fresh_server(relay=..., start=True, set_up=True, **options of Server)`.

    A server that is set up and started with a relay gets a postal address, unless `address=False`.
    """
    servers: list[Server] = []

    def make(*, start: bool = True, set_up: bool = True, address: bool = True, **options: Any) -> Server:
        server = Server(**options)
        servers.append(server)
        if set_up:
            server.set_up()
        if start:
            server.start()
        if start and set_up and address and options.get("relay"):
            server.set_postal_address()
        return server

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def smtp_server() -> Iterator[SmtpServer]:
    """Yield an SMTP server without faults."""
    with SmtpServer() as running:
        yield running


@pytest.fixture(scope="module")
def relay() -> Iterator[SmtpServer]:
    """Yield an SMTP server without faults, shared by the tests of a module."""
    with SmtpServer() as running:
        yield running


@pytest.fixture
def dns() -> Iterator[DnsServer]:
    """Yield a DNS server without records, for `fresh_server(env=dns.env)`."""
    with DnsServer() as running:
        yield running


@pytest.fixture
def fake_sms(tmp_path: Path) -> Iterator[FakeSms]:
    """Yield an SMS provider without faults, for `fresh_server(env=fake_sms.env)`."""
    with FakeSms(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared_fake_sms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeSms]:
    """Yield an SMS provider without faults, shared by the tests of a module."""
    with FakeSms(tmp_path_factory.mktemp("sms")) as running:
        yield running


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Yield a receiver of webhooks, shared by the tests of a module."""
    with Receiver(tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.fixture(scope="module")
def ports() -> Ports:
    """Return the ports of SMTP submission, for `Server(env=ports.env)`."""
    return Ports()


@pytest.fixture
def clock(tmp_path: Path) -> TestClock:
    """Return a clock for `fresh_server(clock=clock)`."""
    return TestClock(tmp_path / "clock")


class SharedBrowser:
    """One browser for all modules of a worker: a new one costs seconds until its first page is drawn.

    It is closed before a module that uses none, because its event loop would disturb `asyncio.run` there.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._browser: Browser | None = None

    def get(self) -> Browser:
        """Return the browser; start one if there is none, or if it has crashed."""
        if self._browser is None or not self._browser.is_connected():
            self.close()
            self._browser = self._stack.enter_context(running_browser())
        return self._browser

    def close(self) -> None:
        """End the browser, if there is one."""
        self._browser = None
        self._stack.close()


@pytest.fixture(scope="session")
def shared_browser() -> Iterator[SharedBrowser]:
    """The browser of this worker, not started yet."""
    shared = SharedBrowser()
    yield shared
    shared.close()


@pytest.fixture(scope="module", autouse=True)
def _without_browser(request: pytest.FixtureRequest, shared_browser: SharedBrowser) -> None:
    """Close the shared browser before a module whose tests use none."""
    if request.path not in request.config.stash[BROWSER_MODULES]:
        shared_browser.close()


@pytest.fixture(scope="module")
def browser(shared_browser: SharedBrowser) -> Iterator[Browser]:
    """A browser without contexts of other modules; those of this module are closed at its end."""
    if find_browser() is None and os.environ.get("CI") != "true":
        # By hand on a machine without a browser; in CI its absence fails instead
        pytest.skip("no Chromium installed; packaging/test says how to get it")
    running = shared_browser.get()
    yield running
    for context in running.contexts:
        context.close()


@pytest.fixture
def browser_problems() -> Problems:
    """Return the problems in the pages of the test; `allow(pattern)` excludes expected ones."""
    return Problems()


@pytest.fixture
def anonymous_page(browser: Browser, server: Server, browser_problems: Problems) -> Iterator[Page]:
    """Lend a page on the shared server without signing in; the test fails on any unexpected problem."""
    with lent_page(browser, server.url, browser_problems) as page:
        yield page
    assert not browser_problems.found


@pytest.fixture(scope="module")
def owner_cookies(browser: Browser, server: Server) -> list[Any]:
    """Return the cookies of a session of the owner of the shared server."""
    page = sign_in(new_page(browser, server.url, Problems()))
    cookies = page.context.cookies()
    page.context.close()
    return cookies


@pytest.fixture
def browser_page(anonymous_page: Page, owner_cookies: list[Any]) -> Page:
    """Return a page on the shared server, signed in as its owner.

    The session is that of the module's other tests, unless one of them ended it.
    """
    anonymous_page.context.add_cookies(owner_cookies)
    is_signed_in = anonymous_page.context.request.get("/settings/you", max_redirects=0).status == 200
    return anonymous_page if is_signed_in else sign_in(anonymous_page)
