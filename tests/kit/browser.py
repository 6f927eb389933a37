"""A real browser for page tests, in which any console error, page error or breach of the policy fails the test."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.kit.server import EMAIL, PASSWORD

expect.set_options(timeout=20_000)  # the 5 s that it gives a page are those of a quiet machine
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
# Runs in every frame before its own scripts: the event reports breaches that no console line shows.
_WATCH_POLICY = """document.addEventListener('securitypolicyviolation', e =>
  console.error(`policy: ${e.violatedDirective} blocked ${e.blockedURI} at ${e.sourceFile}:${e.lineNumber}`))"""
# A form that is answered 422 shows its mistakes; the browser logs that answer as a failed load.
# Whoever goes on before a page has faded in ends its transition; the browser calls that an error of the page.
_EXPECTED = [
    r"Failed to load resource: the server responded with a status of 422",
    r"page error: Transition was aborted because of invalid state",
]


def find_browser() -> str | None:
    """Return the path of an installed Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run a browser for a while; without a profile, without a network of its own."""
    path = find_browser()
    if path is None:
        raise AssertionError("no Chromium; packaging/test installs it, or says how")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Problems:
    """What went wrong in the pages of one test; `allow(pattern)` takes out what the test provokes."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._allowed = [re.compile(pattern) for pattern in _EXPECTED]

    def watch(self, context: BrowserContext) -> None:
        """Listen to every page of a context."""
        context.add_init_script(_WATCH_POLICY)
        context.on("console", self._console)
        context.on("weberror", lambda error: self._found.append(f"page error: {error.error}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._found.append(f"console: {message.text} ({message.location.get('url')})")

    def allow(self, pattern: str) -> None:
        """Expect problems that match, before or after they happen."""
        self._allowed.append(re.compile(pattern))

    @property
    def found(self) -> list[str]:
        """Return the problems that nothing allows."""
        return [text for text in self._found if not any(pattern.search(text) for pattern in self._allowed)]


def new_page(browser: Browser, base_url: str, problems: Problems, *, width: int = 1280, dark: bool = False) -> Page:
    """Open a page in a context of its own; relative addresses are the server's."""
    context = browser.new_context(
        base_url=base_url,
        viewport={"width": width, "height": 800},
        color_scheme="dark" if dark else "light",
        ignore_https_errors=base_url.startswith("https://"),
    )
    context.set_default_timeout(30_000)
    problems.watch(context)
    return context.new_page()


def sign_in(page: Page, email: str = EMAIL, password: str = PASSWORD) -> Page:
    """Sign in as the owner that `Server.set_up()` made, through the form."""
    page.goto("/login")
    page.locator("input[name=email]").fill(email)
    page.locator("input[name=password]").fill(password)
    page.locator("input[name=password]").press("Enter")
    page.wait_for_url(lambda url: "/login" not in url)
    return page


def shoot(page: Page, name: str) -> None:
    """Save a picture of the whole page to $CAMPANERO_SHOTS; nothing without that variable."""
    directory = os.environ.get("CAMPANERO_SHOTS")
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(directory, f"{name}.png"), full_page=True)
