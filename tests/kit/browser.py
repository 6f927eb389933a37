"""A real browser for page tests, which fail on any console error, page error or policy violation."""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakSet

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Locator, Page, expect, sync_playwright

from tests.kit import sampling
from tests.kit.server import EMAIL, PASSWORD, Server

expect.set_options(timeout=20_000)  # the default of 5 s is too short for a busy machine
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
# Pages do not live long enough to gain from optimised code: where axe checks page after page, compiling it takes a
# sixth of the renderer's processor time
_ARGUMENTS = ("--no-sandbox", "--js-flags=--no-opt --no-maglev")
# Runs in every frame before its own scripts: some violations raise this event without a line in the console.
_WATCH_POLICY = """document.addEventListener('securitypolicyviolation', e =>
  console.error(`policy: ${e.violatedDirective} blocked ${e.blockedURI} at ${e.sourceFile}:${e.lineNumber}`))"""
# Pages ask again every second or two while something is under way, for which a test would wait most of its time
_POLL_QUICKLY = """{
  const every = window.setInterval;
  window.setInterval = (act, delay, ...rest) => every(act, delay >= 1000 && delay <= 6000 ? delay / 4 : delay, ...rest);
}"""
# The browser logs the 422 response to an invalid form as a failed load.
# Leaving a page before it has faded in aborts its transition, which the browser reports as a page error.
_EXPECTED = [
    r"Failed to load resource: the server responded with a status of 422",
    r"page error: Transition was aborted because of invalid state",
]
# No person acts before the scripts of a page listen; on a slow machine a test must not either
_ACTIONS = ("click", "fill", "press", "press_sequentially", "check", "uncheck", "select_option", "drag_to")
_UNBOUND_ELEMENTS = (
    "[...document.querySelectorAll(':is([hx-get], [hx-post]):not([data-htmx-powered])')].map(one => one.outerHTML)"
)
_ALL_ELEMENTS_BOUND = (
    f"performance.getEntriesByType('navigation')[0]?.domContentLoadedEventEnd > 0 && !{_UNBOUND_ELEMENTS}.length"
)
# For an element of the page itself, not of a frame in it
_ALL_ELEMENTS_BOUND_BESIDE = f"element => element.ownerDocument.defaultView === top && {_ALL_ELEMENTS_BOUND}"
_TIMEOUT_SECONDS = 30.0
_HEIGHT = 800
# Runs in a page that is given back: without it, leaving the page would save what was typed and remember the focus
_EMPTY_PAGE = """() => {
  stop();
  document.open();
  document.close();
  for (let timer = setTimeout(() => {}); timer; timer--) clearTimeout(timer);
  sessionStorage.clear();
  localStorage.clear();
  history.replaceState(null, "", "/");  // so that no test begins at a fragment of this page
}"""
# What no later page in a context can undo: after it, a page is not lent again
_LASTING_CHANGES = (
    "add_init_script", "expose_binding", "expose_function", "grant_permissions", "on", "once", "route",
    "route_web_socket", "set_extra_http_headers", "set_geolocation", "set_offline",
)  # fmt: skip
_contexts_with_scripts: WeakSet[BrowserContext] = WeakSet()
_changed_contexts: WeakSet[BrowserContext] = WeakSet()
# The pages that were given back, by server, width and motion
_free_pages: "WeakKeyDictionary[Browser, dict[tuple[str, int, bool], Page]]" = WeakKeyDictionary()
# Where the problems of a context are recorded
_watchers: "WeakKeyDictionary[BrowserContext, Problems]" = WeakKeyDictionary()
_owner_sessions: "WeakKeyDictionary[Server, list[Any]]" = WeakKeyDictionary()


def wait_until_scripts_listen(page: Page) -> None:
    """Wait until the scripts of a page handle events of its elements."""
    until = time.monotonic() + _TIMEOUT_SECONDS
    while not _scripts_listen(page):
        assert time.monotonic() < until, f"the scripts of {page.url} never listen to {_UNBOUND_ELEMENTS}"
        page.wait_for_timeout(10)


def _scripts_listen(page: Page) -> bool:
    try:
        return bool(page.evaluate(_ALL_ELEMENTS_BOUND))
    except Error as error:
        if "context was destroyed" in str(error) or "navigation" in str(error):
            return False  # a navigation is under way; ask the next page
        raise


