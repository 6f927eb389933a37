"""Which htmx, decided under the real policy in a real browser.

Result: htmx 4.0.1 passes all of it with `includeIndicatorCSS:false` (its indicator styles would be ours to keep) and
morphing from its own core (`outerMorph`), so neither htmx 2 nor idiomorph is shipped. What the policy forbids is what
our pages must not use: trigger filters, `hx-on` and `js:` values (each needs `new Function`).
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


class Answers(BaseHTTPRequestHandler):
    """A tiny site under exactly the headers of our pages."""

    protocol_version = "HTTP/1.1"
    asked: dict[str, int] = {}
    turn = threading.Semaphore(0)  # one for each answer to a save

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self, body: str | bytes, kind: str = "text/html; charset=utf-8", status: int = 200) -> None:
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
        """The page, the script, and a counter that stops asking at three."""
        if self.path.startswith("/static/"):
            self._answer((STATIC / self.path.removeprefix("/static/")).read_bytes(), "text/javascript")
        elif self.path == "/live":
            step = self.asked["live"] = self.asked.get("live", 0) + 1
            again = 'hx-get="/live" hx-trigger="every 60ms" hx-target="this" hx-swap="outerMorph"' if step < 3 else ""
            self._answer(f'<section id="live" {again}>{step}</section>')
        else:
            self._answer(PAGE)

    def do_POST(self) -> None:
        """Save when it is told to, or refuse with the same block."""
        typed = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode(), keep_blank_values=True)
        if self.path == "/save":
            assert self.turn.acquire(timeout=30)
            value = typed["typed"][0]
            self._answer(
                f'<form id="save" action="/save" method="post" hx-post="/save" hx-trigger="input delay:50ms" '
                f'hx-target="this" hx-sync="this:queue all" hx-swap="outerMorph"><input id="typed" name="typed" '
                f'value="{value}"><output>{len(value)}</output></form>'
            )
        else:
            self._answer(
                '<form id="bad" action="/bad" method="post" hx-post="/bad" hx-target="this" hx-swap="outerMorph">'
                f'<input id="field" name="field" value="{typed["field"][0]}" aria-invalid="true">'
                '<p id="why">Fill this in.</p><button>Save</button></form>',
                status=422,
            )


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """The tiny site, opened, with every complaint of the policy collected on `window.complaints`."""
    Answers.asked = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
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


def test_typed_text_survives_a_morph(page: Page) -> None:
    """What is typed while an answer is under way stays, the caret too, and the rest of the block is fresh."""
    with page.expect_request("**/save"):
        page.locator("#typed").fill("abc")
    page.locator("#typed").press("End")
    page.locator("#typed").press_sequentially("defgh")
    Answers.turn.release()
    expect(page.locator("#save output")).to_have_text("3")
    assert page.locator("#typed").input_value() == "abcdefgh"
    Answers.turn.release(8)
    expect(page.locator("#save output")).to_have_text("8")
    assert page.locator("#typed").input_value() == "abcdefgh"
    assert page.evaluate("[document.activeElement.id, document.activeElement.selectionStart]") == ["typed", 8]


def test_a_refusal_is_swapped(page: Page) -> None:
    """422 puts the same block in place, with the fault and what was typed."""
    page.locator("#field").fill("kept")
    page.locator("#bad button").click()
    page.locator("#why").wait_for()
    assert page.locator("#field").input_value() == "kept"
    assert page.locator("#field").get_attribute("aria-invalid") == "true"


def test_polling_ends_itself(page: Page) -> None:
    """A block that comes back without its trigger asks no more."""
    expect(page.locator("#live:not([hx-trigger])")).to_have_text(re.compile("[34]"))  # one may be under way by then
    asked = Answers.asked["live"]
    page.wait_for_timeout(600)
    assert Answers.asked["live"] == asked


def test_the_policy_is_in_force(page: Page) -> None:
    """The proofs above mean something: under the same headers an inline style and a text as code are refused."""
    page.evaluate("document.body.setAttribute('style', 'margin: 99px'); setTimeout('window.evil = 1', 0)")
    page.wait_for_timeout(60)
    assert page.evaluate("[window.evil, getComputedStyle(document.body).marginTop !== '99px']") == [None, True]
    page.evaluate("window.complaints = []")
