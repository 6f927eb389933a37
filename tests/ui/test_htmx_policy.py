"""htmx under our content security policy, in a real browser.

Result: htmx 4.0.1 passes with `includeIndicatorCSS:false` (its indicator styles are in our own sheet) and the morphing
of its core (`outerMorph`), so neither htmx 2 nor idiomorph is shipped. The policy forbids trigger filters, `hx-on` and
`js:` values, which need `new Function`: our pages must not use them.
"""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, Page, expect

from ui import guard

STATIC = Path(__file__).parents[2] / "static"
CONFIG = '{"includeIndicatorCSS":false,"morphIgnore":["data-htmx-powered","open"]}'
PAGE = f"""<!doctype html><html lang="en"><head><title>Policy</title><meta name="htmx-config" content='{CONFIG}'>
<script src="/static/vendor/htmx.min.js" defer></script></head><body>
<form id="save" action="/save" method="post" hx-post="/save" hx-trigger="input delay:50ms" hx-target="this"
 hx-sync="this:queue all" hx-swap="outerMorph"><input id="typed" name="typed" value="old"><output>0</output></form>
<form id="bad" action="/bad" method="post" hx-post="/bad" hx-target="this" hx-swap="outerMorph">
<input id="field" name="field" value=""><button>Save</button></form>
<section id="live" hx-get="/live" hx-trigger="every 60ms" hx-target="this" hx-swap="outerMorph">0</section>
</body></html>"""


class SampleSite(BaseHTTPRequestHandler):
    """A small site with exactly the headers of our pages."""

    protocol_version = "HTTP/1.1"
    request_counts: dict[str, int] = {}
    save_permits = threading.Semaphore(0)  # one permit for each response to a save

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _respond(self, body: str | bytes, kind: str = "text/html; charset=utf-8", status: int = 200) -> None:
        content = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in (
            ("content-type", kind), ("content-length", str(len(content))), ("x-content-type-options", "nosniff"),
            ("content-security-policy", guard.PAGE_POLICY),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        """Return the page, a script, or a counter whose polling ends at three."""
        if self.path.startswith("/static/"):
            self._respond((STATIC / self.path.removeprefix("/static/")).read_bytes(), "text/javascript")
        elif self.path == "/live":
            step = self.request_counts["live"] = self.request_counts.get("live", 0) + 1
            again = 'hx-get="/live" hx-trigger="every 60ms" hx-target="this" hx-swap="outerMorph"' if step < 3 else ""
            self._respond(f'<section id="live" {again}>{step}</section>')
        else:
            self._respond(PAGE)

    def do_POST(self) -> None:
        """Return the saved form once there is a permit, or the form with an error."""
        typed = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode(), keep_blank_values=True)
        if self.path == "/save":
            assert self.save_permits.acquire(timeout=30)
            value = typed["typed"][0]
            self._respond(
                f'<form id="save" action="/save" method="post" hx-post="/save" hx-trigger="input delay:50ms" '
                f'hx-target="this" hx-sync="this:queue all" hx-swap="outerMorph"><input id="typed" name="typed" '
                f'value="{value}"><output>{len(value)}</output></form>'
            )
        else:
            self._respond(
                '<form id="bad" action="/bad" method="post" hx-post="/bad" hx-target="this" hx-swap="outerMorph">'
                f'<input id="field" name="field" value="{typed["field"][0]}" aria-invalid="true">'
                '<p id="why">Fill this in.</p><button>Save</button></form>',
                status=422,
            )


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """The page of the site; violations of the policy are collected in `window.complaints`."""
    SampleSite.request_counts = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), SampleSite)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    context.add_init_script(
        "window.complaints = []; document.addEventListener('securitypolicyviolation', "
        "(e) => window.complaints.push(e.violatedDirective + ' ' + e.sourceFile));"
    )
    opened = context.new_page()
    opened.goto(f"http://127.0.0.1:{server.server_port}/")
    yield opened
    complaints = opened.evaluate("window.complaints")
    context.close()
    server.shutdown()
    server.server_close()
    assert complaints == [], "no inline style, no inline script, no eval"


def test_typed_text_survives_a_swap(page: Page) -> None:
    """Text that is typed during a request stays, with its caret, while the rest of the block is replaced."""
    with page.expect_request("**/save"):
        page.locator("#typed").fill("abc")
    page.locator("#typed").press("End")
    page.locator("#typed").press_sequentially("defgh")
    SampleSite.save_permits.release()
    expect(page.locator("#save output")).to_have_text("3")
    expect(page.locator("#typed")).to_have_value("abcdefgh")
    SampleSite.save_permits.release(8)
    expect(page.locator("#save output")).to_have_text("8")
    expect(page.locator("#typed")).to_have_value("abcdefgh")
    assert page.evaluate("[document.activeElement.id, document.activeElement.selectionStart]") == ["typed", 8]


def test_a_422_response_is_swapped(page: Page) -> None:
    """A 422 replaces the form by one with the error and the typed value."""
    page.locator("#field").fill("kept")
    page.locator("#bad button").click()
    page.locator("#why").wait_for()
    expect(page.locator("#field")).to_have_value("kept")
    assert page.locator("#field").get_attribute("aria-invalid") == "true"


def test_polling_ends(page: Page) -> None:
    """A block that is returned without its trigger stops polling."""
    expect(page.locator("#live:not([hx-trigger])")).to_have_text(re.compile("[34]"))
    # What the browser requests from now on; the server may still receive an earlier request
    requested_urls: list[str] = []
    page.on("request", lambda request: requested_urls.append(request.url))
    page.wait_for_timeout(600)
    assert requested_urls == []


def test_the_policy_is_enforced(page: Page) -> None:
    """Under the same headers an inline style and code from a string are blocked, so the other tests are valid."""
    page.evaluate("document.body.setAttribute('style', 'margin: 99px'); setTimeout('window.evil = 1', 0)")
    page.wait_for_timeout(60)
    assert page.evaluate("[window.evil, getComputedStyle(document.body).marginTop !== '99px']") == [None, True]
    page.evaluate("window.complaints = []")