def _wait_for_scripts(act: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(act)
    def acted(locator: Locator, *args: Any, **options: Any) -> Any:
        has_scripts = locator.page.context in _contexts_with_scripts
        # Most actions need only the first of these three requests to the browser
        if has_scripts and not locator.evaluate(_ALL_ELEMENTS_BOUND_BESIDE):
            locator.wait_for(state="attached")
            wait_until_scripts_listen(locator.page)
        return act(locator, *args, **options)

    return acted


def _note_change(change: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(change)
    def changed(place: Page | BrowserContext, *args: Any, **options: Any) -> Any:
        _changed_contexts.add(place.context if isinstance(place, Page) else place)
        return change(place, *args, **options)

    return changed


for _name in _ACTIONS:
    setattr(Locator, _name, _wait_for_scripts(getattr(Locator, _name)))
for _class in (Page, BrowserContext):
    for _name in _LASTING_CHANGES:
        if hasattr(_class, _name):
            setattr(_class, _name, _note_change(getattr(_class, _name)))


def find_browser() -> str | None:
    """Return the path of an installed Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run a browser without a profile until the context ends."""
    path = find_browser()
    if path is None:
        raise AssertionError("no Chromium; packaging/test installs it, or says how")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Problems:
    """Console errors, page errors and policy violations of one test; `allow(pattern)` excludes expected ones."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._allowed = [re.compile(pattern) for pattern in _EXPECTED]

    def watch(self, context: BrowserContext) -> None:
        """Record the problems of every page of a context, from now on here alone."""
        if context not in _watchers:
            context.add_init_script(_WATCH_POLICY)
            context.on("console", lambda message: _watchers[context]._console(message))
            context.on("weberror", lambda error: _watchers[context]._found.append(f"page error: {error.error}"))
        _watchers[context] = self

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._found.append(f"console: {message.text} ({message.location.get('url')})")

    def allow(self, pattern: str) -> None:
        """Exclude problems that match, before or after they happen."""
        self._allowed.append(re.compile(pattern))

    @property
    def found(self) -> list[str]:
        """Return the problems that are not allowed."""
        return [text for text in self._found if not any(pattern.search(text) for pattern in self._allowed)]


def new_page(
    browser: Browser,
    base_url: str,
    problems: Problems,
    *,
    width: int = 1280,
    dark: bool = False,
    motion: bool = False,
    locale: str | None = None,
    scale: float = 1,
) -> Page:
    """Open a page in a new context, with relative URLs resolved against `base_url`.

    Pages have reduced motion, because fading from page to page takes a seventh of the processor time of a test, and
    poll four times as often as others. `motion` and `--full` leave the motion as it is, `--full` the polls.
    """
    context = browser.new_context(
        base_url=base_url,
        viewport={"width": width, "height": _HEIGHT},
        color_scheme="dark" if dark else "light",
        reduced_motion=_motion(motion),
        ignore_https_errors=base_url.startswith("https://"),
        locale=locale,
        device_scale_factor=scale,
    )
    context.set_default_timeout(_TIMEOUT_SECONDS * 1000)
    if not sampling.is_full:
        context.add_init_script(_POLL_QUICKLY)
    problems.watch(context)
    _contexts_with_scripts.add(context)
    return context.new_page()


@contextmanager
def lent_page(
    browser: Browser, base_url: str, problems: Problems, *, width: int = 1280, motion: bool = False
) -> Iterator[Page]:
    """Lend a page that is as `new_page` opens it, without cookies, and may have been used by an earlier test.

    A page costs three times as much processor time if it is new. One is lent again unless its test closed it or changed
    what no later page can undo.
    """
    key, free = (base_url, width, motion), _free_pages.setdefault(browser, {})
    page = free.pop(key, None)
    if page is None or page.is_closed():
        page = new_page(browser, base_url, problems, width=width, motion=motion)
    problems.watch(page.context)
    _changed_contexts.discard(page.context)
    yield page
    is_changed = len(page.context.pages) != 1 or page.context in _changed_contexts
    if is_changed or not page.url.startswith(base_url):
        page.context.close()
        return
    page.evaluate("0")  # after it, the problems of the test are recorded
    Problems().watch(page.context)
    if _clean(page, width, motion):
        free[key] = page


def _clean(page: Page, width: int, motion: bool) -> bool:
    """Remove what a test showed in a page and what it stored; close the page if it cannot be cleaned."""
    try:
        page.mouse.up()  # a drag may have failed
        page.evaluate(_EMPTY_PAGE)
        page.mouse.move(0, 0)
        page.set_viewport_size({"width": width, "height": _HEIGHT})
        page.emulate_media(color_scheme="light", reduced_motion=_motion(motion))
        page.context.clear_cookies()
    except Error:
        page.context.close()
        return False
    return True


def _motion(motion: bool) -> Literal["no-preference", "reduce"]:
    return "no-preference" if motion or sampling.is_full else "reduce"


def new_scriptless_context(browser: Browser, base_url: str) -> BrowserContext:
    """Open a context without JavaScript, and with reduced motion as in `new_page`."""
    context = browser.new_context(
        base_url=base_url, java_script_enabled=False, reduced_motion="no-preference" if sampling.is_full else "reduce"
    )
    context.set_default_timeout(_TIMEOUT_SECONDS * 1000)
    return context


def sign_in(page: Page, email: str = EMAIL, password: str = PASSWORD) -> Page:
    """Sign in as the owner that `Server.set_up()` created, without opening a page."""
    response = page.context.request.post(
        "/login",
        form={"email": email, "password": password},
        headers={"Sec-Fetch-Site": "same-origin"},
        max_redirects=0,
    )
    assert response.status == 303, f"sign-in of {email}: status {response.status}"
    return page


def sign_in_by_form(page: Page, email: str = EMAIL, password: str = PASSWORD) -> Page:
    """Sign in through the form, which leads to the first page."""
    page.goto("/login")
    page.locator("input[name=email]").fill(email)
    page.locator("input[name=password]").fill(password)
    page.locator("input[name=password]").press("Enter")
    page.wait_for_url(lambda url: "/login" not in url)
    return page


def reuse_session(page: Page, server: Server) -> Page:
    """Sign in as the owner with the session of an earlier page on this server; not for a test that ends it."""
    cookies = _owner_sessions.get(server)
    if cookies is None:
        _owner_sessions[server] = sign_in(page).context.cookies()
    else:
        page.context.add_cookies(cookies)
    return page


def choose_option(page: Page, label: str, typed: str) -> None:
    """Choose an option of a long select as a user does: open its finder, type, and take the first match."""
    page.get_by_role("button", name=f"{label}:").click()
    finder = page.get_by_role("combobox", name="Search options")
    finder.fill(typed)
    finder.press("Enter")


def save_screenshot(page: Page, name: str) -> None:
    """Save a screenshot of the whole page to $CAMPANERO_SHOTS; do nothing without that variable."""
    directory = os.environ.get("CAMPANERO_SHOTS")
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(directory, f"{name}.png"), full_page=True)
